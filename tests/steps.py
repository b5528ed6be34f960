"""Counts what Python does, in steps that no clock and no processor changes.

A step is a line that begins, once more at each turn of a loop, or a call of a function written
in C. A method that goes through a whole text counts as one step more per 64 characters of it. Not
seen are the insides of what C does otherwise: slices, `+`, `in`, and patterns, which are
judged by `tests.growth`.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

AT_ONCE = 64  # characters in a step
_WHOLE = {
    "capitalize", "casefold", "count", "decode", "encode", "expandtabs", "format", "hex", "isalnum",
    "isalpha", "isascii", "isdigit", "isprintable", "lower", "lstrip", "partition", "replace",
    "rpartition", "rsplit", "rstrip", "split", "splitlines", "strip", "swapcase", "title",
    "translate", "upper",
}  # fmt: skip


class Steps:
    """How many were counted."""

    def __init__(self) -> None:
        self.number = 0

    def _line(self, frame: FrameType, event: str, given: object) -> Any:
        self.number += 1
        return self._line

    def _call(self, frame: FrameType, event: str, function: Any) -> None:
        if event == "c_call":
            self.number += 1
            of = function.__self__
            if isinstance(of, str | bytes | bytearray) and function.__name__ in _WHOLE:
                self.number += len(of) // AT_ONCE


@contextmanager
def counted() -> Iterator[Steps]:
    """Count the steps of this thread and of all that begin before the block ends."""
    steps = Steps()
    before = sys.gettrace(), sys.getprofile()
    threading.settrace(steps._line)
    threading.setprofile(steps._call)
    sys.setprofile(steps._call)
    sys.settrace(steps._line)
    try:
        yield steps
    finally:
        sys.settrace(before[0])
        sys.setprofile(before[1])
        threading.settrace(before[0])  # type: ignore[arg-type]
        threading.setprofile(before[1])


def steps_of(do: Callable[[], object]) -> int:
    """How many steps a call takes."""
    with counted() as steps:
        do()
    return steps.number
