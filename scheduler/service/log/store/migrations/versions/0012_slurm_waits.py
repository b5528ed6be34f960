"""Why a followed Slurm has a job waiting, as a value; until now sentences in `detail`."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"

WAITS, RUNS = "Slurm says ", "Slurm started it"  # began what earlier versions wrote


def upgrade() -> None:
    op.add_column("jobs", sa.Column("slurm", sa.Text()))
    jobs = sa.table("jobs", *map(sa.column, ("job_id", "detail", "slurm")))
    written = sa.select(jobs.c.job_id, jobs.c.detail).where(
        jobs.c.detail.startswith(WAITS) | jobs.c.detail.startswith(RUNS)
    )
    connection = op.get_bind()
    rows = [{"id": one, "slurm": _slurm(text)} for one, text in connection.execute(written)]
    if rows:
        values = {"slurm": sa.bindparam("slurm"), "detail": ""}
        found = sa.update(jobs).where(jobs.c.job_id == sa.bindparam("id"))
        connection.execute(found.values(values), rows)


def _slurm(text: str) -> str:
    """What is known of a row with such a text."""
    if text.startswith(RUNS):
        return json.dumps({"started": True} | ({} if text == RUNS else {"text": text}))
    code = text.removeprefix(WAITS).partition("\n")[0].partition(":")[0]
    return json.dumps({"code": code, "text": text})
