"""Each chart of the report draws what it is about: values, in their places."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from pipeline.report import trace
from scheduler.charts.chart import Chart, lying

DAY_S = 86_400.0
THURSDAY = 0.0  # 1 January 1970
FACTS = trace.TraceFacts(
    pa.table(
        {
            "submit_time": [THURSDAY, 5 * 3600.0, 5 * 3600.0, 2 * DAY_S],
            "gpus": [1, 1, 8, 1],
            "duration_s": [10.0, 10.0, 1000.0, None],
            "user": ["ann", "ann", "bob", "ann"],
            "vc": ["small", "small", "large", "small"],
            "state": ["completed", "completed", "completed", "failed"],
        }
    ),
    "made up",
    {},
    {},
)


def drawn(chart: Chart, at: int = 0) -> list[tuple[object, float]]:
    return list(zip(chart.data[at]["x"], chart.data[at]["y"], strict=True))


def test_jobs_stand_at_their_day_and_hour() -> None:
    days = [("1970-01-01", 3), ("1970-01-02", 0), ("1970-01-03", 1)]
    assert drawn(trace.per_day(FACTS)) == days
    hours = trace.by_hour(FACTS).data[0]
    shades = {
        (day, hour): shade**2
        for day, row in zip(hours["y"], hours["z"], strict=True)
        for hour, shade in zip(hours["x"], row, strict=True)
        if shade
    }
    assert shades == pytest.approx({("Thu", "00"): 1, ("Thu", "05"): 2, ("Sat", "00"): 1})


def test_a_bar_of_durations_spans_them() -> None:
    bar = trace.durations(FACTS).data[0]
    for seconds, jobs in ((10.0, 2), (1000.0, 1)):
        (found,) = (
            n
            for at, wide, n in zip(bar["x"], bar["width"], bar["y"], strict=True)
            if n and abs(np.log10(seconds) - at) <= wide / 2 + 1e-9
        )
        assert found == jobs


def test_users_are_the_heaviest_first() -> None:
    chart = trace.users(FACTS)
    assert drawn(chart) == [(0.0, 0.0), (0.5, 0.75), (1.0, 1.0)]
    assert drawn(chart, 1) == [(0.0, 0.0), (0.5, round(8000 / 8020, 4)), (1.0, 1.0)]


def test_a_lying_bar_has_its_own_length_and_text() -> None:
    bar = lying("n", "t", "l", [("a", 1.0, "one"), ("b", 2.0, "two")]).data[0]
    assert [*zip(bar["y"], bar["x"], bar["text"], strict=True)] == [
        ("a", 1.0, "one"), ("b", 2.0, "two"),
    ]  # fmt: skip
