"""Joins the lines of a dump of `sacct` into records. Names and commands are free text, which may
hold bars, line breaks and bytes of any encoding. The other columns cannot, and show where a record
begins and ends."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations_with_replacement, islice

import numpy as np

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.+-][\d:]+)?|Unknown|None|N/A|")
_COUNT = re.compile(r"\d*")
_LASTS = re.compile(r"(?:\d+-)?\d+:\d\d(?::\d\d)?(?:\.\d+)?|UNLIMITED|Partition_Limit|INVALID|")
_ITEM = r"[^,=|\s]{1,80}+=[^,=|\s]{1,80}+"
_TRES = re.compile(rf"(?:{_ITEM}(?:,{_ITEM})*+)?")
_STATE = re.compile(r"[A-Z_]+\+?(?: by \d+)?")
# What columns hold that cannot hold free text
SURE: Mapping[str, re.Pattern[str]] = {
    "JobID": re.compile(r"\d+(?:_(?:\d+|\[[^|]*\]))?(?:\+\d+)?(?:\.\w+)?"),
    "JobIDRaw": re.compile(r"\d+(?:\+\d+)?(?:\.\w+)?"),
    **dict.fromkeys(("Submit", "Eligible", "Start", "End"), _TIME),
    **dict.fromkeys(("Elapsed", "Timelimit"), _LASTS),
    **dict.fromkeys(("NNodes", "NCPUS", "AllocCPUS", "ReqCPUS", "Priority", "ElapsedRaw"), _COUNT),
    **dict.fromkeys(("AllocTRES", "ReqTRES"), _TRES),
    "ExitCode": re.compile(r"\d+:\d+|"),
    "State": _STATE,
}
# Columns in which anything may stand, bars and line breaks included
FREE = (
    "JobName", "Comment", "AdminComment", "SystemComment", "WorkDir", "SubmitLine", "Constraints",
)  # fmt: skip
BAR = "\x1f"  # stands for a bar inside a value while a line is split
MOST_LINES, MOST_BARS = 64, 24  # that one value may hold
MOST_WAYS = 512  # in which the bars of a line are tried
# The columns that Open XDMoD's manual has sites dump without a header, by how many they are
_XDMOD = (
    "JobID JobIDRaw Cluster Partition QOS Account Group GID User UID Submit Eligible Start End "
    "Elapsed ExitCode State NNodes NCPUS ReqCPUS ReqMem {}Timelimit NodeList JobName"
)
HEADERLESS = tuple(
    tuple(_XDMOD.format(more).split())
    for more in ("ReqTRES AllocTRES ", "ReqGRES ReqTRES ", "ReqTRES ", "ReqGRES ")
)


class Records:
    """Joins the lines of a dump of sacct into records, one per job.

    Args:
        names: names of the dump's columns.

    Attributes:
        recoded: number of lines that were not UTF-8.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names, self._width = list(names), len(names)
        self._sure = [(at, SURE[name]) for at, name in enumerate(names) if name in SURE]
        self._free = [at for at, name in enumerate(names) if name in FREE]
        self._last_is_free = self._width - 1 in self._free
        self.recoded = 0
        self._open: list[bytes] = []  # lines of a record that has not ended

    def mend(self, data: bytes, *, last: bool = True) -> tuple[bytes, int]:
        """Return the lines of a block with one record per line. Lines that were joined to an
        earlier one are left empty, so that all lines keep their numbers.

        Args:
            last: whether no lines follow. Otherwise the lines of a record that has not ended are
                held back for the next call.

        Returns:
            the lines, and how many lines held back by the call before are among them.
        """
        held, self._open = self._open, []
        if not held and self._sound(data):
            return data, 0
        lines = [*held, *data.split(b"\n")[:-1]]
        found = self._joined([self._text(line) for line in lines], last=last)
        return b"".join(line + b"\n" for line in found), len(held)

    def _sound(self, data: bytes) -> bool:
        """Return whether the lines need no repair: all are ASCII, and each has the right number of
        bars."""
        raw = np.frombuffer(data, np.uint8)
        if not len(raw) or not data.isascii():
            return False
        starts = np.concatenate([[0], np.flatnonzero(raw == 10)[:-1] + 1])
        bars = np.add.reduceat(raw == ord("|"), starts, dtype=np.int64)
        return bool((bars == self._width - 1).all())

    def _text(self, line: bytes) -> bytes:
        """Return the line in UTF-8. One that is not in UTF-8 is read as Latin-1 and counted in
        `recoded`.
        """
        try:
            line.decode("utf-8")
        except UnicodeDecodeError:
            self.recoded += 1
            return line.decode("latin-1").encode()
        return line

    def _joined(self, lines: list[bytes], *, last: bool) -> Iterator[bytes]:
        at = 0
        before: list[bytes] = []  # the record that ended last, and its empty lines
        while at < len(lines):
            record, took = self._record(lines, at)
            if record is None and not last and len(lines) - at < MOST_LINES and took == 0:
                break  # it may go on in the next lines
            goes_on = record is None and 0 < len(before) < MOST_LINES
            if goes_on and self._goes_on(lines[at]):
                before[0] += b" " + lines[at].replace(b"|", BAR.encode())
                before.append(b"")
                at += 1
                continue
            yield from before
            before = [lines[at] if record is None else record, *[b""] * max(0, took - 1)]
            at += max(1, took)
        yield from before
        self._open = lines[at:]

    def _goes_on(self, line: bytes) -> bool:
        """Return whether a line continues the record before. It does if the last column is free
        text and the line is short and does not begin a record."""
        first, bar, _ = line.decode("utf-8", "replace").partition("|")
        begins = bar and self._sure[:1] and self._sure[0][0] == 0 and self._stands_first(first)
        short = line.count(b"|") < self._width - 1
        return self._last_is_free and short and bool(line.strip()) and not begins

    def _stands_first(self, value: str) -> bool:
        return bool(self._sure[0][1].fullmatch(value))

    def _record(self, lines: Sequence[bytes], at: int) -> tuple[bytes | None, int]:
        """Return the record that begins at line `at`, and its number of lines; of a blank line,
        the line and 1. If no record begins there, return None and 1. If the record may continue
        in the next block, return None and 0."""
        line = lines[at]
        if not line.strip() or self.whole(line) is not None:
            return self.whole(line) or line, 1
        if line.count(b"|") >= self._width - 1:
            return None, 1
        joined = line
        for n in range(at + 1, min(len(lines), at + MOST_LINES)):
            if self.whole(lines[n]) is not None:
                return None, 1  # another record begins: this is the rest of one
            joined += b" " + lines[n]
            if joined.count(b"|") >= self._width - 1 and (found := self.whole(joined)) is not None:
                return found, n - at + 1
        return None, 0

    def whole(self, line: bytes) -> bytes | None:
        """Return the line with the bars in free text replaced. Return None if the line is no
        record, or if it can be read as a record in several ways. If the last column is free
        text, take as many of the bars as possible for part of it instead."""
        values = line.removesuffix(b"\r").decode("utf-8", "replace").split("|")
        extra = len(values) - self._width
        if extra < 0 or extra > MOST_BARS:
            return None
        if not extra:
            return line if self._stands(values) else None
        found = {}
        for split in self._splits(values, extra):
            if self._stands(split):
                found["|".join(split)] = split
        if self._last_is_free and len(found) > 1:  # as much as possible at the end
            return next(iter(found)).encode()
        return next(iter(found)).encode() if len(found) == 1 else None

    def _splits(self, values: list[str], extra: int) -> Iterator[list[str]]:
        """Yield the ways to split a line into columns, if `extra` of its bars are part of free
        text. Ways with these bars in the last column come first."""
        ways = combinations_with_replacement(self._free[::-1], extra)
        for chosen in islice(ways, MOST_WAYS):
            many = {at: chosen.count(at) for at in chosen}
            split, rest = [], iter(values)
            for at in range(self._width):
                parts = [next(rest) for _ in range(1 + many.get(at, 0))]
                split.append(BAR.join(parts))
            yield split

    def _stands(self, values: Sequence[str]) -> bool:
        return all(sure.fullmatch(values[at]) for at, sure in self._sure)


def headerless(line: bytes, split: Callable[[bytes], list[str]]) -> tuple[str, ...]:
    """Return the names of the columns of a dump without a header line, recognised by its first
    line; () if they are not recognised.

    Args:
        split: splits a line at its bars.
    """
    width = len(split(line))
    for names in HEADERLESS:
        if width >= len(names) and Records(names).whole(line) is not None:
            return names
    return ()


def is_data(values: Sequence[str]) -> bool:
    """Return whether the first line of a dump holds a job rather than names of columns."""
    times = [
        value for value in values if value and value[:1].isdecimal() and _TIME.fullmatch(value)
    ]
    return len(times) >= 2
