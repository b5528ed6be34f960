"""The Standard Workload Format 2.2 of the Parallel Workloads Archive, in and out.

https://www.cs.huji.ac.il/labs/parallel/workload/swf.html. The format knows processors, not GPUs: on
the way in a processor counts as a GPU, on the way out a GPU is written as a processor.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.files import write_whole
from features.schema import LABEL, State
from pipeline.traces.base import HEAD_BYTES, Adapter, Batch, Options, TraceError, head
from pipeline.traces.cast import floats, from_floats, map_unique, offset_times
from pipeline.traces.check import Draft
from pipeline.traces.delimited import Column, Layout, parse
from pipeline.traces.text import Block, blocks

_NAMES = (
    *("job", "submit", "wait", "run", "processors", "cpu_time", "memory_kb"),
    *("requested", "requested_time", "requested_memory_kb", "status", "user", "group"),
    *("executable", "queue", "partition", "preceding", "think_time"),
)
_FIELDS = {"job": "job_id", "submit": "submit_time", "run": "recorded_duration_s"}
_TEXTS = ("job", "user", "executable", "queue", "partition")

_STATES = {
    1: State.COMPLETED,
    0: State.FAILED,
    5: State.CANCELLED,
    -1: State.UNKNOWN,
}
# Status 2, 3, 4: one part of a job that was swapped out; the whole job has a line of its own.
_PARTS = (2, 3, 4)
_STATUS = {State.COMPLETED: 1, State.CANCELLED: 5} | dict.fromkeys(
    (State.FAILED, State.TIMEOUT, State.NODE_FAIL, State.OUT_OF_MEMORY, State.PREEMPTED), 0
)

_HEADER = re.compile(r"^;\s*(\w+):\s*(.*?)\s*$", re.MULTILINE)
_SPACES = re.compile(rb"[ \t]+")
# Blank out comments and white space at either end of a line, keeping the line itself.
_EDGES = re.compile(rb"^(?:[ \t]*;[^\n]*|[ \t]+)|[ \t\r]+$", re.MULTILINE)


class Swf(Adapter):
    """Eighteen numbers a line; ``;`` starts a header comment; -1 means unknown.

    ``gpus`` are the processors requested, else those allocated. ``vc`` is the queue, else the
    partition; queue and partition go by the name their header line gives them, if there is one.
    ``UnixStartTime`` of the header is the origin; a file without it needs one declared.
    """

    name = "swf"
    version = 1
    title = "Standard Workload Format 2.2"
    origin = datetime(2000, 1, 1, tzinfo=UTC)

    def sniff(self, path: Path) -> float:
        start = head(path)
        lines = start.decode("utf-8", "replace").splitlines()
        if len(start) > HEAD_BYTES - 4:
            lines.pop()  # may be cut
        rows = [line.split() for line in lines if line.strip() and line.lstrip()[0] != ";"]
        if rows:
            sound = sum(len(row) == len(_NAMES) and _numeric(row) for row in rows[:50])
            return 0.9 * sound / len(rows[:50])
        header = any(line.startswith(";") for line in lines)
        return 0.5 if header and "UnixStartTime" in "".join(lines) else 0.0

    def read(self, path: Path, options: Options) -> Iterator[Batch]:
        columns = tuple(
            Column(name, _FIELDS.get(name, name), "text" if name in _TEXTS else "number")
            for name in _NAMES
        )
        layout = Layout(_NAMES, columns, " ", quotes=False)
        header = _Header(options)
        with options.meter.open(path) as file:
            seen = False
            for block in blocks(file):
                if not seen:
                    header.read(block)
                    if not self.sniff(path):
                        raise TraceError(f"{path.name} as swf: no line of {len(_NAMES)} numbers")
                seen = True
                data = _SPACES.sub(b" ", _EDGES.sub(b"", block.data))
                frame = parse(block, layout, path.name, data)
                yield _convert(Draft.of(frame, path.name, block.text), header)
            if not seen:
                raise TraceError(f"{path.name}: is empty")


def _numeric(row: list[str]) -> bool:
    try:
        return all(np.isfinite(float(value)) for value in row)
    except ValueError:
        return False


class _Header:
    """What the comments at the top of a file say."""

    def __init__(self, options: Options) -> None:
        self.origin = options.origin
        self.assumed = not options.origin_declared
        self.names: dict[str, dict[str, str]] = {"Queue": {}, "Partition": {}}

    def read(self, block: Block) -> None:
        for key, value in _HEADER.findall(block.data[: 1 << 20].decode("utf-8", "replace")):
            if key == "UnixStartTime" and re.fullmatch(r"-?\d{1,11}", value):
                self.origin = datetime.fromtimestamp(int(value), UTC)
                self.assumed = False
            elif key in self.names and " " in value:
                number, name = value.split(None, 1)
                self.names[key][number] = name


def _convert(draft: Draft, header: _Header) -> Batch:
    columns = draft.columns
    draft.skip(np.isin(draft.number("status"), _PARTS), "part_of_job")
    columns = draft.columns
    submit, wait = draft.number("submit_time"), _known(draft, "wait")
    run = _known(draft, "recorded_duration_s")
    with np.errstate(invalid="ignore"):
        draft.refuse(wait < 0, "start_before_submit")
    columns["submit_time"] = offset_times(from_floats(submit), header.origin)
    columns["start_time"] = offset_times(from_floats(submit + wait), header.origin)
    columns["end_time"] = offset_times(from_floats(submit + wait + run), header.origin)
    columns["recorded_duration_s"] = from_floats(run)
    gpus = _known(draft, "requested", "processors")
    columns["gpus"] = from_floats(gpus)
    columns["time_limit_s"] = from_floats(_known(draft, "requested_time"))
    columns["memory_mib"] = from_floats(_known(draft, "requested_memory_kb") * gpus / 1024)
    columns["user"] = _names(columns["user"], {})
    columns["name"] = pc.cast(_names(columns["executable"], {}), pa.string())
    partition = _names(columns["partition"], header.names["Partition"])
    columns["gpu_type"] = partition if header.names["Partition"] else pa.nulls(len(draft), LABEL)
    queue = pc.cast(_names(columns["queue"], header.names["Queue"]), pa.string())
    columns["vc"] = pc.coalesce(queue, pc.cast(partition, pa.string()))
    _map_status(draft)
    if header.assumed:
        draft.warn(np.ones(len(draft), bool), "origin_assumed")
    return draft.batch()


def _map_status(draft: Draft) -> None:
    status = draft.number("status")
    known = np.isin(status, list(_STATES))
    draft.warn(~known, "unknown_state")
    names = [str(_STATES.get(int(s), State.UNKNOWN)) for s in np.where(known, status, -1)]
    draft.columns["state"] = pc.dictionary_encode(pa.array(names, pa.string()))


def _known(draft: Draft, *names: str) -> Any:
    """The first of these fields that is not -1."""
    values = np.full(len(draft), np.nan)
    for name in names:
        field = draft.number(name)
        values = np.where(np.isnan(values) & (field != -1), field, values)
    return values


def _names(numbers: Any, names: dict[str, str]) -> Any:
    """Numbers as labels, by name where there is one; -1 is null."""
    return map_unique(numbers, lambda n: None if n == "-1" else names.get(n, n), LABEL)


def write_swf(table: pa.Table, path: Path, *, note: str = "") -> None:
    """Write jobs as SWF 2.2, in the order of the table; the file appears whole or not at all.

    What the format has no field for is lost: GPU shares, attempts, profiles, names, and which way
    a job failed. Users, names, VCs and GPU types become numbers from 1 in order of appearance; VCs
    and GPU types are named in the header (as queues and partitions). Job ids stay if they are
    distinct whole numbers, else they are counted from 1. Times are whole seconds where they are so
    in the table, else they have three decimals.

    Args:
        table: in ``TRACE_SCHEMA``.
        path: file to write.
        note: one line for the header.

    Raises:
        TraceError: the table holds no job.
    """
    if not len(table):
        raise TraceError("SWF: there is no job to write")
    submit, start, end = (_millis(table, n) for n in ("submit_time", "start_time", "end_time"))
    origin = np.floor(np.nanmin(submit) / 1000)
    numbered = {name: _numbered(table[name]) for name in ("user", "name", "vc", "gpu_type")}
    gpus = floats(table["gpus"])
    memory = floats(table["memory_mib"]) * 1024 / gpus
    duration = floats(table["duration_s"])
    run = np.where(np.isnan(end - start), duration, (end - start) / 1000)
    unknown = ["-1"] * len(table)
    status = [str(_STATUS.get(State(s), -1)) for s in table["state"].to_pylist()]
    columns = [
        _job_numbers(table["job_id"]),
        _decimals(submit / 1000 - origin),
        _decimals((start - submit) / 1000),
        _decimals(run),
        _decimals(gpus),
        unknown,
        unknown,
        _decimals(gpus),
        _decimals(floats(table["time_limit_s"])),
        _decimals(memory),
        status,
        numbered["user"][0],
        unknown,
        numbered["name"][0],
        numbered["vc"][0],
        numbered["gpu_type"][0],
        unknown,
        unknown,
    ]
    lines = _header_lines(len(table), int(origin), note, numbered)
    lines += [" ".join(row) for row in zip(*columns, strict=True)]
    try:
        write_whole(path, "\n".join(lines) + "\n", folders=False)
    except OSError as error:
        raise TraceError(f"{path}: cannot be written ({error.strerror})") from error


def _header_lines(jobs: int, origin: int, note: str, numbered: dict[str, Any]) -> list[str]:
    lines = [
        "; Version: 2.2",
        f"; MaxJobs: {jobs}",
        f"; MaxRecords: {jobs}",
        f"; UnixStartTime: {origin}",
        "; TimeZoneString: UTC",
        "; Note: processors are GPUs",
    ]
    if note:
        lines.append("; Note: " + " ".join(note.split()))
    for kind, plural, field in (("Queue", "Queues", "vc"), ("Partition", "Partitions", "gpu_type")):
        names = numbered[field][1]
        lines.append(f"; {plural}: {len(names)}")
        lines += [f"; {kind}: {i} {' '.join(name.split())}" for i, name in enumerate(names, 1)]
    return lines


def _millis(table: pa.Table, name: str) -> Any:
    return floats(pc.cast(table[name], pa.int64()))


def _decimals(values: Any) -> list[str]:
    return ["-1" if v != v else str(int(v)) if v == int(v) else f"{v:.3f}" for v in values.tolist()]


def _numbered(column: Any) -> tuple[list[str], list[str]]:
    numbers: dict[str, int] = {}
    codes = [
        "-1" if value is None else str(numbers.setdefault(value, len(numbers) + 1))
        for value in column.to_pylist()
    ]
    return codes, list(numbers)


def _job_numbers(column: Any) -> list[str]:
    ids: list[str] = column.to_pylist()
    if all(re.fullmatch(r"[1-9]\d{0,17}", job) for job in ids) and len(set(ids)) == len(ids):
        return ids
    return [str(i) for i in range(1, len(ids) + 1)]
