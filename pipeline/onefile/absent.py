"""Stand-ins for the libraries that the one file does without, because compiled ones cannot be
loaded out of a zip. Settings have their defaults, and nothing is logged.
"""

from __future__ import annotations

import sys
from copy import deepcopy
from types import ModuleType, SimpleNamespace
from typing import Any


class Nothing:
    """A stand-in for anything that is only named or declared with; it yields no value."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __getitem__(self, key: object) -> Any:
        return self

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self


def ratio(one: str, other: str) -> float:
    """Return how alike two texts are, 0 to 100: normalised indel similarity, as rapidfuzz has
    it.
    """
    where: dict[str, int] = {}
    for place, letter in enumerate(one):
        where[letter] = where.get(letter, 0) | 1 << place
    row = all_set = (1 << len(one)) - 1
    for letter in other:  # the longest common subsequence, all of a row at once (Hyyro 2004)
        same = row & where.get(letter, 0)
        row = ((row + same) | (row - same)) & all_set
    common, total = len(one) - row.bit_count(), len(one) + len(other)
    return 200.0 * common / total if total else 100.0


def extract_one(
    name: str, known: list[str], *, scorer: Any, score_cutoff: float
) -> tuple[str, float, int] | None:
    """Return the most alike name (of several the first), with its score and place, or None where
    none is alike enough.
    """
    scores = [(scorer(name, one), -place) for place, one in enumerate(known)]
    best, place = max(scores, default=(-1.0, 0))
    return (known[-place], best, -place) if best >= score_cutoff else None


class Silent:
    """A logger that logs nothing."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


class FieldOf:
    """A field of settings, with its default only."""

    def __init__(self, default: Any = None, **_: Any) -> None:
        self.default = default


class Defaults:
    """A model of settings whose fields have their defaults; nothing can be set."""

    def __init__(self) -> None:
        for kind in reversed(type(self).__mro__):
            for name, field in vars(kind).items():
                if isinstance(field, FieldOf):
                    self.__dict__[name] = deepcopy(field.default)
                elif name in vars(kind).get("__annotations__", ()) and name != "model_config":
                    self.__dict__[name] = deepcopy(field)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash(type(self))

    @classmethod
    def model_validate(cls, values: dict[str, Any]) -> Any:
        if values:
            raise NotImplementedError("the one file has no settings")
        return cls()

    def __init_subclass__(cls, **_: Any) -> None:
        """Called when a model of settings is declared."""


class Refused(ValueError):
    """Stands in for an exception; it is never raised."""


def install() -> None:
    """Put the stand-ins where imports look first."""
    nothing = Nothing()
    wrap = {"field_validator", "model_validator"}
    libraries: dict[str, dict[str, Any]] = {
        "rapidfuzz": {
            "fuzz": SimpleNamespace(ratio=ratio),
            "process": SimpleNamespace(extractOne=extract_one),
        },
        "yaml": {"YAMLError": Refused},
        "annotated_types": dict.fromkeys(("Ge", "Gt", "Le", "Lt"), Refused),
        "structlog": {"get_logger": lambda *_: Silent()},
        "pydantic": {
            "BaseModel": Defaults,
            "ConfigDict": dict,
            "Field": FieldOf,
            "ValidationError": Refused,
            **dict.fromkeys(wrap, lambda *_, **__: lambda method: method),
        },
        "pydantic.fields": {"FieldInfo": FieldOf},
        "pydantic_core": {"PydanticCustomError": Refused},
    }
    for name, has in libraries.items():
        module = ModuleType(name)
        module.__dict__.update(has)
        module.__dict__["__path__"] = []
        module.__dict__["__getattr__"] = nothing.__getattr__
        sys.modules[name] = module
