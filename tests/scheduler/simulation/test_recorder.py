"""Decisions on disk: whole or not at all, and exactly as they were taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scheduler.core.decisions import Action, Decision, Fact, Reason, Score
from scheduler.simulation import recorder
from scheduler.simulation.recorder import DECISION_SCHEMA, Recorder, decision_table


def a_decision(seq: int = 0, **more: Any) -> Decision:
    return Decision(seq, 10.0 + seq, Action.WAIT, Reason.GPUS_BUSY, f"j{seq}", "vc", **more)


def record_then(error: type[BaseException], path: Path) -> None:
    """Interrupt a run that has written some row groups already."""
    with Recorder(path) as record:
        record([a_decision(i) for i in range(250)])
        raise error


def leftovers(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# --- the file -------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _small_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "ROW_GROUP", 100)


def test_every_decision_is_written_in_order(tmp_path: Path) -> None:
    count = 217
    with Recorder(tmp_path / "deep" / "decisions.parquet") as record:
        for start in range(0, count, 10):
            record([a_decision(i) for i in range(start, min(start + 10, count))])
    assert record.count == count
    file = pq.ParquetFile(tmp_path / "deep" / "decisions.parquet")
    assert file.metadata.num_rows == count
    assert file.metadata.num_row_groups > 1, "memory stays flat"
    assert file.schema_arrow.equals(DECISION_SCHEMA)
    assert file.read(["seq"])["seq"].to_pylist() == list(range(count))
    assert leftovers(tmp_path / "deep") == ["decisions.parquet"]


def test_a_run_without_decisions_leaves_an_empty_table(tmp_path: Path) -> None:
    with Recorder(tmp_path / "d.parquet") as record:
        record([])
    assert record.count == 0
    assert pq.read_table(tmp_path / "d.parquet").num_rows == 0


def test_an_exception_leaves_the_old_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "d.parquet"
    with Recorder(path) as record:
        record([a_decision(3)])
    before = path.read_bytes()
    with pytest.raises(KeyboardInterrupt):
        record_then(KeyboardInterrupt, path)
    assert path.read_bytes() == before
    assert leftovers(tmp_path) == ["d.parquet"]


# --- the rows -------------------------------------------------------------------------------------


def row(decision: Decision) -> dict[str, object]:
    (only,) = decision_table([decision]).to_pylist()
    return dict(only)


def test_a_full_row() -> None:
    alike: dict[str, Any] = {
        "partner": "theirs", "priority": 12.5, "estimate_s": 99.0, "blocker": "other",
        "need": 9, "free": 0, "limit": 16, "position": 2,
    }  # fmt: skip
    decision = Decision(
        3,
        1_600_000_000.5,
        Action.PACK,
        Reason.PARTNER_FOUND,
        "mine",
        "vc",
        nodes=(4, 5),
        gpus=(255, 1),
        score=Score(1.5, 1.0, (0.25, 0.25), "digest", ("a", ""), (Fact.LIMIT,)),
        tree_path=("memory < 5000",),
        speeds=(0.9, 0.8),
        batch=(128, 1),
        evidence=(("gain", 0.25), ("type", "T4")),
        **alike,
    )
    written = row(decision)
    assert written.pop("time").timestamp() == 1_600_000_000.5  # type: ignore[attr-defined]
    assert written == alike | {
        "seq": 3, "action": "pack", "reason": "PartnerFound", "job_id": "mine", "vc": "vc",
        "nodes": [4, 5], "gpus": [255, 1],
        "score": 1.5, "intercept": 1.0, "terms": [0.25, 0.25], "bundle": "digest",
        "inputs": ["a", ""], "facts": ["limit"],
        "tree_path": ["memory < 5000"], "speed": 0.9, "partner_speed": 0.8, "held_by": None,
        "batch_per_gpu": 128, "accumulation": 1, "evidence": [("gain", "0.25"), ("type", "T4")],
    }  # fmt: skip


def test_inputs_stand_with_each_score_that_differs_and_with_each_entry_to_a_queue(
    tmp_path: Path,
) -> None:
    """So a later prediction's terms are named by what stood behind them; also over row groups."""
    first = Score(1.5, 1.0, (0.5,), "digest", ("4",))
    later = Score(1.75, 1.0, (0.5, 0.25), "digest", ("4", "ran for 200 s and did not end"))
    other = {"reason": Reason.GPUS_BUSY, "vc": "vc"}
    taken = [
        Decision(seq, float(seq), action, job_id=job_id, score=score, **other)  # type: ignore[arg-type]
        for seq, (job_id, action, score) in enumerate(
            [
                ("a", Action.ENQUEUE, first), ("b", Action.WAIT, first), ("a", Action.WAIT, None),
                ("a", Action.WAIT, first), ("a", Action.WAIT, later), ("a", Action.START, later),
                ("b", Action.START, first), ("a", Action.ENQUEUE, later), ("a", Action.WAIT, first),
            ]
        )
    ]  # fmt: skip
    path = tmp_path / "d.parquet"
    with Recorder(path) as record:
        for _ in range(40):  # every group after the first finds the last scores recorded
            record(taken)
    rows = pq.read_table(path, columns=["inputs"])["inputs"].to_pylist()
    old, new = list(first.inputs), list(later.inputs)
    assert rows[:9] == [old, old, None, None, new, None, None, new, old]
    assert rows[9:] == [old, None, None, None, new, None, None, new, old] * 39


def test_what_is_not_known_is_null_and_not_zero() -> None:
    written = row(Decision(0, 0.0, Action.ENQUEUE, Reason.SUBMITTED, "j", "vc"))
    known = {"seq", "time", "action", "reason", "job_id", "vc"}
    assert {name for name, value in written.items() if value is not None} == known


def test_zeros_are_zeros() -> None:
    score = Score(0.0, 0.0, (0.0,), "digest")
    numbers = ["priority", "estimate_s", "need", "free", "limit", "position"]
    zeros: dict[str, Any] = dict.fromkeys(numbers, 0)
    written = row(a_decision(0, score=score, speeds=(0.0, 0.0), **zeros))
    names = [*numbers, "score", "intercept", "speed", "partner_speed"]
    assert [written[name] for name in names] == [0] * len(names)
    assert written["terms"] == [0.0]


def test_times_are_those_of_the_jobs_table_to_the_millisecond() -> None:
    """1.001 s is 1000.9999... ms: cut, a start would stand before its submission."""
    decision = Decision(0, 1.001, Action.ENQUEUE, Reason.SUBMITTED, "j", "vc")
    assert decision_table([decision])["time"].cast(pa.int64()).to_pylist() == [1001]
