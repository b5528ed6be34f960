"""The choice of a GPU type for each job, in a cluster with several types.

A job is profiled on one type; its speed on other types is predicted (`models.bundle.gputypes`). For
every group of like nodes on which the job may run, a cost in seconds of total completion time is
computed: the job's wait and run time there, and the delay of other jobs:

    cost = wait + run + waiting jobs * run * (GPUs it holds * typical speed there) / capacity

where run = expected work / speed, a typical speed is the mean over the jobs of the queue and on the
GPUs, and capacity is the sum of typical speeds over all GPUs. If no other job waits, a job takes
the fastest GPUs. The longer the queue, the more a job goes where it is fast *compared with others*:
comparative advantage. For a group without room, the predicted wait for room is part of the cost; if
such a group is the cheapest, the job waits although slower GPUs are free.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from features.job import Job
from models.bundle import Bundle
from models.bundle.gputypes import GpuTypeSpeed
from scheduler.core.cluster import ClusterSpec, Node, NodeGroup, Placement, Pool, Run, same_type
from scheduler.core.decisions import Evidence
from scheduler.core.policy import TypeSpeeds
from scheduler.core.queue import QueuedJob
from scheduler.core.settings import InvalidSettings
from scheduler.core.turn import Turn
from scheduler.policies.pellucid.settings import GpuTypes

DEFAULTS = GpuTypes()


class PredictedTypes:
    """Predicts speeds by GPU type with an exported model.

    Args:
        model: function that returns the model for a job, so that a test can leave the job's family
            out of it.
        describe: function that returns the model family and batch size of a job, as far as its name
            or profile shows them.
        reference: the GPU type on which jobs are profiled and durations are measured.
        otherwise: speeds of types that the model does not know; types without an entry have speed
            1.
    """

    def __init__(
        self,
        model: Callable[[Job], GpuTypeSpeed],
        describe: Callable[[Job], tuple[str, int | None]],
        reference: str,
        otherwise: Mapping[str, float] = MappingProxyType({}),
    ):
        self._model = model
        self._describe = describe
        self._reference = reference
        self._otherwise = otherwise

    def speed(self, job: Job, gpu_type: str) -> float:
        family, batch = self._describe(job)
        model = self._model(job)
        if gpu_type not in model.types:
            return self._otherwise.get(gpu_type, 1.0)
        return model.predict(family, batch, job.gpus, own=self._reference, other=gpu_type).ratio


def described_by_name(model: GpuTypeSpeed) -> Callable[[Job], tuple[str, int | None]]:
    """Return a function that reads the model family and batch size from a job's name ("resnet-50
    bs64").

    It returns the longest family that the name contains, where only letters and digits are
    compared, or "" without any.
    """
    families = {_bare(family): family for family in model.families}
    longest_first = sorted(families, key=lambda bare: (-len(bare), bare))

    def describe(job: Job) -> tuple[str, int | None]:
        name = _bare(job.name)
        family = next((families[bare] for bare in longest_first if bare and bare in name), "")
        batch = _BATCH.search(job.name)
        return family, max(1, int(batch[1])) if batch else None

    return describe


_BATCH = re.compile(r"(?:bs|batch(?:[ _-]?size)?)[ _=-]?(\d{1,7})", re.IGNORECASE)


def _bare(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.casefold())


class TableSpeeds:
    """Gives speeds by GPU type from a table, the same for every job."""

    def __init__(self, speeds: Mapping[str, float]):
        self._speeds = speeds

    def speed(self, job: Job, gpu_type: str) -> float:
        return self._speeds[gpu_type]


@dataclass(frozen=True, slots=True)
class TypedNodes:
    """A group of equal nodes of one virtual cluster: its nodes as a bit mask, and the number of
    their GPUs."""

    group: NodeGroup
    nodes: int
    gpus: int


@dataclass(frozen=True, slots=True)
class Offer:
    """The costs, in seconds, of starting a job on a group of nodes now or, without a placement, of
    waiting for the group."""

    typed: TypedNodes
    placement: Placement | None
    speed: float
    wait_s: float
    cost_s: float


@dataclass(frozen=True, slots=True)
class Choice:
    """The result of `TypedPlacement.choose`: where a job starts now, the speeds and costs behind
    that, and whether the job waits although there is room."""

    placement: Placement | None
    evidence: Evidence = ()
    waits: bool = False


class TypedPlacement:
    """Chooses a group of nodes of a virtual cluster for each job.

    Args:
        cluster: the shape of the cluster, with its node groups.
        belief: predicts speeds by type; None: the group with most free GPUs is chosen.
        settings: speeds that apply without a model, and whether a job waits for better GPUs where
            that is predicted to be cheaper.
    """

    def __init__(
        self,
        cluster: ClusterSpec,
        belief: TypeSpeeds | None = None,
        settings: GpuTypes = DEFAULTS,
    ):
        self._settings = settings
        self.belief = belief
        self._typed_nodes: dict[str, list[TypedNodes]] = {}
        self._typed_nodes_of: dict[int, TypedNodes] = {}
        self.use_nodes(cluster.vcs, dict(enumerate(cluster.nodes())))
        self._speeds: dict[tuple[str, int, str], float] = {}
        self._typical: dict[str, float] = {}
        self._taken: dict[TypedNodes, int] = {}  # of the turn: GPUs others wait for

    @property
    def patient(self) -> bool:
        """Whether a job may wait for better GPUs. Without predicted speeds it is not known which
        are better."""
        return self._settings.wait_for_faster and self.belief is not None

    def use(self, bundle: Bundle) -> None:
        """Predict speeds with a bundle's model of GPU types from now on, if the model knows the
        type on which durations are measured."""
        counted_on = self._settings.counted_on
        if counted_on is None or "gpu_types" not in bundle.parts:
            return
        model = bundle.gpu_types
        if counted_on in model.types:
            self.belief = PredictedTypes(
                lambda job: model, described_by_name(model), counted_on, self._settings.speeds
            )
            self._speeds.clear()

    def use_nodes(self, vcs: Iterable[str], nodes: Mapping[int, Node]) -> None:
        """Choose among the nodes in `nodes` (by number) from now on."""
        self._typed_nodes, self._typed_nodes_of = {vc: [] for vc in vcs}, {}
        like: dict[Node, list[int]] = {}
        for node, has in nodes.items():
            like.setdefault(has, []).append(node)
        for has, members in like.items():
            group = NodeGroup(has.gpu_type, len(members), has.gpus, has.gpu_memory_mib)
            mask = sum(1 << node for node in members)
            typed = TypedNodes(group, mask, len(members) * has.gpus)
            self._typed_nodes[has.vc].append(typed)
            self._typed_nodes_of |= dict.fromkeys(members, typed)

    def candidates(self, job: Job) -> list[TypedNodes]:
        """Return the groups of nodes on which a job may run: of the type that it asks for, with
        enough GPUs and memory."""
        wanted = job.gpu_type
        return [
            typed
            for typed in self._typed_nodes[job.vc]
            if typed.gpus >= job.gpus
            and (wanted is None or same_type(wanted, typed.group.gpu_type))
            and self.speed(job, typed.group.gpu_type) > 0
        ]

    def speed(self, job: Job, gpu_type: str) -> float:
        """Return the predicted speed of a job on a GPU type, over that on the type on which
        durations are measured: 0 where the job does not fit. Return 1 where no bundle predicts
        speeds."""
        if self.belief is None:
            return 1.0
        key = job.name, job.gpus, gpu_type
        found = self._speeds.get(key)
        if found is None:
            found = self._speeds[key] = self.belief.speed(job, gpu_type)
        return found

    def speed_of(self, run: Run) -> float:
        """Return the predicted speed of a run on the GPU type that it has."""
        return self.speed(run.job, self.type_of(run))

    def type_of(self, run: Run) -> str:
        """Return the GPU type of a run. All GPUs of a run have one type."""
        return self._typed_nodes_of[run.nodes[0]].group.gpu_type

    def fits(self, job: Job, run: Run) -> bool:
        """Return whether a job is predicted to fit into the GPU memory of a run's GPU type."""
        return self.speed(job, self.type_of(run)) > 0

    def begin(self, turn: Turn) -> None:
        """Compute the typical speed of each GPU type, over the jobs that wait and run in the turn's
        virtual cluster. Called as a turn begins."""
        self._taken.clear()
        if self.belief is None:
            return
        jobs = [*(q.job for q in turn.queue), *(run.job for run in turn.runs())]
        for gpu_type in {typed.group.gpu_type for typed in self._typed_nodes[turn.vc]}:
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
        """Return where a job of `expected_s` seconds of work starts now: at the least cost, or
        where most GPUs are free if no speeds are predicted. The placement is None if it waits.

        Args:
            ends_in: function that returns the predicted seconds until a run's GPUs are free.
            patient: whether the job may wait for better GPUs although there is room.
        """
        job, pool = queued.job, turn.pool
        candidates = self.candidates(job)
        if self.belief is None:
            by_room = sorted(candidates, key=lambda typed: -_free(pool, typed))
            found = next((p for typed in by_room if (p := _place(pool, typed, job.gpus))), None)
            return Choice(found)
        offers = [
            self._offer(turn, queued, typed, expected_s, ends_in=ends_in) for typed in candidates
        ]
        offers.sort(key=lambda offer: offer.cost_s)
        evidence: Evidence = tuple(
            item
            for offer in offers
            for item in (
                (f"speed_on_{offer.typed.group.gpu_type}", offer.speed),
                (f"cost_on_{offer.typed.group.gpu_type}_s", offer.cost_s),
            )
        )
        for offer in offers:
            if offer.placement is not None:
                return Choice(offer.placement, evidence)
            if patient and self.patient and any(other.placement is not None for other in offers):
                self._taken[offer.typed] = self._taken.get(offer.typed, 0) + job.gpus
                return Choice(None, evidence, waits=True)
        return Choice(None, evidence)

    def _offer(
        self,
        turn: Turn,
        queued: QueuedJob,
        typed: TypedNodes,
        expected_s: float,
        ends_in: Callable[[Run], float],
    ) -> Offer:
        job = queued.job
        speed = self.speed(job, typed.group.gpu_type)
        placement = _place(turn.pool, typed, job.gpus)
        wait_s = 0.0
        if placement is None:
            wait_s = self._wait_s(turn, typed, job.gpus, ends_in) if self.patient else 0.0
        run_s = expected_s / speed
        capacity = sum(s.gpus * self._typical[s.group.gpu_type] for s in self._typed_nodes[turn.vc])
        share = job.gpus * self._typical[typed.group.gpu_type] / capacity
        cost = wait_s + run_s * (1.0 + len(turn.queue) * share)
        return Offer(typed=typed, placement=placement, speed=speed, wait_s=wait_s, cost_s=cost)

    def _wait_s(
        self, turn: Turn, typed: TypedNodes, gpus: int, ends_in: Callable[[Run], float]
    ) -> float:
        """Return the predicted seconds until a group of nodes has `gpus` GPUs free, after the jobs
        that already wait for it. If too few become free even when all its runs have ended, return
        the seconds until the last of them ends."""
        need = gpus + self._taken.get(typed, 0) - _free(turn.pool, typed)
        ends = sorted(
            (ends_in(run), run.job.gpus)
            for run in turn.runs()
            if self._typed_nodes_of[run.nodes[0]] is typed
        )
        for seconds, freed in ends:
            need -= freed
            if need <= 0:
                return seconds
        return ends[-1][0] if ends else 0.0

    def view(self, pool: Pool, queued: QueuedJob) -> PoolView:
        """Return the nodes of a pool on which GPUs are reserved for a job: the group of like nodes
        on which it is fastest or, of equally fast ones, the largest."""
        job = queued.job
        best = max(self.candidates(job), key=lambda s: (self.speed(job, s.group.gpu_type), s.gpus))
        return PoolView(pool, best)


