"""Adds the index in whose order a table of jobs is shown."""

from __future__ import annotations

from alembic import op

revision = "0022"
down_revision = "0021"

FIRST = ", ".join(f"'{n}'" for n in range(1, 10))


def upgrade() -> None:
    rest = "ltrim(job_id, '0123456789')"
    number = f"substr(job_id, 1, 1) IN ({FIRST}) AND substr({rest}, 1, 1) IN ('', '_')"
    digits = f"coalesce(CASE WHEN ({number}) THEN length(job_id) - length({rest}) END, 65)"
    of = "job_id" if op.get_bind().dialect.name == "sqlite" else '(job_id COLLATE "C")'
    op.execute(f"CREATE INDEX jobs_by_id ON jobs ({digits}, {of}, gpus) WHERE ended_at IS NULL")
