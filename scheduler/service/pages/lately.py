"""A cache for figures over very many rows, so that frequent readers do not have them counted each
time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Any, TypeVar

BRIEF_S = 0.02  # what takes no longer is worked out each time
SHARE = 0.05  # of a processor that one figure may take
MOST = 64  # figures that are kept
T = TypeVar("T")


class Lately:
    """A cache of recent results, by key. Safe to share between threads.

    The longer a result took to compute, the longer it is kept, so that computing it again and again
    takes at most a twentieth of a processor. A result that took at most `BRIEF_S` is not kept.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._kept: dict[Hashable, tuple[float, Any]] = {}
        self._lock = Lock()

    def get(self, about: Hashable, make: Callable[[], T]) -> T:
        """Return the cached result for a key, or call `make`, cache what it returns if that took
        long, and return it.
        """
        with self._lock:
            until, found = self._kept.get(about, (0.0, None))
        if self._clock() < until:
            return found  # type: ignore[no-any-return]
        began = time.thread_time()
        made = make()
        cost_s = time.thread_time() - began
        with self._lock:
            self._kept.pop(about, None)
            if cost_s > BRIEF_S:
                self._kept[about] = self._clock() + cost_s / SHARE, made
                while len(self._kept) > MOST:
                    del self._kept[next(iter(self._kept))]
        return made
