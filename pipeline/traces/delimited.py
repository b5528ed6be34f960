"""Parses delimited text (such as CSV) into typed columns, one block at a time.

The fast path lets Arrow parse and type a whole block. If a block holds anything wrong (a bad value,
a missing column, an empty line, a stray byte), its lines are sorted into sound and unsound ones.
The sound ones are parsed as text and cast column by column, so that only wrong rows are lost.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from features.schema import LABEL
from pipeline.traces.base import Reject, TraceError
from pipeline.traces.cast import (
    NAIVE,
    NULLS,
    Mask,
    blank_to_null,
    cast_or_null,
    floats,
    from_floats,
    mask,
)
from pipeline.traces.text import NEWLINE, RETURN, Block

Lines = npt.NDArray[np.int64]

_TYPES = {"text": pa.string(), "label": LABEL, "number": pa.float64(), "time": NAIVE}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a file, and how it is read.

    Attributes:
        source: name of the column in the file.
        field: name of the parsed column: that of a field of the schema if one fits.
        kind: ``text``; ``label`` (few distinct texts); ``number``; ``time`` (a clock time without
            zone, ``YYYY-MM-DD hh:mm:ss``).
        required: whether a file without this column is not in this format.
    """

    source: str
    field: str
    kind: Literal["text", "label", "number", "time"] = "label"
    required: bool = True


@dataclass(frozen=True, slots=True)
class Layout:
    """How the lines of one file are to be read.

    Attributes:
        names: every column of the file, in order.
        columns: the columns to parse.
        delimiter: the character between columns.
        quotes: whether values may be in double quotes.
        repair: function that gets a line with too many delimiters, and returns it with the right
            number, or None if it cannot.
    """

    names: Sequence[str]
    columns: Sequence[Column]
    delimiter: str = ","
    quotes: bool = True
    repair: Callable[[bytes], bytes | None] | None = None


@dataclass(slots=True)
class Frame:
    """A parsed block of a file.

    Attributes:
        columns: arrays by field name, as long as ``lines``.
        bad: masks of the rows with a wrong value in the field, by field name.
        lines: line number of each row.
        rejects: lines that could not be parsed as a row.
        rows: number of rows and rejects together.
    """

    columns: dict[str, pa.Array]
    lines: Lines
    bad: dict[str, Mask] = field(default_factory=dict)
    rejects: list[Reject] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return len(self.lines) + len(self.rejects)


def split_header(line: bytes, delimiter: str) -> list[str]:
    """Return the column names in a header line; [] if the line is no text."""
    try:
        text = line.decode("utf-8").strip("\r\n")
        return [name.strip() for name in next(csv.reader([text], delimiter=delimiter), [])]
    except (UnicodeDecodeError, csv.Error):
        return []


def layout_for(
    names: Sequence[str], columns: Sequence[Column], what: str, delimiter: str = ",", **more: Any
) -> Layout:
    """Return the layout by which a file with this header is parsed.

    Args:
        names: the column names in the header.
        columns: the columns to parse; those that are not required may be missing.
        what: name of the file, for messages.

    Raises:
        TraceError: a required column is missing, or occurs twice.
    """
    for column in columns:
        if names.count(column.source) > 1:
            raise TraceError(f"{what}: column {column.source!r} stands in the header twice")
        if column.required and column.source not in names:
            seen = delimiter.join(names)[:60]
            raise TraceError(f"{what}: no column {column.source!r} in the header {seen!r}")
    present = [column for column in columns if column.source in names]
    return Layout(names, present, delimiter, **more)


def parse(block: Block, layout: Layout, source: str, data: bytes | None = None) -> Frame:
    """Parse a block. Return its rows.

    Args:
        block: lines of the file.
        layout: how to read them.
        source: file name, for rejects.
        data: the same lines, changed so that they can be parsed; None: parse those of `block`.
    """
    data = block.data if data is None else data
    if not (b"\0" in data or (layout.quotes and b'"' in data)):
        table = _parse_typed(data, layout)
        # Fewer rows than lines: something was skipped or swallowed. Look closely.
        if table is not None and len(table) == len(block):
            lines = np.arange(block.first_line, block.first_line + len(table), dtype=np.int64)
            columns = {c.field: _clean(_whole(table[c.source]), c.kind) for c in layout.columns}
            return Frame(columns, lines)
    return _parse_carefully(block, layout, source, data)


def _whole(column: Any) -> Any:
    # Arrow copies even a single chunk when it combines them.
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _clean(values: Any, kind: str) -> Any:
    """Return a column of numbers with NaN replaced by null, since Arrow reads some spellings of NaN
    as a number. Other columns are returned unchanged.
    """
    if kind == "number" and pc.any(pc.is_nan(values)).as_py():
        return from_floats(floats(values))
    return values


