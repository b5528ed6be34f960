"""The front page: the cluster at this moment, node by GPU, which jobs run, which wait and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from scheduler.core.decisions import ANOTHER
from scheduler.core.plural import count
from scheduler.explain.explanation import StartForecastRow
from scheduler.explain.stories import counting, sentence_now
from scheduler.explain.words import duration
from scheduler.service.log.record import ELIGIBLE
from scheduler.service.log.store.rows import JobRow, Line, Node, QueueEntry
from scheduler.service.log.store.short import HOLDING, WAITING
from scheduler.service.pages.groups import GROUPS, in_order
from scheduler.service.pages.queries import Group, PageQueries
from scheduler.service.pages.timeline import Timeline, colour, timeline

ROWS = 8  # of a queue, before "all of it"
LOOKED = 100  # places in line among which a viewer's own jobs are found
MANY = 30  # jobs of the viewer's that are not over; more are also shown as groups
NODES = 48  # of a virtual cluster, before they are folded away
Tile = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Block:
    """A job on neighbouring GPUs of a node, as a block of the map.

    Attributes:
        first, width: columns of the block (one for each GPU), from 1.
        lane: "" for a job alone; "upper" and "lower" when two jobs share.
        job_id: "" when the viewer may not see the job.
        css: style classes: the colour, and what is special about the job.
        tip: the same in words.
    """

    first: int
    width: int
    lane: str
    job_id: str
    label: str
    css: str
    tip: str


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node of the map, with its jobs as blocks."""

    node: Node
    blocks: list[Block]

    @property
    def words(self) -> str:
        lent = "for profiling: " * self.node.profiling
        silent = self.node.silent
        if not self.blocks and not silent:
            return f"{lent}all free"
        closed = [f"{count(len(silent), 'GPU')} closed"] if silent else []
        return lent + "; ".join([*(block.tip for block in self.blocks), *closed])


@dataclass(frozen=True, slots=True)
class VcMap:
    """The map of a virtual cluster.

    `gpus`, `free` and `shared` are numbers of GPUs, without nodes lent for profiling. `free` leaves
    out GPUs on which nothing may start. `shown` and `folded`: nodes shown at once, and nodes that
    unfold on request.
    """

    name: str
    gpus: int
    free: int
    shared: int
    shown: list[NodeRow]
    folded: list[NodeRow]


@dataclass(frozen=True, slots=True)
class Waiting:
    """A row of the queue: a job that the viewer may see, or a number (`others`) of neighbouring
    jobs that they may not see. `position`: place of the (first) job; None: in no queue yet.
    """

    vc: str
    position: int | None
    job: JobRow | None
    decision: Line | None = None
    forecast: StartForecastRow | None = None
    others: int = 0


@dataclass(frozen=True, slots=True)
class Queue:
    """Some rows of a virtual cluster's queue.

    Attributes:
        waiting: number of jobs that wait in the virtual cluster, held ones included.
        next: the cursor of the next rows, or None.
        more: whether there are more than `rows`.
    """

    vc: str
    waiting: int
    rows: list[Waiting]
    next: str | None
    more: bool

    @property
    def mine(self) -> bool:
        """Return whether any of the rows is a job that the viewer may see."""
        return any(row.job is not None for row in self.rows)


@dataclass(frozen=True, slots=True)
class Board:
    """The content of the front page."""

    now: float
    tiles: list[Tile]
    map: list[VcMap]
    queues: list[Queue]
    running: list[JobRow]
    only: str  # the one virtual cluster it is about; "" = all
    not_modelled: list[str]  # what the policy slurm leaves out
    stopped_at: float | None  # nobody decides since then; 0 = nobody ever did
    timeline: Timeline | None  # of the one virtual cluster
    groups: list[Group]  # where there are too many jobs to be shown one by one,
    ids: dict[int, str]  # and the first of the largest, by the event that submitted each


