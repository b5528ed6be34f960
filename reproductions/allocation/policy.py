"""The contract of policies that hand out allocations.

Such a policy is shown every job that is not yet done and every node, and answers with a whole
assignment: who holds which GPUs from now on. The core compares it with what was, and turns the
difference into decisions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Protocol, TypeVar

from features.job import Job
from reproductions.allocation.allocation import Allocation, Batch, Node
from reproductions.allocation.statistics import Statistic
from scheduler.core.decisions import Reason
from scheduler.core.settings import PolicySettings

T = TypeVar("T")
Evidence = tuple[tuple[str, float | str], ...]


class Capability(StrEnum):
    """What a policy may change."""

    GPUS = "gpus"  # give other than the number asked for (else gangs are whole)
    BATCH = "batch"  # set the batch size
    TYPE = "type"  # move a running job to another GPU type
    PREEMPT = "preempt"  # take GPUs from a running job, or move it
    SHARE = "share"  # put two jobs on the same GPUs


class Source(Protocol):
    """Reports statistics of jobs, such as their progress: from the truth of a simulation, or from a
    monitor of running jobs."""

    @property
    def offers(self) -> frozenset[Statistic[object]]:
        """Return the kinds of statistics that this source can report about a job."""
        ...

    def report(self, statistic: Statistic[T], job_id: str, now: float) -> T:
        """Return one statistic of one job as of now. Only statistics in `offers` may be asked
        for.
        """
        ...

    def refusal(self, job: Job) -> tuple[Reason, Evidence] | None:
        """Return why a job can never be run, or None when it can."""
        ...


@dataclass(slots=True)
class ActiveJob:
    """A job that was submitted and is not done.

    Attributes:
        job: as submitted. `job.gpus` is what it asks for.
        seq: order of arrival.
        allocation: what it holds now; None when it waits.
        attained_s, attained_gpu_s: seconds on GPUs and GPU-seconds so far, restarts included.
        waited_s: seconds without GPUs since submission.
        restarts: times it was given other GPUs after its first start.
        first_start, since: when it first got GPUs, and got those that it holds (or lost its last).
        reason: why it waited, or runs as it does, when last decided.
    """

    job: Job
    seq: int
    allocation: Allocation | None = None
    attained_s: float = 0.0
    attained_gpu_s: float = 0.0
    waited_s: float = 0.0
    restarts: int = 0
    first_start: float | None = None
    since: float = 0.0
    reason: Reason | None = None
    settled: float = 0.0
    _ask: Asker | None = field(default=None, repr=False)

    @property
    def id(self) -> str:
        return self.job.job_id

    @property
    def gpus(self) -> int:
        """Return the number of GPUs that the job holds."""
        return self.allocation.count if self.allocation is not None else 0

    def age_s(self, now: float) -> float:
        return now - self.job.submit_time

    def report(self, statistic: Statistic[T]) -> T:
        """Return a statistic that the policy declared in `needs`. Raise LookupError for others."""
        if self._ask is None:
            raise LookupError(f"nothing reports {statistic.name}")
        return self._ask(statistic, self.job.job_id)

    def settle(self, now: float) -> None:
        """Update the sums of seconds to `now`."""
        passed = now - self.settled
        if self.allocation is None:
            self.waited_s += passed
        else:
            self.attained_s += passed
            self.attained_gpu_s += passed * self.allocation.count
        self.settled = now


class Asker(Protocol):
    """A function that reports one statistic of one job."""

    def __call__(self, statistic: Statistic[T], job_id: str) -> T: ...


@dataclass(frozen=True, slots=True)
class DecisionInput:
    """Everything that a policy sees when it allocates.

    Attributes:
        now: seconds since the epoch.
        jobs: every active job, in order of arrival.
        nodes: every node, by index.
        submitted: ids of jobs that were submitted since the last allocation.
        ended: ids of jobs that ended since then.
    """

    now: float
    jobs: Sequence[ActiveJob]
    nodes: Sequence[Node]
    submitted: Sequence[str] = ()
    ended: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Grant:
    """What one job gets, and why. Without an allocation, it holds the reason why the job waits."""

    allocation: Allocation | None
    reason: Reason
    evidence: Evidence = ()
    blocker: str | None = None
    priority: float | None = None


Assignment = Mapping[str, Grant]


@dataclass(slots=True)
class Trigger:
    """What happened since the policy last allocated.

    Attributes:
        woken: a time it asked for has come.
        submitted, ended, paused: ids of jobs that came, went, or have used up their lease.
        going: ids of jobs that hold GPUs and have not used up their lease.
    """

    woken: bool = False
    submitted: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    paused: list[str] = field(default_factory=list)
    going: set[str] = field(default_factory=set)

    @property
    def any(self) -> bool:
        return self.woken or bool(self.submitted or self.ended or self.paused)


class AllocationPolicy(ABC):
    """Base class of policies that answer a snapshot of the cluster with an assignment.

    The answer must depend only on what the policy was shown and on its own state; random numbers
    come from a generator seeded in the constructor.

    Args:
        settings: the policy's settings; by default, the defaults of `Settings`.
        seed: seed of the policy's random numbers.

    Attributes:
        Settings: the model class of its settings.
        name: its name on the command line.
        round_s: seconds between two allocations; 0: it allocates when something happened.
        lease_s: seconds for which jobs hold their GPUs by a lease; None: there are no leases.
        changes: what it may change; the core refuses an assignment that changes anything else.
        needs: statistics of jobs that it reads.
    """

    Settings: ClassVar[type[PolicySettings]] = PolicySettings
    name = ""
    round_s = 0.0
    lease_s: float | None = None
    changes: frozenset[Capability] = frozenset()
    needs: tuple[Statistic[object], ...] = ()

    def __init__(self, settings: PolicySettings | None = None, *, seed: int = 0):
        self.settings = settings or self.Settings()
        self.seed = seed

    @property
    def oracle(self) -> bool:
        """Return whether the policy reads the truth. Such a policy is only for comparison."""
        return any(statistic.truth for statistic in self.needs)

    @abstractmethod
    def allocate(self, snapshot: DecisionInput) -> Assignment:
        """Return what each job gets from now on. A job that is left out waits, for Reason.NO_GAIN.

        Waiting jobs are in line in the order in which the answer has them.
        """

    def acts_on(self, trigger: Trigger) -> bool:
        """Return whether to allocate now, for policies without rounds of a fixed length."""
        return trigger.any

    def tune(self, job: ActiveJob, allocation: Allocation) -> tuple[Batch, Evidence] | None:
        """Return the batch of a job on an allocation, for policies with `Capability.BATCH`.

        Called at each allocation for every job that gets GPUs, and after each of its epochs or
        rounds. None leaves the batch as it is.
        """
        return None

    def next_wake(self, now: float) -> float | None:
        """Return the time (seconds) at which the policy must be called even if no event happens
        before; None if it need not be called."""
        return None

    def ended(self, job: ActiveJob, now: float) -> None:  # noqa: B027 (most need not know)
        """Called when a job is done."""
