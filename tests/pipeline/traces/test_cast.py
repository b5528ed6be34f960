"""Text and clock times to values."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.traces.cast import NAIVE, cast_or_null, localise, map_unique, offset_times

ZONES = ["UTC", "Asia/Shanghai", "America/Los_Angeles", "Europe/Berlin", "Australia/Lord_Howe"]
moments = st.datetimes(datetime(1995, 1, 1), datetime(2035, 1, 1)).map(
    lambda when: when.replace(microsecond=0)
)


@given(st.lists(st.sampled_from(["1", "2.5", "x", "", "-3", "1e400", "٣"]) | st.text(max_size=4)))
def test_cast_or_null_is_elementwise(texts: list[str]) -> None:
    def alone(text: str) -> float | None:
        try:
            return pc.cast(pa.array([text]), pa.float64())[0].as_py()  # type: ignore[no-any-return]
        except pa.ArrowInvalid:
            return None

    found = cast_or_null(pa.array(texts, pa.string()), pa.float64())
    assert [str(value) for value in found.to_pylist()] == [str(alone(text)) for text in texts]


@given(st.lists(moments, min_size=1, max_size=20), st.sampled_from(ZONES))
def test_localise_agrees_with_zoneinfo(clock: list[datetime], zone: str) -> None:
    """The first of a repeated hour; a skipped time moves to the end of its gap."""
    times, moved = localise(pa.array(clock, NAIVE), zone)
    odd = 0
    for naive, found in zip(clock, times.to_pylist(), strict=True):
        first, second = (naive.replace(tzinfo=ZoneInfo(zone), fold=fold) for fold in (0, 1))
        exists = first.astimezone(UTC).astimezone(ZoneInfo(zone)).replace(tzinfo=None) == naive
        if exists:
            assert found == first.astimezone(UTC)
            odd += first.utcoffset() != second.utcoffset()
        else:
            odd += 1
            later = found.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
            assert timedelta(0) < later - naive <= timedelta(hours=1)
    assert moved == odd


def test_clock_changes() -> None:
    zone = "America/Los_Angeles"
    clock = [datetime(2017, 11, 5, 1, 30), datetime(2017, 3, 12, 2, 30), datetime(2017, 7, 1), None]
    after = pa.array(
        [datetime(2017, 11, 5, 9, 0, tzinfo=UTC), None, None, None], pa.timestamp("ms", "UTC")
    )
    times, moved = localise(pa.array(clock, NAIVE), zone)
    assert moved == 2
    assert times.to_pylist() == [
        datetime(2017, 11, 5, 8, 30, tzinfo=UTC),
        datetime(2017, 3, 12, 10, 0, tzinfo=UTC),
        datetime(2017, 7, 1, 7, 0, tzinfo=UTC),
        None,
    ]
    later, _ = localise(pa.array(clock, NAIVE), zone, after)
    assert later[0].as_py() == datetime(2017, 11, 5, 9, 30, tzinfo=UTC)


def test_many_times_in_one_season() -> None:
    """The shortcut for a constant offset gives what looking up each time gives."""
    clock = [datetime(2020, 6, 1) + timedelta(minutes=i) for i in range(5000)]
    times, moved = localise(pa.array(clock, NAIVE), "America/Los_Angeles")
    assert moved == 0
    assert times.to_pylist() == [(c + timedelta(hours=7)).replace(tzinfo=UTC) for c in clock]


@pytest.mark.parametrize("seconds", [0.0, 1.2345, -86_400.0, 1e9])
def test_offsets(seconds: float) -> None:
    origin = datetime(2023, 1, 1, tzinfo=UTC)
    [found] = offset_times(pa.array([seconds]), origin).to_pylist()
    assert abs((found - origin).total_seconds() - seconds) <= 0.0005


def test_absurd_offsets_stay_representable() -> None:
    values = pa.array([1e300, -1e300, float("inf"), None, float("nan")])
    found = offset_times(values, datetime(2023, 1, 1, tzinfo=UTC)).to_pylist()
    assert found[0].year > 2100
    assert found[1].year < 1990
    assert found[3:] == [None, None]


def test_map_unique_calls_once() -> None:
    calls: list[str] = []

    def convert(text: str) -> int:
        calls.append(text)
        return len(text)

    values = pa.array(["aa", "b", None, "aa"])
    assert map_unique(values, convert, pa.int32()).to_pylist() == [2, 1, None, 2]
    assert sorted(calls) == ["aa", "b"]
