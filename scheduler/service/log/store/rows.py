"""The rows that the queries of `service.log.store.reads` return."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from features.codec import Json
from scheduler.explain.job import JobRow as JobRow
from scheduler.explain.job import Line as Line
from scheduler.explain.words import closed_words, drained_words

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some rows, and the cursor of the next page; None where there are no more."""

    items: list[T]
    next: str | None = None


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """One place in the queue of a virtual cluster.

    Of another's job only the place is shown: `job` is None and `label` says "another job".
    """

    vc: str
    position: int
    label: str
    job: JobRow | None = None


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU and the jobs on it. Jobs that may not be shown appear as "another job".

    Attributes:
        closed: why nothing new starts on it though its node is open: it does not answer; "" when it
            does.
        closed_since: since when.
    """

    index: int
    jobs: list[str] = field(default_factory=list)
    closed: str = ""
    closed_since: float | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """One node.

    Attributes:
        open: whether something new may start there; False where it is drained.
        profiling: lent to the profiling partition for good.
        change: what becomes of it once nothing runs there, in words; "" = nothing.
        reason, actor, since: why, by whom (operators only) and since when it is drained.
    """

    node: int
    name: str
    vc: str
    gpu_type: str
    open: bool
    gpus: list[Gpu]
    gpu_memory_mib: float = 24_576.0
    profiling: bool = False
    change: str = ""
    reason: str = ""
    actor: str = ""
    since: float | None = None

    @property
    def drained(self) -> str:
        """Return in words that the node is drained, why and by whom; "" when it is open."""
        return "" if self.open else drained_words(self.actor, self.reason, self.change)

    @property
    def silent(self) -> list[Gpu]:
        """Return the GPUs of the node that do not answer."""
        return [gpu for gpu in self.gpus if gpu.closed]

    @property
    def free(self) -> list[Gpu]:
        """Return the GPUs of the node that nobody is on and that something may start on."""
        return [gpu for gpu in self.gpus if self.open and not gpu.jobs and not gpu.closed]

    def answers(self, now: float) -> str:
        """Return which GPUs of the node do not answer, since when and why, in words; "" when all
        do.
        """
        closed = [(gpu.index, gpu.closed_since or now, gpu.closed) for gpu in self.silent]
        return closed_words(closed, len(self.gpus), now)


@dataclass(frozen=True, slots=True)
class VcLoad:
    """The load of a virtual cluster.

    Attributes:
        nodes, gpus: what its jobs may run on. free: those that a job may start on.
        closed: GPUs that nobody is on, and on which nothing new starts.
        profiling: GPUs it lends to the profiling partition for good, not counted above.
    """

    vc: str
    nodes: int
    gpus: int
    free: int
    waiting: int
    running: int
    profiling: int = 0
    closed: int = 0


@dataclass(frozen=True, slots=True)
class Share:
    """What a user used of a virtual cluster: ended jobs, GPU-seconds, waits in seconds.

    `user` is "" for the whole virtual cluster.
    """

    vc: str
    user: str
    jobs: int
    gpu_time_s: float
    mean_wait_s: float
    max_wait_s: float


@dataclass(frozen=True, slots=True)
class Day:
    """One day (`day`: its first second, UTC) of ended jobs."""

    day: float
    jobs: int
    failed: int
    gpu_time_s: float
    mean_wait_s: float
    mean_jct_s: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """How forecasts made at submission turned out: share of jobs not later than promised.

    `open`: those whose start was open at submission, p50 and p90 not the same.
    """

    jobs: int
    start_p50: float | None
    start_p90: float | None
    open_jobs: int
    open_start_p50: float | None
    open_start_p90: float | None
    end_jobs: int
    end_p50: float | None
    end_p90: float | None
    unavailable: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """A request that was turned down (operators only)."""

    seq: int
    at: float
    actor: str
    body: Json


@dataclass(frozen=True, slots=True)
class Models:
    """The policy, and the digest of the bundle its scores come from; "": there is none.

    `path`: where it was found on the service's host (operators only).
    """

    policy: str
    bundle: str
    path: str = ""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of the policy, with its present value.

    Attributes:
        accepts: its limits, in words.
        since, actor, reason: when it was given this value (seconds since the epoch), by whom and
            why; None and "": it is as the log began.
    """

    name: str
    value: Any
    default: Any
    unit: str
    accepts: str
    description: str
    since: float | None = None
    actor: str = ""
    reason: str = ""
