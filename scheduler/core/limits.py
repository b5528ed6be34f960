"""Limits on the values that a cluster file, a request or an event may state about a cluster."""

from __future__ import annotations

import re
import unicodedata
from typing import Annotated

from pydantic import AfterValidator, Field

from scheduler.core.cluster import MOST_MIB

# as hosts are named; a number names a node already
HOST = re.compile(r"[A-Za-z0-9]+((\.|[_-]+)[A-Za-z0-9]+)*")

# no control characters (C0, C1), none that turn the direction of text, none of no width
PRINTABLE = r"^[^\x00-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]*$"


def composed(text: str) -> str:
    """Return a text in Unicode form NFC, so that names that look alike compare equal."""
    return unicodedata.normalize("NFC", text)


def _line(text: str) -> str:
    if not text.isprintable():
        raise ValueError("holds a character that cannot be printed")
    found = composed(text)
    if len(found) > len(text):  # else it would be longer than was checked
        raise ValueError("holds a character that is written as several")
    return found


Line = Annotated[str, AfterValidator(_line)]  # no control characters, none that turn text around
Name = Annotated[Line, Field(min_length=1, max_length=128)]  # of a virtual cluster


def _host(name: str) -> str:
    if not HOST.fullmatch(name) or name.isdecimal():
        raise ValueError(
            "is no name of a node: letters, digits, '-', '_' and '.' between them, not all digits"
        )
    return name


NodeName = Annotated[str, Field(min_length=1, max_length=128), AfterValidator(_host)]
GpuType = Annotated[Line, Field(max_length=64)]
GpuMemory = Annotated[float, Field(gt=0, le=MOST_MIB)]  # MiB
