"""To wait for what other processes and threads do: for the event itself, however busy the machine.

No test assumes that after so many seconds it has happened, or that it took at most so many.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
PATIENCE_S = 300.0  # only what fails takes as long


def until(
    condition: Callable[[], T],
    what: str,
    *,
    not_yet: tuple[type[Exception], ...] = (),
    every_s: float = 0.05,
    patience_s: float = PATIENCE_S,
) -> T:
    """The first value of a condition that is true.

    Args:
        what: is waited for; fails with it and the last value seen after `patience_s`.
        not_yet: raised by the condition before it can be asked.
    """
    end, seen = time.monotonic() + patience_s, object
    while True:
        try:
            if value := condition():
                return value
            seen = value
        except not_yet as error:
            seen = error
        assert time.monotonic() < end, f"waited {patience_s:g} s for {what}; last seen: {seen!r}"
        time.sleep(every_s)
