"""The settings of the policy in force: each change that was taken, by whom, why and since when.

Changes that are in the log already are believed to have been taken; the decider, which knows,
writes the table again when it takes over.
"""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
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
