"""The log and its tables: order, fencing, leases, schema."""

from __future__ import annotations

import gc
import logging
import os
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from warnings import catch_warnings

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, insert, text
from sqlalchemy.exc import SQLAlchemyError

from features.clock import Clock
from scheduler.backends.events import Event, Kind
from scheduler.service.log.store import store as stores
from scheduler.service.log.store.checkpoint import keep_checkpointed
from scheduler.service.log.store.leases import Lease, LeaseLost
from scheduler.service.log.store.schema import check, prepare
from scheduler.service.log.store.store import Store, StoreError
from scheduler.service.log.store.tables import metadata, nodes
from tests.waiting import until

NOTE = Event(Kind.REFUSED, 1.0, "job", "ann", 7, {"b": 1, "a": [1.5, None, "ü"]})


def test_an_event_comes_back_as_it_went_in(store: Store) -> None:
    [appended] = store.append([NOTE])
    assert appended.seq == 1
    assert store.read() == [appended]


def test_the_tail_is_read_in_order(store: Store) -> None:
    for i in range(7):
        store.append([Event(Kind.REFUSED, float(i)), Event(Kind.FORECAST, float(i))])
    assert [e.seq for e in store.read(10)] == [11, 12, 13, 14]
    assert [e.seq for e in store.read(0, limit=2)] == [1, 2]
    assert [e.seq for e in store.read(9, kinds=[Kind.FORECAST])] == [10, 12, 14]
    assert [e.seq for e in store.each(3, upto=9, batch=2)] == [4, 5, 6, 7, 8, 9]
    assert store.last_seq() == 14


def test_writers_beside_each_other_leave_no_gap(store: Store) -> None:
    def write(writer: int) -> list[int]:
        return [store.append([NOTE])[0].seq for _ in range(20)]

    with ThreadPoolExecutor(4) as pool:
        seqs = list(pool.map(write, range(4)))
    assert sorted(seq for each in seqs for seq in each) == list(range(1, 81))
    assert all(each == sorted(each) for each in seqs)


def test_who_writes_is_known_until_it_is_over(store: Store) -> None:
    if store.line is None:
        pytest.skip("PostgreSQL sees to it itself")
    assert store.line.head() is None
    with store.writing():
        turn = store.line.head()
        assert turn is not None
        assert turn.pid == os.getpid()
        assert turn.since <= time.monotonic()
    assert store.line.head() is None
    with pytest.raises(RuntimeError), store.writing():
        raise RuntimeError
    assert store.line.head() is None


