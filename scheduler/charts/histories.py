"""Charts of histories (groups of ended jobs): how many jobs of a group lasted how long, and the
probability of lasting longer that follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from features.survival import EDGES_S, HISTORIES, History
from models.bundle import Bundle
from scheduler.charts.chart import Chart, Layout, Trace, duration_axis, line
from scheduler.core.curves import LONGEST_S
from scheduler.explain.histories import known, survivors
from scheduler.explain.render import known_words, next_words
from scheduler.explain.words import duration, percent

FROM_S = 5.0  # where the first stretch is drawn from


def picture(history: History, name: str, outlived_s: float = 0.0) -> Chart:
    """Return the chart of a history (the ended jobs of one group, such as a user's).

    Bars: number of jobs by duration. Lines: share of the next jobs that lasts longer than each
    duration, by this history and by the wider group to which its estimates are shrunk.

    Args:
        name: id of the chart on the page.
        outlived_s: seconds that the job in question has run. The lines count only jobs that last
            longer.
    """
    jobs_of_it = known(history, outlived_s)
    becomes = next_words(jobs_of_it.next, outlived_s)
    edges = (FROM_S, *EDGES_S, LONGEST_S)
    lasts, wider = (survivors(h, outlived_s) for h in (history.hazards, history.wider))
    spans = [f"{duration(a)} to {duration(b)}" for a, b in pairwise(edges)]
    spans[0], spans[-1] = f"under {duration(EDGES_S[0])}", f"over {duration(EDGES_S[-1])}"
    bars: Trace = {
        "type": "bar",
        "x": [(a + b) / 2 for a, b in pairwise(edges)],
        "width": [b - a for a, b in pairwise(edges)],
        "y": list(history.ended),
        "text": spans,
        "yaxis": "y2",
        "marker": {"color": "--line"},
        "hovertemplate": "%{text}: %{y:.1f} jobs",
        "showlegend": False,
    }
    data: list[Trace] = [
        bars,
        line(list(EDGES_S), wider, "the wider group", 1, dash="dot", width=1),
        line(list(EDGES_S), lasts, "outlive it", 0),
    ]
    if outlived_s > FROM_S:
        data.append(line([outlived_s, outlived_s], [0.0, 1.0], "this job now", 2, dash="dash"))
    layout: Layout = {
        "xaxis": duration_axis("lasted"),
        "yaxis": {"range": [0.0, 1.0], "tickformat": ".0%"},
        "yaxis2": {"range": [0.0, 2.0 * max(*history.ended, 0.5)], "visible": False},
    }
    return Chart(
        name=name,
        title=f"{history.of[:1].upper()}{history.of[1:]}",
        label=f"How long {history.of} lasted. {becomes}",
        data=data,
        layout=layout,
        head=("lasted", "jobs", "of those that reach it, end in it", "outlive it"),
        rows=_table(history, spans, lasts),
        note=f"{known_words(jobs_of_it)} {becomes}",
    )


def _table(history: History, spans: Sequence[str], lasts: Sequence[float]) -> list[list[str]]:
    outlive = [*map(percent, lasts), ""]
    return [
        [span, f"{jobs:.1f}", percent(share), alive]
        for span, jobs, share, alive in zip(
            spans, history.ended, history.hazards, outlive, strict=True
        )
    ]


def of_bundle(bundle: Bundle) -> list[Chart]:
    """Return the charts of all histories that a bundle of models stores. Return [] without any."""
    kept = bundle.metadata.get(HISTORIES) or ()
    return [picture(one, f"history-{i}") for i, one in enumerate(map(History.read, kept))]


def pictures(histories: Sequence[History], outlived_s: float = 0.0) -> list[Chart]:
    """Return the chart of each history, the narrowest group of jobs first."""
    return [picture(one, f"history-{i}", outlived_s) for i, one in enumerate(reversed(histories))]
