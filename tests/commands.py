"""The command line in the process of the tests, which has loaded its libraries already."""

from __future__ import annotations

import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import BytesIO, TextIOWrapper
from pathlib import Path
from unittest.mock import patch

import pytest

from pipeline.cli import main


def pellucid(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """A command, its status and what it printed."""
    words = ["pellucid", *map(str, arguments)]
    out, err = TextIOWrapper(BytesIO(), "utf-8"), TextIOWrapper(BytesIO(), "utf-8")
    with (
        patch.object(sys, "argv", words),
        redirect_stdout(out),
        redirect_stderr(err),
        pytest.raises(SystemExit) as ended,
    ):
        main()
    for stream in (out, err):
        stream.seek(0)
    return subprocess.CompletedProcess(words, int(ended.value.code or 0), out.read(), err.read())
