"""The tables of 0.1.0, which `store.schema.prepare` makes; what comes after changes them."""

from __future__ import annotations

revision = "0016"
down_revision = None


def upgrade() -> None: ...
