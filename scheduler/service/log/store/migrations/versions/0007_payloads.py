"""What a job runs, and with which environment: apart from the log, gone when the job is over."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.create_table(
        "payloads",
        sa.Column("job_id", sa.String(64), primary_key=True),
        sa.Column("owner", sa.String(128), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("command", sa.Text(), nullable=False),
        sa.Column("environment", sa.Text(), nullable=False),
    )
    op.create_index("payloads_by_owner", "payloads", ["owner", "bytes"])
