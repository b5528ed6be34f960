"""Plans from Slurm's queue: builds a core that decides about it, and finds the first jobs in line,
why each job waits, and when it starts.

This module reads no Slurm and writes nothing. The follower calls it at every poll,
`scheduler.slurm.look` once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice, zip_longest
from typing import Protocol

from features.garbage import uncollected
from features.progress import Progress
from scheduler.core.cluster import Cluster, ClusterSpec
from scheduler.core.core import Core
from scheduler.core.decisions import Reason
from scheduler.core.estimates import Estimator, LiveEstimator
from scheduler.explain.whatif.forecasts import Futures
from scheduler.explain.whatif.memory import Memory
from scheduler.slurm.follow.reasons import reasons
from scheduler.slurm.read.parse import Node, SlurmJob
from scheduler.slurm.read.shape import Shape
from scheduler.slurm.read.site import Asks
from scheduler.slurm.read.snapshot import Asking, Before, ClusterSnapshot, Jobs, build_snapshot
from scheduler.slurm.reason import SlurmReason
from scheduler.slurm.twin.passes import JobFault
from scheduler.slurm.twin.policy import Slurm
from scheduler.slurm.twin.site import Site
from scheduler.slurm.twin.twin import twin_in

LINE = 512  # jobs first in line that futures are made of
MOST_FAULTS = 64  # jobs that one look goes on without


class Cores(Protocol):
    """Makes the cores that decide about a queue.

    Attributes:
        by_slurm: whether queues are sorted by Slurm's priorities.
    """

    @property
    def by_slurm(self) -> bool: ...

    def following(self, cluster: ClusterSpec, estimator: Estimator) -> Core:
        """Return a core with the policy with which Slurm is followed. Raise SlurmError where it
        cannot be built."""

    def own(self, cluster: ClusterSpec, estimator: Estimator) -> Core:
        """Return a core with Pellucid's own policy."""


class TwinAlone:
    """Makes cores with the policy `slurm`, which decides as Slurm does. Pellucid's own policy is
    not loaded."""

    by_slurm = True

    def following(self, cluster: ClusterSpec, estimator: Estimator) -> Core:
        """Return a core with the policy `slurm`, which decides as Slurm does."""
        return Core(Cluster(cluster), Slurm(cluster=cluster), estimator)

    def own(self, cluster: ClusterSpec, estimator: Estimator) -> Core:
        raise NotImplementedError("Pellucid's own policy is not loaded here")


