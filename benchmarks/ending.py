"""Makes a program that is told to end (SIGTERM, SIGHUP) clean up like one that ends by itself: what
it started is taken down."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def taken_down() -> Iterator[None]:
    """Raise SystemExit in a block whose process gets SIGTERM or SIGHUP, so that its `finally` are
    run: by default these signals end a process at once. Do nothing in any thread but the main one,
    nor for a signal that the program handles or ignores already."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    told = signal.SIGTERM, signal.SIGHUP
    before = {number: signal.getsignal(number) for number in told}

    def end(number: int, _: object) -> None:
        for each in told:  # once: a second one would end what takes down
            signal.signal(each, signal.SIG_IGN)
        sys.exit(128 + number)

    for number, handler in before.items():
        if handler is signal.SIG_DFL:  # nohup ignores the other
            signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
