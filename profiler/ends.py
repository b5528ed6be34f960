"""Reading the last lines of a command's output."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from features.given import descriptor
from profiler.progress.names import COMPLAINTS

LAST_LINES = 20
LAST_BYTES = 65_536
_GPU_OOM = re.compile(
    r"CUDA out of memory|CUDA_ERROR_OUT_OF_MEMORY"
    r"|RESOURCE_EXHAUSTED(?:(?!RESOURCE_EXHAUSTED).)*?(?:GPU|CUDA)"
)
_HOST_OOM = re.compile(
    r"^\s*MemoryError\b|std::bad_alloc|Cannot allocate memory"
    r"|DefaultCPUAllocator: (?:(?!DefaultCPUAllocator: ).)*?memory"
)


def memory_complaint(lines: Sequence[str]) -> str | None:
    """Return which kind of memory a failed command ran out of by its last lines, one of
    `COMPLAINTS`, or None if they do not mention it."""
    text = list(lines)
    if any(_GPU_OOM.search(line) for line in text):
        return COMPLAINTS[1]
    if any(_HOST_OOM.search(line) for line in text):
        return COMPLAINTS[2]
    return None


def last_lines(output: Path | int, count: int = LAST_LINES) -> tuple[str, ...]:
    """Return the last lines of an output, given by its path or descriptor; () if it cannot be read.
    Empty lines at its end are left out. A progress bar is reduced to its last state.
    """
    try:
        file = descriptor(output) if isinstance(output, Path) else os.dup(output)
        try:
            begin = max(0, os.fstat(file).st_size - LAST_BYTES)
            text = os.pread(file, LAST_BYTES, begin).decode("utf-8", "replace")
        finally:
            os.close(file)
    except OSError:
        return ()
    lines = [line.rstrip("\r").rsplit("\r", 1)[-1] for line in text.split("\n")]
    while lines and not lines[-1].strip():
        lines.pop()
    return tuple(line[:2000] for line in lines[-count:])