class Planner:
    """Plans the queue of one Slurm, poll after poll.

    Args:
        cores: makes the cores.
        shape: Slurm's nodes, in the order of the core's numbers.
        partitions: partitions to follow; all when empty.

    Attributes:
        nodes, site: nodes and configuration as last read; None: no configuration was read.
        faults: maps the id of each job that could not be planned to the job and the reason.
        progress: total durations that running jobs report, by job id.
    """

    def __init__(self, cores: Cores, shape: Shape, partitions: Sequence[str] = ()) -> None:
        self._cores, self.shape, self._partitions = cores, shape, partitions
        self.nodes: list[Node] = []
        self.site: Site | None = None
        self.faults: dict[str, tuple[SlurmJob, str]] = {}
        self.progress: dict[str, Progress] = {}
        self._stated: dict[str, tuple[float | None, Progress]] = {}  # by whom, since when it runs
        self._seen: tuple[list[Node], int] = ([], 0)  # what the shape was made of
        self._together: set[str] = set()  # lists of partitions that jobs name
        self.begin()

    def begin(self) -> None:
        """Drop all that was learned about durations."""
        self.memory = Memory(LiveEstimator(), asks=True)
        self.asking, self._asks, self._jobs = Asking(self.memory), Asks(), Jobs()

    @property
    def by_slurm(self) -> bool:
        return self._cores.by_slurm

    def progressed(
        self, found: Mapping[str, Progress], jobs: Iterable[SlurmJob], now: float
    ) -> None:
        """Use the progress that running jobs report for their predicted durations. It holds until
        they end or begin again, and is learned from for similar jobs."""
        runs = {job.id: job.start for job in jobs if job.state == "RUNNING"}
        kept = {j: one for j, one in self._stated.items() if j in runs and one[0] == runs[j]}
        for job_id, progress in found.items():
            if job_id in runs and self.memory.of(job_id) is not None:
                self.memory.progressed(job_id, progress, now)
                kept[job_id] = runs[job_id], progress
        self._stated = kept
        self.progress = {job_id: progress for job_id, (_, progress) in kept.items()}

    def reshape(self, jobs: Iterable[SlurmJob]) -> None:
        """Update the shape with nodes that were added, changed or removed. Partitions that a job
        names together become one virtual cluster."""
        jobs = list(jobs)
        self._jobs.forget({job.id for job in jobs})
        self._together |= {job.partition for job in jobs if "," in job.partition}
        self._together |= _of_parts(jobs)
        seen = self.nodes, len(self._together)
        if seen != self._seen:
            self.shape = Shape.followed(
                self.nodes,
                partitions=self._partitions,
                together=sorted(self._together),
                gpu_memory_mib=self.shape.spec.gpu_memory_mib,
            )
            self._seen = seen

    @uncollected()
    def draw(
        self,
        jobs: Iterable[SlurmJob],
        now: float,
        before: Mapping[str, Reason],
        fault: Callable[[str, JobFault], None] = lambda *_: None,
    ) -> ClusterSnapshot:
        """Return a snapshot of the queue, with a core that has decided about it. Raise JobFault
        where more than `MOST_FAULTS` jobs cannot be planned.

        Args:
            before: reasons why jobs waited at the last poll, by job id.
            fault: function that is called with each job that cannot be planned, which is left out.
        """
        jobs = list(jobs)
        as_seen = {job.id: job for job in jobs}
        kept = {j: one for j, one in self.faults.items() if as_seen.get(j) is one[0]}
        while True:
            faults = {job_id: why for job_id, (_, why) in kept.items()}
            try:
                return build_snapshot(
                    core=self._core(),
                    shape=self.shape,
                    jobs=jobs,
                    nodes=self.nodes,
                    now=now,
                    by_slurm=self.by_slurm,
                    site=self.site,
                    before=Before(
                        asks=self._asks,
                        jobs=self._jobs,
                        reasons=before,
                        faults=faults,
                        progress=self.progress,
                    ),
                )
            except JobFault as found:
                job_id = found.job_id
                if job_id in kept or job_id not in as_seen or len(kept) >= MOST_FAULTS:
                    raise
                fault(job_id, found)
                kept[job_id] = as_seen[job_id], f"it cannot be planned: {found}"
            finally:
                self.faults = kept

    def trial(self, jobs: Iterable[SlurmJob], now: float) -> ClusterSnapshot:
        """Return a snapshot of the queue after one simulated pass of Slurm at `now`, in which every
        job that can start has started."""
        site = replace(self.site, backfilled=None) if self.site is not None else None
        before = Before(jobs=self._jobs, progress=self.progress)
        return build_snapshot(
            core=self._core(),
            shape=self.shape,
            jobs=jobs,
            nodes=self.nodes,
            now=now,
            by_slurm=self.by_slurm,
            site=site,
            before=before,
        )

    def own(self, jobs: Iterable[SlurmJob], now: float) -> ClusterSnapshot:
        """Return a snapshot in which Pellucid's own policy has decided about these jobs."""
        core = self._cores.own(self.shape.spec, self.asking)
        before = Before(jobs=self._jobs, progress=self.progress, unread=True)
        return build_snapshot(core, self.shape, jobs, self.nodes, now=now, before=before)

    def _core(self) -> Core:
        core = self._cores.following(self.shape.spec, self.asking)
        if isinstance(self.memory.inner, LiveEstimator) and self.memory.inner.bundle is not None:
            core.policy.use(self.memory.inner.bundle)
        return core

    @staticmethod
    def first(snapshot: ClusterSnapshot) -> list[str]:
        """Return the ids of the first waiting jobs, at most `LINE`, taking one of each partition in
        turn."""
        lines: dict[str, list[str]] = {}
        for job_id in snapshot.order:
            lines.setdefault(snapshot.waiting[job_id].partition, []).append(job_id)
        in_turn = chain.from_iterable(zip_longest(*lines.values()))
        return list(islice((job_id for job_id in in_turn if job_id is not None), LINE))

    def futures(
        self,
        snapshot: ClusterSnapshot,
        first: Sequence[str],
        before: Mapping[str, Reason],
        seed: int = 0,
    ) -> Futures:
        """Return simulated futures of the running jobs and of the jobs `first` in line. If other
        jobs wait too, only nearby ones are simulated.

        Args:
            before: reason of each waiting job at the poll before.
        """
        core, now = snapshot.core, snapshot.now
        if len(first) < len(snapshot.waiting):  # whoever is far behind hardly matters to the first
            core = self.draw(nearby(snapshot, first), now, before).core
        return Futures(core, self.memory, now, seed=seed)

    @uncollected()
    def reasons(
        self, snapshot: ClusterSnapshot, first: Sequence[str], *, own: bool = True
    ) -> dict[str, SlurmReason]:
        """Return why jobs wait, by job id: the jobs in `first`, and those that Slurm does not
        consider. With `own`, each reason also says whether Pellucid's own policy would start the
        job. Return {} where another policy than `slurm` follows the queue."""
        policy = twin_in(snapshot.core.policy)
        if policy is None:
            return {}
        waiting = {job_id: snapshot.waiting[job_id] for job_id in first}
        ours = self.own(nearby(snapshot, first), snapshot.now) if own else None
        aside = {job.id: job for job in snapshot.aside.values() if job.state == "PENDING"}
        return reasons(snapshot, waiting | aside, policy, ours)


def _of_parts(jobs: Iterable[SlurmJob]) -> set[str]:
    """Return the partitions of each heterogeneous job with components in several of them,
    joined by commas: the components start together."""
    of: dict[str, set[str]] = {}
    for job in jobs:
        head, plus, _ = job.id.partition("+")
        if plus:
            of.setdefault(head, set()).update(job.partition.split(","))
    return {",".join(sorted(names)) for names in of.values() if len(names) > 1}


def nearby(snapshot: ClusterSnapshot, first: Iterable[str]) -> list[SlurmJob]:
    """Return the running jobs, the waiting jobs in `first`, and pending jobs that Slurm does not
    consider, on which other jobs may depend."""
    aside = (job for job in snapshot.aside.values() if job.state == "PENDING")
    return [*snapshot.running.values(), *(snapshot.waiting[job_id] for job_id in first), *aside]
