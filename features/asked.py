"""The amount of training that a command asks for, also in the files that it names: settings and
shell scripts.

Only a process that may read these files calls this, such as the one that submits the job. The
service does not read files of its users.
"""

from __future__ import annotations

import ast
import json
import tomllib
from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import inf
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
_NO_SETTINGS = (
    ValueError, LookupError, AttributeError, TypeError, ArithmeticError, RecursionError,
    SyntaxError, MemoryError,
)  # fmt: skip


def amount_of(command: Sequence[str], workdir: Path) -> Amount:
    """Return the amount of training that a command states in its arguments, or in the files that it
    names. The arguments override the files."""
    found = of_files(command, workdir)
    own, beside = of_command(command), of_command([f"{name}={of}" for name, of in found.items()])
    if found.get("runs") == inf:  # a loop of a script over what is not known
        beside = beside._replace(runs=inf)
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
    program = next((i for i, word in enumerate(words) if word.endswith(".py")), len(words))
    for i, word in enumerate(words):
        path = workdir / word.rpartition("=")[2].lstrip("@")
        if path.suffix in _SETTINGS or (path.suffix == ".py" and i > program):
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
        if path.suffix == ".py":
            return of_settings(_assigned(ast.parse(text).body))
        import yaml  # takes its time

        try:
            return of_settings(yaml.safe_load(text))
        except yaml.YAMLError:
            return {}
    except _NO_SETTINGS:
        return {}


def _assigned(body: Sequence[ast.AST]) -> dict[str, object]:
    """Return the settings that a file of Python assigns, {name: value}: numbers, texts, and
    mappings of them. None of it is run.
    """
    found: dict[str, object] = {}
    for one in body:
        if isinstance(one, ast.Assign) and len(one.targets) == 1:
            target = one.targets[0]
            if isinstance(target, ast.Name):
                found[target.id] = _value(one.value)
            elif isinstance(target, ast.Attribute):
                into = found
                for name in _path(target)[1:-1]:  # config.eval.steps is no config.steps
                    inner = into.setdefault(name, {})
                    into = inner if isinstance(inner, dict) else {}
                into[target.attr] = _value(one.value)
        elif isinstance(one, ast.FunctionDef):  # ml_collections: config.steps = 1000
            found |= _assigned(one.body)
    return found


def _path(node: ast.AST) -> list[str]:
    """Return the names of `a.b.c`, from the first to the last."""
    if isinstance(node, ast.Attribute):
        return [*_path(node.value), node.attr]
    return [node.id] if isinstance(node, ast.Name) else [""]


def _value(node: ast.AST) -> object:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Call):
        return {one.arg: _value(one.value) for one in node.keywords if one.arg}
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        return {one.value: _value(of) for one, of in pairs if isinstance(one, ast.Constant)}
    return None


def _text(path: Path) -> str | None:
    try:
        return read_text(path, MOST_BYTES, errors="replace")
    except OSError:
        return None
