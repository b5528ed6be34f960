"""Builds a core from Slurm's queue at one moment; the core may decide about it without any
effect."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from zlib import crc32

from features.job import Job
from features.progress import Progress
from scheduler.core.cluster import Cluster, Placement
from scheduler.core.core import Core
from scheduler.core.decisions import Decision, Reason
from scheduler.core.estimates import Estimate, Estimator
from scheduler.core.nodes import KnownJob
from scheduler.core.queue import QueuedJob
from scheduler.slurm.read.job_states import OVER
from scheduler.slurm.read.parse import Node, SlurmJob
from scheduler.slurm.read.shape import Shape
from scheduler.slurm.read.site import Asks, dependencies
from scheduler.slurm.twin.passes import JobFault, blaming
from scheduler.slurm.twin.policy import gpu_mask
from scheduler.slurm.twin.site import Site
from scheduler.slurm.twin.twin import twin_in
from scheduler.slurm.twin.unmodelled import unforeseen

FEW = 64  # jobs that are over, kept until there are more
HOLDING = frozenset(("RUNNING", "SUSPENDED", "STOPPED", "COMPLETING", "CONFIGURING"))


class Asking(Estimator):
    """An estimator that asks another one, but does not pass on events, since decisions in a
    snapshot of the queue are not real.

    A known job that has not changed is estimated again only in one of `every` snapshots, because
    estimating a long queue takes longer than deciding about it.
    """

    def __init__(self, inner: Estimator, *, every: int = 16):
        self.inner, self.every = inner, every
        self.name = inner.name
        self._turn = 0
        self._known: dict[str, tuple[Job, Estimate]] = {}
        self._before: dict[str, tuple[Job, Estimate]] = {}

    def turn(self) -> None:
        """Begin another snapshot. At the next call, estimates of jobs that were not in this
        snapshot are dropped."""
        self._turn = (self._turn + 1) % self.every
        self._before, self._known = self._known, {}

    def forget(self) -> None:
        """Drop the kept estimates, because the model was replaced. Each job is estimated again at
        its next `enqueued`."""
        self._known, self._before = {}, {}

    def enqueued(self, job: Job, now: float) -> Estimate:
        known = self._known.get(job.job_id)
        if known is None and crc32(job.job_id.encode()) % self.every != self._turn:
            known = self._before.get(job.job_id)
        if known is None or (known[0] is not job and known[0] != job):
            known = job, self.inner.enqueued(job, now)
        self._known[job.job_id] = known
        return known[1]


def job_of(job: SlurmJob, vc: str, *, typed: bool = True) -> Job:
    """Return a job of Slurm as the core's kind of job, in the virtual cluster `vc`. With `typed`,
    it asks for its GPU type."""
    return Job(
        job_id=job.id,
        submit_time=job.submit,
        gpus=job.gpus,
        user=job.user,
        vc=vc,
        name=job.name,
        cpus=float(job.cpus),
        memory_mib=job.memory_mib,
        gpu_type=(job.gpu_type or None) if typed else None,
        time_limit_s=job.time_limit_s,
        profile=False,
        work=job.work,
    )


class Jobs:
    """Makes the core's jobs of Slurm's. Of a job that has not changed since the last poll (the same
    object), the earlier one is used."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, bool], tuple[SlurmJob, Job]] = {}

    def of(self, job: SlurmJob, vc: str, *, typed: bool) -> Job:
        """Return a job of Slurm as `job_of` does."""
        known = self._kept.get((job.id, typed))
        if known is None or known[0] is not job or known[1].vc != vc:
            known = self._kept[job.id, typed] = job, job_of(job, vc, typed=typed)
        return known[1]

    def forget(self, present: Collection[str]) -> None:
        """Drop the jobs that are not in `present`, once they are as many."""
        if len(self._kept) > 4 * len(present) + FEW:
            self._kept = {of: one for of, one in self._kept.items() if of[0] in present}


@dataclass(slots=True)
class ClusterSnapshot:
    """Slurm's queue at one moment, with a core that has decided about it.

    Attributes:
        core: the core after its decisions.
        order: ids of waiting jobs, in the order in which the core would start them.
        left_out: maps the id of each job that is not in the core to the reason.
        aside: those jobs, as Slurm shows them.
        changed: time when a job ended last, seconds since the epoch.
    """

    core: Core
    shape: Shape
    now: float
    waiting: dict[str, SlurmJob] = field(default_factory=dict)
    running: dict[str, SlurmJob] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    aside: dict[str, SlurmJob] = field(default_factory=dict)
    decisions: list[Decision] = field(default_factory=list)
    order: list[str] = field(default_factory=list)
    changed: float = -inf


