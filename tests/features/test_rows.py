from __future__ import annotations

import heapq
import itertools
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.lifetimes import lifetimes
from features.replay import Moment
from features.rows import Rows, streamed_rows, training_rows
from features.schema import TRACE_SCHEMA
from features.state import FAMILIES, FEATURES, FeatureError, FeatureState, schema_digest

T0 = datetime(2020, 9, 1, tzinfo=UTC).timestamp()


def a_trace(*jobs: dict[str, Any]) -> pa.Table:
    """A trace of jobs given by the fields that matter; times in seconds after T0."""
    rows = []
    for number, job in enumerate(jobs):
        row = {"job_id": f"j{number}", "user": "ann", "vc": "v1", "gpus": 1, "state": "completed"}
        row |= {k: int((T0 + v) * 1000) if k.endswith("_time") else v for k, v in job.items()}
        rows.append(row)
    columns = {f.name: pa.array([r.get(f.name) for r in rows], f.type) for f in TRACE_SCHEMA}
    return pa.table(columns, schema=TRACE_SCHEMA)


THREE = (
    {"submit_time": 0, "duration_s": 100.0, "gpu_util_pct": 80.0, "amp": True},
    {"submit_time": 50, "duration_s": 500.0, "gpu_util_pct": 10.0, "amp": False, "gpus": 4},
    {"submit_time": 400, "duration_s": 30.0, "gpu_type": "A100"},
)


def test_without_times_the_cluster_is_idle() -> None:
    rows = training_rows(a_trace(*THREE))
    assert rows.features == FEATURES
    assert list(rows.X.columns) == [spec.name for spec in FEATURES]
    assert rows.job_id.tolist() == ["j0", "j1", "j2"]
    assert rows.y.tolist() == [100, 500, 30]
    assert (rows.start_time - T0).tolist() == [0, 50, 400]
    assert (rows.end_time - T0).tolist() == [100, 550, 430]
    assert rows.X["user_ended"].tolist() == [0, 0, 1]
    assert rows.X["user_last_s"].tolist()[2] == 100
    assert rows.X["vc_running_gpus"].tolist() == [0, 1, 4]
    assert rows.digest == schema_digest(FEATURES)
    assert rows.adjusted == 0


@pytest.mark.parametrize("kind", ["mapping", "seconds", "timestamps"])
def test_a_schedule_replaces_the_times(kind: str) -> None:
    times = {"j0": (10, 110), "j1": (500, 1000), "j2": (None, None)}
    schedule: Any = {
        job: tuple(None if t is None else T0 + t for t in pair) for job, pair in times.items()
    }
    if kind != "mapping":
        starts, ends = zip(*schedule.values(), strict=True)
        columns = {"start_time": pa.array(starts), "end_time": pa.array(ends)}
        schedule = pa.table({"job_id": list(schedule), **columns})
    if kind == "timestamps":
        for i in (1, 2):
            cast = pa.array([None if v is None else int(v * 1e6) for v in schedule[i].to_pylist()])
            column = cast.cast(pa.timestamp("us", tz="UTC"))
            schedule = schedule.set_column(i, schedule.schema[i].name, column)
    rows = training_rows(a_trace(*THREE), schedule=schedule)
    assert rows.X["vc_queued_gpus"].tolist() == [0, 0, 4]
    assert rows.X["user_ended"].tolist() == [0, 0, 1]
    # the target stays the exclusive duration, whatever the schedule made of it
    np.testing.assert_array_equal(rows.y, [100, 500, np.nan])
    np.testing.assert_array_equal(rows.end_time - T0, [110, 1000, np.nan])