def test_postgresql_ends_a_transaction_in_which_nothing_happens(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    if store.is_sqlite:
        pytest.skip("the process is killed: see test_serve")
    monkeypatch.setattr(stores, "WRITES_MS", 100)

    def hang(connection: Connection, _: list[Event]) -> None:
        mine = connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
        there = text("SELECT count(*) FROM pg_stat_activity WHERE pid = :mine")

        def ended() -> bool:
            with store.engine.connect() as other:
                return other.execute(there, {"mine": mine}).scalar_one() == 0

        until(ended, "the end of the transaction")
        connection.execute(text("SELECT 1"))

    with pytest.raises(SQLAlchemyError):
        store.append([NOTE], hang)
    assert store.last_seq() == 0


def test_table_changes_and_events_are_one(store: Store) -> None:
    row = {"node": 0, "name": "n", "vc": "vc", "gpus": 4, "gpu_type": "", "open": True}

    def broken(connection: Connection, _: list[Event]) -> None:
        connection.execute(insert(nodes).values(row))
        raise RuntimeError

    with pytest.raises(RuntimeError):
        store.append([NOTE], broken)
    assert store.last_seq() == 0
    with store.reading() as connection:
        assert connection.execute(nodes.select()).all() == []


def test_a_snapshot_does_not_move(store: Store) -> None:
    store.append([NOTE])
    with store.reading() as connection:
        assert store.last_seq_in(connection) == 1
        store.append([NOTE])
        assert store.last_seq_in(connection) == 1


class Hosts:
    """Processes on one database, each with clocks of its own; time passes by hand."""

    def __init__(self, database: str):
        self.database, self.at, self.stores = database, 1000.0, list[Store]()
        prepare(self.one())

    def one(self, boot: str = "here", counts_from: float = 0.0, set_to: float = 0.0) -> Store:
        """A process on a host that was started at `counts_from`, its time set off by `set_to`."""
        clock = Clock(lambda: self.at + set_to, lambda: self.at - counts_from, lambda _: None, boot)
        self.stores.append(Store(self.database, clock))
        return self.stores[-1]


@pytest.fixture
def hosts(database: str) -> Iterator[Hosts]:
    made = Hosts(database)
    yield made
    for store in made.stores:
        store.close()


def taken(store: Store, holder: str, for_s: float = 10.0) -> Lease:
    lease = store.take("decider", holder, for_s)
    assert lease is not None
    return lease


class TestLease:
    def test_one_holds_it_until_it_expires(self, hosts: Hosts) -> None:
        a, b = hosts.one(), hosts.one()
        mine = taken(a, "a")
        hosts.at += 9.0
        assert b.take("decider", "b", 10.0) is None
        mine = a.keep(mine)
        hosts.at += 3.0
        assert b.take("decider", "b", 10.0) is None
        assert a.keep(mine) == mine, "not yet a third of it is over"
        hosts.at += 8.0
        assert taken(b, "b").term == mine.term + 1

    def test_a_write_under_an_old_term_changes_nothing(self, hosts: Hosts) -> None:
        store, other = hosts.one(), hosts.one()
        mine = taken(store, "a")
        store.append([NOTE], lease=mine)
        hosts.at += 100.0
        theirs = taken(other, "b")
        with pytest.raises(LeaseLost, match="held by b"):
            store.append([NOTE], lease=mine)
        with pytest.raises(LeaseLost, match="held by b"):
            store.keep(mine)
        store.let_go(mine)
        assert store.last_seq() == 1
        assert store.holder("decider") == theirs

    def test_one_that_lets_go_need_not_be_waited_for(self, hosts: Hosts) -> None:
        store = hosts.one("there")
        mine = taken(store, "a", 1000.0)
        store.let_go(mine)
        assert not store.held("decider")
        assert taken(hosts.one(), "b")

    @pytest.mark.parametrize("set_to", [-3600.0, 3600.0])
    def test_what_the_time_of_day_is_set_to_changes_no_hand_over(
        self, hosts: Hosts, set_to: float
    ) -> None:
        """Set back by an hour after a crash, an earlier version waited for an hour."""
        taken(hosts.one(), "a")
        later = hosts.one(set_to=set_to)
        assert later.held("decider")
        assert later.take("decider", "b", 10.0) is None
        hosts.at += 10.5
        assert not later.held("decider")
        assert taken(later, "b").term == 2

    def test_on_another_host_it_runs_out_when_it_has_not_moved_for_so_long(
        self, hosts: Hosts
    ) -> None:
        a, b = hosts.one(), hosts.one("there", counts_from=900.0, set_to=500.0)
        mine = taken(a, "a")
        assert b.take("decider", "b", 10.0) is None
        for _ in range(10):
            hosts.at += 4.0
            mine = a.keep(mine)
            assert b.take("decider", "b", 10.0) is None
        hosts.at += 9.5
        assert b.take("decider", "b", 10.0) is None
        hosts.at += 1.0
        assert taken(b, "b").holder == "b"

    def test_nobody_is_said_to_decide_there_before_the_count_was_seen_to_move(
        self, hosts: Hosts
    ) -> None:
        a, b = hosts.one(), hosts.one("there", counts_from=900.0)
        mine = taken(a, "a")
        assert not b.held("decider"), "it may have died before"
        hosts.at += 4.0
        a.keep(mine)
        assert b.held("decider")
        hosts.at += 10.5
        assert not b.held("decider")

    def test_a_time_of_day_goes_on_from_where_the_others_is(self, hosts: Hosts) -> None:
        a, b = hosts.one(), hosts.one(set_to=-3600.0)
        taken(a, "a")
        b.go_on()
        assert b.clock.now() == hosts.at
        hosts.at += 100.0
        assert b.clock.now() == pytest.approx(1000.0 + 95.0)

    def test_on_one_host_the_time_that_nobody_was_there_counts(self, store: Store) -> None:
        wall, here = [1000.0], [0.0]
        store.clock = Clock(lambda: wall[0], lambda: here[0], boot="one")
        lease = store.take("x", "a", 10.0)
        assert lease is not None
        for let_go in (False, True):
            here[0] += 5.0
            wall[0] += 5.0
            if let_go:
                store.let_go(lease)
            told = store.clock.now()
            here[0] += 60.0
            next_one = Store(store.engine.url.render_as_string(hide_password=False))
            next_one.clock = Clock(lambda: wall[0] - 3600.0, lambda: here[0], boot="one")
            next_one.go_on()
            assert next_one.clock.now() == pytest.approx(told + 60.0)
            next_one.close()
            wall[0] += 60.0


def differing(context: MigrationContext) -> list[object]:
    """Return where the tables differ from their definition. An index by expressions is compared by
    its name: each database writes those in its own way."""
    with catch_warnings(action="ignore", category=UserWarning):  # of that index, on SQLite
        found = compare_metadata(context, metadata)
    wanted = {index.name for table in metadata.tables.values() for index in table.indexes}
    connection = context.connection
    assert connection is not None
    names = {
        "sqlite": "SELECT name FROM sqlite_master WHERE type = 'index'",
        "postgresql": "SELECT indexname FROM pg_indexes",
    }
    there = set(connection.execute(text(names[connection.dialect.name])).scalars())
    by_expressions = "jobs_by_place", "jobs_by_id"
    return [one for one in found if one[1].name not in by_expressions] + sorted(wanted - there)


def index_of_ids(connection: Connection) -> str:
    """How the database writes the index in whose order jobs are listed."""
    told = {
        "sqlite": "SELECT sql FROM sqlite_master WHERE name = 'jobs_by_id'",
        "postgresql": "SELECT indexdef FROM pg_indexes WHERE indexname = 'jobs_by_id'",
    }
    return str(connection.execute(text(told[connection.dialect.name])).scalar_one())


class TestSchema:
    def test_the_migrations_make_the_tables(self, store: Store) -> None:
        with store.reading() as connection:
            context = MigrationContext.configure(connection)
            assert differing(context) == []

    def test_preparing_again_changes_nothing(self, store: Store) -> None:
        store.append([NOTE])
        prepare(store)
        check(store)
        assert store.last_seq() == 1

    def test_a_database_of_the_first_release_is_upgraded(self, store: Store) -> None:
        with store.writing() as connection:
            connection.execute(text("DROP TABLE claims"))
            connection.execute(text("ALTER TABLE nodes DROP COLUMN closed_gpus"))
            connection.execute(text("ALTER TABLE forecasts DROP COLUMN receipt"))
            made = index_of_ids(connection)
            added = "jobs_by_phase", "jobs_by_place", "jobs_begun", "decisions_by_action"
            for name in (*added, "jobs_by_id"):
                connection.execute(text(f"DROP INDEX {name}"))
            for name in ("waited_s", "waits_since"):
                connection.execute(text(f"ALTER TABLE jobs DROP COLUMN {name}"))
            connection.execute(text("CREATE INDEX jobs_by_phase ON jobs (phase, vc)"))
            connection.execute(text("UPDATE alembic_version SET version_num = '0016'"))
        with pytest.raises(StoreError, match="at schema 0016, not at"):
            check(store)
        prepare(store)
        check(store)
        with store.reading() as connection:
            context = MigrationContext.configure(connection)
            assert differing(context) == []
            assert index_of_ids(connection) == made, "its expressions are those that are asked for"

    def test_a_newer_database_is_left_alone(self, store: Store) -> None:
        with store.writing() as connection:
            connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
        with pytest.raises(StoreError, match="schema 9999, which this version"):
            prepare(store)
        with pytest.raises(StoreError, match="at schema 9999"):
            check(store)

    def test_one_that_is_none_is_empty_or_does_not_answer(
        self, database: str, tmp_path: Path
    ) -> None:
        with pytest.raises(StoreError, match="no URL"):
            Store("pellucid")
        empty = Store(database)
        with pytest.raises(StoreError, match="is empty: `pellucid serve`"):
            check(empty)
        empty.close()
        unreachable = Store(f"postgresql+psycopg://nobody@/none?host={tmp_path}")
        with pytest.raises(StoreError, match="database postgresql"):
            prepare(unreachable)


@pytest.mark.usefixtures("synced")
def test_sqlite_is_set_up_to_last(store: Store) -> None:
    if not store.is_sqlite:
        pytest.skip("of SQLite alone")
    with store.reading() as connection:
        pragma = {
            name: connection.execute(text(f"PRAGMA {name}")).scalar()
            for name in ("journal_mode", "foreign_keys", "synchronous", "busy_timeout")
        }
    assert pragma["journal_mode"] == "wal"
    assert pragma["foreign_keys"] == 1
    assert pragma["synchronous"] == 2
    assert pragma["busy_timeout"] >= 1000


def test_no_parameter_is_told_when_a_statement_fails(
    database: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What users submit, secrets included, stays out of errors and of the log at any level."""
    canary = "canary-4f1c"
    caplog.set_level(logging.DEBUG)
    store = Store(database)
    prepare(store)
    submitted = Event(Kind.SUBMITTED, 1.0, "job", "ann", 7, {"env": {"WANDB_API_KEY": canary}})
    store.append([submitted])
    with store.writing() as connection:
        connection.execute(text("ALTER TABLE events RENAME COLUMN cause TO moved"))
    with pytest.raises(SQLAlchemyError) as failed:
        store.append([submitted])
    store.close()
    told = "".join(traceback.format_exception(failed.value)) + caplog.text
    assert "INSERT INTO events" in told
    assert canary not in told


def test_no_garbage_is_collected_while_others_wait(store: Store) -> None:
    def broken(_: Connection, __: list[Event]) -> None:
        assert not gc.isenabled()
        raise RuntimeError

    with pytest.raises(RuntimeError):
        store.append([NOTE], broken)
    assert gc.isenabled()


class TestCheckpoint:
    def test_a_journal_carried_over_is_begun_anew(self, store: Store) -> None:
        if not store.is_sqlite:
            pytest.skip("of SQLite alone")
        journal = Path(f"{store.engine.url.database}-wal")
        sizes = []
        for _ in range(4):
            for _ in range(50):
                store.append([NOTE])
            sizes.append(journal.stat().st_size)
            store.checkpoint()
        assert max(sizes) < 2 * sizes[0]  # four times, were it never begun anew

    def test_it_stays_short_and_whole_under_writers(self, store: Store) -> None:
        def write(_: int) -> None:
            for _ in range(60):
                store.append([NOTE])

        with ThreadPoolExecutor(3) as pool:
            written = pool.map(write, range(3))
            for _ in range(20):
                store.checkpoint()
            assert list(written) == [None] * 3
        assert [e.seq for e in store.read()] == list(range(1, 181))
        if store.is_sqlite:
            with store.reading() as connection:
                assert connection.execute(text("PRAGMA integrity_check")).scalar() == "ok"

    def test_where_it_cannot_be_done_it_is_tried_again(self, tmp_path: Path) -> None:
        (tmp_path / "a.db").write_bytes(b"no database" * 100)
        told = iter([False, False, True])
        keep_checkpointed(f"sqlite:///{tmp_path}/a.db", lambda _: next(told))
        assert list(told) == []
