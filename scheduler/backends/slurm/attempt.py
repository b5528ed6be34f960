"""One attempt to run a job through Slurm: where it stands, and what moves it.

An attempt moves by one table, `TRANSITIONS`. Each stage says what Slurm may have been asked for,
and is in the journal before Slurm is asked. A move that is not in the table is a defect, and raises
with the story of the attempt.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from scheduler.backends.base import Happened, Launch, Report
from scheduler.core.transitions import IllegalTransition, Step, story

Key = tuple[str, int]
LONGEST_STORY = 64  # steps; the oldest are forgotten


class Stage(StrEnum):
    """Where an attempt stands with Slurm."""

    ASKED = "asked for"  # Slurm was not asked for anything
    SENT = "submitted"  # `sbatch` was sent, and its answer may be lost
    HELD = "held"  # its job waits in Slurm, held, and nothing else was asked about it
    PLACING = "being placed"  # GPUs may have been asked for: the job itself says
    RELEASING = "being released"  # it may have been let go: the job itself says
    RELEASED = "released"  # the controller has let it go
    RUNNING = "running"  # it was seen to run, or to have run
    OVER = "over"


class Did(StrEnum):
    """What moves an attempt."""

    SUBMIT = "sbatch is sent"
    ACCEPTED = "sbatch was answered"
    FOUND = "its job was found"
    UNHEARD = "sbatch was not heard"
    PLACE = "GPUs are asked for"
    RELEASE = "its release is sent"
    HEARD = "its release was heard"
    HELD_AGAIN = "seen held again"
    LET_GO = "seen let go"
    FORGOTTEN = "unknown to the controller"
    RUNS = "seen to run"
    ENDED = Happened.ENDED.value
    PROFILED = Happened.PROFILED.value
    LOST = Happened.LOST.value
    NOT_STARTED = Happened.NOT_STARTED.value


_HELD = (Stage.HELD, Stage.PLACING)
_LET_GO = (Stage.RELEASING, Stage.RELEASED)
_IN_SLURM = (*_HELD, *_LET_GO)

TRANSITIONS: dict[tuple[Stage, Did], Stage] = {
    (Stage.ASKED, Did.SUBMIT): Stage.SENT,
    (Stage.SENT, Did.ACCEPTED): Stage.HELD,
    (Stage.SENT, Did.UNHEARD): Stage.ASKED,
    # by a comment: what else was asked about it before a crash is not known
    (Stage.ASKED, Did.FOUND): Stage.PLACING,
    (Stage.SENT, Did.FOUND): Stage.PLACING,
    **{(stage, Did.PLACE): Stage.PLACING for stage in _HELD},
    (Stage.PLACING, Did.RELEASE): Stage.RELEASING,
    (Stage.PLACING, Did.LET_GO): Stage.RELEASED,  # by an answer that came late
    (Stage.RELEASING, Did.HEARD): Stage.RELEASED,
    (Stage.RELEASING, Did.HELD_AGAIN): Stage.PLACING,  # the release was not heard
    (Stage.RELEASED, Did.HELD_AGAIN): Stage.PLACING,  # it died with the controller
    **{(stage, Did.FORGOTTEN): Stage.ASKED for stage in _HELD},  # the controller died first
    **{(stage, Did.RUNS): Stage.RUNNING for stage in _LET_GO},
    **{(stage, Did.NOT_STARTED): Stage.OVER for stage in (Stage.ASKED, Stage.SENT, *_IN_SLURM)},
    **{(stage, Did.LOST): Stage.OVER for stage in (*_IN_SLURM, Stage.RUNNING)},
    (Stage.RUNNING, Did.ENDED): Stage.OVER,
    (Stage.RUNNING, Did.PROFILED): Stage.OVER,
}


@dataclass(slots=True)
class SlurmAttempt:
    """One attempt. Times are seconds since the epoch, but for what is said otherwise.

    Attributes:
        launch: None when it was stopped before it was ever asked for.
        slurm_id: its job in Slurm, from HELD on; that of a user has it from the start.
        sent_at: Slurm was first asked for something about its job, or about to be.
        started_at: from RUNNING on.
        submitted: Slurm's submit time of the job, which tells a job id from the same one reused.
        stop, limit: it is to be ended: it was asked for; its time is up.
        observed: what watching it showed.
        final: how it ended; of what is OVER.
        told: reports of it that were acknowledged.
        steps: its moves so far.
        refusal: why Slurm would not place it, while it is being cancelled for that.
        cancelled_at, absent_since: when a cancel was last sent, and since when Slurm does not know
            its job, on the monotonic clock; forgotten with this process.
    """

    key: Key
    launch: Launch | None = None
    stage: Stage = Stage.ASKED
    slurm_id: str = ""
    sent_at: float | None = None
    started_at: float | None = None
    submitted: float | None = None
    stop: bool = False
    limit: bool = False
    observed: Report | None = None
    final: Report | None = None
    told: frozenset[Happened] = frozenset()
    steps: tuple[Step, ...] = ()
    refusal: str = ""
    cancelled_at: float | None = None
    absent_since: float | None = None

    @property
    def over(self) -> bool:
        return self.stage is Stage.OVER

    @property
    def done(self) -> bool:
        """Over, and whoever asks knows."""
        return self.final is not None and self.final.what in self.told

    @property
    def is_held(self) -> bool:
        """Its job is in Slurm, and may wait for its GPUs or its release."""
        return self.stage in _HELD

    @property
    def let_go(self) -> bool:
        """It runs, or may."""
        return self.stage in (*_LET_GO, Stage.RUNNING)

    @property
    def since(self) -> float:
        """When it came to where it stands."""
        return self.steps[-1].at if self.steps else 0.0

    @property
    def started(self) -> Report | None:
        if self.started_at is None:
            return None
        return Report(*self.key, Happened.STARTED, self.started_at)

    def move(self, did: Did, at: float) -> None:
        """Raises IllegalTransition."""
        stage = TRANSITIONS.get((self.stage, did))
        if stage is None:
            raise IllegalTransition(did, self.stage, self.story())
        self.stage = stage
        self.steps = (*self.steps, Step(at, did, stage))[-LONGEST_STORY:]

    def runs(self, started_at: float, at: float) -> None:
        """It was seen to run, since `started_at`."""
        self.move(Did.RUNS, at)
        self.started_at = started_at

    def end(self, report: Report, at: float) -> None:
        """Its final report."""
        self.move(Did(report.what.value), at)
        self.final = report

    def found(self, slurm_id: str, submitted: float, at: float) -> None:
        """A job in Slurm is its own."""
        self.move(Did.FOUND, at)
        self.slurm_id, self.submitted = slurm_id, submitted
        self.sent_at = self.sent_at or submitted

    def forget_job(self, did: Did, at: float) -> None:
        """Slurm has no job of it: it may be submitted again."""
        self.move(did, at)
        self.slurm_id, self.sent_at, self.submitted, self.absent_since = "", None, None, None

    def story(self) -> str:
        """Everything that happened to it, a line each."""
        job_id, number = self.key
        named = f", Slurm's job {self.slurm_id}" if self.slurm_id else ""
        return story(f"{job_id}, attempt {number}{named}", self.steps)
