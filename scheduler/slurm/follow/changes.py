"""The ways in which a waiting job could be changed, with the command for each. What the account of
its shortages suggests comes first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import floor

from scheduler.core.plural import count
from scheduler.explain.shortage import CPU, GPU, MEMORY, NodeShort
from scheduler.explain.words import duration
from scheduler.slurm.follow.partitions import closed_to_user
from scheduler.slurm.follow.shortages import Accounts
from scheduler.slurm.read.parse import SlurmJob
from scheduler.slurm.read.versions import gpus_word, release_in
from scheduler.slurm.twin.site import Ask, Site
from scheduler.slurm.twin.twin import SlurmTwin

MOST_FITTED = 3  # time limits that end before something, and nodes whose free part is asked for
SPARE_S = 120.0  # until a change is made; of long limits a twentieth
MANY = 1_000_000  # nodes: no limit
MIB = 256  # memory is asked for in steps of so many MiB


@dataclass(frozen=True, slots=True)
class Change:
    """A changed request of a job. `command` makes the change. `amount` is the changed quantity, in
    seconds, MiB, CPUs, GPUs or nodes; None: no quantity is changed.
    """

    words: str
    command: str
    job: SlurmJob
    amount: float | None = None


def changes(job: SlurmJob, site: Site, twin: SlurmTwin, now: float) -> Iterator[Change]:
    """Yield the changes that could be tried for a waiting job, each by itself."""
    update = f"scontrol update jobid={job.id}"
    ask = twin.asked(job.id)
    nodes: list[NodeShort] = []
    if ask is not None and "+" not in job.id:
        accounts = Accounts(twin, now)
        parts = (site.partitions[name] for name in ask.partitions if name in site.partitions)
        nodes = [node for part in parts for node in accounts.nodes(ask, part)[0]]
        yield from _before(job, ask, nodes, site, twin=twin, now=now)
        yield from _less(job, nodes)
    if job.req_nodes and not job.nodes:
        anywhere = replace(job, req_nodes=())
        yield Change("without --nodelist", f"{update} reqnodelist=", anywhere)
    yield from _within(job, site, twin, now)
    yield from _fewer(job, _free_gpus(nodes), site)
    yield from _spread(job, nodes, site)
    for name, partition in site.partitions.items():
        there = partition.hidden or name in job.partition.split(",")
        if not there and not closed_to_user(job, partition, site):
            changed = replace(job, partition=name)
            yield Change(f"in partition {name}", f"{update} partition={name}", changed)
    assoc = site.assocs.get((job.account, job.user))
    for name in sorted(assoc.qos if assoc is not None else ()):
        if name != job.qos and name in site.qos:
            yield Change(f"with QOS {name}", f"{update} qos={name}", replace(job, qos=name))
    limit = job.time_limit_s or 0.0
    yield from (_shorter(job, int(limit // 60 // part)) for part in (2, 4) if limit >= 60 * part)


def _shorter(job: SlurmJob, minutes: int) -> Change:
    shorter = replace(job, time_limit_s=minutes * 60.0)
    words = f"with a time limit of {duration(shorter.time_limit_s)}"
    command = f"scontrol update jobid={job.id} timelimit={minutes}"
    return Change(words, command, shorter, shorter.time_limit_s)


def _before(
    job: SlurmJob, ask: Ask, nodes: list[NodeShort], site: Site, twin: SlurmTwin, now: float
) -> Iterator[Change]:
    """Yield shorter time limits with which a job would end before a reservation begins, or before a
    planned job starts, on nodes that could run it.
    """
    there = {node.name for node in nodes}
    limit = _limit_s(ask, site)
    edges = {
        one.start for one in site.reservations if one.name != ask.reservation and one.nodes & there
    }
    planned = twin.books().planned.items()
    edges |= {at for other, (at, on) in planned if other != job.id and on & there}
    fitted = set[int]()
    for edge in sorted((edge for edge in edges if now < edge < now + limit), reverse=True):
        minutes = floor((edge - now - max(SPARE_S, (edge - now) / 20)) / 60)
        if minutes >= 1:
            fitted.add(minutes)
    yield from (_shorter(job, minutes) for minutes in sorted(fitted, reverse=True)[:MOST_FITTED])


def _limit_s(ask: Ask, site: Site) -> float:
    """Return how many seconds a job may run at most, in any of its partitions; 0 where none of them
    is known."""
    known = (site.partitions[name] for name in ask.partitions if name in site.partitions)
    return max((ask.limit_s(part) for part in known), default=0.0)


def _within(job: SlurmJob, site: Site, twin: SlurmTwin, now: float) -> Iterator[Change]:
    """Yield changes that bring a job's request within a limit that it exceeds on its own.
    Unchanged, the job never starts.
    """
    parts = [site.partitions[name] for name in job.partition.split(",") if name in site.partitions]
    ask = twin.asked(job.id)
    limit = (job.time_limit_s or 0.0) if ask is None else _limit_s(ask, site)
    longest = [part.max_time_s for part in parts if part.max_time_s is not None]
    if len(longest) == len(parts) and parts and limit > max(longest) >= 60.0:
        yield _shorter(job, int(max(longest) // 60))
    ranges = [(part.min_nodes or 1, min(part.max_nodes or MANY, len(part.nodes))) for part in parts]
    near = {min(max(job.num_nodes, least), most) for least, most in ranges if least <= most}
    if near and job.num_nodes not in near:
        nodes = min(near, key=lambda one: abs(one - job.num_nodes))
        yield _on(job, nodes, "")
    pending = twin.evidence(job.id, now)
    hit = pending.hit if pending is not None else None
    if hit is None:
        return
    name, _, tres = hit.name.partition(" ")
    minutes = 0  # which Slurm takes for no limit
    if name == "MaxWall":
        minutes = int(hit.limit // 60)
    elif name == "MaxTRESMins":
        minutes = int(limit / 60 * hit.limit / hit.asked) if hit.asked else 0
    elif not hit.ever and not name.startswith("Min"):
        yield from _at_most(job, tres, hit.limit, name, site=site)
    if minutes >= 1:
        yield _shorter(job, minutes)


def _at_most(job: SlurmJob, tres: str, most: float, name: str, site: Site) -> Iterator[Change]:
    """Yield changes by which a job asks for at most so much of a resource: in all, or on each
    node where the limit is `MaxTRESPerNode`."""
    each = 1 if name == "MaxTRESPerNode" else job.num_nodes
    if tres == "gres/gpu":
        yield from _fewer(job, int(most // (each if job.gpus_per_node else 1)), site)
    of = {"cpu": lambda: _cpus(job, int(most)), "mem": lambda: _memory(job, most // each)}
    if tres in of and (change := of[tres]()):
        yield change


def _free_gpus(nodes: list[NodeShort]) -> int:
    """Return the largest number of free GPUs on one node, among nodes that lack only GPUs. Return 0
    without such a node.
    """
    short = (n for n in nodes if not n.shut and [one.what for one in n.lacks] == [GPU])
    return max((int(one.lacks[0].free) for one in short), default=0)


def _memory(job: SlurmJob, free: float) -> Change | None:
    if job.per != "node" or not free:
        return None
    shown = f"{free / 1024:.3g} GiB" if free >= 1024 else f"{free:.0f} MiB"
    changed = replace(
        job, least_mib=free, memory_mib=free * job.num_nodes, tres=_of(job, "mem", free)
    )
    command = f"scontrol update jobid={job.id} minmemorynode={free:.0f}"
    return Change(f"with {shown} of memory", command, changed, free)


def _cpus(job: SlurmJob, many: int) -> Change | None:
    if not many or job.num_nodes != 1 or job.min_cpus != job.cpus or job.cpus_per_gpu:
        return None
    changed = replace(job, cpus=many, min_cpus=many, tres=_of(job, "cpu", many))
    command = f"scontrol update jobid={job.id} numcpus={many} cpuspertask={many} mincpusnode={many}"
    return Change(f"with {count(many, 'CPU')}", command, changed, many)


def _less(job: SlurmJob, nodes: list[NodeShort]) -> Iterator[Change]:
    """Yield changes that reduce the job's memory or CPUs to the amount free on a node that lacks
    nothing else.
    """
    alone = [node for node in nodes if len(node.lacks) == 1 and not node.shut]
    memory = {n.lacks[0].free // MIB * MIB for n in alone if n.lacks[0].what == MEMORY}
    cpus = {int(n.lacks[0].free) for n in alone if n.lacks[0].what == CPU}
    less = [_memory(job, free) for free in sorted(memory, reverse=True)[:MOST_FITTED]]
    less += [_cpus(job, many) for many in sorted(cpus, reverse=True)[:MOST_FITTED]]
    yield from filter(None, less)


def _of(job: SlurmJob, name: str, amount: float) -> tuple[tuple[str, float], ...]:
    return tuple((tres, amount if tres == name else n) for tres, n in job.tres)


def _fewer(job: SlurmJob, free: int, site: Site) -> Iterator[Change]:
    """Yield changes to as many GPUs as are `free`, and to half of those asked for, where all
    GPUs are of one type."""
    if len(job.gpu_types) != 1 or job.gpu_types[0][1] < 2:
        return
    ((kind, many),) = job.gpu_types
    release = release_in(site.config.get("SLURM_VERSION", ""))
    for fewer in sorted((n for n in {free, many // 2} if 0 < n < many), reverse=True):
        gpus = job.gpus * fewer // many
        tres = tuple((n, gpus if n.startswith("gres/gpu") else v) for n, v in job.tres)
        changed = replace(job, gpus=gpus, gpu_types=((kind, fewer),), tres=tres)
        where = " on each node" if job.gpus_per_node and job.num_nodes > 1 else ""
        option = "trespernode" if job.gpus_per_node else "tresperjob"
        others = "".join(f",{_gres_word(release, *one)}" for one in job.gres)
        gres = gpus_word(release, kind, fewer) + others * job.gpus_per_node
        command = f"scontrol update jobid={job.id} {option}={gres}"
        yield Change(f"with {count(fewer, 'GPU')}{where}", command, changed, fewer)


def _spread(job: SlurmJob, nodes: list[NodeShort], site: Site) -> Iterator[Change]:
    """Yield changes of the job's number of nodes. A job of several nodes is reduced to the nodes
    that lack nothing. A job of one node is split evenly over two, if two nodes lack only GPUs.
    """
    ready = len({node.name for node in nodes if node.ready})
    if 0 < ready < job.num_nodes:
        yield _on(job, ready, "")
        return
    each, odd = divmod(job.gpu_types[0][1] if len(job.gpu_types) == 1 else 0, 2)
    fixed = job.num_nodes == job.max_nodes == 1 and not job.req_nodes
    if not (fixed and job.gpus_per_node and each) or odd:
        return
    half = {
        node.name
        for node in nodes
        if [one.what for one in node.lacks] == [GPU] and not node.shut and node.gpus >= each
    }
    if len(half) > 1:
        ((kind, _),) = job.gpu_types
        release = release_in(site.config.get("SLURM_VERSION", ""))
        others = "".join(f",{_gres_word(release, *one)}" for one in job.gres)
        gres = f" trespernode={gpus_word(release, kind, each)}{others}"
        yield _on(replace(job, gpu_types=((kind, each),), gpus=each), 2, gres)


def _on(job: SlurmJob, nodes: int, more: str) -> Change:
    """Return the change of a job to so many nodes. `more`: further words for scontrol."""
    before = max(1, job.num_nodes)
    gpus = job.gpus // before * nodes if job.gpus_per_node else job.gpus
    asked = {"node": float(nodes)} | {n: float(gpus) for n, _ in job.tres if "gres/gpu" in n}
    if job.per == "node" and job.least_mib:
        asked["mem"] = job.least_mib * nodes
    changed = replace(
        job,
        num_nodes=nodes,
        max_nodes=nodes,
        gpus=gpus,
        cpus=max(job.cpus, job.min_cpus * nodes),
        memory_mib=asked.get("mem", job.memory_mib),
        tres=tuple((name, asked.get(name, n)) for name, n in job.tres),
    )
    each = f" with {count(gpus // nodes, 'GPU')} on each" if more else ""
    command = f"scontrol update jobid={job.id} numnodes={nodes}-{nodes}{more}"
    return Change(f"on {count(nodes, 'node')}{each}", command, changed, nodes)


def _gres_word(release: tuple[int, int] | None, name: str, many: int) -> str:
    before = release is not None and release < (23, 11)
    return f"{'gres:' if before else 'gres/'}{name}:{many}"
