"""Do what a page says, to the letter, in a folder outside the repository.

A block ```` ```python mine.py ```` is a file of that name; a block ```` ```sh ```` is run by bash,
in order, with the installed packages and nothing of this checkout on the path.
"""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

walked = pytest.mark.skipif(
    os.environ.get("PELLUCID_WALKS") != "1", reason="does what a page says, for minutes: make walks"
)
DOCS = Path(__file__).resolve().parents[2] / "docs"


def built(page: str) -> str:
    """A page with the tables that `make docs` makes from code."""
    text: str = runpy.run_path(str(DOCS / "conf.py"))["written"]((DOCS / page).read_text())
    return text


def files(page: str) -> dict[str, str]:
    """The files that a page has its reader write, by name."""
    text = (DOCS / page).read_text()
    return dict(re.findall(r"^ *```python (\S+)\n(.*?)^ *```$", text, re.DOTALL | re.MULTILINE))


def commands(page: str) -> list[str]:
    """The commands that a page has its reader run."""
    return re.findall(r"^```sh\n(.*?)^```$", (DOCS / page).read_text(), re.DOTALL | re.MULTILINE)


def walk(page: str, folder: Path, **environment: str) -> list[str]:
    """Write the page's files and run its commands; what each printed. Fails as they fail."""
    for name, text in files(page).items():
        (folder / name).write_text(text)
    return [shell(command, folder, environment) for command in commands(page)]


def shell(command: str, folder: Path, environment: Mapping[str, str] | None = None) -> str:
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    path = f"{Path(sys.executable).parent}:{inherited['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        cwd=folder,
        env={**inherited, **(environment or {}), "PATH": path, "COLUMNS": "200"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}"
    return done.stdout
