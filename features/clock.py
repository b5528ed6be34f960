"""The clocks of a host: its time of day, which can be set, and its monotonic clock, which cannot.

Standard library only.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from functools import cache
from math import isfinite, nan
from pathlib import Path

LAST_S = 253_402_214_399  # of the calendar, with a day to spare for any time zone
SLEWED = 0.95  # of its speed the clock goes at while it waits for the time of day


@cache
def boot_id() -> str:
    """Return an id of the current boot of this machine, or "" if the machine gives none. Process
    ids and monotonic times of different boots cannot be compared."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


TIME_HELP = "seconds, 1:30:00, 1:30 (minutes:seconds), 2-12 (days-hours), 90m, 12h or 3d"
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}


def parse_elapsed(text: str) -> float | None:
    """Return the seconds of a time in the format ``[D-]HH:MM:SS``, ``MM:SS`` or ``D-HH[:MM]``; None
    if the text has none of these formats. Only the first number may be past its unit: ``90:00`` is
    90 minutes, ``25:99`` is no time."""
    match = re.fullmatch(r"(?:(\d{1,6})-)?((?:\d{1,9}:){0,2}\d{1,9}(?:\.\d+)?)", text)
    if not match:
        return None
    parts = [float(part) for part in match[2].split(":")]
    if match[1] is not None:
        parts += [0.0] * (3 - len(parts))
    elif len(parts) == 1:
        return None
    if any(part >= 60 for part in parts[1:]) or (match[1] is not None and parts[0] >= 24):
        return None
    seconds = 0.0
    for part in parts:
        seconds = seconds * 60 + part
    return seconds + int(match[1] or 0) * 86_400


def read_seconds(text: str) -> float:
    """Return the seconds of a time that a person typed: in sbatch's format (`1:30:00`), with a unit
    (`6h`), or as plain seconds.

    Raises ValueError if the text is no time, or one below 0.
    """
    given = text.strip()
    seconds = parse_elapsed(given)
    if seconds is None:
        number = given.rstrip("smindh")
        seconds = float(number) * _UNITS.get(given[len(number) :], nan)
    if not (isfinite(seconds) and seconds >= 0):
        raise ValueError(f"{text} is no time")
    return seconds


class Clock:
    """The clocks that a process reads. A simulation passes in clocks of its own.

    Args:
        wall: function that returns the time of day, seconds since the epoch. It may jump.
        monotonic: function that returns seconds since a fixed time, the same for all processes of
            one boot of the host.
        sleep: function that waits for a number of seconds.
        boot: id of the start of the host from which `monotonic` counts; "": times of other
            processes cannot be compared.
    """

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        boot: str | None = None,
    ):
        self.wall, self.monotonic, self.sleep = wall, monotonic, sleep
        self.boot = boot_id() if boot is None else boot
        self._last = 0.0, monotonic()  # `now` and the monotonic time when it was read last

    @classmethod
    def by(cls, time: Callable[[], float]) -> Clock:
        """Return a clock for which `time` is both the time of day and the monotonic time, and whose
        sleep returns at once."""
        return cls(time, time, lambda _: None, "by hand")

    def now(self) -> float:
        """Return the time of day, seconds since the epoch. It never goes back.

        If the host's clock is set back, the returned time goes on a twentieth slower, until the
        host's clock has caught up. So durations measured meanwhile stay nearly right.
        """
        was, then = self._last
        here = self.monotonic()
        now = max(self.wall(), was + SLEWED * max(0.0, here - then))
        self._last = now, here
        return now

    def not_before(self, at: float) -> None:
        """Set the clock forward to `at`, if `now` is earlier, so that it never returns a time
        before `at`. For a time that another process has already recorded."""
        if at > self.now():
            self._last = at, self.monotonic()

    def ahead_s(self) -> float:
        """Return by how many seconds `now` is ahead of the host's time of day. That is more than 0
        after the host's clock was set back, or after `not_before`."""
        return self.now() - self.wall()
