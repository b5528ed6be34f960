"""The command line: what it prints, and what it says to bad input."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from shutil import copytree
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
def few_jobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    trace = tmp_path_factory.mktemp("few") / "trace"
    write(replace(default_config("small"), jobs=120, days=1, bursts_per_week=0.0), trace)
    return trace


def altered(small_trace: Path, folder: Path, **columns: Callable[[list[Any]], list[Any]]) -> Path:
    """A copy of a dataset with other values in columns of its first part."""
    odd = Path(copytree(small_trace, folder / "odd"))
    part = min(odd.rglob("part-*.parquet"))
    rows = pq.ParquetFile(part).read()
    for name, change in columns.items():
        at, column = rows.column_names.index(name), rows.column(name)
        values = pa.array(change(column.to_pylist()), column.type)
        rows = rows.set_column(at, name, values)
    pq.write_table(rows, part)
    return odd


def test_simulate_says_how_many_jobs_it_left_out_or_refused(
    small_trace: Path, tmp_path: Path
) -> None:
    odd = altered(
        small_trace,
        tmp_path,
        duration_s=lambda values: [None] * 3 + values[3:],
        gpus=lambda values: [*values[:3], 4096, *values[4:]],
    )
    done = pellucid("simulate", "--trace", odd, "--cluster", CLUSTER, "--policy", "fifo")
    assert done.returncode == 0, done.stderr
    assert "Left out: 3 jobs" in done.stdout
    assert "Refused: 1 jobs" in done.stdout
    assert "Nothing was kept: --out FOLDER" in done.stdout


def test_names_of_a_trace_do_not_steer_the_terminal(small_trace: Path, tmp_path: Path) -> None:
    odd = altered(small_trace, tmp_path, vc=lambda values: ["\x1b]0;pwned\x07"] * len(values))
    for command in (("simulate", "--policy", "fifo"), ("compare", "--policies", "fifo")):
        done = pellucid(command[0], "--trace", odd, *command[1:])
        assert done.returncode == 0, done.stderr
        assert "pwned" in done.stdout + done.stderr
        assert "\x1b]" not in done.stdout + done.stderr


def test_compare_shows_the_standard_error_of_each_mean(small_trace: Path) -> None:
    given = ("compare", "--trace", small_trace, "--cluster", CLUSTER, "--policies", "fifo,srtf",
             "--loop", "open")  # fmt: skip
    told = json.loads(pellucid(*given, "--seeds", "3", "--json").stdout)
    row = told["policies"][0]
    assert told["paired"][0]["avg_jct_s_difference_mean"] > 0, "SRTF beats FIFO"
    shown = pellucid(*given, "--seeds", "3").stdout
    line = next(line for line in shown.splitlines() if "fifo" in line and "│" in line)
    assert [cell.strip() for cell in line.split("│")[2:4]] == [
        f"{row['avg_jct_s_mean']:,.0f}", f"{row['avg_jct_se_s']:,.0f}"
    ]  # fmt: skip
    assert row["avg_jct_se_s"] > 1
    assert "std. error" not in pellucid(*given).stdout, "of one run there is none"


def test_compare_says_what_the_bound_on_waiting_cost_where_many_were_late(
    small_trace: Path,
) -> None:
    given = (
        "compare", "--trace", small_trace, "--cluster", CLUSTER, "--policies", "pellucid", "--loop",
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
    one = ("simulate", "--trace", small_trace, "--cluster", CLUSTER, "--set", "max_wait_s=60")
    assert note in " ".join(pellucid(*one).stdout.split()), "simulate says the same"


def test_compare_shows_the_knob_from_mean_to_tail(
    few_jobs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for knob, values in KNOBS.items():  # the default, and the last
        monkeypatch.setitem(KNOBS, knob, (values[-2 if knob == "ageing" else 1], values[-1]))
    done = pellucid(
        "compare", "--trace", few_jobs, "--cluster", CLUSTER, "--policies", "pellucid",
        "--loop", "open", "--set", "gpu_exponent=1", "--pareto", "--json",
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
        "compare", "--trace", few_jobs, "--cluster", CLUSTER, "--policies", "pellucid",
        "--pareto", "--loop", "closed",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    shown = done.stdout.split("from a short mean to a short tail")[1]
    assert "0.05, 2 d" in shown
    assert "0.3, none" in shown
    refused = pellucid("compare", "--workload", "pollux:nowhere.csv", "--pareto")
    assert refused.returncode == 2


def test_what_a_person_corrects_is_in_the_bundle(small_trace: Path, tmp_path: Path) -> None:
    edits, out = tmp_path / "edits.yaml", tmp_path / "bundle"
    term = '{feature: gpus, fix: {from: 2, to: null, score: 0.7}, why: "measured"}'
    edits.write_text(f"version: 1\nmodel: duration\nedits: [{term}]\n")
    words = ("train", "--trace", small_trace, "--out", out, "--preset", "fast", "--test-days", "2")
    done = pellucid(*words, "--edits", edits, "--json")
    assert done.returncode == 0, done.stderr
    (made,) = Bundle.load(out).metadata["duration"]["edits"]["edits"]
    assert (made["feature"], made["why"]) == ("gpus", "measured")
    errors = json.loads(done.stdout)["duration"]
    assert errors["with_edits"]["n"] == errors["without_edits"]["n"] == errors["ga2m"]["n"]
    assert errors["with_edits"]["mae_log10"] != errors["without_edits"]["mae_log10"]
    done = pellucid("evaluate", "bundle", "--trace", small_trace, "--bundle", out, "--json")
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
    small_trace: Path, tmp_path: Path, column: str, value: object, named: str
) -> None:
    change = {column: lambda values: [*values[:3], value, *values[4:]]}
    odd = altered(small_trace, tmp_path, **change)
    done = pellucid("simulate", "--trace", odd, "--policy", "fifo")
    assert done.returncode == 2
    assert named in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_month_lost_from_a_dataset_is_noticed(small_trace: Path, tmp_path: Path) -> None:
    folder = Path(copytree(small_trace, tmp_path / "trace"))
    next(folder.glob("month=*/part-*.parquet")).unlink()
    done = pellucid("simulate", "--trace", folder, "--policy", "fifo")
    assert done.returncode == 2
    assert "summary.json says" in done.stderr
