"""Reads a site from its dump of sacct: jobs, what happened to them, and the shape of the
cluster."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.job import COUNTERS
from features.schema import TRACE_SCHEMA, State
from pipeline.errors import UserError
from pipeline.replay.beside import Beside, arriving, beside_of
from pipeline.replay.causes import CAPACITY, LIMIT
from pipeline.replay.extra import COLUMNS, Extra, read_extra
from pipeline.replay.printed import Printed, read_printed
from pipeline.replay.record import recorded_of, seconds, text
from pipeline.replay.twin import Rows, Twin, twin_of
from pipeline.replay.window import (
    Window,
    from_eligible,
    latest,
    opened,
    runs,
    until,
    window_of,
    with_column,
)
from pipeline.traces import IngestSummary, ingest
from pipeline.traces.base import zone_of
from pipeline.traces.dataset import read_months
from pipeline.traces.sacct import Sacct
from pipeline.worlds.closed_loop import in_loop
from pipeline.worlds.plain import workload_of
from pipeline.worlds.shape import (
    PLENTY,
    Hide,
    Kinds,
    Shape,
    by_kind,
    from_cluster_file,
    from_nodes,
    in_vcs,
    inferred,
    nodes_listed,
    vcs_of,
)
from scheduler.core.plural import count
from scheduler.simulation.work import Workload

# More jobs than this are replayed fewer times, unless a number is asked for.
MANY_JOBS = 25_000
# With more jobs than this those without GPUs are not played, unless it is asked for.
MOST_BESIDE = 5_000

_ENDED_BY = {
    State.PREEMPTED: "preemption",
    State.NODE_FAIL: "the failure of a node",
}

Progress = Callable[[int], None]


class Month(TypedDict):
    """The jobs of a month: their number, their GPU-hours, and their mean wait in seconds."""

    month: str
    jobs: int
    gpu_hours: float
    avg_wait_s: float


@dataclass(frozen=True)
class Site:
    """A site, as its dump shows it.

    Attributes:
        workload: the jobs with GPUs that ran, with their time limits, in the order in which they
            could have started (at submission, or at the end of the jobs that they depend on). Jobs
            that ran or waited when the replayed window begins come first, with the time that they
            had left.
        recorded: one row per job of `workload`, in its order: job_id, user, vc (the partition),
            gpus, state; `submit`: when it was eligible to start, seconds since the epoch;
            `wait_s` and `ran_s`: from then to its start, and from its start to its end;
            `before_s`: seconds from its submission until it was eligible; `carried`: whether
            the job only fills the cluster as the window begins or the dump ends, and is left
            out of the figures; `cause`: what it waited for (`pipeline.replay.causes`);
            `started_by`: the scheduling pass of Slurm that started it, "" if unknown.
        twin: the site's own Slurm, as it is imitated in a replay.
        shape: a sentence that says where the cluster's shape comes from.
        counts: numbers of lines of the dump, in all (`lines`) and by what became of them.
        quarantined: number of refused lines, by reason.
        ran: one row per month of the whole dump: month, jobs, gpu_hours, avg_wait_s.
        window: days replayed, and whether the dump was too large to replay whole.
        notes: sentences that a reader must know.
        missing: sentences about what the dump does not contain.
        nearer: files or columns that are missing and would make a replay more exact.
        beside: the jobs without GPUs on the same nodes. Only replays of Slurm's own schedule
            include them, and no figure does.
    """

    workload: Workload
    recorded: pa.Table
    shape: str
    counts: dict[str, int]
    quarantined: dict[str, int]
    ran: list[Month]
    window: Window
    notes: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    twin: Twin | None = None
    nearer: list[str] = field(default_factory=list)
    beside: Beside | None = None

    @property
    def unlike(self) -> list[str]:
        """Return sentences about what happened at this site, or is set there, that no replay
        reproduces."""
        counts = Counter(self.recorded["state"].to_pylist())
        ended = [
            f"{count(counts[state], 'run')} ended by {why}, which no replay repeats."
            for state, why in _ENDED_BY.items()
            if counts[state]
        ]
        return [*ended, *(self.twin.left_out if self.twin is not None else ())]

    @property
    def lost(self) -> tuple[list[str], bool]:
        """Return (sentences, whether replays cannot be trusted) about lines of the dump that could
        not be read; ([], False) if they are few."""
        lines = sum(self.quarantined.values())
        share = lines / max(1, lines + len(self.recorded))
        if share < LOST:
            return [], False
        text = (
            f"{share:.0%} of the jobs could not be read ({count(lines, 'line')}): what they took "
            "others find free here."
        )
        return [text], share >= TOO_MANY_LOST

    @property
    def submitted(self) -> pa.Table:
        """Return the rows of `recorded` for the jobs that were submitted within the replayed
        window."""
        return self.recorded.filter(pc.invert(self.recorded["carried"]))

    @property
    def judged(self) -> pa.Table:
        """Return the rows of `submitted` for jobs that waited for capacity, so that a scheduler can
        shorten their wait. Figures are computed on these."""
        rows = self.submitted
        return rows.filter(pc.equal(rows["cause"], CAPACITY))

    @property
    def replayable(self) -> pa.Table:
        """Return the rows of `submitted` for jobs that waited for a cause that the replay of the
        site's own Slurm models."""
        rows = self.submitted
        return rows.filter(pc.is_in(rows["cause"], pa.array(self.modelled)))

    @property
    def modelled(self) -> frozenset[str]:
        """Return the causes of waiting that the replay of the site's own Slurm models."""
        knows = self.twin is not None and self.twin.limits
        return frozenset((CAPACITY, LIMIT) if knows else (CAPACITY,))

    def arriving(self, modelled: frozenset[str]) -> Workload:
        """Return the workload for a replay. A job that waited for a cause outside of `modelled`
        is submitted at its recorded start, since no policy could have started it before;
        `carried` jobs stay as they are."""
        return arriving(self.workload, self.recorded, modelled)

    @property
    def many(self) -> bool:
        """Return whether there are so many jobs that each variant is replayed fewer times, if
        no number of replays is asked for."""
        return len(self.workload.jobs) > MANY_JOBS

    def in_loop(self, loop: str) -> Site:
        """Return the site for replays in an open or a closed loop
        (`pipeline.worlds.closed_loop`), with a note about a closed one. Return it unchanged if
        no submission waits for an end."""
        workload = in_loop(self.workload, loop)
        if not workload.after:
            return self
        note = (
            f"A closed loop: {len(workload.after):,} of {len(workload.jobs):,} submissions came "
            "soon after an end of the same user in the same partition, and wait for that end in "
            "every replay; their waiting counts from then on."
        )
        return replace(self, workload=workload, notes=[*self.notes, note])


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpOptions:
    """How to read a dump of sacct: files that complete it, and which of its jobs are replayed.

    Attributes:
        cluster: a cluster file; its virtual clusters are the dump's partitions.
        nodes: output of ``scontrol show nodes`` or ``sinfo -N -o "%N %P %G"``.
        printed: files in which Slurm printed its settings (`pipeline.replay.printed`).
        timezone: time zone of the dump's clock times.
        last_days: keep only jobs submitted in this many last days of the dump; None: all.
        most: without `last_days`, keep only the last days that hold at most this many jobs.
        anonymise: replace users, job names and partitions by keyed hashes, and forget the key.
        cpu_jobs: also replay jobs without GPUs in Slurm's own schedule. None: do so if the CPUs of
            nodes are known and there are at most `MOST_BESIDE` jobs.
    """

    cluster: Path | None = None
    nodes: Path | None = None
    printed: Sequence[Path] = ()
    timezone: str | None = None
    last_days: float | None = None
    most: int | None = None
    anonymise: bool = False
    cpu_jobs: bool | None = None


