"""Reads the trace of Alibaba PAI 2020 (Weng et al., NSDI'22): tables without header lines in a
directory."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.schema import LABEL, TRACE_SCHEMA, State
from pipeline.traces.base import Adapter, Batch, Options, Reject, TraceError
from pipeline.traces.cast import Mask, floats, from_floats, mask, offset_times, states
from pipeline.traces.check import Draft
from pipeline.traces.delimited import Column, Frame, Layout, parse
from pipeline.traces.fingerprints import hash_texts
from pipeline.traces.tables import split_first_line
from pipeline.traces.text import Block, blocks

JOBS, TASKS, TAGS = "pai_job_table.csv", "pai_task_table.csv", "pai_group_tag_table.csv"

_STATES = {
    "Terminated": State.COMPLETED,
    "Failed": State.FAILED,
    "Running": State.RUNNING,
    "Waiting": State.PENDING,
}


def _table(names: str, *columns: Column) -> Layout:
    return Layout(names.split(","), columns)


_LAYOUTS = {
    JOBS: _table(
        "job_name,inst_id,user,status,start_time,end_time",
        Column("job_name", "job_id", "text"),
        Column("inst_id", "inst_id", "text"),
        Column("user", "user"),
        Column("status", "state"),
        Column("start_time", "submit_time", "number"),
        Column("end_time", "end_time", "number"),
    ),
    TASKS: _table(
        "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type",
        Column("job_name", "job_id", "text"),
        Column("inst_num", "instances", "number"),
        Column("start_time", "start_time", "number"),
        Column("plan_cpu", "cpus", "number"),
        Column("plan_mem", "memory", "number"),
        Column("plan_gpu", "gpus", "number"),
        Column("gpu_type", "gpu_type"),
    ),
    TAGS: _table(
        "inst_id,user,gpu_type_spec,group,workload",
        Column("inst_id", "inst_id", "text"),
        Column("gpu_type_spec", "gpu_type_spec"),
        Column("group", "group", "text"),
        Column("workload", "workload"),
    ),
}


class Pai(Adapter):
    """Reads ``pai_job_table.csv`` with ``pai_task_table.csv`` and, if it exists,
    ``pai_group_tag_table.csv``.

    A job consists of its tasks. Its GPUs are instances x GPUs per instance (part of a GPU counts as
    one; ``gpu_share`` is the requested part of each, on average), and its start is that of the
    earliest task. Requests are in percent of a core or GPU and in GiB. ``name`` holds the group of
    similar instances, ``model`` the workload tag.

    The published times are Unix times with a constant taken off that keeps hour and weekday in
    UTC+8; the origin must therefore be a Thursday, 00:00 UTC, like 1970-01-01.

    Rows of jobs are read block by block; tasks and tags are held in memory (1.2 GiB at the peak for
    the full release). The instance, sensor and machine tables are not read.
    """

    name = "pai2020"
    version = 1
    title = "Alibaba PAI 2020 tables (a directory)"
    origin = datetime(2020, 7, 2, tzinfo=UTC)

    def sniff(self, path: Path) -> float:
        return float(path.is_dir() and (path / JOBS).is_file() and (path / TASKS).is_file())

    def files(self, path: Path) -> list[Path]:
        return [path / name for name in (TASKS, TAGS, JOBS) if (path / name).is_file()]

    def read(self, path: Path, options: Options) -> Iterator[Batch]:
        if not path.is_dir():
            raise TraceError(f"{path.name}: pai2020 is a directory that holds {JOBS} and {TASKS}")
        for name in (JOBS, TASKS):
            if not (path / name).is_file():
                raise TraceError(f"{path.name}: has no {name}")
        parts: list[dict[str, pa.Array]] = []
        refused: set[str] = set()
        for frame, _ in _frames(path / TASKS, options):
            batch, sound, faulty = _folded(frame, TASKS, "task", _task_faults(frame))
            parts.append(sound)
            refused.update(frame.columns["job_id"].filter(pa.array(faulty)).to_pylist())
            yield batch
        tasks = _Lookup(_per_job(parts), "job_id")
        parts = []
        if (path / TAGS).is_file():
            for frame, _ in _frames(path / TAGS, options):
                batch, sound, _ = _folded(frame, TAGS, "group_tag", {})
                parts.append(sound)
                yield batch
        tags = _Lookup(_first_per(parts, "inst_id"), "inst_id")
        for frame, block in _frames(path / JOBS, options):
            draft = Draft.of(frame, JOBS, block.text)
            short = pc.is_in(draft.columns["job_id"], pa.array(list(refused), pa.string()))
            draft.refuse(short, "task_refused")
            yield _jobs(draft, tasks, tags, options)


def _frames(path: Path, options: Options) -> Iterator[tuple[Frame, Block]]:
    layout = _LAYOUTS[path.name]
    with options.meter.open(path) as file:
        seen = False
        for block in blocks(file):
            if not seen:
                # People prepend the header that is published beside the tables.
                first, rest = split_first_line(block)
                block = rest if first.strip().split(b",")[0] == layout.names[0].encode() else block
                seen = True
            if block.data:
                yield parse(block, layout, path.name), block
        if not seen:
            raise TraceError(f"{path.name}: is empty")


def _task_faults(frame: Frame) -> dict[str, Mask]:
    """Return masks of the tasks with impossible requests, by fault. The jobs of these tasks are
    refused as well (``task_refused``)."""
    faults = {"missing_job_id": mask(pc.is_null(frame.columns["job_id"]))}
    with np.errstate(invalid="ignore"):
        for name in ("instances", "cpus", "memory", "gpus"):
            values = floats(frame.columns[name])
            faults[f"bad_{name}"] = (values < 0) | (values > 1e15)
    return faults


def _folded(
    frame: Frame, source: str, kind: str, faults: dict[str, Mask]
) -> tuple[Batch, dict[str, pa.Array], Mask]:
    """Split a block of the task or tag table into sound and faulty rows. Sound rows are counted as
    skipped, because they are no jobs of their own; faulty rows are refused.

    Args:
        kind: name under which the sound rows are counted.
        faults: masks of faulty rows, by reason.

    Returns:
        the batch without jobs, the columns of the sound rows, and the mask of the refused rows.
    """
    wrong = np.zeros(len(frame.lines), bool)
    rejects = list(frame.rejects)
    bad = {f"bad_{name}": rows for name, rows in frame.bad.items()}
    for reason, rows in (bad | faults).items():
        for index in np.flatnonzero(rows & ~wrong):
            row = [str(column[index].as_py()) for column in frame.columns.values()]
            rejects.append(Reject(source, int(frame.lines[index]), reason, ",".join(row)))
        wrong |= rows
    sound = {name: values.filter(pa.array(~wrong)) for name, values in frame.columns.items()}
    skipped = {kind: int((~wrong).sum())}
    jobs = TRACE_SCHEMA.empty_table()
    return (
        Batch(
            rows=frame.rows,
            jobs=jobs,
            rejects=rejects,
            skipped=skipped,
            warnings={},
            text=lambda line: "",
            source=source,
        ),
        sound,
        wrong,
    )


def _joined(parts: list[dict[str, pa.Array]], kinds: dict[str, pa.DataType]) -> pa.Table:
    columns = {
        name: pa.chunked_array([pc.cast(part[name], kind) for part in parts], kind)
        for name, kind in kinds.items()
    }
    return pa.table(columns)


def _per_job(parts: list[dict[str, pa.Array]]) -> pa.Table:
    """Return a table with one row per job, its tasks added up. `gpus` are the whole GPUs that it
    holds, `asked` the GPUs that it asked for, with fractions. If its tasks name several GPU types,
    `mixed` is true and `gpu_type` null."""
    numbers = ("instances", "start_time", "cpus", "memory", "gpus")
    kinds = {name: pa.float64() for name in numbers}
    raw = _joined(parts, {"job_id": pa.string(), "gpu_type": pa.string(), **kinds})
    instances = np.nan_to_num(floats(raw["instances"].combine_chunks()), nan=1.0)
    each = floats(raw["gpus"].combine_chunks()) / 100
    asked = np.nan_to_num(each)
    rows = pa.table(
        {
            "job_id": raw["job_id"],
            "whole": instances * np.ceil(asked),
            "asked": instances * asked,
            "cpus": from_floats(instances * floats(raw["cpus"].combine_chunks()) / 100),
            "memory_mib": from_floats(instances * floats(raw["memory"].combine_chunks()) * 1024),
            "start_time": raw["start_time"],
            "gpu_type": pc.if_else(pa.array(asked > 0), raw["gpu_type"], None),
        }
    )
    sums = [(name, "sum") for name in ("whole", "asked", "cpus", "memory_mib")]
    wanted = [*sums, ("start_time", "min"), ("gpu_type", "min"), ("gpu_type", "max")]
    jobs = rows.group_by("job_id", use_threads=False).aggregate(wanted)
    mixed = pc.not_equal(jobs["gpu_type_min"], jobs["gpu_type_max"])
    return pa.table(
        {
            "job_id": jobs["job_id"],
            "gpus": jobs["whole_sum"],
            "asked": jobs["asked_sum"],
            "cpus": jobs["cpus_sum"],
            "memory_mib": jobs["memory_mib_sum"],
            "start_time": jobs["start_time_min"],
            "gpu_type": pc.if_else(pc.fill_null(mixed, False), None, jobs["gpu_type_min"]),
            "mixed": pc.fill_null(mixed, False),
        }
    )


def _first_per(parts: list[dict[str, pa.Array]], key: str) -> pa.Table:
    names = ("gpu_type_spec", "group", "workload")
    raw = _joined(parts, {key: pa.string(), **{name: pa.string() for name in names}})
    first = raw.group_by(key, use_threads=False).aggregate([(name, "first") for name in names])
    return first.rename_columns([name.removesuffix("_first") for name in first.column_names])


class _Lookup:
    """A table with one row per key, which finds the rows of many keys at once."""

    def __init__(self, table: pa.Table, key: str) -> None:
        hashes = hash_texts(table[key].combine_chunks())
        order = np.argsort(hashes, kind="stable")
        self._hashes = hashes[order]
        self._table = table.take(pa.array(order))
        self._keys = self._table[key].combine_chunks()

    def take(self, keys: Any) -> tuple[Any, Any]:
        """Return (rows with these keys, null where a key has none; mask of the keys that have a
        row)."""
        if not len(self._hashes):
            return self._table.take(pa.nulls(len(keys), pa.int64())), np.zeros(len(keys), bool)
        at = np.searchsorted(self._hashes, hash_texts(keys))
        at = np.minimum(at, len(self._hashes) - 1)
        known = mask(pc.equal(self._keys.take(pa.array(at)), keys))
        return self._table.take(pa.array(at, mask=~known)), known


def _jobs(draft: Draft, tasks: _Lookup, tags: _Lookup, options: Options) -> Batch:
    columns = draft.columns
    found, known = tasks.take(columns["job_id"])
    for name in ("gpus", "cpus", "memory_mib"):
        columns[name] = found[name].combine_chunks()
    gpus, asked = draft.number("gpus"), floats(found["asked"].combine_chunks())
    with np.errstate(invalid="ignore", divide="ignore"):
        columns["gpu_share"] = from_floats(np.where(gpus > 0, np.minimum(asked / gpus, 1), np.nan))
    draft.warn(found["mixed"], "mixed_gpu_types")
    draft.warn(~known, "job_without_tasks")
    columns["start_time"] = offset_times(found["start_time"].combine_chunks(), options.origin)
    for name in ("submit_time", "end_time"):
        columns[name] = offset_times(columns[name], options.origin)
    columns["state"], odd = states(columns["state"], _STATES)
    draft.warnings.update(odd)
    tag, _ = tags.take(columns["inst_id"])
    columns["name"] = tag["group"].combine_chunks()
    columns["model"] = pc.cast(pc.dictionary_encode(tag["workload"].combine_chunks()), LABEL)
    gpu_type = pc.coalesce(found["gpu_type"], tag["gpu_type_spec"]).combine_chunks()
    columns["gpu_type"] = pc.cast(pc.dictionary_encode(gpu_type), LABEL)
    return draft.batch()
