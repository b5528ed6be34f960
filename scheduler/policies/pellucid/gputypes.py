"""Several types of GPU in one cluster: who gets which.

A job is profiled on one type; how fast it runs on the others is believed, not known
(`models.bundle.gputypes`). For every group of like nodes on which it may run, its cost in seconds
of total completion time is its wait and run time there, and what it takes from the others:

    cost = wait + run + waiting jobs * run * (GPUs it holds * typical speed there) / capacity

where run = expected work / speed, a typical speed is the mean over the jobs of the queue and on
the GPUs, and capacity is the sum of typical speeds over all GPUs. With nobody waiting a job takes
the fastest GPUs; the longer the queue, the more it goes where it is fast *compared with others*:
comparative advantage. A group without room now costs the predicted wait for it; where that is
cheapest, the job waits, though slower GPUs are free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from features.job import Job
from models.bundle.gputypes import GpuTypeSpeed
from scheduler.core.cluster import ClusterSpec, NodeGroup, Placement, Pool, Run, same_type
from scheduler.core.core import QueuedJob, Turn
from scheduler.core.decisions import Evidence


class TypeBelief(Protocol):
    """What is believed of a job's speed by GPU type."""

    def speed(self, job: Job, gpu_type: str) -> float:
        """Speed there over that on the type durations are counted on; 0 = does not fit."""
        ...


class PredictedTypes:
    """Speeds by an exported model of GPU types.

    Args:
        model: the model for a job, so that a test can leave the job's family out of it.
        describe: model family and batch size of a job, as far as its name or profile says.
        reference: the type jobs are profiled on and durations are counted on.
    """

    def __init__(
        self,
        model: Callable[[Job], GpuTypeSpeed],
        describe: Callable[[Job], tuple[str, int | None]],
        reference: str,
    ):
        self._model = model
        self._describe = describe
        self._reference = reference

    def speed(self, job: Job, gpu_type: str) -> float:
        family, batch = self._describe(job)
        model = self._model(job)
        return model.predict(family, batch, job.gpus, self._reference, gpu_type).ratio


@dataclass(frozen=True, slots=True)
class Site:
    """A group of like nodes of one virtual cluster: as a bit mask, and how many GPUs it has."""

    group: NodeGroup
    nodes: int
    gpus: int


@dataclass(frozen=True, slots=True)
class Offer:
    """What starting (or waiting for) a group would cost a job. Seconds."""

    site: Site
    placement: Placement | None
    speed: float
    wait_s: float
    cost_s: float


@dataclass(frozen=True, slots=True)
class Choice:
    """Where a job starts now, the speeds and costs behind it, and whether it waits by choice."""

    placement: Placement | None
    evidence: Evidence = ()
    waits: bool = False