@dataclass(frozen=True, slots=True)
class Before:
    """What is kept from one poll of Slurm to the next.

    Attributes:
        asks: computes what jobs ask for, with a cache.
        jobs: makes the core's jobs of them, with a cache.
        reasons: why jobs waited at the last poll; no decision is recorded for a job that waits for
            the same reason again.
        faults: maps the id of each job to leave out to the reason.
        progress: total durations that running jobs report, by job id.
        unread: whether nobody reads on what the decisions rest, but only what they are.
    """

    asks: Asks = field(default_factory=Asks)
    jobs: Jobs = field(default_factory=Jobs)
    reasons: Mapping[str, Reason] = field(default_factory=dict)
    faults: Mapping[str, str] = field(default_factory=dict)
    progress: Mapping[str, Progress] = field(default_factory=dict)
    unread: bool = False


def build_snapshot(
    core: Core,
    shape: Shape,
    jobs: Iterable[SlurmJob],
    nodes: Sequence[Node],
    now: float,
    *,
    by_slurm: bool = False,
    site: Site | None = None,
    before: Before | None = None,
) -> ClusterSnapshot:
    """Build a new core from the queue, and let it decide. Return the snapshot. Raise JobFault for a
    job that cannot be planned; without that job, the others may be.

    Args:
        by_slurm: sort by Slurm's own priorities, to forecast what Slurm does.
        site: the site by which the policy `slurm` decides; None for other policies.
        before: what was kept from the last poll.
    """
    snapshot, before = ClusterSnapshot(core, shape, now), before or Before()
    core.explains, faults = not before.unread, before.faults
    twin = twin_in(core.policy)
    by_twin = site is not None and twin is not None
    jobs = list(jobs)
    snapshot.aside = {job.id: job for job in jobs if job.id in faults}
    snapshot.left_out |= {job_id: faults[job_id] for job_id in snapshot.aside}
    ends = (job.end for job in jobs if job.state in OVER and job.end is not None)
    snapshot.changed = max(ends, default=-inf)
    jobs = [job for job in jobs if job.id not in faults]
    if site is not None and twin is not None:
        asks = before.asks.of(jobs, site)
        twin.see(site, shape.names, asks, now=now, shown=before.asks.shown)
    asked = [job for job in jobs if shape.vc_of(job.partition)]
    asked.sort(key=lambda job: (job.submit, job.id))
    holding = list(enumerate(job for job in asked if job.state in HOLDING))
    # those last of which Slurm does not say which GPUs they have: they get what is left
    for order, job in sorted(holding, key=lambda one: not one[1].held_gpus):
        blaming(job.id, _run, snapshot, job, order, before)
    by_slurm = by_slurm and site is None
    snapshot.waiting = _line_up(snapshot, asked, before, by_slurm=by_slurm, by_twin=by_twin)
    snapshot.aside |= {job.id: job for job in asked if job.id in snapshot.left_out}
    for node in nodes:
        number = shape.node(node.name)
        if number is not None and not (node.sound if by_twin else node.open):
            core.nodes.set_open(number, False)
    snapshot.decisions = core.decide(now)
    started = [d.job_id for d in snapshot.decisions if d.job_id in core.cluster.runs]
    left = [queued.job.job_id for queue in core.queues.values() for queued in queue]
    if twin is not None:
        soon = twin.soon
        left.sort(key=lambda job_id: job_id not in soon)
    snapshot.order = [j for j in started if j in snapshot.waiting] + left
    return snapshot


def _line_up(
    snapshot: ClusterSnapshot,
    asked: Sequence[SlurmJob],
    before: Before,
    *,
    by_slurm: bool,
    by_twin: bool,
) -> dict[str, SlurmJob]:
    """Put the jobs into the core's queues that may start, and return them by id. Those that may not
    are left out, with the reason."""
    core, shape, now = snapshot.core, snapshot.shape, snapshot.now
    # where CPUs are placed, types are in what it asks for: a node may have several
    whole = core.policy.capabilities.places_cpus
    found: dict[str, SlurmJob] = {}
    line: list[QueuedJob] = []
    for order, job in enumerate((j for j in asked if j.state == "PENDING"), len(asked)):
        why = _not_eligible(job, now, by_twin)
        if why or (not whole and (why := _not_ours(job, shape))):
            snapshot.left_out[job.id] = why
            continue
        try:
            queued = core.nodes.adopt_waiting(
                before.jobs.of(job, shape.vc_of(job.partition), typed=not whole),
                order,
                now,
                priority=job.priority if by_slurm else 0,
                unread=before.unread,
            )
        except Exception as error:
            raise JobFault(job.id, error) from error
        queued.waits_for(before.reasons.get(job.id), None)
        line.append(queued)
        found[job.id] = job
    core.nodes.line_up(line)
    return found


def without_start(snapshot: ClusterSnapshot, job_ids: Iterable[str]) -> dict[str, str]:
    """Return the waiting jobs for which no start is forecast, because they use something that the
    policy `slurm` does not model. Maps each job id to the reason. Return {} for other policies."""
    twin = twin_in(snapshot.core.policy)
    if twin is None:
        return {}
    waiting, running, others = (
        [ask for job_id in some if (ask := twin.asked(job_id)) is not None]
        for some in (job_ids, snapshot.running, snapshot.waiting)
    )
    return unforeseen(twin.site, waiting, running, others)


