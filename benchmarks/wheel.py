"""Builds the wheel, and installs it alone in a fresh environment, as a user would.

python -m benchmarks.wheel dist    # builds the wheel twice; fails if the digests differ
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from benchmarks.pages import ROOT

PACKAGES = ("features", "models", "profiler", "scheduler", "pipeline", "reproductions")
BROUGHT = ("pip", "setuptools", "pkg_resources", "_distutils_hack")  # by venv, not by the wheel


def build(folder: Path) -> Path:
    """Build a wheel from a copy of this checkout, and return its path.

    The same files give the same bytes: all times are that of the last commit, all modes the same.
    """
    source = folder / "source"
    source.mkdir(parents=True)
    for name in PACKAGES:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, source / name, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for path in source.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    asked = "wheel", "--no-deps", "-w", str(folder), str(source)
    _pip(Path(sys.executable), *asked, SOURCE_DATE_EPOCH=_committed_at())
    (wheel,) = folder.glob("*.whl")
    return wheel


def _committed_at() -> str:
    """Return the time of the last commit, in seconds since 1970, as text; outside a checkout, the
    beginning of 2020.
    """
    asked = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
    said = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    return said or "1577836800"


def digest_of(wheel: Path) -> str:
    """Return the SHA-256 of a wheel, hex."""
    return hashlib.sha256(wheel.read_bytes()).hexdigest()


def main(to: Path) -> None:
    """Build the wheel twice in two folders, compare the bytes, and leave one wheel in `to`."""
    with tempfile.TemporaryDirectory() as name:
        first, second = (build(Path(name) / which) for which in ("first", "second"))
        if digest_of(first) != digest_of(second):
            sys.exit(f"two builds of {first.name} differ: it cannot be reproduced")
        to.mkdir(parents=True, exist_ok=True)
        shutil.copy(first, to)
        print(f"{digest_of(first)}  {to / first.name}")


def left_out(wheel: Path) -> list[str]:
    """Return the files of the packages that the wheel lacks, Markdown pages apart."""
    held = set(zipfile.ZipFile(wheel).namelist())
    files = (path for name in PACKAGES for path in (ROOT / name).rglob("*") if path.is_file())
    names = (str(path.relative_to(ROOT)) for path in files if "__pycache__" not in path.parts)
    return sorted(name for name in names if name not in held and not name.endswith(".md"))


def install(wheel: Path, folder: Path, by: str = sys.executable) -> Path:
    """Install a wheel without extras in a new environment in `folder`, with the versions of
    `constraints.txt`. Return the path of that environment's Python.

    Args:
        by: the interpreter that the environment is made with.
    """
    subprocess.run([by, "-m", "venv", str(folder)], check=True)
    python = folder / "bin" / "python"
    _pip(python, "install", "-c", str(ROOT / "constraints.txt"), str(wheel))
    return python


def sizes_mb(python: Path) -> dict[str, float]:
    """Return the disk space that an installation takes, in MB by name of library, largest first;
    compiled files are included.
    """
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    said = subprocess.run([str(python), "-c", where], capture_output=True, text=True, check=True)
    found = {
        path.name: sum(file.stat().st_size for file in _files(path)) / 1e6
        for path in Path(said.stdout.strip()).iterdir()
        if path.name.split("-")[0] not in BROUGHT
    }
    return dict(sorted(found.items(), key=lambda one: -one[1]))


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]


def _pip(python: Path, *words: str, **more: str) -> None:
    command = [
        str(python),
        "-m",
        "pip",
        "--quiet",
        "--quiet",
        "--disable-pip-version-check",
        *words,
    ]
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(command, check=True, env=clean | more)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "dist"))
