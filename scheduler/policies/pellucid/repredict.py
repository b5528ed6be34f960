"""When the durations of waiting jobs are predicted again.

Where a queue is deep its jobs were predicted long ago: of a burst submitted at one instant, before
anything was known of such jobs. So a virtual cluster whose queue holds more predicted work than it
does in a period has its jobs predicted again once in that period.

All at once: jobs predicted at different moments take each other's places by what happened in
between. And what a user submitted later says nothing of a job that has waited since before: a
retry that failed in seconds makes the long job that was sent for the night look short. So a job is
asked about only while no job has ended that its user submitted more than a period after it.

Jobs of one owner that ask for the same are predicted alike, whenever each was submitted: one that
joins is believed as those that wait, and the end of one of them is news of all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from math import inf
from typing import Any, ClassVar

from features.job import Job
from scheduler.core.estimates import Estimate, Estimator, Known
from scheduler.core.queue import QueuedJob
from scheduler.core.turn import Turn
from scheduler.policies.pellucid.reservation import is_starving

# A prediction within this ratio of the one before is the same one.
SAME = 1.03
# The ends of a job's like are news again once they are so many times as many: the hundredth tells
# less than the second.
GROWN = 1.25

Request = tuple[Any, ...]  # plain values
Group = list[QueuedJob]  # jobs of one prediction


@dataclass(slots=True, kw_only=True)
class LineMemory:
    """Jobs that are alike, as a plain record; see `Alike`."""

    jobs: list[str]
    seen: int | None
    due: int | None
    as_of: int | None


@dataclass(slots=True, kw_only=True)
class AlikeMemory:
    """The waiting jobs that are alike, as a plain record.

    Attributes:
        lines: jobs that wait, by what they ask for.
        ends: how many jobs have ended so far.
        news: by virtual cluster, which of the lines are to be predicted again, in order.
    """

    lines: list[LineMemory]
    ends: int
    news: dict[str, list[int]]


class Alike:
    """Waiting jobs grouped by what they ask for and by their owner. Without a known owner, or with
    an estimator that may tell equal jobs apart, each job is alone in its group.
    """

    in_copies: ClassVar = "new"  # of a core (`explain.whatif.copies`)

    def __init__(self) -> None:
        self._waiting: dict[Request, dict[str, QueuedJob]] = {}
        self._of: dict[str, Request] = {}  # those who wait: what they ask for
        # requests by kind: whatever the command, and what its owner expects
        self._kinds: dict[Request, dict[Request, None]] = {}
        self._seen: dict[Request, int] = {}  # by kind: ends of those like them, while they wait
        self._due: dict[Request, int] = {}  # by kind: at so many ends they are predicted again
        self._ends = 0
        self._as_of: dict[Request, int] = {}  # all ends, when they were predicted last
        self._news: dict[str, dict[Request, None]] = {}  # to be predicted again, by virtual cluster

    def remember(self) -> AlikeMemory:
        """Return the groups, as a plain record."""
        places = {request: at for at, request in enumerate(self._waiting)}
        lines = [
            LineMemory(
                jobs=list(line),
                seen=self._seen.get(_kind(request)),
                due=self._due.get(_kind(request)),
                as_of=self._as_of.get(request),
            )
            for request, line in self._waiting.items()
        ]
        news = {vc: [places[one] for one in found] for vc, found in self._news.items()}
        return AlikeMemory(lines=lines, ends=self._ends, news=news)

    def restore(self, memory: AlikeMemory, jobs: Mapping[str, QueuedJob]) -> None:
        """Restore what `remember` returned; `jobs` are all that have not ended, by id."""
        requests = [_request(jobs[line.jobs[0]].job) for line in memory.lines]
        for request, line in zip(requests, memory.lines, strict=True):
            self._waiting[request] = {job_id: jobs[job_id] for job_id in line.jobs}
            self._of |= dict.fromkeys(line.jobs, request)
            kind = _kind(request)
            self._kinds.setdefault(kind, {})[request] = None
            for known, of, value in (
                (self._seen, kind, line.seen),
                (self._due, kind, line.due),
                (self._as_of, request, line.as_of),
            ):
                if value is not None:
                    known[of] = value
        self._ends = memory.ends
        self._news = {vc: {requests[at]: None for at in found} for vc, found in memory.news.items()}

    def asked(self, queued: QueuedJob, estimator: Estimator) -> Estimator:
        """Return the estimator for a job that joins its queue. It repeats the prediction of an
        equal waiting job, if there is one. Otherwise, or if equal jobs are about to be predicted
        again, return the given estimator.
        """
        if not estimator.of_requests or not queued.job.user:
            return estimator
        request = _request(queued.job)
        if request in self._news.get(queued.job.vc, ()):
            return estimator
        others = self._waiting.get(request, {}).values()
        like = next((one for one in others if _as_seen(one) == _as_seen(queued)), None)
        if like is None or like is queued or like.estimate_s is None:
            return estimator
        return Known(estimator, Estimate(like.estimate_s, like.score, like.outlived_s))

    def joined(self, queued: QueuedJob, estimator: Estimator) -> None:
        """Group a job that joined its queue, predicted by an estimator."""
        if not estimator.of_requests or not queued.job.user:
            return
        self.left(queued.job.job_id)
        request = self._of[queued.job.job_id] = _request(queued.job)
        line = self._waiting.setdefault(request, {})
        line[queued.job.job_id] = queued
        self._kinds.setdefault(_kind(request), {})[request] = None
        if not isinstance(estimator, Known):  # the others are to know what is known of this one
            if len(line) > 1 and self._as_of[request] != self._ends:
                self._news.setdefault(queued.job.vc, {})[request] = None
            self._as_of[request] = self._ends

    def left(self, job_id: str) -> None:
        """Remove a job that no longer waits."""
        request = self._of.pop(job_id, None)
        if request is None:
            return
        line = self._waiting[request]
        del line[job_id]
        if line:
            return
        for of in (self._waiting, self._as_of, self._news.get(request[0], {})):
            of.pop(request, None)
        kind = _kind(request)
        del self._kinds[kind][request]
        if not self._kinds[kind]:
            for known in (self._kinds, self._seen, self._due):
                known.pop(kind, None)

    def ended(self, job: Job) -> None:
        """Note that a job ended. Enough ends have the waiting jobs of its kind predicted again."""
        self.left(job.job_id)
        self._ends += 1
        kind = _kind(_request(job))
        if kind not in self._kinds:
            return
        seen = self._seen[kind] = self._seen.get(kind, 0) + 1
        if seen >= self._due.get(kind, 0):
            self._due[kind] = max(seen + 1, round(GROWN * seen))
            self._news.setdefault(job.vc, {}).update(self._kinds[kind])

    def models_changed(self) -> None:
        """Have every waiting job predicted again, since another model answers."""
        for request in self._waiting:
            self._news.setdefault(request[0], {})[request] = None

    def due(self, turn: Turn) -> Iterable[QueuedJob]:
        """Return the waiting jobs of a virtual cluster that are to be predicted again, because jobs
        like them ended since the last turn.
        """
        for request in self._news.pop(turn.vc, ()):
            self._as_of[request] = self._ends
            yield from (one for one in self._waiting[request].values() if one in turn.queue)

    def groups(self, jobs: Iterable[QueuedJob]) -> Iterator[Group]:
        """Yield waiting jobs grouped by their prediction, in the order of the first of each
        group.
        """
        found: dict[object, Group] = defaultdict(list)
        for queued in jobs:
            request = self._of.get(queued.job.job_id)
            alike = queued.job.job_id if request is None else (request, _as_seen(queued))
            found[alike].append(queued)
        yield from found.values()


def _request(job: Job) -> Request:
    """Return what a job and all jobs like it ask for, its virtual cluster first; the last two
    parts are the digest of its command and what its owner expects."""
    work = "" if job.work is None else repr(job.work)
    asked = job.cpus, job.memory_mib, job.gpu_type, job.time_limit_s, job.share, job.profile
    return job.vc, job.user, job.name, job.gpus, work, *asked, job.like, job.expect


def _kind(request: Request) -> Request:
    """Return a request without its last two parts: the command, and what the owner expects."""
    return request[:-2]


def _whose(job: Job) -> str:
    """Return the key of a job's history: its user, else its name, else ""."""
    return job.user or job.name


