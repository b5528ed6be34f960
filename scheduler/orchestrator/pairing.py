"""Which running job to share GPUs with, and whether to.

Sharing saves the newcomer its wait, at worst until the partner would have ended; it costs both
some of their speed for as long as they share. The gain of a pair, in seconds of total completion
time, is the first less the second. Remaining times are expectations of the predictive
distribution, given how long the partner has run: one underestimate does not decide.
"""

from __future__ import annotations

from scheduler.cluster import Run
from scheduler.core import QueuedJob, Turn
from scheduler.decisions import Reason
from scheduler.orchestrator.outlook import Outlook
from scheduler.sharing import Judge, Verdict

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


class Pairing:
    """Looks for partners; remembers within a turn what it worked out."""

    def __init__(self, outlook: Outlook, gpu_memory_mib: float):
        self.outlook = outlook
        self.gpu_memory_mib = gpu_memory_mib
        self._left: dict[str, float] = {}

    def begin(self, turn: Turn) -> None:
        """A turn begins: time has passed since the last one."""
        self._left.clear()

    def left(self, turn: Turn, run: Run) -> float:
        """Expected seconds of work left of a run."""
        job_id = run.job.job_id
        left = self._left.get(job_id)
        if left is None:
            estimate = turn.known(run).estimate_s or 0.0
            left = self.outlook.expected_s(estimate, turn.now - run.start_time)
            self._left[job_id] = left
        return left

    def best(self, turn: Turn, queued: QueuedJob, judge: Judge, least: float) -> Run | Reason:
        """The partner with the greatest gain, or the guard that stood in every candidate's way.

        Args:
            least: predicted speeds must sum to at least this.
        """
        profile = queued.profile
        assert profile is not None
        assert queued.estimate_s is not None
        newcomer_s = self.outlook.expected_s(queued.estimate_s)
        best: tuple[float, Run, Verdict] | None = None
        guard = turn.capacity_reason(queued)
        for run in turn.alone(queued.job.gpus):
            other = turn.known(run)
            if other.profile is None or turn.is_held(run):
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
            if min(speeds[0], 1.0) + min(speeds[1], 1.0) < least:
                continue
            gain = gain_s(newcomer_s, self.left(turn, run), speeds)
            if gain > 0 and (best is None or gain > best[0]):
                best = gain, run, verdict
        if best is None:
            return guard
        queued.verdict = best[2]
        return best[1]
