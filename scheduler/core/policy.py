"""The policy contract, and the walks that policies share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from math import inf, isnan, nan
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from features.job import Job, Profile
from scheduler.core.arrivals import ArrivalForecaster, RecentForecaster
from scheduler.core.capabilities import Capabilities
from scheduler.core.cluster import Cluster, ClusterSpec, Placement, Run
from scheduler.core.decisions import Decision, Reason
from scheduler.core.durations import DurationDistribution
from scheduler.core.estimates import Estimator, with_progress
from scheduler.core.findings import Findings, Lack, Promise
from scheduler.core.queue import QueuedJob
from scheduler.core.receipts import Plain
from scheduler.core.rules import PolicyViolation
from scheduler.core.settings import PolicySettings
from scheduler.core.turn import Turn

if TYPE_CHECKING:
    from models.bundle import Bundle
    from scheduler.core.pairs import PairPredictor

OrderTerms = tuple[tuple[str, float], ...]  # (what, seconds); the smaller sum goes first


@dataclass(frozen=True, slots=True)
class Parts:
    """Who had how much of a virtual cluster lately.

    Attributes:
        members: by user the part had and the part due, 0 to 1.
        half_life_s: what was had that long ago counts half.
        term_s: seconds that the order adds for a part of 1 more than is due; 0: it looks at none.
    """

    members: Mapping[str, tuple[float, float]]
    half_life_s: float
    term_s: float


class Usage(Protocol):
    """Counts who has had how much."""

    def parts(self, vc: str, now: float) -> Parts:
        """Of a virtual cluster lately."""


class TypeSpeeds(Protocol):
    """What is believed of a job's speed by GPU type."""

    def speed(self, job: Job, gpu_type: str) -> float:
        """Speed there over that on the type durations are counted on; 0 = does not fit."""
        ...


class Never(StrEnum):
    """What keeps a job from starting whatever ends, until somebody acts."""

    REFUSED = "refused"  # no partition takes it as it asks
    LIMITED = "limited"  # a limit lets nobody have as much
    MISPLACED = "misplaced"  # its reservation has no nodes that would do
    CLOSED = "closed"  # only nodes that are closed would do


class Outlook(Protocol):
    """What a policy says of jobs that wait, beside its decisions."""

    def never(self, job_id: str) -> Never | None:
        """Return what keeps a job from ever starting; None: nothing that is known."""

    def latest(self, job_id: str) -> float:
        """Return the last moment at which a job may start before its deadline; inf: there is
        none."""

    def planned(self, job_id: str) -> float | None:
        """Return when it plans to start a job; None: it does not."""

    def kept_until(self, job_id: str, now: float) -> float:
        """Return until when the nodes that a job waits for are reserved; `now`: they are not."""


@dataclass(frozen=True, slots=True)
class Predictors:
    """What predicts for a core, besides its estimator of durations.

    Attributes:
        pair_predictor: predicts how fast pairs run; None: nobody packs until a bundle is in use.
        arrivals: makes a forecaster of arrivals, one for each part that wants one; None: none.
        type_speeds: speeds by GPU type; None: as the settings say.
    """

    pair_predictor: PairPredictor | None = None
    arrivals: Callable[[], ArrivalForecaster] | None = RecentForecaster
    type_speeds: TypeSpeeds | None = None


NO_CLUSTER = ClusterSpec({})
NO_PREDICTORS = Predictors()
CAPABILITIES = frozenset(field.name for field in fields(Capabilities))


@dataclass(slots=True)
class Nothing:
    """What a policy remembers that goes by its queues alone."""


class Learned:
    """What a policy remembers from turn to turn beside what its jobs and queues say: of one that
    goes by those alone, nothing.

    Attributes:
        Memory: the record of it.
    """

    Memory: ClassVar[type[Any]] = Nothing

    def begin(self, turn: Turn) -> None:
        """Called as a turn begins, before `serve`, and likewise where a turn is only followed:
        remember what does not depend on what is decided in it."""

    def follow(self, turn: Turn, d: Decision) -> None:
        """Called in place of `serve` before a decision of a log is carried out in this turn:
        remember what `serve` would have."""

    def predicted(self, queued: QueuedJob) -> None:
        """Called where a log has predicted a waiting job otherwise than it was here."""

    def followed(self, turn: Turn) -> None:
        """Called once all decisions that a log has of a turn were carried out."""

    def remember(self) -> Any:
        """All that it learned and has promised, beside what its jobs and queues say: a record of
        `Memory` that holds nothing but plain values and such records."""
        return self.Memory()

    def restore(self, memory: Any, jobs: Mapping[str, QueuedJob]) -> None:
        """Go on where another of the same settings was, whose `remember` this is.

        Args:
            jobs: all that have not ended, by id.
        """


