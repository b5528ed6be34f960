"""Has the output of attempts read: for their progress, and for what their last lines say.

The reading itself is done in a process apart (`profiler.progress.apart`).
"""

from __future__ import annotations

import time
from collections.abc import Callable

from profiler.progress.apart import Asked, Ended, Reading
from scheduler.backends.base import Happened, Report
from scheduler.backends.local.attempt import PREVENTED, LocalAttempt
from scheduler.backends.local.exit_status import failed, reached_profile_limit
from scheduler.backends.local.follow import followed_of
from scheduler.backends.local.spool import Over, Spool

LAST_WORDS_S = 10.0  # an end is reported then, though what was written last was not read


class Hearing:
    """Has the outputs of attempts read, for all attempts in one spool (the folder with their
    files).
    """

    def __init__(self, spool: Spool) -> None:
        self._spool, self._reading = spool, Reading()
        self.warm, self.close = self._reading.warm, self._reading.close

    def follow(self, attempt: LocalAttempt) -> None:
        """Have the output of an attempt read from now on, where that is allowed."""
        output = self._spool.log(attempt.name)
        attempt.follower = attempt.last = followed_of(attempt.claim, output, self._reading)

    def news(self, attempt: LocalAttempt, now: float, at: Callable[[], float]) -> Report | None:
        """Return a report of an attempt's progress, or of why its output is not read. Return None
        where neither has changed since the last call.

        Args:
            now: seconds on the monotonic clock.
            at: returns the time of a report, seconds since the epoch.
        """
        if attempt.follower is None or attempt.over:
            return None
        progress = attempt.follower.look(now - attempt.started["monotonic"])
        was, attempt.unread = attempt.unread, attempt.follower.unread
        if progress is not None:
            return Report(*attempt.key, Happened.PROGRESS, at(), progress=progress)
        if attempt.unread != was:
            return Report(*attempt.key, Happened.UNREAD, at(), detail=attempt.unread)
        return None

    def is_out(self, attempt: LocalAttempt, over: Over, *, wait: bool) -> bool:
        """Return whether the end of an attempt can be reported: its last lines were read, are not
        needed, or were not read within `LAST_WORDS_S` seconds.

        The first call starts the reading; when it is done, the spool's bell wakes the service.

        Args:
            wait: return only after the lines were read, or that time has passed.
        """
        if over["reason"] in (*PREVENTED, "lost"):
            return True
        limit = reached_profile_limit(attempt.claim, over)
        if not (failed(over) or (limit and attempt.follower is not None)):
            return True
        if attempt.last is None:
            attempt.last = self._reading.follow(Asked(output=self._spool.log(attempt.name)))
        if not attempt.ending_until:
            attempt.ending_until = time.monotonic() + LAST_WORDS_S
            attempt.last.end(over["ran_s"], lambda: self._spool.ring(attempt.name))
            if wait:
                self._reading.settle(LAST_WORDS_S)
        return attempt.last.ended is not None or time.monotonic() > attempt.ending_until

    def last_words(self, attempt: LocalAttempt) -> Ended:
        """Return what an attempt's last lines say about its end; empty where they were not read."""
        ended = attempt.last.ended if attempt.last is not None else None
        return ended or Ended()
