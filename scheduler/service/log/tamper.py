"""Checks whether the rows of a database are as they were written: by the hash chain, and by the
database's own check.

A head of the chain that was exported and kept elsewhere makes the check complete. Without one,
nobody notices that the whole chain was rewritten, or its end cut off together with the rows it
covers.
"""

from __future__ import annotations

import hmac
import json
import stat
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

from sqlalchemy import Connection, Table, text
from sqlalchemy.exc import DBAPIError

from features.given import read_given, read_text
from scheduler.backends.events import canonical
from scheduler.service.log.store import chain, tables

SHORTEST_KEY = 32  # bytes


class HeadError(ValueError):
    """Raised where the file of an exported head, or of a key, cannot be used. The message is one
    line.
    """


@dataclass(frozen=True, slots=True)
class Tampered:
    """A row that is not as it was written: altered, missing or not covered by the hash chain.

    Attributes:
        table, row: the row's table and key.
        link: number of the chain's link that covers the row; 0: none.
        what: the difference in words.
    """

    table: str
    row: str
    what: str
    link: int = 0

    def sentence(self) -> str:
        """Return what is wrong with the row, in words, for a person."""
        link = f" (link {self.link} of the chain)" if self.link else ""
        return f"{self.table} {self.row}: {self.what}{link}"


ALTERED = "is not as it was written"
MISSING = "was deleted, not by the service"
FOREIGN = "was not written by the service"


# --- heads --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Head:
    """How far the hash chain reached at one moment.

    Attributes:
        links: number of links, one for each transaction.
        head: digest of the last link, and so of all.
        events: number of events in the log at that moment.
        at: that moment, seconds since the epoch.
        signature: HMAC-SHA256 of the other fields by the operator's key; "" = not signed.
    """

    links: int
    head: str
    events: int
    at: float
    signature: str = ""

    def signed(self, key: bytes) -> Head:
        return Head(
            links=self.links,
            head=self.head,
            events=self.events,
            at=self.at,
            signature=self._hmac(key),
        )

    def is_signed_by(self, key: bytes) -> bool:
        return hmac.compare_digest(self.signature, self._hmac(key))

    def text(self) -> str:
        """Return the text that the signature covers."""
        return f"{self.links} {self.head} {self.events} {self.at!r}"

    def _hmac(self, key: bytes) -> str:
        return hmac.new(key, self.text().encode(), sha256).hexdigest()


def head_of(connection: Connection, events: int, at: float) -> Head:
    """Return the present head of a database's chain. `events`: number of events in its log; `at`:
    the time now, seconds since the epoch.
    """
    last = chain.newest(connection)
    return Head(0, "", events, at) if last is None else Head(last.seq, last.head, events, at)


def read_head(path: Path, key: bytes | None) -> Head:
    """Return a head from the file to which it was exported. Raise HeadError where the file holds no
    head, or one that the key did not sign.
    """
    try:
        body = json.loads(read_text(path))
        names = {"links": int, "head": str, "events": int, "at": float, "signature": str}
        found = Head(**{name: kind(body.get(name, "")) for name, kind in names.items()})
    except OSError as error:
        raise HeadError(f"--since-head {path}: {error.strerror}") from None
    except (ValueError, TypeError, AttributeError):
        why = f"--since-head {path}: not a head as `pellucid audit --head` prints it"
        raise HeadError(why) from None
    if key is not None and not found.is_signed_by(key):
        raise HeadError(f"--since-head {path}: not signed by the key of --key")
    return found


def read_key(path: Path) -> bytes:
    """Return a key to sign with, from any file of 32 bytes or more that only its owner can
    read. Raise HeadError for any other file."""
    try:
        mode, key = path.stat().st_mode, read_given(path).strip()
    except OSError as error:
        raise HeadError(f"--key {path}: {error.strerror}") from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise HeadError(f"--key {path}: others can read or write it; chmod 600 it")
    if len(key) < SHORTEST_KEY:
        raise HeadError(
            f"--key {path}: {len(key)} bytes; it needs {SHORTEST_KEY}: openssl rand -hex 32"
        )
    return key


# --- the chain ----------------------------------------------------------------------------------


