"""Reads text files in blocks of whole lines."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from pipeline.traces.base import TraceError, shorten

BLOCK_BYTES = 8 << 20
MAX_LINE_BYTES = 4 << 20

NEWLINE, RETURN = 10, 13


class Lines(Protocol):
    """A file that can be read in blocks of whole lines."""

    def read(self, size: int, rest_of_line: int = 0) -> bytes:
        """Return at most `size` bytes, and up to `rest_of_line` more to the end of the last
        line.
        """


class Block:
    """Whole lines of a file, each ended by a newline.

    Attributes:
        data: the lines.
        first_line: number of the first line in the file, from 1.
    """

    def __init__(self, data: bytes, first_line: int) -> None:
        self.data = data
        self.first_line = first_line
        self._lines = data.count(b"\n")

    def __len__(self) -> int:
        return self._lines

    @cached_property
    def ends(self) -> np.ndarray[Any, Any]:
        """Return the position in `data` of the newline that ends each line."""
        return np.flatnonzero(np.frombuffer(self.data, np.uint8) == NEWLINE)

    @cached_property
    def starts(self) -> np.ndarray[Any, Any]:
        """Return the position in `data` of the first byte of each line."""
        return np.concatenate([[0], self.ends[:-1] + 1])

    def text(self, line: int) -> str:
        """Return the text of the line with this number in the file, without its end. It is cut to
        the length that the quarantine (file of refused rows) keeps."""
        index = line - self.first_line
        raw = self.data[int(self.starts[index]) : int(self.ends[index])]
        return shorten(raw.removesuffix(b"\r").decode("utf-8", "replace"))


def blocks(file: Lines) -> Iterator[Block]:
    """Yield a file as blocks of whole lines; a missing last newline is added.

    Raises:
        TraceError: a line is longer than ``MAX_LINE_BYTES``: the file is no trace in text.
    """
    line = 1
    while data := file.read(BLOCK_BYTES, rest_of_line=MAX_LINE_BYTES):
        if line == 1:
            data = data.removeprefix(b"\xef\xbb\xbf")
        if not data.endswith(b"\n"):
            if file.read(1):
                limit = f"{MAX_LINE_BYTES >> 20} MiB"
                raise TraceError(f"a line after line {line} is longer than {limit}: no text trace")
            data += b"\n"
        block = Block(data, line)
        yield block
        line += len(block)
