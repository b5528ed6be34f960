"""Whether a forecast is crude, or says that the job cannot start: as a code, not in words."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    op.add_column("forecasts", sa.Column("estimate", sa.String(16)))
