"""A hash chain over what is shown; it begins over what is there, as it is now."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

from scheduler.service.log.store import chain

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    op.create_table(
        "chain",
        sa.Column(
            "seq",
            sa.BigInteger().with_variant(sa.Integer, "sqlite"),
            primary_key=True,
            autoincrement=False,
        ),
        sa.Column("content", sa.Text, nullable=False),
        sa.Column("head", sa.String(64), nullable=False),
    )
    op.create_table(
        "seals",
        sa.Column("name", sa.String(16), primary_key=True),
        sa.Column("key", sa.String(128), primary_key=True),
        sa.Column("digest", sa.String(43), nullable=False),
    )
    op.add_column("payloads", sa.Column("salt", sa.String(32)))
    connection = op.get_bind()
    first = connection.execute(sa.text("SELECT body FROM events ORDER BY seq LIMIT 1")).scalar()
    chain.begin(connection, json.loads(first or "{}").get("backend") == "slurm-followed")
