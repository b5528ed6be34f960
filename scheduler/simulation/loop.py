"""The event loop: a decision core on a simulated clock.

One loop drives every core. What happens to jobs between two decisions is left to a subclass:
`scheduler.simulation.engine.Engine` for jobs that keep all their GPUs while they run,
`reproductions.allocation.engine.AllocationEngine` for jobs with GPUs, GPU type or batch size that
may change while they run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import Any, NamedTuple, Protocol

from features.job import Job
from scheduler.core.decisions import Decision

# order of events at one instant
END, SUBMIT, WAKE, OBSERVE, PACE, STATE = 0, 1, 2, 3, 4, 5


class DecisionCore(Protocol):
    """The methods of a core that the loop calls: the core receives events with their time, and
    returns decisions.
    """

    def submitted(self, job: Job, now: float) -> None:
        """Receive a job that is submitted at the time `now`."""
        ...

    def wake(self, now: float) -> None:
        """Called at the time that `next_wake` returned."""
        ...

    def next_wake(self, now: float) -> float | None:
        """Return the time at which to call `wake` even if nothing happens before, or None when
        there is no need.
        """
        ...

    def last_wake(self, now: float) -> float | None:
        """Return the time of the next wake-up like `next_wake`; called when no job runs and none
        will be submitted any more.
        """
        ...

    def decide(self, now: float) -> list[Decision]:
        """Take the decisions that are due at `now`, and return them with any taken since the last
        call."""
        ...


class After(NamedTuple):
    """What a submission waits for in a closed loop, where users react to results: it comes
    `think_s` seconds after the end of job `job_id`, or later.
    """

    job_id: str
    think_s: float


@dataclass(slots=True)
class JobResult:
    """The result of one job. `start_time` and `end_time` are seconds since the epoch; None means
    never.

    `job.submit_time` is that of the simulation, which in a closed loop may be later than in the
    trace.
    """

    job: Job
    duration_s: float
    start_time: float | None = None
    end_time: float | None = None
    ran_s: float = 0.0  # seconds on GPUs, profiling apart
    profile_s: float = 0.0  # seconds being profiled
    profile_wait_s: float = 0.0  # waiting to be profiled beside the clock (free profiling only)
    packed: int = 0  # pairings it took part in
    preemptions: int = 0
    resizes: int = 0  # restarts on other GPUs, without a wait between
    ended_in_profiling: bool = False
    refused: bool = False
    estimate_s: float | None = None

    @property
    def jct_s(self) -> float:
        """Return the seconds from the job's submission to its end. Raise ValueError where it has
        not ended.
        """
        if self.end_time is None:
            raise ValueError(f"job {self.job.job_id} has not ended")
        return self.end_time - self.job.submit_time

    @property
    def queue_s(self) -> float:
        """Return the seconds that the job had no GPUs between its submission and its end. Raise
        ValueError where it has not ended."""
        return self.jct_s - self.ran_s - self.profile_s + self.profile_wait_s


@dataclass(slots=True)
class Outcome:
    """The results of a finished simulation."""

    jobs: list[JobResult]
    decisions: int
    packings: int
    preemptions: int
    busy_gpu_s: float  # GPU-seconds during which a GPU held at least one job
    held_back: int = 0  # submissions that waited for an end, in a closed loop
    over_memory: int = 0  # packings that take more memory than there is, and run all the same


class EventLoop(ABC):
    """Runs jobs through a core, event by event.

    Args:
        core: the decision core.
        jobs: the jobs with their durations on exclusive GPUs, in order of submission.
        after: by job id, the end for which a submission waits (`After`); no cycles. A submission
            that waits for an unknown job comes at its own time; one that waits for a refused job
            at its own time or at the refusal, whichever is later.
        sink: called with each batch of decisions as they are taken (by a recorder, say).
        progress: called now and then with the number of jobs ended so far.
    """

    progress_every = 256  # jobs

    def __init__(
        self,
        core: DecisionCore,
        jobs: Iterable[tuple[Job, float]],
        *,
        after: Mapping[str, After] | None = None,
        sink: Callable[[list[Decision]], None] | None = None,
        progress: Callable[[int], None] | None = None,
    ):
        self.sink = sink
        self.progress = progress
        self.results: dict[str, JobResult] = {}
        self._loop_core = core
        self._heap: list[tuple[float, int, int, Any, int]] = []
        self._seq = 0
        self._wake_at: float | None = None
        counted = "decisions", "packings", "over_memory", "preemptions", "ended", "held_back"
        self._counts = dict.fromkeys(counted, 0)
        self._busy_gpu_s = 0.0
        # submissions that wait for the end of a job: (place in the order of submission, job, think)
        self._answers: defaultdict[str, list[tuple[int, Job, float]]] = defaultdict(list)
        for job, duration_s in jobs:
            self.results[job.job_id] = JobResult(job, duration_s)
        for result in self.results.values():
            self._expect(result.job, (after or {}).get(result.job.job_id))

    def run(self) -> Outcome:
        """Simulate until no event is left. Return the results."""
        heap, core = self._heap, self._loop_core
        while heap:
            now = heap[0][0]
            while heap and heap[0][0] == now:
                _, kind, _, what, version = heappop(heap)
                if kind == SUBMIT:
                    core.submitted(what, now)
                elif kind != WAKE:
                    self._happened(kind, what, version, now)
                elif self._wake_at == now:
                    self._wake_at = None
                    core.wake(now)
            decisions = core.decide(now)
            if decisions:
                self._counts["decisions"] += len(decisions)
                self._carry_out(decisions, now)
                if self.sink is not None:
                    self.sink(decisions)
            self._decided(now)
            self._plan_wake(now)
        return Outcome(
            jobs=list(self.results.values()),
            decisions=self._counts["decisions"],
            packings=self._counts["packings"],
            preemptions=self._counts["preemptions"],
            busy_gpu_s=self._busy_gpu_s,
            held_back=self._counts["held_back"],
            over_memory=self._counts["over_memory"],
        )

    # --- what a kind of job makes of it -----------------------------------------------------

    @abstractmethod
    def _happened(self, kind: int, what: Any, version: int, now: float) -> None:
        """Handle an event that is due and that the subclass had scheduled. `kind`, `what` and
        `version` are as scheduled.
        """

    @abstractmethod
    def _carry_out(self, decisions: list[Decision], now: float) -> None:
        """Carry out decisions on the simulated jobs, at the time `now`."""

    def _decided(self, now: float) -> None:  # noqa: B027 (most need not know)
        """Called each time the core was asked to decide, with or without decisions. Does nothing
        unless a subclass needs it.
        """

    @abstractmethod
    def _anything_running(self) -> bool: ...

    # --- clock ------------------------------------------------------------------------------

    def _push(self, time: float, kind: int, what: Any, version: int = 0) -> None:
        heappush(self._heap, (time, kind, self._seq, what, version))
        self._seq += 1

    def _plan_wake(self, now: float) -> None:
        core = self._loop_core
        going_on = self._heap or self._anything_running()
        # else nothing is left to happen, unless a lent node is still to come home to a job
        wake = core.next_wake(now) if going_on else core.last_wake(now)
        if wake is not None and (self._wake_at is None or wake < self._wake_at):
            self._wake_at = wake
            self._push(wake, WAKE, None)

    # --- what is submitted, and when --------------------------------------------------------

    def _expect(self, job: Job, after: After | None) -> None:
        """Schedule the submission of a job: at its own time, or after the end of the job for which
        it waits (`after`).
        """
        if after is None or after.job_id not in self.results:
            self._push(job.submit_time, SUBMIT, job)
            return
        self._answers[after.job_id].append((self._seq, job, after.think_s))
        self._seq += 1

    def _answered(self, job_id: str, now: float, *, at_once: bool = False) -> None:
        """Schedule the submissions that wait for the end of job `job_id`. `at_once`: without think
        time. Jobs of the same time keep their order.
        """
        for place, job, think_s in self._answers.pop(job_id, ()):
            moment = max(job.submit_time, now + (0.0 if at_once else think_s))
            if moment > job.submit_time:
                job = replace(job, submit_time=moment)
                self.results[job.job_id].job = job
                self._counts["held_back"] += 1
            heappush(self._heap, (moment, SUBMIT, place, job, 0))

    def _ended(self, job_id: str, now: float) -> None:
        """Count a job as ended, and schedule the submissions that waited for its end."""
        self._answered(job_id, now)
        self._counts["ended"] += 1
        if self.progress is not None and self._counts["ended"] % self.progress_every == 0:
            self.progress(self._counts["ended"])

    def _refused(self, job_id: str, now: float) -> None:
        """Mark a job as refused, and schedule the submissions that waited for its end, without
        think time.
        """
        self.results[job_id].refused = True
        self._answered(job_id, now, at_once=True)