class Verified:
    """A check of a database's rows against its hash chain.

    Args:
        followed: whether the service only follows a Slurm, so that its rows of jobs and nodes do
            not follow from events.
        since: an exported head, which the chain must extend.

    Attributes:
        links: number of links in the chain.
        found: the links and rows that are not as they were written.
    """

    def __init__(self, connection: Connection, followed: bool, since: Head | None = None):
        self.connection, self.since = connection, since
        self.links = 0
        self.found: list[Tampered] = []
        self._wrong: dict[tuple[str, str], Tampered] = {}  # unless it turns out to be deleted
        self._latest: dict[tuple[str, str], tuple[str, int]] = {}  # of rows that may change
        self._in_order = {table.name: _InOrder(self, table) for table in chain.IN_ORDER}
        self._walk()
        for reader in self._in_order.values():
            reader.finish()
        self.found += self._wrong.values()
        self._compare([*chain.SEALED] if followed else [tables.forecasts])

    def _walk(self) -> None:
        head = ""
        since = self.since
        for link in chain.links(self.connection):
            if link.seq != self.links + 1:
                self._broken(self.links + 1, "is missing" + _upto(self.links + 1, link.seq - 1))
            elif chain.head_of(head, link.content) != link.head:
                self._broken(link.seq, "does not follow from the one before it")
            self.links, head = link.seq, link.head
            if since is not None and since.links == link.seq and since.head != head:
                self._broken(link.seq, "has another head than the one exported")
            try:
                entries = chain.entries(link)
            except (ValueError, TypeError):
                self._broken(link.seq, "cannot be read")
                continue
            for entry in entries:
                self._covers(link.seq, entry)
        if since is not None and since.links > self.links:
            self._broken(since.links, f"of the head exported is gone: {self.links:,} are left")

    def _broken(self, seq: int, what: str) -> None:
        self.found.append(Tampered("chain", str(seq), what))

    def _covers(self, link: int, entry: chain.Entry) -> None:
        name, key, digest = entry
        if digest is None:
            self._latest.pop((name, key), None)
            self._wrong.pop((name, key), None)
        elif name in self._in_order:
            self._in_order[name].expects(int(key), digest, link)
        else:
            self._latest[name, key] = digest, link

    def wrong(self, name: str, key: str, what: str, link: int = 0) -> None:
        self._wrong[name, key] = Tampered(name, key, what, link)

    def _compare(self, sealed: list[Table]) -> None:
        """Compare rows that may change, or be deleted, with their latest digests. Note rows that
        are altered, missing, or not covered by any digest.
        """
        seals = chain.sealed(self.connection)
        rest = [table for table in chain.CHAINED if table not in chain.IN_ORDER]
        for table in dict.fromkeys([*rest, *sealed]):
            for row in chain.rows_of(self.connection, table):
                at = table.name, chain.key_of(table, row)
                is_sealed = chain.is_sealed(table, row)
                expected, link = (seals.pop(at, None), 0) if is_sealed else self._chained(at)
                if expected is None:
                    self.found.append(Tampered(*at, FOREIGN))
                elif expected != chain.digest_of(table, row):
                    self.found.append(Tampered(*at, ALTERED, link))
        names = {table.name for table in sealed}
        left = [(at, 0) for at in seals if at[0] in names]
        left += [(at, link) for at, (_, link) in self._latest.items()]
        self.found += [Tampered(*at, MISSING, link) for at, link in left]

    def _chained(self, at: tuple[str, str]) -> tuple[str | None, int]:
        return self._latest.pop(at, (None, 0))


class _InOrder:
    """A table with rows that are written once, which are compared in the order of the chain's
    links.
    """

    def __init__(self, verified: Verified, table: Table):
        self.verified, self.table = verified, table
        self.rows: Iterator[chain.Row] = chain.rows_of(verified.connection, table)
        self.row = next(self.rows, None)

    def expects(self, seq: int, digest: str, link: int) -> None:
        name = self.table.name
        while self.row is not None and self.row["seq"] < seq:
            self._foreign()
        if self.row is None or self.row["seq"] != seq:
            self.verified.wrong(name, str(seq), MISSING, link)
            return
        if chain.digest_of(self.table, self.row) != digest:
            self.verified.wrong(name, str(seq), ALTERED, link)
        self.row = next(self.rows, None)

    def finish(self) -> None:
        while self.row is not None:
            self._foreign()

    def _foreign(self) -> None:
        assert self.row is not None
        self.verified.wrong(self.table.name, str(self.row["seq"]), FOREIGN)
        self.row = next(self.rows, None)


def _upto(first: int, last: int) -> str:
    return f", and so up to {last}" if last > first else ""


# --- the database's own check -------------------------------------------------------------------


def damage(connection: Connection) -> tuple[list[str], str]:
    """Return a line for each thing that the database finds wrong with its own pages and indexes,
    and the name of the check.

    On PostgreSQL, functions of the extension amcheck are used where it is installed. Otherwise the
    server's page checksums are used, if it has them: they are checked as the audit reads every row.
    """
    if connection.dialect.name == "sqlite":
        rows = connection.exec_driver_sql("PRAGMA integrity_check").scalars()
        return [line for line in rows if line != "ok"], "SQLite's integrity_check"
    if connection.execute(text("SELECT 1 FROM pg_extension WHERE extname = 'amcheck'")).scalar():
        return _amcheck(connection), "PostgreSQL's amcheck"
    if connection.execute(text("SHOW data_checksums")).scalar() != "on":
        return [], "nothing: PostgreSQL has neither amcheck nor data_checksums here"
    counted = text(
        "SELECT checksum_failures FROM pg_stat_database WHERE datname = current_database()"
    )
    failed = connection.execute(counted).scalar() or 0
    found = [f"{failed} pages failed their checksum"] if failed else []
    return found, "PostgreSQL's page checksums"


def _amcheck(connection: Connection) -> list[str]:
    found = []
    indexes = text(
        "SELECT c.oid::regclass::text FROM pg_class c JOIN pg_am a ON a.oid = c.relam "
        "JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE a.amname = 'btree' AND n.nspname = current_schema() AND c.relkind = 'i'"
    )
    for name in connection.execute(indexes).scalars().all():
        try:
            with connection.begin_nested():
                check = text("SELECT bt_index_check(CAST(:name AS regclass), true)")
                connection.execute(check, {"name": name})
        except DBAPIError as error:
            found.append(f"index {name}: {str(error.orig).splitlines()[0]}")
    return found


def as_json(head: Head) -> str:
    """Return a head as the text that is exported (JSON)."""
    return canonical(asdict(head))
