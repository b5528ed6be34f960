"""Gavel's traces and throughput tables: what is read, and what is refused how."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipeline.errors import UserError
from reproductions.allocation.throughputs import Kind, ThroughputTable
from reproductions.registry import build
from reproductions.workloads.gavel import (
    REFERENCE_CLUSTER,
    TABLE,
    read_table,
    read_trace,
    read_workload,
    synthetic,
)

LINE = ["ResNet (batch 4)", "python x.py", "dir", "--steps", "1", "500", "2", "5", "-1.000000", "7"]
RATES = {
    "v100": {
        "('ResNet (batch 4)', 1)": {"null": 8.0, "('LM', 1)": [4.0, 2.0]},
        "('ResNet (batch 4)', 2)": {"null": 15.0},
        "('LM', 1)": {"null": 4.0, "('ResNet (batch 4)', 1)": [2.0, 4.0]},
    },
    "v100_unconsolidated": {"('ResNet (batch 4)', 2)": {"null": 9.0}},
}


def a_trace(tmp_path: Path, *lines: list[str]) -> Path:
    path = tmp_path / "jobs.trace"
    path.write_text("\n".join("\t".join(line) for line in lines))
    return path


def with_cell(column: int, value: str) -> list[str]:
    return [value if i == column else cell for i, cell in enumerate(LINE)]


def a_table(tmp_path: Path, rates: object = RATES) -> Path:
    path = tmp_path / TABLE
    path.write_text(json.dumps(rates))
    return path


def test_a_trace_is_read_in_order_of_arrival(tmp_path: Path) -> None:
    late, early = read_trace(a_trace(tmp_path, LINE, with_cell(9, "3")))[::-1]
    assert (early.job.submit_time, late.job.submit_time) == (3, 7)
    assert late.job.job_id == "0"
    assert (late.job.name, late.job.gpus, late.steps, late.weight) == (LINE[0], 2, 500, 5.0)


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([LINE[:7]], "line 1: 7 columns, the format of older traces"),
        ([LINE, LINE[:9]], "line 2: 9 columns; a Gavel trace has 10"),
        ([with_cell(5, "many")], "total steps is 'many'"),
        ([with_cell(5, "0")], "total steps is '0'; it must be a number, at least 1"),
        ([with_cell(6, "0")], "GPUs is '0'"),
        ([with_cell(7, "-1")], "priority weight is '-1'"),
        ([with_cell(8, "soon")], "SLO is 'soon'; it must be a number$"),
        ([with_cell(9, "nan")], "arrival is 'nan'"),
        ([[]], "no jobs in it"),
    ],
)
def test_a_wrong_trace_is_refused_by_line_and_column(
    tmp_path: Path, lines: list[list[str]], says: str
) -> None:
    with pytest.raises(UserError, match=says):
        read_trace(a_trace(tmp_path, *lines))
    with pytest.raises(UserError, match=r"none\.trace: cannot be read"):
        read_trace(tmp_path / "none.trace")


def test_a_table_is_read(tmp_path: Path) -> None:
    table = read_table(a_table(tmp_path))
    assert table.gpu_types == ["v100"]
    assert table.rates("ResNet (batch 4)", 2) == {"v100": 15.0}
    assert table.speed("v100", Kind("LM", 1), Kind("ResNet (batch 4)", 1)) == 0.5
    scattered = read_table(a_table(tmp_path), consolidated=False)
    assert scattered.rates("ResNet (batch 4)", 2) == {"v100": 9.0}


@pytest.mark.parametrize(
    ("rates", "says"),
    [
        ([1], "one entry per GPU type"),
        ({"v100": {"ResNet": {"null": 1.0}}}, "rates of v100 are not as expected"),
        ({"v100": {"('LM', 1)": {"null": "fast"}}}, "rates of v100 are not as expected"),
        ({"v100": {"('LM', 1)": {"('LM', 1)": 1.0}}}, "rates of v100 are not as expected"),
        ({"v100": 3}, "rates of v100 are not as expected"),
    ],
)
def test_a_wrong_table_is_refused(tmp_path: Path, rates: object, says: str) -> None:
    with pytest.raises(UserError, match=says):
        read_table(a_table(tmp_path, rates))


def test_a_type_without_rates_is_refused(tmp_path: Path) -> None:
    trace = a_trace(tmp_path, LINE)
    a_table(tmp_path)
    with pytest.raises(UserError, match="no throughputs of GPU type k80, p100"):
        read_workload(trace)
    assert read_workload(trace, gpus={"v100": (2, 2)}).gpus == 2


@pytest.fixture(scope="module")
def table(shared_data: Path) -> ThroughputTable:
    return read_table(shared_data / "gavel" / TABLE)


def test_synthetic_jobs_are_drawn_as_described(table: ThroughputTable) -> None:
    jobs = synthetic(table, 2000, per_hour=6.0, seed=1, priorities=True)
    assert sum(job.job.gpus == 1 for job in jobs) / 2000 == pytest.approx(0.7, abs=0.04)
    assert sum(job.weight == 5 for job in jobs) / 2000 == pytest.approx(0.2, abs=0.03)
    assert jobs[-1].job.submit_time / 2000 == pytest.approx(600, rel=0.1)
    seconds = [job.steps / table.rate("v100", job.kind) for job in jobs]
    assert 60 * 10**1.4 < min(seconds) < max(seconds) < 60 * 10**4.1
    assert sum(s > 60_000 for s in seconds) / 2000 == pytest.approx(0.2, abs=0.03)
    assert synthetic(table, 5, per_hour=None, seed=1)[-1].job.submit_time == 0


def test_the_released_table_and_traces(shared_data: Path, table: ThroughputTable) -> None:
    assert len(table.kinds) == 83
    assert len([kind for kind in table.kinds if kind.gpus == 1]) == 26
    assert table.rates("ResNet-50 (batch size 128)", 4)["k80"] == 0
    rates = table.rates("Recommendation (batch size 512)", 1)
    assert rates["v100"] < rates["k80"] < rates["p100"]
    jobs = read_trace(shared_data / "gavel" / "max_min_fairness.trace")
    counts = [sum(job.job.gpus == gpus for job in jobs) for gpus in (1, 2, 4)]
    assert counts == [59, 19, 18]


# mean JCT and end of the published simulator; what is chosen among optima is not the same
PUBLISHED = [
    ("max_min_fairness", "gavel-fifo", 19526.854, 1e-7, 72319.858, 1e-7),
    ("max_min_fairness", "gavel-las", 14622.820, 0.04, 63944.529, 0.01),
    ("minimize_makespan", "gavel-fifo", 40257.935, 1e-7, 90701.292, 1e-7),
    ("minimize_makespan", "gavel-las", 35658.966, 0.01, 68521.823, 0.01),
]


@pytest.mark.parametrize(("trace", "name", "jct", "near", "end", "close"), PUBLISHED)
def test_the_published_simulator_is_reproduced(
    shared_data: Path, trace: str, name: str, jct: float, near: float, end: float, close: float
) -> None:
    path = shared_data / "gavel" / f"{trace}.trace"
    outcome = read_workload(path, gpus=REFERENCE_CLUSTER).simulate(
        build(name, {"as_published": True})
    )
    jcts = [result.jct_s for result in outcome.jobs]
    assert sum(jcts) / len(jcts) == pytest.approx(jct, rel=near)
    assert max(result.end_time or 0 for result in outcome.jobs) == pytest.approx(end, rel=close)
