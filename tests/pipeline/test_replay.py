"""The savings report, on dumps rendered from schedules whose rule is known."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from features.job import Job
from pipeline.cli import _load, app
from pipeline.errors import UserError
from pipeline.replay.page import render
from pipeline.replay.runs import VARIANTS, replay
from pipeline.replay.site import expanded, read_site
from scheduler.cluster import Cluster, ClusterSpec
from scheduler.core import Core
from scheduler.engine import Engine
from scheduler.policies.easy import Easy
from scheduler.work import SimulatedContention, Work

HEADER = (
    "JobID|JobName|User|Partition|Submit|Eligible|Start|End|Elapsed|Timelimit|State|ExitCode|"
    "NNodes|ReqTRES|AllocTRES"
)
T0 = int(datetime(2026, 3, 2, tzinfo=UTC).timestamp())
SHAPE = ClusterSpec({"short": 2, "long": 3}, 4)


def clock(seconds: float) -> str:
    return datetime.fromtimestamp(round(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%S")


def span(seconds: float) -> str:
    minutes, left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"{days}-{hours:02d}:{minutes:02d}:{left:02d}"


def dump(path: Path, jobs: int = 240, seed: int = 1) -> Path:
    """Weeks of a small site that runs EASY backfill, as its sacct would tell them."""
    rng = random.Random(seed)
    submitted, work, now = [], {}, float(T0)
    for i in range(jobs):
        now += rng.randint(1, 900)
        gpus = rng.choice([1, 1, 1, 2, 4, 8])
        duration = rng.choice([60, 300, 1800, 7200])
        limit = float(duration * rng.choice([1, 2, 5]))
        submitted.append(
            Job(str(i), now, gpus, f"user{i % 7}", rng.choice(["short", "long"]), f"run{i % 5}",
                time_limit_s=limit)
        )  # fmt: skip
        work[str(i)] = Work(duration)
    engine = Engine(Core(Cluster(SHAPE), Easy()), submitted, work, SimulatedContention())
    lines = [HEADER]
    for r in engine.run().jobs:
        job, start, end = r.job, r.start_time, r.end_time
        assert start is not None
        assert end is not None
        tres = f"cpu=4,gres/gpu={job.gpus},node={-(-job.gpus // 4)}"
        lines.append(
            f"{job.job_id}|{job.name}|{job.user}|{job.vc}|{clock(job.submit_time)}"
            f"|{clock(job.submit_time)}|{clock(start)}|{clock(end)}|{span(end - start)}"
            f"|{span(job.time_limit_s or 0)}|COMPLETED|0:0|{-(-job.gpus // 4)}|{tres}|{tres}"
        )
    lines.append(f"{jobs}.batch|batch||short|||||00:00:01||COMPLETED|0:0|1||")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return dump(tmp_path_factory.mktemp("dump") / "dump.txt")


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("nodes") / "nodes.txt"
    blocks = []
    for i, partition in enumerate(["short"] * 2 + ["long"] * 3):
        blocks.append(
            f"NodeName=n{i} Arch=x86_64 CoresPerSocket=16\n   Gres=gpu:a100:4(S:0-1)\n"
            f"   Partitions={partition}{',all' if i == 0 else ''}\n"
        )
    path.write_text("\n".join(blocks))
    return path


def test_the_engine_finds_the_recorded_schedule_of_a_site_that_runs_its_rule(
    told: Path, nodes: Path, tmp_path: Path
) -> None:
    site = read_site(told, tmp_path, nodes=nodes)
    assert site.workload.cluster.vcs == SHAPE.vcs
    assert site.counts["replayed"] == 240
    assert site.counts["steps"] == 1
    assert any("several partitions" in note for note in site.notes)
    found = replay(site, 2)
    back = found["backtest"]
    assert back["jobs"] == 240
    assert back["within_5_min"] == 1.0
    assert back["avg_wait_replayed_s"] == pytest.approx(back["avg_wait_recorded_s"], abs=2.0)
    assert [v["key"] for v in found["variants"]] == [v.key for v in VARIANTS]
    waits = {v["key"]: v["avg_wait_s"] for v in found["variants"]}
    assert waits["pellucid"] < waits["fifo"]
    assert waits["borrow"] < waits["pellucid"]
    for rows, names in (("by_vc", 2), ("by_user", 7)):
        assert len(found[rows]) == names
        jobs = sum(row["jobs"] for row in found[rows])
        mean = sum(row["jobs"] * row["recorded_s"] for row in found[rows]) / jobs
        assert mean == pytest.approx(found["recorded"]["avg_wait_s"])
    html = render(site, found, None)
    assert "PACKING HERE IS AN ASSUMPTION" in html
    assert "http://" not in html.replace("http://www.w3.org", "")
    assert "https://" not in html


def test_the_shape_is_inferred_from_what_ran_at_once(told: Path, tmp_path: Path) -> None:
    site = read_site(told, tmp_path)
    assert site.workload.cluster.gpus_per_node == 4
    assert all(0 < n <= SHAPE.vcs[vc] for vc, n in site.workload.cluster.vcs.items())
    assert "inferred" in site.shape


def test_nodes_named_in_the_dump_are_counted(told: Path, tmp_path: Path) -> None:
    named = tmp_path / "named.txt"
    lines = told.read_text().splitlines()
    hosts = {"short": "s[01-02]", "long": "l[1,3-4]-ib"}
    named.write_text(
        "\n".join(
            [lines[0] + "|NodeList"] + [f"{line}|{hosts[line.split('|')[3]]}" for line in lines[1:]]
        )
    )
    site = read_site(named, tmp_path / "d")
    assert site.workload.cluster.vcs == SHAPE.vcs


@pytest.mark.parametrize(
    ("names", "found"),
    [
        ("n1", ["n1"]),
        ("n[08-10],login", ["n08", "n09", "n10", "login"]),
        ("a[1,3]-ib,b2", ["a1-ib", "a3-ib", "b2"]),
        ("None assigned", []),
        ("", []),
        ("n[1-99999999]", []),
        ("n[x-2]", []),
    ],
)
def test_host_lists_are_read_as_slurm_writes_them(names: str, found: list[str]) -> None:
    assert expanded(names) == found


def test_nothing_of_a_person_is_left_in_an_anonymous_report(told: Path, tmp_path: Path) -> None:
    site = read_site(told, tmp_path, anonymise=True)
    found = replay(site, 1, variants=VARIANTS[:3])
    text = render(site, found, None) + json.dumps(found)
    for name in ("user1", "run1", "short", "long_"):
        assert name not in text.replace("shorter", "").replace("longer", "")


def test_only_the_last_days_are_replayed_when_asked(told: Path, tmp_path: Path) -> None:
    whole, last = (read_site(told, tmp_path / str(days), last_days=days) for days in (None, 0.5))
    assert 0 < len(last.workload.jobs) < len(whole.workload.jobs)


def test_bad_dumps_end_in_one_line(told: Path, tmp_path: Path) -> None:
    runner = CliRunner()
    _load()
    cut = tmp_path / "cut.txt"
    cut.write_text(told.read_text()[:5_000])
    assert read_site(cut, tmp_path / "cut").counts["replayed"] > 20
    for text in ("", "hello\n", HEADER + "\n", "JobID,State,Submit\n1,COMPLETED,now\n"):
        bad = tmp_path / "bad.txt"
        bad.write_text(text)
        result = runner.invoke(app, ["replay", "--sacct", str(bad)])
        assert isinstance(result.exception, UserError), text
    result = runner.invoke(app, ["replay", "--sacct", str(told), "--nodes", str(told)])
    assert "no node with GPUs" in str(result.exception)
    hostile = tmp_path / "hostile.txt"
    lines = told.read_text().splitlines()
    lines[5] = lines[5].replace("run", "<script>alert(1)</script>")
    lines[6] = "999|x|u|short|not a time|||||||||" + "A" * 100_000
    hostile.write_text("\n".join(lines))
    site = read_site(hostile, tmp_path / "h")
    assert site.counts["quarantined"] >= 1
    assert "<script>alert" not in render(site, replay(site, 1, variants=VARIANTS[:3]), None)
