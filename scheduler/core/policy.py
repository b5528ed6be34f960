"""The policy contract, and ways to go through a queue that policies share."""

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
from scheduler.core.turn import Turn

if TYPE_CHECKING:
    from models.bundle import Bundle
    from scheduler.core.pairs import PairPredictor
    from scheduler.core.settings import PolicySettings

OrderTerms = tuple[tuple[str, float], ...]  # (what, seconds); the smaller sum goes first


@dataclass(frozen=True, slots=True)
class Parts:
    """How much of a virtual cluster each user had lately.

    Attributes:
        members: by user the part had and the part due, 0 to 1.
        half_life_s: what was had that long ago counts half.
        term_s: seconds that the order adds for a part of 1 more than is due; 0: it looks at none.
    """

    members: Mapping[str, tuple[float, float]]
    half_life_s: float
    term_s: float


class Usage(Protocol):
    """Counts how much each user has had of a virtual cluster."""

    def parts(self, vc: str, now: float) -> Parts:
        """Return how much each user had of a virtual cluster lately."""


class TypeSpeeds(Protocol):
    """Predicts a job's speed by GPU type."""

    def speed(self, job: Job, gpu_type: str) -> float:
        """Return a job's speed on a GPU type over that on the type durations are counted on; 0
        where it does not fit.
        """
        ...


class Never(StrEnum):
    """Why a job can never start, whichever runs end, until a person changes something."""

    REFUSED = "refused"  # no partition takes it as it asks
    LIMITED = "limited"  # a limit lets nobody have as much
    MISPLACED = "misplaced"  # its reservation has no nodes that would do
    CLOSED = "closed"  # only nodes that are closed would do


class Outlook(Protocol):
    """A policy's forecasts on waiting jobs that its decisions do not contain."""

    def never(self, job_id: str) -> Never | None:
        """Return what prevents a job from ever starting. Return None if nothing is known to prevent
        it.
        """

    def latest(self, job_id: str) -> float:
        """Return the latest time at which a job may start to meet its deadline, seconds since the
        epoch; inf without a deadline.
        """

    def planned(self, job_id: str) -> float | None:
        """Return the time at which the policy plans to start a job, seconds since the epoch. Return
        None without a plan.
        """

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
    """The memory of a policy that decides by its queues alone: empty."""


