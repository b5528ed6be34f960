"""Limits on how much and how often a client may ask, kept in the memory of one API process.

With several API processes each keeps its own count: a token may reach the limit in each of them.
That bounds the load on every process, which is what the limit is for.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock
from time import monotonic

MAX_BUCKETS = 10_000  # the longest unused is forgotten: a full bucket again


@dataclass(frozen=True, slots=True)
class Limits:
    """What one client may ask of one API process.

    Attributes:
        body_bytes: largest request body.
        rate_per_s, burst: requests of one token, or of all links to one job, on average and at
            once.
        request_bytes: a request counts once more for each so many bytes of its body.
        guesses_per_s, guesses_burst: wrong tokens and links from one address, on average and at
            once.
        refusals_per_s, refusals_burst: refusals that are written to the log; others are only
            counted.
        answer_s: how long a request waits for the analyst, seconds.
    """

    body_bytes: int = 256 * 1024
    rate_per_s: float = 100.0
    burst: int = 400
    request_bytes: int = 4096
    guesses_per_s: float = 1.0
    guesses_burst: int = 20
    refusals_per_s: float = 1.0
    refusals_burst: int = 20
    answer_s: float = 5.0


class Buckets:
    """Token buckets (rate limiters) by name: each fills by `rate_per_s`, and holds at most
    `burst`.
    """

    def __init__(self, rate_per_s: float, burst: int):
        self._rate, self._burst = rate_per_s, float(burst)
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = Lock()

    def take(self, name: str, cost: float = 1.0) -> float:
        """Take `cost` tokens from a bucket, at most its capacity. Return 0 on success. Otherwise
        take none and return the seconds until there are enough.
        """
        cost = min(cost, self._burst)
        now = monotonic()
        with self._lock:
            level, then = self._levels.pop(name, (self._burst, now))
            level = min(self._burst, level + (now - then) * self._rate)
            wait = 0.0 if level >= cost else (cost - level) / self._rate
            self._levels[name] = (level if wait else level - cost, now)
            if len(self._levels) > MAX_BUCKETS:
                self._levels.popitem(last=False)
        return wait
