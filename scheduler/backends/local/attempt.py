"""What the service knows of an attempt until its end is acknowledged."""

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
    """One attempt to run a job on this host. A shim is the process that starts and watches its
    command.

    Attributes:
        name, key: name of its folder, and (job id, attempt).
        request: the request to the zygote, to be sent again if the zygote dies; empty once a shim
            has begun the attempt.
        sent, sent_at: how often this service sent the request, and when last (time.monotonic()).
        claim, started: its records on disk, once they are there.
        over: why the attempt has ended; "" while it has not.
        watch: measures the attempt's profile; None while it is not measured.
        follower: reads its output for progress; None: the output is not read.
        unread: why its progress is not known, as last reported.
        last: reads the last lines of its output. ending_until: time.monotonic() until which these
            are waited for; 0: they are not.
        beside: measures its speed beside another attempt, which `company` names.
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
        """Return the attempt's speed beside another job (`company`), once it was measured for long
        enough; otherwise None. Measuring stops then, or when either has ended. `now`: monotonic
        seconds."""
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
        """Return whether no further shim can still arrive at the attempt's folder.

        Each request makes one shim; the shim that made the folder does not count.
        """
        return self.sent == 0 or (self.sent == 1 and self.claim["pid"] != 0)

    @property
    def alive(self) -> bool:
        """Return whether the attempt's shim is alive: the same process, and no other with its
        pid.
        """
        claim = self.claim
        return start_ticks(claim["pid"]) == claim["ticks"] and claim["boot"] == boot_id()

    def signal(self, number: int) -> None:
        """Send a signal to the attempt's shim, but not to another process that has got the shim's
        pid since.
        """
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
        """Stop measuring. Return (profile, note): what the first `after_s` seconds showed, or None
        and why there is no profile. `ended`: whether the command ended by itself.
        """
        if self.watch is None:
            return None, "it ended before it could be watched, or while the service was away"
        found, self.watch = self.watch.end(after_s, ended=ended), None
        return found