def _parse_typed(data: bytes, layout: Layout) -> pa.Table | None:
    types = {column.source: _TYPES[column.kind] for column in layout.columns}
    try:
        return _read_csv(data, layout, types, NULLS)
    except pa.ArrowInvalid:
        return None


def _read_csv(
    data: bytes,
    layout: Layout,
    types: dict[str, pa.DataType],
    nulls: Sequence[str],
    quote: str | Literal[False] = False,
) -> pa.Table:
    return pacsv.read_csv(
        pa.BufferReader(data),
        pacsv.ReadOptions(
            column_names=list(layout.names), use_threads=False, block_size=len(data) + 1
        ),
        pacsv.ParseOptions(delimiter=layout.delimiter, quote_char=quote),
        pacsv.ConvertOptions(
            column_types=types,
            include_columns=list(types),
            null_values=list(nulls),
            strings_can_be_null=True,
            quoted_strings_can_be_null=True,
        ),
    )


def _parse_carefully(block: Block, layout: Layout, source: str, data: bytes) -> Frame:
    sound, lines, reasons = _sort_lines(data, block.first_line, layout)
    rejects = [Reject(source, line, why, block.text(line)) for line, why in reasons]
    texts = _parse_texts(sound, layout)
    frame = Frame({}, lines, rejects=rejects)
    for column in layout.columns:
        parsed = column.kind in ("number", "time")
        values = blank_to_null(texts[column.source], trim=parsed)
        cast = values
        if parsed:
            cast = cast_or_null(values, _TYPES[column.kind])
            bad = mask(pc.and_(pc.is_null(cast), pc.is_valid(values)))
            if bad.any():
                frame.bad[column.field] = bad
        elif column.kind == "label":
            cast = pc.cast(pc.dictionary_encode(values), LABEL)
        frame.columns[column.field] = _clean(cast, column.kind)
    return frame


def _parse_texts(sound: list[bytes], layout: Layout) -> dict[str, pa.Array]:
    """Return the wanted columns of sound lines as text, by name. Every line must have the right
    number of columns."""
    types = {column.source: pa.string() for column in layout.columns}
    data = b"\n".join(sound) + b"\n"
    quote: str | Literal[False] = '"' if layout.quotes and b'"' in data else False
    table = _read_csv(data, layout, types, nulls=[], quote=quote) if sound else None
    if table is None or len(table) != len(sound):
        rows = [_split(line, layout) or [] for line in sound]
        at = {c.source: list(layout.names).index(c.source) for c in layout.columns}
        return {name: pa.array([row[i] for row in rows], pa.string()) for name, i in at.items()}
    return {name: _whole(table[name]) for name in types}


def _split(line: bytes, layout: Layout) -> list[str] | None:
    text = line.decode("utf-8")
    if not layout.quotes:
        return text.split(layout.delimiter)
    try:
        rows = list(csv.reader([text], delimiter=layout.delimiter, strict=True))
    except csv.Error:
        return None
    return rows[0] if len(rows) == 1 else None


def _sort_lines(
    data: bytes, first_line: int, layout: Layout
) -> tuple[list[bytes], Lines, list[tuple[int, str]]]:
    """Return (sound lines, their numbers, [(number, reason)] of the other lines). Blank lines are
    left out.

    Args:
        data: the lines.
        first_line: number of the first line.
    """
    raw = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(raw == NEWLINE)
    starts = np.concatenate([[0], ends[:-1] + 1])
    wanted = len(layout.names)
    found = np.add.reduceat(raw == ord(layout.delimiter), starts, dtype=np.int64) + 1
    odd = (raw == 0) | (raw == RETURN) | (raw >= 0x80) | (raw == ord('"'))
    suspect = np.add.reduceat(odd, starts, dtype=np.int64) > 0
    plain = (found == wanted) & ~suspect & (ends > starts)
    sound: list[bytes] = []
    lines: list[int] = []
    reasons: list[tuple[int, str]] = []
    for index, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        line = data[start:end]
        if not plain[index]:
            line = line.removesuffix(b"\r")
            if not line.strip():
                continue
            checked = _check_line(line, layout)
            if isinstance(checked, str):
                reasons.append((first_line + index, checked))
                continue
            line = checked
        sound.append(line)
        lines.append(first_line + index)
    return sound, np.array(lines, np.int64), reasons


def _check_line(line: bytes, layout: Layout) -> bytes | str:
    """Return the line, repaired if necessary, as bytes. If it cannot be parsed as a row, return the
    reason as a str."""
    if b"\0" in line or b"\r" in line:
        return "control_character"
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return "bad_encoding"
    count = line.count(layout.delimiter.encode()) + 1
    if layout.quotes and b'"' in line:
        values = _split(line, layout)
        if values is None:
            return "bad_quoting"
        count = len(values)
    if count == len(layout.names):
        return line
    if count > len(layout.names) and layout.repair is not None:
        repaired = layout.repair(line)
        if repaired is not None:
            return repaired
    return "wrong_column_count"
