"""Marks the tables of release 0.1.0, which `store.schema.prepare` creates. Later migrations change
them.
"""

from __future__ import annotations

revision = "0016"
down_revision = None


def upgrade() -> None: ...
