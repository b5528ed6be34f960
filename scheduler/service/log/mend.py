"""Repairs the times of a log that a host with a wrong clock has written.

All later events are dated wrong as well, even after the clock was set right, because time in a log
never goes back. The log's rows are not rewritten. A CLOCK_MENDED event says which events are dated
too late, and by how much. Whatever reads the log (`scheduler.service.log.followed`) subtracts that,
and the rows of `jobs` are corrected.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any

from sqlalchemy import Connection, bindparam, select, update

from features.clock import LAST_S
from scheduler.backends.events import Event, Kind
from scheduler.service.log.fold import Bundles
from scheduler.service.log.followed import followed
from scheduler.service.log.header import FOLLOWED, LogHeaderError
from scheduler.service.log.store.mends import Mends
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import jobs, leases

DAY_S = 86_400.0


class NothingToMend(LogHeaderError):
    """Raised when no time in the log is wrong, or it is not known which times are. The message is
    one line.
    """


@dataclass(frozen=True, slots=True)
class Wrong:
    """Events dated too late. Times are seconds since the epoch.

    Attributes:
        first, last: `seq` of the first and the last such event.
        before: the latest time in the log before them; 0 when there is none.
        begins, ends: the earliest and the latest time of these events, as logged.
        by_s: seconds to be subtracted.
    """

    first: int
    last: int
    before: float
    begins: float
    ends: float
    by_s: float

    def sentence(self) -> str:
        """Return which events are dated wrong, and their times after the repair, in words."""
        return (
            f"events {self.first:,} to {self.last:,} are dated {_shown(self.begins)} to "
            f"{_shown(self.ends)}, after one of {_shown(self.before)}; mended, they are dated "
            f"{self.by_s / DAY_S:,.2f} days earlier: {_shown(self.begins - self.by_s)} to "
            f"{_shown(self.ends - self.by_s)}"
        )


def find(store: Store, now: float, first: int | None = None, began: float | None = None) -> Wrong:
    """Return which events are dated wrong, and by how much. The host's clock must be right again.
    Raise NothingToMend where no event is, or where that cannot be known.

    Args:
        now: the time of day, seconds since the epoch.
        first: the first event dated wrong. None: of the events up to the first one in the future,
            the last that is dated over a day later than all before it.
        began: when event `first` truly happened, seconds since the epoch; None: right after the
            event before it.
    """
    early, late = array("d"), array("d")  # of each event, the earliest and the latest time
    with store.reading() as connection:
        for event in map(Mends.of(connection).mended, store.each_in(connection)):
            if event.body.get("backend") == FOLLOWED:
                raise NothingToMend("this log follows Slurm, whose times are Slurm's")
            times = (event.at, float(event.body.get("now", event.at)))
            early.append(min(times))
            late.append(max(times))
    reached = array("d", accumulate(late, max))
    if first is None:
        future = next((n for n, at in enumerate(late) if at > now), None)
        if future is None:
            raise NothingToMend("nothing in the log is dated after now, the host's time")
        leaps = [n for n in range(1, future + 1) if early[n] - reached[n - 1] > DAY_S]
        if not leaps:
            raise NothingToMend("the log has no leap of a day: --from-event says where to begin")
        first = leaps[-1] + 1
    elif not 1 <= first <= len(late):
        raise NothingToMend(f"the log has no event {first}")
    before = reached[first - 2] if first > 1 else 0.0
    if began is None and first == 1:
        raise NothingToMend("the log begins with that: --began says when that was in truth")
    begins, ends = min(early[first - 1 :]), max(late[first - 1 :])
    wrong = Wrong(
        first=first,
        last=len(late),
        before=before,
        begins=begins,
        ends=ends,
        by_s=begins - (before if began is None else began),
    )
    if wrong.by_s <= 0 or begins - wrong.by_s < before:
        raise NothingToMend(f"the events before it are of {_shown(before)}: it cannot be earlier")
    if ends - wrong.by_s > now:
        raise NothingToMend(
            f"{wrong.sentence()}, which is after now, {_shown(now)}: is the host's time right?"
        )
    return wrong


def apply(
    store: Store, bundles: Bundles, wrong: Wrong, *, actor: str, reason: str, now: float
) -> int:
    """Log a correction of the times `wrong`, on a stopped service, and correct the rows of `jobs`
    and `leases`. Return the number of corrected rows of `jobs`. Raise NothingToMend where the log
    has grown since `wrong` was found.
    """
    body = {"first": wrong.first, "by_s": wrong.by_s, "reason": reason}
    with store.writing() as connection:
        if store.last_seq_in(connection) != wrong.last:
            raise NothingToMend("the log was written meanwhile: look again")
        mended = Event(Kind.CLOCK_MENDED, now, actor=actor, body=body)
        [mended] = store.append_in(connection, [mended])
        late = leases.c.expires_at >= wrong.begins
        connection.execute(
            update(leases).where(late).values(expires_at=leases.c.expires_at - wrong.by_s)
        )
        return _rows_mended(connection, store, bundles, mended.seq)


def _rows_mended(connection: Connection, store: Store, bundles: Bundles, upto: int) -> int:
    state = followed(connection, store, bundles, upto, keep=True)
    right = {record.job_id: record.row() for record in state.ledger.records.values()}
    right |= {row["job_id"]: row for row in state.unseen_rows()}
    there = connection.execute(select(jobs)).mappings()
    changed: list[dict[str, Any]] = [
        {"changed": row["job_id"], **right[row["job_id"]]}
        for row in there
        if row["job_id"] in right and dict(row) != right[row["job_id"]]
    ]
    if changed:
        this = update(jobs).where(jobs.c.job_id == bindparam("changed"))
        connection.execute(this, changed)
    return len(changed)


def running(store: Store) -> list[str]:
    """Return the names of the leases that a running process renews; [] if the service is stopped.
    Wait long enough to see a renewal.
    """
    with store.engine.connect() as connection:
        names = connection.execute(select(leases.c.name)).scalars().all()
    return [name for name in names if store.is_renewed(name)]


def _shown(at: float) -> str:
    return f"{datetime.fromtimestamp(min(at, LAST_S), UTC):%Y-%m-%d %H:%M} UTC"
