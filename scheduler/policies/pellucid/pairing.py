"""The choice of a running job with which a waiting job shares GPUs, and whether sharing pays.

Sharing saves the newcomer its wait, at most until the partner would have ended. It costs both jobs
some of their speed while they share. The gain of a pair, in seconds of total completion time, is
the first less the second. Remaining times are means of the predicted distribution, given how long
the partner has run, so that one prediction that was too short does not decide.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import takewhile
from math import inf

from features.job import Job, Profile
from scheduler.core.cluster import Run
from scheduler.core.decisions import Evidence, PairPrediction
from scheduler.core.durations import Duration, DurationDistribution
from scheduler.core.findings import Hold, Partner
from scheduler.core.obstacles import Obstacle
from scheduler.core.pairs import PairPredictor
from scheduler.core.queue import QueuedJob
from scheduler.core.tree_steps import assumed_step
from scheduler.core.turn import Turn
from scheduler.policies.pellucid.gputypes import TypedPlacement
from scheduler.policies.pellucid.speeds import Experienced

# what stands in the way of a pair once a prediction was made of it
_PREDICTED = (Obstacle.SPEED, Obstacle.OTHERS)
UNKNOWN = (0.8, 0.8)  # speeds believed of a pair where nothing predicts them


def gain_s(newcomer_s: float, partner_s: float, speeds: tuple[float, float]) -> float:
    """Return the gain of a pair, in seconds of total completion time saved; negative for a loss.

    Args:
        newcomer_s, partner_s: expected seconds of work that each job has left.
        speeds: relative speeds of newcomer and partner while they share; values above 1 count as 1.
    """
    own, other = min(speeds[0], 1.0), min(speeds[1], 1.0)
    shared = min(newcomer_s / max(own, 0.01), partner_s / max(other, 0.01))
    return partner_s - shared * (2.0 - own - other)


def held_longer_s(newcomer_s: float, partner_s: float, speeds: tuple[float, float]) -> float:
    """Return for how many seconds longer a pair holds its GPUs than the partner alone would.

    Args:
        newcomer_s, partner_s: expected seconds of work that each job has left.
        speeds: relative speeds of newcomer and partner while they share; values above 1 count as 1.
    """
    own, other = min(speeds[0], 1.0), min(speeds[1], 1.0)
    shared = min(newcomer_s / max(own, 0.01), partner_s / max(other, 0.01))
    newcomer_ends = newcomer_s + shared * (1.0 - own)
    partner_ends = partner_s + shared * (1.0 - other)
    return max(newcomer_ends, partner_ends) - partner_s


@dataclass(frozen=True, slots=True)
class _Refusal:
    """The stored result of a search: sharing with any of `runs` is a loss for the job, as long as
    none of these fields changes.

    Until the time `until`, the expected remaining time of each run only decreases, and with it what
    a pair would gain.
    """

    job: Job
    estimate_s: Duration | None
    outlived_s: float
    pair_predictor: PairPredictor
    runs: list[Run]
    hold: object
    usual: Profile | None
    profiles: list[Profile | None]  # of `runs`
    counts: tuple[int, int]  # of observations, of changed distributions
    until: float
    guard: Obstacle


class Pairing:
    """Finds, for waiting jobs, running jobs to share GPUs with. Within a turn (one round of
    decisions on a queue) it keeps what it has computed."""

    def __init__(
        self,
        distribution: DurationDistribution,
        types: TypedPlacement | None = None,
        hold_price: float = 1.0,
        max_gpus: int = 8,
    ):
        self.types = types
        self.hold_price = hold_price
        self.max_gpus = max_gpus
        self.distribution = distribution
        self._left: dict[str, float] = {}
        self._refusals: dict[str, dict[str, _Refusal]] = {}  # by virtual cluster and job
        self._before: dict[str, _Refusal] = {}  # those of the last turn
        self._until: dict[str, float] = {}
        self._profiles: dict[tuple[str, int], list[Profile | None]] = {}  # of candidates, by GPUs
        self._looked_up: dict[int, list[Run]] = {}  # the candidates those of this turn are of
        self._hold: object = None
        self._remembers = True
        # the newcomer's GPUs and expected seconds, and whom it was matched with
        self._found: tuple[int, float, _Candidate] | None = None

    @property
    def evidence(self) -> Evidence:
        """The numbers of the pair that the last search chose, or of the best pair that it refused,
        as evidence of a decision."""
        if self._found is None:
            return ()
        gpus, newcomer_s, found = self._found
        own, other = found.prediction.speeds or UNKNOWN
        partner_id = found.run.job.job_id
        price: Evidence = ()
        if found.hold.kept_out:
            price = (
                ("held_longer_s", found.hold.longer_s),
                ("kept_out_jobs", found.hold.kept_out),
                ("hold_costs_s", found.hold.costs_s),
            )
        return (
            ("best_partner", partner_id),
            *((("partner_gpus", found.run.job.gpus),) if found.run.job.gpus > gpus else ()),
            ("pair_speed", own),
            ("pair_partner_speed", other),
            ("left_s", newcomer_s),
            ("partner_left_s", self._left[partner_id]),
            ("gain_s", found.gain_s),
            *price,
        )

    def time_passed(self) -> None:
        """Drop the cached remaining times of runs. Called when a round of decisions begins."""
        self._left.clear()

    def begin(self, turn: Turn, hold: object, *, remembers: bool = True) -> None:
        """Prepare for searches in this turn. Called as the turn begins.

        Args:
            hold: the reservation of the virtual cluster; results of searches hold only while it
                stays the same.
            remembers: whether results of earlier turns are used; otherwise every search is made
                again.
        """
        if not remembers:
            self._refusals.clear()
        self._remembers = remembers
        self._until.clear()
        self._looked_up.clear()
        self._hold = hold
        self._before = self._refusals.get(turn.vc, {})
        self._refusals[turn.vc] = {}

    def keep(self, hold: object) -> None:
        """Use another reservation of the virtual cluster in this turn: see `begin`."""
        self._hold = hold

    def left(self, turn: Turn, run: Run) -> float:
        """Return the expected seconds until a run has done its remaining work."""
        job_id = run.job.job_id
        left = self._left.get(job_id)
        if left is None:
            queued = turn.known(run)
            estimate = queued.estimate_s or 0.0
            speed = 1.0 if self.types is None else self.types.speed_of(run)
            done_s = (turn.now - run.start_time) * speed
            total_s = self.distribution.total_s(estimate, max(done_s, queued.outlived_s))
            left = (total_s - done_s) / speed
            self._left[job_id] = left
        return left

    def free_in_s(self, turn: Turn, run: Run) -> float:
        """Return the expected seconds until the GPUs of a run are free: until the run and its
        partner, if any, have ended.
        """
        members = (run, run.partner) if run.partner is not None else (run,)
        return max(self.left(turn, member) for member in members)

    def best(
        self, turn: Turn, queued: QueuedJob, pair_predictor: PairPredictor, least: float
    ) -> Run | Obstacle:
        """Return the partner with the greatest gain less its cost to other jobs, or the obstacle
        because of which every candidate was refused.

        `queued.considered` is set to the best candidate, and `queued.pair_prediction` to the
        prediction for the partner that is returned.

        Args:
            least: the predicted speeds of the two jobs must sum to at least this.
        """
        refusal = self._refused(turn, queued, pair_predictor)
        if refusal is not None:
            known = queued.obstacle is Obstacle.SPEED  # its evidence, when it began
            if refusal.guard is not Obstacle.SPEED or known:
                self._found = None
                if queued.considered is not None:
                    queued.considered = replace(queued.considered, at=turn.now)
                return refusal.guard
        search = _Search(
            pairing=self, turn=turn, queued=queued, pair_predictor=pair_predictor, least=least
        )
        for run in turn.alone(queued.job.gpus):
            search.consider(run)
        closest = search.best or search.refused
        if closest is not None:
            self._found = queued.job.gpus, search.newcomer_s, closest
        else:
            self._found = None
        queued.considered = search.considered()
        if not search.pays and self.types is None:
            self._refuse(turn, queued, pair_predictor, search.until, guard=search.guard)
        if search.best is None:
            return search.guard
        run, prediction = search.best.run, search.best.prediction
        assumed = [*_assumed(queued), *(f"partner: {x}" for x in _assumed(turn.known(run)))]
        queued.pair_prediction = replace(prediction, path=(*assumed, *_decided_by(prediction)))
        return run

    def nobody(self, turn: Turn, queued: QueuedJob) -> Obstacle:
        """Return why a job has to wait for which there is no run that could be its partner. Its
        `considered` becomes None."""
        self._found = queued.considered = None
        return turn.obstacle(queued)

    # --- refusals that still hold -----------------------------------------------------------

    def _refused(
        self, turn: Turn, queued: QueuedJob, pair_predictor: PairPredictor
    ) -> _Refusal | None:
        """Return the stored result of an earlier search that found no partner, if nothing on which
        it depends has changed. Return None if the search must be repeated."""
        job_id, now_refused = queued.job.job_id, self._refusals[turn.vc]
        refusal = now_refused.get(job_id) or self._before.get(job_id)
        if refusal is None or not (
            self._remembers
            and turn.now < refusal.until
            and refusal.job is queued.job
            and refusal.estimate_s == queued.estimate_s
            and refusal.outlived_s == queued.outlived_s
            and refusal.pair_predictor is pair_predictor
            and refusal.runs is turn.alone(queued.job.gpus)
            and refusal.hold is self._hold
            and refusal.usual is queued.usual
            and refusal.counts == self._counts(pair_predictor)
            and refusal.profiles is self._profiles_of(turn, queued.job.gpus)
        ):
            return None
        now_refused[job_id] = refusal
        return refusal

    def _refuse(
        self,
        turn: Turn,
        queued: QueuedJob,
        pair_predictor: PairPredictor,
        until: float,
        guard: Obstacle,
    ) -> None:
        """Store that the search found no partner for a job, and until when this result holds. Do
        nothing for an obstacle that is found without a search."""
        if guard not in (*_PREDICTED, Obstacle.MEMORY):
            return  # says what is free now; it took no search
        gpus = queued.job.gpus
        self._refusals[turn.vc][queued.job.job_id] = _Refusal(
            job=queued.job,
            estimate_s=queued.estimate_s,
            outlived_s=queued.outlived_s,
            pair_predictor=pair_predictor,
            runs=turn.alone(gpus),
            hold=self._hold,
            usual=queued.usual,
            profiles=self._profiles_of(turn, gpus),
            counts=self._counts(pair_predictor),
            until=until,
            guard=guard,
        )

    def _profiles_of(self, turn: Turn, gpus: int) -> list[Profile | None]:
        """Return the profiles of the runs with which a job of `gpus` GPUs could share. The same
        list object is returned as long as none of them changes."""
        runs, at = turn.alone(gpus), (turn.vc, gpus)
        if self._looked_up.get(gpus) is not runs:
            self._looked_up[gpus] = runs
            found = [turn.known(run).likely for run in runs]
            if self._profiles.get(at) != found:
                self._profiles[at] = found
        return self._profiles[at]

    def _counts(self, pair_predictor: PairPredictor) -> tuple[int, int]:
        observations = pair_predictor.seen if isinstance(pair_predictor, Experienced) else 0
        return observations, self.distribution.refreshed

    def falls_until(self, turn: Turn, run: Run) -> float:
        """Return the time, seconds since the epoch, until which the expected remaining time of a
        run only decreases. After that, the longer it runs, the longer it is expected to last."""
        job_id = run.job.job_id
        until = self._until.get(job_id)
        if until is None:
            queued, ran_s = turn.known(run), turn.now - run.start_time
            least_s = max(ran_s, queued.outlived_s)
            for_s = self.distribution.falls_for_s(queued.estimate_s or 0.0, least_s)
            for_s += least_s - ran_s
            self._until[job_id] = until = turn.now + for_s - 0.001  # short of rounding
        return until


def _decided_by(prediction: PairPrediction) -> tuple[str, ...]:
    """Return, as text, the steps that led to the speeds from which the gain of a pair was computed;
    () where the speeds come from a table, and a note where no speeds are predicted."""
    if prediction.speed_path:
        return prediction.speed_path
    if prediction.speeds is not None:
        return ()  # they are a table's
    return (f"no speeds are predicted: {UNKNOWN[0]:.0%} is taken for both",)


def _assumed(queued: QueuedJob) -> tuple[str, ...]:
    """Return a note that a job's profile was assumed from similar jobs, as a tuple of one text; ()
    where the job has its own profile, or none was assumed."""
    if queued.profile is not None or queued.usual is None:
        return ()
    return (assumed_step(of_owner=bool(queued.job.user)),)


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A running job whose GPUs a waiting job could share, with the gain of the pair and its cost to
    other waiting jobs."""

    gain_s: float
    hold: Hold
    net_s: float  # the one less the other, by its price
    run: Run
    prediction: PairPrediction


