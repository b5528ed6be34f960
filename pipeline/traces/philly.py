"""Reads the trace of Microsoft's Philly (Jeon et al., ATC'19): ``cluster_job_log``, a JSON list of
jobs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.schema import ATTEMPT, State
from pipeline.traces.base import Adapter, Batch, Options, Reject, head, shorten
from pipeline.traces.cast import NAIVE, blank_to_null, cast_or_null, labels, localise, mask, states
from pipeline.traces.check import Draft
from pipeline.traces.elements import Element, elements

BATCH_JOBS = 20_000
_STATES = {"Pass": State.COMPLETED, "Killed": State.CANCELLED, "Failed": State.FAILED}
_RUNNING = "still running"


class Philly(Adapter):
    """Reads Philly's jobs. A job has a list of attempts to run it; its GPUs are listed in the
    attempts' detail.

    The start is that of the first attempt, the end that of the last; if the last attempt has no
    end, the job was still running. ``duration_s`` is end - start, gaps between attempts included:
    the attempts are kept in a column of their own. Times are clock times of the US Pacific coast,
    without zone: in the hour that the clock repeats on 2017-11-05, the order of submission, start
    and end decides which hour is meant, otherwise the first; the times concerned are counted
    (``clock_change_time``). ``source_line`` is the job's number in the list, from 1.
    """

    name = "philly"
    version = 1
    title = "Philly cluster_job_log (JSON)"
    timezone = "America/Los_Angeles"

    def sniff(self, path: Path) -> float:
        start = head(path).lstrip()
        likely = start.startswith(b"[") and b'"attempts"' in start and b'"jobid"' in start
        return 1.0 if likely else 0.0

    def read(self, path: Path, options: Options) -> Iterator[Batch]:
        with options.meter.open(path) as file:
            rows = _Rows(path.name)
            for element in elements(file, path.name, first_keys=_KEYS):
                rows.take(element)
                if len(rows) >= BATCH_JOBS:
                    yield rows.batch(options)
                    rows = _Rows(path.name)
            yield rows.batch(options)


_KEYS = ("status", "vc", "jobid", "attempts", "submitted_time", "user")


@dataclass(slots=True)
class _Attempts:
    starts: list[str | None] = field(default_factory=list)
    ends: list[str | None] = field(default_factory=list)
    gpus: list[int | None] = field(default_factory=list)


class _Rows:
    """The jobs of one batch as Python lists, one list per column."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.lines: list[int] = []
        self.texts: dict[int, str] = {}
        self.rejects: list[Reject] = []
        self.columns: dict[str, list[Any]] = {name: [] for name in _COLUMNS}
        self.attempts = _Attempts()
        self.lengths: list[int] = []
        self.varies: list[bool] = []

    def __len__(self) -> int:
        return len(self.lines) + len(self.rejects)

    def take(self, element: Element) -> None:
        """Add one element of the source's list to the batch, as a job or as a refused row."""
        reason = element.fault or self._add(element.value, element.number)
        if reason:
            self.rejects.append(Reject(self.source, element.number, reason, shorten(element.text)))
        else:
            self.texts[element.number] = shorten(element.text)

    def _add(self, job: Any, line: int) -> str | None:
        if not isinstance(job, dict):
            return "not_an_object"
        for key in ("status", "vc", "jobid", "submitted_time", "user"):
            if not (job.get(key) is None or isinstance(job[key], str)):
                return f"bad_{_NAMES.get(key, key)}"
        try:
            attempts = [_attempt(attempt) for attempt in job.get("attempts") or []]
        except (TypeError, KeyError, AttributeError):
            return "bad_attempts"
        counts = [gpus for _, _, gpus, _ in attempts if gpus is not None]
        still_running = bool(attempts) and _unknown(attempts[-1][1])
        row = {
            "job_id": job.get("jobid") or None,
            "user": job.get("user") or None,
            "vc": job.get("vc") or None,
            "gpus": max(counts, default=None),
            "nodes": max((nodes for *_, nodes in attempts if nodes), default=None),
            "state": _RUNNING if still_running else job.get("status"),
            "submit_time": job.get("submitted_time"),
        }
        for name, value in row.items():
            self.columns[name].append(value)
        for start, end, gpus, _ in attempts:
            self.attempts.starts.append(start)
            self.attempts.ends.append(end)
            self.attempts.gpus.append(gpus)
        self.lengths.append(len(attempts))
        self.varies.append(len(set(counts)) > 1)
        self.lines.append(line)
        return None

    def batch(self, options: Options) -> Batch:
        columns = {name: pa.array(self.columns[name], kind) for name, kind in _COLUMNS.items()}
        draft = Draft(
            columns=columns,
            lines=np.array(self.lines, np.int64),
            source=self.source,
            text=self.texts.__getitem__,
            rejects=self.rejects,
        )
        for name in ("user", "vc"):
            columns[name] = labels(self.columns[name])
        columns["state"], odd = states(columns["state"], _STATES | {_RUNNING: State.RUNNING})
        draft.warnings.update(odd)
        draft.warn(np.array(self.varies, bool), "gpu_count_varies")
        columns["submit_time"] = _clock(draft, columns["submit_time"], "submit_time", options)
        self._attempt_times(draft, options)
        return draft.batch()

    def _attempt_times(self, draft: Draft, options: Options) -> None:
        lengths = np.array(self.lengths, np.int64)
        job = np.repeat(np.arange(len(lengths)), lengths)
        after = draft.columns["submit_time"].take(pa.array(job))
        starts, bad_starts, moved = _localised(self.attempts.starts, options, after)
        after = pc.coalesce(starts, after)
        ends, bad_ends, moved_ends = _localised(self.attempts.ends, options, after)
        draft.warnings["clock_change_time"] += moved + moved_ends
        reversed_ = mask(pc.less(ends, starts))
        faults = {
            "bad_start_time": bad_starts,
            "bad_end_time": bad_ends,
            "end_before_start": reversed_,
        }
        for reason, wrong in faults.items():
            draft.refuse(np.bincount(job[wrong], minlength=len(lengths)) > 0, reason)
        bounds = np.concatenate([[0], np.cumsum(lengths)])
        kinds = [ATTEMPT.field(i) for i in range(ATTEMPT.num_fields)]
        gpus = pa.array(self.attempts.gpus, pa.int32())
        attempts = pa.StructArray.from_arrays([starts, ends, gpus], fields=kinds)
        draft.columns["attempts"] = pa.ListArray.from_arrays(pa.array(bounds, pa.int32()), attempts)
        none = lengths == 0
        first, last = bounds[:-1], bounds[1:] - 1
        draft.columns["start_time"] = starts.take(pa.array(first, mask=none))
        draft.columns["end_time"] = ends.take(pa.array(last, mask=none))