WHOLE_DUMP = DumpOptions()


def read_site(
    dump: Path,
    scratch: Path,
    options: DumpOptions = WHOLE_DUMP,
    *,
    progress: Progress | None = None,
) -> Site:
    """Read a dump made by ``sacct -X -a -D -P``. Return the site.

    Args:
        dump: the file of the dump.
        scratch: a folder for temporary files.
        progress: called with the number of bytes read.

    Raises UserError if nothing can be replayed, and TraceError if the dump cannot be read.
    """
    given = read_printed(options.printed)
    listed = nodes_listed(options.nodes) if options.nodes is not None else given.nodes
    counted = options.cluster is None and any(node.cpus < PLENTY for node in listed)
    if options.cpu_jobs and not counted:
        raise UserError("--cpu-jobs: what CPUs nodes have was not given; give --site")
    summary = ingest(
        dump,
        scratch / "dataset",
        format="sacct",
        timezone=options.timezone,
        without_gpus=counted and options.cpu_jobs is not False,
        progress=progress,
    )
    ended = _ended(scratch / "dataset")
    _check_any(dump, ended, summary)
    table, bare = ended.with_gpus, ended.bare
    counts = _counts(summary, table.num_rows - ended.running, ended.kept_bare)
    hide: Hide = _Hidden() if options.anonymise else str
    if options.anonymise:
        table, bare = _anonymous(table, hide), _anonymous(bare, hide)
    notes = _read_notes(summary, ended.delayed)
    table, window = window_of(table, options.last_days, options.most)
    counts["earlier"] = counts["ended"] - table.num_rows + int(pc.sum(table["carried"]).as_py())
    extra = read_extra(dump, table["source_line"].to_numpy())
    bare = opened(bare, int(window["first"] * 1000))
    if options.cpu_jobs is None and len(table) + len(bare) > MOST_BESIDE:
        bare = bare.slice(0, 0)
    shape = _shape(table, options.cluster, options.nodes, given, hide=hide)
    kinds = by_kind(shape)
    table, extra = _fitting(table, extra, kinds, counts, notes=notes)
    recorded = recorded_of(table, extra)
    _check_judged(dump, recorded, shape)
    counts["carried"] = int(pc.sum(table["carried"]).as_py())
    counts["replayed"] = table.num_rows - counts["carried"]
    name = "a site" if options.anonymise else dump.name
    workload = workload_of(_pooled(table, kinds), kinds.spec, name)
    recorded = recorded.add_column(0, "job_id", [[job.job_id for job in workload.jobs]])
    mine = Rows(workload.jobs, recorded["vc"].to_pylist(), extra)
    zone = zone_of(options.timezone or "UTC")
    whole, beside = shape, None
    if counted:
        every = {hide(name) for node in listed for name in node.partitions}
        whole = from_nodes(listed, "--site", every, hide, bare=True)
        beside = beside_of(bare, dump, whole, {job.job_id for job in workload.jobs})
    rows = [mine] if beside is None else [mine, beside.rows]
    pools = {vc: whole.pools[_partition(shape, pool)] for vc, pool in kinds.pools.items()}
    twin = twin_of(shape=whole, printed=given, rows=rows, pools=pools, hide=hide, zone=zone)
    counts["played_without_gpus"] = 0 if beside is None else len(beside.workload.jobs)
    notes += _cpu_notes(counts)
    return Site(
        workload=workload,
        recorded=recorded,
        shape=shape.source,
        counts=counts,
        quarantined={why: n for why, n in summary.quarantined.items() if why != "no_gpu"},
        ran=ended.months,
        window=window,
        notes=[*notes, *shape.notes, *_kinds_note(kinds), *twin.notes],
        missing=_missing(table, extra, summary),
        twin=twin,
        nearer=_nearer(extra, options.printed, options.cluster or options.nodes),
        beside=beside,
    )


