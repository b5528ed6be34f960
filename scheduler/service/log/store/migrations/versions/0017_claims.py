"""Adds the table of claims: predictions in answers to users, and how they turned out."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    op.create_table(
        "claims",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
        sa.Column("kind", sa.String(24), nullable=False),
        sa.Column("job_id", sa.String(64), nullable=False),
        sa.Column("made_at", sa.Float(53), nullable=False),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("change", sa.Text, nullable=False, server_default="{}"),
        sa.Column("due", sa.Float(53)),
        sa.Column("figure", sa.Float(53)),
        sa.Column("taken_at", sa.Float(53)),
        sa.Column("taken_by", sa.String(64)),
        sa.Column("judged_at", sa.Float(53)),
        sa.Column("held", sa.Boolean),
        sa.Column("came", sa.Float(53)),
    )
    op.create_index("claims_open", "claims", ["judged_at", "job_id"])
    op.create_index("claims_by_kind", "claims", ["kind", "held"])
