"""Adds the columns for how long a job has waited. Rows of before stay as they are."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    for name in ("waited_s", "waits_since"):
        op.add_column("jobs", sa.Column(name, sa.Float(53)))
