"""What the service knows of an attempt that it has not finished with."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, field

from features.clock import boot_id
from profiler.progress.apart import Followed, Paced
from scheduler.backends.base import Purpose
from scheduler.backends.local.spool import Claim, Key, Started, start_ticks
from scheduler.backends.local.watch import Answer, Watch

PREVENTED = ("barred", "refused")  # reasons of what never began


@dataclass(slots=True)
class LocalAttempt:
    """One attempt.

    Attributes:
        request: to be sent again if the zygote dies; empty once somebody has begun it.
        sent, sent_at: requests that this service made, and when the last (time.monotonic()).
        claim, started: its records, once they are there.
        over: why it is over; "" while it is not.
        watch: while it is being watched.
        last: who reads its last lines, which is waited for until `ending_until`; 0: it is not.
        follower: while its output is read for how far it is; `unread`: why it is not, as reported.
        beside: while its pace beside another is measured; `company` names that attempt.
    """

    name: str
    key: Key
    request: bytes = b""
    sent: int = 0
    sent_at: float = 0.0
    claim: Claim = field(default_factory=Claim)
    started: Started = field(default_factory=Started)
    over: str = ""
    watch: Watch | None = None
    follower: Followed | None = None
    unread: str = ""
    last: Followed | None = None
    ending_until: float = 0.0
    beside: Paced | None = None
    company: str = ""

    @property
    def begun(self) -> bool:
        return bool(self.claim) and self.over not in PREVENTED

    @property
    def profiling(self) -> bool:
        return self.claim.get("purpose") == Purpose.PROFILE

    def pace(self, now: float, company: LocalAttempt | None) -> float | None:
        """Return the speed beside another job once it has been measured for long enough, or
        None.
        """
        if self.beside is None:
            return None
        if self.over or company is None or company.over:
            self.beside = None
            return None
        ran_s = now - self.started["monotonic"]
        speed = self.beside.speed(ran_s)
        if ran_s < self.beside.until_s or not self.beside.settled:
            return None
        self.beside = None
        return speed

    @property
    def settled(self) -> bool:
        """Whether no shim may still be on its way to the folder.

        Each request makes one shim; the one that made the folder is no longer on its way.
        """
        return self.sent == 0 or (self.sent == 1 and self.claim["pid"] != 0)

    @property
    def alive(self) -> bool:
        """Whether the attempt's shim is alive: the same process, and no other with its pid."""
        claim = self.claim
        return start_ticks(claim["pid"]) == claim["ticks"] and claim["boot"] == boot_id()

    def signal(self, number: int) -> None:
        """Send a signal to the shim, and to no other process that was given its pid since."""
        try:
            shim = os.pidfd_open(self.claim["pid"])
        except OSError:
            return
        try:
            if self.alive:
                signal.pidfd_send_signal(shim, number)
        except ProcessLookupError:
            pass
        finally:
            os.close(shim)

    def end_watch(self, after_s: float = 0.0, *, ended: bool = False) -> Answer:
        """Stop watching. Return what the first `after_s` seconds showed."""
        if self.watch is None:
            return None, "it ended before it could be watched, or while the service was away"
        found, self.watch = self.watch.end(after_s, ended=ended), None
        return found
