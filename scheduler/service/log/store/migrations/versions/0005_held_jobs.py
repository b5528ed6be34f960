"""Whether a job is held, by whom and since when."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

COLUMNS = (
    sa.Column("hold", sa.String(16), nullable=False, server_default=""),
    sa.Column("held_by", sa.String(128), nullable=False, server_default=""),
    sa.Column("held_at", sa.Float(53)),
)


def upgrade() -> None:
    for column in COLUMNS:
        op.add_column("jobs", column)