def _check_any(dump: Path, ended: _Ended, summary: IngestSummary) -> None:
    """Raise UserError unless the dump has a job with GPUs that ended."""
    if ended.with_gpus.num_rows > ended.running:
        return
    without = len(ended.bare) + summary.quarantined.get("no_gpu", 0)
    cpus = f"; its {count(without, 'job')} without GPUs are only played beside such"
    why = "no job with GPUs, a start and an end in it, whose waiting is judged"
    raise UserError(f"{dump}: {why}{cpus if without else ''}")


def _check_judged(dump: Path, recorded: pa.Table, shape: Shape) -> None:
    """Raise UserError unless a scheduler could have shortened the wait of at least one job of the
    dump."""
    if not len(recorded):
        raise UserError(f"{dump}: no job fits into the cluster as described ({shape.source})")
    submitted = recorded.filter(pc.invert(recorded["carried"]))
    if not len(submitted):
        raise UserError(f"{dump}: no job that fits was submitted in the days asked for")
    if not pc.any(pc.equal(submitted["cause"], CAPACITY)).as_py():
        raise UserError(
            f"{dump}: by the column Reason, every job waited for something other than GPUs or its "
            "turn (limits, holds, other jobs, nodes): no scheduler could shorten that"
        )


# What a replay needs of a trace.
_NEEDED = (
    "job_id", "user", "vc", "name", "gpus", "cpus", "memory_mib", "gpu_type", "nodes", "node_list",
    "state", "submit_time", "eligible_time", "start_time", "end_time", "duration_s", "time_limit_s",
    "model", "dataset", "batch_size", "amp", "gpu_util_pct", "gpu_mem_util_pct", "gpu_mem_mib",
    *COUNTERS, "source_line",
)  # fmt: skip


