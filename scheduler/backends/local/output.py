"""Reads the output of an attempt in parts. A part takes the same time however large the output
is.
"""

from __future__ import annotations

import codecs
import os
import re
from dataclasses import dataclass
from pathlib import Path

from features.given import descriptor
from features.plain import plain
from scheduler.backends.local.spool import name_of

MOST_BYTES = 262_144  # of one part
# Colours, cursor movements, titles: what a terminal would obey. The rest `plain` writes out.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
_CONTINUES = range(0x80, 0xC0)  # a byte within a character of UTF-8


@dataclass(frozen=True, slots=True)
class Part:
    """Part of an output. `start` and `next` are offsets in bytes of this part and of the next;
    `size` is the present size of the whole output.
    """

    text: str
    start: int
    next: int
    size: int


def read_part(
    spool: Path, job_id: str, attempt: int, offset: int, most: int, *, whole: bool
) -> Part:
    """Return at most `most` bytes of an attempt's output, from `offset` on. A negative offset
    counts from the end. An offset beyond the end is read as 0, because the file was emptied
    meanwhile. Raise FileNotFoundError where there is no output.

    Args:
        spool: folder of the backend.
        whole: whether the attempt has ended, so that the output is complete.
    """
    path = spool / "output" / f"{name_of(job_id, attempt)}.log"
    file = descriptor(path, follow=False)
    try:
        size = os.fstat(file).st_size
        before_end = max(0, size + offset)
        start = before_end if offset < 0 else offset if offset <= size else 0
        read = os.pread(file, min(most, MOST_BYTES), start)
    finally:
        os.close(file)
    if offset < 0 < start:
        cut = next((i for i, byte in enumerate(read[:4]) if byte not in _CONTINUES), 0)
        start, read = start + cut, read[cut:]
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(read, final=whole and start + len(read) >= size)
    held = len(decoder.getstate()[0])  # the beginning of a character whose rest is to come
    return Part(_shown(text), start, start + len(read) - held, size)


def _shown(text: str) -> str:
    """Return text without escape sequences and control characters, safe for a terminal or a page.
    Text that a carriage return would overwrite becomes a line of its own.
    """
    lines = _ESCAPES.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return plain(lines)
