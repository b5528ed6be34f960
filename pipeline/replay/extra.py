"""What a dump has of each job beside the trace schema: only a replay of that site reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.traces.delimited import Layout, split_header
from pipeline.traces.sacct import Sacct

COLUMNS = (
    "User", "Account", "QOS", "Reason", "Priority", "Flags", "NodeList", "ReqTRES", "AllocTRES",
    "Reservation", "SubmitLine",
)  # fmt: skip


@dataclass(frozen=True)
class Extra:
    """Columns by name, a text per job in the order of the jobs. What the dump lacks is absent."""

    columns: Mapping[str, list[str]]
    jobs: int

    def of(self, name: str) -> list[str]:
        """A column; empty texts where the dump has none."""
        return self.columns.get(name) or [""] * self.jobs

    def at(self, places: Sequence[int] | NDArray[Any]) -> Extra:
        """Of the jobs at these places."""
        picked = {n: [values[i] for i in places] for n, values in self.columns.items()}
        return Extra(picked, len(places))


def read_extra(dump: Path, lines: NDArray[np.int64]) -> Extra:
    """Reads these columns of some lines of a dump.

    Args:
        dump: a file of ``sacct -P`` that was ingested.
        lines: of each job, as ingestion counts them: from 1.
    """
    wanted = set(lines.tolist())
    found: dict[int, list[str]] = {}
    layout: Layout | None = None
    with dump.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if layout is None:
                if line.strip():
                    layout = Sacct().layout(split_header(line, Sacct.delimiter), dump)
            elif number in wanted:
                found[number] = _fields(line, layout)
    if layout is None:
        return Extra({}, len(lines))
    rows = [found.get(number, []) for number in lines.tolist()]
    at = {name: layout.names.index(name) for name in COLUMNS if name in layout.names}
    return Extra(
        {name: [row[i] if i < len(row) else "" for row in rows] for name, i in at.items()},
        len(lines),
    )


def _fields(line: bytes, layout: Layout) -> list[str]:
    bare = line.rstrip(b"\r\n")
    if bare.count(b"|") + 1 != len(layout.names) and layout.repair is not None:
        bare = layout.repair(bare) or b""
    return bare.decode("utf-8", errors="replace").split("|")