def _as_seen(queued: QueuedJob) -> tuple[object, ...]:
    """Return the observations of a job itself: its profile, its progress, and its longest run
    without an end.
    """
    return queued.profile, queued.progress, queued.outlived_s


@dataclass(slots=True, kw_only=True)
class RepredictMemory:
    """What `Repredict` knows, as a plain record.

    Attributes:
        last: by virtual cluster, when its jobs were predicted last.
        newest: by user, the latest submission that has ended.
        heard: by virtual cluster, users (else names) of whom a job ended since then.
        alike: the waiting jobs that are alike.
    """

    last: dict[str, float]
    newest: dict[str, float]
    heard: dict[str, list[str]] = field(default_factory=dict)  # none in snapshots of version 5
    alike: AlikeMemory


class Repredict:
    """Decides which jobs are predicted again, and when.

    Args:
        period_s: at most once in so many seconds; 0: never.
    """

    def __init__(self, period_s: float):
        self.period_s = period_s
        self._last: dict[str, float] = {}  # by virtual cluster: when its jobs were predicted last
        self._newest: dict[str, float] = {}  # by user: the latest submission that has ended
        # by virtual cluster: of whom a job ended since its jobs were predicted last
        self._heard: defaultdict[str, set[str]] = defaultdict(set)
        self.alike = Alike()

    def remember(self) -> RepredictMemory:
        """Return the state of this object as a plain record."""
        return RepredictMemory(
            last=dict(self._last),
            newest=dict(self._newest),
            heard={vc: sorted(users) for vc, users in self._heard.items()},
            alike=self.alike.remember(),
        )

    def restore(self, memory: RepredictMemory, jobs: Mapping[str, QueuedJob]) -> None:
        """Restore what `remember` returned; `jobs` are all that have not ended, by id."""
        self._last, self._newest = dict(memory.last), dict(memory.newest)
        for vc, users in memory.heard.items():
            self._heard[vc] = set(users)
        self.alike.restore(memory.alike, jobs)

    def take_over(self, other: Repredict) -> None:
        """Take over the state of another `Repredict`."""
        self._last, self._newest = other._last, other._newest
        self._heard, self.alike = other._heard, other.alike

    def ended(self, job: Job) -> None:
        """Note that a job ended, and that the estimator has learned from it."""
        self.alike.ended(job)
        if job.user:  # nobody knows what is whose: jobs without a user are not all of one
            self._newest[job.user] = max(job.submit_time, self._newest.get(job.user, -inf))
        if whose := _whose(job):
            self._heard[job.vc].add(whose)

    def due(self, turn: Turn) -> list[Group]:
        """Return the jobs of this virtual cluster to be predicted again now, grouped by their
        prediction.
        """
        heard_of = self._heard.pop(turn.vc, ()) if self._is_time(turn) else ()
        periodic = [one for one in turn.queue if _whose(one.job) in heard_of] if heard_of else []
        groups = [group for group in self.alike.groups(periodic) if self._apply(group)]
        chosen = {queued.job.job_id for queued in chain.from_iterable(groups)}
        heard = [one for one in self.alike.due(turn) if one.job.job_id not in chosen]
        groups += self.alike.groups(heard)
        groups = [[one for one in group if not is_starving(one)] for group in groups]
        return [group for group in groups if group]

    def _is_time(self, turn: Turn) -> bool:
        """Return whether all who wait are to be predicted again."""
        if not self.period_s:
            return False
        if turn.now - self._last.setdefault(turn.vc, turn.now) < self.period_s:
            return False
        self._last[turn.vc] = turn.now
        work = sum((queued.predicted_s or 0.0) * queued.job.gpus for queued in turn.queue)
        return work >= self.period_s * turn.pool.gpus

    def _apply(self, group: Group) -> bool:
        """Return whether a group joins the periodic prediction.

        It does not once a job has ended that its user submitted over a period after its oldest.
        """
        newest = self._newest.get(group[0].job.user, -inf)
        return newest <= min(one.submit_time for one in group) + self.period_s
