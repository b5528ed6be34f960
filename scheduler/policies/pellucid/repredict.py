"""When the durations of waiting jobs are predicted again.

In a long queue, jobs were predicted long ago, and many in a burst, before similar jobs had ended.
So where a virtual cluster's queue holds more predicted work than it can do in one period, its jobs
are predicted again once in each period.

All of them are predicted at one time, since jobs that are predicted at different times would
overtake each other because of what was learned in between. What a user submitted later tells
nothing about a job that waits since before: a retry that fails in seconds would make the long job
that was sent for the night look short. So a job is predicted again only as long as no job has ended
that its user submitted more than a period after it.

Jobs of one owner with equal requests get equal predictions, whenever each was submitted: a job that
joins gets the prediction of the equal ones that wait, and when one of them ends, all are predicted
again.
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
# A job is predicted again once so many times as many jobs like it have ended as at the prediction
# before: the hundredth end tells less than the second.
GROWN = 1.25

Request = tuple[Any, ...]  # what a job asks for, as plain values
Group = list[QueuedJob]  # jobs that get the same prediction


@dataclass(slots=True, kw_only=True)
class LineMemory:
    """A plain record of one group of equal waiting jobs; see `Alike`."""

    jobs: list[str]
    seen: int | None
    due: int | None
    as_of: int | None


@dataclass(slots=True, kw_only=True)
class AlikeMemory:
    """A plain record of the groups of equal waiting jobs.

    Attributes:
        lines: the groups.
        ends: how many jobs have ended so far.
        news: maps a virtual cluster to those of its groups (places in `lines`) that are to be
            predicted again, in order.
    """

    lines: list[LineMemory]
    ends: int
    news: dict[str, list[int]]


class Alike:
    """Waiting jobs grouped by owner and request. Without a known owner, or with an estimator that
    may predict equal jobs differently, each job is alone in its group."""

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
        """Return a plain record of the groups."""
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
        """Restore what `remember` returned; `jobs` are all jobs that have not ended, by id."""
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
        """Return the estimator for a job that joins its queue.

        If an equal job waits, this is an estimator that repeats its prediction. Otherwise, or if
        the equal jobs are about to be predicted again, return `estimator`.
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
        """Add a job that joined its queue to its group. `estimator` is the one that predicted it,
        as returned by `asked`."""
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
        """Remove a job that no longer waits from its group."""
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
        """Count the end of a job. After enough ends of one kind, its waiting jobs are marked to be
        predicted again."""
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
        """Mark every waiting job to be predicted again, because the estimator has new models."""
        for request in self._waiting:
            self._news.setdefault(request[0], {})[request] = None

    def due(self, turn: Turn) -> Iterable[QueuedJob]:
        """Yield the waiting jobs of a virtual cluster that are to be predicted again, because
        similar jobs ended or the models changed. They are no longer marked then."""
        for request in self._news.pop(turn.vc, ()):
            self._as_of[request] = self._ends
            yield from (one for one in self._waiting[request].values() if one in turn.queue)

    def groups(self, jobs: Iterable[QueuedJob]) -> Iterator[Group]:
        """Yield the given waiting jobs in groups that get one prediction, in the order of the first
        job of each group."""
        found: dict[object, Group] = defaultdict(list)
        for queued in jobs:
            request = self._of.get(queued.job.job_id)
            alike = queued.job.job_id if request is None else (request, _as_seen(queued))
            found[alike].append(queued)
        yield from found.values()


def _request(job: Job) -> Request:
    """Return a job's request as a tuple that is equal for equal jobs. It begins with the virtual
    cluster; the last two parts are the digest of the command and what the owner expects."""
    work = "" if job.work is None else repr(job.work)
    asked = job.cpus, job.memory_mib, job.gpu_type, job.time_limit_s, job.share, job.profile
    return job.vc, job.user, job.name, job.gpus, work, *asked, job.like, job.expect


def _kind(request: Request) -> Request:
    """Return a request without its last two parts: the digest of the command, and what the owner
    expects."""
    return request[:-2]


def _whose(job: Job) -> str:
    """Return the key under which a job's history is kept: its user, otherwise its name, otherwise
    ""."""
    return job.user or job.name


