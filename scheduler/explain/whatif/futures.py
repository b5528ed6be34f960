"""One simulated future: a copy of the core is run forward with random durations and arrivals.

It uses the simulator's own engine (`scheduler.simulation.engine.Engine`), which begins in the
middle: running jobs go on from where they are. Durations are sampled from predicted distributions
instead of being read from a trace.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import blake2b
from math import ceil, inf, sqrt
from statistics import NormalDist
from time import process_time
from types import MappingProxyType
from typing import NamedTuple

from features.job import Job, Profile
from scheduler.core.cluster import Run
from scheduler.core.core import Core
from scheduler.core.decisions import STARTS, Action, Decision
from scheduler.core.durations import TYPICAL_S, Duration, Quantiles, at_level
from scheduler.core.estimates import Estimate, Estimator
from scheduler.explain.whatif.memory import DAY_S, DAYS, Memory, SubmittedJob
from scheduler.simulation.engine import Engine, JobResult, Progress
from scheduler.simulation.loop import OBSERVE, SUBMIT
from scheduler.simulation.work import Work

HOUR_S = 3600.0
AGAIN = "~"  # ends the id of a job that comes again, before the number of its piece
UNKNOWN_SPEED = 0.8  # of each member of a pair where nothing predicts them
ENDLESS = Work(inf)  # of jobs where time stands still
BLOCK = 8  # pairs of futures over which the sizes of scores are spread evenly
_NORMAL = NormalDist()


class Believed(Estimator):
    """An estimator that repeats earlier predictions. For any other job it predicts `TYPICAL_S`.

    Args:
        predicted: maps job ids to predicted durations.

    Attributes:
        changed_to: maps ids of changed jobs to their predicted durations after the change.
    """

    name = "believed"

    def __init__(self, predicted: dict[str, Duration | None]):
        super().__init__()
        self.predicted = predicted
        self.changed_to: dict[str, Duration] = {}

    def as_changed(self, job: Job, to: Job, now: float) -> tuple[Estimate, Estimate]:
        was = self.estimate(job, now)
        seconds = self.changed_to.get(job.job_id)
        return was, was if seconds is None else Estimate(seconds)

    def decided_with(self, job_id: str, estimate: Estimate) -> None:
        self.predicted[job_id] = estimate.seconds

    def estimate(self, job: Job, now: float) -> Estimate:
        seconds = self.predicted.get(job.job_id)
        return Estimate(TYPICAL_S if seconds is None else seconds)


class BelievedSpeeds:
    """The speeds of jobs that share GPUs in a simulated future: those that the policy predicted
    when it paired the jobs, or `UNKNOWN_SPEED` where it predicted none."""

    def __init__(self, core: Core):
        self._core = core

    def rate(self, work: Work, run: Run, neighbour: Work | None) -> float:
        other = run.partner
        if neighbour is None or other is None:
            return 1.0
        came_first = run.order < other.order
        newcomer = other if came_first else run
        prediction = self._core.jobs[newcomer.job.job_id].pair_prediction
        if prediction is None or prediction.speeds is None:
            return UNKNOWN_SPEED
        return max(0.01, min(1.0, prediction.speeds[1 if came_first else 0]))


class Arrival(NamedTuple):
    """A job of the past that may be submitted again in a future.

    Attributes:
        since_s: seconds from the beginning of its piece of the past (such as a day) to its
            submission.
        seconds: how long it ran; None when it has not ended.
    """

    since_s: float
    job: Job
    predicted_s: Duration | None
    profile: Profile | None
    seconds: float | None


Piece = dict[str, list[Arrival]]  # by virtual cluster


class Asked(dict[str, Quantiles]):
    """A dictionary from job ids to quantiles that computes a value when it is first asked for,
    since most jobs of a long queue are never asked about."""

    def __init__(self, make: Callable[[str], Quantiles]):
        super().__init__()
        self._make = make

    def __missing__(self, job_id: str) -> Quantiles:
        made = self[job_id] = self._make(job_id)
        return made


@dataclass(frozen=True, slots=True)
class Beliefs:
    """The predicted distributions from which futures are sampled, as of one moment.

    Attributes:
        now: that moment, seconds since the epoch.
        jobs: every job in the core, by id.
        quantiles: quantiles of the duration of each job, by id.
        pieces: arrivals of past periods that may come again: yesterday, the day before, ...
        piece_s: length of such a period: a day, or the whole past; 0 when no arrivals are expected.
        profiles: profiles, one of which a job without a profile may turn out to have.
        user_correlation: correlation of the normal scores of the durations of two jobs of one user.
            Above 0, a user with one long job is likely to have more.
    """

    now: float
    jobs: dict[str, SubmittedJob]
    quantiles: dict[str, Quantiles]
    pieces: Sequence[Piece]
    piece_s: float
    profiles: Sequence[Profile]
    user_correlation: float = 0.2

    @classmethod
    def of(
        cls, memory: Memory, core: Core, now: float, *, user_correlation: float = 0.2
    ) -> Beliefs:
        """Return the distributions that are predicted for the jobs of a core at `now`."""
        jobs: dict[str, SubmittedJob] = {}
        for job_id in core.jobs:
            jobs[job_id] = memory.believed(core.jobs[job_id])
        started = {job_id: run.start_time for job_id, run in core.cluster.runs.items()}
        quantiles = Asked(
            lambda job_id: memory.quantiles(jobs[job_id], now - started.get(job_id, now), core)
        )
        history_s = now - (memory.first if memory.first is not None else now)
        piece_s = min(DAY_S, history_s) if history_s >= HOUR_S else 0.0
        count = min(DAYS, int(history_s / piece_s)) if piece_s else 0
        pieces: list[Piece] = [{} for _ in range(count)]
        for past in memory.came():
            job = past.job
            back = ceil((now - job.submit_time) / piece_s) - 1 if piece_s else count
            if not 0 <= back < count:
                continue
            since = job.submit_time - (now - (back + 1) * piece_s)
            if past.ran_s is None and job.job_id not in jobs:
                continue
            pieces[back].setdefault(job.vc, []).append(
                Arrival(
                    since_s=since,
                    job=job,
                    predicted_s=past.predicted_s,
                    profile=past.profile,
                    seconds=past.ran_s,
                )
            )
        return cls(
            now=now,
            jobs=jobs,
            quantiles=quantiles,
            pieces=pieces,
            piece_s=piece_s,
            profiles=list(memory.profiles()),
            user_correlation=user_correlation,
        )


class Draw(dict[str, Work]):
    """The random numbers of one simulated future, made for each job when needed. The same seed,
    number and job give the same.

    So two futures with one seed and number differ only by what was changed in the core. Futures
    come in pairs: in the second one, durations are as far below their medians as they are above
    them in the first. How far is spread evenly over eight pairs (Latin hypercubes: McKay, Beckman
    and Conover 1979), so that a few futures are enough for the quantiles of a start that depends on
    one end.
    """

    def __init__(
        self,
        beliefs: Beliefs,
        seed: int,
        number: int,
        otherwise: Mapping[str, Quantiles] = MappingProxyType({}),
    ):
        super().__init__()
        self._beliefs = beliefs
        self._seed = f"{seed}/{number}"
        self._every, self._pair, self._side = str(seed), number // 2, 1 if number % 2 == 0 else -1
        self._quantiles = ChainMap(dict(otherwise), beliefs.quantiles)

    def __missing__(self, job_id: str) -> Work:
        past = self._beliefs.jobs[job_id]
        seconds = self.seconds(past.job, self._quantiles[job_id])
        work = self[job_id] = Work(seconds, profile=past.profile or self.profile(job_id))
        return work

    def chance(self, *about: object) -> float:
        """Return a random number in (0, 1), which is the same for the same arguments."""
        return self._chance(self._seed, *about)

    def _chance(self, *about: object) -> float:
        return (_word(*about, size=7) + 0.5) / 2.0**56

    def _score(self, *about: object) -> float:
        """Return a normally distributed number, the same for the same arguments. Its sign is
        random. In eight pairs of futures, its size falls into each eighth of the distribution once.
        """
        block, at = divmod(self._pair, BLOCK)
        order, places, place = _word(self._every, block, *about, size=8), list(range(BLOCK)), 0
        for left in range(BLOCK, BLOCK - at - 1, -1):
            order, chosen = divmod(order, left)
            place = places.pop(chosen)
        chance = 2.0 * self._chance(self._every, "pair", self._pair, *about)
        sign, within = (1.0, chance) if chance < 1.0 else (-1.0, chance - 1.0)
        return sign * _NORMAL.inv_cdf(0.5 + (place + within) / (2 * BLOCK))

    def seconds(self, job: Job, quantiles: Quantiles) -> float:
        """Return a random duration from a job's distribution. Durations of jobs of one user are
        correlated."""
        kin = self._beliefs.user_correlation
        own = self._score("job", job.job_id)
        shared = self._score("user", job.user) if kin else 0.0
        score = sqrt(kin) * shared + sqrt(1.0 - kin) * own
        return at_level(quantiles, _NORMAL.cdf(self._side * score))

    def profile(self, job_id: str) -> Profile | None:
        """Return a random profile for a job that was not profiled yet, from the known ones; None if
        there is none."""
        seen = self._beliefs.profiles
        return seen[int(self.chance("profile", job_id) * len(seen))] if seen else None

    def piece(self, number: int) -> Piece:
        """Return the period of past arrivals that comes again as period `number` of the future,
        chosen at random."""
        pieces = self._beliefs.pieces
        return pieces[int(self.chance("piece", number) * len(pieces))]


def _word(*about: object, size: int) -> int:
    text = "\x1f".join(map(str, about))
    return int.from_bytes(blake2b(text.encode(), digest_size=size).digest(), "big")


class Future(Engine):
    """Runs a copy of the core forward until the awaited jobs have started, or the horizon is
    reached.

    Args:
        core: a copy of the core; it is used up.
        beliefs: the distributions from which the future is sampled.
        draw: the random numbers of this future.
        awaited: ids of the jobs. The starts and ends of those that run already are recorded at
            once.
        vcs: virtual clusters that are simulated; None: all. Where virtual clusters do not use one
            another's GPUs, leaving the others out saves most of the work.
        horizon_s: how many seconds are simulated at most.
        until_cpu_s: stop, and set `cut`, when this process has used this many processor seconds.
    """

    def __init__(
        self,
        core: Core,
        beliefs: Beliefs,
        draw: Draw,
        awaited: Collection[str],
        *,
        vcs: frozenset[str] | None = None,
        horizon_s: float = 14 * DAY_S,
        until_cpu_s: float = inf,
    ):
        super().__init__(core, (), draw, BelievedSpeeds(core))
        self._pace_s = None  # nothing is learned from speeds that are made up
        self._beliefs = beliefs
        self._draw = draw
        self._vcs = vcs
        self._horizon = beliefs.now + horizon_s
        self._drawn_until = beliefs.now
        self._piece = 0
        self._until_cpu = until_cpu_s
        self.cut = False
        self.starts: dict[str, float] = {}
        self.ends: dict[str, float] = {}
        self.speeds: dict[str, float] = {}  # of awaited jobs that start beside another
        self.aside = set[str]()  # awaited jobs that started beside another, or ended while profiled
        for job_id in core.jobs:
            self.results[job_id] = JobResult(core.jobs[job_id].job, 0.0)
        runs = core.cluster.runs
        for run in list(runs.values()):
            self._resume(run)
        self._awaited = set(awaited)
        for job_id in awaited:
            if job_id in runs and not runs[job_id].profiling:
                self._seen(job_id, runs[job_id].start_time, self.end_of(job_id))

    def look(self) -> Future:
        """Simulate until every awaited job has started or was refused or cancelled, until the
        horizon, or until the time is spent (`cut`). Return this object."""
        self._more()
        self._plan_wake(self._beliefs.now)
        with suppress(_Enough):
            self._decided(self._beliefs.now)
            self.run()
        return self

    def submit(self, job: Job) -> None:
        """Schedule the submission of a job that will come at a time known already."""
        self.results[job.job_id] = JobResult(job, 0.0)
        self._push(job.submit_time, SUBMIT, job)

    # --- how it begins ----------------------------------------------------------------------

    def _resume(self, run: Run) -> None:
        """Schedule the end of a run of the copied core, which goes on from where it is. A run of a
        virtual cluster that is not simulated never ends."""
        now, job_id = self._beliefs.now, run.job.job_id
        if not run.profiling and self._vcs is not None and run.vc not in self._vcs:
            self._running[job_id] = Progress(job_id, ENDLESS, inf, now)
            return
        work = self.work[job_id]
        lasted = now - run.start_time
        stage = self.core.profiling
        if run.profiling:
            limit = stage.limit_s if stage is not None else inf
            going = Progress(job_id, work, min(work.duration_s, limit), run.start_time)
            going.profiling = True
            self._running[job_id] = going
            self._schedule_end(going)
            return
        going = Progress(job_id, work, max(work.duration_s - lasted, 0.0), now)
        going.started = run.start_time
        if run.partner is not None:
            beside = self.work[run.partner.job.job_id]
            going.rate = self.speed.rate(work, run, beside)
        self._running[job_id] = going
        self._schedule_end(going)
        if self._watch_s is not None and self.core.jobs[job_id].profile is None:
            seen = run.start_time + self._watch_s
            if seen > now and run.partner is None:
                self._push(seen, OBSERVE, going)

    def _more(self) -> None:
        """Schedule the submissions of one more period of past arrivals."""
        beliefs, draw, start = self._beliefs, self._draw, self._drawn_until
        if not beliefs.pieces:
            self._drawn_until = inf
            return
        estimator = self.core.estimator
        assert isinstance(estimator, Believed)
        for vc, arrivals in draw.piece(self._piece).items():
            if self._vcs is not None and vc not in self._vcs:
                continue
            for past in arrivals:
                job_id = f"{past.job.job_id}{AGAIN}{self._piece}"
                job = replace(past.job, job_id=job_id, submit_time=start + past.since_s)
                seconds = past.seconds
                if seconds is None:
                    seconds = draw.seconds(past.job, beliefs.quantiles[past.job.job_id])
                profile = past.profile or draw.profile(job_id)
                draw[job_id] = Work(seconds, profile=profile)
                estimator.predicted[job_id] = past.predicted_s
                self.results[job_id] = JobResult(job, seconds)
                self._push(job.submit_time, SUBMIT, job)
        self._drawn_until = start + beliefs.piece_s
        self._piece += 1

    # --- how it goes on ---------------------------------------------------------------------

    def _decided(self, now: float) -> None:
        if not self._awaited or now > self._horizon:
            raise _Enough
        if self._until_cpu < inf and process_time() > self._until_cpu:
            self.cut = True
            raise _Enough
        while self._drawn_until < self._horizon and (
            not self._heap or self._heap[0][0] >= self._drawn_until
        ):
            self._more()

    def _carry_out(self, decisions: list[Decision], now: float) -> None:
        super()._carry_out(decisions, now)
        for d in decisions:
            if d.action in (Action.REFUSE, Action.CANCEL):
                self._awaited.discard(d.job_id)
            elif d.job_id in self._awaited and d.action in STARTS:
                self._seen(d.job_id, now, self.end_of(d.job_id))
                if d.action is Action.PACK:
                    self.aside.add(d.job_id)
                    self.speeds[d.job_id] = d.speeds[0] if d.speeds else UNKNOWN_SPEED

    def _end(self, run: Progress, now: float) -> None:
        super()._end(run, now)
        result = self.results[run.job_id]
        if run.job_id in self._awaited and result.ended_in_profiling:
            assert result.start_time is not None
            self._seen(run.job_id, result.start_time, now)
            self.aside.add(run.job_id)

    def _seen(self, job_id: str, start: float, end: float) -> None:
        if start <= self._horizon:
            self.starts[job_id], self.ends[job_id] = start, end
        self._awaited.discard(job_id)

    def end_of(self, job_id: str) -> float:
        """Return when a running job will have ended if no other job joins its GPUs."""
        run = self._running[job_id]
        partner = self._partner(run)
        alone = run.since + run.remaining / run.rate
        if partner is None:
            return alone
        until = partner.since + partner.remaining / partner.rate
        if until >= alone:
            return alone
        return until + max(0.0, run.remaining - (until - run.since) * run.rate)


class _Enough(Exception):
    """Raised to stop the simulation of a future: all awaited jobs have started, the horizon is
    reached, or the time is spent."""
