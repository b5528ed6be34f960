"""Things of the user's own, named `module:attribute`."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any, TypeVar

T = TypeVar("T")


def load(name: str) -> Any:
    """What `module:attribute` names; the module is installed, or in the current folder.

    Raises ValueError, in one line, when there is no such thing.
    """
    module, _, attribute = name.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")  # as `python -m` has it, and a console script has not
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"{name!r} cannot be loaded: {error}") from error


def load_class(name: str, base: type[T]) -> type[T]:
    """The subclass of `base` that `module:Class` names. Raises ValueError, in one line."""
    found = load(name)
    if not (isinstance(found, type) and issubclass(found, base)):
        raise ValueError(f"{name!r} is no subclass of {base.__module__}.{base.__qualname__}")
    return found
