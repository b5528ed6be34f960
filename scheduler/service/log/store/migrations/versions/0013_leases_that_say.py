"""What the holder of a lease does, and whether it is ready."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    for column in (
        sa.Column("ready", sa.Boolean, nullable=False, server_default=sa.true()),
        sa.Column("doing", sa.String(200), nullable=False, server_default=""),
    ):
        op.add_column("leases", column)