class Policy:
    """Orders, places and packs the jobs of one virtual cluster at a time.

    A policy must be a function of what it was shown: events, the time it is given, and its own
    state. It never asks the wall clock or a random source it was not handed.

    Args:
        settings: what can be set; the defaults of `Settings` unless given.
        cluster: what it decides for.
        predictors: predictors and forecasters.

    Attributes:
        Settings: the model of its settings.
        learned: what it remembers beside what its jobs and queues say, and how.
        name: as given on the command line.
        distribution: what it learned of how long jobs run beside their prediction; None: nothing.
        usage: counts who had how much; None: it does not.
        capabilities: what it can do and wants, for those around it; an instance may state its own.
    """

    Settings: ClassVar[type[PolicySettings]] = PolicySettings
    name = ""
    capabilities = Capabilities()
    distribution: DurationDistribution | None = None
    usage: Usage | None = None
    learned = Learned()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        flags = sorted(CAPABILITIES & vars(cls).keys() - vars(Policy).keys())
        if flags:
            flag = flags[0]
            raise TypeError(
                f"{cls.__name__}.{flag}: nothing reads this attribute; write "
                f"capabilities = Capabilities({flag}={vars(cls)[flag]!r})"
            )

    def __init__(
        self,
        settings: PolicySettings | None = None,
        cluster: ClusterSpec = NO_CLUSTER,
        predictors: Predictors = NO_PREDICTORS,
    ):
        self.settings = settings or self.Settings()

    @property
    def outlook(self) -> Outlook | None:
        """Return what it says of jobs that wait, beside its decisions; None: nothing."""
        return None

    def prepare(self, queued: QueuedJob, now: float, estimator: Estimator) -> None:
        """Called whenever a job joins its queue: set its key (smaller goes first).

        Raises PolicyViolation where the policy's key is no number.
        """
        queued.evidence = ()
        if self.capabilities.estimates:
            estimate = with_progress(estimator.enqueued(queued.job, now), queued.progress)
            queued.believe(estimate)
        self.rank(queued, now)

    def rank(self, queued: QueuedJob, now: float) -> None:
        """Set a job's key. Raises PolicyViolation where it is no number."""
        key = self.key(queued, now)
        try:
            queued.key = key if isinstance(key, int | float) else float(key)  # NumPy's, for JSON
        except (TypeError, ValueError):
            queued.key = nan
        if isnan(queued.key):
            raise PolicyViolation(
                f"{self.name}: the key of job {queued.job.job_id} is {key!r}, not a number"
            )

    def key(self, queued: QueuedJob, now: float) -> float:
        """Sort key of a job. The default is arrival order."""
        return 0.0

    def first(self, vcs: Iterable[str], now: float) -> str:
        """Which of the virtual clusters that something happened in is served first."""
        return next(iter(vcs))

    def serve(self, turn: Turn) -> None:
        """Start, pack, preempt or explain the jobs of `turn.queue`."""
        in_order(turn)

    def started(self, run: Run, now: float) -> None:
        """A run, not of the profiling partition, began."""

    def ended(self, run: Run, now: float) -> None:
        """A run ended."""

    def watched(self, job: Job, profile: Profile) -> None:
        """A job was profiled, or watched for as long where it runs alone."""

    def pair_speed_observed(self, own: QueuedJob, other: QueuedJob, speed: float) -> None:
        """A job was seen to run at `speed` of its speed alone, beside another."""

    def refuses(self, job: Job, cluster: ClusterSpec) -> Reason | None:
        """Why a job can never run on a cluster of several GPU types; None when it can."""
        return None

    def type_speed(self, run: Run) -> float:
        """Speed of a run's GPU type over that of the type durations are counted on, as believed."""
        return 1.0

    def withdrawn(self, job_id: str, now: float) -> None:
        """A job left without having ended: cancelled while it waited, or never begun, or lost."""

    def set_aside(self, job_id: str, now: float) -> None:
        """A waiting job leaves its queue for a while, held or asked for otherwise; it comes back
        by `prepare`, and what it waited counts then."""
        self.withdrawn(job_id, now)

    def fits(self, cluster: ClusterSpec) -> bool:
        """Whether it was built for such a cluster; if not, another is built when it becomes so."""
        return True

    def cluster_changed(self, cluster: Cluster) -> None:
        """Nodes came, went, or became others."""

    def node_leaves(self, cluster: Cluster, node: int) -> None:
        """Nothing runs on a node any more and it is about to go: hold none of its GPUs."""

    def take_over(
        self, before: Policy, jobs: Iterable[QueuedJob], runs: Iterable[Run], now: float
    ) -> bool:
        """Go on for a policy of this kind with other settings, and know what it knew.

        Whether it does: keys of waiting jobs are then those of these settings. Otherwise it hears
        of every job again (`prepare`, `started`), and what the other had learned is lost.

        Args:
            jobs: all that have not ended.
            runs: all but those of the profiling partition, oldest first.
        """
        return False

    def use(self, bundle: Bundle) -> None:
        """Other models are there: packing policies take their pair predictor from them."""

    def next_wake(self, now: float) -> float | None:
        """When to be called even if nothing happens; None when there is no need."""
        return None

    # --- its explanations -------------------------------------------------------------------

    def order_terms(self, queued: QueuedJob, now: float) -> OrderTerms:
        """What makes up the key of a job: terms that sum to it, up to what all jobs share."""
        return (("order value", queued.key),)

    def left_s(self, run: Run, queued: QueuedJob, now: float, level: float | None = None) -> float:
        """Expected seconds until a run has ended; inf: not known. To explain waits.

        Args:
            level: within which it has ended in this share of such cases, instead.
        """
        return (
            inf
            if queued.estimate_s is None or level is not None
            else max(0.0, queued.estimate_s - (now - run.start_time))
        )

    def reservation(self, vc: str) -> tuple[str, Placement] | None:
        """The job that GPUs of a virtual cluster are kept for, and which; None: no job."""
        return None

    def lacks_nodes(self, turn: Turn, most: int) -> Lack | None:
        """Whether the first in line lacks whole nodes, at most so many, that its virtual cluster
        lends for profiling; None: it does not, or they are not to go back for that."""
        return None

    def restricted_to(self, kept: Collection[str]) -> Policy:
        """This policy without what it keeps of waiting jobs outside `kept`; see
        `Core.restricted_to`. One that goes by its queues alone is as it was."""
        return self

    def promise(self, queued: QueuedJob, now: float) -> Promise | None:
        """From when on GPUs are kept for a waiting job; None: nothing is promised."""
        return None

    def forecaster(
        self, otherwise: Callable[[], ArrivalForecaster] | None
    ) -> ArrivalForecaster | None:
        """Return what the profiling stage in front of it forecasts arrivals with; None: nothing.

        Args:
            otherwise: makes the one of who has no better.
        """
        return None if otherwise is None else otherwise()

    def receipt(self, queued: QueuedJob) -> Plain:
        """Return what the durations among a job's evidence are made of; () where there are none."""
        return ()

    def findings(self, queued: QueuedJob) -> Findings:
        """What was found out about a waiting job when it was last evaluated. Decides nothing."""
        return Findings(queued.considered, queued.type_costs)


