"""Job files: the request that `pellucid submit` sends, written as YAML."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from features.clock import TIME_HELP, read_seconds
from features.codec import Json
from features.given import read_given
from features.yamls import NOT_YAML
from pipeline.errors import UserError
from scheduler.core.request import FIELDS

MOST_BYTES = 2**20
NAMES = {one.option[2:]: name for name, one in FIELDS.items()}
BESIDE = ("command", "workdir", "env", "array")


def read_job(file: Path) -> Json:
    """Return the request in a job file, by the names of the client's arguments. Raises UserError if
    the file cannot be read or has a field or value that is not accepted."""
    import yaml

    try:
        found = yaml.safe_load(read_given(file, MOST_BYTES))
    except OSError as error:
        raise UserError(f"--file {file}: {error.strerror}") from None
    except NOT_YAML as error:
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"--file {file}: not YAML ({why})") from None
    if not isinstance(found, dict):
        raise UserError(f"--file {file}: holds no `name: value` lines, such as gpus: 2")
    asked: Json = {}
    for name, value in found.items():
        asked |= _read(file, str(name), value)
    return asked


def _read(file: Path, name: str, value: Any) -> Json:
    """Return one field of a job file as arguments of the request. Raises UserError if there is no
    such field, or its value is not accepted.

    Args:
        file: path of the file, for messages.
        name: name of the field.
    """
    option = name.replace("_", "-")
    if option in NAMES:
        return {NAMES[option]: _value(file, name, value)}
    if option == "command":
        try:
            words = shlex.split(value) if isinstance(value, str) else value
        except ValueError as error:
            raise UserError(f"{file}: command is {value!r}: {error}") from None
        if not isinstance(words, list) or not words:
            raise UserError(f"{file}: command is {value!r}; give a line, or a list of words")
        return {"command": [str(word) for word in words]}
    if option == "env":
        if not isinstance(value, dict):
            raise UserError(f"{file}: env is {value!r}; give NAME: VALUE lines below it")
        return {"environment": {str(key): str(one) for key, one in value.items()}}
    if option in BESIDE:
        return {option: str(value)}
    known = ", ".join((*BESIDE, *NAMES))
    raise UserError(f"{file}: {name} is no field of a job; there are {known}")


def _value(file: Path, name: str, value: Any) -> Any:
    if FIELDS[NAMES[name.replace("_", "-")]].ask.unit != "s" or value is None:
        return value
    try:  # YAML itself reads 1:30:00 as a number of seconds
        return read_seconds(str(value))
    except ValueError:
        raise UserError(f"{file}: {name} is {value!r}; give {TIME_HELP}") from None


def written(command: list[str], asked: Mapping[str, Any], array: str | None) -> str:
    """Return the text of a job file for a request. Fields with their default value are left out.

    Args:
        command: the job's command.
        asked: arguments of the request, by name.
        array: indices of a job array, as text; None: no array.
    """
    import yaml

    beside = {"workdir": asked["workdir"], "env": asked["environment"], "array": array}
    fields = {one.option[2:]: (asked.get(name), one.default) for name, one in FIELDS.items()}
    lines = {"command": command} | {name: value for name, value in beside.items() if value}
    lines |= {k: v for k, (v, default) in fields.items() if v is not None and v != default}
    return yaml.safe_dump(lines, sort_keys=False, allow_unicode=True)
