"""When a lease was renewed last, by a clock that nobody sets."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

COLUMNS = (
    sa.Column("for_s", sa.Float(53), nullable=False, server_default="0"),
    sa.Column("beats", sa.BigInteger(), nullable=False, server_default="0"),
    sa.Column("beat_at", sa.Float(53), nullable=False, server_default="0"),
    sa.Column("boot", sa.String(64), nullable=False, server_default=""),
)


def upgrade() -> None:
    for column in COLUMNS:
        op.add_column("leases", column)
