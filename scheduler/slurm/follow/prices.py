"""What a change of a waiting job costs, and what it takes for granted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from scheduler.core.plural import count
from scheduler.explain.words import duration, roughly
from scheduler.slurm.read.parse import SlurmJob
from scheduler.slurm.twin.preemption import CANCEL, REQUEUE, Preemption
from scheduler.slurm.twin.site import Site

MINUTE_S = 60.0
_STOPPED = {REQUEUE: ", and it begins again", CANCEL: ", and it ends"}


@dataclass(frozen=True, slots=True)
class Price:
    """What a change costs, and what it takes for granted, in words; "" is nothing.

    Attributes:
        times: how many times as long it takes; None: as long, as far as is known.
        costs_s: seconds by which it ends later or, where its start is not known, runs longer; None:
            `costs` states no such time.
        lasts_s: seconds that it should run, where a shorter limit would stop it before; otherwise
            None.
    """

    costs: str = ""
    assumed: str = ""
    times: float | None = None
    costs_s: float | None = None
    lasts_s: float | None = None


def price(job: SlurmJob, changed: SlurmJob, lasts_s: float | None, gain_s: float | None) -> Price:
    """Return the price of a changed job.

    Args:
        lasts_s: seconds that the unchanged job is predicted to run; None: not known.
        gain_s: seconds by which the changed job starts sooner; None: not known.
    """
    limit_s = changed.time_limit_s
    shorter = limit_s is not None and (job.time_limit_s is None or limit_s < job.time_limit_s)
    if changed.gpus < job.gpus and changed.gpus:
        return _slower(job.gpus / changed.gpus, limit_s, lasts_s, gain_s)
    if changed.num_nodes < job.num_nodes and job.exclusive and not job.gpus:  # all of each node
        return _slower(job.num_nodes / changed.num_nodes, limit_s, lasts_s, gain_s)
    if shorter and limit_s is not None:
        return _stopped(limit_s, lasts_s)
    less = (changed.memory_mib or 0.0) < (job.memory_mib or 0.0)
    if changed.num_nodes != job.num_nodes:
        assumed = f"it lasts as long on {count(changed.num_nodes, 'node')} as on {job.num_nodes}"
        memory = f", with {(changed.memory_mib or 0.0) / 1024:.4g} GiB of memory in all"
        return Price(assumed=assumed + memory * less)
    if less:
        return Price(assumed="it needs no more memory than that")
    if changed.cpus < job.cpus:
        return Price(assumed="it lasts as long with fewer CPUs")
    return Price()


def _slower(
    times: float, limit_s: float | None, lasts_s: float | None, gain_s: float | None
) -> Price:
    assumed = f"its work is the same: it takes {times:.3g} times as long"
    if lasts_s is None:
        return Price("how much longer it runs is not known", assumed, times)
    if limit_s is not None and lasts_s * times > limit_s:
        return Price("its time limit would stop it, unfinished", assumed, times)
    costs_s = lasts_s * times - lasts_s - (gain_s or 0.0)
    if costs_s < MINUTE_S:
        return Price(assumed=assumed, times=times)
    costs = f"it ends about {roughly(costs_s)} later than without the change"
    if gain_s is None:
        costs = f"it runs about {roughly(costs_s)} longer"
    return Price(costs, assumed, times, costs_s)


def _stopped(limit_s: float, lasts_s: float | None) -> Price:
    assumed = "its work is done within that limit"
    if lasts_s is None:
        return Price("how long it runs is not known: Slurm stops it at its limit", assumed)
    if lasts_s > limit_s:
        costs = f"it should run about {duration(lasts_s)}: Slurm would stop it"
        return Price(costs, assumed, lasts_s=lasts_s)
    return Price(assumed=assumed)


def elsewhere(job: SlurmJob, changed: SlurmJob, site: Site) -> str:
    """Return in words what another partition or QOS costs a changed job: other jobs may stop it
    there, or its use counts more. Return "" where it costs nothing.
    """
    before, after = (set(_makes_way(one, site)) for one in (job, changed))
    if new := sorted(after - before - {""}):
        return f"jobs of others may stop it there{_STOPPED.get(new[0], '')}"
    was, factor = (
        site.qos[one.qos].factor if one.qos in site.qos else 1.0 for one in (job, changed)
    )
    return f"its use counts {factor / was:.3g} times as much" if factor > was > 0.0 else ""


def _makes_way(job: SlurmJob, site: Site) -> Iterator[str]:
    rules = Preemption(site)
    yield from (rules.mode(job.qos, name) for name in job.partition.split(","))
