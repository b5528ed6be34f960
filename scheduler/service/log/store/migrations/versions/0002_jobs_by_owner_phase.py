"""Counting the waiting jobs of a user without reading all jobs."""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_index("jobs_by_owner_phase", "jobs", ["owner", "phase"], unique=False)
