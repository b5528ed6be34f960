"""A store for a process of low priority, which must not be interrupted while it writes."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from scheduler.backends.events import Event
from scheduler.service.log.store.leases import Lease
from scheduler.service.log.store.store import Also, Store


class ThreadedStore(Store):
    """A store that appends events and keeps leases on a thread of its own, at the priority with
    which that thread began.

    Writers wait for each other, so a process of low priority that is interrupted while it writes
    would keep all others waiting.
    """

    def __init__(self, url: str):
        super().__init__(url)
        self._writer = ThreadPoolExecutor(1)
        self._writer.submit(int).result()  # begins it

    def append(
        self, new: Sequence[Event], also: Also | None = None, *, lease: Lease | None = None
    ) -> list[Event]:
        return self._writer.submit(super().append, new, also, lease=lease).result()

    def keep(self, lease: Lease) -> Lease:
        return self._writer.submit(super().keep, lease).result()
