"""Charts of histories (groups of ended jobs): how many jobs of a group lasted how long, and the
probability of lasting longer that follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from features.survival import EDGES_S, HISTORIES, History
from models.bundle import Bundle
from scheduler.charts.chart import (
    TIP,
    Chart,
    Spec,
    coloured,
    duration_axis,
    hidden,
    hovered,
    mark,
    numbers,
    paint,
    rows_of,
)
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
    tips = [f"{s}: {jobs:.1f} jobs" for s, jobs in zip(spans, history.ended, strict=True)]
    ended = rows_of(lasted=edges[:-1], to=edges[1:], jobs=history.ended, tip=tips)
    here = outlived_s > FROM_S
    series: list[tuple[str, Sequence[float], Sequence[float]]] = [
        ("the wider group", EDGES_S, wider), ("outlive it", EDGES_S, lasts),
    ]  # fmt: skip
    series += [("this job now", (outlived_s, outlived_s), (0.0, 1.0))] if here else []
    share = [
        {"name": of, "lasted": at, "share": v, "tip": f"{of}: {percent(v)} over {duration(at)}"}
        for of, times, values in series
        for at, v in zip(times, values, strict=True)
    ]
    dashes = ("dot", "", "dash")[: len(series)]
    looks = coloured([of for of, *_ in series], [*map(paint, (1, 0, 2))][: len(series)], *dashes)
    most = 2.0 * max(*history.ended, 0.5)
    across = {"x2": {"field": "to"}, "y": hidden("jobs", (0.0, most)), "y2": {"datum": 0}}
    y = numbers("share", ends=(0.0, 1.0), format=".0%")
    spec: Spec = {
        "encoding": {"x": duration_axis("lasted", "lasted")},
        "layer": [
            mark("rect", across, TIP, rows=ended, color="var(--line)"),
            {
                "data": {"values": share},
                "encoding": {"y": y},
                "layer": [mark("line", looks), hovered()],
            },
        ],
        "resolve": {"scale": {"y": "independent"}},
    }
    return Chart(
        name=name,
        title=f"{history.of[:1].upper()}{history.of[1:]}",
        label=f"How long {history.of} lasted. {becomes}",
        spec=spec,
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