def test_rows_at_profiling_are_of_the_jobs_that_lasted() -> None:
    rows = training_rows(a_trace(*THREE), moments=list(Moment), profile_after_s=200.0)
    assert list(zip(rows.job_id, rows.moment, strict=True)) == [
        ("j0", "submit"),
        ("j1", "submit"),
        ("j1", "profiled"),
        ("j2", "submit"),
    ]
    assert rows.time[2] - T0 == 250
    assert rows.X["gpu_util_pct"].tolist()[2] == 10
    assert rows.X["amp"].tolist() == [None, None, "no", None]
    assert rows.X["gpu_util_pct"].isna().sum() == 3
    unprofiled = training_rows(a_trace(*THREE))
    assert unprofiled.X["gpu_util_pct"].isna().all()


def test_open_and_withdrawn_jobs_have_no_target() -> None:
    rows = training_rows(
        a_trace(
            {"submit_time": 0, "start_time": 5, "duration_s": 50.0, "state": "running"},
            {"submit_time": 1, "state": "pending"},
            {"submit_time": 2, "end_time": 9, "state": "cancelled"},
            {"submit_time": 100, "end_time": 160, "duration_s": 20.0},
        )
    )
    np.testing.assert_array_equal(rows.y, [np.nan, np.nan, np.nan, 20])
    np.testing.assert_array_equal(rows.start_time - T0, [5, np.nan, np.nan, 140])
    assert rows.X["user_running"].tolist() == [0, 0, 0, 1]
    assert rows.X["user_queued"].tolist() == [0, 1, 2, 1]
    assert len(rows.ended_before(T0 + 160)) == 0
    assert rows.ended_before(T0 + 161).job_id.tolist() == ["j3"]


def test_what_was_known_by_then_holds_running_jobs_without_their_end() -> None:
    rows = training_rows(
        a_trace(
            {"submit_time": 0, "start_time": 5, "duration_s": 50.0, "end_time": 55},
            {"submit_time": 1, "start_time": 20, "duration_s": 90.0, "end_time": 110},
            {"submit_time": 2, "start_time": 30, "state": "running"},
            {"submit_time": -1e7, "start_time": -1e7, "state": "running"},  # its end was lost
            {"submit_time": 4, "start_time": 61, "duration_s": 5.0, "end_time": 66},
            {"submit_time": 5, "end_time": 9, "state": "cancelled"},
        )
    )
    known = rows.known_by(T0 + 60)
    assert known.job_id.tolist() == ["j0", "j1", "j2"]
    np.testing.assert_array_equal(known.y, [50, np.nan, np.nan])
    np.testing.assert_array_equal(known.end_time - T0, [55, np.nan, np.nan])
    assert len(rows.known_by(T0)) == 0


def test_times_out_of_order_are_moved_and_counted() -> None:
    rows = training_rows(
        a_trace(
            {"submit_time": 100, "start_time": 40, "end_time": 160},
            {"submit_time": 100, "start_time": 120, "end_time": 160},
        )
    )
    assert rows.adjusted == 1
    assert (rows.start_time - T0).tolist() == [100, 120]
    assert rows.y.tolist() == [120, 40]


def test_blocks_are_stretches_of_time() -> None:
    days = [{"submit_time": day * 86_400 + 60, "duration_s": 1.0} for day in (0, 0.5, 1, 7)]
    assert training_rows(a_trace(*days)).block.tolist() == [0, 0, 1, 7]
    assert training_rows(a_trace(*days), block_s=43_200).block.tolist() == [0, 1, 2, 14]


def test_unsorted_traces_are_replayed_in_time_order() -> None:
    rows, turned = training_rows(a_trace(*THREE)), training_rows(a_trace(*THREE)[::-1])
    assert turned.job_id.tolist() == rows.job_id.tolist() == ["j0", "j1", "j2"]
    pd.testing.assert_frame_equal(turned.X, rows.X)


def test_tables_come_back_as_they_went() -> None:
    rows = training_rows(a_trace(*THREE), families=FAMILIES, moments=list(Moment))
    again = Rows.from_table(rows.table())
    pd.testing.assert_frame_equal(again.X, rows.X)
    assert (again.features, again.digest) == (rows.features, rows.digest)
    np.testing.assert_array_equal(again.y, rows.y)
    np.testing.assert_array_equal(again.end_time, rows.end_time)
    assert again.job_id.tolist() == rows.job_id.tolist()
    with pytest.raises(FeatureError, match="does not describe features"):
        Rows.from_table(a_trace(*THREE))