def board(view: PageQueries, only: str = "", after: str = "") -> Board:
    """Return the content of the front page. Raise BadCursor when `after` is no cursor.

    Args:
        only: the virtual cluster to show; "" or an unknown one: all.
        after: cursor of the queue's rows before; "": the first rows.
    """
    now = view.now()
    nodes = view.cluster()
    placed = view.placed()
    phases = view.phases()
    if only not in {node.vc for node in nodes}:
        only, after = "", ""
    waiting = dict.fromkeys(dict.fromkeys(node.vc for node in nodes), 0)
    for (vc, phase), (n, _) in phases.items():
        if phase in WAITING:
            waiting[vc] = waiting.get(vc, 0) + n
    wanted = [only] if only else [vc for vc, n in waiting.items() if n]
    queues = _queues(view, vcs=wanted, waiting=waiting, rows=LOOKED if only else ROWS, after=after)
    shown = [row.job for queue in queues for row in queue.rows if row.job]
    groups = _groups(view, only)
    return Board(
        now=now,
        tiles=_tiles(
            now,
            [node for node in nodes if not only or node.vc == only],
            {key: found for key, found in phases.items() if not only or key[0] == only},
        ),
        map=[m for m in cluster_map(nodes, placed, view.viewer.name) if not only or m.name == only],
        queues=queues,
        running=[job for job in placed if not only or job.vc == only],
        only=only,
        not_modelled=view.not_modelled(),
        stopped_at=view.undecided_since(),
        timeline=timeline(view, only, now, shown) if only else None,
        groups=groups,
        ids=view.submitted_by([group.first for group in groups[:GROUPS]]),
    )


def _groups(view: PageQueries, only: str) -> list[Group]:
    """Return the jobs that the viewer may see and that have not ended, in groups of similar jobs,
    in order of display. Return [] if these are few enough to list one by one.
    """
    groups = view.groups(**({"vc": only} if only else {}))
    return in_order(groups) if sum(group.jobs for group in groups) > MANY else []


def _tiles(
    now: float, nodes: Sequence[Node], phases: Mapping[tuple[str, str], tuple[int, float | None]]
) -> list[Tile]:
    gpus = [gpu for node in nodes for gpu in node.gpus]
    busy = sum(bool(gpu.jobs) for gpu in gpus)
    shared = sum(len(gpu.jobs) > 1 for gpu in gpus)
    drained = sum(not node.open for node in nodes)
    silent = sum(len(node.silent) for node in nodes)
    in_use = f"{100 * busy // max(len(gpus), 1)} %"
    in_use += f", {silent} closed" if silent else ""
    total = {
        name: sum(n for (_, phase), (n, _) in phases.items() if phase in group)
        for name, group in (
            ("holding", HOLDING),
            ("waiting", WAITING),
            ("profiling", ("profiling",)),
        )
    }
    oldest = [at for (_, phase), (_, at) in phases.items() if phase in ELIGIBLE and at is not None]
    wait = duration(max(0.0, now - min(oldest))) if oldest else "no job waits"
    profiled = f"{total['profiling']} being profiled" if total["profiling"] else ""
    return [
        (f"{busy} of {len(gpus)}", "GPUs in use", in_use),
        (f"{shared}", "GPUs shared by two", ""),
        (f"{total['holding']}", "jobs on GPUs", profiled),
        (f"{total['waiting']}", "jobs waiting", ""),
        (wait, "longest wait now", ""),
        (f"{len(nodes)}", "nodes", f"{drained} drained" if drained else ""),
    ]


# --- the map -------------------------------------------------------------------------------------


def cluster_map(nodes: Sequence[Node], placed: Sequence[JobRow], me: str) -> list[VcMap]:
    """Return the map of each virtual cluster, in the order of their names. `placed`: the jobs on
    GPUs that the viewer may see; `me`: the viewer's name.
    """
    known = {job.job_id: job for job in placed}
    maps = []
    for vc, members in groupby(sorted(nodes, key=lambda n: (n.vc, n.node)), lambda n: n.vc):
        own = list(members)
        rows = [NodeRow(node, _blocks(node, known, me)) for node in own]
        gpus = [gpu for node in own if not node.profiling for gpu in node.gpus]
        free = sum(len(node.free) for node in own if not node.profiling)
        shared = sum(len(gpu.jobs) > 1 for gpu in gpus)
        maps.append(
            VcMap(
                name=vc,
                gpus=len(gpus),
                free=free,
                shared=shared,
                shown=rows[:NODES],
                folded=rows[NODES:],
            )
        )
    return maps


