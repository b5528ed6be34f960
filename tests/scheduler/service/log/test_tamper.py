"""Whoever alters rows behind the service's back is found, and the row is named."""

from __future__ import annotations

import json
import random
import sqlite3
import time
import zlib
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Table, delete, insert, select, text, update
from typer.testing import CliRunner

from pipeline.app import app
from scheduler.explain.whatif.forecasts import StartForecast
from scheduler.service.api import tokens as api_tokens
from scheduler.service.log import retention
from scheduler.service.log.audit import Audit, audit
from scheduler.service.log.forecasts import write
from scheduler.service.log.store import archive, chain, tables
from scheduler.service.log.store.payloads import Payload
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.visibility import Role
from scheduler.service.log.tamper import ALTERED, FOREIGN, MISSING, Head, head_of
from tests.scheduler.service.desk import Desk

SHOWN = (tables.events, tables.decisions, tables.forecasts, tables.tokens, tables.links,
         tables.payloads, tables.jobs, tables.nodes)  # fmt: skip


@pytest.fixture
def desk(store: Store, tmp_path: Path) -> Desk:
    """A service with a past, and somebody in every table that a page shows."""
    desk = Desk(store, tmp_path)
    for i in range(4):
        desk.submit(f"job{i}", gpus=4)
        desk.turn(20.0)
    desk.until_idle()
    token, _ = api_tokens.create(store, "ann", Role.SUBMITTER, vcs=("vc",), now=1.0)
    with store.writing() as connection:
        made = {f"job{i}": StartForecast(1.0, 2.0 + i, 5.0, 7.0, 9.0) for i in range(4)}
        write(connection, made, ("submission", "latest"))
        row = Payload(("train", "--lr"), {"A": "b"}).row("job0", "ann")
        chain.write(connection, tables.payloads, [row])
        link = {"id": "l", "job_id": "job0", "token_id": token.id, "made_at": 1.0, "until": 9.0}
        chain.write(connection, tables.links, [link])
    return desk


def audited(desk: Desk, head: Head | None = None) -> Audit:
    return audit(desk.store, desk.bundle_store.find, head=head)


def found(desk: Desk, head: Head | None = None) -> list[tuple[str, str, str]]:
    return [(t.table, t.row, t.what) for t in audited(desk, head).tampered]


def do(desk: Desk, *statements: Any) -> None:
    """Behind the service's back."""
    with desk.store.engine.begin() as connection:
        for statement in statements:
            connection.execute(statement)


def head(desk: Desk) -> Head:
    with desk.store.reading() as connection:
        return head_of(connection, desk.store.last_seq_in(connection), time.time())


def other(value: Any) -> Any:
    """Another value of the same type."""
    if isinstance(value, bool):
        return not value
    if value is None or isinstance(value, int | float):
        return (value or 0) + 1
    return value[:-1] + ("x" if not value.endswith("x") else "y") if value else "x"


def undone(desk: Desk, table: Table, row: Any, column: str) -> None:
    keys = [c == row[c.name] for c in table.primary_key]
    do(desk, update(table).where(*keys).values({column: row[column]}))


def rows(connection: Connection, table: Table) -> list[Any]:
    return list(connection.execute(select(table)).mappings())


def test_what_was_left_alone_is_clean(desk: Desk) -> None:
    done = audited(desk)
    assert done.clean
    assert done.tampered == []
    assert done.links > 8
    assert done.checked_by


