"""What runs in a virtual cluster, on which GPUs and until when, as a drawing and in words.

Time runs from left to right, in percent of the drawing's width. Nodes and their GPUs are below each
other, in pixels. The planned slots of waiting jobs are above the nodes, because their GPUs are not
decided yet.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from scheduler.core.plural import are, count
from scheduler.explain.words import end_words, ends_words, expected_start
from scheduler.service.log.store.rows import JobRow, Node
from scheduler.service.pages.queries import Holding, PageQueries

COLOURS = 7  # of the style sheet, its grey left out
LANES = ((4, 9), (9, 6), (16, 4))  # nodes up to which a GPU is so many pixels high
NODES = 16  # drawn; the table has all
SLOTS = 5  # waiting jobs whose slots are drawn
HEAD_PX, GAP_PX, SLOT_PX, AXIS_PX = 16, 7, 16, 20
TICKS = 5
STEPS_S = (60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800,
           604_800)  # fmt: skip
SHORTEST_S = 60.0  # of the time that is drawn


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar of the timeline: a job on neighbouring GPUs of a node, or the planned slot of a waiting
    job.

    Attributes:
        left, width: percent of the time axis; a run's bar reaches to its median end.
        fuzzy: percent from the median to the 90th percentile of its end; for a slot, of its start.
        css: style: the colour, and whether the run is longer than predicted, ends beyond the axis,
            or has an unknown end.
    """

    left: float
    width: float
    fuzzy: float
    y: float
    height: float
    css: str
    label: str
    tip: str


@dataclass(frozen=True, slots=True)
class Lane:
    """A node of the drawing: its name and state as text, and the bars of its jobs. `y` and `height`
    in pixels.
    """

    y: float
    height: float
    text: str
    bars: list[Bar]


@dataclass(frozen=True, slots=True)
class Line:
    """A bar of the drawing as a row of a table: a job, with the name of a node and the GPUs of that
    node on which it is.
    """

    node: str
    gpus: str
    job: Holding


@dataclass(frozen=True, slots=True)
class Timeline:
    """The whole drawing. `until`: time at its right edge, seconds since the epoch; `ticks`: marks
    of the time axis, as (percent, time); `left_out`: how many nodes are not drawn.
    """

    vc: str
    now: float
    until: float
    height: float
    words: str
    ticks: list[tuple[float, float]]
    slots: list[Bar]
    nodes: list[Lane]
    left_out: int
    rows: list[Line]


def colour(job_id: str) -> str:
    """Return the CSS class of a job's colour, the same wherever the job is drawn."""
    return f"c{zlib.crc32(job_id.encode()) % COLOURS}"


def timeline(
    queries: PageQueries, vc: str, now: float, waiting: Sequence[JobRow] = (), here: str = ""
) -> Timeline | None:
    """Return the timeline of a virtual cluster, or None where there is no such virtual cluster.

    Args:
        waiting: waiting jobs that the viewer may see, in the order of their queue. The first
            `SLOTS` with a forecast start are drawn as slots.
        here: id of the job that the page is about.
    """
    nodes = [node for node in queries.cluster() if node.vc == vc]
    if not nodes:
        return None
    held = queries.holding([node.node for node in nodes])
    slots = [job for job in waiting if job.start_p50 is not None][:SLOTS]
    scale = _Scale(now, _span(held, slots, now))
    drawn = _Drawn(scale, held, here)
    lanes = drawn.lanes(nodes[:NODES], len(slots) * SLOT_PX + (GAP_PX if slots else 0))
    bottom = lanes[-1].y + lanes[-1].height
    return Timeline(
        vc=vc,
        now=now,
        until=scale.until,
        height=bottom + AXIS_PX,
        words=_words(vc, nodes, held, slots, now=now),
        ticks=scale.ticks(),
        slots=[drawn.slot(job, i * SLOT_PX) for i, job in enumerate(slots)],
        nodes=lanes,
        left_out=max(0, len(nodes) - NODES),
        rows=[row for node in nodes for row in drawn.rows(node)],
    )


