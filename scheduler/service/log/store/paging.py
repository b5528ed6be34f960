"""Cursors of lists that are read page by page: the key of the last row of a page, as opaque
text.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

LONGEST = 256  # characters


class BadCursor(ValueError):
    """Raised for a cursor that no list has given out."""


def cursor(*values: int | float) -> str:
    return base64.urlsafe_b64encode(json.dumps(values).encode()).decode().rstrip("=")


def opened(text: str, *types: type) -> tuple[Any, ...]:
    """Return the values in the cursor `text`. Raise BadCursor unless they have these types."""
    if len(text) > LONGEST:
        raise BadCursor("cursor: not one that a page gave out")
    try:
        values = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (binascii.Error, ValueError):
        raise BadCursor("cursor: not one that a page gave out") from None
    ok = isinstance(values, list) and len(values) == len(types)
    if not ok or any(type(v) is not t for v, t in zip(values, types, strict=True)):
        raise BadCursor("cursor: not one that a page gave out")
    if any(abs(value) >= 2**62 for value in values if type(value) is int):
        raise BadCursor("cursor: not one that a page gave out")
    return tuple(values)
