"""The records that the queries of `service.log.store.reads` return."""

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
    """Some rows of a list, and the cursor with which to ask for the next ones; None where there are
    no more.
    """

    items: list[T]
    next: str | None = None


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """One place in the queue of a virtual cluster.

    Of a job that the viewer may not see, only the place is shown: `job` is None and `label` says
    "another job".
    """

    vc: str
    position: int
    label: str
    job: JobRow | None = None


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU and the jobs on it. Jobs that may not be shown appear as "another job".

    Attributes:
        closed: why nothing new starts on the GPU though its node is open: it does not answer; ""
            when it does.
        closed_since: since when it does not answer, seconds since the epoch.
    """

    index: int
    jobs: list[str] = field(default_factory=list)
    closed: str = ""
    closed_since: float | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """One node, as the viewer may see it.

    Attributes:
        open: whether something new may start there; False where the node is drained.
        profiling: whether it is lent to the profiling partition for good.
        change: what becomes of the node once nothing runs there, in words; "" = nothing.
        reason, actor, since: why, by whom (operators only) and since when the node is drained.
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
        """Return in words why the node is drained and by whom; "" when it is open."""
        return "" if self.open else drained_words(self.actor, self.reason, self.change)

    @property
    def silent(self) -> list[Gpu]:
        """Return the GPUs of the node that do not answer."""
        return [gpu for gpu in self.gpus if gpu.closed]

    @property
    def free(self) -> list[Gpu]:
        """Return the GPUs of the node that have no job and on which a job may start."""
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
        nodes, gpus: nodes and GPUs on which its jobs may run. free: GPUs on which a job may start
            now.
        closed: GPUs without jobs on which nothing new starts.
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
    """Figures of the jobs that ended on one day. `day`: its first second (UTC), since the epoch."""

    day: float
    jobs: int
    failed: int
    gpu_time_s: float
    mean_wait_s: float
    mean_jct_s: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """How forecasts made at submission turned out: the shares of jobs that started or ended no
    later than forecast. The fields `open_...` count only jobs with an uncertain start, for which
    p50 and p90 differed.
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
    """A request that the service refused; shown to operators only."""

    seq: int
    at: float
    actor: str
    body: Json


@dataclass(frozen=True, slots=True)
class Models:
    """The policy, and the digest of the bundle of models that makes its scores; "": there is none.

    `path`: where the bundle was found on the service's host (operators only).
    """

    policy: str
    bundle: str
    path: str = ""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of the policy, with its present value.

    Attributes:
        accepts: the accepted values, in words.
        since, actor, reason: when the setting got this value (seconds since the epoch), by whom and
            why; None and "": it has had the value since the log began.
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
