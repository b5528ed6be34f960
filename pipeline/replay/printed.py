"""Reads files in which a site's Slurm printed its nodes, partitions, settings, accounts and QOS."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from pathlib import Path

from features.given import LARGE, read_text
from pipeline.errors import UserError
from pipeline.replay.written import as_printed, is_gres
from scheduler.slurm.read import parse
from scheduler.slurm.read.parse import Node, ParseError
from scheduler.slurm.read.site import (
    ASSOC,
    QOS,
    assocs_of,
    config_of,
    licences_of,
    partitions_of,
    qos_of,
)
from scheduler.slurm.twin.site import Assoc, AssocKey, Partition, Qos, Reservation

ACCEPTED = (
    "the output of scontrol show nodes, partition, config, licenses and reservation, and of "
    "sacctmgr -P show assoc, user, qos and reservation (with their headers), or slurm.conf and the "
    "file of sacctmgr dump"
)
_RECORD = re.compile(r"^(NodeName|PartitionName|ReservationName|LicenseName)=")
_SETTING = re.compile(r"^\S+\s+= ")
# sacctmgr's own headers of columns that are asked for by other names
_ALIASES = {
    "parname": "parentname",
    "fairshare": "share",
    "timestart": "start",
    "timeend": "end",
    "grptresrunmin": "grptresrunmins",
    "defqos": "defaultqos",
}


@dataclass(frozen=True)
class Window:
    """A reservation as printed, in the site's clock time."""

    name: str
    nodes: frozenset[str]
    start: datetime
    end: datetime
    flags: frozenset[str]

    def at(self, zone: tzinfo) -> Reservation:
        """Return the reservation as the policy `slurm` reads it. Its clock times are those of
        `zone`."""
        start, end = (one.replace(tzinfo=zone).timestamp() for one in (self.start, self.end))
        return Reservation(self.name, self.nodes, start, end, flags=self.flags)


@dataclass
class Printed:
    """The content of the files that a site's Slurm printed. `licences` and `reservations` are
    None if no file says whether the site has any. Other fields are empty if no file states
    them.

    `reservations` have times as printed. `accounts` maps a user to the default account.
    """

    nodes: list[Node] = field(default_factory=list)
    partitions: list[Partition] = field(default_factory=list)
    config: dict[str, str] = field(default_factory=dict)
    qos: dict[str, Qos] = field(default_factory=dict)
    assocs: dict[AssocKey, Assoc] = field(default_factory=dict)
    accounts: dict[str, str] = field(default_factory=dict)
    licences: dict[str, int] | None = None
    reservations: list[Window] | None = None


def read_printed(paths: Iterable[Path]) -> Printed:
    """Return the content of files that Slurm's commands printed. The files may come in any order,
    and one file may hold several outputs.

    A gres.conf is ignored. Raises UserError, with the name of the file, if a file cannot be
    read, or holds nothing that Slurm prints."""
    found = Printed()
    for path in paths:
        try:
            text = read_text(path, LARGE, errors="replace")
        except OSError as error:
            raise UserError(f"--site {path}: {error.strerror}") from None
        if is_gres(text):
            continue
        before = _size(found)
        try:
            _read(as_printed(path, text), found)
        except (ParseError, ValueError, KeyError, OSError) as error:
            raise UserError(f"--site {path}: not as Slurm prints it ({error})") from None
        if _size(found) == before:
            raise UserError(f"--site {path}: nothing of Slurm's in it; give {ACCEPTED}")
    return found


def _size(found: Printed) -> int:
    many = len(found.nodes) + len(found.partitions) + len(found.config)
    more = len(found.licences or ()) + (found.reservations is not None)
    return many + len(found.qos) + len(found.assocs) + len(found.accounts) + more


def _read(text: str, found: Printed) -> None:
    lines = text.splitlines()
    records = list(_records(lines))
    for one in records:
        if one.startswith("NodeName="):
            found.nodes += parse.nodes(one)
        elif one.startswith("PartitionName="):
            found.partitions += partitions_of(one)
        elif one.startswith("LicenseName="):
            found.licences = (found.licences or {}) | licences_of(one)
        elif one.startswith("ReservationName="):
            fields = parse.fields(one)
            _reserved(found, {name.lower(): value for name, value in fields.items()})
    found.config |= config_of("\n".join(line for line in lines if _SETTING.match(line)))
    _managed(lines, found)


def _managed(lines: Sequence[str], found: Printed) -> None:
    """Parse the lines that `sacctmgr` printed, and add their content to `found`."""
    for names, rows in _tables(lines):
        if {"account", "user"} <= set(names):
            found.assocs |= assocs_of(_as_asked(names, rows, ASSOC), "")
        elif {"name", "grptres"} <= set(names):
            found.qos |= qos_of(_as_asked(names, rows, QOS))
        elif "defacct" in names:
            user, account = names.index("user"), names.index("defacct")
            found.accounts |= {row[user]: row[account] for row in rows}
        else:
            found.reservations = found.reservations or []
            for row in rows:
                _reserved(found, dict(zip(names, row, strict=True)))


def _reserved(found: Printed, row: Mapping[str, str]) -> None:
    """Add a reservation, as scontrol or sacctmgr prints it, to `found`, unless it is already
    there."""
    nodes = parse.hosts(row.get("nodes") or row.get("nodename", ""))
    window = Window(
        name=row.get("reservationname") or row["name"],
        nodes=frozenset(nodes),
        start=datetime.fromisoformat(row.get("starttime") or row["start"]),
        end=datetime.fromisoformat(row.get("endtime") or row["end"]),
        flags=frozenset(filter(None, row.get("flags", "").split(","))),
    )
    held = found.reservations = found.reservations or []
    if not any((one.name, one.start) == (window.name, window.start) for one in held):
        held.append(window)


def _is_table(names: Sequence[str]) -> bool:
    asked = (
        {"account", "user"},
        {"name", "grptres"},
        {"name", "nodename", "start", "end"},
        {"user", "defacct"},
    )
    return any(columns <= set(names) for columns in asked)


def _records(lines: Sequence[str]) -> Iterator[str]:
    """Yield each record of scontrol as one line, even if it was printed on several."""
    held: list[str] = []
    for line in lines:
        if _RECORD.match(line) or not line.startswith((" ", "\t")):
            if held:
                yield " ".join(held)
            held = [line] if _RECORD.match(line) else []
        elif held:
            held.append(line.strip())
    if held:
        yield " ".join(held)


def _tables(lines: Sequence[str]) -> Iterator[tuple[list[str], list[list[str]]]]:
    """Yield (names of the columns in lower case, rows) for each table that sacctmgr printed."""
    names: list[str] = []
    rows: list[list[str]] = []
    for line in [*lines, ""]:
        parts = line.split("|")
        if names and len(parts) == len(names):
            rows.append(parts)
            continue
        if rows or {"nodename", "start"} <= set(names):
            yield names, rows
        plain = [part.replace(" ", "").lower() for part in parts]
        names, rows = [_ALIASES.get(name, name) for name in plain], []
        if not _is_table(names):
            names = []


def _as_asked(names: Sequence[str], rows: Sequence[Sequence[str]], wanted: Sequence[str]) -> str:
    """Return rows as lines with only the `wanted` columns, in the format in which the service asks
    Slurm for them. A column that is not in `names` is empty. Rows of associations without an
    account are left out."""
    lines = []
    for row in rows:
        cells: Mapping[str, str] = dict(zip(names, row, strict=True))
        if "name" in cells or cells.get("account"):
            lines.append("|".join(cells.get(name.lower(), "") for name in wanted))
    return "\n".join(lines)
