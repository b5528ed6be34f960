"""Each chart of the report draws what it is about: values, in their places."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from pipeline.report import trace
from scheduler.charts.chart import Chart, lying
from scheduler.charts.shapes import heat
from tests.pipeline.test_report import a_bundle

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


def drawn(chart: Chart, *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in columns) for row in chart.spec["data"]["values"]]


def test_jobs_stand_at_their_day_and_hour() -> None:
    days = [("1970-01-01", 3), ("1970-01-02", 0), ("1970-01-03", 1)]
    assert drawn(trace.per_day(FACTS), "day", "jobs") == days
    hours = {(day, hour): (shade, tip)
             for day, hour, shade, tip in drawn(trace.by_hour(FACTS), "y", "x", "shade", "tip")
             if shade}  # fmt: skip
    assert hours == {
        ("Thu", "00"): (0.707, "Thu 00:00: 1 job"), ("Thu", "05"): (1.0, "Thu 05:00: 2 jobs"),
        ("Sat", "00"): (0.707, "Sat 00:00: 1 job"),
    }  # fmt: skip


def scale_of(chart: Chart) -> list[tuple[str, str, float]]:
    """The legend of a heat map: text, colour and opacity of each entry."""
    named = chart.spec["layer"][-1]["encoding"]
    texts = named["color"]["scale"]["domain"]
    ranges = (named[channel]["scale"]["range"] for channel in ("color", "opacity"))
    return list(zip(texts, *ranges, strict=True))


def test_shades_have_their_scale_beside_them() -> None:
    assert scale_of(trace.by_hour(FACTS)) == [
        ("1 job", "var(--heat)", pytest.approx(0.5**0.5)), ("2 jobs", "var(--heat)", 1.0),
    ]  # fmt: skip
    model = a_bundle().duration
    pair = next(term for term in model.terms if len(term.features) == 2)
    chart = heat(model, pair, "pair")
    [strongest, *_] = chart.rows
    texts = {text: (colour, opacity) for text, colour, opacity in scale_of(chart)}
    assert [opacity for _, opacity in texts.values()] == [1.0, 0.5, 0.5, 1.0]
    deepest = next(row for row in chart.spec["data"]["values"] if row["strength"] == 1.0)
    colour = "var(--heat)" if deepest["shade"] > 0 else "var(--cold)"
    assert texts[strongest[-1]] == (colour, 1.0), "the strongest cell is named by its shade"


def test_a_bar_of_durations_spans_them() -> None:
    bars = drawn(trace.durations(FACTS), "low", "high", "jobs")
    for seconds, jobs in ((10.0, 2), (1000.0, 1)):
        assert [n for low, high, n in bars if low <= seconds * 1.000001 < high] == [jobs]
    assert sum(n for *_, n in bars) == 3


def test_users_are_the_heaviest_first() -> None:
    chart = trace.users(FACTS)
    assert drawn(chart, "name", "users", "held") == [
        ("jobs", 0.0, 0.0), ("jobs", 0.5, 0.75), ("jobs", 1.0, 1.0), ("GPU-time", 0.0, 0.0),
        ("GPU-time", 0.5, round(8000 / 8020, 4)), ("GPU-time", 1.0, 1.0),
    ]  # fmt: skip


def test_a_lying_bar_has_its_own_length_and_text() -> None:
    chart = lying("n", "t", "l", [("a", 1.0, "one"), ("b", 2.0, "two")])
    assert drawn(chart, "name", "value", "text") == [
        ("a", 1.0, "one"), ("b", 2.0, "two"),
    ]  # fmt: skip
