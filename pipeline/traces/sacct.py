"""Reads Slurm's accounting: the output of ``sacct --parsable2`` (or ``--parsable``), or
``--json``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.clock import parse_elapsed
from features.schema import LABEL, State
from pipeline.traces.base import Batch, MeteredFile, Options, TraceError, head
from pipeline.traces.cast import Mask, from_floats, map_unique, mask, states
from pipeline.traces.check import EARLIEST, LATEST, MAX_DURATION_S, Draft
from pipeline.traces.delimited import Column, Layout, layout_for, parse, split_header
from pipeline.traces.helios import SLURM_STATES
from pipeline.traces.sacct_json import SacctText, is_json, is_sacct
from pipeline.traces.sacct_records import BAR, Records, headerless, is_data
from pipeline.traces.tables import TableAdapter, split_first_line
from pipeline.traces.text import Block, blocks

_MIB = {"K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}


class Sacct(TableAdapter):
    """Reads the jobs in the output of ``sacct -X -a -D -P -o ...``; job steps are counted and left
    out.

    Needed: ``JobID`` or ``JobIDRaw``, ``Submit``, ``State``, and one of ``AllocTRES``, ``ReqTRES``,
    ``AllocGRES``, ``ReqGRES``. Everything else is used if it is there. Clock times are those of the
    site: without a declared zone UTC is assumed, with a warning (``zone_assumed``).

    - GPUs are those allocated, else (a job that never started) those requested. ``gres/gpu`` counts
      all of them; ``gres/gpu:type`` says which they are and is only added up where ``gres/gpu`` is
      missing.
    - ``CANCELLED by 1001`` is ``cancelled``. A cancelled or failed job without allocated resources
      that ran for 0 s has no start, even if its line has one.
    - Tasks of an array (``123_4``) are jobs. So are the parts of a heterogeneous job (``123+0``),
      counted by the warning ``het_component``; pending array tasks share one line
      (``pending_array``).
    - Names and commands may hold bars, line breaks and bytes of any encoding: a record is put
      together with the help of columns that cannot hold these (`pipeline.traces.sacct_records`).
    - A run that ended because its job was requeued is ``preempted``: an attempt of its job.
    - Without a header line, the columns are those of the dumps that Open XDMoD asks for.
    - ``sacct --json`` is read as the same text, in UTC; the line number of a job is then its number
      in the list plus one.
    """

    name = "sacct"
    version = 4
    title = "Slurm sacct --parsable2"
    timezone = "UTC"
    delimiter = "|"
    states = SLURM_STATES
    advice: ClassVar[Mapping[str, str]] = {
        "bad_submit_time": "times have to look like 2026-03-02T10:00:00: unset SLURM_TIME_FORMAT "
        "and make the dump again",
        "no_gpu": "no line names gres/gpu: does AccountingStorageTRES of slurm.conf?",
        "step": "only job steps: make the dump with sacct -X",
        "wrong_column_count": "names or commands hold what looks like columns: make the dump with "
        "sacct -P, SubmitLine last, as docs/replay.md has it",
    }
    columns = (
        Column("JobID", "job_id", "text", required=False),
        Column("JobIDRaw", "raw_id", "text", required=False),
        Column("JobName", "name", "text", required=False),
        Column("User", "user", required=False),
        Column("Partition", "vc", required=False),
        Column("QOS", "qos", required=False),
        Column("Cluster", "cluster", required=False),
        Column("Submit", "submit_time", "time"),
        Column("Eligible", "eligible_time", "time", required=False),
        Column("Start", "start_time", "time", required=False),
        Column("End", "end_time", "time", required=False),
        Column("ElapsedRaw", "elapsed_raw", "number", required=False),
        Column("Elapsed", "elapsed", required=False),
        Column("TimelimitRaw", "limit_raw", required=False),
        Column("Timelimit", "limit", required=False),
        Column("State", "state"),
        Column("ExitCode", "exit_code", required=False),
        Column("NNodes", "nodes", "number", required=False),
        Column("NodeList", "node_list", required=False),
        Column("AllocTRES", "alloc_tres", required=False),
        Column("ReqTRES", "req_tres", required=False),
        Column("AllocGRES", "alloc_gres", required=False),
        Column("ReqGRES", "req_gres", required=False),
    )

    def sniff(self, path: Path) -> float:
        if is_json(head(path)):
            return 1.0 if is_sacct(head(path)) else 0.0
        names = split_header(head(path).split(b"\n", 1)[0], self.delimiter)
        ids = "JobID" in names or "JobIDRaw" in names
        if ids and "State" in names and "Submit" in names:
            return 1.0
        return 0.9 if columns_of(head(path).split(b"\n", 1)[0]) else 0.0

    def _read(self, file: MeteredFile, path: Path, options: Options) -> Iterator[Batch]:
        records: Records | None = None
        layout: Layout | None = None
        clusters: set[str] = set()
        lines: MeteredFile | SacctText = file
        if is_json(head(path)):
            lines = SacctText(file, path.name)
            options = replace(options, timezone="UTC", zone_declared=True)
        for block, last in _with_last(blocks(lines)):
            data, line = block.data, block.first_line
            if layout is None or records is None:
                names, had, data, line = _header(block)
                layout = self.layout(names, path)
                records = Records(names)
                if had and not data:
                    continue
            data, with_held = records.mend(data, last=last)
            if not data:
                continue
            mended = Block(data, line - with_held)
            draft = Draft.of(parse(mended, layout, path.name), path.name, mended.text)
            draft.warnings["other_encoding"] += records.recoded
            records.recoded = 0
            _check_one_cluster(draft, clusters, path.name)
            self.convert(draft, options)
            yield draft.batch()
        if layout is None:
            raise TraceError(f"{path.name}: is empty")

    def layout(self, names: list[str], path: Path) -> Layout:
        what = f"{path.name} as {self.name}"
        if is_data(names):
            raise TraceError(
                f"{what}: it has no header: make the dump without sacct -n (--noheader)"
            )
        if len(names) <= 1:
            raise TraceError(f"{what}: {_separated(names)}; make the dump with sacct -P")
        for wanted in (("JobID", "JobIDRaw"), ("AllocTRES", "ReqTRES", "AllocGRES", "ReqGRES")):
            if not set(wanted) & set(names):
                raise TraceError(f"{what}: the header has none of {', '.join(wanted)}")
        layout = layout_for(names, self.columns, what, self.delimiter, quotes=False)
        return replace(layout, repair=Records(names).whole)

    def convert(self, draft: Draft, options: Options) -> None:
        draft.without_gpus = options.without_gpus
        if "job_id" not in draft.columns:
            draft.columns["job_id"] = draft.columns["raw_id"]
        ids = draft.columns["job_id"]
        draft.skip(pc.match_substring_regex(ids, r"^\d+[^.]*\."), "step")
        columns = draft.columns
        draft.warn(pc.match_substring_regex(columns["job_id"], r"^\d+\+\d+$"), "het_component")
        draft.warn(pc.match_substring(columns["job_id"], "["), "pending_array")
        if "name" in columns:
            columns["name"] = pc.replace_substring(columns["name"], BAR, "|")
        requeued = _requeued(columns)
        columns["state"], odd = states(map_unique(columns["state"], _state, LABEL), self.states)
        columns["state"] = _attempts(columns["state"], requeued)
        draft.warnings.update(odd)
        _resources(draft)
        _durations(draft)
        if "exit_code" in columns:
            columns["exit_code"] = map_unique(columns["exit_code"], _exit_code, pa.int32())
        self.localise(draft, options.timezone, "submit_time", "start_time", "end_time")
        submitted = columns["submit_time"]
        self.localise(draft, options.timezone, "eligible_time", after=submitted)
        _never_started(draft)
        _refuse_endless_waits(draft)
        if not options.zone_declared:
            draft.warn(np.ones(len(draft), bool), "zone_assumed")


def columns_of(line: bytes) -> tuple[str, ...]:
    """Return the column names of a dump without a header line, recognised by its first line. Return
    () if it has a header line, or the columns are not recognised."""
    return headerless(line, lambda one: split_header(one, "|"))


def _with_last(found: Iterator[Block]) -> Iterator[tuple[Block, bool]]:
    """Yield each block, and whether it is the last."""
    block = next(found, None)
    while block is not None:
        following = next(found, None)
        yield block, following is None
        block = following


def _header(block: Block) -> tuple[list[str], bool, bytes, int]:
    """Return (names of the columns, whether the first line is a header, the lines of jobs, line
    number of the first job)."""
    header, rest = split_first_line(block)
    if names := columns_of(header):
        return list(names), False, block.data, block.first_line
    return split_header(header, "|"), True, rest.data, rest.first_line


def _check_one_cluster(draft: Draft, seen: set[str], name: str) -> None:
    """Raise TraceError if a dump holds jobs of several clusters, because their nodes may have the
    same names. The clusters in `draft` are added to `seen`, those of earlier blocks; `name` is the
    file's."""
    if "cluster" not in draft.columns:
        return
    here = pc.unique(draft.columns["cluster"].cast(pa.string())).to_pylist()
    seen |= {one for one in here if one}
    if len(seen) > 1:
        some = ", ".join(sorted(seen)[:8])
        raise TraceError(
            f"{name}: jobs of {len(seen)} clusters ({some}), which are not one: make a dump of "
            f"each (sacct -M {min(seen)})"
        )


