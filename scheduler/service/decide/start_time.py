"""Checks, when the service starts, whether the host's time of day can be right, as far as other
clocks show.

The log never goes back in time: one start with the year 2083 would date it wrong for good. But a
service may have been off for a weekend. So the time since the log was last written is compared with
the clock that has run since this host booted, and with the database server's clock. Where neither
helps, only a gap of a month makes the start fail.
"""

from __future__ import annotations

import time
from datetime import UTC, date, datetime

import structlog
from sqlalchemy import Connection, func, select

from features.clock import LAST_S, Clock
from scheduler.service.log.store.leases import latest_time, written_since_boot
from scheduler.service.log.store.store import Store
from scheduler.service.settings import SettingsError

DAY_S = 86_400.0
OFF_S = 30 * DAY_S


def check_time(store: Store, accepted: date | None) -> None:
    """Raise SettingsError where the time of day has leapt forward; its message names both times and
    what to do. Only log that where the present day (UTC) is `accepted` or earlier.
    """
    clock = store.clock
    with store.engine.connect() as connection:
        why = _leapt(connection, clock, None if store.is_sqlite else _server_time(connection))
    if not why:
        return
    now = clock.wall()
    if accepted is not None and _day(now) <= accepted:
        structlog.get_logger("supervisor").warning("clock_accepted", now=_shown(now), why=why)
        return
    raise SettingsError(
        f"this host's time is {_shown(now)}, {why}. What is written now would stay dated so: set "
        f"the host's time, or, if it is right, give --accept-clock {_day(now)}"
    )


def _leapt(connection: Connection, clock: Clock, server: float | None) -> str:
    """Return why the time of day seems to have leapt forward, as part of a sentence; "" where
    nothing shows that.

    Args:
        server: the database server's time of day, seconds since the epoch, where it has one.
    """
    latest, now = latest_time(connection, clock), clock.wall()
    if not latest:
        return ""  # nobody has decided yet
    if server is not None and now > server + DAY_S:
        return f"the database server's {_shown(server)}"
    gone_s = now - latest
    if written_since_boot(connection, clock):  # `latest` counts on by the clock of this boot
        if gone_s > DAY_S + _asleep_s(clock):
            return f"by the clock since its boot {_shown(latest)} (it follows the log's last time)"
    elif gone_s > OFF_S:
        return f"the log's last {_shown(latest)}, over {OFF_S / DAY_S:.0f} days before"
    return ""


def _server_time(connection: Connection) -> float:
    found: datetime = connection.execute(select(func.now())).scalar_one()
    return found.timestamp()


def _asleep_s(clock: Clock) -> float:
    """Return how many seconds the host slept since it booted. Its monotonic clock leaves these
    out.
    """
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - clock.monotonic())


def _day(at: float) -> date:
    return datetime.fromtimestamp(min(at, LAST_S), UTC).date()


def _shown(at: float) -> str:
    return f"{datetime.fromtimestamp(min(at, LAST_S), UTC):%Y-%m-%d %H:%M} UTC"