class _Search:
    """One search for a partner of a waiting job.

    Attributes:
        best: the candidate with the greatest gain less its cost to other jobs, among those that
            pay.
        refused: likewise, among those that do not pay.
        barred: a run that a hard rule forbids as a partner, and that rule.
        guard: why every candidate so far was refused.
        pays: whether sharing with some run would save time, apart from the demand that both keep
            enough speed.
        until: the time until which the expected remaining time of each candidate only decreases.
        newcomer_s: expected seconds of work of the waiting job.
    """

    def __init__(
        self,
        pairing: Pairing,
        turn: Turn,
        queued: QueuedJob,
        pair_predictor: PairPredictor,
        least: float,
    ):
        self._pairing = pairing
        self._turn = turn
        self._queued = queued
        self._pair_predictor = pair_predictor
        self._least = least
        self.best: _Candidate | None = None
        self.refused: _Candidate | None = None
        self.barred: tuple[Run, Obstacle] | None = None
        self.guard = turn.obstacle(queued)
        self.pays = False
        self.until = inf
        self.newcomer_s = 0.0  # worked out once there is somebody to share with
        self._waits_s: float | None = None

    def consider(self, run: Run) -> None:
        """Compute the gain and cost of sharing with `run`, and update the fields of the search."""
        rule = self._turn.bar(self._queued, run)
        if rule is not None:
            self._bar(run, rule)
            return
        if run.job.gpus > self._pairing.max_gpus:
            return
        types = self._pairing.types
        if types is not None and not types.fits(self._queued.job, run):
            return
        prediction = self._pair_predictor.predict_pair(self._queued, self._turn.known(run))
        if prediction is None:
            return
        speeds = prediction.speeds or UNKNOWN
        own_s, left_s = self._own_s(run), self._pairing.left(self._turn, run)
        gain = gain_s(own_s, left_s, speeds)
        self.pays = self.pays or gain > 0
        if run.job.gpus > self._queued.job.gpus:  # it need not wait for so wide a run to end
            gain -= max(0.0, left_s - self._soonest_s())
        self.until = min(self.until, self._pairing.falls_until(self._turn, run))
        enough = min(speeds[0], 1.0) + min(speeds[1], 1.0) >= self._least
        if not enough:
            self.guard = Obstacle.SPEED if self.refused is None else self.guard
            return
        hold = self._hold(run.job.gpus, own_s, left_s, speeds)
        net_s = gain - self._pairing.hold_price * hold.costs_s
        found = _Candidate(gain_s=gain, hold=hold, net_s=net_s, run=run, prediction=prediction)
        if found.net_s > 0:
            if self.best is None or found.net_s > self.best.net_s:
                self.best = found
        elif self.refused is None or found.net_s > self.refused.net_s:
            self.refused = found
            priced = found.gain_s > 0
            self.guard = Obstacle.OTHERS if priced else Obstacle.SPEED

    def _hold(self, gpus: int, own_s: float, left_s: float, speeds: tuple[float, float]) -> Hold:
        """Return what a pair on `gpus` GPUs would cost the jobs ahead in the queue, because the
        pair holds its GPUs longer.

        All jobs ahead count, wider ones too: these need the pair's GPUs beside others of the node,
        and a node on which pairs follow each other never empties for them.
        """
        turn = self._turn
        return Hold(
            longer_s=held_longer_s(own_s, left_s, speeds),
            gpus=gpus,
            of=turn.pool.gpus,
            kept_out=turn.queue.position(self._queued) - 1,
        )

    def _soonest_s(self) -> float:
        """Return the predicted seconds until enough runs of at least the job's size have ended for
        the job and all jobs ahead of it. Return inf if there are too few runs."""
        if self._waits_s is None:
            turn, gpus = self._turn, self._queued.job.gpus
            ahead = sum(1 for _ in takewhile(lambda other: other is not self._queued, turn.queue))
            ends = sorted(
                self._pairing.left(turn, run) for run in turn.runs() if run.job.gpus >= gpus
            )
            self._waits_s = ends[ahead] if ahead < len(ends) else inf
        return self._waits_s

    def considered(self) -> Partner | None:
        """Return the best candidate, with the reason if it was refused, or None without candidates.
        An accepted candidate comes first, then a refused one, then one that a rule forbids."""
        found, now = self.best or self.refused, self._turn.now
        if found is not None:
            return Partner(
                now,
                found.run.job.job_id,
                refused=None if found is self.best else self.guard.reason,
                speeds=found.prediction.speeds,
                gain_s=found.gain_s,
                hold=found.hold,
            )
        if self.barred is None:
            return None
        run, rule = self.barred
        return Partner(now, run.job.job_id, rule.reason)

    def _bar(self, run: Run, rule: Obstacle) -> None:
        if rule is Obstacle.MEMORY and self.guard not in _PREDICTED:
            self.guard = rule
        if self.barred is None or self.barred[1] is Obstacle.PROFILE:
            self.barred = run, rule

    def _own_s(self, run: Run) -> float:
        """Return the expected seconds that the waiting job takes on GPUs of a run's type."""
        queued, types = self._queued, self._pairing.types
        if not self.newcomer_s:
            assert queued.estimate_s is not None
            believed = self._pairing.distribution
            self.newcomer_s = believed.total_s(queued.estimate_s, queued.outlived_s)
        if types is None:
            return self.newcomer_s
        return self.newcomer_s / types.speed(queued.job, types.type_of(run))