def _requeued(columns: Mapping[str, Any]) -> Any:
    """Return a mask of the runs that ended because their job was requeued. Slurm gives some of
    them the state of a requeued job, and others that of a waiting one although they have an
    end. Return None if the columns hold no start or no end."""
    if "start_time" not in columns or "end_time" not in columns:
        return None
    ran = pc.and_(pc.is_valid(columns["start_time"]), pc.is_valid(columns["end_time"]))
    words = pc.cast(columns["state"], pa.string())
    again = pc.or_(pc.starts_with(words, "REQUEUE"), pc.starts_with(words, "PENDING"))
    return pc.and_(ran, pc.fill_null(again, False))


def _attempts(state: Any, requeued: Any) -> Any:
    """Return the states with PREEMPTED for the runs in the mask `requeued`: they are attempts of a
    job that ran again."""
    if requeued is None or not pc.any(requeued).as_py():
        return state
    texts = pc.cast(state, pa.string())
    return pc.dictionary_encode(pc.if_else(requeued, State.PREEMPTED.value, texts)).cast(LABEL)


def _state(text: str) -> str:
    """Return a state without the text that may follow it: ``CANCELLED`` for ``CANCELLED by
    1001``."""
    return text.split(" ", 1)[0].removesuffix("+")


def _separated(names: Sequence[str]) -> str:
    """Return a text that says how a header line without bars seems to be separated, for a
    message."""
    if not names:
        return "its first line is no text"
    header = names[0]
    for separator, called in ((",", "commas"), (";", "semicolons"), ("\t", "tabs")):
        if separator in header:
            return f"columns are separated by {called}, not by bars"
    return f"columns are not separated by bars (first line {header[:60]!r})"


