"""Converts an adapter's columns to `TRACE_SCHEMA`: computes derived fields such as the duration,
and refuses impossible rows.

Every reason for which a row is refused, and every warning, is listed in ``docs/trace-formats.md``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from features.job import COUNTERS
from features.schema import LABEL, TIME, TRACE_SCHEMA, State
from pipeline.traces.base import Batch, Reject, add
from pipeline.traces.cast import Mask, constant_label, floats, from_floats, mask
from pipeline.traces.delimited import Frame

# The oldest public job log in use (NASA iPSC, 1993) is inside; a 40-year-old date is a mistake.
EARLIEST = datetime(1990, 1, 1, tzinfo=UTC)
LATEST = datetime(2100, 1, 1, tzinfo=UTC)
MAX_GPUS = 100_000
MAX_COUNT = 2**31 - 1
MAX_DURATION_S = 10 * 366 * 86_400.0
# Recorded durations are compared to the second: sources round differently.
TOLERANCE_S = 1.0

_REQUIRED = ("job_id", "gpus", "submit_time")
_TIMES = ("submit_time", "eligible_time", "start_time", "end_time")
_ALIVE = (State.RUNNING.value, State.PENDING.value)
# Not negative, at most so much, whole numbers or not.
_RANGES: dict[str, tuple[float, bool]] = {
    "nodes": (MAX_COUNT, True),
    "cpus": (MAX_COUNT, False),
    "memory_mib": (1e15, False),
    "gpu_util_pct": (100.0, False),
    "gpu_mem_util_pct": (100.0, False),
    "gpu_mem_mib": (1e9, False),
    **{name: (most, False) for name, most in COUNTERS.items()},
    "batch_size": (MAX_COUNT, True),
    "exit_code": (MAX_COUNT, True),
}

Floats = npt.NDArray[np.float64]


@dataclass(slots=True)
class Draft:
    """Rows of one block of a source that are being converted to the trace schema and checked.

    Attributes:
        columns: arrays by field of the schema, all of one length; a field without an array is null.
            Numbers may be any numeric type. Columns that are no schema field are ignored.
        lines: line number of each row in the source.
        source: name of the source file.
        text: function that returns the raw text of a line, given its number.
        rejects: rows that were already refused.
        skipped, warnings: as in ``Batch``.
        without_gpus: whether jobs without GPUs are kept.
    """

    columns: dict[str, pa.Array]
    lines: npt.NDArray[np.int64]
    source: str
    text: Callable[[int], str]
    rejects: list[Reject] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    warnings: Counter[str] = field(default_factory=Counter)
    without_gpus: bool = False
    _odd: list[tuple[str, Mask]] = field(default_factory=list)
    _reasons: list[str] = field(default_factory=list)
    _verdict: npt.NDArray[np.int16] | None = None

    @classmethod
    def of(cls, frame: Frame, source: str, text: Callable[[int], str]) -> Draft:
        """Return a draft with the rows of a parsed block; rows with values of the wrong kind are
        refused."""
        draft = cls(
            columns=frame.columns,
            lines=frame.lines,
            source=source,
            text=text,
            rejects=list(frame.rejects),
        )
        for name, wrong in frame.bad.items():
            draft.refuse(wrong, f"bad_{name}")
        return draft

    def __len__(self) -> int:
        return len(self.lines)

    def refuse(self, wrong: Any, reason: str) -> None:
        """Mark the rows in the mask ``wrong`` as refused, for ``reason``. A row keeps the first
        reason given."""
        rows = mask(wrong)
        if not rows.any():
            return
        if self._verdict is None:
            self._verdict = np.zeros(len(self), np.int16)
        self._reasons.append(reason)
        self._verdict[rows & (self._verdict == 0)] = len(self._reasons)

    def skip(self, rows: Any, kind: str) -> None:
        """Remove the rows in the mask `rows`, which are valid but stand for no job of their own
        (such as job steps), and count them under `kind`."""
        left_out = mask(rows)
        if not left_out.any():
            return
        self.skipped[kind] += int(left_out.sum())
        keep = pa.array(~left_out)
        self.columns = {name: values.filter(keep) for name, values in self.columns.items()}
        self.lines = self.lines[~left_out]
        self._odd = [(code, odd[~left_out]) for code, odd in self._odd]
        if self._verdict is not None:
            self._verdict = self._verdict[~left_out]

    def warn(self, rows: Any, code: str) -> None:
        """Record a warning for rows that are doubtful but kept. Rows that are refused in the end
        are not counted in it."""
        odd = mask(rows)
        if odd.any():
            self._odd.append((code, odd))

    def number(self, name: str) -> Floats:
        """Return a numeric column of the trace as float64, with NaN where the value is unknown;
        all NaN if there is no such column."""
        values = self.columns.get(name)
        return np.full(len(self), np.nan) if values is None else floats(values)

    def millis(self, name: str) -> Floats:
        """Return a time column as milliseconds since 1970, exactly; NaN where it is unknown."""
        values = self.columns.get(name)
        if values is None:
            return np.full(len(self), np.nan)
        return floats(pc.cast(values, pa.int64()))

    def batch(self) -> Batch:
        """Run all checks on the rows, and return them as a batch."""
        rows = len(self) + len(self.rejects) + sum(self.skipped.values())
        _check_required(self)
        _check_numbers(self)
        _check_times(self)
        _derive_duration(self)
        rejects = list(self.rejects)
        columns, lines = self.columns, self.lines
        if self._verdict is not None and self._verdict.any():
            for index in np.flatnonzero(self._verdict):
                line = int(lines[index])
                why = self._reasons[self._verdict[index] - 1]
                rejects.append(Reject(self.source, line, why, self.text(line)))
            sound = pa.array(self._verdict == 0)
            columns = {name: values.filter(sound) for name, values in columns.items()}
            lines = lines[self._verdict == 0]
            rejects.sort(key=lambda reject: reject.line)
        warnings: Counter[str] = Counter()
        add(warnings, self.warnings)
        for code, odd in self._odd:
            kept = odd if self._verdict is None else odd & (self._verdict == 0)
            add(warnings, {code: int(kept.sum())})
        jobs = _table(columns, lines)
        return Batch(
            rows=rows,
            jobs=jobs,
            rejects=rejects,
            skipped=self.skipped,
            warnings=warnings,
            text=self.text,
            source=self.source,
        )


def _check_required(draft: Draft) -> None:
    lacking = sorted({*_REQUIRED} - draft.columns.keys())
    if lacking:
        raise TypeError(
            f"{draft.source}: its adapter gives no column {', '.join(lacking)}; "
            "docs/adding-a-trace-format.md says what stands in for one that the file lacks"
        )
    for name in _REQUIRED:
        draft.refuse(pc.is_null(draft.columns[name]), f"missing_{name}")
    if "state" not in draft.columns:
        draft.columns["state"] = constant_label(State.UNKNOWN.value, len(draft))


def _check_numbers(draft: Draft) -> None:
    gpus = draft.number("gpus")
    with np.errstate(invalid="ignore"):
        draft.refuse((gpus < 0) | (gpus != np.floor(gpus)) & ~np.isnan(gpus), "bad_gpus")
        if not draft.without_gpus:
            draft.refuse(gpus == 0, "no_gpu")
        draft.refuse(gpus > MAX_GPUS, "implausible_gpus")
        share = draft.number("gpu_share")
        draft.refuse((share <= 0) | (share > 1), "bad_gpu_share")
        for name, (most, whole) in _RANGES.items():
            if name in draft.columns:
                values = draft.number(name)
                wrong = (values < 0) | (values > most)
                if whole:
                    wrong |= (values != np.floor(values)) & ~np.isnan(values)
                draft.refuse(wrong, f"bad_{name}")
        for name in ("recorded_duration_s", "time_limit_s"):
            if name in draft.columns:
                values = draft.number(name)
                draft.refuse(values < 0, "negative_duration" if name[0] == "r" else f"bad_{name}")
                draft.refuse(values > MAX_DURATION_S, "implausible_duration")
    if "nodes" in draft.columns:
        nodes = draft.number("nodes")
        draft.columns["nodes"] = from_floats(np.where(nodes == 0, np.nan, nodes))


def _check_times(draft: Draft) -> None:
    times = {name: draft.millis(name) for name in _TIMES}
    earliest, latest = EARLIEST.timestamp() * 1000, LATEST.timestamp() * 1000
    with np.errstate(invalid="ignore"):
        for name, values in times.items():
            draft.refuse((values < earliest) | (values >= latest), f"implausible_{name}")
        draft.refuse(times["start_time"] < times["submit_time"], "start_before_submit")
        draft.refuse(times["end_time"] < times["start_time"], "end_before_start")
        draft.refuse(times["end_time"] < times["submit_time"], "end_before_submit")
        ran = (times["end_time"] - times["start_time"]) / 1000
        draft.refuse(ran > MAX_DURATION_S, "implausible_duration")


def _derive_duration(draft: Draft) -> None:
    """Set ``duration_s`` of each row to end - start, or to the recorded duration if one of
    these is unknown; null for a job that has not ended. Add a warning where the recorded
    duration differs."""
    submit, start, end = (draft.millis(n) for n in ("submit_time", "start_time", "end_time"))
    recorded = draft.number("recorded_duration_s")
    ran = (end - start) / 1000
    with np.errstate(invalid="ignore"):
        differs = np.abs(recorded - ran) > TOLERANCE_S
        since_submit = differs & (np.abs(recorded - (end - submit) / 1000) <= TOLERANCE_S)
    draft.warn(since_submit, "duration_counts_waiting")
    draft.warn(differs & ~since_submit, "duration_differs")
    state = draft.columns["state"]
    alive = mask(pc.is_in(state.dictionary, pa.array(_ALIVE)).take(state.indices))
    # What a running job has run so far is no duration.
    duration = np.where(np.isnan(ran), np.where(alive & np.isnan(end), np.nan, recorded), ran)
    draft.warn(duration == 0, "zero_duration")
    draft.columns["duration_s"] = from_floats(duration)


def _table(columns: Mapping[str, Any], lines: npt.NDArray[np.int64]) -> pa.Table:
    arrays = []
    for schema_field in TRACE_SCHEMA:
        name, kind = schema_field.name, schema_field.type
        if name == "source_line":
            arrays.append(pa.array(lines, pa.int64()))
        elif name not in columns:
            arrays.append(pa.nulls(len(lines), kind))
        else:
            arrays.append(_as(columns[name], kind))
    return pa.table(arrays, schema=TRACE_SCHEMA)


def _as(values: Any, kind: pa.DataType) -> Any:
    if values.type == kind:
        return values
    if kind == LABEL and not pa.types.is_dictionary(values.type):
        return pc.cast(pc.dictionary_encode(values), LABEL)
    if kind == TIME or not pa.types.is_floating(kind):
        return pc.cast(values, kind)
    return pc.cast(values, kind, safe=False)