class TypedPlacement:
    """Chooses among the groups of nodes of a virtual cluster.

    Args:
        cluster: its nodes, by type.
        belief: speeds by type; None is blind to types: the group with most free GPUs.
        patient: wait for better GPUs where that is predicted to be cheaper.
    """

    def __init__(
        self, cluster: ClusterSpec, belief: TypeBelief | None = None, *, patient: bool = True
    ):
        self.belief = belief
        self.patient = patient and belief is not None
        self._sites: dict[str, list[Site]] = {}
        self._site_of: list[Site] = []
        for vc in cluster.vcs:
            self._sites[vc] = []
            for group in cluster.groups_of(vc):
                first = len(self._site_of)
                mask = ((1 << group.nodes) - 1) << first
                site = Site(group, mask, group.nodes * group.gpus_per_node)
                self._sites[vc].append(site)
                self._site_of += [site] * group.nodes
        self._speeds: dict[tuple[str, int, str], float] = {}
        self._typical: dict[str, float] = {}
        self._taken: dict[Site, int] = {}  # of the turn: GPUs others wait for

    def sites(self, job: Job) -> list[Site]:
        """The groups a job may run on: of the type it asks for, where it fits."""
        wanted = job.gpu_type
        return [
            site
            for site in self._sites[job.vc]
            if site.gpus >= job.gpus
            and (wanted is None or same_type(wanted, site.group.gpu_type))
            and self.speed(job, site.group.gpu_type) > 0
        ]

    def speed(self, job: Job, gpu_type: str) -> float:
        """Believed speed of a job on a type."""
        if self.belief is None:
            return 1.0
        key = job.name, job.gpus, gpu_type
        found = self._speeds.get(key)
        if found is None:
            found = self._speeds[key] = self.belief.speed(job, gpu_type)
        return found

    def speed_of(self, run: Run) -> float:
        """Believed speed of a run where it is."""
        return self.speed(run.job, self.type_of(run))

    def type_of(self, run: Run) -> str:
        """GPU type a run is on; a gang never spans two."""
        return self._site_of[run.nodes[0]].group.gpu_type

    def admits(self, job: Job, run: Run) -> bool:
        """Whether a job may share the GPUs of a run, as far as their type goes."""
        there = self.type_of(run)
        asked = job.gpu_type is None or same_type(job.gpu_type, there)
        return asked and self.speed(job, there) > 0

    def begin(self, turn: Turn) -> None:
        """A turn begins: work out what is typical of those who wait and run here."""
        self._taken.clear()
        if self.belief is None:
            return
        jobs = [*(q.job for q in turn.queue), *(run.job for run in turn.runs())]
        for gpu_type in {site.group.gpu_type for site in self._sites[turn.vc]}:
            speeds = [self.speed(job, gpu_type) for job in jobs]
            self._typical[gpu_type] = sum(speeds) / len(speeds) if speeds else 1.0

    def choose(
        self,
        turn: Turn,
        queued: QueuedJob,
        expected_s: float,
        ends_in: Callable[[Run], float],
        *,
        patient: bool = True,
    ) -> Choice:
        """Where a job of `expected_s` seconds of work starts now, if it does.

        Args:
            ends_in: predicted seconds until a run's GPUs are free.
            patient: it may wait although there is room.
        """
        job, pool = queued.job, turn.pool
        sites = self.sites(job)
        if self.belief is None:
            by_room = sorted(sites, key=lambda site: -_free(pool, site))
            found = next((p for site in by_room if (p := _place(pool, site, job.gpus))), None)
            return Choice(found)
        offers = [self._offer(turn, queued, site, expected_s, ends_in) for site in sites]
        offers.sort(key=lambda offer: offer.cost_s)
        evidence: Evidence = tuple(
            item
            for offer in offers
            for item in (
                (f"speed_on_{offer.site.group.gpu_type}", offer.speed),
                (f"cost_on_{offer.site.group.gpu_type}_s", offer.cost_s),
            )
        )
        for offer in offers:
            if offer.placement is not None:
                return Choice(offer.placement, evidence)
            if patient and self.patient and any(other.placement is not None for other in offers):
                self._taken[offer.site] = self._taken.get(offer.site, 0) + job.gpus
                return Choice(None, evidence, waits=True)
        return Choice(None, evidence)

    def _offer(
        self,
        turn: Turn,
        queued: QueuedJob,
        site: Site,
        expected_s: float,
        ends_in: Callable[[Run], float],
    ) -> Offer:
        job = queued.job
        speed = self.speed(job, site.group.gpu_type)
        placement = _place(turn.pool, site, job.gpus)
        wait_s = 0.0
        if placement is None:
            wait_s = self._wait_s(turn, site, job.gpus, ends_in) if self.patient else 0.0
        run_s = expected_s / speed
        capacity = sum(s.gpus * self._typical[s.group.gpu_type] for s in self._sites[turn.vc])
        share = job.gpus * self._typical[site.group.gpu_type] / capacity
        cost = wait_s + run_s * (1.0 + len(turn.queue) * share)
        return Offer(site, placement, speed, wait_s, cost)

    def _wait_s(self, turn: Turn, site: Site, gpus: int, ends_in: Callable[[Run], float]) -> float:
        """Predicted seconds until a group has room, for those who wait for it already too."""
        need = gpus + self._taken.get(site, 0) - _free(turn.pool, site)
        ends = sorted(
            (ends_in(run), run.job.gpus)
            for run in turn.runs()
            if self._site_of[run.nodes[0]] is site
        )
        for seconds, freed in ends:
            need -= freed
            if need <= 0:
                return seconds
        return ends[-1][0] if ends else 0.0

    def view(self, pool: Pool, queued: QueuedJob) -> PoolView:
        """The nodes on which GPUs are kept for a job: where it is fastest, of those it fits on."""
        job = queued.job
        best = max(self.sites(job), key=lambda s: (self.speed(job, s.group.gpu_type), s.gpus))
        return PoolView(pool, best)


class PoolView:
    """One group's nodes of a pool, for whoever thinks that all nodes of a pool are alike."""

    def __init__(self, pool: Pool, site: Site):
        self._pool = pool
        self._site = site
        self.per_node = site.group.gpus_per_node

    def nodes(self) -> Iterable[int]:
        return (node for node in self._pool.nodes() if node in self)

    def __contains__(self, node: int) -> bool:
        return bool(self._site.nodes >> node & 1) and node in self._pool

    def open_on(self, node: int) -> int:
        return self._pool.open_on(node)

    def held_on(self, node: int) -> int:
        return self._pool.held_on(node) & ((1 << self.per_node) - 1)

    def is_idle(self, node: int) -> bool:
        return self._pool.is_idle(node)


def _place(pool: Pool, site: Site, gpus: int) -> Placement | None:
    return pool.place(gpus, among=site.nodes, per_node=site.group.gpus_per_node)


def _free(pool: Pool, site: Site) -> int:
    return sum(pool.open_on(node).bit_count() for node in pool.nodes() if site.nodes >> node & 1)
