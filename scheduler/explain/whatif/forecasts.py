"""Forecasts of when a job will start and end, as p50 and p90, made by simulating many futures of
the same core."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from math import ceil, inf, isfinite, log
from statistics import median
from types import MappingProxyType

from scheduler.core.capacity import Capacity, capacity_of
from scheduler.core.cluster import Run
from scheduler.core.core import Core
from scheduler.core.durations import TYPICAL_S, Duration, Quantiles, at_level, seconds_of
from scheduler.core.policy import Never
from scheduler.core.queue import QueuedJob
from scheduler.core.receipts import Plain
from scheduler.explain.whatif.copies import CoreCopy
from scheduler.explain.whatif.futures import Beliefs, Believed, Draw, Future
from scheduler.explain.whatif.memory import DAY_S, Memory, SubmittedJob
from scheduler.explain.whatif.trial import Alteration, Trial
from scheduler.explain.words import NEVER, ForecastKind

SAMPLES = 64
FIGURES = ("start_p10", "start_p50", "start_p90", "end_p50", "end_p90")
CRUDE = "crude estimate: work ahead over GPUs"
SOON_S = 10.0  # waits are compared as ln(10 s + wait): a few seconds more or less are no news
LEAST = 9  # fewer futures than this say nothing of a p90


class WhyNot(StrEnum):
    """Reasons why there is no forecast, with the sentences that say so."""

    NO_TIME = "there was no time to simulate enough possible futures"
    NOT_YET = "it has not been simulated yet"
    HELD = "it is held, and does not start until it is released"
    DEPENDS = "it depends on a job that has not ended"
    UNMET = "it cannot start: a job it depends on did not succeed"
    TOO_SMALL = NEVER
    REFUSED = "it cannot start as it is: its partition does not take what it asks for"
    LIMITED = "it cannot start as it is: its limits allow no job that asks for so much"
    LATE = "its deadline may come first: it is cancelled if it has not started in time to end by it"
    CLOSED = "it cannot start until a node is opened that is closed now"
    MISPLACED = "it cannot start as it is: its reservation has no nodes that suit it"


@dataclass(frozen=True, slots=True)
class StartForecast:
    """The forecast start and end of a job, in seconds since the epoch. All are None where no
    estimate is available.

    Attributes:
        samples: number of futures behind it; 0 for what is known already, or was not simulated.
        why_not: why there is no estimate, or only a crude one; "" otherwise.
        estimate: a `ForecastKind`; None: made from futures, or not known.
        starts: the starts in the futures, ascending; inf for those after the horizon.
        start_p10: time before which the job starts in one case of ten.
        after: for a crude forecast: p10, p50 and p90 of the end of the runs for which the job must
            wait; () where there are none.
        aside: share of the futures in which the job needs no GPUs to become free: it starts beside
            another job, or ends while it is profiled.
        receipt: for a running job, the inputs of its forecast end; see `scheduler.core.receipts`.
    """

    made_at: float
    start_p50: float | None = None
    start_p90: float | None = None
    end_p50: float | None = None
    end_p90: float | None = None
    samples: int = 0
    why_not: str = ""
    starts: tuple[float, ...] = ()
    start_p10: float | None = None
    estimate: str | None = None
    after: tuple[float, ...] = ()
    aside: float = 0.0
    receipt: Plain = ()


class Futures:
    """Simulated futures of a core, from one moment on.

    Args:
        core: the core after its decisions at `now`. It is only read, and must not be changed while
            this object is in use, since parts are computed when they are first needed.
        memory: what was remembered besides the core (predictions, arrivals).
        seed: the same seed gives the same futures.
        horizon_s: how many seconds are simulated.
        whole: the core of which `core` is a part (`whatif.near`); None: `core` is the whole.
    """

    def __init__(
        self,
        core: Core,
        memory: Memory,
        now: float,
        *,
        seed: int = 0,
        user_correlation: float = 0.2,
        horizon_s: float = 7 * DAY_S,
        whole: Core | None = None,
    ):
        self.now = now
        self.core = core
        self.whole = core if whole is None else whole
        self.memory = memory
        self.seed = seed
        self.horizon_s = horizon_s
        self.durations = memory.believed_by(core)
        self._user_correlation = user_correlation
        self._walls = not core.policy.capabilities.borrows
        self._ends: dict[str, float] = {}

    @cached_property
    def snapshot(self) -> CoreCopy:
        """A frozen copy of `core` as it stands at `now`, from which `copy` makes cores."""
        return CoreCopy(self.core, self.now)

    @cached_property
    def beliefs(self) -> Beliefs:
        """The predicted distributions from which the futures are sampled."""
        return Beliefs.of(self.memory, self.core, self.now, user_correlation=self._user_correlation)

    def copy(self, also: Mapping[str, Duration | None] = MappingProxyType({})) -> Core:
        """Return a copy of the core, with an estimator that only repeats earlier predictions.

        Args:
            also: maps ids of jobs that are still to come to their predicted durations.
        """
        predicted = {job_id: past.predicted_s for job_id, past in self.beliefs.jobs.items()}
        predicted.update(also)
        return self.snapshot.restore(Believed(predicted))

    def trial(self, alter: Alteration) -> Trial:
        """Return a copy of the core in which `alter` has made a change. The copy has not decided
        yet."""
        return Trial(self.copy(), self.now, alter)

    def ends_at(self, run: Run) -> float:
        """Return the median time at which a run has ended, seconds since the epoch."""
        job_id = run.job.job_id
        if job_id not in self._ends:
            self._ends[job_id] = self.now + _left_s(self.core, self.memory, run, self.now)
        return self._ends[job_id]

    def follow(
        self,
        core: Core,
        sample: int,
        awaited: Collection[str],
        otherwise: Mapping[str, Quantiles] = MappingProxyType({}),
        *,
        until_cpu_s: float = inf,
    ) -> Future:
        """Simulate future number `sample` on a copy of the core, until the awaited jobs have
        started, the horizon is reached or the time is spent. Return the future.

        Args:
            core: the copy, which is used up.
            otherwise: distributions of the durations of jobs that were changed in the copy, by id.
            until_cpu_s: stop when this process has used this many processor seconds.
        """
        vcs = None
        if self._walls:
            vcs = frozenset(core.jobs[job_id].job.vc for job_id in awaited)
        draw = Draw(self.beliefs, self.seed, sample, otherwise)
        return Future(
            core,
            self.beliefs,
            draw,
            awaited,
            vcs=vcs,
            horizon_s=self.horizon_s,
            until_cpu_s=until_cpu_s,
        ).look()

    def forecast(
        self,
        awaited: Collection[str],
        *,
        samples: int = SAMPLES,
        budget_s: float = inf,
        between: Callable[[], object] = lambda: None,
    ) -> dict[str, StartForecast]:
        """Return forecasts of jobs that have not ended, by id.

        Args:
            awaited: ids of the jobs.
            samples: number of futures to simulate.
            budget_s: processor seconds to spend. Futures for which they are not enough are left
                out; `StartForecast.samples` says how many were simulated. Where those are fewer
                than `LEAST`, the forecast has no figures (`WhyNot.NO_TIME`).
            between: function that is called between two futures; its time is not counted. When it
                returns True, the simulation stops once there are enough futures.
        """
        stuck = {
            job_id: kept_back(self.now, why_not)
            for job_id in awaited
            if (why_not := why_stuck(self.core, job_id))
        }
        awaited = [job_id for job_id in awaited if job_id not in stuck]
        if not awaited:
            return stuck
        starts: dict[str, list[float]] = {job_id: [] for job_id in awaited}
        ends: dict[str, list[float]] = {job_id: [] for job_id in awaited}
        aside = Counter[str]()
        began = time.process_time()
        awaiting, late = set(awaited), set[str]()
        for sample in range(samples):
            # the first few are given up where there will be no time for enough of them
            until = began + budget_s * min(1.0, 1.5 * (sample + 1) / LEAST)
            future = self.follow(self.copy(), sample, awaiting, until_cpu_s=until)
            if future.cut and sample >= LEAST:  # those before are enough
                break
            if future.cut:  # whoever starts late or never costs the others no forecast
                late |= awaiting - future.starts.keys()
                awaiting -= late
                if not awaiting:
                    break
            for job_id in awaiting:
                starts[job_id].append(future.starts.get(job_id, inf))
                ends[job_id].append(future.ends.get(job_id, inf))
            aside.update(future.aside)
            paused = time.process_time()
            if between() and sample >= LEAST and sample % 2:  # with the other of its pair
                break
            began += time.process_time() - paused
        no_time = {job_id: StartForecast(self.now, why_not=WhyNot.NO_TIME) for job_id in late}
        return (
            stuck
            | no_time
            | {
                job_id: replace(
                    summary(self.now, starts[job_id], ends[job_id], self.horizon_s),
                    aside=aside[job_id] / max(1, len(starts[job_id])),
                )
                for job_id in awaiting
            }
        )

    def end_of(self, job_id: str) -> StartForecast:
        """Return the forecast of when a running job ends, as `forecasts.end_of` makes it."""
        return end_of(self.core, self.memory, self.now, job_id)


def unfinished(made: StartForecast) -> bool:
    """Return whether a forecast has no start since fewer than `LEAST` futures were simulated: there
    was no time for more, or the job is held or waits for a closed node, so that none are needed."""
    return made.start_p50 is None and made.estimate is None and made.samples < LEAST


def starting(
    made: StartForecast, p10: float | None, start_p50: float | None, start_p90: float | None
) -> StartForecast:
    """Return a forecast with other quantiles of the start. The ends move by the same number of
    seconds. A quantile that would be on the wrong side of the median is set to the median."""
    if start_p50 is not None:
        p10 = None if p10 is None else min(p10, start_p50)
        start_p90 = None if start_p90 is None else max(start_p50, start_p90)

    def moved(end: float | None, was: float | None, start: float | None) -> float | None:
        if end is None or was is None or start is None:
            return end
        return end + start - was

    end_p50 = moved(made.end_p50, made.start_p50, start_p50)
    end_p90 = moved(made.end_p90, made.start_p90, start_p90)
    if end_p50 is not None and end_p90 is not None:
        end_p90 = max(end_p50, end_p90)
    return replace(
        made,
        start_p10=p10,
        start_p50=start_p50,
        start_p90=start_p90,
        end_p50=end_p50,
        end_p90=end_p90,
    )


def still_waiting(made: StartForecast, now: float) -> StartForecast:
    """Return the forecast of a job that has not started by `now`. Until the forecast median, only
    a p10 that has passed moves, to `now`. After it, the probability that the job still waits falls
    exponentially, at a rate given by the distance from p50 to p90. Without a p90, the median is as
    far ahead of `now` as the forecast is old."""
    p10, p50, p90 = made.start_p10, made.start_p50, made.start_p90
    if p50 is None or p50 > now:
        return made if p10 is None else replace(made, start_p10=max(p10, now))
    if p90 is None:  # what has lasted for so long lasts for as long again in half the cases
        return starting(made, None, now + max(SOON_S, now - made.made_at), None)
    pace_s = max(p90 - p50, SOON_S) / log(5)
    return starting(made, now, now + pace_s * log(2), now + pace_s * log(10))


def why_stuck(core: Core, job_id: str) -> WhyNot | None:
    """Return why a job starts in no future unless a person acts, or None when it may start."""
    if core.waiting.is_held(job_id):
        return WhyNot.HELD
    blocked = core.waiting.blocked(job_id)
    if blocked is not None and blocked.never:
        return WhyNot.UNMET
    outlook = core.policy.outlook
    if outlook is not None and (why := outlook.never(job_id)) is not None:
        return _NEVER[why]
    return WhyNot.TOO_SMALL if core.waiting.never_starts(job_id) else None


_NEVER = {why: WhyNot[why.name] for why in Never}


def too_late(core: Core, made: Mapping[str, StartForecast]) -> dict[str, str]:
    """Return the jobs that are forecast to start too late for their deadline: by their p90, by
    their median where there is none, or in no future. Maps each job id to the reason in words."""
    outlook, found = core.policy.outlook, dict[str, str]()
    for job_id, one in made.items():
        latest = inf if outlook is None else outlook.latest(job_id)
        start = one.start_p50 if one.start_p90 is None else one.start_p90
        never = start is None and one.estimate is None and not unfinished(one)
        if latest < inf and (never or (start is not None and start > latest)):
            found[job_id] = WhyNot.LATE
    return found


def kept_back(now: float, why_not: WhyNot) -> StartForecast:
    """Return the forecast of a job that `why_stuck` says cannot start: "impossible", unless a
    person may still release the job or open its nodes."""
    may_change = why_not is WhyNot.HELD or why_not is WhyNot.CLOSED
    estimate = None if may_change else ForecastKind.IMPOSSIBLE
    return StartForecast(now, why_not=why_not, estimate=estimate)


def crudely(now: float, at: float, lasts_s: float) -> StartForecast:
    """Return a crude forecast, made without simulation: a start at `at`, and an end `lasts_s`
    seconds later."""
    return StartForecast(now, at, None, at + lasts_s, why_not=CRUDE, estimate=ForecastKind.CRUDE)


def crude(
    core: Core, memory: Memory, now: float, wanted: Container[str] | None = None
) -> dict[str, StartForecast]:
    """Return a crude forecast of the start of every waiting job: the work ahead of it over the
    number of GPUs.

    The work is what running jobs have left, and the predicted work of the jobs before it in its
    queue, in GPU-seconds. Jobs that are in no queue yet come last. It takes about a microsecond for
    each job. There is no p90: how far the forecast is off is learned in `Waits`. A job that
    cannot start as things are gets the reason instead of a start.

    Args:
        wanted: jobs that are asked for: those behind the last of them are left out; None: all.
    """
    found: dict[str, StartForecast] = {}
    queued_in: dict[str, list[QueuedJob]] = {vc: list(queue) for vc, queue in core.queues.items()}
    placed = {queued.job.job_id for line in queued_in.values() for queued in line}
    for job_id in core.jobs:
        if job_id in placed:
            continue
        if why_not := why_stuck(core, job_id):
            found[job_id] = kept_back(now, why_not)
        elif _waits(core, job_id):
            queued_in[core.jobs[job_id].job.vc].append(core.jobs[job_id])
    for vc, line in queued_in.items():
        asked = (n for n, q in enumerate(line, 1) if wanted is None or q.job.job_id in wanted)
        last = max(asked, default=0)
        there: dict[tuple[int, str], Capacity] = {}  # alike for all who ask for the same
        work = sum(
            run.job.gpus * _left_s(core, memory, run, now)
            for run in core.runs_of(vc)
            if run.partner is None or run.order < run.partner.order  # shared GPUs once
        )
        must_end = _MustEnd(core, memory, now, vc)
        for queued in line[:last]:
            job = queued.job
            if job.job_id in placed and (why_not := why_stuck(core, job.job_id)):
                found[job.job_id] = kept_back(now, why_not)
                continue
            like = job.gpus, job.gpu_type or ""
            if like not in there:
                there[like] = capacity_of(core, queued)
            capacity = there[like]
            if not (capacity.holds and capacity.open):
                found[job.job_id] = StartForecast(now, why_not=WhyNot.CLOSED)
                continue
            ends = must_end.ends(capacity.open - job.gpus)
            at = max([now + work / capacity.open, *ends[1:2]])
            believed = _past(core, memory, job.job_id).predicted_s
            lasts = TYPICAL_S if believed is None else seconds_of(believed)
            found[job.job_id] = replace(crudely(now, at, lasts), after=ends)
            work += job.gpus * lasts
    return found


def roughly(
    core: Core, memory: Memory, now: float, job_ids: Iterable[str], soon: float
) -> dict[str, StartForecast]:
    """Return forecasts for jobs of a followed Slurm without simulating futures. A job starts
    when the work ahead of it is done or when backfill plans it, whichever is sooner. It starts no
    sooner than the moment `soon`, nor while a reservation keeps it from its nodes."""
    job_ids = list(job_ids)
    found, outlook = {}, core.policy.outlook
    by_work = crude(core, memory, now, set(job_ids))
    for job_id in job_ids:
        work = by_work.get(job_id, crudely(now, soon, TYPICAL_S))
        plan = None if outlook is None else outlook.planned(job_id)
        by_plan = [max(soon, plan)] if plan is not None else []
        ahead = [max(soon, work.start_p50)] if work.start_p50 and core.jobs[job_id].job.gpus else []
        at = min([*by_plan, *ahead], default=None)
        kept = now if outlook is None else outlook.kept_until(job_id, now)
        at = max(kept, at or 0.0) if kept > now else at  # a reservation has its nodes until then
        found[job_id] = work if at is None else crudely(now, at, TYPICAL_S)
    return found


class _MustEnd:
    """The ends of those runs of a virtual cluster for which a waiting job must wait.

    A job must wait for a run if the run holds more GPUs than the job can do without.
    """

    def __init__(self, core: Core, memory: Memory, now: float, vc: str):
        self._core, self._memory, self._now = core, memory, now
        pool = core.cluster.pools[vc]
        runs = [] if core.policy.capabilities.borrows else core.runs_of(vc)
        self._held = [
            (sum((m & ~pool.closed_on(n)).bit_count() for n, m in held if n in pool), run)
            for run in runs
            for held in [zip(run.nodes, run.gpus, strict=True)]
        ]
        self._known: dict[int, tuple[float, ...]] = {}

    def ends(self, spare: int) -> tuple[float, ...]:
        """Return p10, p50 and p90 of the end of the last such run, for a job that can do without
        `spare` GPUs; () where it must wait for no run."""
        if spare not in self._known:
            ends = [self._of(run) for held, run in self._held if held > spare]
            self._known[spare] = tuple(map(max, zip(*ends, strict=True)))
        return self._known[spare]

    def _of(self, run: Run) -> tuple[float, ...]:
        past = _past(self._core, self._memory, run.job.job_id)
        found = self._memory.quantiles(past, self._now - run.start_time, self._core)
        return tuple(run.start_time + at_level(found, level) for level in (0.1, 0.5, 0.9))


def _waits(core: Core, job_id: str) -> bool:
    """Return whether a job waits. A job that is being profiled counts, because it waits
    afterwards."""
    run = core.cluster.runs.get(job_id)
    return run is None or run.profiling


def _left_s(core: Core, memory: Memory, run: Run, now: float) -> float:
    ran_s = now - run.start_time
    past = _past(core, memory, run.job.job_id)
    return max(0.0, at_level(memory.quantiles(past, ran_s, core), 0.5) - ran_s)


def _past(core: Core, memory: Memory, job_id: str) -> SubmittedJob:
    return memory.believed(core.jobs[job_id])


def end_of(core: Core, memory: Memory, now: float, job_id: str) -> StartForecast:
    """Return the forecast of when a running job ends. Time lost by sharing GPUs is not counted."""
    start = core.cluster.runs[job_id].start_time
    past = _past(core, memory, job_id)
    made = _end(now, start, memory.quantiles(past, now - start, core))
    return replace(made, receipt=memory.receipt(past, now - start, core).plain())


def _end(now: float, start: float, quantiles: Quantiles) -> StartForecast:
    p50, p90 = (start + at_level(quantiles, level) for level in (0.5, 0.9))
    return StartForecast(
        made_at=now,
        start_p50=start,
        start_p90=start,
        end_p50=max(p50, now),
        end_p90=max(p90, now),
        start_p10=start,
    )


def summary(now: float, starts: list[float], ends: list[float], horizon_s: float) -> StartForecast:
    """Return the forecast of one job from its starts and ends in several simulated futures. Where
    they are fewer than `LEAST`, or the job starts in none, return the reason instead of figures."""
    if len(starts) < LEAST:
        return StartForecast(now, samples=len(starts), why_not=WhyNot.NO_TIME)
    if not any(map(isfinite, starts)):
        why = f"in no future had it started after {horizon_s / DAY_S:g} days"
        return StartForecast(now, samples=len(starts), why_not=why)
    p50, p90, end_p50, end_p90 = (
        _level(now, values, level, horizon_s) for values in (starts, ends) for level in (0.5, 0.9)
    )
    p10 = min(_level(now, starts, 0.1, horizon_s), p50)
    seen = tuple(sorted(starts))
    return StartForecast(
        made_at=now,
        start_p50=p50,
        start_p90=p90,
        end_p50=end_p50,
        end_p90=end_p90,
        samples=len(starts),
        starts=seen,
        start_p10=p10,
    )


def _level(now: float, values: list[float], level: float, horizon_s: float) -> float:
    """Return a quantile of `values`: one more value of the same kind would be below it with a
    probability of at least `level`.

    That is the ceil(level (n + 1))-th of n values; the median of an even number lies between two.
    Beyond the horizon, a job that has waited for t is assumed to wait for another t in half the
    cases.
    """
    place = min(len(values), ceil(level * (len(values) + 1)))
    found = median(values) if level == 0.5 else sorted(values)[place - 1]
    if isfinite(found):
        return found
    beyond = sum(not isfinite(value) for value in values) / len(values)
    return now + horizon_s * max(1.0, beyond / (1.0 - level))
