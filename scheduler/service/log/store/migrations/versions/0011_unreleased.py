"""What came between the oldest logs that are still read and 0.1.0: nodes that change, settings in
force, holds, leases that beat, payloads apart from the log, archived bodies, shared links."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0002"

COLUMNS = {
    "nodes": (
        sa.Column("gpu_memory_mib", sa.Float(53), nullable=False, server_default="24576"),
        sa.Column("profiling", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("change", sa.Text, nullable=False, server_default=""),
        sa.Column("reason", sa.Text, nullable=False, server_default=""),
        sa.Column("actor", sa.String(128), nullable=False, server_default=""),
        sa.Column("since", sa.Float(53)),
    ),
    "jobs": (
        sa.Column("hold", sa.String(16), nullable=False, server_default=""),
        sa.Column("held_by", sa.String(128), nullable=False, server_default=""),
        sa.Column("held_at", sa.Float(53)),
    ),
    "leases": (
        sa.Column("for_s", sa.Float(53), nullable=False, server_default="0"),
        sa.Column("beats", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("beat_at", sa.Float(53), nullable=False, server_default="0"),
        sa.Column("boot", sa.String(64), nullable=False, server_default=""),
    ),
    "questions": (sa.Column("actor", sa.String(128), nullable=False, server_default=""),),
    "forecasts": (sa.Column("start_p10", sa.Float(53)),),
}


def upgrade() -> None:
    for table, columns in COLUMNS.items():
        for column in columns:
            op.add_column(table, column)
    op.create_table(
        "payloads",
        sa.Column("job_id", sa.String(64), primary_key=True),
        sa.Column("owner", sa.String(128), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("command", sa.Text(), nullable=False),
        sa.Column("environment", sa.Text(), nullable=False),
    )
    op.create_index("payloads_by_owner", "payloads", ["owner", "bytes"])
    op.create_table(
        "archive",
        sa.Column("name", sa.String(16), primary_key=True),
        sa.Column("first", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("last", sa.BigInteger(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
    )
    op.create_table(
        "links",
        sa.Column("id", sa.String(16), primary_key=True),
        sa.Column("job_id", sa.String(64), nullable=False),
        sa.Column("token_id", sa.String(36), nullable=False),
        sa.Column("made_at", sa.Float(53), nullable=False),
        sa.Column("until", sa.Float(53), nullable=False),
    )
    _settings_in_force()


def _settings_in_force() -> None:
    """Changes that are in the log are believed to have been taken; the decider, which knows,
    writes the table again when it takes over."""
    table = op.create_table(
        "settings",
        sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("at", sa.Float(53), nullable=False),
        sa.Column("actor", sa.String(128), nullable=False, server_default=""),
        sa.Column("reason", sa.Text, nullable=False, server_default=""),
        sa.Column("settings", sa.Text, nullable=False),
    )
    assert table is not None
    query = "SELECT seq, at, actor, body FROM events WHERE kind = 'settings_set' ORDER BY seq"
    for row in op.get_bind().execute(sa.text(query)).all():
        body = json.loads(row.body)
        if isinstance(body.get("settings"), dict):
            settings = json.dumps(body["settings"], sort_keys=True, separators=(",", ":"))
            reason = str(body.get("reason", ""))
            values = {"seq": row.seq, "at": row.at, "actor": row.actor, "reason": reason}
            op.get_bind().execute(sa.insert(table).values({**values, "settings": settings}))
