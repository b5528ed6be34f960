"""The histories of whom a trace has most jobs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from features.pictured import learned_histories
from features.survival import LEVELS

DAY = datetime(2026, 1, 5, tzinfo=UTC)


@pytest.fixture
def trace() -> pa.Table:
    """Ada sends many short jobs, Bob few long ones, the last of which outlives the moment."""
    rows = [(i, "ada", 60.0) for i in range(20)] + [(30 + i, "bob", 7200.0) for i in range(5)]
    rows.append((600, "bob", 1e6))
    return pa.table(
        {
            "job_id": [str(i) for i, _, _ in rows],
            "gpus": [2] * len(rows),
            "user": [user for _, user, _ in rows],
            "vc": ["vision"] * len(rows),
            "name": [f"of {user}" for _, user, _ in rows],
            "submit_time": pa.array(
                [DAY + timedelta(minutes=i) for i, _, _ in rows], pa.timestamp("ms", "UTC")
            ),
            "duration_s": [seconds for _, _, seconds in rows],
            "state": ["completed"] * len(rows),
        }
    )


def test_the_most_frequent_come_first_and_each_once(trace: pa.Table) -> None:
    found = learned_histories(trace, DAY.timestamp() + 86_400.0, most=2)
    assert [one.level for one in found] == [LEVELS[0], LEVELS[1], *LEVELS[2:3] * 2, *LEVELS[3:] * 2]
    assert [one.of for one in found[2:4]] == ["ada's jobs", "bob's jobs"]
    ada, bob = found[2:4]
    assert ada.hazards[2] > 0.8 > 0.3 > bob.hazards[2]
    assert max(bob.reached[9:]) > 0  # the one that runs
    only = learned_histories(trace, DAY.timestamp() + 86_400.0, most=1)
    assert [one.of for one in only if one.level == "user"] == ["ada's jobs"]


def test_nothing_is_known_of_what_came_later(trace: pa.Table) -> None:
    found = learned_histories(trace, DAY.timestamp() + 600.0)
    assert {one.of for one in found if one.level == "user"} == {"ada's jobs"}
    assert sum(found[0].ended) < 11
