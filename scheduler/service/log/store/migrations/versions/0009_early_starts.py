"""The start before which a job is given GPUs in one case of ten."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.add_column("forecasts", sa.Column("start_p10", sa.Float(53)))
