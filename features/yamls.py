"""What reading YAML may raise, and how a value that was read is shown to a person."""

from __future__ import annotations

from reprlib import Repr
from typing import Any

import yaml

# What reading YAML raises: the library lets through what int, float and datetime do, and its slips.
_SLIPS = LookupError, AttributeError, TypeError, ArithmeticError, RecursionError
NOT_YAML = (yaml.YAMLError, ValueError, *_SLIPS)

_SHOWN = Repr()
_SHOWN.maxlevel, _SHOWN.maxstring, _SHOWN.maxlong, _SHOWN.maxother = 3, 200, 200, 200


def printable(value: Any) -> str:
    """Return a rejected value as text for a person, cut to a short length. The full text could be
    too large for memory, since references in YAML can make a few lines very long."""
    try:
        return _SHOWN.repr(value)
    except ValueError:
        return "a number of thousands of digits"
