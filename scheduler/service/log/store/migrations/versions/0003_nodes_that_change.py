"""What a node has, whose it is, and who drained it, why and since when."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

COLUMNS = (
    sa.Column("gpu_memory_mib", sa.Float(53), nullable=False, server_default="24576"),
    sa.Column("profiling", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("change", sa.Text, nullable=False, server_default=""),
    sa.Column("reason", sa.Text, nullable=False, server_default=""),
    sa.Column("actor", sa.String(128), nullable=False, server_default=""),
    sa.Column("since", sa.Float(53)),
)


def upgrade() -> None:
    for column in COLUMNS:
        op.add_column("nodes", column)
