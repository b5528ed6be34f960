"""Which partitions accept a user's job at all, however empty they are."""

from __future__ import annotations

from dataclasses import replace

from scheduler.core.plural import count
from scheduler.explain.words import duration
from scheduler.slurm.read.parse import SlurmJob
from scheduler.slurm.read.site import asks_of, defaults_in, takes
from scheduler.slurm.twin.capacity import Capacity, choose, suits
from scheduler.slurm.twin.passes import closed_to
from scheduler.slurm.twin.site import Partition, Site


def closed_to_user(job: SlurmJob, part: Partition, site: Site) -> str:
    """Return as text why a job cannot run in a partition however empty it is, or "" where it
    can."""
    ask = asks_of([replace(job, partition=part.name)], site)[job.id]
    if word := closed_to(ask, part):
        qos = f"QOS {ask.qos}" if ask.qos else "jobs without a QOS"
        return {
            "PartitionTimeLimit": f"allows {duration(part.max_time_s or 0.0)} at most",
            "PartitionDown": "is down",
            "PartitionNodeLimit": _nodes(ask.nodes, part),
            "AccountNotAllowed": f"does not take account {ask.account}",
            "QOSNotAllowed": f"does not take {qos}",
        }.get(word, word)
    if part.root_only and ask.user != "root":
        return "takes jobs of root only"
    if part.in_reservations and not ask.reservation:
        return "takes jobs in a reservation only (--reservation)"
    if not takes(ask.user, part.groups):
        return f"takes no user of the groups that {ask.user} is in"
    if why := _beyond(job, part, site):
        return why
    there = (n for n in part.nodes if n in site.nodes)  # down ones come back
    names = sorted(there, key=site.order.__getitem__)
    names = [n for n in names if suits(ask, site.nodes[n])]
    fits = choose(ask, Capacity.of(site), names, site)
    return "" if fits is not None else "has no nodes that suit, were they empty"


def _nodes(asked: int, part: Partition) -> str:
    """Return a clause on how many nodes a partition allows, or has, for a job that asks for `asked`
    nodes."""
    if asked < part.min_nodes:
        return f"gives a job {count(part.min_nodes, 'node')} or more (MinNodes)"
    if part.max_nodes is not None and asked > part.max_nodes:
        return f"gives a job {count(part.max_nodes, 'node')} at most (MaxNodes)"
    return f"has {count(len(part.nodes), 'node')}"


def _beyond(job: SlurmJob, part: Partition, site: Site) -> str:
    """Return a clause on why a partition does not take a job because of its account or its memory;
    "" where it does."""
    all_known = ("root", "") in site.assocs
    enforced = all_known and site.enforced & {"associations", "limits", "safe", "qos"}
    if enforced and site.key(job.account, job.user, part.name) not in site.assocs:
        return f"takes no jobs of {job.user} in account {job.account}"
    most = defaults_in(site.config, part).get("MaxMemPerNode")
    each = (job.memory_mib or 0.0) / max(1, job.num_nodes)
    return f"gives {most:g} MiB of a node at most" if most and each > most else ""
