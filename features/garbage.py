"""When Python collects garbage. Standard library only."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


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
