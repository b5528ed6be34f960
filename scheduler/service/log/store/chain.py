"""A hash chain over the rows that pages show, by which later alterations are found. Whoever alters
a row must rewrite every later link, and cannot rewrite a head that was exported and kept elsewhere.

Each transaction that writes such rows appends one link. The link lists the digest of every row that
was written (None: that was deleted). The head of the chain is the hash of the newest link and the
head before it. Rows that are replaced all the time (`SEALED`) would make the chain longer than the
log. So their digests (seals) lie in a table beside them and are replaced with them. Where the
service decides itself, `jobs`, `nodes` and `settings` follow from the events and need no digests.
"""

from __future__ import annotations

import json
import zlib
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    Float,
    RowMapping,
    Table,
    bindparam,
    delete,
    insert,
    select,
    update,
)
from sqlalchemy.exc import NoResultFound

from scheduler.backends.events import canonical
from scheduler.service.log.store import tables
from scheduler.service.log.store.archive import bodies
from scheduler.service.log.store.tables import chain, seals

CHAINED = (tables.events, tables.decisions, tables.forecasts, tables.tokens, tables.links,
           tables.payloads)  # fmt: skip
LATEST = "latest"  # forecasts of this basis are sealed
SEALED = (tables.forecasts, tables.jobs, tables.nodes)
IN_ORDER = (tables.events, tables.decisions)  # written once, in the order of their `seq`
READ = 2000  # rows read at once

_FLOATS = {
    table.name: {c.name for c in table.c if isinstance(c.type, Float)}
    for table in {*CHAINED, *SEALED}
}

Row = Mapping[str, Any] | RowMapping
Entry = tuple[str, str, str | None]  # table, key, digest


class Link(NamedTuple):
    """One link of the chain, for one transaction. `content`: the canonical JSON of its entries;
    `head`: the digest of the chain up to and with this link.
    """

    seq: int
    content: str
    head: str


def key_of(table: Table, row: Row) -> str:
    """Return the primary key of a row of a table, as text."""
    return "/".join(str(row[column.name]) for column in table.primary_key)


def digest_of(table: Table, row: Row) -> str:
    """Return the digest of a row's columns. Columns that are NULL are left out, so that columns can
    be added to a table later.
    """
    floats = _FLOATS[table.name]
    shown = {
        name: float(value) if name in floats else value
        for name, value in row.items()
        if value is not None
    }
    digest = sha256(f"{table.name} {canonical(shown)}".encode()).digest()
    return urlsafe_b64encode(digest).decode().rstrip("=")


def head_of(before: str, content: str) -> str:
    """Return the head of the hash chain (a digest) after one more link: the hash of the previous
    head and the link's content.
    """
    return sha256(f"{before}\n{content}".encode()).hexdigest()


# --- writing ------------------------------------------------------------------------------------


