"""Shares one API process fairly among the users who read: who asks for much waits, and keeps nobody
else waiting.

Pages and lists cost processor time of one process that all users share. So only `AT_ONCE` requests
are worked on at once, each with a turn. A free turn goes to the user whose requests took the least
time lately. A request has no turn while it waits for the analyst, or while its answer is being
sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from threading import Lock
from time import monotonic
from typing import Any

AT_ONCE = 4  # of which one user has all but one at most
HALF_S = 10.0  # what was used so long ago counts by half
LEAST_S = 0.001
KEY = "pellucid.turn"  # in the scope of a request
_NOW: ContextVar[Turn | None] = ContextVar("turn", default=None)


@dataclass(eq=False)
class Turn:
    """The right of one request to be worked on. `user`: who sent it; `since`: when the turn began,
    monotonic seconds; 0 before and after.
    """

    of: Turns
    user: str
    since: float = 0.0
    ready: asyncio.Future[None] | None = None

    def end(self) -> None:
        """End the turn (the right of a request to be worked on), so that another request can have
        it. A second call does nothing.
        """
        self.of.ended(self)


@dataclass(eq=False)
class Turns:
    """The turns of one API process.

    Attributes:
        at_once: how many requests are worked on at once.
        used: seconds that each user's turns took lately, by user. They fade with time, and are as
            of the end of the last turn.
    """

    at_once: int = AT_ONCE
    used: dict[str, float] = field(default_factory=dict)
    _at: float = field(default_factory=lambda: monotonic())
    _busy: list[Turn] = field(default_factory=list)
    _waiting: list[Turn] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock)

    async def take(self, user: str) -> Turn:
        """Wait until a request of the user may be worked on, and return its turn."""
        turn = Turn(self, user)
        try:
            with self._lock:
                self._waiting.append(turn)
                self._go_on()
                if not turn.since:
                    turn.ready = asyncio.get_running_loop().create_future()
            if turn.ready is not None:
                await turn.ready
        except BaseException:  # whoever asked has gone
            self.ended(turn)
            raise
        _NOW.set(turn)
        return turn

    def ended(self, turn: Turn) -> None:
        """Note that a turn is over, or is no longer waited for, and start others."""
        with self._lock:
            for among in (self._busy, self._waiting):
                with suppress(ValueError):
                    among.remove(turn)
            if turn.since:
                took_s, turn.since = monotonic() - turn.since, 0.0
                self._fade()
                self.used[turn.user] = self.used.get(turn.user, 0.0) + max(took_s, LEAST_S)
            self._go_on()

    def _fade(self) -> None:
        now = monotonic()
        left, self._at = 0.5 ** (max(0.0, now - self._at) / HALF_S), now
        self.used = {who: s * left for who, s in self.used.items() if s * left > LEAST_S / 2}

    def _go_on(self) -> None:
        """Start waiting turns while fewer than `at_once` run. One user has all of these but one at
        most. The turn of the user who used least lately goes first; among equals, the oldest turn.
        """
        while len(self._busy) < self.at_once:
            mine = [turn.user for turn in self._busy]
            may = [t for t in self._waiting if mine.count(t.user) < max(1, self.at_once - 1)]
            if not may:
                break
            turn = min(may, key=lambda t: self.used.get(t.user, 0.0))
            self._waiting.remove(turn)
            self._busy.append(turn)
            turn.since = monotonic()
            if turn.ready is not None:
                turn.ready.get_loop().call_soon_threadsafe(_tell, turn.ready)


def _tell(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


def rest() -> None:
    """End the turn of the request that is being answered, because that request now waits for
    another process.
    """
    turn = _NOW.get()
    if turn is not None:
        turn.end()


def end_of(scope: MutableMapping[str, Any]) -> None:
    """End the turn (the right to be worked on) of a request, if it has one. `scope`: the request's
    ASGI scope.
    """
    turn: Turn | None = scope.pop(KEY, None)
    if turn is not None:
        turn.end()
