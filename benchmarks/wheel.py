"""The wheel, built and installed by itself in an environment of its own, as a user would."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from benchmarks.pages import ROOT

PACKAGES = ("features", "models", "profiler", "scheduler", "pipeline")
BROUGHT = ("pip", "setuptools", "pkg_resources", "_distutils_hack")  # by venv, not by the wheel


def build(folder: Path) -> Path:
    """A wheel of this checkout, built from a copy: nothing is left in the checkout."""
    source = folder / "source"
    source.mkdir(parents=True)
    for name in PACKAGES:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, source / name, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    _pip(Path(sys.executable), "wheel", "--no-deps", "-w", str(folder), str(source))
    (wheel,) = folder.glob("*.whl")
    return wheel


def left_out(wheel: Path) -> list[str]:
    """Files of the packages that the wheel has not."""
    held = set(zipfile.ZipFile(wheel).namelist())
    files = (path for name in PACKAGES for path in (ROOT / name).rglob("*") if path.is_file())
    names = (str(path.relative_to(ROOT)) for path in files if "__pycache__" not in path.parts)
    return sorted(name for name in names if name not in held and not name.endswith(".md"))


def install(wheel: Path, folder: Path) -> Path:
    """Install a wheel without extras, its versions those of `constraints.txt`. Its Python."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = folder / "bin" / "python"
    _pip(python, "install", "-c", str(ROOT / "constraints.txt"), str(wheel))
    return python


def sizes_mb(python: Path) -> dict[str, float]:
    """What an installation takes on disk, bytecode included, MB by name, largest first."""
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    said = subprocess.run([str(python), "-c", where], capture_output=True, text=True, check=True)
    found = {
        path.name: sum(file.stat().st_size for file in _files(path)) / 1e6
        for path in Path(said.stdout.strip()).iterdir()
        if not path.name.startswith(BROUGHT)
    }
    return dict(sorted(found.items(), key=lambda one: -one[1]))


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]


def _pip(python: Path, *words: str) -> None:
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
    subprocess.run(command, check=True, env=clean)
