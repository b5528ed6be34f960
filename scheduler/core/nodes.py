"""The nodes of a core: adding, changing, draining and removing them, and taking over jobs from
another core.

`cluster.Cluster` knows which jobs run on the nodes. This module knows which nodes are lent for
good, which are to be changed once they are idle, and how many GPUs a virtual cluster has without
those.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Protocol, Self

from features.job import Job, Profile
from features.progress import Progress
from scheduler.core.cluster import ClusterSpec, Node, Placement, Run
from scheduler.core.decisions import Action, Reason
from scheduler.core.queue import QueuedJob
from scheduler.core.waiting import Waiting, WaitingHost


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownJob:
    """The state of a job in another core, to be adopted by this one.

    Attributes:
        order: number of the job by arrival.
        queued_before: whether the job has been in its queue.
        placement: the GPUs that the job holds; None while it waits.
        profiling: whether these GPUs are in the profiling partition.
        since: time since when the job holds them, seconds since the epoch.
        partner: id of the job that shares them. That job is adopted first.
        held_s: seconds that the job was held in all; 0: never.
        held_since: time since when the job is held; None: it is not.
        depends_since: time since when the job waits for other jobs to end; None: it does not.
        failed: id of a job that had to succeed and failed; "": none.
        progress: the progress that the job reports, with its total duration.
        unread: whether nobody reads why it was decided as it was.
    """

    job: Job
    order: int
    priority: int = 0
    profile: Profile | None = None
    profiled: bool = False
    queued_before: bool = False
    placement: Placement | None = None
    profiling: bool = False
    since: float | None = None
    partner: str | None = None
    held_s: float = 0.0
    held_since: float | None = None
    depends_since: float | None = None
    failed: str = ""
    progress: Progress | None = None
    unread: bool = False


@dataclass(slots=True, kw_only=True)
class ChangeMemory:
    """A pending change of a node, made once the node is idle: the node's new shape (None: it is
    removed), and whether it is open afterwards."""

    node: int
    to: Node | None
    opens: bool


@dataclass(slots=True, kw_only=True)
class NodesMemory:
    """A plain record of the nodes that are lent to the profiling partition for good, and of the
    changes that wait until nodes are idle."""

    lent: list[int]
    changing: list[ChangeMemory]


class NodesHost(WaitingHost, Protocol):
    """The part of a core that `Nodes` needs."""

    @property
    def waiting(self) -> Waiting: ...
    @property
    def runs_by_vc(self) -> Mapping[str, dict[str, Run]]: ...
    @property
    def jobs(self) -> dict[str, QueuedJob]: ...

    arrivals: int

    def open_queues(self) -> None: ...


class Nodes:
    """Which nodes a core has now, and which it will have after pending changes; part of a core.

    Attributes:
        capacity: maps each virtual cluster to its number of GPUs, without those lent for profiling
            or about to be changed or removed.
        changing: maps a node's number to its pending change: its new shape (None: it is removed),
            and whether it is open afterwards.
        mixes_types: whether the cluster has several types of GPU.
    """

    def __init__(self, core: NodesHost) -> None:
        self._core = core
        cluster = core.cluster
        self.capacity = {vc: pool.gpus for vc, pool in cluster.pools.items()}
        self.changing: dict[int, tuple[Node | None, bool]] = {}
        self._lent = set(cluster.profiling.nodes())  # to the profiling partition, for good
        self.mixes_types = cluster.spec.mixes_types

    def remember(self) -> NodesMemory:
        """Return the lent nodes and the pending changes, as a plain record."""
        changing = [
            ChangeMemory(node=node, to=to, opens=opens)
            for node, (to, opens) in self.changing.items()
        ]
        return NodesMemory(lent=sorted(self._lent), changing=changing)

    def restore(self, memory: NodesMemory) -> None:
        """Restore what `remember` returned. The core's cluster must be restored already."""
        self._lent = set(memory.lent)
        self.changing = {one.node: (one.to, one.opens) for one in memory.changing}
        self._reshaped()

    def set_open(self, node: int, is_open: bool) -> None:
        """Drain a node, or open it again. On a drained node no job starts; running jobs go on.

        Opening a node cancels a pending change or removal of it.
        """
        cluster = self._core.cluster
        if node in self.changing:
            to, _ = self.changing.pop(node)
            if not is_open:
                self.changing[node] = to, False
            self._reshaped(cluster.node_vc[node])
        cluster.set_open(node, is_open)
        self._touch(cluster.node_vc[node])

    def close_alone(self, node: int, gpus: int) -> None:
        """Set which GPUs of a node are closed (a bit mask), so that no job starts on them. Running
        jobs go on. Bits beyond the node's GPUs are ignored."""
        cluster = self._core.cluster
        cluster.close_alone(node, gpus & ((1 << cluster.nodes[node].gpus) - 1))
        self._touch(cluster.node_vc[node])

    def open_wholly(self, node: int) -> None:
        """Open every GPU of a node. What-if questions use this on copies of a core."""
        self.close_alone(node, 0)
        self.set_open(node, True)

    def add(self, node: int, has: Node, *, lent: bool = False) -> None:
        """Add a node. With `lent`, put it into the profiling partition for good."""
        self._core.cluster.add_node(node, has, lent=lent)
        self._core.open_queues()
        if lent:
            self._lent.add(node)
        self._reshaped(has.vc)

    def change(self, node: int, to: Node | None) -> None:
        """Change a node into `to`, perhaps in another virtual cluster, or remove it (None), as soon
        as it is idle.

        From now on no job starts on the node; running jobs go on. A node that was drained before
        stays drained after the change.
        """
        cluster = self._core.cluster
        opens = cluster.pool_of(node).is_open(node)
        if node in self.changing:
            opens = self.changing[node][1]
        cluster.set_open(node, False)
        self.changing[node] = to, opens
        if to is not None:  # jobs may wait there for it
            cluster.add_vc(to.vc)
            self._core.open_queues()
        self._reshaped(cluster.node_vc[node])

    def change_idle(self, now: float) -> None:
        """Carry out the pending changes of nodes on which nothing runs any more."""
        core = self._core
        for node, (to, opens) in list(self.changing.items()):
            if not core.cluster.pool_of(node).is_empty(node):
                continue
            was = core.cluster.node_vc[node]
            core.policy.node_leaves(core.cluster, node)
            closed = core.cluster.pool_of(node).closed_alone.get(node, 0)
            core.cluster.remove_node(node)
            del self.changing[node]
            lent = node in self._lent and to is not None and to.vc == was
            self._lent.discard(node)
            if to is not None:
                self.add(node, to, lent=lent)
                core.cluster.set_open(node, opens)
                self.close_alone(node, closed)
            self._reshaped(was)
            core.record(
                now,
                action=Action.CHANGE_NODE,
                reason=Reason.NODE_IDLE,
                job_id="",
                vc=was,
                nodes=(node,),
            )

    def too_large(self, job: Job) -> bool:
        """Return whether a job asks for more GPUs than its virtual cluster has, or for fewer than
        any job must ask for."""
        return not self._least() <= job.gpus <= self.capacity.get(job.vc, -1)

    def refusal(self, job: Job) -> Reason | None:
        """Return why a job can never start on the cluster as it is, or None when it can."""
        policy, spec = self._core.policy, self._core.cluster.spec
        if self.too_large(job):
            return Reason.INVALID_REQUEST
        if job.gpu_type and not spec.has_type(job.gpu_type):
            return Reason.NO_MATCHING_GPU_TYPE
        return policy.refuses(job, spec) if self.mixes_types else None

    def refusal_once_changed(self, job: Job) -> Reason | None:
        """Return why a job can never start even after all pending changes of nodes. Return None if
        it can start then.
        """
        if self.too_large_once_changed(job):
            return Reason.INVALID_REQUEST
        spec = ClusterSpec.of(self._once_changed().values())
        if job.gpu_type and not spec.has_type(job.gpu_type):
            return Reason.NO_MATCHING_GPU_TYPE
        return self._core.policy.refuses(job, spec) if spec.mixes_types else None

    def too_large_once_changed(self, job: Job) -> bool:
        """Return what `too_large` will return once all pending changes of nodes are made."""
        stay, node_vc = self._once_changed(), self._core.cluster.node_vc
        lent = {n for n in self._lent & stay.keys() if stay[n].vc == node_vc[n]}
        gpus = sum(has.gpus for n, has in stay.items() if has.vc == job.vc and n not in lent)
        return not self._least() <= job.gpus <= gpus

    def _least(self) -> int:
        """Return the fewest GPUs that a job may ask for."""
        return 0 if self._core.policy.capabilities.places_cpus else 1

    def _once_changed(self) -> dict[int, Node]:
        """Return the nodes, by number, as they will be once all pending changes are made."""
        changed = {node: to for node, (to, _) in self.changing.items()}
        nodes = {**self._core.cluster.nodes, **changed}
        return {node: has for node, has in nodes.items() if has is not None}

    def begin_with(
        self, nodes: Mapping[int, Node], lent: Collection[int], vcs: Iterable[str] = ()
    ) -> None:
        """Replace the nodes with which the core was built by `nodes`, by number. Call it before any
        job is adopted.

        Args:
            lent: numbers of the nodes of the profiling partition.
            vcs: virtual clusters that are kept even without a node, because jobs wait there.
        """
        cluster = self._core.cluster
        for node, has in list(cluster.nodes.items()):
            if nodes.get(node) != has or (node in self._lent) is not (node in lent):
                cluster.remove_node(node)
        for node, has in nodes.items():
            if node not in cluster.nodes:
                cluster.add_node(node, has, lent=node in lent)
        for vc in vcs:
            cluster.add_vc(vc)
        self._core.open_queues()
        self._lent = set(lent)
        self._reshaped(*cluster.pools)

    def adopt(self, known: KnownJob, now: float) -> None:
        """Take over a job from another core, with its state. This core's estimator must know the
        job already."""
        core, job, placement = self._core, known.job, known.placement
        queued = core.jobs[job.job_id] = QueuedJob(job, known.order, known.priority)
        core.arrivals = max(core.arrivals, known.order + 1)
        queued.profile, queued.profiled = known.profile, known.profiled
        queued.progress = known.progress
        queued.submit_time += known.held_s
        core.waiting.adopted(job)
        if known.held_since is not None:  # nobody looks at it twice
            core.waiting.keep_held(job.job_id, joined=known.queued_before or known.profiled)
            if not placement:
                queued.held_since = known.held_since
                return
        if known.depends_since is not None:
            joined = known.queued_before or known.profiled
            core.waiting.keep_dependent(job, known.depends_since, known.failed, joined=joined)
            return
        if not placement and not known.queued_before and core.profiling is not None:
            core.profiling.add(queued)
            return
        if known.queued_before:
            core.policy.prepare(queued, now, core.estimator, logged=known.unread)
        if placement:
            self._adopt_run(known, placement, now if known.since is None else known.since)
        else:
            core.waiting.recheck = True
            core.queues[job.vc].add(queued)
            core.touch(job.vc)

    def adopt_waiting(
        self, job: Job, order: int, now: float, *, priority: int = 0, unread: bool = False
    ) -> QueuedJob:
        """Take over a job that waits in its queue in another core, as `adopt` does, and return it.
        It joins its queue here with `line_up`. See `KnownJob` for the arguments."""
        core = self._core
        queued = core.jobs[job.job_id] = QueuedJob(job, order, priority)
        core.arrivals = max(core.arrivals, order + 1)
        core.waiting.adopted(job)
        core.policy.prepare(queued, now, core.estimator, logged=unread)
        return queued

    def line_up(self, jobs: Iterable[QueuedJob]) -> None:
        """Put jobs into their queues that `adopt_waiting` returned, all of a queue at once."""
        core, lines = self._core, dict[str, list[QueuedJob]]()
        for queued in jobs:
            lines.setdefault(queued.job.vc, []).append(queued)
        for vc, line in lines.items():
            core.waiting.recheck = True
            core.queues[vc].extend(line)
            core.touch(vc)

    def _adopt_run(self, known: KnownJob, placement: Placement, start: float) -> None:
        core, job = self._core, known.job
        other = core.cluster.runs.get(known.partner or "")
        if other is not None:
            run = core.cluster.pack(job, other, start)
        else:
            run = core.cluster.start(job, job.vc, placement, start, profiling=known.profiling)
        if not known.profiling:
            core.runs_by_vc[run.vc][job.job_id] = run
            core.policy.started(run, start)

    def within(self, core: NodesHost) -> Self:
        """Return a copy of this object that belongs to `core`; see `Core.restricted_to`."""
        nodes = copy(self)
        nodes._core = core
        return nodes

    def _reshaped(self, *vcs: str) -> None:
        """Count the GPUs of each virtual cluster again, and have the core check which jobs can ever
        start. Called when nodes of `vcs` were added or removed, or are about to be."""
        core = self._core
        cluster = core.cluster
        self.mixes_types = cluster.spec.mixes_types
        self.capacity = dict.fromkeys(cluster.pools, 0)
        for node, has in cluster.nodes.items():
            if node not in self._lent and node not in self.changing:
                self.capacity[has.vc] += has.gpus
        core.policy.cluster_changed(cluster)
        if core.profiling is not None:
            core.profiling.cluster_changed(cluster)
        core.waiting.recheck = True
        for vc in vcs:
            self._touch(vc)

    def _touch(self, vc: str) -> None:
        """Mark a virtual cluster, so that the next `Core.decide` serves it, because its usable GPUs
        have changed. If virtual clusters borrow, mark all of them."""
        self._core.touch(vc)
        if self._core.policy.capabilities.borrows:
            for other in self._core.queues:
                self._core.touch(other)
