"""What reading YAML may raise, and how a value that was read is shown to a person."""

from __future__ import annotations

from reprlib import Repr
from typing import Any

import yaml

# What reading YAML raises: the library lets through what int, float and datetime do, and its slips.
_SLIPS = LookupError, AttributeError, TypeError, ArithmeticError, RecursionError
NOT_YAML = (yaml.YAMLError, ValueError, *_SLIPS)

MOST_PAIRS = 10**6  # of the mappings of a text, those that it merges counted each time
_SHOWN = Repr()
_SHOWN.maxlevel, _SHOWN.maxstring, _SHOWN.maxlong, _SHOWN.maxother = 3, 200, 200, 200


def printable(value: Any) -> str:
    """Return a rejected value as text for a person, cut to a short length. The full text could be
    too large for memory, since references in YAML can make a few lines very long."""
    try:
        return _SHOWN.repr(value)
    except ValueError:
        return "a number of thousands of digits"


class _Loader(yaml.SafeLoader):
    pairs = 0

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        super().flatten_mapping(node)
        self.pairs += len(node.value)
        if self.pairs > MOST_PAIRS:
            raise yaml.YAMLError("merges too many settings")


def loaded(text: str) -> Any:
    """Return what a text of YAML holds. Merges (`<<: *a`) that multiply are refused.

    Raises one of NOT_YAML.
    """
    loader = _Loader(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()
