"""The file that holds a token."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pipeline.errors import UserError
from pipeline.remote import connect


def test_only_a_small_regular_file_of_ones_own_holds_a_token(tmp_path: Path) -> None:
    fifo, large, open_to_all = tmp_path / "fifo", tmp_path / "large", tmp_path / "open"
    os.mkfifo(fifo, 0o600)
    large.write_text("x" * 4097)
    large.chmod(0o600)
    open_to_all.write_text("secret")
    open_to_all.chmod(0o644)
    for file, why in (
        (fifo, "not a regular file"),
        (Path("/dev/null"), "not a regular file"),
        (large, "more than a token"),
        (open_to_all, "others can read it"),
    ):
        with pytest.raises(UserError, match=why):
            connect(None, file)
