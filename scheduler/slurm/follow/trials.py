"""Trials on a copy of a followed Slurm's queue: a job that is not submitted yet, in every partition
that takes it, and changes of a waiting job, each with its command."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from time import process_time

from features.clock import Clock
from scheduler.core.durations import seconds_of
from scheduler.explain.effect import ClosedPartition, Eta, Sooner, Tried
from scheduler.explain.whatif.forecasts import Futures, StartForecast, WhyNot, too_late
from scheduler.explain.whatif.memory import Memory
from scheduler.explain.whatif.trial import begins
from scheduler.slurm.follow.changes import Change, changes
from scheduler.slurm.follow.checks import Verdict, against_trial, put_back_s
from scheduler.slurm.follow.partitions import closed_to_user
from scheduler.slurm.follow.prices import elsewhere, price
from scheduler.slurm.follow.reasons import by_own_policy, expected
from scheduler.slurm.read.parse import SlurmJob
from scheduler.slurm.read.request import (
    RequestError,
    array_of,
    options_of,
    refusal,
    request,
)
from scheduler.slurm.read.snapshot import ClusterSnapshot, without_start
from scheduler.slurm.reason import own_policy, sentence
from scheduler.slurm.twin.site import Site
from scheduler.slurm.twin.twin import twin_in

NEW = "1000000000"  # the id of a job that is not submitted: none of Slurm's, and last in line
SAMPLES, BUDGET_S = 16, 5.0  # futures of one trial, processor seconds
QUESTION_S = 8.0  # of processor, after which no other trial of a question begins
PATIENT = 2.0  # times as long on a busy host: polls wait for this process, and whoever asked
AT_ONCE = "it would start at once"
ASKING_S, MOST_ASKED = 1.2, 4  # for asking Slurm, of so many offers: as many as are shown
SOONER_S, SOONER = 60.0, 0.9  # what is sooner by less is not shown


class Refused(ValueError):
    """Raised where Slurm would not take the job, or its options cannot be tried. The message is a
    sentence."""


Draw = Callable[[Iterable[SlurmJob], float], ClusterSnapshot]


@dataclass(frozen=True, slots=True)
class Means:
    """The functions and limits that the calling follower passes to its trials.

    Attributes:
        draw: function that builds a core from jobs, and lets it decide.
        own: function that lets Pellucid's own policy decide about jobs; None: that is not asked
            for.
        between: function that is called between two simulated futures.
        put_off: function that corrects a forecast, as for the forecasts that users are shown.
        budget_s: processor seconds of one trial.
        question_s: processor seconds of a question after which no further trial begins.
        against: jobs that start in the copy although Slurm does not start them, each with a text.
        asks: function that runs `sbatch --test-only` with options for a user, within a number of
            seconds, and returns what it prints.
    """

    draw: Draw
    own: Draw | None
    between: Callable[[], object]
    put_off: Callable[[StartForecast], StartForecast]
    budget_s: float = BUDGET_S
    question_s: float = QUESTION_S
    against: Mapping[str, str] = field(default_factory=dict)
    asks: Callable[[Sequence[str], str, float], str] | None = None


class Trials:
    """Tries changes on copies of one snapshot of the queue.

    Args:
        jobs: running jobs, and the first jobs in line.
        clock: clock by which the time for a question is measured.

    Attributes:
        offered: the changes that `what_if` found last, each with the changed job.
    """

    def __init__(
        self,
        site: Site,
        jobs: Sequence[SlurmJob],
        memory: Memory,
        now: float,
        clock: Clock,
        means: Means,
    ) -> None:
        self.site, self.jobs, self.memory, self.now = site, jobs, memory, now
        self.offered: list[tuple[Tried, SlurmJob]] = []
        self._means = means
        self._clock, self._until = clock, clock.monotonic() + PATIENT * means.question_s
        self._used = process_time() + means.question_s

    @property
    def _late(self) -> bool:
        return process_time() >= self._used or self._clock.monotonic() >= self._until

    # --- before submission --------------------------------------------------------------------

    def eta(self, options: Sequence[str], user: str) -> Eta:
        """Return when a job with the given options of sbatch would start, in each partition that
        takes it. Raise Refused where Slurm would not take it."""
        try:
            if why := refusal(options, self.site, user):
                raise Refused(f"Slurm refuses this job: {why}")
            job = request(options, self.site, user, job_id=NEW, now=self.now)
        except RequestError as error:
            raise Refused(f"these options cannot be tried: {error}") from None
        named = [name for name in job.partition.split(",") if name]
        shown = (part.name for part in self.site.partitions.values() if not part.hidden)
        others = [name for name in shown if name not in named]
        tried, closed, not_tried = list[Tried](), list[ClosedPartition](), list[str]()
        for name in [*named, *others]:
            here = request(options, self.site, user, job_id=NEW, now=self.now, partition=name)
            why = closed_to_user(here, self.site.partitions[name], self.site)
            if why:
                closed.append(ClosedPartition(name, why))
            elif self._late:
                not_tried.append(name)
            else:
                tried.append(replace(self.forecast(here), partition=name))
        now = self._clock.now()
        tried = [_not_before(now, one) for one in tried]
        return Eta(
            now=now,
            tried=tried,
            closed=closed,
            asked=named,
            not_tried=not_tried,
            own=self._own(job),
        )

    def against_slurm(self, found: Eta, options: Sequence[str], user: str) -> Eta:
        """Return an answer of `eta` without the forecasts that `sbatch --test-only` contradicts.

        The command is given only the options that were understood, without begin time and
        dependencies, because a start that depends on these says nothing.
        """
        job = request(options, self.site, user, job_id=NEW, now=self.now)
        until = self._clock.monotonic() + ASKING_S
        verdict = self._asked(job, until, array=array_of(options))
        if job.dependency or (job.eligible is not None and job.eligible > self.now):
            verdict = replace(verdict, starts=None)
        return against_trial(found, verdict, self.put_back_s)

    def _own(self, job: SlurmJob) -> str:
        """Return as text what Pellucid's own policy would do with a job. Return "" if that was not
        asked for.
        """
        if self._means.own is None:
            return ""
        return own_policy(by_own_policy(NEW, self._means.own([*self.jobs, job], self.now)))

    # --- otherwise ----------------------------------------------------------------------------

    def what_if(self, job_id: str) -> Sooner:
        """Try each change of a waiting job by itself. Return the changes with which it starts
        sooner; `unavailable`, or `as_it_is.why`, says why none was tried."""
        job = next((j for j in self.jobs if j.id == job_id and j.state == "PENDING"), None)
        if job is None or job.held:
            why = "it runs or is over, is held, waits for other jobs, or is too far behind"
            return Sooner(unavailable=why)
        drawn = self._drawn(job)
        as_it_is = self.forecast(job, drawn)
        if unknown := self._means.against.get(job_id):  # then nothing can be trusted of it
            return Sooner(self._clock.now(), Tried(reason=job.reason, why=unknown))
        found, slower, not_tried = list[Tried](), list[tuple[Change, SlurmJob]](), list[str]()
        asked = dict[str, SlurmJob]()
        twin = twin_in(drawn.core.policy)
        for change in changes(job, self.site, twin, self.now) if twin is not None else ():
            asked[change.command] = change.job
            if self._late:
                not_tried.append(change.words)
                continue
            # a priority is computed again, or stays the place in line
            priority = 1 if self.site.weighs else job.priority
            changed = replace(change.job, priority=priority, reason="")
            if self._starts(changed):
                made = Tried(self.now, self.now, 1, why=AT_ONCE)
                found.append(_tried(made, change))
            else:
                slower.append((change, changed))
        for change, changed in slower:
            if self._late:
                not_tried.append(change.words)
                continue
            found.append(_tried(self.forecast(changed), change))
        now = self._clock.now()
        as_it_is = _not_before(now, as_it_is)
        found = [one for one in (_not_before(now, f) for f in found) if _sooner(one, as_it_is, now)]
        lasts_s = self._lasts_s(job, drawn)
        found = [
            _priced(one, job, asked[one.command], lasts_s=lasts_s, as_it_is=as_it_is)
            for one in found
        ]
        moved = (elsewhere(job, asked[one.command], self.site) for one in found)
        found = [
            replace(one, costs=one.costs or costs) for one, costs in zip(found, moved, strict=True)
        ]
        found.sort(key=lambda one: (one.costs != "", one.start_p50 or 0.0))
        found, refused = self._by_slurm(job, found, asked)
        self.offered = [(one, asked[one.command]) for one in found]
        return Sooner(now, as_it_is, found, not_tried=not_tried, refused=refused)

    def _lasts_s(self, job: SlurmJob, drawn: ClusterSnapshot) -> float | None:
        """Return how many seconds a job should run without a change, at most its time limit. Return
        None where nothing is predicted."""
        queued = drawn.core.jobs.get(job.id)
        found = None if queued is None else self.memory.predicted(queued.job, self.now)
        return None if found is None else min(seconds_of(found), job.time_limit_s or inf)

    def _by_slurm(
        self, job: SlurmJob, found: Sequence[Tried], changed: Mapping[str, SlurmJob]
    ) -> tuple[list[Tried], list[str]]:
        """Return the offered changes that `sbatch --test-only` does not contradict, and the others
        in words.

        A refusal counts only if the unchanged job is not refused, too: the reason may be what its
        user has in the queue already, of which the job is a part.
        """
        until = self._clock.monotonic() + ASKING_S
        as_it_is = self._asked(job, until)
        if not as_it_is.anything:
            return list(found), []
        kept, refused = list[Tried](), list[str]()
        for one in found:
            then = changed[one.command]
            verdict = Verdict() if self._asked_enough(kept, until) else self._asked(then, until)
            if verdict.refuses and as_it_is.refuses:
                verdict = Verdict()
            back_s = self.put_back_s(verdict.partition or then.partition)
            if verdict.contradicts(one, self._clock.now(), back_s):
                refused.append(one.words)
            else:
                kept.append(replace(one, by_slurm=verdict.anything))
        return kept, refused

    def put_back_s(self, partition: str) -> float:
        """Return the most seconds that `sbatch --test-only` may add to a start in a
        partition."""
        return put_back_s(self.site, self.jobs, partition)

    def _asked_enough(self, kept: Sequence[Tried], until: float) -> bool:
        """Return whether no further change is to be checked with `sbatch --test-only`: Slurm has
        confirmed `MOST_ASKED` changes, or the time `until` has come."""
        return self._clock.monotonic() >= until or sum(one.by_slurm for one in kept) >= MOST_ASKED

    def _asked(self, job: SlurmJob, until: float, array: str = "") -> Verdict:
        """Return what `sbatch --test-only` says about a job with this request. Return an empty
        verdict where it cannot be asked, or does not answer before `until`."""
        left_s = until - self._clock.monotonic()
        options = None if self._means.asks is None else options_of(job, self.site, self.now)
        if self._means.asks is None or options is None or left_s <= 0:
            return Verdict()
        options += [f"--array={array}"] * bool(array)
        return Verdict.of(self._means.asks(options, job.user, left_s))

    def _drawn(self, job: SlurmJob) -> ClusterSnapshot:
        others = [other for other in self.jobs if other.id != job.id]
        return self._means.draw([*others, job], self.now)

    def _starts(self, job: SlurmJob) -> bool:
        """Return whether a job starts at once in a copy of the queue. Return False for a job of
        which no start can be forecast."""
        snapshot = self._drawn(job)
        barred = job.id in snapshot.aside or without_start(snapshot, [job.id])
        return not barred and begins(snapshot.decisions, job.id) is not None

    # --- one trial ----------------------------------------------------------------------------

    def forecast(self, job: SlurmJob, drawn: ClusterSnapshot | None = None) -> Tried:
        """Return when a job would start among the others, as p50 and p90, and why it would wait. If
        no start can be forecast, `why` says why.

        Args:
            drawn: a snapshot of the queue with the job, if there is one already; None: it is made.
        """
        snapshot = drawn or self._drawn(job)
        policy = twin_in(snapshot.core.policy)
        assert policy is not None
        if job.id in snapshot.left_out:
            return Tried(why=snapshot.left_out[job.id])
        if why_not := without_start(snapshot, [job.id]).get(job.id):
            return Tried(reason=job.reason, why=why_not)
        if job.id in snapshot.aside:
            why = "it is held, or waits for other jobs or a moment"
            return Tried(reason=job.reason or "Dependency", why=why)
        if (asked := policy.asked(job.id)) is not None and asked.latest < self.now:
            return Tried(reason=job.reason, why=WhyNot.LATE)
        if begins(snapshot.decisions, job.id) is not None:
            return Tried(self.now, self.now, 1, why=AT_ONCE)
        futures = Futures(snapshot.core, self.memory, self.now)
        made = futures.forecast(
            [job.id], samples=SAMPLES, budget_s=self._means.budget_s, between=self._means.between
        )[job.id]
        made = self._means.put_off(made)
        if why_not := too_late(snapshot.core, {job.id: made}).get(job.id):
            return Tried(reason=job.reason, why=why_not)
        found = expected(snapshot, job, policy)
        why = sentence(found, job.id, self.now) if found is not None else ""
        word = found.code if found is not None else ""
        return Tried(
            start_p50=made.start_p50,
            start_p90=made.start_p90,
            futures=made.samples,
            reason=word,
            why=why or made.why_not,
            slurm=found,
        )


def _tried(made: Tried, change: Change) -> Tried:
    return replace(made, words=change.words, command=change.command, amount=change.amount)


def _priced(
    made: Tried, job: SlurmJob, changed: SlurmJob, lasts_s: float | None, as_it_is: Tried
) -> Tried:
    gain_s = None
    if as_it_is.start_p50 is not None and made.start_p50 is not None:
        gain_s = as_it_is.start_p50 - made.start_p50
    found = price(job, changed, lasts_s, gain_s)
    return replace(
        made,
        costs=found.costs,
        assumed=found.assumed,
        times=found.times,
        costs_s=found.costs_s,
        lasts_s=found.lasts_s,
    )


def _not_before(now: float, made: Tried) -> Tried:
    """Return a forecast with a start in the past moved to `now`; the snapshot behind it is some
    seconds old."""
    if made.start_p50 is None or made.start_p50 > now:
        return made
    p90 = None if made.start_p90 is None else max(made.start_p90, now)
    return replace(made, start_p50=now, start_p90=p90, reason="", why=AT_ONCE, slurm=None)


def _sooner(made: Tried, before: Tried, now: float) -> bool:
    """Return whether a job starts sooner after a change: its p50 must be much earlier, and its p90
    earlier at all, so that a better median is not bought with a greater risk. Return False where
    either is unknown after the change."""
    if made.start_p50 is None or made.start_p90 is None:
        return False
    if made.start_p90 >= (before.start_p90 if before.start_p90 is not None else inf):
        return False
    wait = (before.start_p50 if before.start_p50 is not None else inf) - now
    then = made.start_p50 - now
    return then <= wait * SOONER and wait - then >= min(SOONER_S, wait)
