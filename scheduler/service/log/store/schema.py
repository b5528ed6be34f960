"""Brings a database to the schema (tables and columns) that this code expects."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from scheduler.service.log.store.store import Store, StoreError
from scheduler.service.log.store.tables import metadata


def migrations() -> Config:
    """Return Alembic's settings for this package."""
    config = Config()
    folder = Path(__file__).parent / "migrations"
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    return config


def revision(connection: Connection) -> str | None:
    """Return the revision of the schema that a database has, or None for an empty one."""
    return MigrationContext.configure(connection).get_current_revision()


def prepare(store: Store) -> None:
    """Create or upgrade the tables. Raise StoreError when the database does not answer, or its
    schema is unknown to this version.

    Several processes may call this at once: one does the work, under the lock of all writers.
    """
    config = migrations()
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    shown = store.engine.url.render_as_string()
    try:
        with store.writing() as connection:
            found = revision(connection)
            if found is not None and found not in known:
                raise StoreError(
                    f"database {shown} is at schema {found}, which this version of pellucid does "
                    "not know: install the version that made it"
                )
            config.attributes["connection"] = connection
            if found is None:
                metadata.create_all(connection, checkfirst=False)
                command.stamp(config, "head")
            else:
                command.upgrade(config, "head")
    except DBAPIError as error:
        reason = str(error.orig).strip().splitlines()
        raise StoreError(f"database {shown}: {reason[0] if reason else error}") from None


def check(store: Store) -> None:
    """Raise StoreError unless the database has the schema that this code expects. Nothing is
    changed.
    """
    check_engine(store.engine)


def check_engine(engine: Engine) -> None:
    """Raise StoreError as `check` does, for a database engine without a `Store`, such as one that
    must not be written.
    """
    head = ScriptDirectory.from_config(migrations()).get_current_head()
    shown = engine.url.render_as_string()
    try:
        with engine.connect() as connection:
            found = revision(connection)
    except DBAPIError as error:
        reason = str(error.orig).strip().splitlines()
        raise StoreError(f"database {shown}: {reason[0] if reason else error}") from None
    if found != head:
        if found is None:
            raise StoreError(f"database {shown} is empty: `pellucid serve` makes its tables")
        raise StoreError(
            f"database {shown} is at schema {found}, not at {head}: `pellucid serve` upgrades an "
            "older one"
        )
