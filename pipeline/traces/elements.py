"""Reads the elements of a JSON list that is too large for memory, one after the other."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.traces.base import MeteredFile, TraceError

CHUNK_BYTES = 1 << 20
MAX_ELEMENT_CHARS = 4 << 20

_SPACE = re.compile(r"[\s,]*")
_DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class Element:
    """One element of a JSON list.

    Attributes:
        value: the parsed value; None if the element could not be read.
        fault: why the element could not be read, or None.
        number: number of the element in the list, from 1.
        text: the element's text in the file.
    """

    value: Any
    fault: str | None
    number: int
    text: str


def elements(file: MeteredFile, what: str, first_keys: Sequence[str]) -> Iterator[Element]:
    """Yield the elements of a file that is a JSON list, holding one chunk of it in memory. `what`
    names the file in messages.

    An element that cannot be read is yielded with its fault, and reading goes on at the next
    place that looks like the start of one: an object whose first key is one of ``first_keys``.
    Text behind the list is yielded as an element with a fault, too.

    Raises:
        TraceError: the file does not hold a list.
    """
    reader = _Reader(file)
    reader.fill()
    reader.skip(re.compile(r"\ufeff?\s*"))
    if not reader.buffer[reader.at : reader.at + 1]:
        raise TraceError(f"{what}: is empty")
    if reader.buffer[reader.at] != "[":
        raise TraceError(f"{what}: is no JSON list (starts with {reader.buffer[:20]!r})")
    reader.at += 1
    keys = "|".join(re.escape(key) for key in first_keys)
    restart = re.compile(r',\s*(?=\{\s*"(?:' + keys + r')"\s*:)')
    yield from _elements(reader, restart)


def _elements(reader: _Reader, restart: re.Pattern[str]) -> Iterator[Element]:
    number = 1
    while True:
        reader.skip(_SPACE)
        first = reader.buffer[reader.at : reader.at + 1]
        if not first and reader.fill():
            continue
        if not first:
            yield Element(None, "truncated", number, "")
            return
        if first == "]":
            yield from _after_the_list(reader, number)
            return
        try:
            value, end = _DECODER.raw_decode(reader.buffer, reader.at)
        except (ValueError, RecursionError):
            # Either it goes on in the next chunk, or it is broken: then another may follow here.
            following = restart.search(reader.buffer, reader.at + 1)
            short = len(reader.buffer) - reader.at < MAX_ELEMENT_CHARS
            if following is None and short and reader.fill():
                continue
            broken = _skip_broken(reader, following, number)
            yield broken
            if broken.fault == "truncated":
                return
            number += 1
            continue
        text, reader.at = reader.buffer[reader.at : end], end
        yield Element(value, "bad_encoding" if _unencodable(value, text) else None, number, text)
        number += 1


def _skip_broken(reader: _Reader, following: re.Match[str] | None, number: int) -> Element:
    """Return the broken element at which the reader is, with its fault. Move the reader past it: to
    the match `following`, or to the end of the buffer if that is None."""
    end = following.start() if following else len(reader.buffer)
    text, reader.at = reader.buffer[reader.at : end], end
    at_end = following is None and not reader.fill()
    return Element(None, "truncated" if at_end else "not_json", number, text)


def _after_the_list(reader: _Reader, number: int) -> Iterator[Element]:
    reader.at += 1
    while len(reader.buffer) - reader.at < CHUNK_BYTES and reader.fill():
        pass
    rest = reader.buffer[reader.at :].strip()
    if rest:
        yield Element(None, "after_the_list", number, rest)


def _unencodable(value: Any, text: str) -> bool:
    """Return whether an element's text held bytes that are no UTF-8, or whether its value has half
    of an escaped surrogate pair and so cannot be written as UTF-8."""
    if "\ufffd" in text:
        return True
    if not re.search(r"\\u[dD][89a-fA-F]", text):
        return False
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False


class _Reader:
    """A window over the decoded text of a file. It moves forward; `at` is the position in its
    `buffer`."""

    def __init__(self, file: MeteredFile) -> None:
        self._file = file
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._ended = False
        self.buffer = ""
        self.at = 0

    def fill(self) -> bool:
        """Read one more chunk of the file into the buffer. Return False if the file has ended."""
        if self._ended:
            return False
        data = self._file.read(CHUNK_BYTES)
        self._ended = not data
        self.buffer = self.buffer[self.at :] + self._decode(data, final=self._ended)
        self.at = 0
        return bool(data)

    def skip(self, pattern: re.Pattern[str]) -> None:
        """Move past the text that the pattern matches at the present position."""
        match = pattern.match(self.buffer, self.at)
        self.at = match.end() if match else self.at