_COLUMNS = {
    "job_id": pa.string(),
    "user": pa.string(),
    "vc": pa.string(),
    "gpus": pa.int64(),
    "nodes": pa.int64(),
    "state": pa.string(),
    "submit_time": pa.string(),
}
_NAMES = {"jobid": "job_id", "submitted_time": "submit_time", "status": "state"}


def _attempt(attempt: Any) -> tuple[str | None, str | None, int | None, int | None]:
    """Return (start, end, GPUs, nodes) of an attempt; GPUs and nodes are None if it has no
    detail. Raises TypeError if it is malformed.
    """
    start, end = attempt.get("start_time"), attempt.get("end_time")
    if not all(value is None or isinstance(value, str) for value in (start, end)):
        raise TypeError
    detail = attempt.get("detail")
    if not detail:
        return start, end, None, None
    for node in detail:
        if not isinstance(node["gpus"], list):
            raise TypeError
    return start, end, sum(len(node["gpus"]) for node in detail), len(detail)


def _unknown(time: str | None) -> bool:
    return time is None or time.strip() in ("", "None")


def _clock(draft: Draft, texts: Any, name: str, options: Options) -> Any:
    times, bad, moved = _localised(texts, options, None)
    draft.refuse(bad, f"bad_{name}")
    draft.warnings["clock_change_time"] += moved
    return times


def _localised(texts: Any, options: Options, after: Any) -> tuple[Any, Any, int]:
    """Return (clock times as UTC, mask of the texts that are no times, number of times in a clock
    change).

    Args:
        texts: clock times as text.
        after: times of the same jobs that these cannot be before.
    """
    known = blank_to_null(pa.array(texts, pa.string()) if isinstance(texts, list) else texts)
    naive = cast_or_null(known, NAIVE)
    times, moved = localise(naive, options.timezone, after)
    return times, mask(pc.and_(pc.is_valid(known), pc.is_null(naive))), moved
