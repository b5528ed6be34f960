"""The command line: what it prints, and what it says to bad input."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from shutil import copytree
from statistics import mean, stdev
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from models.bundle import Bundle
from pipeline.pareto import KNOBS
from pipeline.traces.synthetic.generate import default_config, write
from tests.commands import pellucid

CLUSTER = "pipeline/worlds/clusters/small.yaml"


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trace") / "small"
    write(default_config("small"), path)
    return path


def altered(trace: Path, folder: Path, **columns: Callable[[list[Any]], list[Any]]) -> Path:
    """A copy of a dataset with other values in columns of its first part."""
    odd = Path(copytree(trace, folder / "odd"))
    part = min(odd.rglob("part-*.parquet"))
    rows = pq.ParquetFile(part).read()
    for name, change in columns.items():
        at, column = rows.column_names.index(name), rows.column(name)
        values = pa.array(change(column.to_pylist()), column.type)
        rows = rows.set_column(at, name, values)
    pq.write_table(rows, part)
    return odd


def test_simulate_prints_one_json_object(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    done = pellucid(
        "simulate", "--trace", trace, "--cluster", CLUSTER, "--policy", "lucid",
        "--durations", "gpus", "--out", out, "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["policy"] == "lucid"
    assert figures["jobs"] == figures["ended"]
    assert (out / "jobs.parquet").is_file()
    assert (out / "decisions.parquet").is_file()


def test_simulate_says_how_many_jobs_it_left_out_or_refused(trace: Path, tmp_path: Path) -> None:
    odd = altered(
        trace,
        tmp_path,
        duration_s=lambda values: [None] * 3 + values[3:],
        gpus=lambda values: [*values[:3], 4096, *values[4:]],
    )
    done = pellucid("simulate", "--trace", odd, "--cluster", CLUSTER, "--policy", "fifo")
    assert done.returncode == 0, done.stderr
    assert "Left out: 3 jobs" in done.stdout
    assert "Refused: 1 jobs" in done.stdout
    assert "Nothing was kept: --out FOLDER" in done.stdout


def test_names_of_a_trace_do_not_steer_the_terminal(trace: Path, tmp_path: Path) -> None:
    odd = altered(trace, tmp_path, vc=lambda values: ["\x1b]0;pwned\x07"] * len(values))
    for command in (("simulate", "--policy", "fifo"), ("compare", "--policies", "fifo")):
        done = pellucid(command[0], "--trace", odd, *command[1:])
        assert done.returncode == 0, done.stderr
        assert "pwned" in done.stdout + done.stderr
        assert "\x1b]" not in done.stdout + done.stderr


def test_compare_prints_means_and_pairs(trace: Path) -> None:
    done = pellucid(
        "compare", "--trace", trace, "--cluster", CLUSTER, "--policies", "fifo,srtf", "--json"
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert {row["policy"] for row in result["policies"]} == {"fifo", "srtf"}
    assert result["paired"][0]["avg_jct_s_difference_mean"] > 0, "SRTF beats FIFO"


def test_compare_shows_the_standard_error_of_each_mean(trace: Path) -> None:
    given = ("compare", "--trace", trace, "--cluster", CLUSTER, "--policies", "fifo",
             "--loop", "open", "--seeds", "3")  # fmt: skip
    (row,) = json.loads(pellucid(*given, "--json").stdout)["policies"]
    each = [
        json.loads(pellucid(*given[:-2], "--first-seed", seed, "--json").stdout)["policies"][0]
        for seed in "012"
    ]
    jct_s = [one["avg_jct_s_mean"] for one in each]
    error_s = stdev(jct_s) / math.sqrt(3)
    assert (row["avg_jct_s_mean"], row["avg_jct_se_s"]) == pytest.approx((mean(jct_s), error_s))
    assert error_s > 1
    (shown,) = (line for line in pellucid(*given).stdout.splitlines() if "fifo" in line)
    assert [cell.strip() for cell in shown.split("│")[2:4]] == [
        f"{mean(jct_s):,.0f}", f"{error_s:,.0f}"
    ]  # fmt: skip
    assert "std. error" not in pellucid(*given[:-2]).stdout, "of one run there is none"


def test_compare_says_what_the_bound_on_waiting_cost_where_many_were_late(trace: Path) -> None:
    given = (
        "compare", "--trace", trace, "--cluster", CLUSTER, "--policies", "pellucid", "--loop",
        "open", "--json",
    )  # fmt: skip
    late, rarely = (
        json.loads(pellucid(*given, "--set", f"max_wait_s={bound}").stdout)
        for bound in ("60", "1e7")
    )
    (row,) = late["policies"]
    assert row["late_share_mean"] > 0.02
    (note,) = (note for note in late["notes"] if "What it costs" in note)
    assert f"{row['late_share_mean']:.1%} of the jobs waited for longer" in note
    assert f"mean JCT {row['avg_jct_s_mean']:,.0f} s with it, " in note
    assert "What it costs" not in str(rarely["notes"])
    one = ("simulate", "--trace", trace, "--cluster", CLUSTER, "--set", "max_wait_s=60")
    assert note in " ".join(pellucid(*one).stdout.split()), "simulate says the same"


def test_compare_shows_the_knob_from_mean_to_tail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for knob, values in KNOBS.items():  # the default, and the last
        monkeypatch.setitem(KNOBS, knob, (values[-2 if knob == "ageing" else 1], values[-1]))
    trace = tmp_path / "trace"
    write(replace(default_config("small"), jobs=120, days=1, bursts_per_week=0.0), trace)
    done = pellucid(
        "compare", "--trace", trace, "--cluster", CLUSTER, "--policies", "pellucid",
        "--loop", "open",
        "--set", "gpu_exponent=1", "--pareto", "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    points = {(row["ageing"], row["max_wait_s"]): row for row in result["pareto"]}
    assert len(points) == len(result["pareto"]) == 4
    (own,) = result["policies"]
    assert points[0.05, 172_800.0]["avg_jct_s"] == own["avg_jct_s_mean"], (
        "the default, with what else was set"
    )
    done = pellucid(
        "compare", "--trace", trace, "--cluster", CLUSTER, "--policies", "pellucid", "--pareto",
        "--loop", "closed",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    shown = done.stdout.split("from a short mean to a short tail")[1]
    assert "0.05, 2 d" in shown
    assert "0.3, none" in shown
    refused = pellucid("compare", "--workload", "pollux:nowhere.csv", "--pareto")
    assert refused.returncode == 2


def test_what_a_person_corrects_is_in_the_bundle(trace: Path, tmp_path: Path) -> None:
    edits, out = tmp_path / "edits.yaml", tmp_path / "bundle"
    term = '{feature: gpus, fix: {from: 2, to: null, score: 0.7}, why: "measured"}'
    edits.write_text(f"version: 1\nmodel: duration\nedits: [{term}]\n")
    words = ("train", "--trace", trace, "--out", out, "--preset", "fast", "--test-days", "2")
    done = pellucid(*words, "--edits", edits, "--json")
    assert done.returncode == 0, done.stderr
    (made,) = Bundle.load(out).metadata["duration"]["edits"]["edits"]
    assert (made["feature"], made["why"]) == ("gpus", "measured")
    errors = json.loads(done.stdout)["duration"]
    assert errors["with_edits"]["n"] == errors["without_edits"]["n"] == errors["ga2m"]["n"]
    assert errors["with_edits"]["mae_log10"] != errors["without_edits"]["mae_log10"]
    done = pellucid("evaluate", "bundle", "--trace", trace, "--bundle", out, "--json")
    found = json.loads(done.stdout)
    assert found["digest"] == Bundle.load(out).digest
    assert found["duration"]["n"] >= errors["ga2m"]["n"]
    assert found["duration"]["mae_log10"] == pytest.approx(errors["with_edits"]["mae_log10"], 0.1)
    edits.write_text(edits.read_text().replace("feature: gpus", "feature: user_jobs"))
    done = pellucid("train", "--trace", tmp_path / "none", "--out", out, "--edits", edits)
    assert done.returncode == 2
    assert "edit 1 (fix user_jobs): feature 'user_jobs' is not in the model; nearest: user_" in (
        done.stderr
    )


def test_a_trace_without_a_cluster_file_gets_an_inferred_one(trace: Path) -> None:
    done = pellucid("simulate", "--trace", trace, "--policy", "fifo-skip", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["refused"] == 0


@pytest.mark.parametrize(
    ("column", "value", "named"),
    [
        ("duration_s", math.nan, "duration_s is nan"),
        ("duration_s", math.inf, "duration_s is inf"),
        ("duration_s", -1.0, "duration_s is -1"),
        ("state", "NONSENSE", "NONSENSE"),
    ],
)
def test_what_cannot_be_in_a_dataset_is_named(
    trace: Path, tmp_path: Path, column: str, value: object, named: str
) -> None:
    change = {column: lambda values: [*values[:3], value, *values[4:]]}
    odd = altered(trace, tmp_path, **change)
    done = pellucid("simulate", "--trace", odd, "--policy", "fifo")
    assert done.returncode == 2
    assert named in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_month_lost_from_a_dataset_is_noticed(trace: Path, tmp_path: Path) -> None:
    folder = Path(copytree(trace, tmp_path / "trace"))
    next(folder.glob("month=*/part-*.parquet")).unlink()
    done = pellucid("simulate", "--trace", folder, "--policy", "fifo")
    assert done.returncode == 2
    assert "summary.json says" in done.stderr
