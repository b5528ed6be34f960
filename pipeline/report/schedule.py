"""Draws a schedule (which job had which GPU when) as a Gantt chart, as a whole or around the wait
of one job."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import pyarrow.compute as pc

from pipeline.report.comparison import PolicyRun
from pipeline.report.spells import Spells, shared_until, spells
from scheduler.core.decisions import Action
from scheduler.explain.words import HOUR_S, number, percent

WIDTH = 1600  # steps of time in a drawing
DAY_S = 24 * HOUR_S
TICKS_S = (60, 300, 900, HOUR_S, 3 * HOUR_S, 6 * HOUR_S, DAY_S, 2 * DAY_S, 7 * DAY_S, 28 * DAY_S)
ALONE, SHARED, PROFILED, HOLDS, OWN = "alone", "pair", "probe", "holds", "own"
LEGEND = {
    OWN: "this job",
    HOLDS: "ran while it waited, named below",
    ALONE: "a job alone on its GPUs",
    SHARED: "two jobs on the same GPUs",
    PROFILED: "a job being profiled",
}


@dataclass(frozen=True, slots=True)
class Band:
    """The rows of a virtual cluster in a Gantt chart: where they begin, and their height, in
    percent of the chart's height."""

    name: str
    top: float
    height: float


@dataclass(frozen=True)
class Gantt:
    """A Gantt chart, with a row per GPU.

    Attributes:
        rows: number of GPUs that are drawn.
        layers: (class of the style sheet, SVG path) of each layer, the topmost last.
        bands: rows of the virtual clusters.
        ticks, marks: (percent of the width, text) of times on the axis, and of named moments.
        legend: (class of the style sheet, meaning) of each kind of layer.
    """

    rows: int
    layers: Sequence[tuple[str, str]]
    bands: Sequence[Band]
    ticks: Sequence[tuple[float, str]]
    marks: Sequence[tuple[float, str]]
    legend: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Schedule:
    """Which jobs had which GPUs when in a run, and the row on which each GPU is drawn.

    Attributes:
        row: node -> row of its first GPU.
        vc_of: node -> the virtual cluster whose jobs held it longest.
        spells: which jobs held which GPUs when.
        until: index of a shared spell -> time when the sharing ended.
        first, last: time of the first and the last submission, seconds since the epoch.
    """

    spells: Spells
    until: Mapping[int, float]
    row: Mapping[int, int]
    vc_of: Mapping[int, str]
    gpus_per_node: int
    first: float
    last: float

    @property
    def end(self) -> float:
        """Return the time up to which the whole schedule is drawn, seconds since the epoch."""
        return self.last + 0.02 * (self.last - self.first) + 1.0

    def drawn(
        self,
        since: float,
        until: float,
        *,
        vc: str | None = None,
        own: str = "",
        holds: Collection[str] = (),
        marks: Sequence[tuple[float, str]] = (),
    ) -> Gantt:
        """Draw the schedule from `since` to `until` (seconds since the epoch). Return the chart.

        Args:
            vc: draw only the nodes of this virtual cluster; None: all nodes.
            own, holds: the explained job, and the jobs that held the GPUs that it waited for; both
                are highlighted.
            marks: (time, text) of moments to mark.
        """
        nodes = [node for node in self.row if vc in (None, self.vc_of[node])]
        row = {node: i * self.gpus_per_node for i, node in enumerate(nodes)}
        scale = WIDTH / max(until - since, 1e-9)
        layers: dict[str, list[str]] = defaultdict(list)

        def add(css: str, i: int, start: float, end: float) -> None:
            x, right = (round((max(since, min(at, until)) - since) * scale) for at in (start, end))
            if end <= since or start >= until:
                return
            for top, tall in self.boxes(i, row):
                wide = max(right - x, 1)
                layers[css].append(f"M{x} {top}h{wide}v{tall}h-{wide}z")

        found = self.spells
        for i, job in enumerate(found.job):
            profiled = found.action[i] == Action.PROFILE.value
            start, end = float(found.start[i]), float(found.end[i])
            add(PROFILED if profiled else ALONE, i, start, end)
            if i in self.until:
                add(SHARED, i, start, self.until[i])
            if job == own:
                add(OWN, i, start, end)
            elif job in holds:
                add(HOLDS, i, start, end)
        order = [css for css in (ALONE, SHARED, PROFILED, HOLDS, OWN) if css in layers]
        rows = max(len(nodes) * self.gpus_per_node, 1)
        return Gantt(
            rows=rows,
            layers=[(css, "".join(layers[css])) for css in order],
            bands=list(self.bands(nodes)),
            ticks=list(ticks(since, until, 7 if vc is None else 3)),
            marks=[(100 * (at - since) / (until - since), text) for at, text in marks],
            legend=[(css, text) for css, text in LEGEND.items() if css in layers],
        )

    def boxes(self, i: int, row: Mapping[int, int]) -> Iterator[tuple[int, int]]:
        """Yield (first row, number of rows) for each run of adjacent GPUs that a spell (period of a
        job on GPUs) holds. `i` is the index of the spell, `row` the first row of each drawn
        node."""
        for node, mask in zip(self.spells.nodes[i], self.spells.masks[i], strict=False):
            if node not in row:
                continue
            bit = 0
            while mask >> bit:
                if not mask >> bit & 1:
                    bit += 1
                    continue
                first = bit
                while mask >> bit & 1:
                    bit += 1
                yield row[node] + first, bit - first

    def bands(self, nodes: Sequence[int]) -> Iterator[Band]:
        counted = Counter(self.vc_of[node] for node in nodes)
        top = 0.0
        for vc in dict.fromkeys(self.vc_of[node] for node in nodes):
            height = 100 * counted[vc] / len(nodes)
            yield Band(vc, top, height)
            top += height

    def shares(self, since: float, until: float) -> list[list[str]]:
        """Return one row of texts per virtual cluster: its number of GPUs, and the shares of
        GPU-time that one job or two jobs held from `since` to `until`.
        """
        rows = []
        found = self.spells
        span = np.clip(found.end, since, until) - np.clip(found.start, since, until)
        pair = np.zeros(len(span))
        for i, end in self.until.items():
            pair[i] = max(np.clip(end, since, until) - np.clip(found.start[i], since, until), 0)
        sizes = Counter(self.vc_of.values())
        for vc, nodes in sizes.items():
            gpus = nodes * self.gpus_per_node
            on = np.array(
                [
                    sum(
                        mask.bit_count()
                        for node, mask in zip(found.nodes[i], found.masks[i], strict=False)
                        if self.vc_of.get(node) == vc
                    )
                    for i in range(len(span))
                ]
            )
            whole = gpus * (until - since)
            held, shared = float((on * (span - pair)).sum()), float((on * pair).sum())
            rows.append([vc, number(gpus), percent(held / whole), percent(shared / whole)])
        return rows