class _Ended(NamedTuple):
    """Jobs of a dump with a start and an end, in the order in which they could have started.
    Running jobs end when the dump does, see `window.until`.

    Attributes:
        months: figures of the jobs with GPUs that ended, by month.
        delayed: number of these that first waited for something other than resources.
        running: number of jobs with GPUs that still run.
        kept_bare: number of jobs without GPUs in the dump, ended or not.
    """

    with_gpus: pa.Table
    months: list[Month]
    delayed: int
    running: int
    bare: pa.Table
    kept_bare: int


def _ended(dataset: Path) -> _Ended:
    tables, months, delayed, running = list[pa.Table](), list[Month](), 0, 0
    others, kept_bare = [], 0
    last = max((latest(month) for month in read_months(dataset)), default=0)
    for month in read_months(dataset):
        held = until(month.select(_NEEDED), last)
        bare = pc.equal(held["gpus"], 0)
        kept_bare += pc.sum(pc.equal(month["gpus"], 0)).as_py() or 0
        if pc.any(bare).as_py():
            others.append(from_eligible(held.filter(bare))[0])
        held = held.filter(pc.invert(bare))
        if not held.num_rows:
            continue
        held, moved = from_eligible(held)
        delayed += moved
        tables.append(held)
        held = held.filter(pc.invert(runs(held)))
        running += tables[-1].num_rows - held.num_rows
        if not held.num_rows:
            continue
        submit, start, end = (seconds(held, f"{n}_time") for n in ("submit", "start", "end"))
        first = datetime.fromtimestamp(float(submit[0]), UTC)
        months.append(
            {
                "month": f"{first:%Y-%m}",
                "jobs": held.num_rows,
                "gpu_hours": float(held["gpus"].to_numpy() @ (end - start)) / 3600,
                "avg_wait_s": float(np.mean(np.maximum(0.0, start - submit))),
            }
        )
    like = (tables or others or [_empty()])[0].slice(0, 0)
    with_gpus, bare = (_in_order(found) if found else like for found in (tables, others))
    return _Ended(
        with_gpus=with_gpus,
        months=months,
        delayed=delayed,
        running=running,
        bare=bare,
        kept_bare=kept_bare,
    )


def _empty() -> pa.Table:
    fields = [TRACE_SCHEMA.field(name) for name in _NEEDED]
    return pa.schema([*fields, ("before_s", pa.float64())]).empty_table()


def _in_order(tables: Sequence[pa.Table]) -> pa.Table:
    table = pa.concat_tables(tables).unify_dictionaries()
    order = np.argsort(table["submit_time"].cast(pa.int64()).to_numpy(), kind="stable")
    return table.take(pa.array(order))


