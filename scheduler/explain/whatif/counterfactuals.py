"""What would happen if a waiting job were different: the core is run again, with the change, into
the same simulated futures.

With and without the change, the same random numbers are used, so that the change alone makes the
difference. An effect is stated only if it occurred in these futures, if a copy of the core decided
it at once, or, for a job far behind in a very long queue, by the work ahead of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import floor, inf, isfinite, sqrt
from statistics import median
from types import MappingProxyType
from typing import NamedTuple

from features.job import Job
from scheduler.core.cluster import same_type
from scheduler.core.core import Core
from scheduler.core.curves import Predicted
from scheduler.core.decisions import Action, Decision
from scheduler.core.durations import Duration, Quantiles, at_level, seconds_of
from scheduler.core.queue import QueuedJob
from scheduler.core.tree_steps import TreeStep
from scheduler.explain.effect import Effect, ExpectedTimes, OthersMoved, WhatIfAnswer
from scheduler.explain.effect import Moved as MovedJob
from scheduler.explain.whatif.changes import Change, NotPossible, changed
from scheduler.explain.whatif.copies import CoreCopy
from scheduler.explain.whatif.forecasts import (
    LEAST,
    SAMPLES,
    SOON_S,
    Futures,
    StartForecast,
    WhyNot,
    crude,
    kept_back,
    starting,
    summary,
    why_stuck,
)
from scheduler.explain.whatif.futures import UNKNOWN_SPEED, Believed
from scheduler.explain.whatif.near import by_work, by_work_alone, is_behind, left_out, place_of
from scheduler.explain.whatif.trial import Alteration, Trial
from scheduler.explain.whatif.waits import not_before

MINUTE_S = 60.0
MANY = 1000  # jobs from which on a change is tried among the running ones first
CHANCES = 32  # waiting jobs at most whose starts are compared
# start, end, whether no GPUs had to become free for it, and its speed beside another
Seen = tuple[float, float, bool, float | None]
World = dict[str, Seen]  # of the jobs watched, in one future
Predict = Callable[[Job], Duration | None]  # what is believed of a job
# the forecast shown of a waiting job, given the one that futures make
AsShown = Callable[[str, StartForecast], StartForecast]


class _Expected(NamedTuple):
    """The expected duration of a changed job.

    Attributes:
        predicted: duration that the core would predict; None: as before.
        needs: how long its work takes, without a limit, before `times`.
        assumed: assumptions behind this, in words.
        times: how many times as long the work takes as `needs` says.
        outlived_s: seconds that it has run without ending, for example while it was profiled.
    """

    predicted: Duration | None
    needs: Duration | None
    assumed: tuple[str, ...] = ()
    times: float = 1.0
    outlived_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Moved:
    """A job whose start moves: by how many seconds, as the median over the simulated futures. Above
    0 is later."""

    job_id: str
    owner: str
    by_s: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """The forecast of a job as it is (`now`; empty in a suggestion that starts it at once) and with
    a change (`then`).

    Attributes:
        starts_now: whether it would start at once, by a decision of the core instead of a forecast.
        gain_s: by how many seconds its median start is earlier; below 0: later; None: not known.
        earlier, futures: number of futures in which it starts earlier, and of all futures.
        beside: whether it shares another job's GPUs from its start; without a decision, whether it
            does in most futures.
        speed: its median speed, 1 on GPUs of its own; None: unknown.
        guessed: whether the speed was predicted from the usual profiles of owners' jobs, since one
            of the two jobs has no profile yet; without a decision, whether this job has none.
        costs_s: by how many seconds its median end is later; below 0: earlier; None: not known.
        stopped: whether its time limit would probably end it before its work is done.
        moved: other jobs whose start moves by a minute or more.
        examined, waiting: number of other jobs that were examined, and that wait.
        assumed: assumptions behind this, in words.
    """

    change: Change
    now: StartForecast
    then: StartForecast
    starts_now: bool
    gain_s: float | None
    earlier: int
    futures: int
    position: int | None = None
    reason: str = ""
    moved: tuple[Moved, ...] = ()
    examined: int = 0
    waiting: int = 0
    assumed: tuple[str, ...] = ()
    beside: bool = False
    speed: float | None = None
    costs_s: float | None = None
    guessed: bool = False
    stopped: bool = False

    @property
    def costs(self) -> bool:
        """Whether the job ends later with the change, by more than a minute. If that is unknown:
        whether the change sets its number of GPUs, or it shares them."""
        if self.costs_s is None:
            return "gpus" in self.change.to or self.beside
        return self.costs_s > MINUTE_S

    @property
    def helps(self) -> bool:
        """Whether the change helps: the job starts at once, or at least a minute earlier and not by
        chance (in each of at least `LEAST` futures, and at all levels near the median). A job that
        its time limit would stop is not helped."""
        if self.stopped:
            return False
        gain = self.gain_s is not None and self.gain_s >= MINUTE_S and self.futures >= LEAST
        always = self.earlier == self.futures
        return self.starts_now or (gain and always and self._earlier_near_even_odds)

    @property
    def _earlier_near_even_odds(self) -> bool:
        """Whether the changed job starts earlier at each level at which the median of further
        simulated futures may lie: ranks within two standard deviations of the middle."""
        n = len(self.then.starts)
        first = max(0, floor(n / 2 - sqrt(n)))
        pairs = zip(self.now.starts, self.then.starts, strict=True)
        return all(then < now for now, then in list(pairs)[first : n - first])


@dataclass
class WhatIf:
    """Answers what would happen after a change of a waiting job.

    Args:
        futures: simulated futures of the present core.
        predict: function that predicts the duration of a job with another request; None: as before.
        samples: number of futures at most.
        budget_s: processor seconds for each question.
        as_shown: function that returns the forecast of the unchanged job that users are shown.
            `then` differs from it as the two differ in the futures. None: both are those of the
            futures.
    """

    futures: Futures
    predict: Predict | None = None
    samples: int = SAMPLES
    budget_s: float = inf
    as_shown: AsShown | None = None
    _bases: dict[str, dict[int, World]] = field(default_factory=dict)
    _alones: dict[str, CoreCopy] = field(default_factory=dict)

    def ask(
        self,
        job_id: str,
        change: Change,
        *,
        others: bool = False,
        budget_s: float | None = None,
    ) -> Outcome:
        """Return the forecast of a job as it is, and with the change. Raise NotPossible where the
        change cannot be made.

        Args:
            others: also return which starts of other jobs move, of the first `CHANCES` of them.
            budget_s: processor seconds, instead of this object's.
        """
        futures = self.futures
        job = futures.core.jobs[job_id].job
        expected = self._predicted(job, change)
        predicted, assumed = expected.predicted, expected.assumed
        otherwise = {}
        if change.shape:
            limit = change.job(job).time_limit_s
            # the limit cuts the curve, not the mean that the curve is of
            otherwise[job_id] = self._lasts(expected, limit)
        alter = changed(job_id, change, predicted)
        trial = futures.trial(alter).decide()
        start = trial.begins(job_id)
        started = start is not None
        queued = trial.core.jobs[job_id]
        queue = trial.core.queues[queued.job.vc]
        position = place_of(futures, queued) if queued in queue else None
        if start is None and self._is_behind(job_id, queued):
            return self._by_work(job_id, change, queued=queued, expected=expected)
        waiting = self._others(job_id, change)
        beside = waiting[:CHANCES] if others else []
        watched = [job_id, *beside]
        base, made = self._worlds(watched, alter, budget_s, otherwise)
        gains = [b[job_id][0] - m[job_id][0] for b, m in zip(base, made, strict=True)]
        is_now = _forecast(futures, base, job_id, why_stuck(futures.core, job_id))
        then = _forecast(futures, made, job_id, why_stuck(trial.core, job_id))
        gain_s = _gain(is_now, then, futures.now + futures.horizon_s)
        as_shown = self.as_shown(job_id, is_now) if self.as_shown is not None else None
        # a start that should have been by now says nothing of what a change would move
        if as_shown is not None and (as_shown.start_p50 or inf) > futures.now:
            rough = crude(trial.core, futures.memory, futures.now).get(job_id)  # None: it starts
            then = _beside(as_shown, is_now, then, rough.after if rough is not None else ())
            is_now = replace(as_shown, starts=is_now.starts)
            if gain_s is not None and is_now.start_p50 and then.start_p50:
                gain_s = is_now.start_p50 - then.start_p50
        shares, speed = _company(start, made, job_id)
        stopped = self._is_stopped(job, change, expected, speed=speed if shares else 1.0)
        if stopped:
            then = _stopped_at(then, change.job(job).time_limit_s)
        return Outcome(
            change=change,
            now=is_now,
            then=then,
            starts_now=started,
            gain_s=gain_s,
            earlier=sum(gain > 0 for gain in gains),
            futures=len(made),
            position=position,
            reason=queued.reason.value if queued.reason and not started else "",
            moved=tuple(_moved(futures, base, made, beside)),
            examined=len(beside),
            waiting=self._waiting(job_id, change),
            assumed=assumed + left_out(futures),
            beside=shares,
            speed=speed,
            costs_s=None if stopped else _costs(is_now, then),
            guessed=_guessed(start) if start is not None else queued.profile is None,
            stopped=stopped,
        )

    def _is_behind(self, job_id: str, changed: QueuedJob) -> bool:
        """Return whether a job, with or without the change, is so far behind in its queue that some
        jobs ahead of it are not simulated."""
        as_it_is = self.futures.core.jobs[job_id]
        return any(is_behind(self.futures, one) for one in (as_it_is, changed))

    def _by_work(
        self,
        job_id: str,
        change: Change,
        queued: QueuedJob,
        expected: _Expected,
    ) -> Outcome:
        """Return the outcome of a change for a job in a queue that is too long to be simulated,
        estimated from the work ahead of it."""
        futures, job = self.futures, self.futures.core.jobs[job_id].job
        stopped = self._is_stopped(job, change, expected)
        was, then = by_work(futures, futures.core.jobs[job_id], queued)
        if change.shape and expected.needs is not None and then.start_p50 is not None:
            limit_s = change.job(job).time_limit_s
            lasts_s = min(self._work_s(expected), inf if limit_s is None else limit_s)
            then = replace(then, end_p50=then.start_p50 + lasts_s)
        is_now = was
        if self.as_shown is not None:
            is_now = self.as_shown(job_id, StartForecast(futures.now, why_not=WhyNot.NO_TIME))
            then = _beside(is_now, was, then, ())
        gain_s = None
        if is_now.start_p50 is not None and then.start_p50 is not None:
            gain_s = is_now.start_p50 - then.start_p50
        return Outcome(
            change=change,
            now=is_now,
            then=then,
            starts_now=False,
            gain_s=gain_s,
            earlier=0,
            futures=0,
            position=place_of(futures, queued),
            reason=queued.reason.value if queued.reason else "",
            waiting=self._waiting(job_id, change),
            assumed=(*expected.assumed, *by_work_alone(futures)),
            costs_s=None if stopped else _costs(is_now, then),
            guessed=queued.profile is None,
            stopped=stopped,
        )

    def _waiting(self, job_id: str, change: Change) -> int:
        """Return the number of other jobs that wait in the job's virtual cluster, and in the one to
        which the change moves it.
        """
        whole, other = self.futures.whole, change.to.get("vc")
        own = whole.jobs[job_id]
        lines = [whole.queues[vc] for vc in dict.fromkeys((own.job.vc, other)) if vc is not None]
        return sum(map(len, lines)) - sum(own in line for line in lines)

    def suggestions(self, job_id: str, vcs: Iterable[str] = (), *, most: int = 3) -> list[Outcome]:
        """Return changes with which a waiting job would start sooner. Changes without a cost come
        first, and among them those that start the job at once.

        Each change was tried: a start at once is a decision of the core, an earlier start occurred
        in every simulated future. To be profiled does not count as a start.

        Args:
            vcs: other virtual clusters that the job's owner may use.
            most: how many changes are returned at most.
        """
        at_once: list[Change] = []
        begun: list[Decision] = []
        others: list[Change] = []
        until = time.process_time() + self.budget_s
        job = self.futures.core.jobs[job_id].job
        for change in candidates(job, vcs, self._types(job)):
            if change.to.get("profile") and not self._is_profiled(job):
                continue
            if _kind(change) in map(_kind, at_once):
                continue  # the least that is enough
            try:  # a decision costs milliseconds, the futures behind a gain seconds
                start = self.start(job_id, change)
            except NotPossible:
                continue
            if start is None:
                others.append(change)
            elif not self._is_stopped(job, change, self._predicted(job, change), _speed(start)):
                at_once.append(change)
                begun.append(start)
        found = [self._at_once(job_id, *one) for one in zip(at_once, begun, strict=True)][:most]
        later: list[Outcome] = []
        # work ahead alone helps to no promise
        behind = is_behind(self.futures, self.futures.core.jobs[job_id])
        for change in others:
            left_s = until - time.process_time()
            if len(found) == most or left_s <= 0 or behind:
                break
            if _kind(change) not in map(_kind, at_once):
                later.append(self.ask(job_id, change, budget_s=left_s))
        later = sorted((o for o in later if o.helps), key=lambda o: -(o.gain_s or 0.0))
        kinds = dict.fromkeys(_kind(o.change) for o in later)
        found += [next(o for o in later if _kind(o.change) == kind) for kind in kinds]
        return sorted(found[:most], key=lambda outcome: outcome.costs)

    def _at_once(self, job_id: str, change: Change, start: Decision) -> Outcome:
        """Return the outcome for a changed job that starts at once, by the decision `start`. No
        future is simulated."""
        futures, now = self.futures, self.futures.now
        job, speed = futures.core.jobs[job_id].job, _speed(start)
        expected = self._predicted(job, change)
        if expected.needs is None:
            expected = expected._replace(needs=futures.beliefs.jobs[job_id].predicted_s)
        then, pace = StartForecast(now, now, now), speed or UNKNOWN_SPEED
        if expected.needs is not None:
            limit_s = change.job(job).time_limit_s
            limit_s = inf if limit_s is None else limit_s
            quantiles = self._lasts(expected, change.job(job).time_limit_s)
            ends = (min(at_level(quantiles, level) / pace, limit_s) for level in (0.5, 0.9))
            end_p50, end_p90 = (now + seconds for seconds in ends)
            then = replace(then, end_p50=end_p50, end_p90=end_p90)
        shown = None
        if self.as_shown is not None:
            shown = self.as_shown(job_id, StartForecast(now, why_not=WhyNot.NO_TIME))
        return Outcome(
            change=change,
            now=StartForecast(now),
            then=then,
            starts_now=True,
            gain_s=None,
            earlier=0,
            futures=0,
            assumed=expected.assumed,
            beside=start.action is Action.PACK,
            speed=speed,
            costs_s=None if shown is None else _costs(shown, then),
            guessed=_guessed(start),
        )

    def _is_profiled(self, job: Job) -> bool:
        """Return whether the profiling partition takes jobs of this size."""
        stage, partition = self.futures.core.profiling, self.futures.core.cluster.profiling
        most = partition.gpus if stage is None else min(stage.max_gpus, partition.gpus)
        return stage is not None and job.gpus <= most

    def _types(self, job: Job) -> list[str]:
        """Return the GPU types of a job's virtual cluster, one for each group of its nodes; []
        where all nodes of the cluster are alike."""
        spec = self.futures.core.cluster.spec
        return [group.gpu_type for group in spec.groups_of(job.vc)] if spec.groups else []

    def starts(self, job_id: str, change: Change) -> bool:
        """Return whether the core starts the changed job at once. Raise NotPossible where the
        change cannot be made."""
        return self.start(job_id, change) is not None

    def start(self, job_id: str, change: Change) -> Decision | None:
        """Return the decision by which the core starts the changed job at once, or None. Raise
        NotPossible where the change cannot be made."""
        futures, core = self.futures, self.futures.core
        expected = self._predicted(core.jobs[job_id].job, change)
        alter = changed(job_id, change, expected.predicted)
        if len(core.jobs) > MANY:  # who does not start with nobody beside it does not at all
            alone = Trial(self._alone(job_id), futures.now, alter).decide()
            if alone.begins(job_id) is None:
                return None
        return futures.trial(alter).decide().begins(job_id)

    def _alone(self, job_id: str) -> Core:
        """Return a copy of the core in which no other job waits."""
        core = self.futures.core
        if job_id not in self._alones:
            kept = {*core.cluster.runs, job_id}
            self._alones[job_id] = CoreCopy(core.restricted_to(kept), self.futures.now)
        return self._alones[job_id].restore(Believed({job_id: core.jobs[job_id].estimate_s}))

    def _predicted(self, job: Job, change: Change) -> _Expected:
        """Return the expected duration of a changed job. With fewer GPUs, or in another virtual
        cluster, the amount of work is assumed to stay the same."""
        past = self.futures.beliefs.jobs[job.job_id]
        before, outlived_s, times = past.predicted_s, past.outlived_s, 1.0
        if not change.shape:
            return _Expected(None, before, outlived_s=outlived_s)
        asked = change.job(job)
        limit = asked.time_limit_s
        heard = self.futures.core.waiting.to_estimate(asked, job)
        found = self.predict(heard) if self.predict is not None else None
        found = before if found is None else found
        needs, assumed = found, []
        if asked.gpus < job.gpus and before is not None:
            times = job.gpus / max(1, asked.gpus)
            if found is None or seconds_of(before) * times > seconds_of(found):
                needs = before
            assumed.append(f"its work is the same: it takes {times:.3g} times as long")
        elif asked.gpus != job.gpus:
            assumed.append("it lasts as long as it would with the GPUs it asks for now")
        elif asked.vc != job.vc and before is not None:
            # models learn how long the jobs of a virtual cluster last: moved, this one does not
            needs = before
            assumed.append("it lasts as long there as here")
        if change.to.get("time_limit_s") is not None:
            assumed.append("its work is done within that limit")
        if limit is not None:
            found = _at_most(found, limit)
        times = times if needs is before else 1.0
        return _Expected(found, needs, tuple(assumed), times=times, outlived_s=outlived_s)

    def _is_stopped(
        self, job: Job, change: Change, expected: _Expected, speed: float | None = 1.0
    ) -> bool:
        """Return whether the time limit of the changed job would probably (median) end it before
        its work is done, because the change makes the work longer or the limit shorter. A limit
        that would end the unchanged job, too, on GPUs of its own, does not count.

        Args:
            speed: the job's speed, 1 on GPUs of its own; None: unknown.
        """
        limit, was = change.job(job).time_limit_s, job.time_limit_s
        if limit is None or expected.needs is None:
            return False
        slower = speed is None or speed < 1.0
        if not (slower or "gpus" in change.to or was is None or limit < was):
            return False
        before = self.futures.beliefs.jobs[job.job_id].predicted_s
        as_it_is = expected._replace(needs=before, times=1.0)
        same = "gpus" not in change.to and limit == was
        if same and before is not None and self._work_s(as_it_is) > limit:
            return False
        return self._work_s(expected) / (speed or UNKNOWN_SPEED) > limit

    def _lasts(self, expected: _Expected, limit_s: float | None = None) -> Quantiles:
        """Return quantiles of how long a changed job runs, seconds, given what it has outlived.
        They come from the curve that its present forecast comes from, multiplied by
        `expected.times`, and are cut at the time limit `limit_s`."""
        times = expected.times
        within_s = None if limit_s is None else limit_s / times
        found = self.futures.durations.quantiles(expected.needs, expected.outlived_s, within_s)
        return [times * seconds for seconds in found]

    def _work_s(self, expected: _Expected) -> float:
        """Return the median time, in seconds, that a changed job's work takes at full speed without
        a time limit. The predicted mean, which few very long jobs lift, is not used."""
        return at_level(self._lasts(expected), 0.5)

    def _others(self, job_id: str, change: Change) -> list[str]:
        """Return the ids of the other jobs whose starts may change: those that wait in the job's
        virtual cluster, and in the one to which the change moves it."""
        core = self.futures.core
        vcs = dict.fromkeys((core.jobs[job_id].job.vc, change.to.get("vc")))
        return [
            queued.job.job_id
            for vc in vcs
            for queued in (core.queues[vc] if vc is not None else ())
            if queued.job.job_id != job_id
        ]

    def effect(self, alter: Alteration) -> Effect:
        """Return by how much jobs' starts move if `alter` changes the cluster or the settings. Only
        the first `CHANCES` waiting jobs are examined."""
        futures = self.futures
        waiting = sum(map(len, futures.whole.queues.values()))
        watched = [q.job.job_id for queue in futures.core.queues.values() for q in queue][:CHANCES]
        base, made = self._worlds(watched, alter)
        moved = {m.job_id: m.by_s for m in _moved(futures, base, made, watched)}
        stuck = [j for j in watched if _starts_in(base, j) and not _starts_in(made, j)]
        return Effect(
            moved=moved, examined=len(watched), waiting=waiting, futures=len(made), stuck=stuck
        )

    def _worlds(
        self,
        watched: list[str],
        alter: Alteration,
        budget_s: float | None = None,
        otherwise: Mapping[str, Quantiles] = MappingProxyType({}),
    ) -> tuple[list[World], list[World]]:
        """Return the same simulated futures twice, without and with a change: two lists of equal
        length, as long as there is time for.

        Args:
            watched: ids of the jobs whose starts and ends are recorded.
            alter: function that makes the change in a copy of the core.
            budget_s: processor seconds; None: this object's.
            otherwise: distributions of the durations of jobs that the change alters, by id.
        """
        until = time.process_time() + (self.budget_s if budget_s is None else budget_s)
        base, made = list[World](), list[World]()
        for sample in range(self.samples if watched else 0):
            before = self._base(watched, sample, until)
            after = _seen(
                futures=self.futures,
                core=self.futures.trial(alter).decide().core,
                sample=sample,
                watched=watched,
                until=until,
                otherwise=otherwise,
            )
            if before is None or after is None:
                break
            base.append(before)
            made.append(after)
        return base, made

    def _base(self, watched: list[str], sample: int, until: float) -> World | None:
        """Return the simulated future with number `sample` without a change. It is simulated once
        for all questions about the same jobs. Return None if there was no time."""
        cache = self._bases.setdefault("\x1f".join(watched), {})
        if sample not in cache:
            found = _seen(
                futures=self.futures,
                core=self.futures.copy(),
                sample=sample,
                watched=watched,
                until=until,
            )
            if found is None:
                return None
            cache[sample] = found
        return cache[sample]


def candidates(job: Job, vcs: Iterable[str] = (), gpu_types: Iterable[str] = ()) -> list[Change]:
    """Return changes that might help a waiting job; none of them is tried here.

    Args:
        vcs, gpu_types: virtual clusters and GPU types that it could ask for instead.
    """
    found = []
    fewer = 1 << (job.gpus - 1).bit_length() >> 1
    while 0 < fewer < job.gpus:
        found.append(Change({"gpus": fewer}))
        fewer >>= 1
    if not job.share:
        found.append(Change({"share": True}))
    if not job.profile:
        found.append(Change({"profile": True}))
    if job.gpu_type:
        found.append(Change({"gpu_type": None}))
    asked = job.gpu_type or ""
    found += [Change({"gpu_type": other}) for other in gpu_types if not same_type(other, asked)]
    if job.time_limit_s:
        shorter = (job.time_limit_s / 2, 3600.0)
        found += [Change({"time_limit_s": limit}) for limit in shorter if limit < job.time_limit_s]
    found += [Change({"vc": vc}) for vc in vcs if vc != job.vc]
    return [change for i, change in enumerate(found) if change not in found[:i]]


def _at_most(predicted: Duration | None, limit_s: float) -> Duration | None:
    """Return a predicted duration, cut at a time limit of `limit_s` seconds."""
    if isinstance(predicted, Predicted) and limit_s < predicted.most_s:
        return replace(predicted, seconds=min(predicted.seconds, limit_s), most_s=limit_s)
    return limit_s if predicted is not None and limit_s < seconds_of(predicted) else predicted


def _kind(change: Change) -> tuple[str, ...]:
    """Return the names of the fields that a change sets, as its kind. Among changes of one kind,
    only the best is suggested."""
    return tuple(change.body())


def _speed(start: Decision | None) -> float | None:
    """Return the speed of a job started by this decision, relative to running alone: 1 on GPUs of
    its own. Return None if there is no start, or the speed is unknown.
    """
    if start is None or start.action is Action.START:
        return None if start is None else 1.0
    return None if start.speeds is None else start.speeds[0]


def _guessed(start: Decision) -> bool:
    """Return whether the predicted speed of a pair rests on the usual profile of similar jobs,
    instead of a measured one."""
    return any(TreeStep.of(step).assumed for step in start.tree_path)


def _company(
    start: Decision | None, made: Sequence[World], job_id: str
) -> tuple[bool, float | None]:
    """Return whether the job starts beside another job, and its relative speed. Both follow from
    the decision `start` if given, otherwise from the simulated futures in which the job starts.
    """
    if start is not None:
        return start.action is Action.PACK, _speed(start)
    seen = [world[job_id] for world in made if isfinite(world[job_id][0])]
    if not seen:
        return False, None
    speeds = [1.0 if one[3] is None else one[3] for one in seen]
    return 2 * sum(one[3] is not None for one in seen) > len(seen), median(speeds)


def _stopped_at(then: StartForecast, limit_s: float | None) -> StartForecast:
    """Return the forecast of a job that its time limit stops: it ends so long after its start."""
    if limit_s is None or then.start_p50 is None:
        return then
    late = None if then.start_p90 is None else then.start_p90 + limit_s
    return replace(then, end_p50=then.start_p50 + limit_s, end_p90=late)


def _costs(is_now: StartForecast, then: StartForecast) -> float | None:
    """Return by how many seconds the median end of a job is later after a change. Return None if
    one of the ends is unknown.
    """
    if is_now.end_p50 is None or then.end_p50 is None:
        return None
    return then.end_p50 - is_now.end_p50


def _seen(
    futures: Futures,
    core: Core,
    sample: int,
    watched: list[str],
    until: float,
    otherwise: Mapping[str, Quantiles] = MappingProxyType({}),
) -> World | None:
    """Return what happens to each watched job in one simulated future: when it starts and ends,
    whether it starts without waiting for GPUs, and its speed beside another job. inf stands for a
    time that was not reached.

    Return None where there was no time to simulate it. Times are seconds since the epoch.
    """
    awaited = [job_id for job_id in watched if not why_stuck(core, job_id)]
    if not awaited:
        return dict.fromkeys(watched, (inf, inf, False, None))
    future = futures.follow(core, sample, awaited, otherwise, until_cpu_s=until)
    if future.cut:
        return None
    starts, ends = future.starts, future.ends
    return {
        j: (starts.get(j, inf), ends.get(j, inf), j in future.aside, future.speeds.get(j))
        for j in watched
    }


def _forecast(
    futures: Futures, worlds: list[World], job_id: str, why_not: WhyNot | None
) -> StartForecast:
    if why_not is not None:
        return kept_back(futures.now, why_not)
    starts = [world[job_id][0] for world in worlds]
    ends = [world[job_id][1] for world in worlds]
    aside = sum(world[job_id][2] for world in worlds) / max(1, len(worlds))
    return replace(summary(futures.now, starts, ends, futures.horizon_s), aside=aside)


def _gain(is_now: StartForecast, then: StartForecast, until: float) -> float | None:
    """Return by how many seconds the median start is earlier after the change. Return None if one
    of the starts is unknown, or lies beyond the end of the simulation (`until`).
    """
    was, new = is_now.start_p50, then.start_p50
    if was is None or new is None or max(was, new) >= until:
        return None
    return was - new


def _beside(
    shown: StartForecast, was: StartForecast, then: StartForecast, after: Sequence[float]
) -> StartForecast:
    """Return the forecast `then`, adjusted to the forecast `shown` that users see of the unchanged
    job.

    The result differs from `shown` by the factor, on the wait, by which `then` differs from `was`
    in the same futures. It is not before `after`, quantiles of an end for which the changed job
    must wait. A certain or unknown start is left as it is.
    """
    if then.start_p50 is None or was.start_p50 is None or then.start_p50 == then.start_p90:
        return then
    if was.start_p50 == was.start_p90:
        return then

    def moved(at: float | None, before: float | None, after: float | None) -> float | None:
        if at is None or before is None or after is None:
            return after
        at, before, after = (SOON_S + max(0.0, x - then.made_at) for x in (at, before, after))
        return then.made_at + max(0.0, at * after / before - SOON_S)

    p50 = moved(shown.start_p50, was.start_p50, then.start_p50)
    p90 = moved(shown.start_p90, was.start_p90, then.start_p90)
    p10 = moved(shown.start_p10, was.start_p10, then.start_p10)
    if p10 is None or p50 is None or p90 is None:
        return starting(then, p10, p50, p90)
    return starting(then, *not_before(after, then, (p10, p50, p90), then.made_at))


def _starts_in(worlds: list[World], job_id: str) -> bool:
    """Return whether a job starts in at least half of the simulated futures."""
    return 2 * sum(isfinite(world[job_id][0]) for world in worlds) >= max(len(worlds), 1)


def _moved(
    futures: Futures,
    base: list[World],
    made: list[World],
    beside: list[str],
) -> Iterable[Moved]:
    for job_id in beside:
        by = [m[job_id][0] - b[job_id][0] for b, m in zip(base, made, strict=True)]
        by = [seconds for seconds in by if isfinite(seconds)]
        middle = median(by) if by else 0.0
        if abs(middle) >= MINUTE_S:
            yield Moved(job_id, futures.beliefs.jobs[job_id].job.user, middle)


def answer_of(outcome: Outcome, job_id: str, owner: str, *, names: bool = False) -> WhatIfAnswer:
    """Return an outcome as an answer for the owner of the job, which names no other user's jobs.

    Args:
        names: name other users' jobs too (for operators).
    """
    own = [m for m in outcome.moved if m.owner == owner or names]
    others = [m.by_s for m in outcome.moved if not (m.owner == owner or names)]
    return WhatIfAnswer(
        job_id,
        outcome.change.body(),
        now=_expected_times(outcome.now),
        then=_expected_times(outcome.then, outcome.position, outcome.reason),
        words=outcome.change.words(),
        starts_now=outcome.starts_now,
        gain_s=outcome.gain_s,
        earlier=outcome.earlier,
        futures=outcome.futures,
        moved=[MovedJob(m.job_id, m.by_s) for m in own],
        others_moved=OthersMoved(
            later=sum(by_s > 0 for by_s in others),
            earlier=sum(by_s < 0 for by_s in others),
            later_s=sum(max(by_s, 0.0) for by_s in others),
            earlier_s=sum(max(-by_s, 0.0) for by_s in others),
        ),
        not_examined=max(0, outcome.waiting - outcome.examined) if outcome.examined else None,
        assumed=list(outcome.assumed),
        beside=outcome.beside,
        speed=outcome.speed,
        costs_s=outcome.costs_s,
        guessed=outcome.beside and outcome.guessed,
        stopped=outcome.stopped,
    )


def _expected_times(
    made: StartForecast, position: int | None = None, reason: str = ""
) -> ExpectedTimes:
    starts, ends = (made.start_p10, made.start_p50, made.start_p90), (made.end_p50, made.end_p90)
    return ExpectedTimes(*starts, *ends, position, reason, made.why_not, made.estimate)
