"""Escaping text from outside, and text of errors, before it goes to a terminal or a log."""

from __future__ import annotations

from typing import Any


def plain(text: str) -> str:
    """Return a text with all characters escaped that Python does not call printable: control
    characters (C0, C1, those that change the direction of writing) and unusual spaces, for example.

    Names and output of jobs are shown on other people's terminals, which obey control characters:
    "\\x1b]0;x\\x07" would change the title of an operator's window. Line feeds, tabs and no-break
    spaces stay; carriage returns do not.
    """
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in "\n\t\u00a0\u202f" else c.encode("unicode_escape").decode()
        for c in text
    )


def first_line(error: BaseException, most: int = 500) -> str:
    """Return the first line of an error's text, at most `most` characters, or the name of its class
    if it has no text.

    The first line of a database's error stops before the SQL statement, which may be long.
    """
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:most]


def plain_all(value: Any) -> Any:
    """Return a JSON value in which every text, field names included, is escaped by `plain`."""
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, list):
        return [plain_all(item) for item in value]
    if isinstance(value, dict):
        return {plain(name): plain_all(item) for name, item in value.items()}
    return value
