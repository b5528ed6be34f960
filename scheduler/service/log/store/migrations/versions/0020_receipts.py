"""Adds the column for the figures from which the end of a running job was forecast."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    op.add_column("forecasts", sa.Column("receipt", sa.Text))