def _blocks(node: Node, known: Mapping[str, JobRow], me: str) -> list[Block]:
    blocks = []
    for jobs, run in groupby(node.gpus, lambda gpu: tuple(gpu.jobs)):
        gpus = [gpu.index for gpu in run]
        for lane, label in enumerate(jobs[:2]):
            partner = jobs[1 - lane] if len(jobs) > 1 else ""
            blocks.append(_block(gpus, label, partner, lane, job=known.get(label), me=me))
    return blocks


def _block(
    gpus: Sequence[int], label: str, partner: str, lane: int, job: JobRow | None, me: str
) -> Block:
    where = f"GPU {gpus[0]}" if len(gpus) == 1 else f"GPUs {gpus[0]}-{gpus[-1]}"
    hidden = label == ANOTHER
    who = label if hidden else f"job {label}"
    if job is not None and job.name:
        who += f" ({job.name})"
    shares = partner and f", shared with {partner if partner == ANOTHER else f'job {partner}'}"
    looking = ", being profiled" if job is not None and job.phase == "profiling" else ""
    css = "other" if hidden else colour(label)
    if looking:
        css += " looking"
    if job is not None and job.owner == me:
        css += " mine"
    return Block(
        first=gpus[0] + 1,
        width=len(gpus),
        lane=("upper", "lower")[lane] if partner else "",
        job_id="" if hidden else label,
        label="" if hidden else (job and job.name) or label,
        css=css,
        tip=f"{where}: {who}{shares}{looking}",
    )


# --- the queues ----------------------------------------------------------------------------------


def _queues(
    view: PageQueries, vcs: Sequence[str], waiting: Mapping[str, int], rows: int, after: str
) -> list[Queue]:
    looked = rows if view.viewer.sees_all else LOOKED
    pages = {vc: view.queue(vc, limit=looked, after=after or None) for vc in vcs}
    early = [] if after else view.unqueued()
    runs = {vc: _runs(page.items) for vc, page in pages.items()}
    lines = {vc: found if rows == LOOKED else _first(found, rows) for vc, found in runs.items()}
    found = [e.job for run in lines.values() for part in run for e in part if e.job] + early
    ids = [job.job_id for job in found]
    latest, forecasts = view.latest_decisions(ids), view.forecasts(ids)

    counts = counting(view.nodes_now)

    def row(vc: str, position: int | None, job: JobRow) -> Waiting:
        line = latest.get(job.job_id)
        if line is not None:
            line = replace(line, text=sentence_now(counts, job, line, position))
        return Waiting(
            vc=vc, position=position, job=job, decision=line, forecast=forecasts.get(job.job_id)
        )

    queues = []
    for vc, page in pages.items():
        shown = [row(vc, None, job) for job in early if job.vc == vc][:rows]
        for entries in lines[vc]:
            if entries[0].job:
                shown += [row(vc, e.position, e.job) for e in entries if e.job]
            else:
                shown.append(Waiting(vc, entries[0].position, None, others=len(entries)))
        more = page.next is not None or sum(map(len, lines[vc])) < len(page.items)
        queues.append(Queue(vc=vc, waiting=waiting[vc], rows=shown, next=page.next, more=more))
    return queues


def _runs(entries: Sequence[QueueEntry]) -> list[list[QueueEntry]]:
    """Return a queue cut into runs of neighbouring places: jobs that the viewer may see, then jobs
    that they may not see, and so on.
    """
    return [list(run) for _, run in groupby(entries, lambda e: e.job is not None)]


def _first(runs: Sequence[list[QueueEntry]], rows: int) -> list[list[QueueEntry]]:
    """Return the first runs (neighbouring places of one kind, see `_runs`) of a queue that fill
    `rows` rows. Each job that the viewer may see takes one row, and each run of other jobs takes
    one.
    """
    found = list[list[QueueEntry]]()
    for run in runs:
        own = run[0].job is not None
        if rows > 0:
            found.append(run[:rows] if own else run)
        rows -= len(run) if own else 1
    return found


def others(n: int) -> str:
    """Return in words a number of jobs that belong to other users, as in "3 jobs of other users".
    `n`: the number.
    """
    return count(n, "job") + (" of another user" if n == 1 else " of other users")
