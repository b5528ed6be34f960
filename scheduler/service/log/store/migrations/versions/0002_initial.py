"""The tables of the oldest logs that are still read."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "decisions",
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("event", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.Float(precision=53), nullable=False),
        sa.Column("job_id", sa.String(length=64), nullable=False),
        sa.Column("vc", sa.String(length=128), nullable=False),
        sa.Column("action", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.String(length=48), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("seq"),
    )
    op.create_index("decisions_by_event", "decisions", ["event"], unique=False)
    op.create_index("decisions_by_job", "decisions", ["job_id", "seq"], unique=False)
    op.create_table(
        "events",
        sa.Column("seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("at", sa.Float(precision=53), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("job_id", sa.String(length=64), server_default="", nullable=False),
        sa.Column("actor", sa.String(length=128), server_default="", nullable=False),
        sa.Column("cause", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("seq"),
    )
    op.create_index("events_by_job", "events", ["job_id", "seq"], unique=False)
    op.create_index("events_by_kind", "events", ["kind", "seq"], unique=False)
    op.create_table(
        "forecasts",
        sa.Column("job_id", sa.String(length=64), nullable=False),
        sa.Column("basis", sa.String(length=16), nullable=False),
        sa.Column("made_at", sa.Float(precision=53), nullable=False),
        sa.Column("start_p50", sa.Float(precision=53), nullable=True),
        sa.Column("start_p90", sa.Float(precision=53), nullable=True),
        sa.Column("end_p50", sa.Float(precision=53), nullable=True),
        sa.Column("end_p90", sa.Float(precision=53), nullable=True),
        sa.Column("why_not", sa.String(length=256), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("job_id", "basis"),
    )
    op.create_table(
        "idempotency",
        sa.Column("actor", sa.String(length=128), nullable=False),
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("job_id", sa.String(length=64), nullable=False),
        sa.Column("at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("actor", "key"),
    )
    op.create_table(
        "jobs",
        sa.Column("job_id", sa.String(length=64), nullable=False),
        sa.Column("submitted_seq", sa.BigInteger(), nullable=False),
        sa.Column("owner", sa.String(length=128), nullable=False),
        sa.Column("vc", sa.String(length=128), nullable=False),
        sa.Column("name", sa.String(length=256), nullable=False),
        sa.Column("gpus", sa.Integer(), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("phase", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.String(length=48), server_default="", nullable=False),
        sa.Column("priority", sa.Integer(), server_default="0", nullable=False),
        sa.Column("key", sa.Float(precision=53), nullable=True),
        sa.Column("estimate_s", sa.Float(precision=53), nullable=True),
        sa.Column("attempt", sa.Integer(), server_default="0", nullable=False),
        sa.Column("nodes", sa.Text(), server_default="[]", nullable=False),
        sa.Column("partner", sa.String(length=64), nullable=True),
        sa.Column("submitted_at", sa.Float(precision=53), nullable=False),
        sa.Column("queued_at", sa.Float(precision=53), nullable=True),
        sa.Column("started_at", sa.Float(precision=53), nullable=True),
        sa.Column("ended_at", sa.Float(precision=53), nullable=True),
        sa.Column("state", sa.String(length=16), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("detail", sa.Text(), server_default="", nullable=False),
        sa.Column("cancel_asked", sa.Boolean(), server_default="0", nullable=False),
        sa.Column("updated_seq", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("job_id"),
    )
    op.create_index("jobs_by_owner", "jobs", ["owner", "submitted_seq"], unique=False)
    op.create_index("jobs_by_owner_phase", "jobs", ["owner", "phase"], unique=False)
    op.create_index("jobs_by_phase", "jobs", ["phase", "vc"], unique=False)
    op.create_table(
        "leases",
        sa.Column("name", sa.String(length=32), nullable=False),
        sa.Column("holder", sa.String(length=128), nullable=False),
        sa.Column("term", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "nodes",
        sa.Column("node", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("vc", sa.String(length=128), nullable=False),
        sa.Column("gpus", sa.Integer(), nullable=False),
        sa.Column("gpu_type", sa.String(length=64), server_default="", nullable=False),
        sa.Column("open", sa.Boolean(), server_default="1", nullable=False),
        sa.PrimaryKeyConstraint("node"),
    )
    op.create_table(
        "questions",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("asked_at", sa.Float(precision=53), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("answer", sa.Text(), nullable=True),
        sa.Column("answered_at", sa.Float(precision=53), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("questions_open", "questions", ["answered_at", "asked_at"], unique=False)
    op.create_table(
        "tokens",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("hash", sa.String(length=128), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("vcs", sa.Text(), server_default="[]", nullable=False),
        sa.Column("os_user", sa.String(length=64), server_default="", nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.Column("expires_at", sa.Float(precision=53), nullable=True),
        sa.Column("revoked_at", sa.Float(precision=53), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("hash"),
    )
