"""The archive: old bodies of events and decisions, a thousand of them compressed into one row.

The rows of `events` and `decisions` stay. Their bodies are moved to the archive, and their column
`body` is "" from then on. So all code reads bodies by way of `bodies`. The archive is in the same
database, so a backup holds it, and nothing of the log is lost.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from sqlalchemy import Connection, Table, bindparam, func, insert, select, update
from sqlalchemy.engine import RowMapping

from scheduler.backends.events import Kind
from scheduler.service.log.store.tables import archive, decisions, events

BATCH = 1000  # bodies of one row; fewer stay where they are
APART_S = 0.1  # between two transactions: others write, too
OPEN = 4  # rows of the archive that a connection keeps uncompressed
# kinds of which there are many; the others, and the last of each, stay for who looks for the last
BULK = (
    Kind.SUBMITTED, Kind.DECIDED, Kind.STARTED, Kind.OBSERVED, Kind.PROFILED, Kind.ENDED,
    Kind.FORECAST, Kind.SCORED,
)  # fmt: skip


class Transactions(Protocol):
    """The two kinds of transaction that a store opens: one to read, one to write."""

    def reading(self) -> AbstractContextManager[Connection]: ...
    def writing(self) -> AbstractContextManager[Connection]: ...


def move(store: Transactions, before: float) -> int:
    """Move old bodies into the archive, `BATCH` at a time: those of decisions, and of events of the
    kinds `BULK`, from before the time `before` (seconds since the epoch). Fewer than `BATCH` stay
    where they are, and so does the body of the latest event of each kind. Return how many were
    moved.
    """
    moved = 0
    with store.reading() as connection:
        last = select(func.max(events.c.seq)).group_by(events.c.kind)
        newest = list(connection.execute(last).scalars())
    for table in (events, decisions):
        while batch := _move(store, table, before, newest):
            moved += batch
            time.sleep(APART_S)
    return moved


def _move(store: Transactions, table: Table, before: float, newest: list[int]) -> int:
    with store.writing() as connection:
        done = select(func.coalesce(func.max(archive.c.last), -1)).where(
            archive.c.name == table.name
        )
        query = select(table.c.seq, table.c.body).where(table.c.at < before)
        query = query.where(table.c.seq > connection.execute(done).scalar_one())
        if table is events:
            kinds = [kind.value for kind in BULK]
            query = query.where(events.c.kind.in_(kinds), events.c.seq.not_in(newest))
        rows = connection.execute(query.order_by(table.c.seq).limit(BATCH)).all()
        if len(rows) < BATCH:
            return 0
        content = zlib.compress(json.dumps({row.seq: row.body for row in rows}).encode(), 9)
        ends = {"first": rows[0].seq, "last": rows[-1].seq}
        connection.execute(insert(archive).values(name=table.name, **ends, content=content))
        emptied = update(table).where(table.c.seq == bindparam("of")).values(body="")
        connection.execute(emptied, [{"of": row.seq} for row in rows])
        return len(rows)


def forget(connection: Connection, table: Table, seqs: Collection[int]) -> None:
    """Delete the bodies of the given rows of a table from the archive. The other bodies stay."""
    gone = set(map(str, seqs))
    mine = archive.c.name == table.name
    ends = select(archive.c.first, archive.c.last).where(mine)
    for first, last in connection.execute(ends).all():
        if not any(first <= seq <= last for seq in seqs):
            continue
        this = mine & (archive.c.first == first)
        texts = json.loads(
            zlib.decompress(connection.execute(select(archive.c.content).where(this)).scalar_one())
        )
        left = {seq: body for seq, body in texts.items() if seq not in gone}
        content = zlib.compress(json.dumps(left).encode(), 9)
        connection.execute(update(archive).where(this).values(content=content))
    connection.info.pop("archive", None)


def bodies(connection: Connection, table: Table, rows: Sequence[Any]) -> list[str]:
    """Return the bodies of rows of a table, in the order of `rows`. Bodies that were moved are read
    from the archive. Each row must have the columns `seq` and `body`.
    """
    found = []
    for row in rows:
        has = row if isinstance(row, RowMapping) else row._mapping
        found.append(has["body"] or _moved(connection, table, has["seq"]))
    return found


def _moved(connection: Connection, table: Table, seq: int) -> str:
    known: list[tuple[str, int, int, dict[str, str]]] = connection.info.setdefault("archive", [])
    for name, first, last, texts in known:
        if name == table.name and first <= seq <= last:
            return texts[str(seq)]
    query = select(archive).where(archive.c.name == table.name, archive.c.first <= seq)
    row = connection.execute(query.order_by(archive.c.first.desc()).limit(1)).one()
    texts = json.loads(zlib.decompress(row.content))
    known.insert(0, (row.name, row.first, row.last, texts))
    del known[OPEN:]
    return str(texts[str(seq)])