@dataclass(frozen=True, slots=True)
class _Scale:
    now: float
    span: float

    @property
    def until(self) -> float:
        return self.now + self.span

    def x(self, at: float) -> float:
        return min(100.0, max(0.0, 100.0 * (at - self.now) / self.span))

    def ticks(self) -> list[tuple[float, float]]:
        """Return round times as (percent, seconds since the epoch), none so near an edge that its
        label would be cut off.
        """
        step = next((s for s in STEPS_S if self.span / s <= TICKS), STEPS_S[-1])
        first = int(self.now // step + 1) * step
        moments = range(first, int(self.until) + 1, step)
        return [(x, float(at)) for at in moments if 8 < (x := self.x(at)) < 95]


def _span(held: Sequence[Holding], slots: Sequence[JobRow], now: float) -> float:
    """Return how many seconds the drawing covers: until nearly all running jobs should have ended,
    and far enough to show the slots of waiting jobs.
    """
    ends = sorted(one.end_p50 - now for one in held if one.end_p50 is not None)
    span = max(SHORTEST_S, 1.2 * ends[(9 * (len(ends) - 1)) // 10] if ends else 0.0)
    if not slots:
        return span
    last = max(job.start_p90 or job.start_p50 or now for job in slots) - now
    need = max(SHORTEST_S, 1.25 * last)
    return max(need, min(span, 3 * need))


@dataclass(frozen=True, slots=True)
class _Drawn:
    """Places jobs in the drawing. `held`: the jobs on GPUs; `here`: id of the job that the page is
    about.
    """

    scale: _Scale
    held: Sequence[Holding]
    here: str

    def slot(self, job: JobRow, y: float) -> Bar:
        assert job.start_p50 is not None
        left = self.scale.x(job.start_p50)
        lasts = job.estimate_s or 0.0
        right = self.scale.x(job.start_p50 + lasts)
        late = self.scale.x(job.start_p90 or job.start_p50)
        name = job.name or job.job_id
        return Bar(
            left=left,
            width=max(right - left, 1.0),
            fuzzy=max(late - left, 0.0),
            y=y,
            height=SLOT_PX - 3,
            css="slot here" if job.job_id == self.here else "slot",
            label=name,
            tip=f"{name} ({count(job.gpus, 'GPU')}), "
            f"{expected_start(job.start_p50, job.start_p90, self.scale.now)}",
        )

    def lanes(self, nodes: Sequence[Node], y: float) -> list[Lane]:
        gpu_px = next((px for most, px in LANES if len(nodes) <= most), LANES[-1][1])
        found = []
        for node in nodes:
            blocks = list(self._blocks(node))
            height = HEAD_PX + (gpu_px * len(node.gpus) if blocks else 0)
            bars = [
                self._bar(one, first, n, lane, of=of, top=y + HEAD_PX, gpu_px=gpu_px)
                for first, n, jobs in blocks
                for lane, (one, of) in enumerate((job, len(jobs)) for job in jobs)
            ]
            found.append(Lane(y, height, _state(node), bars))
            y += height + GAP_PX
        return found

    def rows(self, node: Node) -> Iterable[Line]:
        for first, n, jobs in self._blocks(node):
            where = f"{first}" if n == 1 else f"{first}-{first + n - 1}"
            for one in jobs:
                yield Line(node=node.name, gpus=where, job=one)

    def _blocks(self, node: Node) -> Iterable[tuple[int, int, list[Holding]]]:
        """Yield blocks of neighbouring GPUs with the same jobs, as (first GPU, number of GPUs, the
        jobs on them: at most two).
        """
        on: list[tuple[int, ...]] = [()] * len(node.gpus)
        for i, one in enumerate(self.held):
            for gpu in one.gpus.get(node.node, ()):
                if gpu < len(on):
                    on[gpu] += (i,)
        first = 0
        for jobs, run in groupby(on):
            n = len(list(run))
            if jobs:
                yield first, n, [self.held[i] for i in jobs[:2]]
            first += n

    def _bar(
        self, one: Holding, first: int, n: int, lane: int, of: int, top: float, gpu_px: float
    ) -> Bar:
        height = (n * gpu_px - 1) / of
        x, now = self.scale.x, self.scale.now
        right = 100.0 if one.end_p50 is None else max(x(one.end_p50), 0.6)
        late = right if one.end_p90 is None else max(x(one.end_p90), right)
        css = colour(one.job_id) if one.job_id else "other"
        if one.job_id and one.job_id == self.here:
            css += " here"
        if one.end_p50 is None:
            css += " unknown"
        elif right >= 100.0:
            css += " beyond"
        if one.past_s:
            css += " past"
        where = f"GPU {first}" if n == 1 else f"GPUs {first}-{first + n - 1}"
        return Bar(
            left=0.0,
            width=right,
            fuzzy=late - right,
            y=top + first * gpu_px + lane * height,
            height=height - 0.5 * (of > 1),
            css=css,
            label=one.name or one.job_id,
            tip=f"{where}: {one.who}, {end_words(one.end_p50, one.end_p90, one.past_s, now)}",
        )


def _state(node: Node) -> str:
    idle = sum(not (gpu.jobs or gpu.closed) for gpu in node.gpus)
    free = f"{idle} of {count(len(node.gpus), 'GPU')} free"
    if node.silent:
        free += f", {len(node.silent)} closed"
    if node.profiling:
        free = f"for profiling, {free}"
    return f"{node.name}: {free}" if node.open else f"{node.name}: {node.drained}"


def _words(
    vc: str, nodes: Sequence[Node], held: Sequence[Holding], slots: Sequence[JobRow], now: float
) -> str:
    """Return what the drawing shows, in a few sentences."""
    own = [node for node in nodes if not node.profiling]
    free = sum(len(node.free) for node in own)
    gpus = sum(len(node.gpus) for node in own)
    text = f"{count(len(held), 'job')} on GPUs of {vc}; {free} of its {gpus} GPUs {are(free)} free."
    ends = sorted(one.end_p50 - now for one in held if one.end_p50 is not None)
    text += f" {ends_words(ends)}" * bool(ends)
    for job in slots[:1]:
        assert job.start_p50 is not None
        text += f" {job.name or job.job_id} is {expected_start(job.start_p50, job.start_p90, now)}."
    return text
