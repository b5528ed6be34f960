"""Whose question to the analyst it is."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    actor = sa.Column("actor", sa.String(128), nullable=False, server_default="")
    op.add_column("questions", actor)
