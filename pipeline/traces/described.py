"""Trace formats described in YAML: which column holds which field of the trace schema, with units
and time zone.

    name: site
    columns:
      job_id: id
      gpus: {product: [nodes, gpus_per_node]}
      submit_time: {column: submitted, unit: ms}
      duration: {column: run, unit: min}
      state: status
    states: {DONE: completed, KILLED: cancelled}
    origin: 2023-01-01T00:00:00Z

Under `columns`, each field of the schema names a column of the file. `unit` of a time: `clock`
(text; the default), `unix`, `unix_ms`, or `s`, `ms`, `min`, `h` since `origin`; of a duration: `s`,
`ms`, `min`, `h`, `clock` (1-02:03:04); of memory: `mib`, `gib`, `kib`, `b`, `suffix` (256G).
`pattern`: a regular expression with the number as its first group; `product`: the product of
several columns; `value`: the same value for all rows; `default`: the value where there is none;
`required: false`: the column may be missing. `header` names the columns of a file without a header
line. `needs` names further columns that a file of this format must have, which distinguish it from
similar formats. `rows` names the list of rows in a JSON document; there a column `a.b` is the field
`b` of the object `a`.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.clock import parse_elapsed
from features.given import arrow_file, read_given
from features.schema import LABEL, TIME, TRACE_SCHEMA, State
from pipeline.traces.base import Adapter, Batch, MeteredFile, Options, TraceError, check_zone, head
from pipeline.traces.cast import (
    NAIVE,
    blank_to_null,
    cast_or_null,
    constant_label,
    floats,
    from_floats,
    localise,
    map_unique,
    offset_times,
)
from pipeline.traces.check import Draft
from pipeline.traces.delimited import Column, Layout, layout_for, parse, split_header
from pipeline.traces.tables import TableAdapter
from pipeline.traces.text import blocks

MAPS = Path(__file__).parent / "maps"
TIMES = ("submit_time", "eligible_time", "start_time", "end_time")
DURATIONS = {"duration": "recorded_duration_s", "time_limit": "time_limit_s"}
FIELDS = {*TRACE_SCHEMA.names, *DURATIONS} - {"source_line", "duration_s", *DURATIONS.values()}
SCALES = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "min": 60.0, "h": 3600.0, "unix": 1.0, "unix_ms": 1e-3}
MEMORY = {"mib": 1.0, "gib": 1024.0, "kib": 1 / 1024, "b": 2.0**-20, "suffix": 1.0}
_SUFFIXED = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)([KMGTP]?)[nc]?", re.IGNORECASE)
_SUFFIXES = {"": 1.0, "K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}
MOST_BYTES = 2**31  # of a JSON document, which is read whole
_ZONED = r"(?:Z|[+-]\d{2}:?\d{2})$"
_TOP = {"name", "title", "version", "columns", "states", "origin", "timezone", "delimiter",
        "header", "rows", "note", "needs"}  # fmt: skip
_HOW = {"column", "unit", "pattern", "product", "value", "default", "required"}


class Described(TableAdapter):
    """A trace format that is made from a description in YAML."""

    delimiter: ClassVar[str] = ","
    fields: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    header: ClassVar[tuple[str, ...]] = ()
    rows: ClassVar[str] = ""
    needs: ClassVar[tuple[str, ...]] = ()

    def sniff(self, path: Path) -> float:
        if self.header:
            return 0.0  # nothing in it says what it is
        names = _names(path, self.delimiter, self.rows)
        wanted = {column.source for column in self.columns if column.required} | {*self.needs}
        if not names or not wanted <= {*names}:
            return 0.0
        known = {column.source for column in self.columns} | {*self.needs}
        return 0.45 + 0.5 * sum(name in known for name in names) / len(names)

    def _read(self, file: MeteredFile, path: Path, options: Options) -> Iterator[Batch]:
        names = [column.source for column in self.columns]
        rows = _rows(file, path, self.rows)
        if rows is None and not self.header:
            yield from super()._read(file, path, options)
            return
        layout = layout_for(
            self.header if rows is None else names, self.columns, path.name, self.delimiter
        )
        for block in blocks(file if rows is None else _AsLines(rows, layout)):
            draft = Draft.of(parse(block, layout, path.name), path.name, block.text)
            self.convert(draft, options)
            yield draft.batch()

    def convert(self, draft: Draft, options: Options) -> None:
        read = draft.columns
        draft.columns = {}
        for field, how in self.fields.items():
            if "value" in how or all(name in read for name in _sources(how)):
                draft.columns[DURATIONS.get(field, field)] = _field(
                    draft, read, field, how, options=options
                )
        if "job_id" not in draft.columns:
            ids = [f"line-{line}" for line in draft.lines.tolist()]
            draft.columns["job_id"] = pa.array(ids, pa.string())
        if "state" in draft.columns:
            draft.columns["state"] = pc.cast(draft.columns["state"], LABEL)
            self.map_states(draft)


def _field(
    draft: Draft, read: Mapping[str, Any], field: str, how: Mapping[str, Any], options: Options
) -> Any:
    """Return the values of one field of the schema. Rows with a value that makes no sense are
    refused in `draft`.

    Args:
        draft: the rows.
        read: the parsed columns of the file, by name.
        field: name of the field.
        how: the description of the field, by keyword (column, unit, ...).
    """
    kind, unit = TRACE_SCHEMA.field(DURATIONS.get(field, field)).type, how.get("unit")
    if "value" in how:
        if pa.types.is_floating(kind) or pa.types.is_integer(kind):
            return pa.array(np.full(len(draft), float(how["value"])))
        return constant_label(str(how["value"]), len(draft))
    texts = [blank_to_null(read[name]) for name in _sources(how)]
    if field in TIMES and unit in (None, "clock"):
        return _clock(draft, texts[0], field, options)
    if not (field in TIMES or pa.types.is_floating(kind) or pa.types.is_integer(kind)):
        return texts[0] if kind == pa.string() else pc.dictionary_encode(texts[0])
    values = np.ones(len(draft))
    for text in texts:
        number = _numbers(text, how, unit)
        if not {"pattern", "default"} <= {*how}:  # where the pattern is not in it, that is meant
            draft.refuse(pc.and_(pc.is_valid(text), pc.is_null(number)), f"bad_{field}")
        values = values * floats(number)
    if "default" in how:
        values = np.where(np.isnan(values), float(how["default"]), values)
    if field in TIMES:
        unix = unit in ("unix", "unix_ms")
        start = datetime(1970, 1, 1, tzinfo=UTC) if unix else options.origin
        return offset_times(from_floats(values * SCALES[unit or "s"]), start)
    scale = MEMORY if field == "memory_mib" else SCALES
    return from_floats(values * scale.get(unit or "", 1.0))


def _numbers(text: Any, how: Mapping[str, Any], unit: str | None) -> Any:
    if (pattern := how.get("pattern")) is not None:

        def first(value: str) -> str | None:
            found = re.search(pattern, value[:1000])
            return found[1] if found else None

        text = map_unique(text, first, pa.string())
    if unit == "clock":
        return map_unique(text, parse_elapsed, pa.float64())
    if unit == "suffix":
        return map_unique(text, _mebibytes, pa.float64())
    return cast_or_null(text, pa.float64())


def _mebibytes(text: str) -> float | None:
    """Return a size as Slurm prints it, in MiB; None if the text is no size."""
    found = _SUFFIXED.fullmatch(text)
    return float(found[1]) * _SUFFIXES[found[2].upper()] if found else None


def _clock(draft: Draft, text: Any, field: str, options: Options) -> Any:
    zoned = pc.match_substring_regex(text, _ZONED)
    if pc.any(zoned).as_py():
        times = cast_or_null(text, TIME)
    else:
        naive = cast_or_null(text, NAIVE)
        times, moved = localise(naive, options.timezone)
        draft.warnings["clock_change_time"] += moved
    draft.refuse(pc.and_(pc.is_valid(text), pc.is_null(times)), f"bad_{field}")
    return times


def _sources(how: Mapping[str, Any]) -> list[str]:
    return list(how.get("product", ())) or [how["column"]] if "value" not in how else []


# --- what is no delimited text --------------------------------------------------------------------


class _AsLines:
    """A reader that turns rows into lines of delimited text and returns them in blocks."""

    def __init__(self, rows: Iterator[Mapping[str, Any] | None], layout: Layout) -> None:
        self._rows, self._layout = rows, layout

    def read(self, size: int, rest_of_line: int = 0) -> bytes:
        text = io.StringIO()
        writer = csv.writer(text, delimiter=self._layout.delimiter, lineterminator="\n")
        for row in self._rows:
            # one that cannot be read has a column too many, and is refused as that
            values = (
                [""] * (len(self._layout.names) + 1)
                if row is None
                else [_text(_at(row, name)) for name in self._layout.names]
            )
            writer.writerow(values)
            if text.tell() >= size:
                break
        return text.getvalue().encode("utf-8", "replace")


def _at(row: Mapping[str, Any], name: str) -> Any:
    if name in row:
        return row[name]
    value: Any = row
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.isoformat(" ")
    if isinstance(value, timedelta):
        return str(value.total_seconds())
    return re.sub(r"[\r\n\0]", " ", value if isinstance(value, str) else json.dumps(value))


def _rows(file: MeteredFile, path: Path, where: str) -> Iterator[Mapping[str, Any] | None] | None:
    """Return the rows of a file of Parquet, JSON or JSON lines as mappings; None for a row that
    cannot be read. Return None if the file is delimited text."""
    start = head(path)
    if start.startswith(b"PAR1"):
        return _of_parquet(path)
    if not start.lstrip().startswith((b"{", b"[")):
        return None
    if where or start.lstrip().startswith(b"["):
        return iter(_of_document(file, path, where))
    return _of_lines(file)


def _of_parquet(path: Path) -> Iterator[Mapping[str, Any]]:
    import pyarrow.parquet as pq

    try:
        with arrow_file(path) as file:
            for batch in pq.ParquetFile(file).iter_batches():
                yield from batch.to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise TraceError(f"{path.name}: cannot be read as Parquet ({error})") from None


def _of_lines(file: MeteredFile) -> Iterator[Mapping[str, Any] | None]:
    for block in blocks(file):
        for line in block.data.splitlines():
            yield _object(line)


def _object(line: bytes) -> Mapping[str, Any] | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _of_document(file: MeteredFile, path: Path, where: str) -> Iterable[Mapping[str, Any] | None]:
    data = file.read(MOST_BYTES)
    if file.read(1):
        raise TraceError(f"{path.name}: a JSON document of more than 2 GiB")
    try:
        found: Any = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{path.name}: is no JSON ({error})") from None
    for part in filter(None, where.split(".")):
        found = found.get(part) if isinstance(found, Mapping) else None
    if not isinstance(found, list):
        raise TraceError(f"{path.name}: there is no list at {where or 'its top'}")
    return [one if isinstance(one, dict) else None for one in found]


def _names(path: Path, delimiter: str, where: str) -> list[str]:
    """Return the names of a file's columns, from the start of the file; [] if a Parquet file cannot
    be read."""
    start = head(path)
    if start.startswith(b"PAR1"):
        import pyarrow.parquet as pq

        try:
            with arrow_file(path) as file:
                return list(pq.read_schema(file).names)
        except (pa.ArrowException, OSError):
            return []
    if start.lstrip().startswith((b"{", b"[")):
        text = start.decode("utf-8", "replace")
        return re.findall(r'"([\w.-]{1,80})"\s{0,4}:', text) if not where or where in text else []
    return split_header(start.split(b"\n", 1)[0], delimiter)


# --- descriptions ---------------------------------------------------------------------------------


def described(path: Path) -> type[Described]:
    """Return the trace format that the YAML file at `path` describes. Raise TraceError, with a
    message of one line, if the description is wrong."""
    import yaml

    try:
        found = yaml.safe_load(read_given(path))
    except (OSError, yaml.YAMLError, ValueError, RecursionError) as error:
        raise TraceError(f"{path}: is no description of a trace ({error})") from None
    if not isinstance(found, dict) or not isinstance(found.get("columns"), dict):
        raise TraceError(f"{path}: a description of a trace needs `columns:`, by field")
    return _format(found, str(path))


def _format(found: Mapping[str, Any], where: str) -> type[Described]:
    odd = sorted({*map(str, found)} - _TOP)
    if odd:
        raise TraceError(f"{where}: {odd[0]!r} is none of {', '.join(sorted(_TOP))}")
    fields = {str(field): _how(str(field), how, where) for field, how in found["columns"].items()}
    for needed in ("gpus", "submit_time"):
        if needed not in fields:
            raise TraceError(f"{where}: columns: {needed} is missing")
    given = found.get("states") or {}
    try:
        known = {str(name): State(str(state)) for name, state in given.items()}
    except (ValueError, AttributeError):
        accepted = ", ".join(State)
        raise TraceError(f"{where}: states: each is one of {accepted}") from None
    sources = {source: field for field, how in fields.items() for source in _sources(how)}
    optional = {
        s
        for how in fields.values()
        if "default" in how or not how.get("required", True)
        for s in _sources(how)
    }
    columns = tuple(Column(s, s, "text", s not in optional) for s in sources)
    clocks = any(f in TIMES and how.get("unit") in (None, "clock") for f, how in fields.items())
    zone = check_zone(str(found["timezone"])) if "timezone" in found else "UTC"
    return type(
        "Described",
        (Described,),
        {
            "name": str(found.get("name", Path(where).stem)),
            "version": int(found.get("version", 1)),
            "title": str(found.get("title", "described trace")),
            "timezone": zone if clocks else None,
            "origin": _origin(found, fields, where),
            "line_ids": "job_id" not in fields,
            "delimiter": str(found.get("delimiter", ",")),
            "header": tuple(map(str, found.get("header") or ())),
            "needs": tuple(map(str, found.get("needs") or ())),
            "rows": str(found.get("rows", "")),
            "states": known,
            "columns": columns,
            "fields": fields,
            "__module__": __name__,
        },
    )


def _how(field: str, how: Any, where: str) -> Mapping[str, Any]:
    """Return the description of one field, by keyword. Raises TraceError if it is not valid.

    Args:
        field: name of the field of the schema.
        how: the name of a column, or a mapping, as parsed from YAML.
        where: name of the file, for messages.
    """
    if field not in FIELDS:
        raise TraceError(f"{where}: columns: {field!r} is none of {', '.join(sorted(FIELDS))}")
    how = {str(k): v for k, v in how.items()} if isinstance(how, dict) else {"column": str(how)}
    if {*how} - _HOW or len({"column", "product", "value"} & {*how}) != 1:
        raise TraceError(
            f"{where}: columns: {field}: give a column, a product or a value, and of "
            "unit, pattern and default what it needs"
        )
    units = MEMORY if field == "memory_mib" else {**SCALES, "clock": 1.0}
    if "unit" in how and how["unit"] not in units:
        raise TraceError(
            f"{where}: columns: {field}: unit is {how['unit']!r}; there are {', '.join(units)}"
        )
    return dict(how)


def _origin(found: Mapping[str, Any], fields: Mapping[str, Any], where: str) -> datetime | None:
    offsets = {"s", "ms", "us", "min", "h"}
    if not any(f in TIMES and how.get("unit") in offsets for f, how in fields.items()):
        return None
    text = str(found.get("origin", "2000-01-01T00:00:00Z"))
    try:
        origin = datetime.fromisoformat(text)
    except ValueError:
        raise TraceError(f"{where}: origin: {text!r} is no instant") from None
    return origin if origin.tzinfo else origin.replace(tzinfo=UTC)


@cache
def shipped() -> dict[str, type[Adapter]]:
    """Return the described formats that come with this package, by name."""
    found = [described(path) for path in sorted(MAPS.glob("*.yaml"))]
    return {one.name: one for one in found}
