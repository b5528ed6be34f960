"""The amount of training that a command asks for, also in the files that it names: settings,
shell scripts, and the program itself.

Only a process that may read these files calls this, such as the one that submits the job. The
service does not read files of its users.
"""

from __future__ import annotations

import ast
import json
import os
import re
import tomllib
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from math import inf
from pathlib import Path

from features.amounts import Amount
from features.commands import (
    bare,
    of_command,
    of_commands,
    of_lines,
    of_settings,
    only_tests,
    program_of,
    settings_of,
    times_of,
    trains,
    unit_of,
)
from features.given import read_text
from features.programs import Imported, imported, of_hydra, of_program, settings_named
from features.recipes import FILES, TASKS, of_target, of_task
from features.shell import MOST_CHARACTERS, MOST_COMMANDS, SLIPS, Simple, of_script, one_of

MOST_BYTES = 2**20
MOST_FILES = 64  # of settings of one command; that are sourced; programs that are worked out
MOST_READ = 16 * MOST_BYTES  # of all files that one command leads to
MOST_PARSED = 2 * MOST_BYTES  # characters of them, a file as often as it is parsed
LEAST_PARSED = 2**12  # a short file counts as so many
MOST_FOLLOWED = 10 * MOST_COMMANDS  # commands of scripts, after which no other is read
DEPTH = 3  # scripts that call scripts
_SETTINGS = ".yaml", ".yml", ".json", ".toml", ".conf", ".cfg", ".ini"
_PLAIN = ".conf", ".cfg", ".ini"  # a line for each setting
_MODULES, MOST_IMPORTED = 8, 100  # that a program imports are read, and looked for
_GENERAL = "config", "cfg", "conf", "opt", "options", "settings", "file", "c", "f"
_SCRIPTS = (
    ".sh", ".bash", ".sbatch", ".slurm", ".job", ".zsh", ".ksh", ".csh", ".tcsh", ".fish", ".pbs",
    ".lsf", ".sge", ".qsub", ".bsub", ".cmd",
)  # fmt: skip
_SHELLS = "bash", "sh", "zsh", "ksh", "dash", "source", "."
_GROUP = re.compile(
    r"(?m)^ {0,8}- (?:override |optional ){0,2}/?([\w/]{1,80})(?:@[\w.]{1,40})?"
    r": ([\w-]{1,80})\s{0,4}$"
)
MOST_LISTED = 50_000  # characters of a configuration in which its groups are looked for
_SOURCES = re.compile(
    r"(?m)^[ \t]{0,40}(?:source|\.)[ \t]{1,4}[\"']?([\w./-]{1,200})[\"']?[ \t]{0,4}$"
)
_GROUPS = "conf", "configs", "config"  # where Hydra's settings are kept


def amount_of(command: Sequence[str], workdir: Path) -> Amount:
    """Return the amount of training that a command states in its arguments, or in the files that it
    names. The arguments override the files."""
    found = of_files(command, workdir)
    own, beside = of_command(command), of_command([f"{name}={of}" for name, of in found.items()])
    if found.get("runs") == inf:  # a loop of a script over what is not known
        beside = beside._replace(runs=inf)
    if own.epochs or own.steps:
        beside = beside._replace(epochs=None, steps=None)
    if own.runs and beside.runs:  # those of the program are in it
        own = own._replace(runs=max(own.runs, beside.runs))
    return Amount(*(one if one is not None else two for one, two in zip(own, beside, strict=True)))


def of_files(command: Sequence[str], workdir: Path) -> dict[str, float]:
    """Return the amounts of training and the batch size, {name: number}, found in the settings and
    scripts that a command names. If a setting is repeated, the last one counts. Return {} if they
    cannot be read."""
    try:
        return _of(one_of(command), workdir, 0, _Files())
    except (*SLIPS, OSError):
        return {}


_Program = tuple[Path, str, frozenset[tuple[str, str]], Path, bool]


