"""Compares claims about waiting jobs with what Slurm did. A contradicted claim is left out of the
next answer, and of later ones as long as it would be the same claim about the same job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from operator import attrgetter

from sqlalchemy import Connection

from scheduler.explain.claims import GRACE_S, ROOM_S, Kind
from scheduler.explain.whatif.forecasts import StartForecast
from scheduler.explain.words import ForecastKind, clock_time
from scheduler.service.log.store import claims
from scheduler.service.log.store.store import Store
from scheduler.slurm.follow.checks import SETTLES_S
from scheduler.slurm.follow.promises import changed
from scheduler.slurm.read.parse import SlurmJob
from scheduler.slurm.read.snapshot import ClusterSnapshot
from scheduler.slurm.reason import SlurmReason, Withdrawn, held_words
from scheduler.slurm.twin.twin import twin_in

LATE_S = 180.0  # after which a start at once has not come
KEPT_S = 3600.0  # for so long a start that was to be in no future speaks for others like it

Records = Callable[[Kind], tuple[int, int]]  # how many claims of a kind held, of how many

_ALIKE = attrgetter(
    "user",
    "account",
    "qos",
    "partition",
    "gpus",
    "gpu_types",
    "gpus_per_node",
    "num_nodes",
    "cpus",
    "min_cpus",
    "least_mib",
    "per",
    "time_limit_s",
    "features",
    "licences",
    "req_nodes",
    "exc_nodes",
    "exclusive",
    "reservation",
    "gres",
)


class Held:
    """For each kind of claim, how many claims held, of how many that were judged. It is read from
    the database at most once for each poll of Slurm."""

    def __init__(self, store: Store | None) -> None:
        self._store, self._known = store, dict[str, tuple[int, int]]()
        self._read = False

    def forget(self) -> None:
        """Have the figures read again the next time they are asked for."""
        self._read = False

    def __call__(self, kind: Kind) -> tuple[int, int]:
        if not self._read and self._store is not None:
            with self._store.reading() as connection:
                found = claims.records(connection, self._store.clock.now())
            self._known = {one.kind: (one.held, one.judged) for one in found}
            self._read = True
        return self._known.get(kind.value, (0, 0))


class Audit:
    """The claims about waiting jobs at each poll of Slurm, since when each is made, and what
    contradicts them.

    Attributes:
        withdrawn: maps a job id to the kind of claim that is withdrawn at this poll.
        refuted: ids of jobs that were claimed never to start, which Slurm has contradicted since
            the last poll.
    """

    def __init__(self) -> None:
        self.withdrawn: dict[str, Kind] = {}
        self.refuted: list[str] = []
        self._seen: Mapping[str, SlurmJob] = {}  # as they waited at the last poll
        self._asked: dict[str, SlurmJob] = {}  # as they were when something was claimed first
        self._soon: dict[str, float] = {}  # since when a start at once is foreseen
        self._never: dict[str, SlurmJob] = {}  # of which no start is foreseen
        self._room: dict[str, float] = {}  # since when there is room in their limit
        self._came: dict[tuple[object, ...], float] = {}  # starts that were to be in no future

    def recall(self, connection: Connection) -> None:
        """Restore the claims about room in limits that an earlier process stored which followed
        this Slurm."""
        self._room |= claims.unfulfilled(connection, Kind.ROOM)

    def look(self, snapshot: ClusterSnapshot) -> None:
        """Compare the claims of earlier polls with a new snapshot of Slurm's queue. Called before
        new claims are made from it."""
        waiting = snapshot.waiting
        self.withdrawn, self.refuted = {}, []
        for job_id in self._never.keys() & snapshot.running.keys():
            was, job = self._never[job_id], snapshot.running[job_id]
            if _ALIKE(was) == _ALIKE(replace(job, req_nodes=was.req_nodes)):
                self._came[_ALIKE(was)] = job.start or snapshot.now
        self._came = {of: at for of, at in self._came.items() if at > snapshot.now - KEPT_S}
        over = {
            j
            for j, job in waiting.items()
            if job is not self._seen.get(j) and j in self._asked and changed(self._asked[j], job)
        }
        self._seen = waiting
        for since in (self._asked, self._soon, self._never, self._room):
            for job_id in [j for j in since if j not in waiting or j in over]:
                del since[job_id]
        self._asked |= {j: job for j, job in waiting.items() if j not in self._asked}

    def forecasts(
        self, snapshot: ClusterSnapshot, made: Mapping[str, StartForecast], records: Records
    ) -> dict[str, str]:
        """Compare the forecasts with what Slurm did. Return those that it contradicts, as job id ->
        what contradicts the forecast, in words; and record them as withdrawn.

        Args:
            made: the forecasts, by job id.
            records: function that returns how often claims of a kind held, and how many were
                judged.
        """
        found: dict[str, str] = {}
        for job_id in snapshot.waiting.keys() & made.keys():
            one, job = made[job_id], snapshot.waiting[job_id]
            if one.estimate == ForecastKind.IMPOSSIBLE:
                self._never[job_id] = job
                why, kind = self._possible(job, snapshot), Kind.NEVER
            else:
                self._never.pop(job_id, None)
                why, kind = self._not_at_once(job_id, snapshot), Kind.AT_ONCE
            if not why:
                continue
            self.withdrawn[job_id] = kind
            if kind is Kind.NEVER:
                self.refuted.append(job_id)
            found[job_id] = why + held_words(*records(kind))
        return found

    def _possible(self, job: SlurmJob, snapshot: ClusterSnapshot) -> str:
        """Return as text what contradicts the claim that a job never starts. Return "" if nothing
        does.
        """
        now, came = snapshot.now, self._came.get(_ALIKE(job))
        if came is not None:
            return (
                "it was never to start as it is, and a job that asked for the same started at "
                f"{clock_time(came, now)}: withdrawn, what lets it start is not known"
            )
        twin = twin_in(snapshot.core.policy)
        looked = twin.site.backfilled if twin is not None else None
        if job.start is None or job.start <= now or looked is None:
            return ""
        if looked <= max(snapshot.changed, job.submit, job.eligible or 0.0) + SETTLES_S:
            return ""
        return (
            "it was never to start as it is, and Slurm plans to start it at "
            f"{clock_time(job.start, now)}: withdrawn, what lets it start is not known"
        )

    def _not_at_once(self, job_id: str, snapshot: ClusterSnapshot) -> str:
        """Return a sentence that a job has not started for more than `LATE_S` seconds, although the
        policy `slurm` would start it at once. Return "" where the job may still start, or was not
        expected to."""
        now, twin = snapshot.now, twin_in(snapshot.core.policy)
        if twin is None or not (job_id in twin.soon or job_id in snapshot.core.cluster.runs):
            self._soon.pop(job_id, None)
            return ""
        since = self._soon.setdefault(job_id, now)
        if now - since <= LATE_S:
            return ""
        return (
            f"it was to start at once at {clock_time(since, now)}, and Slurm has not started it: "
            "withdrawn, what keeps it is not known"
        )

    def reasons(
        self, reasons: Mapping[str, SlurmReason], now: float, records: Records
    ) -> dict[str, SlurmReason]:
        """Return the reasons for which jobs wait, by job id. Where Slurm has not started a job
        within `ROOM_S` + `GRACE_S` seconds although its limit has room, the reason says that this
        claim is withdrawn."""
        found = dict(reasons)
        for job_id, why in reasons.items():
            if not why.lapsed or why.ahead or why.started:
                self._room.pop(job_id, None)
                continue
            since = self._room.setdefault(job_id, now)
            if now - since > ROOM_S + GRACE_S:
                held, judged = records(Kind.ROOM)
                found[job_id] = replace(why, withdrawn=Withdrawn(since, held, judged))
                self.withdrawn[job_id] = Kind.ROOM
        return found

    def lines(self, records: Records) -> list[str]:
        """Return the claims that are withdrawn now, one line for each kind."""
        return [
            f"Withdrawn of {n} waiting job{'s' * (n > 1)}, contradicted by Slurm: "
            f"{kind.words}{held_words(*records(kind))}."
            for kind, n in sorted(Counter(self.withdrawn.values()).items())
        ]
