"""What a viewer may see of a job: the facts from which explanations are made, wherever they are
stored."""

from __future__ import annotations

from dataclasses import dataclass, field

from features.codec import Json
from scheduler.core.request import JobRequest
from scheduler.slurm.reason import SlurmReason


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
        waited_s, waits_since: seconds that it waited in earlier spans, and when its present wait
            began; None: not counted, and not waiting. See `waited`.
        start_p10, start_p50, start_p90: for a waiting job, quantiles of its start in the last
            forecast; None: unknown, because of `why_not`.
        estimate: "crude" (work ahead over GPUs); "impossible": it cannot start; None: neither.
        slurm: for a job of a followed Slurm: why Slurm keeps it waiting, or did until it started
            it.
        at_once: how many tasks of its array may run at once; None: all, or it is no such task.
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
    waited_s: float | None = None
    waits_since: float | None = None
    start_p50: float | None = None
    start_p90: float | None = None
    why_not: str = ""
    start_p10: float | None = None
    estimate: str | None = None
    slurm: SlurmReason | None = None
    at_once: int | None = None

    def waited(self, now: float) -> float | None:
        """Return the seconds that the job has waited by `now`: had no GPUs, though it could have
        started. The time does not count for which it was held, other jobs had to end first, it was
        profiled, or its node started it. Return None as long as it could not start yet.

        For a job of Slurm, and for one that an older release recorded, that is the time from when
        it could start until it started, ended or was held, or until `now`.
        """
        depends = self.slurm is not None or self.after or self.after_any
        since = self.queued_at if depends else self.submitted_at
        if self.waited_s is None:
            until = self.started_at or self.ended_at or self.held_at or now
            return None if since is None else max(0.0, until - since)
        if since is None and self.started_at is None and self.ended_at is None:
            return None
        waits = 0.0 if self.waits_since is None else max(0.0, now - self.waits_since)
        return self.waited_s + waits


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