class _Files:
    """The files that one command leads to. Each is read once. How much of them is read and parsed
    is limited in all, because files that name each other could multiply without end.

    Attributes:
        written: files that the commands have written, by here documents.
        programs: what the programs ask for, by path, text, the options given, the folder that they
            run in, and whether their command names settings.
        settings: what the files of settings state, by path and text.
        sourced: how many files may still be sourced.
        commands: how many commands of scripts may still be followed.
    """

    def __init__(self) -> None:
        self.written = dict[Path, str]()
        self.programs = dict[_Program, dict[str, float]]()
        self.settings = dict[tuple[Path, str], dict[str, float]]()
        self.sourced, self.commands = MOST_FILES, MOST_FOLLOWED
        self._hydra = dict[str, tuple[str, str]]()
        self._texts = dict[Path, str | None]()
        self._unread, self._unparsed = MOST_READ, MOST_PARSED

    def text(self, path: Path) -> str | None:
        """Return the text of a file, None if it cannot be read."""
        if path in self.written:
            return self.written[path]
        if path not in self._texts:
            try:
                text = read_text(path, min(MOST_BYTES, self._unread), errors="replace")
            except OSError:
                text = None
            self._unread -= len(text or "")
            self._texts[path] = text
        return self._texts[path]

    def parses(self, text: str) -> bool:
        """Return whether a text may still be parsed, and count it."""
        self._unparsed -= max(len(text), LEAST_PARSED)
        return self._unparsed >= 0

    def of_hydra(self, text: str) -> tuple[str, str]:
        """Return what `features.programs.of_hydra` does, computed once for each text; ("", "") for
        a text without the word hydra, and once no more may be parsed."""
        if text not in self._hydra:
            self._hydra[text] = "", ""
            if "hydra" in text and self.parses(text):
                self._hydra[text] = of_hydra(text)
        return self._hydra[text]


def _of(commands: Sequence[Simple], workdir: Path, depth: int, files: _Files) -> dict[str, float]:
    """Return the amounts and the batch size of the files that commands name. What they write is
    added to `files`."""
    found: dict[str, float] = {}
    by_itself, each = list[dict[str, float]](), list[Simple]()
    for one in commands:
        if one.words[:1] == ["cd"] and len(one.words) == 2 and "$" not in one.words[1]:
            workdir = workdir / one.words[1]
        if one.written is not None:
            files.written |= {workdir / name: one.written for name in _written_to(one.words)}
            continue
        settings = _of_settings_of(one.words, workdir, files)
        for at, word in enumerate(one.words):
            if depth < DEPTH and _is_script(word, one.words[:at], len(one.words)):
                path, rest = workdir / word, one.words[at + 1 :]
                settings |= _of_script(path, rest, workdir=workdir, depth=depth + 1, files=files)
        settings |= _of_recipe(one.words, workdir=workdir, depth=depth + 1, files=files)
        found |= settings
        if not any(of_command([f"{name}={of}" for name, of in settings.items()])[:2]):
            of = dict(_of_its_program(one.words, workdir, files))
            if of_command(one.words).runs:
                of.pop("runs", None)  # the command says how many
            by_itself, each = ([*by_itself, of], [*each, one]) if of else (by_itself, each)
    if by_itself and all(one == by_itself[0] for one in by_itself):
        found |= by_itself[0]
        programs = {program_of(one.words) for one in each}
        alike = [one for one in commands if program_of(one.words) in programs]
        if (
            times := times_of([one for one in alike if one in each or not only_tests(one.words)])
        ) > 1:
            found["runs"] = found.get("runs", 1.0) * times
    return found


def _is_script(word: str, before: Sequence[str], count: int) -> bool:
    """Return whether a word of a command names a shell script: by its end, or because a shell runs
    it.

    Args:
        before: words of the command before it.
        count: of how many words the command consists.
    """
    if Path(word).suffix in _SCRIPTS:
        return bool(before) or count == 1
    return bool(before) and before[-1].rpartition("/")[2] in _SHELLS and not word.startswith("-")


