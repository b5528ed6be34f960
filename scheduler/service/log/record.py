"""The record of one job: everything known of it, and what happened to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from features.job import Profile
from features.progress import Progress
from features.states import State as EndState
from scheduler.backends.base import Purpose
from scheduler.backends.events import Event, canonical
from scheduler.backends.submission import Submission
from scheduler.core.phase import ELIGIBLE as ELIGIBLE
from scheduler.core.phase import HOLDS as HOLDS
from scheduler.core.phase import OVER as OVER
from scheduler.core.phase import WAITS as WAITS
from scheduler.core.phase import Phase as Phase
from scheduler.core.transitions import Step, story
from scheduler.explain.words import progress_words
from scheduler.job_rows import JobColumns as JobColumns


@dataclass(slots=True)
class Grant:
    """The GPUs that a job holds. A job has a grant exactly while its phase holds GPUs.

    Attributes:
        nodes, gpus: numbers of the nodes, and the bit mask of the job's GPUs on each.
        at: when the GPUs were given, seconds since the epoch.
        partner: id of the job that shares the GPUs; None: no job does.
        begun: whether the attempt was reported started.
    """

    purpose: Purpose
    nodes: tuple[int, ...]
    gpus: tuple[int, ...]
    at: float
    partner: str | None = None
    begun: bool = False


class HoldBy(StrEnum):
    """Who may release a held job: its owner, or only an operator."""

    OWNER = "owner"  # or an operator
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class Hold:
    """A hold on a job: who may release it (`by`), who held it (`actor`), and since when (seconds
    since the epoch).
    """

    by: HoldBy
    actor: str
    since: float


@dataclass(frozen=True, slots=True)
class Depends:
    """A job's wait for other jobs to end. `since`: when it began, seconds since the epoch;
    `failed`: id of the job that failed, or "".
    """

    since: float
    failed: str = ""


@dataclass(frozen=True, slots=True)
class End:
    """How a job ended: when (`at`, seconds since the epoch), with which state, exit code and
    message. `state` is None for a job that was refused.
    """

    at: float
    state: EndState | None = None
    exit_code: int | None = None
    detail: str = ""


@dataclass(slots=True)
class Record:
    """One job. Times are seconds since the epoch on the backend's clock.

    Attributes:
        seq: number of the event that submitted the job.
        reason: code of its latest decision.
        priority: the priority that was asked for; higher goes first.
        key: the policy's order within the virtual cluster, smaller first.
        attempt: number of the latest launch, from 1; 0 before.
        profile: profile from its latest profiling run or observation.
        progress: the latest progress that the job printed. unread: why its progress is not known.
        silent: which of its GPUs do not answer, and why, in words.
        profiled: whether it has been in the profiling partition.
        granted: number of the decision that gave it GPUs last; -1 before.
        grant: the GPUs it holds; None: it holds none.
        hold: the hold on it, also one that begins when its profiling run is over; None: it is not
            held.
        held_s: seconds that it was held, or waited for other jobs to end, in earlier spans.
        depends: its wait for other jobs to end; None: it does not wait for any.
        waited_s: seconds that it has waited in earlier spans: without GPUs, though neither held nor
            kept back by other jobs; None: not counted, since an older release wrote its record.
        waits_since: when its present wait began; None: it does not wait.
        changed: whether it asks for something else than at its submission.
        end: how it ended; None: it is not over.
        steps: what happened to it, in order, without decisions that leave it waiting.
        updated_seq: number of the last event that changed its row.
    """

    submission: Submission
    seq: int
    phase: Phase = Phase.SUBMITTED
    reason: str = ""
    priority: int = 0
    key: float | None = None
    estimate_s: float | None = None
    attempt: int = 0
    profile: Profile | None = None
    progress: Progress | None = None
    unread: str = ""
    silent: str = ""
    profiled: bool = False
    granted: int = -1
    queued_at: float | None = None
    started_at: float | None = None
    cancel_asked: bool = False
    grant: Grant | None = None
    hold: Hold | None = None
    held_s: float = 0.0
    depends: Depends | None = None
    waited_s: float | None = None
    waits_since: float | None = None
    changed: bool = False
    end: End | None = None
    updated_seq: int = 0
    steps: list[Step] = field(default_factory=list)

    @classmethod
    def submitted(cls, event: Event) -> Record:
        """Return a new record from a SUBMITTED event."""
        asked = Submission.from_body(event.body)
        step = Step(event.at, event.kind, Phase.SUBMITTED, event.seq)
        record = cls(asked, event.seq, priority=asked.priority, updated_seq=event.seq, steps=[step])
        record.waited_s, record.waits_since = 0.0, asked.submitted_at
        return record

    def count_wait(self, at: float, *, waits: bool) -> None:
        """Count the time that the job has waited until `at`. `waits`: whether it waits from then
        on.
        """
        if self.waited_s is None or self.end is not None:
            return
        if self.waits_since is not None:
            at = max(at, self.waits_since)
            self.waited_s += at - self.waits_since
        self.waits_since = at if waits else None

    @property
    def job_id(self) -> str:
        return self.submission.job_id

    @property
    def waits_to_begin(self) -> bool:
        """Return whether the job was given GPUs and its attempt is not yet reported begun."""
        return self.grant is not None and not self.grant.begun

    def story(self) -> str:
        """Return everything that happened to the job, a line each."""
        return story(f"job {self.job_id}", self.steps)

    def row(self) -> JobColumns:
        """Return the record as a row of the table `jobs`."""
        asked = self.submission
        return {
            "job_id": asked.job_id,
            "submitted_seq": self.seq,
            "owner": asked.owner,
            "vc": asked.vc,
            "name": asked.name,
            "gpus": asked.gpus,
            "spec": canonical(asked.body()),
            "submitted_at": asked.submitted_at,
            **self.standing(),
        }

    def _so_far(self) -> str:
        """Return, as text, which of the job's GPUs do not answer, and the progress that the job
        printed.
        """
        return "; ".join(filter(None, (self.silent, progress_words(self.progress, self.unread))))

    def standing(self) -> JobColumns:
        """Return the columns of the job's row that change during its life."""
        grant, end = self.grant, self.end
        held = () if grant is None else zip(grant.nodes, map(indices, grant.gpus), strict=True)
        hold = self.hold
        return {
            "phase": self.phase.value,
            "reason": self.reason,
            "priority": self.priority,
            "key": self.key,
            "estimate_s": self.estimate_s,
            "attempt": self.attempt,
            "nodes": canonical(list(held)),
            "partner": None if grant is None else grant.partner,
            "queued_at": self.queued_at,
            "started_at": self.started_at,
            "ended_at": None if end is None else end.at,
            "state": None if end is None or end.state is None else end.state.value,
            "exit_code": None if end is None else end.exit_code,
            "detail": self._so_far() if end is None else end.detail,
            "slurm": None,  # no Slurm is followed
            "cancel_asked": self.cancel_asked,
            "hold": "" if hold is None else hold.by.value,
            "held_by": "" if hold is None else hold.actor,
            "held_at": None if hold is None else hold.since,
            "waited_s": self.waited_s,
            "waits_since": self.waits_since,
            "updated_seq": self.updated_seq,
        }


def first_row(submitted: Event) -> JobColumns:
    """Return the row of `jobs` that is written together with a SUBMITTED event. The event has its
    `seq`.
    """
    return Record.submitted(submitted).row()


def indices(mask: int) -> tuple[int, ...]:
    """Return the GPU indices of a bit mask."""
    return tuple(i for i in range(mask.bit_length()) if mask >> i & 1)


def profile_of(body: Mapping[str, Any]) -> Profile | None:
    """Return the profile in the body of a report's event, or None where it has none."""
    found = body.get("profile")
    return None if found is None else Profile(**found)
