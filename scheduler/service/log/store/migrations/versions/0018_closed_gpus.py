"""Adds the column for the GPUs of a node that do not answer."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    op.add_column("nodes", sa.Column("closed_gpus", sa.Text))
