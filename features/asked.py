"""The amount of training that a command asks for, also in the files that it names: settings and
shell scripts.

Only a process that may read these files calls this, such as the one that submits the job. The
service does not read files of its users.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from features.amounts import Amount, of_command, of_commands, of_settings
from features.given import read_text
from features.shell import Simple, of_script, one_of

MOST_BYTES = 2**20
MOST_FILES = 64
DEPTH = 3  # scripts that call scripts
_SETTINGS = ".yaml", ".yml", ".json", ".toml"
_SCRIPTS = ".sh", ".bash", ".sbatch", ".slurm", ".job"
_GROUPS = "conf", "configs", "config"  # where Hydra's settings are kept
# what reading a file of somebody else's writing raises, the slips of the library included
_NO_SETTINGS = (ValueError, LookupError, AttributeError, TypeError, ArithmeticError, RecursionError)


def amount_of(command: Sequence[str], workdir: Path) -> Amount:
    """Return the amount of training that a command states in its arguments, or in the files that it
    names. The arguments override the files."""
    named = [f"{name}={value}" for name, value in of_files(command, workdir).items()]
    own, beside = of_command(command), of_command(named)
    if own.epochs or own.steps:
        beside = beside._replace(epochs=None, steps=None)
    return Amount(*(one if one is not None else two for one, two in zip(own, beside, strict=True)))


def of_files(command: Sequence[str], workdir: Path) -> dict[str, float]:
    """Return the amounts of training and the batch size, {name: number}, found in the settings and
    scripts that a command names. If a setting is repeated, the last one counts."""
    return _of(one_of(command), workdir, 0)


def _of(commands: Sequence[Simple], workdir: Path, depth: int) -> dict[str, float]:
    found: dict[str, float] = {}
    for one in commands:
        if one.words[:1] == ["cd"] and len(one.words) == 2 and "$" not in one.words[1]:
            workdir = workdir / one.words[1]
        for path in [*_settings(one.words, workdir)][:MOST_FILES]:
            found |= _read(path)
        for at, word in enumerate(one.words):
            if depth < DEPTH and (at or len(one.words) == 1) and Path(word).suffix in _SCRIPTS:
                found |= _of_script(workdir / word, one.words[at + 1 :], workdir, depth + 1)
    return found


def _of_script(path: Path, arguments: Sequence[str], workdir: Path, depth: int) -> dict[str, float]:
    text = _text(path)
    if text is None:
        return {}
    commands = of_script(text, arguments)
    amount = of_commands(commands)
    known = {name: value for name, value in amount._asdict().items() if value is not None}
    return _of(commands, workdir, depth) | known


def _settings(words: Sequence[str], workdir: Path) -> Iterator[Path]:
    """Yield the paths of the settings files that a command names, whether they exist or not. Files
    of Hydra are named by configuration and group, and searched for in the usual folders."""
    options = dict(pairwise(words))
    folder, name = None, ""
    for word in words:
        option, _, value = word.partition("=")
        value = value or options.get(word, "")
        if option in ("--config-path", "-cp", "--config-dir", "-cd"):
            folder = value
        elif option in ("--config-name", "-cn"):
            name = value
    folders = [workdir / one for one in ((folder,) if folder else _GROUPS)]
    if name:
        yield from (one / f"{name.removesuffix('.yaml')}.yaml" for one in folders)
        for word in words:
            group, equals, value = word.lstrip("+").partition("=")
            if equals and value and "." not in group and not word.startswith("-"):
                yield from (one / group / f"{value}.yaml" for one in folders)
    for word in words:
        path = workdir / word.rpartition("=")[2].lstrip("@")
        if path.suffix in _SETTINGS:
            yield path


def _read(path: Path) -> dict[str, float]:
    text = _text(path)
    if text is None:
        return {}
    try:
        if path.suffix == ".toml":
            return of_settings(tomllib.loads(text))
        if path.suffix == ".json":
            return of_settings(json.loads(text))
        import yaml  # takes its time

        try:
            return of_settings(yaml.safe_load(text))
        except yaml.YAMLError:
            return {}
    except _NO_SETTINGS:
        return {}


def _text(path: Path) -> str | None:
    try:
        return read_text(path, MOST_BYTES, errors="replace")
    except OSError:
        return None
