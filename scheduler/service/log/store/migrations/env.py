"""Runs migrations on the connection that `store.schema` hands over."""

from __future__ import annotations

from alembic import context

from scheduler.service.log.store.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,  # SQLite cannot alter most of a table in place
)
with context.begin_transaction():
    context.run_migrations()
