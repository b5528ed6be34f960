"""Xid errors that the NVIDIA driver wrote to the kernel's log while a job ran."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

KERNEL = Path("/dev/kmsg")
MOST_RECORDS, RECORD_BYTES = 20_000, 8192
SLACK_S = 2.0  # by which the kernel's clock and this process' may differ
MOST = 3  # that are named
_RECORD = re.compile(
    r"^\d{1,4},\d{1,20},(?P<us>\d{1,20}),[^;]{0,20};NVRM: Xid \((?P<gpu>[^)]{1,40})\): "
    r"(?P<number>\d{1,4})(?:, (?P<words>[^\n]{0,200}))?"
)
_OF_WHOM = re.compile(r"(?:pid='?[^,]{0,40}|name=[^,]{0,60}|Ch [0-9a-f]{1,8})(?:, |$)")


class Xid(NamedTuple):
    """An error that the NVIDIA driver reports (Xid): the GPU's address on the bus, the number, and
    the driver's message.
    """

    gpu: str
    number: int
    words: str


def since(monotonic_s: float, kernel: Path = KERNEL) -> list[Xid]:
    """Return the Xid errors written since `monotonic_s` (seconds on the monotonic clock); [] where
    the kernel's log cannot be read.
    """
    found: dict[Xid, None] = {}
    with suppress(OSError):
        file = os.open(kernel, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            for _ in range(MOST_RECORDS):
                record = _next(file)
                if not record:
                    break
                for line in record.decode("utf-8", "replace").splitlines():
                    error = _RECORD.match(line)
                    if error is not None and int(error["us"]) / 1e6 >= monotonic_s - SLACK_S:
                        words = _OF_WHOM.sub("", error["words"] or "").strip(" ,")
                        found[Xid(error["gpu"], int(error["number"]), words)] = None
        finally:
            os.close(file)
    return list(found)


def _next(file: int) -> bytes:
    """Return the next record of the kernel's log; b"" at its end."""
    while True:
        try:
            return os.read(file, RECORD_BYTES)
        except BrokenPipeError:  # what was to come next was overwritten: there is more
            continue


def words_of(errors: list[Xid]) -> str:
    """Return errors in words for the message of an ended job, at most `MOST` of them by name; ""
    for none. The driver does not say which job caused an error."""
    if not errors:
        return ""
    named = [
        f"Xid {one.number} on {one.gpu}" + (f" ({one.words})" if one.words else "")
        for one in errors[:MOST]
    ]
    more = f" and {len(errors) - MOST} more" if len(errors) > MOST else ""
    return f"while it ran the driver reported {', '.join(named)}{more}"
