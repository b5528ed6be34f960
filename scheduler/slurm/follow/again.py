"""When a followed queue is read once more between two polls, because a user asks a question."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

PAUSE_S = 2.0  # after a read
SHARE = 20.0  # seconds of pause per second that such a read took
POLL_S = 0.3  # between two looks for questions while futures are simulated


class Again:
    """Knows whether the queue is being read, and when it may be read again for a user's question.
    It is a context manager that is entered around each read.

    Args:
        clock: function that returns seconds, which never go back.

    Attributes:
        asked: whether the next read is for a user who waits for it, so that it must be short.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began: float | None = None  # of the read that is not over
        self._from = self._poll_at = 0.0
        self.asked = False

    def __enter__(self) -> None:
        self._began = self._clock()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        now = self._clock()
        took_s = now - self._began if self.asked and self._began is not None else 0.0
        self._from = max(self._from, now + max(PAUSE_S, SHARE * took_s))
        self._began, self.asked = None, False

    def may(self) -> bool:
        """Return whether the queue may be read now for a user's question. If so, the next read
        counts as one for a user."""
        if self._began is not None or self._clock() < self._from:
            return False
        self.asked = True
        return True

    def due(self) -> bool:
        """Return whether it is time to check for users' questions. If so, the next check is due
        `POLL_S` seconds later."""
        now = self._clock()
        if now < self._poll_at:
            return False
        self._poll_at = now + POLL_S
        return True
