"""Waiting jobs, and the queue of a virtual cluster in which they wait."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from features.job import Job, Profile
from features.progress import Progress
from scheduler.core.decisions import Evidence, PairPrediction, Reason, Score
from scheduler.core.durations import Duration, of_plain, plain, seconds_of
from scheduler.core.estimates import Estimate
from scheduler.core.findings import Partner
from scheduler.core.obstacles import Obstacle


class QueuedJob:
    """A job that waits in the queue of its virtual cluster, or that runs, with what the core knows
    of it.

    Attributes:
        seq: number of the job by order of arrival.
        priority: jobs with a higher one go first, whatever the policy's key; 0 unless an operator
            set it.
        key: the queue is sorted by it, smallest first, and by `seq` where keys are equal.
        estimate_s, score: predicted duration and its terms, where the policy uses them.
        profile: the measured profile, the job's own or one taken over from a similar job; None when
            it has none.
        progress: the job's own report of how far it is; None where it reports nothing.
        profiled: whether the job has been in the profiling partition.
        outlived_s: its longest run after which it had not ended (for example while it was
            profiled), seconds.
        pair_prediction: the prediction for the pair in which it was packed; None when it was not.
        reason: why it waited when last considered, as others see it.
        obstacle: why it waited when last considered, as policies use it.
        evidence: further numbers behind its place in line, by name.
        considered: the best partner that the policy found when it last searched for one.
        submit_time: when it began to wait: its submission, plus the time for which it was held.
        held_since: time since when it is held; None: it is not.
        type_costs: speed and cost by GPU type, when it was last placed among several types.
        predicted_mib: memory that it is predicted to take on a GPU, MiB, where the policy packs
            jobs that were not profiled; a profile overrules it.
        usual: the usual profile of similar jobs, used as long as the job has none of its own.
    """

    __slots__ = (
        "_reason",
        "considered",
        "estimate_s",
        "evidence",
        "held_since",
        "job",
        "key",
        "obstacle",
        "outlived_s",
        "pair_prediction",
        "predicted_mib",
        "priority",
        "profile",
        "profiled",
        "progress",
        "score",
        "seq",
        "submit_time",
        "type_costs",
        "usual",
    )

    def __init__(self, job: Job, seq: int, priority: int = 0):
        self.job = job
        self.seq = seq
        self.priority = priority
        self.key = 0.0
        self.estimate_s: Duration | None = None
        self.score: Score | None = None
        self.profile: Profile | None = None
        self.progress: Progress | None = None
        self.profiled = False
        self.outlived_s = 0.0
        self.pair_prediction: PairPrediction | None = None
        self._reason: Reason | None = None
        self.obstacle: Obstacle | None = None
        self.evidence: Evidence = ()
        self.considered: Partner | None = None
        self.type_costs: Evidence = ()
        self.predicted_mib: float | None = None
        self.usual: Profile | None = None
        self.submit_time = job.submit_time
        self.held_since: float | None = None

    def believe(self, estimate: Estimate) -> None:
        """Use `estimate` as the job's predicted duration from now on."""
        self.estimate_s, self.score = estimate.seconds, estimate.score
        self.outlived_s = max(self.outlived_s, estimate.outlived_s)

    @property
    def predicted_s(self) -> float | None:
        """The predicted duration as a number; None: there is none."""
        return None if self.estimate_s is None else seconds_of(self.estimate_s)

    @property
    def reason(self) -> Reason | None:
        """Why the job waited when last considered; None: it was not considered since it joined its
        queue, or since its prediction changed."""
        return self._reason

    @reason.setter
    def reason(self, reason: Reason | None) -> None:
        self.waits_for(reason, None)

    def waits_for(self, reason: Reason | None, obstacle: Obstacle | None) -> None:
        """Record why the job waits, as found when it was considered."""
        self._reason, self.obstacle = reason, obstacle

    @property
    def memory_mib(self) -> float | None:
        """Memory that the job uses on one GPU, MiB, measured or predicted; None when unknown."""
        likely = self.likely
        return self.predicted_mib if likely is None else likely.gpu_mem_mib

    @property
    def likely(self) -> Profile | None:
        """The job's measured profile, else the usual profile of its user's jobs; None when neither
        is known.
        """
        return self.usual if self.profile is None else self.profile

    def __lt__(self, other: QueuedJob) -> bool:
        if self.priority != other.priority:
            return self.priority > other.priority
        if self.key != other.key:
            return self.key < other.key
        return self.seq < other.seq


