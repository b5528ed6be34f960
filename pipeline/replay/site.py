"""A site as its dump shows it: jobs, what happened to them, and the shape of the cluster."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.errors import UserError
from pipeline.traces import ingest, read_dataset
from pipeline.tracks.cluster_file import read_cluster
from pipeline.tracks.plain import workload_of
from scheduler.cluster import ClusterSpec
from scheduler.work import Workload

DAY_S = 86_400.0
_HOSTS = re.compile(r"[^,\[]*(?:\[[^\]]*\][^,\[]*)?")
_RANGES = re.compile(r"([\w.-]*)\[([\d,-]+)\]([\w.-]*)")
_GPUS = re.compile(r"\bgpu(?::[^:(),\s]+)?:(\d+)")


@dataclass(frozen=True)
class Site:
    """What is known of a site.

    Attributes:
        workload: GPU jobs that ran, from when they could have started (submission, or the end of
            what they depended on), with their time limits, in that order.
        recorded: one row per job of `workload`, in its order: job_id, user, vc, gpus, wait_s,
            ran_s, as it happened.
        shape: where the cluster's shape comes from, a sentence.
        counts: rows of the dump and what became of them.
        notes: what a reader must know, sentences.
        missing: what the dump does not say, sentences.
    """

    workload: Workload
    recorded: pd.DataFrame
    shape: str
    counts: dict[str, int]
    notes: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


def read_site(
    dump: Path,
    scratch: Path,
    *,
    cluster: Path | None = None,
    nodes: Path | None = None,
    timezone: str | None = None,
    last_days: float | None = None,
    anonymise: bool = False,
) -> Site:
    """Reads a dump of ``sacct -X -a -D -P``.

    Args:
        dump: the file.
        scratch: a folder for what is in between.
        cluster: a cluster file; its virtual clusters are the dump's partitions.
        nodes: output of ``scontrol show nodes`` or ``sinfo -N -o "%N %P %G"``.
        timezone: of the dump's clock times.
        last_days: keep only jobs submitted in the last so many days; None = all.
        anonymise: replace users, job names and partitions by hashes with a key thrown away.

    Raises UserError when nothing can be replayed, and what ingestion raises.
    """
    summary = ingest(dump, scratch / "dataset", format="sacct", timezone=timezone)
    table = read_dataset(scratch / "dataset")
    counts = {
        "lines": summary.rows_in,
        "jobs": table.num_rows,
        "quarantined": sum(summary.quarantined.values()),
        "duplicates": summary.duplicates,
        "steps": sum(summary.skipped.values()),
    }
    if last_days is not None and table.num_rows:
        last = pc.max(table.column("submit_time")).cast(pa.int64()).as_py()
        since = last - int(last_days * DAY_S * 1000)
        table = table.filter(pc.greater_equal(table.column("submit_time").cast(pa.int64()), since))
    shown = table.num_rows
    table = table.filter(
        pc.and_(
            pc.greater(table.column("gpus"), 0),
            pc.and_(table.column("start_time").is_valid(), table.column("end_time").is_valid()),
        )
    )
    counts["in_window"], counts["replayed"] = shown, table.num_rows
    counts["not_replayed"] = shown - table.num_rows
    if not table.num_rows:
        raise UserError(f"{dump}: no GPU job with a start and an end in it; nothing to replay")
    if anonymise:
        table = _anonymous(table)
    spec, shape, notes = _shape(table, dump, cluster, nodes, anonymise)
    fits = np.array(
        [
            gpus <= spec.vcs.get(vc or "", 0) * spec.gpus_per_node
            for gpus, vc in zip(table.column("gpus").to_pylist(), _text(table, "vc"), strict=True)
        ]
    )
    if not fits.all():
        counts["too_large"] = int((~fits).sum())
        notes.append(
            f"{counts['too_large']:,} jobs do not fit into the partition as described and are "
            "left out."
        )
        table = table.filter(pa.array(fits))
        if not table.num_rows:
            raise UserError(f"{dump}: no job fits into the cluster as described ({shape})")
    table, waited = _from_eligible(table)
    if waited:
        notes.append(
            f"{waited:,} jobs could not have started when they were submitted (dependencies, "
            "begin times): their waiting is counted from when they were eligible."
        )
    workload = workload_of(table, spec, dump.name)
    return Site(workload, _recorded(table, workload), shape, counts, notes, _missing(table))


def _shape(
    table: pa.Table, dump: Path, cluster: Path | None, nodes: Path | None, anonymise: bool
) -> tuple[ClusterSpec, str, list[str]]:
    if cluster is not None:
        if anonymise:
            raise UserError("--anonymise hides partitions: leave out --cluster, or name none in it")
        return read_cluster(cluster)[0], f"from {cluster.name}", []
    if nodes is not None:
        if anonymise:
            raise UserError("--anonymise hides partitions: leave out --nodes")
        return _from_nodes(nodes)
    return _inferred(table, {} if anonymise else nodes_seen(dump))


def nodes_seen(dump: Path) -> dict[str, int]:
    """Nodes that ran GPU jobs, by partition, where the dump names them (column NodeList).

    A node of several partitions is counted where it ran most jobs. Empty when there is no such
    column.
    """
    jobs: dict[str, Counter[str]] = {}
    with dump.open(errors="replace") as lines:
        header = next(lines, "").rstrip("\n").split("|")
        if not {"NodeList", "Partition"} <= set(header):
            return {}
        wanted = [header.index(name) for name in ("NodeList", "Partition")]
        gres = [i for i, name in enumerate(header) if name in ("AllocTRES", "AllocGRES")]
        for line in lines:
            fields = line.rstrip("\n").split("|")
            if len(fields) < len(header) or not any("gpu" in fields[i] for i in gres):
                continue
            names, partition = (fields[i] for i in wanted)
            for name in expanded(names):
                jobs.setdefault(name, Counter())[partition] += 1
    seen: Counter[str] = Counter(found.most_common(1)[0][0] for found in jobs.values())
    return dict(seen)


def expanded(names: str) -> list[str]:
    """Node names of a Slurm host list: ``n[01-03,7],login`` is n01, n02, n03, n7, login.

    What is no host list, or names more than 100,000 nodes, is no node.
    """
    found: list[str] = []
    for part in _HOSTS.findall(names):
        match = _RANGES.fullmatch(part)
        if match is None:
            if re.fullmatch(r"[\w.-]+", part) and part != "None":
                found.append(part)
            continue
        for item in match[2].split(","):
            first, _, last = item.partition("-")
            if not (first.isdigit() and (not last or last.isdigit())):
                continue
            if int(last or first) - int(first) > 100_000:
                return []
            found += [
                f"{match[1]}{number:0{len(first)}d}{match[3]}"
                for number in range(int(first), int(last or first) + 1)
            ]
    return found


def _inferred(table: pa.Table, seen: dict[str, int]) -> tuple[ClusterSpec, str, list[str]]:
    """The least cluster that carried the dump.

    Per partition, the nodes named in it (`seen`), else GPUs in use at the busiest time.
    """
    gpus = table.column("gpus").to_numpy()
    counted = table.column("nodes").to_numpy(zero_copy_only=False)
    per_node = 8
    known = np.isfinite(counted.astype(float)) & (counted.astype(float) > 0)
    if known.any():
        per_node = int(max(1, np.max(np.ceil(gpus[known] / counted[known].astype(float)))))
    vcs: dict[str, int] = {}
    vc = np.array([name or "" for name in _text(table, "vc")], dtype=object)
    start, end = (
        table.column(n).cast(pa.int64()).to_numpy() / 1000 for n in ("start_time", "end_time")
    )
    for name in sorted(set(vc.tolist())):
        mine = vc == name
        moments = np.concatenate([start[mine], end[mine]])
        change = np.concatenate([gpus[mine], -gpus[mine]])
        order = np.lexsort((change, moments))  # at one moment the ends come first
        peak = int(np.max(np.cumsum(change[order])))
        least = max(1, -(-peak // per_node), -(-int(gpus[mine].max()) // per_node))
        vcs[name] = max(least, seen.get(name, 0))
    how = "those it names" if seen else "as many as were ever in use at once"
    said = (
        f"inferred from the dump: {sum(vcs.values())} nodes of {per_node} GPUs, per partition {how}"
    )
    notes = [
        "The cluster's shape is inferred. Nodes that never ran a GPU job are not in it"
        + (
            ". Give --nodes or --cluster to be sure."
            if seen
            else ", and without node names (column NodeList) it is the least that could have "
            "carried these jobs: waiting is overstated throughout. Give --nodes or --cluster."
        )
    ]
    return ClusterSpec(vcs, per_node, name="inferred"), said, notes


def _from_nodes(path: Path) -> tuple[ClusterSpec, str, list[str]]:
    """The shape in the output of `scontrol show nodes` or `sinfo -N -o "%N %P %G"`."""
    try:
        text = path.read_text(errors="replace")
    except OSError as error:
        raise UserError(f"--nodes {path}: {error.strerror}") from None
    found: dict[str, tuple[list[str], int]] = {}
    for name, partitions, gres in _nodes(text):
        gpus = sum(int(n) for n in _GPUS.findall(gres))
        if gpus and partitions:
            known, _ = found.get(name, ([], 0))
            found[name] = [*known, *(p for p in partitions if p not in known)], gpus
    if not found:
        raise UserError(
            f"--nodes {path}: no node with GPUs and a partition in it; give the output of "
            "scontrol show nodes, or of sinfo -N -o '%N %P %G'"
        )
    per_node = max(gpus for _, gpus in found.values())
    vcs: dict[str, int] = {}
    shared = mixed = 0
    for partitions, gpus in found.values():
        shared += len(partitions) > 1
        mixed += gpus != per_node
        vcs[partitions[0]] = vcs.get(partitions[0], 0) + 1
    notes = []
    if shared:
        notes.append(
            f"{shared:,} nodes belong to several partitions; each is counted in the first it names."
        )
    if mixed:
        notes.append(
            f"{mixed:,} nodes have fewer than {per_node} GPUs and are counted as whole nodes."
        )
    return ClusterSpec(vcs, per_node, name=path.name), f"from {path.name}", notes


def _nodes(text: str) -> Iterator[tuple[str, list[str], str]]:
    """(node, partitions, GRES) of every node described."""
    if "NodeName=" in text:
        for block in re.split(r"(?=^NodeName=)", text, flags=re.MULTILINE):
            name = re.search(r"NodeName=(\S+)", block)
            partitions = re.search(r"Partitions=(\S+)", block)
            gres = re.search(r"\bGres=(\S+)", block)
            if name and partitions and gres:
                yield name[1], partitions[1].split(","), gres[1]
        return
    for line in text.splitlines():
        fields = line.split()
        if len(fields) >= 3 and fields[0] != "NODELIST":
            yield fields[0], [fields[1].rstrip("*")], fields[2]


def _anonymous(table: pa.Table) -> pa.Table:
    key = secrets.token_bytes(32)
    for column, prefix in (("user", "user"), ("vc", "partition"), ("name", "")):
        known: dict[str, str] = {}

        def hashed(value: str | None, prefix: str = prefix, known: dict[str, str] = known) -> Any:
            if not value:
                return value
            if value not in known:
                digest = hmac.new(key, value.encode(), hashlib.sha256).hexdigest()[:8]
                known[value] = f"{prefix}-{digest}" if prefix else digest
            return known[value]

        values = [hashed(value) for value in _text(table, column)]
        place = table.schema.get_field_index(column)
        field_ = table.schema.field(column)
        table = table.set_column(place, field_, pa.array(values, pa.string()).cast(field_.type))
    return table


def _from_eligible(table: pa.Table) -> tuple[pa.Table, int]:
    """Submission moved to when the job was eligible, in the new order; how many were moved."""
    submit = table.column("submit_time").cast(pa.int64()).to_numpy()
    start = table.column("start_time").cast(pa.int64()).to_numpy()
    eligible = pc.fill_null(table.column("eligible_time").cast(pa.int64()), 0).to_numpy()
    moved = np.clip(eligible, submit, np.maximum(start, submit))
    place = table.schema.get_field_index("submit_time")
    kind = table.schema.field("submit_time")
    table = table.set_column(place, kind, pa.array(moved).cast(kind.type))
    return table.take(pa.array(np.argsort(moved, kind="stable"))), int((moved > submit).sum())


def _recorded(table: pa.Table, workload: Workload) -> pd.DataFrame:
    submit, start, end = (
        table.column(name).cast(pa.int64()).to_numpy() / 1000
        for name in ("submit_time", "start_time", "end_time")
    )
    frame = pd.DataFrame(
        {
            "user": [name or "-" for name in _text(table, "user")],
            "vc": [name or "" for name in _text(table, "vc")],
            "gpus": table.column("gpus").to_numpy(),
            "submit": submit,
            "wait_s": np.maximum(0.0, start - submit),
            "ran_s": np.maximum(0.0, end - start),
        }
    )
    frame = frame[table.column("duration_s").is_valid().to_numpy()]
    frame.insert(0, "job_id", [job.job_id for job in workload.jobs])
    done: pd.DataFrame = frame.reset_index(drop=True)
    return done


def _missing(table: pa.Table) -> list[str]:
    said = []
    if not table.column("gpu_util_pct").is_valid().to_numpy().any():
        said.append(
            "No profiles: nothing says how busy any job kept its GPUs, so packing is simulated "
            "from a stated scenario and is an assumption, not a measurement."
        )
    limits = table.column("time_limit_s").is_valid().to_numpy().mean()
    if limits < 0.99:
        said.append(f"{1 - limits:.0%} of the jobs have no time limit; backfill takes 7 days.")
    if not any(_text(table, "name")):
        said.append("No job names: the duration model cannot tell one script from another.")
    said.append("Priorities, QOS rules and fair-share weights of the site are not in a dump.")
    return said


def _text(table: pa.Table, name: str) -> list[str | None]:
    values: list[str | None] = table.column(name).cast(pa.string()).to_pylist()
    return values
