"""The interface that every policy implements, and ways to go through a queue that several policies
use."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
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
    from models.bundle.arrivals import ArrivalModel
    from scheduler.core.pairs import PairPredictor
    from scheduler.core.settings import PolicySettings

OrderTerms = tuple[tuple[str, float], ...]  # (what, seconds); the smaller sum goes first


@dataclass(frozen=True, slots=True)
class Parts:
    """How much of a virtual cluster each user had lately.

    Attributes:
        members: maps each user to the part that the user had, and the part that is due, each 0 to
            1.
        half_life_s: seconds after which past use counts half.
        term_s: seconds by which the order delays a job for each 1.0 that its user had beyond what
            is due; 0: the order ignores use.
    """

    members: Mapping[str, tuple[float, float]]
    half_life_s: float
    term_s: float


class Usage(Protocol):
    """Counts how much of each virtual cluster each user has used."""

    def parts(self, vc: str, now: float) -> Parts:
        """Return how much of a virtual cluster each user had lately, and how much is due to
        each."""


class TypeSpeeds(Protocol):
    """Predicts a job's speed by GPU type."""

    def speed(self, job: Job, gpu_type: str) -> float:
        """Return a job's speed on a GPU type over its speed on the type on which durations are
        measured; 0 where the job does not fit."""
        ...


class Never(StrEnum):
    """Why a job can never start, whichever runs end, unless a person changes something."""

    REFUSED = "refused"  # no partition takes it as it asks
    LIMITED = "limited"  # a limit lets nobody have as much
    MISPLACED = "misplaced"  # its reservation has no nodes that would do
    CLOSED = "closed"  # only nodes that are closed would do


class Outlook(Protocol):
    """A policy's forecasts about waiting jobs, which its decisions do not contain."""

    def never(self, job_id: str) -> Never | None:
        """Return what prevents a job from ever starting, or None if nothing is known to
        prevent it."""

    def latest(self, job_id: str) -> float:
        """Return the latest start, in seconds since the epoch, with which a job meets its deadline;
        inf without a deadline."""

    def planned(self, job_id: str) -> float | None:
        """Return the time at which the policy plans to start a job, seconds since the epoch. Return
        None without a plan.
        """

    def kept_until(self, job_id: str, now: float) -> float:
        """Return the time (seconds since the epoch) until which reservations of others keep a
        waiting job from its nodes; `now` if none do."""


@dataclass(frozen=True, slots=True)
class Predictors:
    """The predictors that a core has besides its estimator of durations.

    Attributes:
        pair_predictor: predicts how fast pairs of jobs run; None: no job is packed until a bundle
            is in use.
        arrivals: makes a new forecaster of arrivals, for each part of the core that needs one;
            None: there is none.
        type_speeds: predicts speeds by GPU type; None: the policy's settings state them.
        arrival_model: a bundle's model of arrivals; None: there is none.
        arrived: submissions before the first that is decided on, each with its number of GPUs.
    """

    pair_predictor: PairPredictor | None = None
    arrivals: Callable[[], ArrivalForecaster] | None = RecentForecaster
    type_speeds: TypeSpeeds | None = None
    arrival_model: ArrivalModel | None = None
    arrived: Sequence[tuple[float, int]] = ()


NO_CLUSTER = ClusterSpec({})
NO_PREDICTORS = Predictors()
CAPABILITIES = frozenset(field.name for field in fields(Capabilities))


@dataclass(slots=True)
class Nothing:
    """The empty record of what a policy has learned, for policies that keep no state besides their
    queues."""


class Learned:
    """The state that a policy keeps between turns (rounds of decisions on a virtual cluster),
    besides its jobs and queues. This base class keeps none.

    Attributes:
        Memory: class of the plain record of this state.
    """

    Memory: ClassVar[type[Any]] = Nothing

    def begin(self, turn: Turn) -> None:
        """Called when a turn (a round of decisions on one virtual cluster) begins, before `serve`.
        Also called where recorded decisions are followed instead of `serve`. Remember here what
        does not depend on the turn's decisions."""

    def follow(self, turn: Turn, d: Decision) -> None:
        """Called for each recorded decision that is followed, before it is carried out; `serve` is
        not called in such a turn. Remember what `serve` would have remembered."""

    def predicted(self, queued: QueuedJob) -> None:
        """Called while a log is followed, when its prediction of a waiting job differs from the one
        made here."""

    def followed(self, turn: Turn) -> None:
        """Called once all recorded decisions of a followed turn (one virtual cluster at one time)
        were carried out."""

    def remember(self) -> Any:
        """Return everything that was learned and promised, besides jobs and queues, as a record of
        class `Memory`. It holds only plain values and further such records."""
        return self.Memory()

    def restore(self, memory: Any, jobs: Mapping[str, QueuedJob]) -> None:
        """Restore what `remember` returned for a policy with the same settings.

        Args:
            jobs: all jobs that have not ended, by id.
        """