@dataclass(slots=True, kw_only=True)
class JobMemory:
    """A plain record of a job that has not ended; see `QueuedJob`. `estimate_s` is as
    `durations.plain` returns it."""

    job: Job
    seq: int
    priority: int
    key: float
    estimate_s: tuple[float, ...] | None
    score: Score | None
    profile: Profile | None
    progress: Progress | None
    profiled: bool
    pair_prediction: PairPrediction | None
    reason: Reason | None
    obstacle: Obstacle | None
    evidence: Evidence
    considered: Partner | None
    type_costs: Evidence
    predicted_mib: float | None
    usual: Profile | None
    submit_time: float
    held_since: float | None
    outlived_s: float

    @classmethod
    def of(cls, queued: QueuedJob) -> JobMemory:
        """Return the plain record of a job."""
        found = {name.lstrip("_"): getattr(queued, name) for name in QueuedJob.__slots__}
        if queued.estimate_s is not None:
            found["estimate_s"] = plain(queued.estimate_s)
        return cls(**found)

    def restored(self) -> QueuedJob:
        """Return the job that this record describes."""
        queued = QueuedJob(self.job, self.seq, self.priority)
        for name in QueuedJob.__slots__:
            setattr(queued, name, getattr(self, name.lstrip("_")))
        queued.estimate_s = None if self.estimate_s is None else of_plain(self.estimate_s)
        return queued


def _place(queued: QueuedJob) -> tuple[int, float, int]:
    """Return what a queue is sorted by, as `QueuedJob.__lt__` compares."""
    return -queued.priority, queued.key, queued.seq


class Index(Protocol):
    """Data that a policy keeps about a queue's jobs. The queue calls these methods on each
    change."""

    def joined(self, queued: QueuedJob) -> None: ...
    def left(self, queued: QueuedJob) -> None: ...
    def reordered(self) -> None: ...


class Queue:
    """The jobs that wait in one virtual cluster, sorted by priority and key.

    Attributes:
        fresh: jobs that joined since the last turn (round of decisions on this queue).
        resorted: whether keys changed since the last `Waiting.rekeyed`.
        index: notified of the jobs that join and leave; None: no policy asked for that.
    """

    def __init__(self) -> None:
        self._jobs: list[QueuedJob] = []
        self.fresh: list[QueuedJob] = []
        self.resorted = False
        self.index: Index | None = None

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[QueuedJob]:
        return iter(self._jobs)

    def __getitem__(self, index: int) -> QueuedJob:
        return self._jobs[index]

    def add(self, queued: QueuedJob) -> None:
        self.insert(queued)
        self.fresh.append(queued)

    def extend(self, jobs: Sequence[QueuedJob]) -> None:
        """Add jobs, as `add` does with each of them in turn."""
        if self.index is None:
            self._jobs = sorted([*self._jobs, *jobs], key=_place)
            self.fresh += jobs
        else:
            for queued in jobs:
                self.add(queued)

    def insert(self, queued: QueuedJob) -> None:
        """Put a job back into its place in the queue."""
        insort(self._jobs, queued)
        if self.index is not None:
            self.index.joined(queued)

    def __contains__(self, queued: object) -> bool:
        if not isinstance(queued, QueuedJob):
            return False
        index = bisect_left(self._jobs, queued)
        return index < len(self._jobs) and self._jobs[index] is queued

    def remove(self, queued: QueuedJob) -> None:
        index = bisect_left(self._jobs, queued)
        if index >= len(self._jobs) or self._jobs[index] is not queued:
            raise ValueError(f"job {queued.job.job_id} is not in this queue")
        del self._jobs[index]
        if self.index is not None:
            self.index.left(queued)

    def replace(self, jobs: list[QueuedJob]) -> None:
        """Replace the waiting jobs by `jobs`, and sort them. Used by policies that change keys."""
        self._jobs = sorted(jobs, key=_place)
        self.resorted = True
        if self.index is not None:
            self.index.reordered()

    def restore(self, jobs: list[QueuedJob], fresh: list[QueuedJob], *, resorted: bool) -> None:
        """Replace the waiting jobs (sorted already), `fresh` and `resorted` by the given ones."""
        self._jobs, self.fresh, self.resorted = jobs, fresh, resorted

    def restricted_to(self, kept: Collection[str]) -> Queue:
        """Return a queue with only those of these jobs that are in `kept`."""
        found = Queue()
        found._jobs = [queued for queued in self._jobs if queued.job.job_id in kept]
        found.fresh = [queued for queued in self.fresh if queued.job.job_id in kept]
        found.resorted = self.resorted
        return found

    def position(self, queued: QueuedJob) -> int:
        """Return the job's place in line, from 1."""
        return bisect_left(self._jobs, queued) + 1
