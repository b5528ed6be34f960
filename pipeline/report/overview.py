"""What stands above the figures to filter: average JCT and the tail of the waits, of all draws."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pipeline.report.interactive import PolicyResult
from pipeline.tables import Floats
from scheduler.explain.words import duration
from scheduler.service.pages.charts import Chart, ChartAxis, Layout, duration_axis, line, lying

POINTS = 160


def averages(results: Sequence[PolicyResult]) -> Chart:
    """Average JCT as bars."""
    means = [result.mean_s or float(np.nanmean(result.jct_s)) for result in results]
    ranked = sorted(zip(means, results, strict=True), key=lambda one: one[0])
    items = [
        (w.name, s, f"{duration(s)}{f' ± {duration(w.within_s)}' if w.within_s else ''}")
        for s, w in ranked
    ]
    note = "From submission to end; shorter is better. Grey: knows the future."
    colours = [f"--s{result.colour}" for _, result in ranked]
    return lying("average-jct", "Average JCT", "Average JCT", items, colours=colours, note=note)


def tails(results: Sequence[PolicyResult]) -> Chart:
    """Share of jobs that wait longer than a time, both axes logarithmic."""
    data, rows = [], []
    for result in sorted(results, key=lambda one: one.colour == 0):  # ours on top
        waits = np.sort(result.wait_s[~np.isnan(result.jct_s)])
        if not len(waits):
            continue
        shares = np.geomspace(1.0, 1 / len(waits), POINTS)
        at = _at(waits, 1 - shares)
        width = 2 if result.colour else 3.6
        dash = "dash" if result.oracle else ""
        data.append(
            line(at.round(1).tolist(), shares.round(5).tolist(), result.name, result.colour,
                 dash=dash, width=width)
        )  # fmt: skip
        half, tenth, hundredth = (
            duration(float(s)) for s in _at(waits, np.array([0.5, 0.9, 0.99]))
        )
        rows.append([result.name, half, tenth, hundredth])
    share: ChartAxis = {"type": "log", "tickformat": ".1~%"}
    layout: Layout = {"xaxis": duration_axis("waits longer than"), "yaxis": share}
    return Chart(
        "waits",
        "Who waits longest",
        "Share of jobs that wait longer than a time; half of them: "
        + ", ".join(f"{name} {half}" for name, half, *_ in rows),
        data,
        layout,
        ("policy", "half of the jobs wait longer than", "one in ten", "one in 100"),
        rows,
        "Share of jobs that wait longer than a time; lower is better.",
    )


def _at(ordered: Floats, shares: Floats) -> Floats:
    found: Floats = ordered[np.minimum((shares * len(ordered)).astype(int), len(ordered) - 1)]
    return found.clip(min=1.0)
