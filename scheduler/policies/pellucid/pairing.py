"""Which running job to share GPUs with, and whether to.

Sharing saves the newcomer its wait, at worst until the partner would have ended; it costs both
some of their speed for as long as they share. The gain of a pair, in seconds of total completion
time, is the first less the second. Remaining times are expectations of the predictive
distribution, given how long the partner has run: one underestimate does not decide.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from features.job import Job, Profile
from scheduler.core.cluster import Run
from scheduler.core.core import QueuedJob, Turn
from scheduler.core.decisions import Evidence, Reason
from scheduler.core.durations import Outlook
from scheduler.core.pairs import Judge, Verdict
from scheduler.policies.pellucid.gputypes import TypedPlacement
from scheduler.policies.pellucid.speeds import Experienced

UNKNOWN = (0.8, 0.8)  # speeds believed of a pair whose verdict names none


def gain_s(newcomer_s: float, partner_s: float, speeds: tuple[float, float]) -> float:
    """Gain of a pair, seconds of total completion time.

    Args:
        newcomer_s, partner_s: expected seconds of work left.
        speeds: relative speed of newcomer and partner while they share (above 1 is noise).
    """
    own, other = min(speeds[0], 1.0), min(speeds[1], 1.0)
    shared = min(newcomer_s / max(own, 0.01), partner_s / max(other, 0.01))
    return partner_s - shared * (2.0 - own - other)


@dataclass(frozen=True, slots=True)
class _Refusal:
    """Sharing with any of `runs` is a loss for a job, for as long as nothing here changes.

    Before `until` what is left of each of them only falls, and with it what a pair would gain.
    """

    job: Job
    estimate_s: float | None
    judge: Judge
    runs: list[Run]
    hold: object
    profiles: list[Profile | None]  # of `runs`
    counts: tuple[int, int]  # of observations, of changed distributions
    until: float
    guard: Reason


class Pairing:
    """Looks for partners; remembers within a turn what it worked out."""

    def __init__(
        self, outlook: Outlook, gpu_memory_mib: float, types: TypedPlacement | None = None
    ):
        self.types = types
        self.outlook = outlook
        self.gpu_memory_mib = gpu_memory_mib
        self._left: dict[str, float] = {}
        self._refusals: dict[str, dict[str, _Refusal]] = {}  # by virtual cluster and job
        self._before: dict[str, _Refusal] = {}  # those of the last turn
        self._until: dict[str, float] = {}
        self._profiles: dict[tuple[str, int], list[Profile | None]] = {}  # of candidates, by GPUs
        self._looked_up: dict[int, list[Run]] = {}  # the candidates those of this turn are of
        self._hold: object = None
        self._found: tuple[float, float, Run, Verdict] | None = None

    @property
    def evidence(self) -> Evidence:
        """The pair that the last search was about: the one it found, or the best it refused."""
        if self._found is None:
            return ()
        newcomer_s, gain, run, verdict = self._found
        own, other = verdict.speeds or UNKNOWN
        return (
            ("best_partner", run.job.job_id),
            ("pair_speed", own),
            ("pair_partner_speed", other),
            ("left_s", newcomer_s),
            ("partner_left_s", self._left[run.job.job_id]),
            ("gain_s", gain),
        )

    def begin(self, turn: Turn, hold: object) -> None:
        """A turn begins: time has passed since the last one. `hold`: what GPUs are kept for."""
        self._left.clear()
        self._until.clear()
        self._looked_up.clear()
        self._hold = hold
        self._before = self._refusals.get(turn.vc, {})
        self._refusals[turn.vc] = {}

    def left(self, turn: Turn, run: Run) -> float:
        """Expected seconds of work left of a run."""
        job_id = run.job.job_id
        left = self._left.get(job_id)
        if left is None:
            estimate = turn.known(run).estimate_s or 0.0
            speed = 1.0 if self.types is None else self.types.speed_of(run)
            done_s = (turn.now - run.start_time) * speed
            left = self.outlook.expected_s(estimate, done_s) / speed
            self._left[job_id] = left
        return left

    def best(self, turn: Turn, queued: QueuedJob, judge: Judge, least: float) -> Run | Reason:
        """The partner with the greatest gain, or the guard that stood in every candidate's way.

        Args:
            least: predicted speeds must sum to at least this.
        """
        refusal = self._refused(turn, queued, judge)
        if refusal is not None:
            told = queued.reason is Reason.INTERFERENCE_GUARD  # its evidence, when it began
            if refusal.guard is not Reason.INTERFERENCE_GUARD or told:
                self._found = None
                return refusal.guard
        profile = queued.profile
        assert profile is not None
        assert queued.estimate_s is not None
        newcomer_s: float | None = None  # worked out once there is somebody to share with
        best: tuple[float, Run, Verdict] | None = None
        refused: tuple[float, Run, Verdict] | None = None
        guard = turn.capacity_reason(queued)
        candidates, until, pays = turn.alone(queued.job.gpus), inf, False
        for run in candidates:
            other = turn.known(run)
            if other.profile is None or turn.is_held(run):
                continue
            if self.types is not None and not self.types.admits(queued.job, run):
                continue
            if profile.gpu_mem_mib + other.profile.gpu_mem_mib >= self.gpu_memory_mib:
                if guard is not Reason.INTERFERENCE_GUARD:
                    guard = Reason.MEMORY_GUARD
                continue
            verdict = judge.verdict(queued, other)
            if verdict is None:
                continue
            guard = Reason.INTERFERENCE_GUARD
            speeds = verdict.speeds or UNKNOWN
            if newcomer_s is None:
                newcomer_s = self.outlook.expected_s(queued.estimate_s)
            own_s = newcomer_s
            if self.types is not None:
                own_s /= self.types.speed(queued.job, self.types.type_of(run))
            gain = gain_s(own_s, self.left(turn, run), speeds)
            pays = pays or gain > 0
            until = min(until, self._falls_until(turn, run))
            if min(speeds[0], 1.0) + min(speeds[1], 1.0) < least:
                continue
            if gain > 0:
                if best is None or gain > best[0]:
                    best = gain, run, verdict
            elif refused is None or gain > refused[0]:
                refused = gain, run, verdict
        found = best or refused
        self._found = (newcomer_s or 0.0, *found) if found is not None else None
        if not pays and self.types is None:
            self._refuse(turn, queued, judge, until, guard)
        if best is None:
            return guard
        queued.verdict = best[2]
        return best[1]

    # --- refusals that still hold -----------------------------------------------------------

    def _refused(self, turn: Turn, queued: QueuedJob, judge: Judge) -> _Refusal | None:
        """That an earlier search found nobody, if it still would."""
        job_id, now_refused = queued.job.job_id, self._refusals[turn.vc]
        refusal = now_refused.get(job_id) or self._before.get(job_id)
        if refusal is None or not (
            turn.now < refusal.until
            and refusal.job is queued.job
            and refusal.estimate_s == queued.estimate_s
            and refusal.judge is judge
            and refusal.runs is turn.alone(queued.job.gpus)
            and refusal.hold is self._hold
            and refusal.counts == self._counts(judge)
            and refusal.profiles is self._profiles_of(turn, queued.job.gpus)
        ):
            return None
        now_refused[job_id] = refusal
        return refusal

    def _refuse(
        self, turn: Turn, queued: QueuedJob, judge: Judge, until: float, guard: Reason
    ) -> None:
        """Remember that nobody was found, and for how long."""
        if guard not in (Reason.INTERFERENCE_GUARD, Reason.MEMORY_GUARD):
            return  # says what is free now; it took no search
        gpus = queued.job.gpus
        self._refusals[turn.vc][queued.job.job_id] = _Refusal(
            queued.job,
            queued.estimate_s,
            judge,
            turn.alone(gpus),
            self._hold,
            self._profiles_of(turn, gpus),
            self._counts(judge),
            until,
            guard,
        )

    def _profiles_of(self, turn: Turn, gpus: int) -> list[Profile | None]:
        """Profiles of the candidates: the same list for as long as none of them changes."""
        runs, at = turn.alone(gpus), (turn.vc, gpus)
        if self._looked_up.get(gpus) is not runs:
            self._looked_up[gpus] = runs
            found = [turn.known(run).profile for run in runs]
            if self._profiles.get(at) != found:
                self._profiles[at] = found
        return self._profiles[at]

    def _counts(self, judge: Judge) -> tuple[int, int]:
        observations = judge.seen if isinstance(judge, Experienced) else 0
        return observations, self.outlook.refreshed

    def _falls_until(self, turn: Turn, run: Run) -> float:
        """Until when what is left of a run only falls."""
        job_id = run.job.job_id
        until = self._until.get(job_id)
        if until is None:
            estimate = turn.known(run).estimate_s or 0.0
            for_s = self.outlook.falls_for_s(estimate, turn.now - run.start_time)
            self._until[job_id] = until = turn.now + for_s - 0.001  # short of rounding
        return until
