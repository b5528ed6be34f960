"""Jobs by when they came and by when they ended: pages of the latest read no others."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    op.create_index("jobs_by_seq", "jobs", ["submitted_seq"])
    over = sa.text("ended_at IS NOT NULL")
    op.create_index("jobs_by_end", "jobs", ["ended_at"], sqlite_where=over, postgresql_where=over)