class _Tres(NamedTuple):
    """The resources in a TRES or GRES text. A field is None if the text does not state it."""

    gpus: float
    gpu_type: str | None
    cpus: float | None
    memory_mib: float | None
    nodes: float | None


def parse_tres(text: str) -> _Tres | None:
    """Return the resources in a text of Slurm's TRES or GRES, such as
    ``billing=8,cpu=8,gres/gpu=2,gres/gpu:a100=2,mem=64G,node=1`` or ``gpu:a100:2``.

    Returns:
        the resources; ``gpus`` is 0 if the text names no GPU. None if the text is neither TRES nor
            GRES.
    """
    total: float | None = None
    typed: dict[str, float] = {}
    plain: dict[str, float] = {}
    try:
        for item in filter(None, text.split(",")):
            name, equals, value = item.partition("=")
            if not equals:
                label, count = _gres(item)
                typed[label] = typed.get(label, 0) + count
            elif name == "gres/gpu":
                total = _count(value)
            elif name.startswith("gres/gpu:"):
                typed[name.removeprefix("gres/gpu:")] = _count(value)
            elif name == "mem":
                plain[name] = _mib(value)
            elif name in ("cpu", "node"):
                plain[name] = _count(value)
    except ValueError:
        return None
    gpus = sum(typed.values()) if total is None else total
    types = "|".join(sorted(label for label, count in typed.items() if label and count))
    return _Tres(
        gpus=gpus,
        gpu_type=types or None,
        cpus=plain.get("cpu"),
        memory_mib=plain.get("mem"),
        nodes=plain.get("node"),
    )


def _gres(item: str) -> tuple[str, float]:
    """Return (type, number) of a GPU resource such as ``gpu:a100:2(S:0-1)``; the number is 0 for
    any other resource. Raises ValueError if the text is no resource."""
    if item[:1].isdecimal():
        raise ValueError(item)  # no GRES has such a name: the end of a "1,5"
    kind, _, rest = item.removeprefix("gres:").partition(":")
    label, _, count = rest.rpartition(":")
    return label, _count(count.split("(")[0] or "1") if kind == "gpu" else 0.0


def _mib(text: str) -> float:
    unit = text[-1:].upper()
    return _count(text[:-1]) * _MIB[unit] if unit in _MIB else _count(text)


def _count(text: str) -> float:
    if not re.fullmatch(r"\d{1,12}(\.\d{1,12})?", text):
        raise ValueError(text)
    return float(text)


