"""The contract of a backend, which carries out decisions.

A backend launches and stops attempts to run jobs, and reports what became of them. It may be asked
for an action several times, but must do it only once: `(job_id, attempt)` names an attempt for
good, and asking again for one that was begun changes nothing. Its knowledge survives the death of
the service.
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
        nodes, gpus: numbers of the cluster's nodes, and for each node the indices of its GPUs.
        environment: variables added to the backend's plain environment.
        user: operating-system user to run as; "" = the service's own.
        memory_mib, time_limit_s: limits enforced by the backend; None = none.
        limit_s: how long a profiling run may take, seconds.
        partner: id of a job that is already on the same GPUs; None: there is none.
        watch_s: seconds after which a run on GPUs of its own is reported as OBSERVED, with its
            profile, where the backend can measure one; None: it is not measured.
        pair_watch_s: seconds of sharing GPUs with the partner after which both are reported as
            PAIR_OBSERVED, where their progress can be measured; None: they are not.
        progress: whether the backend may read the job's output for its progress, and report
            PROGRESS.
        amount: how much the job is to do, where files that its command names state that, such as
            {"epochs": 90}.
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
    """What a backend reports about an attempt. Each kind is reported at most once, and a final kind
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
        """Return whether this is the last report of an attempt."""
        return self in (Happened.PROFILED, Happened.ENDED, Happened.LOST, Happened.NOT_STARTED)


@dataclass(frozen=True, slots=True)
class Report:
    """A backend's report of what happened to an attempt.

    Attributes:
        at: when it happened, seconds since the epoch on the backend's clock.
        state, exit_code, ran_s: how an attempt ended; `ran_s` is seconds on GPUs. An attempt that
            was stopped before it began is NOT_STARTED with state CANCELLED. `exit_code` is 128 + n
            when the command died of signal n, None when the backend stopped it.
        detail: one line for a person: the exit code and last line, or why the attempt was not
            started, or why its output is not read.
        profile: the measured profile, with OBSERVED, PROFILED, or the end of a profiling run.
        pid: process id of the command, on a backend that knows it.
        speed: with PAIR_OBSERVED: progress per second over that of a run alone.
        progress: with PROGRESS: how far the job is.
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
    """Carries out decisions. Only the decider calls it, from one thread."""

    name: str

    def now(self) -> float:
        """Return the time that dates decisions, seconds since the epoch; it never goes back."""
        ...

    def launch(self, launch: Launch) -> None:
        """Begin an attempt, and return at once; STARTED or NOT_STARTED is reported later. Do
        nothing for an attempt that was begun before.
        """
        ...

    def stop(self, job_id: str, attempt: int) -> None:
        """End an attempt with its whole process group. ENDED with state CANCELLED is reported
        later.

        An attempt that has ended stays as it is. One that was never begun must not begin after
        this: NOT_STARTED with state CANCELLED is reported.
        """
        ...

    def reports(self, timeout_s: float) -> Sequence[Report]:
        """Return the reports that were not acknowledged yet, oldest first. While there are none,
        wait up to `timeout_s` seconds on the backend's clock.
        """
        ...

    def acknowledge(self, reports: Sequence[Report]) -> None:
        """Called when these reports are in the log, so that they need not be reported again."""
        ...

    def begun(self) -> frozenset[tuple[str, int]]:
        """Return every attempt that this backend has begun, running or ended, as (job id, attempt),
        for a service that restarts.
        """
        ...

    def close(self) -> None:
        """Release everything that the backend holds. The jobs run on."""
        ...


@runtime_checkable
class Outside(Protocol):
    """A backend with jobs and nodes that others change as well: users and administrators submit
    jobs, cancel them and drain nodes there.
    """

    def news(self) -> Sequence[Event]:
        """Return events that came from outside the service: submissions, cancellations, drained
        nodes (SUBMITTED, CANCEL_ASKED, NODE_SET) and GPUs that stopped answering (GPUS_CLOSED).
        Each is returned until it is acknowledged with `heard`.
        """
        ...

    def heard(self, events: Sequence[Event]) -> None:
        """Called when these events are in the log, or say nothing new, so that `news` need not
        return them again.
        """
        ...

    def decided(self, decisions: Sequence[Decision]) -> None:
        """Called with the decisions of a decision pass once they are in the log, before they are
        carried out, so that the backend can show their reasons.
        """
        ...
