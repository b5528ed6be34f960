"""Server-sent events that tell browsers what changed.

An event carries topics (such as "job"), never content. The page then fetches what changed, under
the rights of its reader. So all readers can share a stream, and nothing in it has to be hidden.

One `Tail` per process follows the log in the database, however many browsers listen. It keeps the
last `KEPT` events. A reader that returns after more than these is sent that everything changed.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from sqlalchemy.exc import SQLAlchemyError

from scheduler.backends.events import ABOUT_NODES, Kind

log = logging.getLogger("pellucid.pages")
KEPT = 4096  # events
LISTENERS = 256  # streams per process
OF_ONE = 24  # of them, per user
BEAT_S = 15.0  # so often a reader hears that nothing changed: silence is a broken connection
LIFE_S = 600.0  # a stream ends after this; the browser comes back, and shows its rights again
VOUCHED_S = 15.0  # of somebody whom the proxy let in: only a new request says what it says by now
TURN_S = 1.0  # at most one message per reader in this time

_QUEUE, _CLUSTER, _HISTORY = "queue", "cluster", "history"
TOPICS: dict[Kind, tuple[str, ...]] = {
    Kind.SUBMITTED: (_QUEUE,),
    Kind.CANCEL_ASKED: (_QUEUE,),
    Kind.PRIORITY_SET: (_QUEUE,),
    **dict.fromkeys((Kind.HELD, Kind.RELEASED, Kind.CHANGED), (_QUEUE,)),
    **dict.fromkeys(ABOUT_NODES, (_CLUSTER,)),
    Kind.SETTINGS_SET: (_QUEUE,),
    Kind.DECIDED: (_QUEUE, _CLUSTER, "job"),
    Kind.STARTED: (_QUEUE, _CLUSTER),
    Kind.PROFILED: (_QUEUE, _CLUSTER),
    Kind.ENDED: (_QUEUE, _CLUSTER, _HISTORY),
    Kind.LOST: (_QUEUE, _CLUSTER, _HISTORY),
    Kind.NOT_STARTED: (_QUEUE, _CLUSTER, _HISTORY),
    Kind.FORECAST: (_QUEUE,),
    Kind.BUNDLE: ("models",),
    Kind.BUNDLE_REFUSED: ("models",),
    Kind.BUNDLE_RETURNED: ("models",),
}
EVERYTHING = ("cluster", "history", "job", "models", "queue")


class TooManyListeners(RuntimeError):
    """Raised when there is no room for another stream, in this process or for this user."""


@dataclass(frozen=True, slots=True)
class Line:
    """The fields of a log event that a stream needs."""

    seq: int
    kind: Kind
    job_id: str


@dataclass(frozen=True, slots=True)
class Change:
    """The topics that changed up to event `seq`; empty where nothing changed for a while."""

    seq: int
    topics: tuple[str, ...]


class Tail:
    """Follows the log while anyone listens.

    Args:
        head: returns the `seq` of the last event in the log.
        since: returns the events after a `seq`, oldest first, at most `KEPT`. Both functions are
            called on a thread.
    """

    def __init__(self, head: Callable[[], int], since: Callable[[int], Sequence[Line]]) -> None:
        self._head, self._since = head, since
        self._lines: deque[Line] = deque(maxlen=KEPT)
        self._known_from = 0  # every event after this one, up to `_seen`, is in `_lines`
        self._seen = 0
        self._listeners: Counter[str] = Counter()  # by user
        self._moved = asyncio.Event()
        self._follower: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()

    def admit(self, user: str = "") -> None:
        """Raise TooManyListeners when there are too many streams in this process, or too many of
        this user's.
        """
        if self._listeners.total() >= LISTENERS or self._listeners[user] >= OF_ONE:
            raise TooManyListeners

    async def changes(
        self, after: int, job_id: str = "", user: str = "", *, vouched: bool = False
    ) -> AsyncIterator[Change]:
        """Yield the topics that change after event `after` (0: from now). At once, and after
        `BEAT_S` seconds without a change, yield a `Change` without topics. End after `LIFE_S`
        seconds, or `VOUCHED_S` where the site's proxy vouches for the reader. Raise
        TooManyListeners as `admit` does.

        Topic "job" means that something may have happened to `job_id`.
        """
        self.admit(user)
        self._listeners[user] += 1
        try:
            await self._follow()
            last = after if 0 < after <= self._seen else self._seen
            yield Change(last, ())
            now = asyncio.get_running_loop().time
            began = now()
            while (left := began + (VOUCHED_S if vouched else LIFE_S) - now()) > 0:
                if last == self._seen:
                    moved = self._moved
                    try:
                        await asyncio.wait_for(moved.wait(), min(left, BEAT_S))
                    except TimeoutError:
                        if left <= BEAT_S:
                            return
                        yield Change(last, ())
                        continue
                topics, last = self._topics(last, job_id), self._seen
                if topics:
                    yield Change(last, topics)
                    await asyncio.sleep(TURN_S)
        finally:
            self._listeners[user] -= 1
            self._listeners += Counter()  # drops those with none
            if not self._listeners and self._follower:
                self._follower.cancel()
                self._follower = None

    def _topics(self, last: int, job_id: str) -> tuple[str, ...]:
        if last < self._known_from:
            return EVERYTHING
        found: set[str] = set()
        for line in reversed(self._lines):
            if line.seq <= last:
                break
            found.update(TOPICS.get(line.kind, ()))
            if line.job_id and line.job_id == job_id:
                found.add("job")
        return tuple(sorted(found))

    async def _follow(self) -> None:
        async with self._starting:
            if self._follower and not self._follower.done():
                return
            self._lines.clear()
            self._known_from = self._seen = await asyncio.to_thread(self._head)
            self._follower = asyncio.create_task(self._poll())

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(TURN_S)
            try:
                lines = await asyncio.to_thread(self._since, self._seen)
            except SQLAlchemyError:  # a database that is away comes back, or every page says so
                log.warning("live_tail_waits", exc_info=True)
                continue
            if not lines:
                continue
            dropped = len(self._lines) + len(lines) - KEPT
            if dropped > 0:
                both = [*self._lines, *lines]
                self._known_from = both[dropped - 1].seq
            self._lines.extend(lines)
            self._seen = lines[-1].seq
            moved, self._moved = self._moved, asyncio.Event()
            moved.set()