@pytest.mark.parametrize("seed", range(3))
def test_a_random_edit_of_one_column_is_found_and_named(desk: Desk, seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(10):
        with desk.store.reading() as connection:
            table = draw.choice(SHOWN)
            row = draw.choice(rows(connection, table))
        keys = {c.name for c in table.primary_key}
        column = draw.choice([c.name for c in table.c if c.name not in keys])
        this = [c == row[c.name] for c in table.primary_key]
        do(desk, update(table).where(*this).values({column: other(row[column])}))
        told = audited(desk)
        key = chain.key_of(table, row)
        named = {(t.table, t.row) for t in told.tampered}
        named |= {(d.where, d.what.split(".")[0]) for d in told.divergences}
        assert (table.name, key) in named, (table.name, key, column)
        undone(desk, table, row, column)
    assert audited(desk).clean


@pytest.mark.parametrize("table", SHOWN[:6], ids=lambda table: table.name)
def test_a_row_that_was_deleted_is_named(desk: Desk, table: Table) -> None:
    with desk.store.reading() as connection:
        row = rows(connection, table)[0]
    do(desk, delete(table).where(*[c == row[c.name] for c in table.primary_key]))
    assert (table.name, chain.key_of(table, row), MISSING) in found(desk)


def test_a_row_that_was_added_is_named(desk: Desk) -> None:
    with desk.store.reading() as connection:
        row = dict(rows(connection, tables.tokens)[0])
    do(desk, insert(tables.tokens).values({**row, "id": "x", "hash": "x", "role": "operator"}))
    assert found(desk) == [("tokens", "x", FOREIGN)]


def test_rows_that_changed_places_are_both_named(desk: Desk) -> None:
    seq = tables.decisions.c.seq
    swap = [update(tables.decisions).where(seq == a).values(seq=b) for a, b in
            ((2, 900), (3, 2), (900, 3))]  # fmt: skip
    do(desk, *swap)
    assert {("decisions", "2", ALTERED), ("decisions", "3", ALTERED)} <= set(found(desk))


def test_a_chain_that_was_mended_is_found(desk: Desk) -> None:
    kept = head(desk)
    with desk.store.reading() as connection:
        link = next(x for x in chain.links(connection) if '"tokens"' in x.content)
        row = dict(rows(connection, tables.tokens)[0])
    was, row["role"] = chain.digest_of(tables.tokens, row), "operator"
    content = link.content.replace(was, chain.digest_of(tables.tokens, row))
    this = update(tables.chain).where(tables.chain.c.seq == link.seq)
    do(desk, update(tables.tokens).values(role="operator"), this.values(content=content))
    assert found(desk) == [("chain", str(link.seq), "does not follow from the one before it")]
    with desk.store.reading() as connection:  # by somebody who does it thoroughly
        before, links = "", []
        for one in chain.links(connection):
            before = chain.head_of(before, one.content)
            links.append({"of": one.seq, "as": before})
    for new in links:
        this = update(tables.chain).where(tables.chain.c.seq == new["of"])
        do(desk, this.values(head=new["as"]))
    assert found(desk) == []
    assert found(desk, kept) == [
        ("chain", str(kept.links), "has another head than the one exported")
    ]


def test_a_tail_that_was_cut_off_is_found_by_a_head(desk: Desk) -> None:
    desk.submit("late")
    kept = head(desk)
    event = desk.store.last_seq()
    cut = tables.chain.c.seq == kept.links
    do(desk, delete(tables.events).where(tables.events.c.seq == event))
    assert ("events", str(event), MISSING) in found(desk)
    do(desk, delete(tables.chain).where(cut))
    do(desk, delete(tables.jobs).where(tables.jobs.c.job_id == "late"))
    assert found(desk) == []
    [(where, row, what)] = found(desk, kept)
    assert (where, row) == ("chain", str(kept.links))
    assert "is gone" in what


def test_a_link_that_is_gone_is_named(desk: Desk) -> None:
    do(desk, delete(tables.chain).where(tables.chain.c.seq == 3))
    assert ("chain", "3", "is missing") in found(desk)


def test_what_the_service_forgets_and_archives_is_no_tampering(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "BATCH", 5)
    monkeypatch.setattr(archive, "APART_S", 0.0)
    api_tokens.revoke(desk.store, "ann", 2.0)
    assert found(desk) == []
    assert retention.prune(desk.store, 1e12, 1e12, 1.0)
    assert archive.move(desk.store, 1e12)
    assert found(desk) == []
    this = tables.archive.c.name == "decisions"
    with desk.store.engine.connect() as connection:
        content = connection.execute(select(tables.archive.c.content).where(this)).scalars().first()
    texts = json.loads(zlib.decompress(content))
    texts["2"] = texts["2"].replace('"job1"', '"job0"')
    do(desk, update(tables.archive).where(this, tables.archive.c.first <= 2, tables.archive.c.last
       >= 2).values(content=zlib.compress(json.dumps(texts).encode())))  # fmt: skip
    assert ("decisions", "2", ALTERED) in found(desk)
    do(desk, delete(tables.archive).where(this, tables.archive.c.first <= 2))
    assert ("decisions", "2", ALTERED) in found(desk)


def test_a_head_is_printed_and_checked(desk: Desk, database: str, tmp_path: Path) -> None:
    key, file = tmp_path / "key", tmp_path / "head.json"
    key.write_text("k" * 40)
    key.chmod(0o600)
    there = ["audit", "--database", database, "--state-dir", str(tmp_path)]
    told = CliRunner().invoke(app, [*there, "--head", "--key", str(key)])
    assert told.exit_code == 0, told.output
    file.write_text(told.output)
    assert json.loads(told.output)["events"] == desk.store.last_seq()
    checks = [*there, "--since-head", str(file), "--key", str(key)]
    desk.submit("more")
    assert CliRunner().invoke(app, checks).exit_code == 0
    file.write_text(told.output.replace('"events":', '"events":1'))
    done = CliRunner().invoke(app, checks)
    assert "not signed by the key" in str(done.exception)
    key.chmod(0o644)
    assert "chmod 600" in str(CliRunner().invoke(app, checks).exception)
    file.write_text(told.output)
    do(desk, delete(tables.chain).where(tables.chain.c.seq > 3))
    done = CliRunner().invoke(app, [*there, "--since-head", str(file)])
    assert done.exit_code == 1
    assert "of the head exported is gone: 3 are left" in done.output


def test_a_damaged_page_is_found(desk: Desk) -> None:
    if not desk.store.is_sqlite:
        pytest.skip("PostgreSQL's checks are of the cluster")
    do(desk, text("PRAGMA wal_checkpoint(TRUNCATE)"))
    file = str(desk.store.engine.url.database)
    with sqlite3.connect(file) as raw:  # an index without an entry of its table
        raw.execute("PRAGMA writable_schema=ON")
        raw.execute("DELETE FROM sqlite_master WHERE name = 'decisions_by_event'")
    raw.close()
    desk.store.engine.dispose()
    done = audited(desk)
    assert any("never used" in line for line in done.damage), done.damage
    assert not done.clean