def _as_seen(queued: QueuedJob) -> tuple[object, ...]:
    """Return what was observed of a job itself: its profile, its progress, and its longest run
    without an end."""
    return queued.profile, queued.progress, queued.outlived_s


@dataclass(slots=True, kw_only=True)
class RepredictMemory:
    """A plain record of the state of `Repredict`.

    Attributes:
        last: maps a virtual cluster to the time when its jobs were predicted last.
        newest: maps a user to the latest submission time among the user's jobs that have ended.
        heard: maps a virtual cluster to the users (or job names) of which a job ended since `last`.
        alike: the groups of equal waiting jobs.
    """

    last: dict[str, float]
    newest: dict[str, float]
    heard: dict[str, list[str]] = field(default_factory=dict)  # none in snapshots of version 5
    alike: AlikeMemory


class Repredict:
    """Decides which waiting jobs are predicted again, and when.

    Args:
        period_s: the jobs of a virtual cluster are predicted at most once in this many seconds; 0:
            never again.
    """

    def __init__(self, period_s: float):
        self.period_s = period_s
        self._last: dict[str, float] = {}  # by virtual cluster: when its jobs were predicted last
        self._newest: dict[str, float] = {}  # by user: the latest submission that has ended
        # by virtual cluster: of whom a job ended since its jobs were predicted last
        self._heard: defaultdict[str, set[str]] = defaultdict(set)
        self.alike = Alike()

    def remember(self) -> RepredictMemory:
        """Return a plain record of the state of this object."""
        return RepredictMemory(
            last=dict(self._last),
            newest=dict(self._newest),
            heard={vc: sorted(users) for vc, users in self._heard.items()},
            alike=self.alike.remember(),
        )

    def restore(self, memory: RepredictMemory, jobs: Mapping[str, QueuedJob]) -> None:
        """Restore what `remember` returned; `jobs` are all jobs that have not ended, by id."""
        self._last, self._newest = dict(memory.last), dict(memory.newest)
        for vc, users in memory.heard.items():
            self._heard[vc] = set(users)
        self.alike.restore(memory.alike, jobs)

    def take_over(self, other: Repredict) -> None:
        """Take over the state of another `Repredict`: when jobs were predicted, what ended since,
        and the groups."""
        self._last, self._newest = other._last, other._newest
        self._heard, self.alike = other._heard, other.alike

    def ended(self, job: Job) -> None:
        """Record that a job ended, of which the estimator has learned already."""
        self.alike.ended(job)
        if job.user:  # nobody knows what is whose: jobs without a user are not all of one
            self._newest[job.user] = max(job.submit_time, self._newest.get(job.user, -inf))
        if whose := _whose(job):
            self._heard[job.vc].add(whose)

    def due(self, turn: Turn) -> list[Group]:
        """Return the jobs of the turn's virtual cluster that are to be predicted again now, in
        groups that get one prediction."""
        heard_of = self._heard.pop(turn.vc, ()) if self._is_time(turn) else ()
        periodic = [one for one in turn.queue if _whose(one.job) in heard_of] if heard_of else []
        groups = [group for group in self.alike.groups(periodic) if self._apply(group)]
        chosen = {queued.job.job_id for queued in chain.from_iterable(groups)}
        heard = [one for one in self.alike.due(turn) if one.job.job_id not in chosen]
        groups += self.alike.groups(heard)
        groups = [[one for one in group if not is_starving(one)] for group in groups]
        return [group for group in groups if group]

    def _is_time(self, turn: Turn) -> bool:
        """Return whether the period of a virtual cluster is over and its queue holds more than one
        period's work. If the period is over, begin the next one."""
        if not self.period_s:
            return False
        if turn.now - self._last.setdefault(turn.vc, turn.now) < self.period_s:
            return False
        self._last[turn.vc] = turn.now
        work = sum((queued.predicted_s or 0.0) * queued.job.gpus for queued in turn.queue)
        return work >= self.period_s * turn.pool.gpus

    def _apply(self, group: Group) -> bool:
        """Return whether a group of waiting jobs takes part in the periodic prediction.

        It does not if a job has ended that its user submitted more than a period after the group's
        oldest job.
        """
        newest = self._newest.get(group[0].job.user, -inf)
        return newest <= min(one.submit_time for one in group) + self.period_s
