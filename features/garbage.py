"""When Python collects garbage. Standard library only."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType


@contextmanager
def uncollected() -> Iterator[None]:
    """Turn Python's garbage collection off inside the block, and on again behind it if it was
    on. A full collection of a large heap takes a tenth of a second, in which no other thread can
    write."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@contextmanager
def collected() -> Iterator[None]:
    """Turn Python's garbage collection on inside the block, and off again behind it if it was
    off."""
    collects = gc.isenabled()
    gc.enable()
    try:
        yield
    finally:
        if not collects:
            gc.disable()


class Seldom:
    """Collects the garbage of a loop once in several turns. It is a context manager that is entered
    around each turn.

    Collections are off inside a turn, and between turns they do not look through what the turns
    have left (`gc.freeze`). Nearly all of that is in use until the next turn replaces it, and is
    freed then without a collection. Objects that refer to each other stay until all is collected.

    Args:
        turns: number of turns from one such collection to the next. The first turn is one.
    """

    def __init__(self, turns: int) -> None:
        self._turns, self._left = turns, 0

    def __enter__(self) -> None:
        gc.disable()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._left:
            self._left = self._turns
            gc.unfreeze()
            gc.collect()
        self._left -= 1
        gc.freeze()
        gc.enable()