def _of_settings_of(words: Sequence[str], workdir: Path, files: _Files) -> dict[str, float]:
    """Return what the settings files of a command state. Of several, the last one counts; if
    they are given for different parts of the job (`--lm_config`), and state different amounts,
    none does."""
    found, amounts = dict[str, float](), dict[str, set[tuple[tuple[str, float], ...]]]()
    for path, option in islice(_settings(words, workdir, files), MOST_FILES):
        settings = _read(path, files)
        found |= settings
        stated = {name: of for name, of in settings.items() if unit_of(name) in ("epochs", "steps")}
        if stated:
            amounts.setdefault(option, set()).add(tuple(sorted(stated.items())))
    parts = {option for option in amounts if option and option not in _GENERAL}
    if len(parts) > 1 and len(set().union(*(amounts[one] for one in parts))) > 1:
        return {name: of for name, of in found.items() if unit_of(name) not in ("epochs", "steps")}
    return found


def _written_to(words: Sequence[str]) -> Iterator[str]:
    """Yield the files that a command writes: behind `>`, or those of `tee`."""
    for i, word in enumerate(words):
        if word.startswith(">") and word != ">>":
            yield word.lstrip(">|") or next(iter(words[i + 1 :]), "")
        elif i and words[0] == "tee" and not word.startswith("-"):
            yield word


def _of_its_program(words: Sequence[str], workdir: Path, files: _Files) -> dict[str, float]:
    """Return what the Python program of a command asks for by itself. Where the command states the
    amount of training, return only how many runs of it the program makes."""
    stated = any(of_command(words)[:2])
    path = _program_path(words, workdir)
    if path is None or only_tests(words, ()) or not trains(words):
        return {}
    given = _given_to(words)
    text = files.text(path) or ""
    named = any(Path(word.rpartition("=")[2]).suffix in _SETTINGS for word in words)
    key = path, text, frozenset(given.items()), workdir, named
    if key not in files.programs:
        if len(files.programs) >= MOST_FILES or not files.parses(text):
            return {}
        files.programs[key] = _of_text_of_a_program(
            text, words, path.parent, workdir=workdir, files=files, alone=not named
        )
    found = files.programs[key]
    return {name: of for name, of in found.items() if name == "runs"} if stated else found


def _given_to(words: Sequence[str]) -> dict[str, str]:
    """Return the settings behind the program of a command."""
    at = [*words].index(program_of(words)) + 1
    return {name: value for name, value, _ in settings_of(words[at:])}


def _of_text_of_a_program(
    text: str, words: Sequence[str], folder: Path, workdir: Path, files: _Files, alone: bool
) -> dict[str, float]:
    """Return what a program asks for, also by the modules beside it and, if its command names no
    settings file, by the one that it names itself.

    Args:
        words: its command.
        folder: where the program lies.
        alone: its command names no settings file.
    """
    try:
        beside, settings = _beside(text, folder, workdir=workdir, files=files)
        if only_tests(words, [text, *beside]):
            return {}
        found = of_program(text, _given_to(words), Imported(beside, settings if alone else {}))
    except SLIPS:
        return {}
    if not found and alone:
        amounts = of_command([f"{name}={of}" for name, of in settings.items()])
        found = settings if amounts.epochs or amounts.steps else {}
    frames = found.pop("frames", None)
    return found if frames is None else found | {"total_timesteps": frames}


def _beside(
    text: str, folder: Path, workdir: Path, files: _Files
) -> tuple[list[str], dict[str, float]]:
    """Return the texts of the modules that a program imports from `folder` or `workdir`, and what
    the settings file states that the program or one of these modules names. Return no settings
    where several files that they name state some, or none does."""
    beside, texts = list[str](), [(text, folder)]
    for name in imported(text)[:MOST_IMPORTED]:
        if len(beside) >= _MODULES:
            break
        inner = Path(*name.split(".")).with_suffix(".py")
        for root in dict.fromkeys((folder, workdir)):
            module = files.text(root / inner) if os.path.exists(root / inner) else None
            if module is not None and files.parses(module):
                beside.append(module)
                texts.append((module, (root / inner).parent))
                break
    paths = dict[Path, dict[str, float]]()
    for one, lies in texts:
        for name in settings_named(one)[:_MODULES]:
            for root in dict.fromkeys((workdir, folder, lies)):
                path = Path(os.path.normpath(root / name))
                if Path(name).suffix in _SETTINGS and path not in paths and os.path.exists(path):
                    paths[path] = _read(path, files)
    stated = [of for of in paths.values() if of]
    return beside, stated[0] if len(stated) == 1 else {}


