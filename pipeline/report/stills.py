"""Still pictures of the figures, for paper and for readers without a script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from markupsafe import Markup

from pipeline.report.charts import Axis, Floats, cumulative, lines, rows
from pipeline.report.interactive import Way
from pipeline.report.svg import DURATION_TICKS, Point, legend, log_ticks, ticks
from scheduler.explain.words import duration, percent

Series = Mapping[str, Sequence[Point]]


def stills(ways: Sequence[Way]) -> dict[str, Markup]:
    """A picture of the average JCT, of the JCTs, of the waits; their legend."""
    return {
        "average": averages(ways),
        "jct": jct_curves(ways),
        "tail": wait_curves(ways),
        "legend": legend([way.name for way in ways], looks=[way.colour for way in ways]),
    }


def averages(ways: Sequence[Way]) -> Markup:
    """Average JCT as bars, yardsticks hatched, ours strongest."""
    ended = [(way.mean_s, _ended(way, way.jct_s)) for way in ways]
    means = [mean or (float(of.mean()) if len(of) else 0.0) for mean, of in ended]
    ranked = sorted(zip(means, ways, strict=True), key=lambda one: one[0])
    texts = [
        f"{duration(s)}{f' ± {duration(w.within_s)}' if w.within_s else ''}" for s, w in ranked
    ]
    named = (f"{way.name} {text}" for (_, way), text in zip(ranked, texts, strict=True))
    label = "Average JCT: " + ", ".join(named)
    css = ["bar yardstick" if way.yardstick else f"bar s{way.colour}" for _, way in ranked]
    items = [(way.name, s, text) for (s, way), text in zip(ranked, texts, strict=True)]
    return rows(label, items, css=lambda i: css[i], left=130)


def jct_curves(ways: Sequence[Way]) -> Markup:
    """Share of jobs ended within a time of their submission."""
    series = {way.name: cumulative(_ended(way, way.jct_s)) for way in ways}
    return lines(
        f"Distribution of JCT. {_medians(series)}",
        series,
        x=Axis(1.0, _highest(series), DURATION_TICKS, "time from submission to end", log=True),
        y=Axis(0, 1, [(v, percent(v)) for v, _ in ticks(0, 1, 4)], "share of jobs"),
        looks=[way.colour for way in ways],
    )


def wait_curves(ways: Sequence[Way]) -> Markup:
    """Share of jobs that wait longer than a time, on a logarithmic axis: the tail."""
    waits = {way.name: _ended(way, way.wait_s) for way in ways}
    series = {
        name: [(v, 1 - share) for v, share in cumulative(values, 400)]
        for name, values in waits.items()
    }
    smallest = max(min(1 / max(len(values), 2) for values in waits.values()), 1e-4)
    shares = [(v, f"{100 * v:g} %") for v, _ in log_ticks(smallest, 1.0)]
    return lines(
        f"Share of jobs that wait longer than a time. {_medians(series)}",
        series,
        x=Axis(1.0, _highest(series), DURATION_TICKS, "waits longer than", log=True),
        y=Axis(smallest, 1.0, shares, "share of jobs", log=True),
        looks=[way.colour for way in ways],
    )


def _ended(way: Way, values: Floats) -> Floats:
    return values[~np.isnan(way.jct_s)]


def _highest(series: Series) -> float:
    return max(1.2 * max((p[0] for curve in series.values() for p in curve), default=10.0), 100.0)


def _medians(series: Series) -> str:
    """The middle of each curve, for those who cannot see it."""
    middle = {
        name: min(curve, key=lambda p: abs(p[1] - 0.5))[0]
        for name, curve in series.items()
        if curve
    }
    return "Half-way points: " + ", ".join(f"{n} {duration(v)}" for n, v in middle.items())
