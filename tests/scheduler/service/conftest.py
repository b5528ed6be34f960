"""A database for each test: SQLite, or the PostgreSQL named by PELLUCID_TEST_DATABASE."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import MetaData, create_engine, select, text

from scheduler.service.analyst import process
from scheduler.service.log.store.schema import prepare
from scheduler.service.log.store.store import Store


@pytest.fixture(autouse=True)
def analysts_do_not_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the next turn of an analyst forecast, however slow this machine is: it would rest
    after a forecast that cost it 0.1 processor seconds."""
    monkeypatch.setattr(process, "CPU_SHARE", 1.0)


@pytest.fixture(scope="session")
def postgresql() -> str:
    """The PostgreSQL to be tested on; "": SQLite is. Where there is one, a test of the service that
    does not ask for it is not run: it ran with all the others."""
    return os.environ.get("PELLUCID_TEST_DATABASE", "")


def empty_database(folder: Path, postgresql: str) -> str:
    """URL of an empty database: a new file in `folder`, or the PostgreSQL, emptied."""
    if not postgresql:
        return f"sqlite:///{folder / 'pellucid.db'}"
    engine = create_engine(postgresql)
    with engine.begin() as connection:
        connection.execute(text("DROP SCHEMA IF EXISTS public CASCADE"))
        connection.execute(text("CREATE SCHEMA public"))
    engine.dispose()
    return postgresql


@pytest.fixture
def database(tmp_path: Path, postgresql: str) -> str:
    """URL of an empty database."""
    return empty_database(tmp_path, postgresql)


@pytest.fixture(scope="session")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database file with tables and nothing in them: copied faster than it is made."""
    path = tmp_path_factory.mktemp("tables") / "pellucid.db"
    made = Store(f"sqlite:///{path}")
    prepare(made)
    made.close()
    return path


def rows_of(store: Store) -> str:
    """Every row of every table."""
    meta = MetaData()
    meta.reflect(store.engine)
    with store.engine.connect() as connection:
        rows = [tuple(row) for t in meta.tables.values() for row in connection.execute(select(t))]
    return repr(rows)


@pytest.fixture
def store(database: str, tables: Path) -> Iterator[Store]:
    """A prepared database."""
    copied = database.startswith("sqlite:///")
    if copied:
        shutil.copy(tables, database.removeprefix("sqlite:///"))
    store = Store(database)
    if not copied:
        prepare(store)
    yield store
    store.close()


@pytest.fixture(scope="session")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two bundles that can be decided with, and one that cannot."""
    from benchmarks.chaos.changes import make_bundles

    return make_bundles(tmp_path_factory.mktemp("bundles"))
