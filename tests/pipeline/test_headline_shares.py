"""The sentence of a wait that is over, its shares recomputed from the run's own tables by code that
imports nothing of what explains."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.commands import pellucid

CLUSTER = Path(__file__).parents[2] / "pipeline" / "worlds" / "clusters" / "demo.yaml"
Row = dict[str, Any]


def command(*words: str) -> str:
    done = pellucid(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, small_trace: Path) -> Path:
    out = tmp_path_factory.mktemp("run") / "fifo"
    command("simulate", "--trace", str(small_trace), "--cluster", str(CLUSTER), "--policy", "fifo",
            "--out", str(out))  # fmt: skip
    return out


def rows(run: Path, name: str) -> list[Row]:
    return list(pq.read_table(run / f"{name}.parquet").to_pylist())


def seconds(row: Row, since: str, until: str) -> float:
    return float((row[until] - row[since]).total_seconds())


def test_the_shares_of_a_wait_are_those_of_the_runs_own_tables(run: Path) -> None:
    jobs = {row["job_id"]: row for row in rows(run, "jobs")}
    decisions = rows(run, "decisions")
    waited = [row for row in jobs.values() if row["queue_s"] > 60][:10]
    assert len(waited) == 10
    for job in waited:
        came, began = job["submit_time"], job["start_time"]
        had = Counter[str]()
        for other in jobs.values():
            if other["vc"] == job["vc"] and other is not job and other["start_time"] is not None:
                both = min(other["end_time"], began) - max(other["start_time"], came)
                if both.total_seconds() >= 1:
                    had[other["job_id"]] = other["gpus"] * both.total_seconds() / 3600
        by, since, reason = Counter[str](), came, ""
        own = (d for d in decisions if d["job_id"] == job["job_id"] and d["time"] <= began)
        for d in own:
            by[reason] += (d["time"] - since).total_seconds()
            since, reason = d["time"], d["reason"]
        told = json.loads(command("explain", job["job_id"], "--run", str(run), "--json"))
        text = told["headline"]
        shares = [float(n) for n in re.findall(r"([\d.]+) %", text.split("). Meanwhile")[0])]
        true = sorted((100 * s / sum(by.values()) for s in by.values()), reverse=True)
        assert shares == pytest.approx([share for share in true if share >= 1], abs=0.51)
        sizes = {"hour": 1.0, "minute": 60.0, "second": 3600.0}
        amounts = re.findall(r"([\d,.]+) GPU (hour|minute|second)", text)
        hours = [float(n.replace(",", "")) / sizes[unit] for n, unit in amounts]
        ranked = sorted(had.values(), reverse=True)
        wanted = [job["gpus"] * seconds(job, "submit_time", "start_time") / 3600, *ranked[:2]]
        wanted += [sum(ranked[2:])] if ranked[2:] else []
        assert hours == pytest.approx(wanted, rel=0.01, abs=0.01), text
        for name in re.findall(r"job (\S+) had", text):
            assert had[name] >= min(ranked[:2]) - 1e-6


@pytest.fixture(scope="module")
def bounded(run: Path, small_trace: Path) -> Path:
    """The same jobs under a policy that bounds waiting at a quarter of an hour."""
    out = run.parent / "bounded"
    command("simulate", "--trace", str(small_trace), "--cluster", str(CLUSTER), "--policy",
            "pellucid", "--set", "max_wait_s=900", "--out", str(out))  # fmt: skip
    return out


def test_where_the_bound_on_waiting_passed_it_is_said_and_what_came_of_it(bounded: Path) -> None:
    decisions, by = rows(bounded, "decisions"), defaultdict[str, list[tuple[Row, str]]](list)
    kept = {d["job_id"]: d["time"] for d in reversed(decisions) if d["action"] == "reserve"}
    began = {d["job_id"]: dict(d["evidence"]) for d in decisions if d["action"] in ON_GPUS}
    for job in rows(bounded, "jobs"):
        if job["start_time"] is None or seconds(job, "submit_time", "start_time") < 60:
            continue
        late = {k: float(v) for k, v in began[job["job_id"]].items() if k.startswith("bound")}
        if seconds(job, "submit_time", "start_time") < 900:
            by["in time"].append((job, ""))
        elif job["job_id"] in kept:
            passed_s = (kept[job["job_id"]] - job["submit_time"]).total_seconds()
            hours, minutes = divmod(round(passed_s / 60), 60)
            after = f"{hours} h {minutes} min" if hours else f"{minutes} min"
            by["kept"].append((job, f"{after} after its submission"))
        elif not late["bound_left_s"]:
            by["first"].append((job, ", and so it went before all jobs that had waited less"))
        elif "bound_costs_s" in late:
            by["costs"].append(
                (job, "the bound did not apply yet: if it went first, the other jobs would wait")
            )
        else:
            asked = "did not apply yet: all jobs together asked for"
            times = f"{asked} {late['bound_times']:.2f} times as many GPUs"
            by["demand"].append((job, times))
    assert {*by} == {"in time", "kept", "first", "costs", "demand"}
    for cases in by.values():
        for job, words in cases[:3]:
            told = json.loads(command("explain", job["job_id"], "--run", str(bounded), "--json"))
            said = re.search(
                r"It waited longer than 15 min, the bound after which a job goes first(.+)",
                told["headline"],
            )
            assert (said is not None) == (words != ""), told["headline"]
            assert said is None or words in said[1]


ON_GPUS = ("start", "pack")
