"""What a command runs that names a target of `make` or `just`, a task of the project (`poe train`)
or a service of `docker compose`, read from the file that defines it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence

from features.shell import LONGEST, SLIPS

FILES = {"make": ("GNUmakefile", "makefile", "Makefile"), "just": ("justfile", "Justfile")}
MOST_CHARACTERS = 2**18  # of a file of tasks are read
TASKS = {
    "poe": ("pyproject.toml",),
    "pixi": ("pixi.toml", "pyproject.toml"),
    "pdm": ("pyproject.toml",),
    "hatch": ("pyproject.toml",),
    "rye": ("pyproject.toml",),
    "docker": ("compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml"),
    "docker-compose": ("compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml"),
}
_PLACES = {
    "poe": ("tool.poe.tasks",),
    "pixi": ("tasks", "tool.pixi.tasks"),
    "pdm": ("tool.pdm.scripts",),
    "hatch": ("tool.hatch.envs.default.scripts",),
    "rye": ("tool.rye.scripts",),
}
DEPTH = 4  # targets that need targets, and variables that name variables
_ASSIGNED = re.compile(
    r"(?:(?:export|override)\s{1,4})?([A-Za-z_][\w-]{0,63})\s{0,8}([?+:]{0,2})=\s{0,8}(.{0,400})$"
)
_RULE = re.compile(r"@?([\w.-]{1,80})((?:\s{1,4}[^\s:]{1,80}){0,20})\s{0,4}:(?!=)(.{0,400})$")
_NAMED = re.compile(
    r"(?<!\$)\$(?:\(([\w-]{1,64})\)|\{([\w-]{1,64})\})|\{\{\s{0,4}([\w-]{1,64})\s{0,4}\}\}"
)


def of_task(text: str, words: Sequence[str]) -> str:
    """Return the shell line of the task that a command names (`poe train`, `pixi run train`), or of
    the service of `docker compose run`. Return "" if it names none, or if the text is too long or
    cannot be read.

    Args:
        text: a file of TOML, or the YAML of `docker compose`.
    """
    program = words[0].rpartition("/")[2]
    plain = [one for one in words[1:] if not one.startswith("-")]
    plain = [one for one in plain if one not in ("run", "compose", "up", "task")]
    if not plain or len(text) > MOST_CHARACTERS:
        return ""
    try:
        found = (
            _service(text, plain)
            if words[0].startswith("docker")
            else _task(tomllib.loads(text), program, plain)
        )
    except SLIPS:
        return ""
    return found


def _service(text: str, plain: Sequence[str]) -> str:
    """Return the shell line of a service of `docker compose`, or the one that the command gives; ""
    if neither gives one, or the text is no YAML."""
    import yaml  # takes its time

    from features.yamls import loaded

    try:
        found = loaded(text)["services"][plain[0]].get("command", "")
    except yaml.YAMLError:
        return ""
    listed = [found] if isinstance(found, str) else found
    # a list in it may be one of references, and too long to be written out
    words = [str(one) for one in listed if isinstance(one, str | int | float)]
    return " ".join(plain[1:] or words)


def _task(settings: object, program: str, plain: Sequence[str]) -> str:
    """Return the shell line of a task in the settings of a project, with the command's other
    arguments; "" if there is no such task."""
    for path in _PLACES[program]:
        here = settings
        for part in (*path.split("."), plain[0]):
            here = here.get(part) if isinstance(here, dict) else None
        if isinstance(here, dict):
            here = here.get("cmd") or here.get("shell") or here.get("command")
        if isinstance(here, list):
            here = " ".join(str(one) for one in here if isinstance(one, str | int | float))
        if isinstance(here, str):
            return " ".join([here, *plain[1:]])
    return ""


def of_target(text: str, program: str, words: Sequence[str]) -> str:
    """Return the shell script of the targets that a command of `make` or `just` names, or of the
    first target of the file if it names none. For `just`, words after the first target are its
    arguments.

    Args:
        text: the file of the targets.
        program: ``make`` or ``just``.
        words: arguments of the command.
    """
    values, rules, first = _read(text, program)
    plain = [one for one in words if not one.startswith("-")]
    given = dict(one.split("=", 1) for one in plain if "=" in one)
    targets = [one for one in plain if "=" not in one] or [first]
    if program == "just":
        parameters = rules.get(targets[0], ([], "", []))[0]
        for i, one in enumerate(parameters):
            name, _, default = one.lstrip("*+$").partition("=")
            values[name] = default.strip("\"'")
            given |= {name: targets[i + 1]} if i + 1 < len(targets) else {}
        targets = targets[:1]
    values |= given
    made = set[str]()
    lines = [line for one in targets for line in _lines(one, rules, values, 0, made=made)]
    return "\n".join(lines)


_Rules = dict[str, tuple[list[str], str, list[str]]]  # parameters, what is needed, lines


def _read(text: str, program: str) -> tuple[dict[str, str], _Rules, str]:
    """Return the variables of a file, its rules, and the name of the first one."""
    values, rules, own, first = dict[str, str](), _Rules(), list[str](), ""
    for line in re.sub(r"\\\r?\n", " ", text).splitlines():
        if not line.strip():
            continue
        if line[:1] in (" ", "\t"):
            own.append(line.strip().lstrip("@-"))
            continue
        own = []
        if line.startswith("#"):
            continue
        if found := _RULE.match(line):
            first = first or ("" if found[1].startswith(".") else found[1])
            needs, _, within = found[3].partition("#")[0].partition(";")
            own += [within.strip()] if within.strip() else []
            others = found[2].split()
            if program == "just":
                rules[found[1]] = others, needs, own
                continue
            for name in (found[1], *others):
                _, before, recipe = rules.get(name, ([], "", []))
                both = f"{before} {needs}" if recipe else f"{needs} {before}"
                rules[name] = [], both, recipe or own
        elif found := _ASSIGNED.match(line):
            _assign(found, values)
    return values, rules, first


def _assign(found: re.Match[str], values: dict[str, str]) -> None:
    """Assign a value to a variable: at once (`:=`), in addition (`+=`), or where it has none
    (`?=`)."""
    name, how, value = found[1], found[2], found[3].partition("#")[0].strip().strip("\"'")
    if how == "+":
        values[name] = f"{values.get(name, '')} {value}".lstrip()
    elif how != "?" or name not in values:
        values[name] = _named(value, values) if ":" in how else value


def _lines(
    target: str, rules: _Rules, values: dict[str, str], depth: int, made: set[str]
) -> list[str]:
    """Return the lines of a target's recipe, after those of the targets that it needs. Return [] if
    there is no such target, or it was made already.

    Args:
        made: targets that were made already, and are not made again; this one is added.
    """
    if target not in rules or target in made or depth > DEPTH:
        return []
    made.add(target)
    _, needs, own = rules[target]
    before = [
        line
        for one in needs.split()[:20]
        for line in _lines(one, rules, values, depth + 1, made=made)
    ]
    return [*before, *(_filled(one, values) for one in own[:1000])][:1000]


def _filled(line: str, values: dict[str, str]) -> str:
    """Return a line with its variables filled in. One that is too long to be read as a command is
    cut, or left as it is."""
    if len(line) > LONGEST:
        return line
    for _ in range(DEPTH):
        line, before = _named(line, values), line
        if line == before:
            break
    return line.replace("$$", "$")


def _named(line: str, values: dict[str, str]) -> str:
    """Return a text with the values of the variables that it names, as they are written."""
    return _NAMED.sub(lambda one: values.get(one[1] or one[2] or one[3], one[0]), line)[
        : LONGEST + 1
    ]
