"""What is deleted from the journal of Slurm's attempts leaves nothing in its file."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from scheduler.backends.slurm.journal import Journal


def test_what_is_forgotten_leaves_nothing_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = sqlite3.connect

    def plain(*args: Any, **more: Any) -> sqlite3.Connection:
        db = connect(*args, **more)
        db.execute("PRAGMA secure_delete=OFF")  # some builds have it on, most not
        return db

    monkeypatch.setattr(sqlite3, "connect", plain)
    journal = Journal(tmp_path)
    journal.adopt([("7", 1.0, "SECRET" * 500)])
    journal.disown("7")
    journal.close()
    assert b"SECRET" not in (tmp_path / "journal.db").read_bytes()
