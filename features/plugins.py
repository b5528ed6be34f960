"""Loading objects of the user's own Python code, named `module:attribute`."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from traceback import extract_tb
from typing import Any, TypeVar

T = TypeVar("T")


def load(name: str) -> Any:
    """Return what `module:attribute` names. The module must be installed or in the current folder,
    which is added to `sys.path`.

    Raises ValueError, with a message of one line, if the module or the attribute cannot be loaded.
    """
    module, _, attribute = name.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")  # as `python -m` has it, and a console script has not
    try:
        return getattr(import_module(module), attribute)
    except Exception as error:  # whatever a module of the user's own does when it is run
        raise ValueError(f"{name!r} cannot be loaded: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    """Return an error as one line: its text, its type where the text alone is unclear, and the line
    of the user's code that raised it."""
    if isinstance(error, (AttributeError, ImportError, SyntaxError)):
        text = str(error)
    else:
        text = f"{type(error).__name__}: {error}"
    frames = [one for one in extract_tb(error.__traceback__) if "importlib" not in one.filename]
    if len(frames) > 1 and not isinstance(error, SyntaxError):  # the first is ours
        text += f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})"
    return " ".join(text.split())


def load_class(name: str, base: type[T]) -> type[T]:
    """Return the subclass of `base` that `module:Class` names. Raises ValueError, with a message of
    one line, if there is none or it is no such subclass."""
    found = load(name)
    if not (isinstance(found, type) and issubclass(found, base)):
        raise ValueError(f"{name!r} is no subclass of {base.__module__}.{base.__qualname__}")
    return found