def _counts(summary: IngestSummary, ended: int, bare: int) -> dict[str, int]:
    """Return how many lines of the dump were used, and how many were left out, by reason.

    Args:
        ended: number of jobs with GPUs that ended.
        bare: number of kept lines of jobs without GPUs.
    """
    cpu = summary.quarantined.get("no_gpu", 0)
    return {
        "lines": summary.rows_in,
        "steps": sum(summary.skipped.values()),
        "without_gpus": cpu + bare,
        "quarantined": sum(summary.quarantined.values()) - cpu,
        "duplicates": summary.duplicates,
        "not_ended": summary.kept - bare - ended,
        "ended": ended,
    }


def _read_notes(summary: IngestSummary, delayed: int) -> list[str]:
    notes = []
    if summary.warnings.get("zone_assumed"):
        notes.append("Clock times are taken as UTC. Give --timezone if the site's clock differs.")
    if parts := summary.warnings.get("het_component"):
        notes.append(f"{parts:,} parts of heterogeneous jobs are replayed as jobs of their own.")
    unknown = sum(n for code, n in summary.warnings.items() if code.startswith("unknown_state"))
    if unknown:
        notes.append(f"{unknown:,} jobs have a state this version does not know.")
    if delayed:
        notes.append(
            f"{delayed:,} jobs could not have started when they were submitted (dependencies, "
            "begin times): their waiting is counted from when they were eligible."
        )
    return notes


def _shape(
    table: pa.Table,
    cluster: Path | None,
    nodes: Path | None,
    given: Printed,
    hide: Hide,
) -> Shape:
    if cluster is not None:
        return from_cluster_file(cluster, hide)
    used = {name or "" for name in text(table, "vc")}
    if nodes is not None:
        return from_nodes(nodes_listed(nodes), f"--nodes {nodes}", used, hide)
    if given.nodes:
        return from_nodes(given.nodes, "--site", used, hide)
    return inferred(table)


def _partition(shape: Shape, pool: str) -> str:
    """Return the first partition of a pool (partitions that share nodes)."""
    return next(name for name, its in shape.pools.items() if its == pool)


def _cpu_notes(counts: Mapping[str, int]) -> list[str]:
    played, there = counts["played_without_gpus"], counts["without_gpus"]
    if played:
        return [
            f"{played:,} jobs without GPUs take CPUs and memory of the same nodes in Slurm's own "
            "schedule; they are in no figure."
        ]
    if there:
        return [
            f"{there:,} jobs without GPUs are not replayed, nor is what they took of CPUs and "
            "memory (--site or --cpu-jobs)."
        ]
    return []


def _fitting(
    table: pa.Table, extra: Extra, kinds: Kinds, counts: dict[str, int], notes: list[str]
) -> tuple[pa.Table, Extra]:
    """Return the jobs that fit into their virtual cluster, and their further columns. The number of
    other jobs is added to `counts`, and a note about them to `notes`."""
    spec = kinds.spec
    room = {vc: sum(has.nodes * has.gpus_per_node for has in spec.groups_of(vc)) for vc in spec.vcs}
    fits = np.array(
        [
            vc is not None and gpus <= room[vc]
            for gpus, vc in zip(table["gpus"].to_pylist(), vcs_of(table, kinds), strict=True)
        ],
        bool,
    )
    counts["too_large"] = int((~fits & ~table["carried"].to_numpy()).sum())
    if counts["too_large"]:
        notes.append(
            f"{counts['too_large']:,} jobs do not fit into their partition as described, or it is "
            "not described, and are left out."
        )
    return table.filter(pa.array(fits)), extra.at(np.flatnonzero(fits))


def _pooled(table: pa.Table, kinds: Kinds) -> pa.Table:
    """Return the jobs with `vc` set to each one's virtual cluster. `gpu_type` becomes null, because
    the virtual cluster implies it."""
    return with_column(in_vcs(table, kinds), "gpu_type", pa.nulls(len(table), pa.string()))