def progressed(policy: Policy, queued: QueuedJob, now: float, estimator: Estimator) -> None:
    """Have a policy believe a running job that reports how long it will have run."""
    if policy.capabilities.estimates and not policy.capabilities.oracle:
        estimate = with_progress(estimator.estimate(queued.job, now), queued.progress)
        queued.believe(estimate)
    if policy.distribution is not None:
        policy.distribution.refreshed += 1  # what was found by it may not hold any more


def in_order(turn: Turn) -> None:
    """Start jobs in order and stop at the first that does not fit (head-of-line blocking)."""
    queue = turn.queue
    while len(queue):
        head = queue[0]
        placement = turn.pool.place(head.job.gpus)
        if placement is None:
            turn.wait(head, turn.capacity_reason(head))
            return
        turn.start(head, placement)


def skipping(turn: Turn) -> None:
    """Start every job that fits, in order, passing those that do not."""
    too_many: set[int] = set()  # GPU counts that did not fit; nothing is freed during a turn
    for queued in list(turn.queue):
        gpus = queued.job.gpus
        placement = None if gpus in too_many else turn.pool.place(gpus)
        if placement is not None:
            turn.start(queued, placement)
        else:
            too_many.add(gpus)
            turn.wait(queued, turn.capacity_reason(queued))


def preemption_cost_s(gpus: int) -> float:
    """Seconds of work added by stopping and restarting a job (the settings of the Lucid paper)."""
    return 40.0 if gpus <= 8 else 60.0
