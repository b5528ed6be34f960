"""Columns of a dump that the trace schema does not have. Only a replay of that site reads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from features.given import opened
from pipeline.traces.base import head
from pipeline.traces.delimited import Layout, split_header
from pipeline.traces.sacct import Sacct, columns_of
from pipeline.traces.sacct_json import SacctText, is_json
from pipeline.traces.sacct_records import BAR, Records
from pipeline.traces.text import BLOCK_BYTES

COLUMNS = (
    "User", "Account", "QOS", "Reason", "Priority", "Flags", "NodeList", "ReqTRES", "AllocTRES",
    "Reservation", "SubmitLine",
)  # fmt: skip


@dataclass(frozen=True)
class Extra:
    """Columns of a dump by name, with one text per job, in the order of the jobs. Columns that the
    dump lacks are absent."""

    columns: Mapping[str, list[str]]
    jobs: int

    def of(self, name: str) -> list[str]:
        """Return a column; empty texts if the dump does not have it."""
        return self.columns.get(name) or [""] * self.jobs

    def at(self, places: Sequence[int] | NDArray[Any]) -> Extra:
        """Return the columns of the jobs with these indices."""
        picked = {n: [values[i] for i in places] for n, values in self.columns.items()}
        return Extra(picked, len(places))


def read_extra(dump: Path, lines: NDArray[np.int64]) -> Extra:
    """Return the columns of a dump that the trace schema lacks, for the jobs on some lines. A
    value that a line lacks is "".

    Args:
        dump: a file of ``sacct -P`` that was ingested.
        lines: the line number of each job, from 1.
    """
    wanted = set(lines.tolist())
    found: dict[int, list[str]] = {}
    layout: Layout | None = None
    with opened(dump) as plain:
        file: BinaryIO = plain
        if is_json(head(dump)):
            file = cast(BinaryIO, SacctText(plain, dump.name))
        number, names = _names(file, dump)
        if names is None:
            return Extra({}, len(lines))
        layout = Sacct().layout(names, dump)
        for place, line in enumerate(_lines(file, Records(names)), start=number):
            if place in wanted:
                found[place] = _fields(line, layout)
    rows = [found.get(number, []) for number in lines.tolist()]
    at = {name: layout.names.index(name) for name in COLUMNS if name in layout.names}
    return Extra(
        {name: [row[i] if i < len(row) else "" for row in rows] for name, i in at.items()},
        len(lines),
    )


def _lines(file: BinaryIO, records: Records) -> Iterator[bytes]:
    """Yield the lines of a dump below its header. Each is one record, or empty."""
    data = file.read(BLOCK_BYTES) + file.readline()
    while data:
        following = file.read(BLOCK_BYTES) + file.readline()
        whole = data if data.endswith(b"\n") else data + b"\n"
        mended, _ = records.mend(whole, last=not following)
        yield from mended.split(b"\n")[:-1]
        data = following


def _names(file: BinaryIO, dump: Path) -> tuple[int, list[str] | None]:
    """Return (line number of the first job, names of the columns). The names are None if the file
    is empty."""
    number = 1
    for line in iter(file.readline, b""):
        number += 1
        if line.strip():
            bare = line.removeprefix(b"\xef\xbb\xbf")
            if names := columns_of(bare):
                file.seek(file.tell() - len(line))
                return number - 1, list(names)
            return number, split_header(bare, Sacct.delimiter)
    return number, None


def _fields(line: bytes, layout: Layout) -> list[str]:
    bare = line.rstrip(b"\r\n")
    if bare.count(b"|") + 1 != len(layout.names) and layout.repair is not None:
        bare = layout.repair(bare) or b""
    return [one.replace(BAR, "|") for one in bare.decode("utf-8", errors="replace").split("|")]
