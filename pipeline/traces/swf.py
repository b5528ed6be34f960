"""Reads the Standard Workload Format 2.2 of the Parallel Workloads Archive.

https://www.cs.huji.ac.il/labs/parallel/workload/swf.html. The format knows processors, not GPUs: a
processor counts as a GPU.
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

from features.schema import LABEL, State
from pipeline.traces.base import HEAD_BYTES, Adapter, Batch, Options, TraceError, head
from pipeline.traces.cast import from_floats, map_unique, offset_times
from pipeline.traces.check import EARLIEST, Draft
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
_CANCELLED = 5
# Status 2, 3, 4: one part of a job that was swapped out; the whole job has a line of its own.
_PARTS = (2, 3, 4)

_HEADER = re.compile(r"^;\s*(\w+):\s*(.*)$", re.MULTILINE)
_SPACES = re.compile(rb"[ \t]+")
# Blank out comments and white space at either end of a line, keeping the line itself.
_EDGES = re.compile(
    rb"^(?:[ \t]*;[^\n]*|[ \t]++[ \t\r]*+$|[ \t]+)|(?<![ \t\r])[ \t\r]++$", re.MULTILINE
)


class Swf(Adapter):
    """Reads files with eighteen numbers per line; ``;`` starts a header comment; -1 means unknown.

    ``gpus`` are the processors requested, else those allocated. ``vc`` is the queue, else the
    partition; queues and partitions have the names that the header gives them, if there is one.
    ``UnixStartTime`` of the header is the origin, unless one is declared; for a file without
    it, or with 0 as converters write it, the year 2000 is assumed, with a warning
    (``origin_assumed``). Submission times that are already Unix times are read as such
    (``absolute_times``). A job that was cancelled in the queue never started; its wait is the
    time until the cancellation."""

    name = "swf"
    version = 2
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
                    header.check(_first_submits(block))
                    if not self.sniff(path):
                        raise TraceError(f"{path.name} as swf: no line of {len(_NAMES)} numbers")
                seen = True
                data = _SPACES.sub(b" ", _EDGES.sub(b"", block.data))
                frame = parse(block, layout, path.name, data)
                yield _convert(Draft.of(frame, path.name, block.text), header)
            if not seen:
                raise TraceError(f"{path.name}: is empty")


def _first_submits(block: Block) -> list[float]:
    """Return the submission times of the first jobs in the block, as written in the file."""
    found = []
    for line in block.data[:HEAD_BYTES].split(b"\n")[:-1]:
        row = line.decode("utf-8", "replace").split()
        if len(row) == len(_NAMES) and _numeric(row):
            found.append(float(row[1]))
    return found


def _numeric(row: list[str]) -> bool:
    try:
        return all(np.isfinite(float(value)) for value in row)
    except ValueError:
        return False


class _Header:
    """The comments at the top of a file: origin, and names of queues and partitions."""

    def __init__(self, options: Options) -> None:
        self.origin = options.origin
        self.assumed = not options.origin_declared
        self.absolute = False
        self._declared = options.origin_declared
        self.names: dict[str, dict[str, str]] = {"Queue": {}, "Partition": {}}

    def read(self, block: Block) -> None:
        for key, value in _HEADER.findall(block.data[: 1 << 20].decode("utf-8", "replace")):
            value = value.strip()
            if key == "UnixStartTime" and re.fullmatch(r"-?\d{1,11}", value):
                start = datetime.fromtimestamp(int(value), UTC)
                if start >= EARLIEST and not self._declared:
                    self.origin, self.assumed = start, False
            elif key in self.names and " " in value:
                number, name = value.split(None, 1)
                self.names[key][number] = name

    def check(self, submits: list[float]) -> None:
        """Read the submission times as seconds since the epoch, not as offsets, if the smallest of
        `submits` is so large that it must be one."""
        if submits and min(submits) >= EARLIEST.timestamp():
            self.origin, self.assumed = datetime(1970, 1, 1, tzinfo=UTC), False
            self.absolute = True


def _convert(draft: Draft, header: _Header) -> Batch:
    columns = draft.columns
    draft.skip(np.isin(draft.number("status"), _PARTS), "part_of_job")
    columns = draft.columns
    submit, wait = draft.number("submit_time"), _known(draft, "wait")
    run = _known(draft, "recorded_duration_s")
    with np.errstate(invalid="ignore"):
        draft.refuse(wait < 0, "start_before_submit")
    never = (
        (draft.number("status") == _CANCELLED)
        & ~(np.nan_to_num(run) > 0)
        & ~(np.nan_to_num(_known(draft, "processors")) > 0)
    )
    draft.warn(never, "never_started")
    ran = np.where(never, 0.0, run)
    columns["submit_time"] = offset_times(from_floats(submit), header.origin)
    columns["start_time"] = offset_times(
        from_floats(np.where(never, np.nan, submit + wait)), header.origin
    )
    columns["end_time"] = offset_times(from_floats(submit + wait + ran), header.origin)
    columns["recorded_duration_s"] = from_floats(np.where(never, np.nan, run))
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
    if header.absolute:
        draft.warn(np.ones(len(draft), bool), "absolute_times")
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
    """Return, for each row, the value of the first of the fields `names` that is not -1; NaN if all
    are."""
    values = np.full(len(draft), np.nan)
    for name in names:
        field = draft.number(name)
        values = np.where(np.isnan(values) & (field != -1), field, values)
    return values


def _names(numbers: Any, names: dict[str, str]) -> Any:
    """Return numbers as labels: the name that `names` gives a number, otherwise the number itself;
    null for -1."""
    return map_unique(numbers, lambda n: None if n == "-1" else names.get(n, n), LABEL)