class Policy:
    """Orders, places and packs the jobs of one virtual cluster at a time.

    A policy's decisions must follow only from what it was given: events, the time, and its own
    state. It never reads the wall clock, or a random source that was not passed to it.

    Args:
        settings: values of its settings; the defaults of `Settings` unless given.
        cluster: the shape of the cluster for which it decides.
        predictors: predictors and forecasters.

    Attributes:
        Settings: class of its settings; None: it has none.
        learned: what it remembers besides its jobs and queues.
        name: the policy's name on the command line.
        distribution: distribution of durations learned from ended jobs; None: it keeps none.
        usage: counts how much each user has used; None: it does not count.
        capabilities: what it can do and needs; an instance may have its own.
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
        """The policy's forecasts about waiting jobs, which its decisions do not contain; None: it
        makes none."""
        return None

    def prepare(
        self, queued: QueuedJob, now: float, estimator: Estimator, *, logged: bool = False
    ) -> None:
        """Set the key of a job, by which its queue is sorted (smallest first). Called whenever a
        job joins its queue.

        Args:
            logged: whether nobody reads the evidence that this makes, because a log is followed
                that has it, say: what would only make evidence may be left out.

        Raise PolicyViolation where the policy's key is not a number.
        """
        queued.evidence = ()
        if self.capabilities.estimates:
            estimate = with_progress(estimator.enqueued(queued.job, now), queued.progress)
            queued.believe(estimate)
        self.rank(queued, now)

    def rank(self, queued: QueuedJob, now: float) -> None:
        """Set a job's key to what `key` returns. Raise PolicyViolation where that is not a
        number."""
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
        """Return which of `vcs`, the virtual clusters in which something happened, is to be served
        first."""
        return next(iter(vcs))

    def serve(self, turn: Turn) -> None:
        """Decide on the jobs of `turn.queue`: start, pack or preempt them, or record why they
        wait."""
        in_order(turn)

    def started(self, run: Run, now: float) -> None:
        """Called when a run began outside the profiling partition. Policies override it to keep
        track of runs."""

    def ended(self, run: Run, now: float) -> None:
        """Called when a run ended. Policies override it to keep track of runs."""

    def watched(self, job: Job, profile: Profile) -> None:
        """Called when the profile of a job becomes known: the job was profiled, or it ran alone on
        its GPUs for as long as profiling takes."""

    def pair_speed_observed(self, own: QueuedJob, other: QueuedJob, speed: float) -> None:
        """Called when a job that shares GPUs with another was measured at `speed`, a share of its
        speed alone."""

    def refuses(self, job: Job, cluster: ClusterSpec) -> Reason | None:
        """Return why a job can never run on a cluster of several GPU types, or None when it can."""
        return None

    def type_speed(self, run: Run) -> float:
        """Return the predicted speed of a run's GPU type over that of the type on which durations
        are measured."""
        return 1.0

    def withdrawn(self, job_id: str, now: float) -> None:
        """Called when a job was removed without having ended: cancelled while it waited or by the
        policy, given GPUs but never begun, or lost."""

    def set_aside(self, job_id: str, now: float) -> None:
        """Called when a waiting job leaves its queue for a while because it is held or changed. The
        job comes back with a call of `prepare`, and keeps the time that it has waited."""
        self.withdrawn(job_id, now)

    def fits(self, cluster: ClusterSpec) -> bool:
        """Return whether this policy object suits a cluster of this shape. If it does not, a new
        policy is built once the cluster gets this shape."""
        return True

    def cluster_changed(self, cluster: Cluster) -> None:
        """Called when nodes were added, removed or changed. Policies override it to adapt what they
        keep about nodes."""

    def node_leaves(self, cluster: Cluster, node: int) -> None:
        """Called when an idle node is about to be removed. Give up any reservation of its GPUs."""

    def take_over(
        self, before: Policy, jobs: Iterable[QueuedJob], runs: Iterable[Run], now: float
    ) -> bool:
        """Take over the knowledge of a policy of the same kind with other settings. Return whether
        that was possible.

        If it was, the keys of waiting jobs follow from the new settings. Otherwise this policy is
        notified of every job again (`prepare`, `started`), and what `before` had learned is lost.

        Args:
            before: the policy that decided until now.
            jobs: all jobs that have not ended.
            runs: all runs except those of the profiling partition, oldest first.
        """
        return False

    def use(self, bundle: Bundle) -> None:
        """Use another bundle of models from now on. Policies that let jobs share GPUs take their
        pair predictor from the bundle."""

    def next_wake(self, now: float) -> float | None:
        """Return the time (seconds since the epoch) at which the policy must be called even if no
        event happens before; None if it need not be called."""
        return None

    # --- its explanations -------------------------------------------------------------------

    def order_terms(self, queued: QueuedJob, now: float) -> OrderTerms:
        """Return named terms that sum to a job's key, except for a constant that all jobs share."""
        return (("order value", queued.key),)

    def left_s(self, run: Run, queued: QueuedJob, now: float, level: float | None = None) -> float:
        """Return the expected seconds until a run ends; inf where that is not known. It is used to
        explain waits.

        Args:
            level: with it, return instead the seconds within which this share (0 to 1) of such runs
                have ended.
        """
        return (
            inf
            if queued.predicted_s is None or level is not None
            else max(0.0, queued.predicted_s - (now - run.start_time))
        )

    def reservation(self, vc: str) -> tuple[str, Placement] | None:
        """Return the waiting job for which GPUs of a virtual cluster are kept, with these GPUs;
        None where none are."""
        return None

    def lacks_nodes(self, turn: Turn, most: int) -> Lack | None:
        """Return how much the first job in line loses because its virtual cluster lends whole
        nodes, at most `most`, for profiling. Return None if it loses nothing, or the nodes would
        stay lent anyway."""
        return None

    def restricted_to(self, kept: Collection[str]) -> Policy:
        """Return this policy without its data on waiting jobs that are not in `kept`; see
        `Core.restricted_to`. A policy without such data returns itself."""
        return self

    def promise(self, queued: QueuedJob, now: float) -> Promise | None:
        """Return when GPUs will be reserved for a waiting job, or None where the policy promises
        nothing."""
        return None

    def forecaster(
        self, otherwise: Callable[[], ArrivalForecaster] | None
    ) -> ArrivalForecaster | None:
        """Return the forecaster of arrivals that the profiling stage uses, or None if there is
        none.

        Args:
            otherwise: function that makes the default forecaster, for policies without one of their
                own.
        """
        return None if otherwise is None else otherwise()

    def receipt(self, queued: QueuedJob) -> Plain:
        """Return the inputs from which the predicted durations in a job's evidence were computed;
        () where there are none."""
        return ()

    def findings(self, queued: QueuedJob) -> Findings:
        """Return what was found when the policy last considered a waiting job, such as the best
        candidate for sharing. No new decision is made."""
        return Findings(queued.considered, queued.type_costs)


def progressed(policy: Policy, queued: QueuedJob, now: float, estimator: Estimator) -> None:
    """Update the predicted duration of a running job from the progress that it reports."""
    if policy.capabilities.estimates and not policy.capabilities.oracle:
        estimate = with_progress(estimator.estimate(queued.job, now), queued.progress)
        queued.believe(estimate)
    if policy.distribution is not None:
        policy.distribution.refreshed += 1  # what was found by it may not hold any more


def in_order(turn: Turn) -> None:
    """Start jobs in order, and stop at the first that does not fit (head-of-line blocking). Record
    why the others wait."""
    queue = turn.queue
    while len(queue):
        head = queue[0]
        placement = turn.pool.place(head.job.gpus)
        if placement is None:
            turn.wait(head, turn.capacity_reason(head))
            return
        turn.start(head, placement)


def skipping(turn: Turn) -> None:
    """Start every job of the queue that fits, in order. For each job that does not fit, record why
    it waits, and go on."""
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
    """Return the seconds of work that stopping and restarting a job adds (as in the settings of the
    Lucid paper)."""
    return 40.0 if gpus <= 8 else 60.0