def _resources(draft: Draft) -> None:
    """Set GPUs, CPUs, memory and nodes of each row to those allocated, or else to those
    requested."""
    columns = draft.columns
    fields = ("gpus", "gpu_type", "cpus", "memory_mib", "nodes")
    given = {name: pa.nulls(len(draft), _KINDS[name]) for name in fields}
    for source in ("alloc_tres", "alloc_gres", "req_tres", "req_gres"):
        if source not in columns:
            continue
        texts = columns[source]
        draft.refuse(_unreadable(texts), f"bad_{source}")
        # A column that names no GPU does not overrule one that does.
        for name in fields:
            values = map_unique(texts, partial(_tres_field, name), _KINDS[name])
            held = given[name]
            if name == "gpus" and source in ("req_tres", "req_gres", "alloc_gres"):
                held = pc.if_else(pc.fill_null(pc.equal(held, 0.0), False), None, held)
            given[name] = pc.coalesce(held, values, given[name])
    # Trackable resources without a GPU: no GPU. No resources given: the same.
    given["gpus"] = pc.fill_null(given["gpus"], 0.0)
    if "nodes" in columns:
        given["nodes"] = pc.coalesce(columns["nodes"], given["nodes"])
    columns.update(given)


_KINDS = {
    "gpus": pa.float64(),
    "gpu_type": pa.string(),
    "cpus": pa.float64(),
    "memory_mib": pa.float64(),
    "nodes": pa.float64(),
}


def _tres_field(name: str, text: str) -> Any:
    parsed = parse_tres(text)
    return None if parsed is None else getattr(parsed, name)


def _unreadable(texts: Any) -> Mask:
    wrong = map_unique(texts, lambda text: parse_tres(text) is None, pa.bool_())
    return mask(wrong)


_NO_LIMIT = ("UNLIMITED", "Partition_Limit", "INFINITE", "INVALID")


def _durations(draft: Draft) -> None:
    columns = draft.columns
    recorded = columns.get("elapsed_raw")
    if "elapsed" in columns:
        elapsed = map_unique(columns["elapsed"], parse_elapsed, pa.float64())
        wrong = pc.and_(pc.is_null(elapsed), pc.is_valid(columns["elapsed"]))
        draft.refuse(wrong, "bad_recorded_duration_s")
        recorded = elapsed if recorded is None else pc.coalesce(recorded, elapsed)
    if recorded is not None:
        columns["recorded_duration_s"] = recorded
    limit: Any = pa.nulls(len(draft), pa.float64())
    for source, convert in (("limit_raw", _minutes), ("limit", parse_elapsed)):
        if source in columns:
            texts = columns[source]
            seconds = map_unique(texts, convert, pa.float64())
            none = map_unique(texts, lambda text: text in _NO_LIMIT, pa.bool_())
            wrong = pc.and_(pc.is_null(seconds), pc.equal(none, False))
            draft.refuse(wrong, "bad_time_limit_s")
            limit = pc.coalesce(limit, seconds)
    columns["time_limit_s"] = limit


def _minutes(text: str) -> float | None:
    return float(text) * 60 if re.fullmatch(r"\d{1,9}", text) else None


def _exit_code(text: str) -> int | None:
    """Return the exit status in a text ``status:signal``, as a shell gives it: 128 + signal if a
    signal ended the job. Return None for other texts."""
    match = re.fullmatch(r"(\d{1,9}):(\d{1,3})", text)
    if not match:
        return None
    return int(match[1]) or (128 + int(match[2]) if int(match[2]) else 0)


_OVER_WAITING = (State.CANCELLED, State.FAILED, State.TIMEOUT)


def _never_started(draft: Draft) -> None:
    """Remove the start times and recorded durations of jobs that never started, with a warning.
    Slurm writes the end there for jobs that were cancelled or reached their deadline while they
    waited, or were refused at submission."""
    columns = draft.columns
    if "start_time" not in columns or "alloc_tres" not in columns:
        return
    state = columns["state"]
    waited = np.array([s in _OVER_WAITING for s in state.dictionary.to_pylist()], bool)
    wrong = waited[state.indices.to_numpy()] & mask(pc.is_null(columns["alloc_tres"]))
    wrong &= draft.millis("end_time") == draft.millis("start_time")
    wrong &= np.nan_to_num(draft.number("recorded_duration_s")) == 0
    if wrong.any():
        draft.warn(wrong, "over_before_start")
        columns["start_time"] = pc.if_else(pa.array(wrong), None, columns["start_time"])
        recorded = draft.number("recorded_duration_s")
        columns["recorded_duration_s"] = from_floats(np.where(wrong, np.nan, recorded))


def _refuse_endless_waits(draft: Draft) -> None:
    """Refuse jobs that waited for longer than a job can run: such a wait comes from a wrong clock,
    and one would dominate the mean wait.

    Times that are impossible on their own are checked elsewhere.
    """
    submit, start = (draft.millis(f"{name}_time") / 1000 for name in ("submit", "start"))
    sane = (submit >= EARLIEST.timestamp()) & (start < LATEST.timestamp())
    draft.refuse(sane & (start - submit > MAX_DURATION_S), "implausible_wait")
