"""Adds indexes for finding a job's place in the queue, and the decisions that gave GPUs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    op.drop_index("jobs_by_phase", "jobs")
    op.create_index("jobs_by_phase", "jobs", ["phase", "vc", "submitted_at", "gpus"])
    place = sa.text("(-priority)"), sa.text("coalesce(key, 1e300)")
    op.create_index("jobs_by_place", "jobs", ["phase", "vc", *place, "submitted_seq"])
    begun = sa.text("started_at IS NOT NULL AND ended_at IS NULL")
    op.create_index(
        "jobs_begun", "jobs", ["started_at"], sqlite_where=begun, postgresql_where=begun
    )
    op.create_index("decisions_by_action", "decisions", ["action", "event"])