def read_schedule(run: PolicyRun) -> Schedule | None:
    """Return the schedule of a run. Return None if no job got GPUs, or if the nodes were not
    recorded."""
    found = spells(run)
    if not len(found.start) or not any(len(nodes) for nodes in found.nodes):
        return None
    per_node = run.folder.summary.get("gpus_per_node")
    widest = max((mask.bit_length() for masks in found.masks for mask in masks), default=1)
    each = max(int(per_node) if isinstance(per_node, int) else 1, widest)
    held: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for i, nodes in enumerate(found.nodes):
        for node in nodes:
            held[node][str(found.vc[i])] += float(found.end[i] - found.start[i])
    vc_of = {node: max(by, key=lambda vc: by[vc]) for node, by in held.items()}
    order = list(run.gpus_by_vc) or sorted(set(vc_of.values()))
    places = {vc: i for i, vc in enumerate(order)}
    nodes = sorted(vc_of, key=lambda node: (places.get(vc_of[node], len(places)), node))
    shared = found.action == Action.PACK.value
    until = dict(zip(np.flatnonzero(shared).tolist(), shared_until(found, shared), strict=True))
    jobs = run.jobs
    return Schedule(
        spells=found,
        until=until,
        row={node: i for i, node in enumerate(nodes)},
        vc_of=vc_of,
        gpus_per_node=each,
        first=float(pc.min(jobs["submit_time"]).as_py()),
        last=float(pc.max(jobs["submit_time"]).as_py()),
    )


def ticks(since: float, until: float, most: int) -> Iterator[tuple[float, str]]:
    """Yield (percent of the way, text) for round times between `since` and `until`, UTC. There are
    about `most` of them at most."""
    step = next((s for s in TICKS_S if (until - since) / s <= most), TICKS_S[-1])
    at = np.ceil(since / step) * step
    while at < until:
        when = datetime.fromtimestamp(at, UTC)
        yield (
            100 * (at - since) / (until - since),
            f"{when:%d %b}" if step >= DAY_S else (f"{when:%d %b %H:%M}"),
        )
        at += step
