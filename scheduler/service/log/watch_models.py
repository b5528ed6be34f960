"""After a promotion, returns to the former models when the new ones are worse beyond chance.

Jobs that ended since the promotion, and running jobs, are scored by both
(`scheduler.service.log.beside`). They are compared at `FIRST` ended jobs and each time there are
half as many again; so few comparisons make a false alarm unlikely. Models that were judged worse
beyond chance before their promotion are given up at the first comparison in which they are behind.
The return is an event, like a promotion, so the decider follows it and a restart keeps it. Models
that were given up are not taken from the champion's folder again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import structlog
from sqlalchemy.exc import DBAPIError

from features.plain import first_line
from models.bundle import BundleError
from scheduler.backends.events import Event, Kind
from scheduler.service.log.beside import (
    FORMER,
    Beside,
    as_of,
    began_with,
    beside,
    doubts_of,
    in_order,
    returned,
    uses,
)
from scheduler.service.log.bundles import BundleStore
from scheduler.service.log.header import service_clock
from scheduler.service.log.store.store import Store

POLL_S = 60.0
FIRST, GROWS = 100, 1.5  # ended jobs at the first look, and how many times as many at the next
LOOKS = 9  # up to 2,562 jobs: whoever is as good by then stays
LOG = "watch"


def keep_watching(database: str, bundles: Path, stopping: Callable[[float], bool]) -> None:
    """Once a minute, until stopped, compare the new models with the former ones, and return to the
    former where the new are worse (`look`).

    Args:
        bundles: folder with copies of the bundles that were in use.
        stopping: waits for so many seconds at most; returns True to stop.
    """
    store, log = Store(database), structlog.get_logger(LOG)
    bundle_store, clock = BundleStore(bundles), service_clock(store)
    try:
        while not stopping(POLL_S):
            try:
                look(store, bundle_store, clock())
            except (BundleError, DBAPIError, OSError, ValueError) as error:  # tried again
                log.warning("watch_failed", why=first_line(error))
    finally:
        store.close()


def look(store: Store, bundle_store: BundleStore, now: float) -> Beside | None:
    """Compare the new models with the former ones, and return to the former if the new are to be
    given up (`is_left`). Return the comparison, or None where there is nothing to watch, or too few
    jobs have ended.
    """
    with store.reading() as connection:
        used, last = uses(connection), returned(connection)
        if len(used) < 2 or last.get("to") == used[-1][0]:
            return None
        (former, _, _), (present, since, seq) = used[-2:]
        known = began_with(connection, present, since)
        doubts = doubts_of(connection, seq)
    count = due(len(in_order(known)))
    if count is None:
        return None
    other, in_use = (bundle_store.find({"digest": digest}) for digest in (former, present))
    found = beside(FORMER, other, in_use, as_of(known, count))
    if is_left(found, doubted=bool(doubts)):
        _return(store, bundle_store, found, seq=seq, now=now, doubts=doubts)
    return found


def is_left(former: Beside, *, doubted: bool) -> bool:
    """Return whether the bundle in use is to be given up for the former one.

    Args:
        former: how the former bundle compares with the one in use.
        doubted: whether the one in use was judged worse before it was promoted.
    """
    behind = former.gain is not None and former.gain > 0
    return behind if doubted else former.verdict == "better"


def due(ended: int) -> int | None:
    """Return how many of the `ended` jobs are to be compared now, or None where there are too
    few.
    """
    looks = [round(FIRST * GROWS**i) for i in range(LOOKS)]
    return max((count for count in looks if count <= ended), default=None)


def was_left(store: Store, digest: str) -> bool:
    """Return whether the service gave this bundle up because it was worse, and no bundle was
    promoted since.
    """
    with store.reading() as connection:
        last, used = returned(connection), uses(connection)
        return bool(used) and last.get("from") == digest and last.get("to") == used[-1][0]


def not_left(store: Store, digest: str) -> None:
    """Raise BundleError if the service gave this bundle up because it was worse, and no bundle was
    promoted since.
    """
    if was_left(store, digest):
        raise BundleError(
            f"bundle {digest[:12]} was worse than the one before, which decides again: promote "
            "another, or serve with watch_models: false"
        )


def _return(
    store: Store,
    bundles: BundleStore,
    found: Beside,
    seq: int,
    now: float,
    doubts: Sequence[str],
) -> None:
    assert found.error is not None
    assert found.error_in_use is not None
    how = "worse beyond chance"
    if found.verdict != "better":
        how = f"judged worse before its promotion ({doubts[0]}), and no better"
    why = (
        f"{how} on {found.jobs} jobs of {found.users} users that ended since, and "
        f"{found.running} that ran: "
        f"mean |ln(true / predicted)| {found.error_in_use:.3f}, the former's {found.error:.3f}"
    )
    back = {"digest": found.digest, "path": str(bundles.folder / found.digest)}
    notice = {"from": found.in_use, "to": found.digest, "why": why, "jobs": found.jobs}
    with store.writing() as connection:
        if uses(connection)[-1][2] != seq:
            return  # others are in use by now
        store.append_in(
            connection,
            [
                Event(Kind.BUNDLE, now, cause=seq, body=back),
                Event(Kind.BUNDLE_RETURNED, now, cause=seq, body=notice),
            ],
        )
    structlog.get_logger(LOG).warning("bundle_returned", **notice)
