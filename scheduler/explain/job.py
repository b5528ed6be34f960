"""What a viewer may see of a job: the facts from which explanations are made, wherever they are
stored."""

from __future__ import annotations

from dataclasses import dataclass, field

from features.codec import Json
from scheduler.core.decisions import Reason
from scheduler.core.request import JobRequest
from scheduler.slurm.reason import SlurmReason

ARRAY_LIMIT = "ArrayLimit"  # its array lets only so many tasks run at once


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow(JobRequest):
    """A job that the viewer may see in full, with its request.

    Attributes:
        phase: its present phase, from submission to end.
        reason: reason code of its latest decision.
        placement: GPU indices by node.
        partner: the job with which it shares its GPUs; "another job" when that one is not shown.
        state, exit_code, detail: how it ended.
        hold: "owner" or "operator": who may release it; "": it is not held.
        held_by, held_at: who holds it, and since when.
        start_p10, start_p50, start_p90: for a waiting job, quantiles of its start in the last
            forecast; None: unknown, because of `why_not`.
        estimate: "crude" (work ahead over GPUs); "impossible": it cannot start; None: neither.
        slurm: for a job of a followed Slurm: why Slurm keeps it waiting, or did until it started
            it.
    """

    job_id: str
    owner: str
    phase: str
    reason: str
    user: str
    attempt: int
    placement: dict[int, list[int]]
    partner: str | None
    estimate_s: float | None
    submitted_at: float
    queued_at: float | None
    started_at: float | None
    ended_at: float | None
    state: str | None
    exit_code: int | None
    detail: str
    cancel_asked: bool
    hold: str = ""
    held_by: str = ""
    held_at: float | None = None
    start_p50: float | None = None
    start_p90: float | None = None
    why_not: str = ""
    start_p10: float | None = None
    estimate: str | None = None
    slurm: SlurmReason | None = None

    @property
    def why(self) -> str:
        """Reason code of its latest decision; `ARRAY_LIMIT` where it waits for tasks of its own
        array only (--array 0-9%2), which are no dependency that its owner stated."""
        if self.reason != Reason.DEPENDENCY_NOT_MET:
            return self.reason
        array = f"{self.job_id.rpartition('_')[0]}_"
        ahead = [one for one in f"{self.after},{self.after_any}".split(",") if one]
        own = array != "_" and all(one.startswith(array) for one in ahead)
        return ARRAY_LIMIT if own and ahead else self.reason

    def waited_s(self, now: float) -> float | None:
        """Return the seconds that the job has waited by `now`, or had waited when it started. The
        wait begins when no other job has to end first, and ends when the job is held. Return None
        while other jobs have to end first.
        """
        depends = self.slurm is not None or self.after or self.after_any
        since = self.queued_at if depends else self.submitted_at
        until = self.started_at or self.ended_at or self.held_at or now
        return None if since is None else max(0.0, until - since)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a job's story: an event, or a decision with its reasons.

    Attributes:
        kind: kind of the event, or "decision".
        text: for a decision, its sentence.
        body: the recorded values.
    """

    at: float
    seq: int
    kind: str
    text: str
    next_step: str = ""
    actor: str = ""
    body: Json = field(default_factory=dict)