def _of_recipe(words: Sequence[str], workdir: Path, depth: int, files: _Files) -> dict[str, float]:
    """Return the amounts that a target of `make` or `just`, or a task of a project, asks for."""
    program = words[0].rpartition("/")[2] if words else ""
    if depth > DEPTH:
        return {}
    for name in TASKS.get(program, ()):
        if (text := files.text(workdir / name)) is not None:
            line = of_task(text, words) if files.parses(text) else ""
            return _of_text(line, (), workdir=workdir, depth=depth, files=files)
    if program not in FILES:
        return {}
    given = [of for option, of in pairwise(words) if option in ("-f", "--file", "--justfile")]
    for name in given or FILES[program]:
        if (text := files.text(workdir / name)) is not None:
            lines = of_target(text, program, words[1:]) if files.parses(text) else ""
            return _of_text(lines, (), workdir=workdir, depth=depth, files=files)
    return {}


def _of_script(
    path: Path,
    arguments: Sequence[str],
    workdir: Path,
    depth: int,
    files: _Files,
) -> dict[str, float]:
    text = files.text(path)
    if text is None:
        return {}
    return _of_text(text, arguments, workdir=workdir, depth=depth, files=files)


def _of_text(
    text: str, arguments: Sequence[str], workdir: Path, depth: int, files: _Files
) -> dict[str, float]:
    text = _with_sourced(text[:MOST_CHARACTERS], workdir, files)
    if files.commands <= 0 or not files.parses(text):
        return {}
    commands = of_script(text, arguments)
    files.commands -= len(commands)
    amount = of_commands(commands)
    known = {name: value for name, value in amount._asdict().items() if value is not None}
    found = _of(commands, workdir, depth, files)
    if amount.runs and found.get("runs"):
        known["runs"] = max(amount.runs, found["runs"])
    return found | known


def _with_sourced(text: str, workdir: Path, files: _Files) -> str:
    """Return a script with the files that it sources in their places, as long as something of them
    would be read."""
    room = MOST_CHARACTERS

    def sourced(found: re.Match[str]) -> str:
        nonlocal room
        if room <= 0 or files.sourced <= 0:
            return ""
        files.sourced -= 1
        pasted = (files.text(workdir / found[1]) or "")[:room]
        room -= len(pasted)
        return pasted

    return _SOURCES.sub(sourced, text)


def _settings(words: Sequence[str], workdir: Path, files: _Files) -> Iterator[tuple[Path, str]]:
    """Yield (path, bare option) of the settings files that a command names, whether they exist or
    not. Files of Hydra are named by configuration and group, and searched for in the usual folders.
    """
    options = dict(pairwise(words))
    folder, name = None, ""
    for word in words:
        option, _, value = word.partition("=")
        value = value or options.get(word, "")
        if option in ("--config-path", "-cp", "--config-dir", "-cd"):
            folder = value
        elif option in ("--config-name", "-cn"):
            name = value
    program = next((i for i, word in enumerate(words) if word.endswith(".py")), len(words))
    at = _program_path(words, workdir)
    folders = [workdir / one for one in ((folder,) if folder else _GROUPS)]
    if at is not None:
        text = files.text(at) or ""
        try:
            own, own_name = files.of_hydra(text)
        except SLIPS:
            own, own_name = "", ""
        name = name or own_name
        folders = [at.parent / (folder or own), *folders] if folder or own else folders
        folders += [at.parent / one for one in _GROUPS]
    if name:
        for path in _of_hydra(words, name.removesuffix(".yaml"), folders, files):
            yield path, ""
    for i, word in enumerate(words):
        option, equals, value = word.rpartition("=")
        path = workdir / value.lstrip("@")
        if path.suffix in _SETTINGS or (path.suffix == ".py" and i > program):
            before = option if equals else words[i - 1] if i else ""
            yield path, bare(before) if before.startswith("-") else ""


