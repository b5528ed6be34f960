"""Finding repeated rows: against a Python set, in memory and on disk."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from features.schema import TRACE_SCHEMA
from pipeline.traces.fingerprints import Seen, fingerprint

blocks = st.lists(st.lists(st.integers(0, 30), max_size=12), max_size=12)


@settings(max_examples=80)
@given(blocks, st.sampled_from([1, 4, 1 << 20]))
def test_seen_is_a_set(drawn: list[list[int]], run_rows: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        seen = Seen(Path(name), run_rows=run_rows)
        known: set[int] = set()
        for block in drawn:
            expected = []
            for value in block:
                expected.append(value in known)
                known.add(value)
            found = seen.check(
                np.array(block, np.uint64), min(block, default=0), max(block, default=0)
            )
            assert found.tolist() == expected
        assert not list(Path(name).iterdir())


def row(**change: object) -> dict[str, object]:
    base = {"job_id": "1", "gpus": 1, "state": "failed", "submit_time": 10**12, "user": "a"}
    return base | change


def hashes(*rows: dict[str, object]) -> list[int]:
    table = pa.Table.from_pylist(list(rows), schema=TRACE_SCHEMA)
    return fingerprint(table, {"source_line"}).tolist()  # type: ignore[no-any-return]


def test_every_column_counts() -> None:
    attempts = [{"start_time": 10**12, "end_time": None, "gpus": 2}]
    changes = [
        {},
        {"job_id": "2"},
        {"gpus": 2},
        {"user": "b"},
        {"user": None},
        {"vc": "a"},
        {"state": "completed"},
        {"duration_s": 1.0},
        {"recorded_duration_s": 1.0},
        {"start_time": 10**12},
        {"end_time": 10**12},
        {"amp": True},
        {"amp": False},
        {"attempts": attempts},
        {"attempts": []},
        {"gpu_share": 0.5},
    ]
    found = hashes(*(row(**change) for change in changes))
    assert len(set(found)) == len(changes)


def test_equal_rows_are_equal_in_any_block() -> None:
    """Dictionaries differ from block to block; fingerprints do not."""
    alone = hashes(row(user="z", source_line=1))
    among = hashes(row(user="a"), row(user="b"), row(user="z", source_line=9))
    assert alone[0] == among[2]
    # A column that is all null in one block is there in another.
    assert hashes(row())[0] == hashes(row(), row(vc="x", duration_s=3.0))[0]