def write(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows, and add their digests to the hash chain, or to the seals beside it (`cover`).
    Columns left out are NULL.
    """
    if rows:
        connection.execute(insert(table), rows)
        cover(connection, table, rows)


def cover(connection: Connection, table: Table, rows: Iterable[Row]) -> None:
    """Add the digests of whole rows, as they were just written, to the link that this transaction
    appends to the hash chain. Rows that are often replaced (`is_sealed`) get a seal instead: their
    digest is kept beside the chain.
    """
    sealed = []
    for row in rows:
        entry = table.name, key_of(table, row), digest_of(table, row)
        if is_sealed(table, row):
            sealed.append(dict(zip(("name", "key", "digest"), entry, strict=True)))
        else:
            _pending(connection).append(entry)
    if sealed:
        unseal(connection, table, [one["key"] for one in sealed])
        connection.execute(insert(seals), sealed)


def cover_those(connection: Connection, table: Table, where: ColumnElement[bool]) -> None:
    """Read the rows that meet `where`, and add their digests to the hash chain, or to the seals
    beside it (`cover`).
    """
    cover(connection, table, connection.execute(select(table).where(where)).mappings().all())


def change(
    connection: Connection, table: Table, where: ColumnElement[bool], values: Mapping[str, Any]
) -> None:
    """Update the rows that meet `where`, and add their new digests to the hash chain, or to the
    seals beside it (`cover`). The update may change columns that `where` tests.
    """
    keys = list(table.primary_key)
    found = connection.execute(select(*keys).where(where)).all()
    for at in found:
        this = [c == value for c, value in zip(keys, at, strict=True)]
        connection.execute(update(table).where(*this).values(**values))
        cover(connection, table, connection.execute(select(table).where(*this)).mappings().all())


def take_out(connection: Connection, table: Table, where: ColumnElement[bool]) -> int:
    """Delete rows of a table, and record the deletion in the hash chain. Return the number of
    deleted rows.
    """
    found = connection.execute(select(*table.primary_key).where(where)).mappings().all()
    connection.execute(delete(table).where(where))
    gone(connection, table, [key_of(table, row) for row in found])
    return len(found)


def gone(connection: Connection, table: Table, keys: Sequence[str]) -> None:
    """Note that rows were deleted: delete their seals, and record the deletion in the hash chain
    where it covers the rows. Do nothing for a table that neither covers.
    """
    if table in SEALED:
        unseal(connection, table, keys)
    if table in CHAINED:
        chained = [key for key in keys if not (table in SEALED and key.endswith(f"/{LATEST}"))]
        _pending(connection).extend((table.name, key, None) for key in chained)


def unseal(connection: Connection, table: Table, keys: Sequence[str]) -> None:
    """Delete the seals (digests outside the chain) of rows that are deleted or replaced."""
    if keys:
        this = delete(seals).where(seals.c.name == table.name, seals.c.key == bindparam("of"))
        connection.execute(this, [{"of": key} for key in keys])


def add_link(connection: Connection) -> None:
    """Append the entries that a transaction has collected to the hash chain, as one link. Do
    nothing where it has none. Called at the end of the transaction.
    """
    entries = connection.info.pop("chain", None)
    if not entries:
        return
    last = connection.execute(
        select(chain.c.seq, chain.c.head).order_by(chain.c.seq.desc()).limit(1)
    ).one_or_none()
    seq, before = (0, "") if last is None else last
    content = canonical(entries)
    row = {"seq": seq + 1, "content": content, "head": head_of(before, content)}
    connection.execute(insert(chain), row)


def forget(connection: Connection) -> None:
    """Drop the entries that a transaction has collected for the chain. Called after the transaction
    has ended, successfully or not.
    """
    connection.info.pop("chain", None)


def _pending(connection: Connection) -> list[Entry]:
    found: list[Entry] = connection.info.setdefault("chain", [])
    return found


def is_sealed(table: Table, row: Row) -> bool:
    if table is tables.forecasts:
        return bool(row["basis"] == LATEST)
    return table in SEALED


# --- reading ------------------------------------------------------------------------------------


def rows_of(connection: Connection, table: Table) -> Iterator[Row]:
    """Yield every row of a table in the order of its key. A body that was moved is read from the
    archive; it is "" where the archive lacks it.
    """
    query = select(table).order_by(*table.primary_key)
    if table not in IN_ORDER:
        yield from connection.execute(query).mappings()
        return
    after = -1
    while rows := connection.execute(query.where(table.c.seq > after).limit(READ)).mappings().all():
        for row in rows:
            yield {**row, "body": _body(connection, table, row)}
        after = rows[-1]["seq"]


def _body(connection: Connection, table: Table, row: RowMapping) -> str:
    try:
        return bodies(connection, table, [row])[0]
    except (LookupError, ValueError, NoResultFound, zlib.error):
        return ""  # the archive does not have it any more


def links(connection: Connection) -> Iterator[Link]:
    """Yield the links of the chain, from its beginning."""
    after = 0
    query = select(chain).order_by(chain.c.seq).limit(READ)
    while rows := connection.execute(query.where(chain.c.seq > after)).all():
        for row in rows:
            yield Link(*row)
        after = rows[-1].seq


def entries(link: Link) -> list[Entry]:
    """Return the entries that a link covers. Raise ValueError where the link is malformed."""
    return [(name, key, digest) for name, key, digest in json.loads(link.content)]


def newest(connection: Connection) -> Link | None:
    """Return the last link of the chain, or None where there is none yet."""
    row = connection.execute(select(chain).order_by(chain.c.seq.desc()).limit(1)).one_or_none()
    return None if row is None else Link(*row)


def sealed(connection: Connection) -> dict[tuple[str, str], str]:
    """Return the digests that are kept outside the chain, for rows that are often replaced, by
    (table, key).
    """
    return {(row.name, row.key): row.digest for row in connection.execute(select(seals))}