def _of_hydra(
    words: Sequence[str], name: str, folders: Sequence[Path], files: _Files
) -> Iterator[Path]:
    """Yield the files of a configuration of Hydra: those of the groups in its list of defaults, its
    own, and those of the groups that the command names."""
    groups = dict[str, str]()
    own = (files.text(one / f"{name}.yaml") for one in folders)
    for group, value in _GROUP.findall(next((text for text in own if text), "")[:MOST_LISTED]):
        groups[group] = value
    named = dict[str, str]()
    for word in words:
        group, equals, value = word.lstrip("+").partition("=")
        if equals and value and "." not in group and not word.startswith("-"):
            named[group] = value
    for group, value in groups.items():
        if group not in named:
            yield from (one / group / f"{value}.yaml" for one in folders)
    yield from (one / f"{name}.yaml" for one in folders)
    for group, value in named.items():
        yield from (one / group / f"{value}.yaml" for one in folders)


def _program_path(words: Sequence[str], workdir: Path) -> Path | None:
    """Return the path of the Python program that a command runs, if it names one."""
    program = program_of(words)
    if program.endswith(".py"):
        return workdir / program
    if "-m" not in words or not program:
        return None
    module = workdir / Path(*program.split("."))
    inner = module / "__main__.py"
    return inner if os.path.exists(inner) else module.with_name(f"{module.name}.py")


def _read(path: Path, files: _Files) -> dict[str, float]:
    text = files.text(path)
    if text is None:
        return {}
    if (path, text) not in files.settings:
        files.settings[path, text] = _parsed(path, text, files) if files.parses(text) else {}
    return files.settings[path, text]


def _parsed(path: Path, text: str, files: _Files) -> dict[str, float]:
    """Return the settings of a file with this text; {} if it cannot be read."""
    try:
        if path.suffix == ".toml":
            return of_settings(tomllib.loads(text))
        if path.suffix == ".json":
            return of_settings(json.loads(text))
        if path.suffix in _PLAIN:
            return of_lines(text)
        if path.suffix == ".py":
            return _of_python(ast.parse(text).body, path, files, {Path(os.path.normpath(path))})
        import yaml  # takes its time

        from features.yamls import loaded

        try:
            return of_settings(loaded(text))
        except yaml.YAMLError:
            return {}
    except SLIPS:
        return {}


def _of_python(
    body: Sequence[ast.AST], path: Path, files: _Files, seen: set[Path], depth: int = 0
) -> dict[str, float]:
    """Return the settings of a parsed file of settings, those of its `_base_` files before them.

    Args:
        seen: files that were read already, and are not read again; the `_base_` files are added.
    """
    found = dict[str, float]()
    for one in body:
        if (
            isinstance(one, ast.Assign)
            and ast.unparse(one.targets[0]) == "_base_"
            and depth < DEPTH
        ):
            texts = [node.value for node in ast.walk(one.value) if isinstance(node, ast.Constant)]
            for base in [text for text in texts if isinstance(text, str)][:MOST_FILES]:
                inner = Path(os.path.normpath(path.parent / base))
                text = "" if inner in seen else files.text(inner) or ""
                seen.add(inner)
                if text and files.parses(text):
                    found |= _of_python(ast.parse(text).body, inner, files, seen, depth=depth + 1)
    return found | of_settings(_assigned(body))


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
    if isinstance(node, ast.Call) and node.args and _path(node.func)[-1] in ("int", "float"):
        return _value(node.args[0])
    if isinstance(node, ast.Call):
        return {one.arg: _value(one.value) for one in node.keywords if one.arg}
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        return {one.value: _value(of) for one, of in pairs if isinstance(one, ast.Constant)}
    return None