def _not_eligible(job: SlurmJob, now: float, by_twin: bool) -> str:
    """Return why a job may not start yet, by its own state in Slurm, as text; "" where it may.

    Args:
        by_twin: whether the policy handles begin times, reservations and most dependencies itself.
    """
    if job.fault:
        return f"of this job cannot be read: {job.fault}"
    if job.priority == 0:
        return f"held in Slurm ({job.reason})"
    if job.dependency and (not by_twin or dependencies(job.dependency) is None):
        return "waits for another job in Slurm (Dependency)"
    if job.eligible is not None and job.eligible > now and not by_twin:
        return "its begin time has not come (BeginTime)"
    return "asks for a reservation" if job.reservation and not by_twin else ""


def _not_ours(job: SlurmJob, shape: Shape) -> str:
    """Return as text why a policy that places only GPUs cannot handle a job. Return "" if
    it can.
    """
    if not job.gpus:
        return "asks for no GPU; this policy places GPUs only"
    if job.gpu_type and not shape.spec.has_type(job.gpu_type):
        return f"asks for GPUs of type {job.gpu_type}, of which no node has only such"
    there = shape.gpus_in(shape.vc_of(job.partition))
    return f"asks for {job.gpus} GPUs; its nodes have {there}" if job.gpus > there else ""


def _run(snapshot: ClusterSnapshot, job: SlurmJob, order: int, before: Before) -> None:
    """Put a running job on its GPUs in the core: alone, or beside the one job that has the same
    GPUs. A job whose GPUs are unclear is left out, with the reason."""
    whole = snapshot.core.policy.capabilities.places_cpus
    if not (job.gpus or whole):
        snapshot.left_out[job.id] = "has no GPU"
        return
    cluster, shape = snapshot.core.cluster, snapshot.shape
    where = _placement(job, shape, cluster)
    if where is not None and not whole:  # GPUs alone count: of its other nodes it has none
        where = [(number, mask) for number, mask in where if mask]
    if where is None and whole:
        where = _somewhere(job, snapshot)
    if where is None:
        snapshot.left_out[job.id] = "Slurm does not say on which GPUs it runs"
        return
    partner = None
    if any(cluster.pool_of(node).free_on(node) & mask != mask for node, mask in where):
        nodes, gpus = tuple(n for n, _ in where), tuple(m for _, m in where)
        beside = [r for r in cluster.runs.values() if (r.nodes, r.gpus) == (nodes, gpus)]
        if len(beside) != 1 or beside[0].partner is not None:
            snapshot.left_out[job.id] = "shares some of its GPUs only"
            return
        partner = beside[0].job.job_id
    asked = job_of(job, shape.vc_of(job.partition))
    gpus_held = sum(mask.bit_count() for _, mask in where)
    if gpus_held != asked.gpus and whole:  # more where it has whole nodes
        asked = replace(asked, gpus=gpus_held)
    if gpus_held != asked.gpus:  # a gang that took the same slots on every node
        snapshot.left_out[job.id] = f"asked for {asked.gpus} GPUs and holds {gpus_held}"
        return
    known = KnownJob(
        job=asked,
        order=order,
        queued_before=True,
        placement=where,
        since=job.start or snapshot.now,
        partner=partner,
        progress=before.progress.get(job.id),
        unread=before.unread,
    )
    snapshot.core.nodes.adopt(known, snapshot.now)
    snapshot.running[job.id] = job


def _somewhere(job: SlurmJob, snapshot: ClusterSnapshot) -> Placement | None:
    """Return a placement on free GPUs of a running job's nodes, with the job's number of GPUs of
    each type. It is used where Slurm does not show their indices. Return None if the policy does
    not imitate Slurm, or a node is unknown."""
    core, shape = snapshot.core, snapshot.shape
    found: Placement = []
    if (twin := twin_in(core.policy)) is None:
        return None
    for share in twin.ask(job_of(job, shape.vc_of(job.partition))).shares:
        number = shape.node(share.node)
        if number is None:
            return None
        free = core.cluster.pool_of(number).free_on(number)
        has = twin.site.nodes[share.node].gpus
        found.append((number, gpu_mask(has, free, dict(share.gpus))))
    return found or None


def _placement(job: SlurmJob, shape: Shape, cluster: Cluster) -> Placement | None:
    numbers = [shape.node(name) for name in job.nodes]
    if not job.held_gpus or not numbers or None in numbers:
        return None
    masks = [sum(1 << gpu for gpu in gpus) for gpus in job.held_gpus]
    pairs = zip(numbers, masks, strict=True)
    found = [(number, mask) for number, mask in pairs if number is not None]
    nodes = cluster.nodes
    fits = all(mask.bit_length() <= nodes[number].gpus for number, mask in found)
    return found if fits else None
