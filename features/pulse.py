"""Signs of life from long computations.

A long loop calls `beat`. Its caller can set a listener that each beat calls, for example to report
that the work goes on. No result depends on beats. Standard library only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

Item = TypeVar("Item")
EVERY = 64  # items between two beats
_heard: ContextVar[Callable[[], object] | None] = ContextVar("pulse", default=None)


@contextmanager
def heard_by(listener: Callable[[], object]) -> Iterator[None]:
    """Call `listener` at every beat inside the block. An exception that it raises ends the
    computation."""
    before = _heard.set(listener)
    try:
        yield
    finally:
        _heard.reset(before)


def beat() -> None:
    """Call the listener of this context, if there is one. Long computations call this to show that
    they continue.
    """
    listener = _heard.get()
    if listener is not None:
        listener()


def beating(items: Iterable[Item]) -> Iterator[Item]:
    """Yield the items, calling `beat` after every `EVERY` of them."""
    for n, item in enumerate(items, 1):
        yield item
        if n % EVERY == 0:
            beat()
