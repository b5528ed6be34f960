"""The backend contract. A backend carries out decisions.

A backend carries out launches and stops, and reports what became of them. It receives everything
at least once and must do it at most once: `(job_id, attempt)` names an action for good, and asking
again for one that was begun changes nothing. What it knows survives the death of the service.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from features.job import Profile
from features.progress import Progress
from features.states import State

if TYPE_CHECKING:
    from scheduler.backends.events import Event
    from scheduler.core.decisions import Decision


class Purpose(StrEnum):
    """Why a job is given GPUs: to run, or to be profiled first."""

    RUN = "run"
    PROFILE = "profile"  # for at most `Launch.limit_s`; if it is not over by then it is stopped


@dataclass(frozen=True, slots=True)
class Launch:
    """One attempt to run a job.

    Attributes:
        job_id, attempt: name the attempt; a job's attempts are numbered from 1.
        command: argument vector; never a shell line.
        nodes: index and name are the cluster's; `gpus` is one tuple of GPU indices per node.
        environment: added to the scrubbed environment of the backend.
        user: operating-system user to run as; "" = the service's own.
        memory_mib, time_limit_s: limits enforced by the backend; None = none.
        limit_s: how long a profiling run may take, seconds.
        partner: job already on the same GPUs.
        watch_s: a run on GPUs of its own is watched for so long, seconds, and then OBSERVED, where
            there is something to watch it with; None = it is not watched.
        pair_watch_s: when it has shared GPUs with its partner for so long, seconds, both are
            PAIR_OBSERVED, where their progress can be measured; None = they are not.
        progress: what it prints may be read for how far it is, and PROGRESS be reported.
        amount: how much it is to do, where files that its command names say so: {"epochs": 90}.
    """

    job_id: str
    attempt: int
    purpose: Purpose
    command: tuple[str, ...]
    nodes: tuple[int, ...]
    gpus: tuple[tuple[int, ...], ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    workdir: str = ""
    user: str = ""
    memory_mib: float | None = None
    time_limit_s: float | None = None
    limit_s: float | None = None
    partner: str | None = None
    watch_s: float | None = None
    pair_watch_s: float | None = None
    progress: bool = False
    amount: Mapping[str, float] = field(default_factory=dict)


class Happened(StrEnum):
    """An event of an attempt that a backend reports. Each is reported at most once, and a final one
    comes last. Exceptions: PAIR_OBSERVED comes once per partner; PROGRESS and UNREAD come at every
    change.
    """

    STARTED = "started"
    OBSERVED = "observed"  # still running; `profile` is what watching it showed
    PAIR_OBSERVED = "pair_observed"  # still running beside a partner; `speed` is how fast
    PROGRESS = "progress"  # still running, or about to be PROFILED; how long it will have run
    UNREAD = "unread"  # still running; why its progress is not known, "": it is again
    PROFILED = "profiled"  # stopped at the profiling limit, healthy; to be run later
    ENDED = "ended"
    LOST = "lost"  # begun, and nobody knows how it ended (the host died)
    NOT_STARTED = "not_started"  # refused for good: no such command, no permission; or stopped

    @property
    def final(self) -> bool:
        """Whether this is the last report of an attempt."""
        return self in (Happened.PROFILED, Happened.ENDED, Happened.LOST, Happened.NOT_STARTED)


@dataclass(frozen=True, slots=True)
class Report:
    """A report of what happened to an attempt.

    Attributes:
        at: when it happened, seconds since the epoch on the backend's clock.
        state, exit_code, ran_s: of an end; `ran_s` is seconds on GPUs. An attempt that was stopped
            before it began is NOT_STARTED with state CANCELLED. `exit_code` is 128 + n when
            signal n ended it by itself, None when the backend did.
        detail: one line for a person: exit code and last line, why it was not started, or is not
            read.
        profile: profile of OBSERVED, PROFILED, and ENDED while being profiled, where there is one.
        pid: process id on a host that has one.
        speed: speed of PAIR_OBSERVED: progress per second over that of a run alone.
        progress: of PROGRESS.
    """

    job_id: str
    attempt: int
    what: Happened
    at: float
    state: State | None = None
    exit_code: int | None = None
    ran_s: float | None = None
    detail: str = ""
    profile: Profile | None = None
    pid: int | None = None
    speed: float | None = None
    progress: Progress | None = None


class Backend(Protocol):
    """Carries out decisions. It is single-threaded: the decider is the only caller."""

    name: str

    def now(self) -> float:
        """Return the time by which decisions are dated, seconds since the epoch; it never goes
        back.
        """
        ...

    def launch(self, launch: Launch) -> None:
        """Begin an attempt. It returns at once; STARTED or NOT_STARTED is reported later.

        Asked again for an attempt it has begun, it does nothing.
        """
        ...

    def stop(self, job_id: str, attempt: int) -> None:
        """End an attempt with its whole process group. ENDED with state CANCELLED is reported
        later.

        An attempt that is over stays as it is. One that was never begun may not begin after this:
        NOT_STARTED with state CANCELLED is reported.
        """
        ...

    def reports(self, timeout_s: float) -> Sequence[Report]:
        """Return what happened and was not acknowledged yet, oldest first.

        While there is nothing it waits, up to `timeout_s` on the backend's clock.
        """
        ...

    def acknowledge(self, reports: Sequence[Report]) -> None:
        """Called when these reports are in the log. They need not be reported again."""
        ...

    def begun(self) -> frozenset[tuple[str, int]]:
        """Return every attempt this backend has begun (running or ended), for recovery."""
        ...

    def close(self) -> None:
        """Release everything except the jobs, which run on."""
        ...


@runtime_checkable
class Outside(Protocol):
    """A backend on which others act too: users and administrators submit jobs, cancel them and
    drain nodes there.
    """

    def news(self) -> Sequence[Event]:
        """Return events that came from outside the service: submissions, cancellations, drained
        nodes (SUBMITTED, CANCEL_ASKED, NODE_SET) and GPUs that stopped answering (GPUS_CLOSED).
        Each is returned until it is acknowledged with `heard`.
        """
        ...

    def heard(self, events: Sequence[Event]) -> None:
        """Called when these events are in the log, or say nothing new."""
        ...

    def decided(self, decisions: Sequence[Decision]) -> None:
        """Called with the decisions of a pass that are in the log and not carried out yet, so that
        their reasons can be shown.
        """
        ...
