"""Waiting jobs, and the queue in which they wait."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterator
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
    """A job waiting in the queue of its virtual cluster.

    Attributes:
        priority: higher goes first, whatever the policy's key; 0 unless an operator set it.
        key: the queue is sorted by it, smallest first; ties by `seq` (order of arrival).
        estimate_s, score: predicted duration and its terms, when the policy uses them.
        profile: what profiling saw; None when the job was not profiled.
        progress: how long it runs, by its own account; None where it says nothing.
        profiled: it has been in the profiling partition.
        outlived_s: its longest run after which it had not ended, as when profiled, seconds.
        pair_prediction: the prediction for the pair it was packed in; None when it was not.
        reason: why it waited when last evaluated; `obstacle`: the same for who decides by it.
        evidence: further numbers behind its place in line, by name.
        considered: the best partner that the policy considered when it last searched for one.
        submit_time: when it began to wait: later than its submission by what it was held.
        held_since: since when it is kept back; None: it is not.
        type_costs: speed and cost by GPU type, when it was last placed among several.
        predicted_mib: memory it is believed to take on a GPU, MiB, by a policy that packs jobs
            nobody has profiled; a profile overrules it.
        usual: what jobs like it were seen to do, believed of it for as long as it has no profile.
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
        """Set the predicted duration of the job from now on."""
        self.estimate_s, self.score = estimate.seconds, estimate.score
        self.outlived_s = max(self.outlived_s, estimate.outlived_s)

    @property
    def predicted_s(self) -> float | None:
        """The predicted duration as a number; None: there is none."""
        return None if self.estimate_s is None else seconds_of(self.estimate_s)

    @property
    def reason(self) -> Reason | None:
        """Why the job waited when last evaluated; None: it has not been evaluated since it
        joined.
        """
        return self._reason

    @reason.setter
    def reason(self, reason: Reason | None) -> None:
        self.waits_for(reason, None)

    def waits_for(self, reason: Reason | None, obstacle: Obstacle | None) -> None:
        """Record why the job waits, after it was evaluated."""
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
    """A job that has not ended, as a plain record; see `QueuedJob`. `estimate_s` is as
    `durations.plain` returns it.
    """

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
        """Return the job as a plain record."""
        found = {name.lstrip("_"): getattr(queued, name) for name in QueuedJob.__slots__}
        if queued.estimate_s is not None:
            found["estimate_s"] = plain(queued.estimate_s)
        return cls(**found)

    def restored(self) -> QueuedJob:
        """Return the job that this record was made of."""
        queued = QueuedJob(self.job, self.seq, self.priority)
        for name in QueuedJob.__slots__:
            setattr(queued, name, getattr(self, name.lstrip("_")))
        queued.estimate_s = None if self.estimate_s is None else of_plain(self.estimate_s)
        return queued


class Index(Protocol):
    """What a policy keeps beside a queue. The queue calls it on each change."""

    def joined(self, queued: QueuedJob) -> None: ...
    def left(self, queued: QueuedJob) -> None: ...
    def reordered(self) -> None: ...


class Queue:
    """Jobs waiting in one virtual cluster, sorted by priority and key.

    Attributes:
        fresh: joined since the last turn.
        resorted: keys changed since the last `Waiting.rekeyed`.
        index: is notified of who joins and leaves; None: nobody asked.
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
        """Replace the waiting jobs, and sort them. Used by policies that change keys."""
        self._jobs = sorted(jobs, key=lambda one: (-one.priority, one.key, one.seq))
        self.resorted = True
        if self.index is not None:
            self.index.reordered()

    def restore(self, jobs: list[QueuedJob], fresh: list[QueuedJob], *, resorted: bool) -> None:
        """Replace the waiting jobs (sorted already), the fresh ones and `resorted`."""
        self._jobs, self.fresh, self.resorted = jobs, fresh, resorted

    def restricted_to(self, kept: Collection[str]) -> Queue:
        """Return a queue of the same jobs without those outside `kept`."""
        found = Queue()
        found._jobs = [queued for queued in self._jobs if queued.job.job_id in kept]
        found.fresh = [queued for queued in self.fresh if queued.job.job_id in kept]
        found.resorted = self.resorted
        return found

    def position(self, queued: QueuedJob) -> int:
        """Return the job's place in line, from 1."""
        return bisect_left(self._jobs, queued) + 1
