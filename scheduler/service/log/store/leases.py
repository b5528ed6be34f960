"""Leases: the right of one process to act under a name, such as `decider`, until another takes it
over.

Times of day are not compared, because they are set and differ between hosts. The holder of a lease
increases its counter at every renewal. A process that wants to take the lease over watches that
counter by its own monotonic clock, and takes the lease when the counter has not moved for as long
as the lease lasts (as client-go's leader election does). On the host on which the lease was
renewed, and since the same boot, its age is known at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, Row, insert, select, update

from features.clock import Clock
from scheduler.service.log.store.tables import leases


class LeaseLost(Exception):
    """Raised when another process holds the lease. Nothing was written."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to act under a name, and who has it.

    Attributes:
        holder: name of the process that has it.
        term: goes up with every change of holder; a write under an old term fails.
        for_s: seconds without a renewal after which others may take it; 0: it was given up.
        beats: goes up with every renewal.
        beat_at: time of the last renewal, seconds on the monotonic clock of `boot`.
        boot: name of the boot of the machine from which that clock counts; "" = unknown.
        ready: whether the holder does its work already; if not, it prepares.
        doing: what the holder prepares, or what takes it long; "" = nothing of note.
    """

    name: str
    holder: str
    term: int
    for_s: float
    beats: int = 0
    beat_at: float = 0.0
    boot: str = ""
    ready: bool = True
    doing: str = ""


class Watch:
    """What one process has seen of the renewals of leases."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[tuple[int, int], float, bool]] = {}

    def take(
        self,
        connection: Connection,
        clock: Clock,
        name: str,
        holder: str,
        for_s: float,
        ready: bool = True,
    ) -> Lease | None:
        """Take a lease that is free, expired or already held by `holder`, and return it. Return
        None while another process holds it.

        When the lease is taken, set this process's clock forward to the latest time that any holder
        wrote, so that time does not go back.
        """
        found = lease_of(connection, name)
        if not self.may_take(found, clock, holder):
            return None
        clock.not_before(latest_time(connection, clock))
        if found is None:
            values = {"name": name, "holder": holder, "term": 1, "expires_at": 0.0}
            connection.execute(insert(leases).values(values))
            return renew(connection, clock, Lease(name, holder, 1, for_s, ready=ready))
        term = found.term if found.holder == holder else found.term + 1
        taken = replace(found, holder=holder, term=term, for_s=for_s, ready=ready, doing="")
        return renew(connection, clock, taken)

    def may_take(self, lease: Lease | None, clock: Clock, holder: str) -> bool:
        """Return whether `holder` may take a lease: it is free, or the holder's own, or was not
        renewed for longer than `for_s` seconds.
        """
        if lease is None or lease.holder == holder or not lease.for_s:
            return True
        silent_s, _ = self._silent(lease, clock)
        return silent_s > lease.for_s

    def held(self, lease: Lease | None, clock: Clock, late_s: float = 0.0) -> bool:
        """Return whether a process is known to hold a lease: the lease was renewed in time, or less
        than `late_s` seconds too late.
        """
        if lease is None or not lease.for_s:
            return False
        silent_s, known = self._silent(lease, clock)
        return known and silent_s <= lease.for_s + late_s

    def _silent(self, lease: Lease, clock: Clock) -> tuple[float, bool]:
        """Return for how many seconds the holder of a lease has been silent, and whether it is
        known to have renewed the lease. On the host of the renewal, since the same boot, both are
        known exactly. Elsewhere the seconds count from when this process first saw the present
        renewal, and only a renewal that came while this process watched counts as known.
        """
        now, mark = clock.monotonic(), (lease.term, lease.beats)
        if _of_this_boot(lease, clock):
            return now - lease.beat_at, True
        seen = self._seen.get(lease.name)
        if seen is None or seen[0] != mark:
            seen = self._seen[lease.name] = mark, now, seen is not None
        return now - seen[1], seen[2]


def lease_of(connection: Connection, name: str) -> Lease | None:
    """Return the lease with this name, with its present or last holder. Return None if it was never
    held.
    """
    query = select(*(leases.c[column] for column in Lease.__slots__)).where(leases.c.name == name)
    row = connection.execute(query).one_or_none()
    return None if row is None else Lease(*row)


def fence(connection: Connection, lease: Lease) -> None:
    """Raise LeaseLost where another process has taken the lease over."""
    found = lease_of(connection, lease.name)
    if found is None or (found.term, found.holder) != (lease.term, lease.holder):
        by = "nobody" if found is None else found.holder
        raise LeaseLost(f"lease {lease.name!r} is held by {by} now")


def renew(connection: Connection, clock: Clock, lease: Lease) -> Lease:
    """Write a lease as renewed now, and return it."""
    renewed = replace(lease, beats=lease.beats + 1, beat_at=clock.monotonic(), boot=clock.boot)
    values = {column: getattr(renewed, column) for column in Lease.__slots__}
    this = update(leases).where(leases.c.name == lease.name)
    connection.execute(this.values(**values, expires_at=clock.now() + lease.for_s))
    return renewed


def let_go(connection: Connection, clock: Clock, lease: Lease) -> None:
    """Give a lease up, so that others may take it at once. Do nothing when it was lost already."""
    this = update(leases).where(leases.c.name == lease.name, leases.c.term == lease.term)
    connection.execute(
        this.values(for_s=0.0, expires_at=clock.now(), beat_at=clock.monotonic(), boot=clock.boot)
    )


def latest_time(connection: Connection, clock: Clock) -> float:
    """Return the latest time of day that any holder of a lease wrote, in seconds since the epoch.
    Where it was written on this host since its boot, the time passed since is added. Return 0 where
    none was written.
    """
    latest = 0.0
    for row in connection.execute(select(leases)):
        ago_s = clock.monotonic() - row.beat_at if _of_this_boot(row, clock) else 0.0
        latest = max(latest, row.expires_at - row.for_s + ago_s)
    return latest


def written_since_boot(connection: Connection, clock: Clock) -> bool:
    """Return whether a holder of any lease wrote on this host since it booted."""
    return any(_of_this_boot(row, clock) for row in connection.execute(select(leases)))


def _of_this_boot(lease: Lease | Row[Any], clock: Clock) -> bool:
    return bool(lease.boot) and lease.boot == clock.boot and lease.beat_at <= clock.monotonic()