def typed_placement(
    cluster: ClusterSpec, settings: GpuTypes, belief: TypeSpeeds | None
) -> TypedPlacement | None:
    """Return the object that chooses among a cluster's node groups, or None where all GPUs are
    alike.

    Raise InvalidSettings where the settings state speeds, but none for one of the cluster's GPU
    types.

    Args:
        belief: predicts speeds by type; None: the speeds in the settings are used.
    """
    if not cluster.mixes_types:
        return None
    if belief is None and settings.speeds:
        for vc in cluster.vcs:
            for group in cluster.groups_of(vc):
                if group.gpu_type not in settings.speeds:
                    known = ", ".join(settings.speeds)
                    raise InvalidSettings(
                        f"gpu_types.speeds has none for {group.gpu_type!r}; it has: {known}"
                    )
        belief = TableSpeeds(settings.speeds)
    return TypedPlacement(cluster, belief, settings)


class PoolView:
    """The nodes of one group in a pool, for code that expects all nodes of a pool to be alike."""

    def __init__(self, pool: Pool, typed: TypedNodes):
        self._pool = pool
        self._typed = typed
        self.per_node = typed.group.gpus_per_node

    def nodes(self) -> Iterable[int]:
        return (node for node in self._pool.nodes() if node in self)

    def __contains__(self, node: int) -> bool:
        return bool(self._typed.nodes >> node & 1) and node in self._pool

    def open_on(self, node: int) -> int:
        return self._pool.open_on(node)

    def reserved_on(self, node: int) -> int:
        return self._pool.reserved_on(node) & ((1 << self.per_node) - 1)

    def closed_on(self, node: int) -> int:
        return self._pool.closed_on(node) & ((1 << self.per_node) - 1)

    def gpus_of(self, node: int) -> int:
        return self._pool.gpus_of(node)

    def is_idle(self, node: int) -> bool:
        return self._pool.is_idle(node)


def _place(pool: Pool, typed: TypedNodes, gpus: int) -> Placement | None:
    return pool.place(gpus, among=typed.nodes, per_node=typed.group.gpus_per_node)


def _free(pool: Pool, typed: TypedNodes) -> int:
    return sum(pool.open_on(node).bit_count() for node in pool.nodes() if typed.nodes >> node & 1)