def _kinds_note(kinds: Kinds) -> list[str]:
    if len(kinds.pools) == len(set(kinds.pools.values())):
        return []
    return [
        "Nodes differ in the types of their GPUs. Slurm's own schedule gives a job any that it "
        "did not rule out; the other policies play it on the type that it had."
    ]


class _Hidden:
    """A callable that replaces a name by a hash. The key is random and never stored. "" stays
    ""."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    def __call__(self, name: str, prefix: str = "partition") -> str:
        if not name:
            return name
        digest = hmac.new(self._key, f"{prefix} {name}".encode(), hashlib.sha256).hexdigest()
        return f"{prefix}-{digest[:8]}"


def _anonymous(table: pa.Table, hide: Callable[..., str]) -> pa.Table:
    for column, prefix in (("user", "user"), ("vc", "partition"), ("name", "name")):
        place, kind = table.schema.get_field_index(column), table.schema.field(column)
        texts = pc.dictionary_encode(table[column].cast(pa.string())).combine_chunks()
        hidden = pa.array([hide(text, prefix) for text in texts.dictionary.to_pylist()])
        table = table.set_column(
            place, kind, hidden.cast(pa.string()).take(texts.indices).cast(kind.type)
        )
    return table


def _missing(table: pa.Table, extra: Extra, summary: IngestSummary) -> list[str]:
    notes = []
    if not table["gpu_util_pct"].is_valid().to_numpy().any():
        notes.append(
            "No profiles: how busy any job kept its GPUs is unknown, so packing is simulated "
            "from a stated scenario and is an assumption, not a measurement."
        )
    limits = table["time_limit_s"].is_valid().to_numpy().mean()
    if limits < 0.99:
        notes.append(
            f"{1 - limits:.0%} of the jobs have no time limit; backfill takes the mean of the "
            "last two of the same user."
        )
    if not any(text(table, "name")):
        notes.append("No job names: the duration model cannot distinguish scripts.")
    if not any(text(table, "user")):
        notes.append("No users: no user's history can be learned from, and who gains is not shown.")
    if not table["eligible_time"].is_valid().to_numpy().any():
        notes.append("No Eligible times: waiting for a dependency counts as waiting in the queue.")
    lost = {why: n for why, n in summary.quarantined.items() if why != "no_gpu"}
    for why, many in sorted(lost.items(), key=lambda one: -one[1]):
        remedy = Sacct.advice.get(why) or REMEDIES.get(why, "")
        lines = (
            f"{count(many, 'line')} could not be read and {'is' if many == 1 else 'are'} left out"
        )
        notes.append(f"{lines}: {why}{f'; {remedy}' if remedy else ''}.")
    types = {kind for kind in text(table, "gpu_type") if kind}
    if len(types) > 1:
        notes.append(
            f"The jobs ran on {len(types):,} kinds of GPUs; how fast each would have run on "
            "another is unknown."
        )
    if "Reason" not in extra.columns:
        notes.append(
            "No reasons (column Reason): what waited for a limit, a hold or another job cannot be "
            "separated from what waited for GPUs."
        )
    notes.append(
        "What nodes were down and when is not in a dump. CPUs and memory run out only in Slurm's "
        "own schedule, and only on nodes that were given; jobs without GPUs are in no other."
    )
    return notes


# of lines that are lost, what gives them back
REMEDIES = {
    "control_character": "names hold control characters: `tr -d '\\000'` takes them out",
    "implausible_wait": "the clock was wrong when they were submitted: leave them out",
}
LOST, TOO_MANY_LOST = 0.01, 0.05  # share of the jobs of a dump


def _nearer(extra: Extra, printed: Sequence[Path], shape: Path | None) -> list[str]:
    """Return texts that name further files or columns which would make the replay more exact. Those
    already given are left out."""
    notes = []
    if not printed:
        notes.append(f"the site's {'' if shape else 'nodes and '}settings (--site)")
    absent = [name for name in COLUMNS if name not in extra.columns]
    if absent:
        notes.append(f"a dump with {', '.join(absent)}, too (docs/replay.md has the command)")
    return notes