@pytest.mark.parametrize(
    ("message", "trace", "options"),
    [
        ("'submit_time' is missing", a_trace(*THREE).drop_columns(["submit_time"]), {}),
        ("3 jobs of the trace.*j0", a_trace(*THREE), {"schedule": {}}),
        ("state is 'done'.*completed", a_trace({"submit_time": 0, "state": "done"}), {}),
        ("j0: its duration is negative", a_trace({"submit_time": 0, "duration_s": -5.0}), {}),
        ("block_s is 0", a_trace(*THREE), {"block_s": 0}),
        ("family 'userz'", a_trace(*THREE), {"families": ["userz"]}),
        (
            "j0: already submitted",
            pa.concat_tables([a_trace({"submit_time": 0, "duration_s": 9.0})] * 2),
            {},
        ),
    ],
)
def test_what_cannot_be_replayed_is_named(
    message: str, trace: pa.Table, options: dict[str, Any]
) -> None:
    with pytest.raises(FeatureError, match=message):
        training_rows(trace, **options)


@pytest.mark.shared_data
def test_venus_rows_are_the_live_rows(venus: pa.Table) -> None:
    """A live loop that meets each event as it comes gets the rows of the training table."""
    first = venus.slice(0, 4000)
    rows = training_rows(first)
    assert len(rows) == first.num_rows
    assert np.isfinite(rows.y).all()

    live = FeatureState()
    ends: list[tuple[float, int]] = []
    lives = lifetimes(first)[0]
    numbered = enumerate(lives)
    for now, arrivals in itertools.groupby(numbered, lambda pair: pair[1].job.submit_time):
        while ends and ends[0][0] < now:
            ended, i = heapq.heappop(ends)
            live.end(lives[i].job.job_id, ended, lives[i].state, lives[i].duration_s)
        started = []
        for i, life in arrivals:  # a service looks first and books after
            row = live.row(life.job, now)
            live.submit(life.job, now)
            started.append(i)
            assert list(map(str, row)) == list(map(str, rows.X.iloc[i]))
        for i in started:
            live.start(lives[i].job.job_id, now)
            heapq.heappush(ends, (lives[i].end_time, i))


@given(seed=st.integers(0, 2**31), cuts=st.lists(st.integers(1, 39), max_size=4))
@settings(max_examples=25)
def test_a_trace_in_parts_gives_the_rows_of_the_whole(seed: int, cuts: list[int]) -> None:
    rng = np.random.default_rng(seed)
    n = 40
    submit = np.sort(rng.integers(0, 50, n)) * 3600_000 + int(T0 * 1000)
    duration = rng.integers(1, 200_000, n).astype(float)
    table = pa.table(
        {
            "job_id": [f"j{i}" for i in range(n)],
            "gpus": pa.array(rng.integers(1, 9, n), pa.int32()),
            "user": [f"u{i}" for i in rng.integers(0, 4, n)],
            "vc": ["a"] * n,
            "submit_time": pa.array(submit, pa.timestamp("ms", tz="UTC")),
            "duration_s": duration,
            "state": ["completed"] * n,
        }
    )
    bounds = sorted({int(np.searchsorted(submit, submit[c])) for c in cuts} | {0, n})
    parts = [table.slice(a, b - a) for a, b in itertools.pairwise(bounds)]
    whole = training_rows(table, families=("size", "user", "running"))
    streamed = list(streamed_rows(parts, families=("size", "user", "running")))
    pd.testing.assert_frame_equal(
        pd.concat([rows.X for rows in streamed], ignore_index=True), whole.X
    )
    for name in ("y", "job_id", "time", "end_time", "block"):
        found = np.concatenate([getattr(rows, name) for rows in streamed])
        np.testing.assert_array_equal(found, getattr(whole, name))