class Learned:
    """The state that a policy keeps between turns, besides its jobs and queues. This base class
    keeps none.

    Attributes:
        Memory: class of the plain record of this state.
    """

    Memory: ClassVar[type[Any]] = Nothing

    def begin(self, turn: Turn) -> None:
        """Called when a turn begins, before `serve`, also where the turn is only followed. Remember
        here what does not depend on the turn's decisions.
        """

    def follow(self, turn: Turn, d: Decision) -> None:
        """Called in place of `serve` before a recorded decision is carried out in this turn.
        Remember what `serve` would have remembered.
        """

    def predicted(self, queued: QueuedJob) -> None:
        """Called where a log holds another prediction of a waiting job than was made here."""

    def followed(self, turn: Turn) -> None:
        """Called once all recorded decisions of a turn were carried out."""

    def remember(self) -> Any:
        """Return everything learned and promised beyond jobs and queues, as a record of `Memory`
        that holds plain values and such records only.
        """
        return self.Memory()

    def restore(self, memory: Any, jobs: Mapping[str, QueuedJob]) -> None:
        """Restore what `remember` of a policy with the same settings returned.

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
        Settings: the model of its settings; None: it has none.
        learned: what it remembers beside what its jobs and queues say, and how.
        name: as given on the command line.
        distribution: what it learned of how long jobs run beside their prediction; None: nothing.
        usage: counts who had how much; None: it does not.
        capabilities: what it can do and wants, for those around it; an instance may state its own.
    """

    Settings: ClassVar[type[PolicySettings] | None] = None
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
        self.settings: Any = settings or (self.Settings() if self.Settings else None)

    @property
    def outlook(self) -> Outlook | None:
        """Return the policy's forecasts on waiting jobs that its decisions do not contain; None: it
        makes none.
        """
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
        """Set a job's key. Raise PolicyViolation where it is no number."""
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
        """Return the sort key of a job. The default is arrival order."""
        return 0.0

    def first(self, vcs: Iterable[str], now: float) -> str:
        """Return the virtual cluster to be served first, of those in which something happened."""
        return next(iter(vcs))

    def serve(self, turn: Turn) -> None:
        """Start, pack, preempt or explain the jobs of `turn.queue`."""
        in_order(turn)

    def started(self, run: Run, now: float) -> None:
        """Called when a run began outside the profiling partition."""

    def ended(self, run: Run, now: float) -> None:
        """Called when a run ended."""

    def watched(self, job: Job, profile: Profile) -> None:
        """Called when the profile of a job is known: it was profiled, or ran alone on its GPUs for
        as long as profiling takes.
        """

    def pair_speed_observed(self, own: QueuedJob, other: QueuedJob, speed: float) -> None:
        """Called when a job was measured at `speed` of its speed alone, beside another job."""

    def refuses(self, job: Job, cluster: ClusterSpec) -> Reason | None:
        """Return why a job can never run on a cluster of several GPU types, or None when it can."""
        return None

    def type_speed(self, run: Run) -> float:
        """Return the believed speed of a run's GPU type over that of the type durations are counted
        on.
        """
        return 1.0

    def withdrawn(self, job_id: str, now: float) -> None:
        """Called when a job left without having ended: cancelled while it waited, never begun, or
        lost.
        """

    def set_aside(self, job_id: str, now: float) -> None:
        """Called when a waiting job leaves its queue for a while because it is held or changed. It
        comes back by `prepare`, and keeps the time that it has waited.
        """
        self.withdrawn(job_id, now)

    def fits(self, cluster: ClusterSpec) -> bool:
        """Return whether the policy suits such a cluster. If not, another is built when the cluster
        becomes so.
        """
        return True

    def cluster_changed(self, cluster: Cluster) -> None:
        """Called when nodes were added, removed or changed."""

    def node_leaves(self, cluster: Cluster, node: int) -> None:
        """Called when an idle node is about to be removed. Keep none of its GPUs."""

    def take_over(
        self, before: Policy, jobs: Iterable[QueuedJob], runs: Iterable[Run], now: float
    ) -> bool:
        """Take over the knowledge of a policy of the same kind with other settings. Return whether
        that was possible.

        Whether it does: keys of waiting jobs are then those of these settings. Otherwise it hears
        of every job again (`prepare`, `started`), and what the other had learned is lost.

        Args:
            jobs: all that have not ended.
            runs: all but those of the profiling partition, oldest first.
        """
        return False

    def use(self, bundle: Bundle) -> None:
        """Use another bundle of models from now on. Policies that let jobs share GPUs take their
        pair predictor from it.
        """

    def next_wake(self, now: float) -> float | None:
        """Return when the policy is to be called even if nothing happens, or None when there is no
        need.
        """
        return None

    # --- its explanations -------------------------------------------------------------------

    def order_terms(self, queued: QueuedJob, now: float) -> OrderTerms:
        """Return terms that sum to the key of a job, up to what all jobs share."""
        return (("order value", queued.key),)

    def left_s(self, run: Run, queued: QueuedJob, now: float, level: float | None = None) -> float:
        """Return the expected seconds until a run has ended; inf where not known. It is used to
        explain waits.

        Args:
            level: within which it has ended in this share of such cases, instead.
        """
        return (
            inf
            if queued.predicted_s is None or level is not None
            else max(0.0, queued.predicted_s - (now - run.start_time))
        )

    def reservation(self, vc: str) -> tuple[str, Placement] | None:
        """Return the job for which GPUs of a virtual cluster are kept, with these GPUs, or None."""
        return None

    def lacks_nodes(self, turn: Turn, most: int) -> Lack | None:
        """Return how much the first job in line loses because its virtual cluster lends whole nodes
        for profiling, `most` nodes at most. Return None if it loses nothing, or the nodes stay lent
        in any case.
        """
        return None

    def restricted_to(self, kept: Collection[str]) -> Policy:
        """Return this policy without its data on waiting jobs outside `kept`; see
        `Core.restricted_to`. A policy without such data returns itself.
        """
        return self

    def promise(self, queued: QueuedJob, now: float) -> Promise | None:
        """Return from when on GPUs are kept for a waiting job, or None where nothing is
        promised.
        """
        return None

    def forecaster(
        self, otherwise: Callable[[], ArrivalForecaster] | None
    ) -> ArrivalForecaster | None:
        """Return the forecaster of arrivals for the profiling stage. Return None if there is none.

        Args:
            otherwise: function that makes the default forecaster, for policies without one of their
                own.
        """
        return None if otherwise is None else otherwise()

    def receipt(self, queued: QueuedJob) -> Plain:
        """Return the inputs of the predicted durations in a job's evidence. Return ()
        without any.
        """
        return ()

    def findings(self, queued: QueuedJob) -> Findings:
        """Return what the last evaluation of a waiting job found, such as the best candidate for
        sharing. Decide nothing.
        """
        return Findings(queued.considered, queued.type_costs)


def progressed(policy: Policy, queued: QueuedJob, now: float, estimator: Estimator) -> None:
    """Update the predicted duration of a running job from the progress that it reports."""
    if policy.capabilities.estimates and not policy.capabilities.oracle:
        estimate = with_progress(estimator.estimate(queued.job, now), queued.progress)
        queued.believe(estimate)
    if policy.distribution is not None:
        policy.distribution.refreshed += 1  # what was found by it may not hold any more


def in_order(turn: Turn) -> None:
    """Start jobs in order, and stop at the first that does not fit (head-of-line blocking)."""
    queue = turn.queue
    while len(queue):
        head = queue[0]
        placement = turn.pool.place(head.job.gpus)
        if placement is None:
            turn.wait(head, turn.capacity_reason(head))
            return
        turn.start(head, placement)


def skipping(turn: Turn) -> None:
    """Start every job of the queue that fits, in order. A job that does not fit is passed over."""
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
    """Return the seconds of work added by stopping and restarting a job (the settings of the Lucid
    paper).
    """
    return 40.0 if gpus <= 8 else 60.0
