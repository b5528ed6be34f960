"""Each chart of the report draws what it is about: values, in their places."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from pipeline.report import overview, trace
from pipeline.report.interactive import PolicyResult
from scheduler.service.pages.charts import Chart, lying

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


def test_averages_and_tails_are_of_the_jobs_that_ended() -> None:
    waits = np.array([1.0, *[10.0] * 8, 500.0, 9e9])
    jct = waits + 100.0
    jct[-1] = np.nan
    results = [
        PolicyResult("ours", 0, waits, jct),
        PolicyResult("fifo", 6, waits * 2, jct * 2, mean_s=7.0),
    ]
    means = dict(zip(*(overview.averages(results).data[0][axis] for axis in "yx"), strict=True))
    assert means == {"fifo": 7.0, "ours": pytest.approx(158.1)}
    points = drawn(overview.tails(results[:1]))
    assert (points[0], points[-1][0]) == ((1.0, 1.0), 500.0)
    assert all(at == 10.0 for at, share in points if 0.11 < share < 0.89)
