"""Finds out what each job asked for, from a dump of sacct.

`SubmitLine` holds what the user typed, without the options in the script's `#SBATCH` lines. If its
options add up to the resources that `ReqTRES` counts, all of them are used; otherwise only those
that TRES do not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from features.job import Job
from pipeline.worlds.inferred import gpus_of
from scheduler.slurm.read.parse import SlurmJob
from scheduler.slurm.read.request import LONG_NAMES, RequestError, request
from scheduler.slurm.read.site import asks_of
from scheduler.slurm.read.tres import ParseError, counts, gpu_types
from scheduler.slurm.twin.site import GPU, Ask, Site

LICENCE = "license/"


@dataclass(frozen=True, slots=True)
class Row:
    """A job in a dump of Slurm's accounting: its partition, the TRES that it was given and asked
    for, and its command line."""

    job: Job
    partition: str
    given: str  # AllocTRES
    asked: str  # ReqTRES
    line: str  # SubmitLine


def ask_of(
    row: Row, site: Site, pools: Callable[[str], str | None], hide: Callable[[str], str]
) -> Ask:
    """Return what a job asked for. Its owner is not filled in.

    Args:
        pools: returns the virtual cluster of a partition. If a job named several partitions, the
            others count only if all belong to the virtual cluster of the one that it ran in.
        hide: returns the name by which a partition is shown.
    """
    plain = _counted(row, site)
    typed = _typed(row, site)
    if typed is None:
        return plain
    named, licences = typed.partition.split(","), plain.licences
    there = [p for p in map(hide, named) if p in site.partitions and _may(row.job, site, p)]
    here = pools(row.partition)
    if row.partition in there and len({pools(p) for p in there} | {here}) == 1:
        plain = replace(plain, partitions=tuple(dict.fromkeys(there)))
    (whole,) = asks_of([replace(typed, partition=row.partition)], site).values()
    features = whole.features if _known(whole.features, site) else ""
    plain = replace(
        plain,
        features=features,
        licences=licences or _there(whole.licences, site),
        nice=whole.nice,
        reservation=whole.reservation,
        array_limit=whole.array_limit,
        exclusive=plain.exclusive or whole.exclusive,
    )
    if not _agrees(row, typed):
        return plain
    return replace(
        plain,
        nodes=whole.nodes,
        max_nodes=whole.max_nodes,
        cpus=whole.cpus,
        min_cpus=whole.min_cpus,
        memory_mib=whole.memory_mib,
        per_cpu=whole.per_cpu,
        per_gpu=whole.per_gpu,
        gpus=whole.gpus,
        gpus_per_node=whole.gpus_per_node,
        sizes=whole.sizes,
        tres=whole.tres,
    )


def licences_of(asked: str, line: str) -> tuple[tuple[str, int], ...]:
    """Return the licences that a job had, as (name, number): from ReqTRES if the site counts
    licences there, otherwise from its command line."""
    counted = _counts(asked)
    found = tuple(
        (name.removeprefix(LICENCE), int(n)) for name, n in counted.items() if name[:8] == LICENCE
    )
    if found or not line:
        return found
    words = list(options(line))
    given = [one.partition("=")[2] for one in words if one.startswith("--licenses=")]
    parts = [part.replace("=", ":").partition(":") for one in given for part in one.split(",")]
    return tuple((name, int(n) if n.isdecimal() else 1) for name, _, n in parts if name)


def options(line: str) -> Iterator[str]:
    """Yield the options in a command line of sbatch, srun or salloc, each as ``--name=value``.
    Unknown options are left out; `--exclusive` comes as it is. Reading stops at the script, and
    at `--wrap`, because a SubmitLine has lost its quotes."""
    words = line.split()[1:]
    while words:
        word = words.pop(0)
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            if name in ("wrap", ""):
                return
            if name in LONG_NAMES.values() and not equals:
                value = words.pop(0) if words else ""
            if name in LONG_NAMES.values():
                yield f"--{name}={value}"
            elif word == "--exclusive":
                yield word
        elif word.startswith("-") and len(word) > 1:
            name = LONG_NAMES.get(word[1], "")
            if name:
                value = word[2:].removeprefix("=") or (words.pop(0) if words else "")
                yield f"--{name}={value}"
        else:
            return


# of a line, what says nothing of what the job needs, or has a column
_ELSEWHERE = (
    "dependency", "begin", "account", "qos", "time", "comment", "job-name", "array", "deadline",
)  # fmt: skip


def _typed(row: Row, site: Site) -> SlurmJob | None:
    """Return the job that the options in a row's command line describe. Return None if there is
    no command line, or if its options cannot be read. Its partitions are those of the command
    line, otherwise that of the row."""
    found, parts, array = [], row.partition, ""
    for one in options(row.line):
        name, _, value = one[2:].partition("=")
        if name == "partition":
            parts = value
        elif name == "array":
            array = one
        elif name not in _ELSEWHERE:
            found.append(one)
    if not row.line:
        return None
    try:
        words = [*found, *([array] if array else []), f"--partition={row.partition}"]
        made = request(
            options=words,
            site=site,
            user=row.job.user,
            job_id=row.job.job_id,
            now=row.job.submit_time,
        )
    except RequestError:
        return None
    return replace(made, partition=parts)


def _agrees(row: Row, typed: SlurmJob) -> bool:
    """Return whether the options of a command line add up to the CPUs, memory, nodes and GPUs that
    Slurm recorded. If they do, no option was given elsewhere, such as in the script."""
    asked, given, own = _counts(row.asked), _counts(row.given), dict(typed.tres)
    return typed.gpus == row.job.gpus and all(
        any(abs(has.get(name, own[name]) - own[name]) < 1 for has in (asked, given) if has)
        for name in ("cpu", "mem", "node")
        if asked or given
    )


def _may(job: Job, site: Site, partition: str) -> bool:
    most = site.partitions[partition].max_time_s
    return most is None or job.time_limit_s is None or job.time_limit_s <= most


def _known(features: str, site: Site) -> bool:
    """Return whether every word of a constraint is a feature of some node. If not, a job with this
    constraint would never start."""
    has = {one for node in site.nodes.values() for one in node.features}
    words = features.replace("&", "|").replace("*", "|").strip("()[]").split("|")
    return all(word in has for word in words if word)


def _there(licences: Sequence[tuple[str, int]], site: Site) -> tuple[tuple[str, int], ...]:
    return tuple((name, n) for name, n in licences if n <= site.licences.get(name, 0))


def _counted(row: Row, site: Site) -> Ask:
    """Return the request of a job by the TRES counts in its record. Nodes and types of GPUs are
    those requested, or else those allocated; CPUs are those allocated, or else those requested;
    memory is that allocated."""
    job, tres, asked = row.job, row.given, row.asked
    given, wanted = _counts(tres), _counts(asked)
    nodes = max(1, int(wanted.get("node", given.get("node", 1))))
    cpus = max(1, int(given.get("cpu", wanted.get("cpu", job.cpus or 1))))
    kinds = _kinds(job.gpus, asked or tres, site, row.partition) if job.gpus else ()
    even = nodes > 1 and bool(kinds) and all(count % nodes == 0 for _, count in kinds)
    counted = {name: n for name, n in given.items() if name != "energy"}
    return Ask(
        job.job_id,
        partitions=(row.partition,),
        nodes=nodes,
        max_nodes=nodes if even or nodes == 1 else 0,
        cpus=max(cpus, nodes),
        memory_mib=given.get("mem", 0.0) / nodes,
        gpus=tuple((kind, n // nodes) for kind, n in kinds) if even else kinds,
        gpus_per_node=even,
        exclusive=site.partitions[row.partition].exclusive,
        licences=_there(licences_of(asked, row.line), site),
        array=job.job_id.partition("_")[0] if "_" in job.job_id else "",
        tres={"cpu": cpus, "node": nodes, **counted, GPU: job.gpus},
    )


def _counts(tres: str) -> dict[str, float]:
    try:
        return counts(tres)
    except (ParseError, ValueError):
        return {}


def _kinds(gpus: int, tres: str, site: Site, partition: str) -> tuple[tuple[str, int], ...]:
    """Return (type, number) of the GPUs that a job asked for. The type "" means any. It is used for
    a type that the partition lacks, and for all GPUs if the counts in `tres` do not add up to
    `gpus`."""
    found = gpu_types(tres) if tres else None
    if not found or sum(found.values()) != gpus:
        found = gpus_of("", gpus)
    has = {kind for name in site.partitions[partition].nodes for kind, _ in site.nodes[name].gpus}
    merged: Counter[str] = Counter()
    for kind, count in found.items():
        merged[kind if kind in has else ""] += count
    return tuple(merged.items())
