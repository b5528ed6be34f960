"""What the analyst process remembers besides the core: predictions, durations, arrivals."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from features.job import Job, Profile
from features.progress import Progress
from features.states import State
from scheduler.core.core import Core
from scheduler.core.decisions import Evidence
from scheduler.core.durations import Duration, DurationDistribution, Quantiles, Stated
from scheduler.core.estimates import Estimate, Estimator, moved_by, with_progress
from scheduler.core.queue import QueuedJob
from scheduler.core.receipts import Receipt

if TYPE_CHECKING:
    from models.bundle import Bundle

DAY_S = 86_400.0
DAYS = 7  # for which arrivals are remembered
MARKED = 1000  # withdrawn jobs that are kept at least, before they are swept


@dataclass(slots=True)
class SubmittedJob:
    """What is remembered of a submitted job.

    Attributes:
        predicted_s: the prediction that the policy was given; None when there is none.
        started: when it was given GPUs, seconds since the epoch; None while it waits.
        outlived_s: its longest run after which it had not ended (for example while it was
            profiled), seconds.
        ran_s: seconds on GPUs, once it has ended; otherwise None.
        withdrawn: whether it left without having run.
    """

    job: Job
    predicted_s: Duration | None = None
    profile: Profile | None = None
    started: float | None = None
    ran_s: float | None = None
    withdrawn: bool = False
    outlived_s: float = 0.0


class Memory(Estimator):
    """An estimator that passes every event and question on to another one, and remembers the
    events.

    Make it the estimator of a core before the first event, so that it gets every event that the
    other one gets. Its size is bounded: arrivals older than `DAYS` days are dropped.

    Args:
        inner: the other estimator.
        asks: whether to ask for a prediction of every submitted job, for policies that do not ask.
    """

    def __init__(
        self,
        inner: Estimator,
        *,
        durations: DurationDistribution | None = None,
        asks: bool = False,
    ):
        self.inner = inner
        self.name = inner.name
        self.of_requests = inner.of_requests
        self.asks = asks
        self.durations = durations or DurationDistribution()
        self.arrivals: deque[SubmittedJob] = deque()  # of the last days, oldest first; see `came`
        self.first: float | None = None  # when the first job was submitted
        self._live: dict[str, SubmittedJob] = {}  # not ended
        self._marked = 0  # withdrawn since they were swept last

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def of(self, job_id: str) -> SubmittedJob | None:
        """Return what is remembered of a job that has not ended; None of any other."""
        return self._live.get(job_id)

    def live(self) -> Mapping[str, SubmittedJob]:
        """Return what is remembered of all jobs that have not ended."""
        return self._live

    def believed(self, queued: QueuedJob) -> SubmittedJob:
        """Return the data from which a waiting or running job's duration is predicted. The job's
        reported progress replaces its prediction."""
        past = self._live.get(queued.job.job_id)
        outlived_s = queued.outlived_s
        if past is None:
            found = SubmittedJob(queued.job, queued.estimate_s, queued.profile)
            return replace(found, outlived_s=outlived_s)
        past = replace(past, outlived_s=outlived_s) if outlived_s else past
        if isinstance(queued.estimate_s, Stated):
            return replace(past, predicted_s=queued.estimate_s)
        if queued.progress is None:
            return past
        # a policy that asks for no estimates, as Slurm's
        before: Duration = queued.progress.total_s
        before = before if past.predicted_s is None else past.predicted_s
        return replace(past, predicted_s=with_progress(Estimate(before), queued.progress).seconds)

    def recall(self, past: SubmittedJob) -> None:
        """Add a job that was submitted before this memory began; if it has ended, learn its
        duration. Call it in order of submission."""
        if self.first is None:
            self.first = past.job.submit_time
        self.arrivals.append(past)
        if past.ran_s is None:
            self._live[past.job.job_id] = past
        else:
            self.durations.learn(past.predicted_s, past.ran_s)

    def predicted(self, job: Job, now: float) -> Duration | None:
        """Return the predicted duration of a job as if it were submitted now, or None where nothing
        predicts it. Asking changes no later prediction.

        For a job that was submitted already, return the prediction that it would get if it were
        changed now to the request `job`.
        """
        past = self._live.get(job.job_id)
        try:
            if past is None or past.predicted_s is None:
                asked = replace(job, job_id=f"{job.job_id}?", submit_time=now)
                return self.inner.estimate(asked if past is None else job, now).seconds
            was, new = self.inner.as_changed(past.job, job, now)
        except LookupError:
            return None
        return moved_by(Estimate(past.predicted_s), was.plain, new.plain).seconds

    def quantiles(
        self, past: SubmittedJob, elapsed_s: float = 0.0, core: Core | None = None
    ) -> Quantiles:
        """Return quantiles of a job's total duration in seconds, given that it has run `elapsed_s`
        seconds, or what it has outlived, if longer. They are cut at its time limit.
        """
        believed = self.believed_by(core)
        least_s = max(elapsed_s, past.outlived_s)
        return believed.quantiles(past.predicted_s, least_s, past.job.time_limit_s)

    def receipt(
        self, past: SubmittedJob, elapsed_s: float = 0.0, core: Core | None = None
    ) -> Receipt:
        """Return the inputs of the quantiles that `quantiles` returns for the same arguments."""
        least_s = max(elapsed_s, past.outlived_s)
        limit_s = past.job.time_limit_s
        return self.believed_by(core).receipt(past.predicted_s, least_s, limit_s)

    def believed_by(self, core: Core | None) -> DurationDistribution:
        """Return the distribution of durations by which a core decides. Where it has none, or its
        durations refer to a reference GPU type, return the distribution learned in this object."""
        if core is None or core.policy.distribution is None or core.cluster.spec.mixes_types:
            return self.durations
        return core.policy.distribution

    def profiles(self) -> Iterable[Profile]:
        """Yield the profiles of recently submitted jobs, where they have one."""
        return (past.profile for past in self.came() if past.profile is not None)

    def came(self) -> Iterable[SubmittedJob]:
        """Yield the recently submitted jobs, oldest first, without those that were withdrawn."""
        return (past for past in self.arrivals if not past.withdrawn)

    # --- the estimator ----------------------------------------------------------------------

    def submitted(self, job: Job, now: float) -> None:
        self.inner.submitted(job, now)
        past = self._live[job.job_id] = SubmittedJob(job)
        if self.asks:
            with suppress(LookupError):
                past.predicted_s = self.inner.enqueued(job, now).seconds
        self.arrivals.append(past)
        if self.first is None:
            self.first = now
        while self.arrivals and self.arrivals[0].job.submit_time < now - DAYS * DAY_S:
            self.arrivals.popleft()

    def changed(self, job: Job, now: float) -> None:
        self.inner.changed(job, now)
        past = self._live[job.job_id]
        if past.job.gpus != job.gpus:
            past.profile = None
        past.job = job
        if self.asks:
            with suppress(LookupError):
                past.predicted_s = self.inner.enqueued(job, now).seconds

    def started(self, job_id: str, now: float) -> None:
        self.inner.started(job_id, now)
        self._live[job_id].started = now

    def stopped(self, job_id: str, now: float) -> None:
        self.inner.stopped(job_id, now)
        self._live[job_id].started = None

    def profiled(self, job_id: str, profile: Profile, now: float) -> None:
        self.inner.profiled(job_id, profile, now)
        self._live[job_id].profile = profile

    def profiling(self, job_id: str, now: float) -> None:
        self.inner.profiling(job_id, now)

    def outlived(self, job_id: str, now: float) -> None:
        self.inner.outlived(job_id, now)

    def tempered(self, job: Job, progress: Progress) -> Progress:
        return self.inner.tempered(job, progress)

    def progressed(self, job_id: str, progress: Progress, now: float) -> None:
        self.inner.progressed(job_id, progress, now)

    def ended(self, job_id: str, state: State, duration_s: float, now: float) -> None:
        self.inner.ended(job_id, state, duration_s, now)
        past = self._live.pop(job_id)
        past.ran_s = duration_s
        self.durations.learn(past.predicted_s, duration_s)

    def withdrawn(self, job_id: str, now: float) -> None:
        self.inner.withdrawn(job_id, now)
        self._live.pop(job_id).withdrawn = True
        self._marked += 1
        if self._marked > max(MARKED, len(self.arrivals) // 2):  # seldom enough to cost nothing
            self.arrivals, self._marked = deque(self.came()), 0

    def use(self, bundle: Bundle) -> None:
        self.inner.use(bundle)

    def decided_with(self, job_id: str, estimate: Estimate) -> None:
        self.inner.decided_with(job_id, estimate)
        past = self._live.get(job_id)
        if past is not None:
            past.predicted_s = estimate.seconds

    def as_changed(self, job: Job, to: Job, now: float) -> tuple[Estimate, Estimate]:
        return self.inner.as_changed(job, to, now)

    def rests_on(self, job: Job) -> Evidence:
        return self.inner.rests_on(job)

    def estimate(self, job: Job, now: float) -> Estimate:
        return self.inner.estimate(job, now)

    def enqueued(self, job: Job, now: float) -> Estimate:
        estimate = self.inner.enqueued(job, now)
        past = self._live.get(job.job_id)
        if past is not None:
            past.predicted_s = estimate.seconds
        return estimate
