"""What a change of a waiting job costs, and what it takes for granted."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.explain.words import duration, roughly
from scheduler.slurm.read.parse import SlurmJob

MINUTE_S = 60.0


@dataclass(frozen=True, slots=True)
class Price:
    """What a change costs, and what it takes for granted, in words; "" is nothing.

    Attributes:
        times: how many times as long it takes. costs_s: how much later it ends, seconds, or where
            its start is not known how much longer it runs. lasts_s: how long it should run.
            Each None where nothing in the words rests on it.
    """

    costs: str = ""
    assumed: str = ""
    times: float | None = None
    costs_s: float | None = None
    lasts_s: float | None = None


def price(job: SlurmJob, changed: SlurmJob, lasts_s: float | None, gain_s: float | None) -> Price:
    """Return the price of a changed job.

    Args:
        lasts_s: how long the job as it is should run, at even odds; None: nobody knows.
        gain_s: how much sooner the changed job starts; None: not known.
    """
    limit_s = changed.time_limit_s
    shorter = limit_s is not None and (job.time_limit_s is None or limit_s < job.time_limit_s)
    if changed.gpus < job.gpus and changed.gpus:
        return _slower(job.gpus / changed.gpus, limit_s, lasts_s, gain_s)
    if shorter and limit_s is not None:
        return _stopped(limit_s, lasts_s)
    if (changed.memory_mib or 0.0) < (job.memory_mib or 0.0):
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
    costs = f"it ends about {roughly(costs_s)} later than as it is"
    if gain_s is None:
        costs = f"it runs about {roughly(costs_s)} longer"
    return Price(costs, assumed, times, costs_s)


def _stopped(limit_s: float, lasts_s: float | None) -> Price:
    assumed = "it can be done within that limit"
    if lasts_s is None:
        return Price("how long it runs is not known: Slurm stops it at its limit", assumed)
    if lasts_s > limit_s:
        costs = f"it should run about {duration(lasts_s)}: Slurm would stop it"
        return Price(costs, assumed, lasts_s=lasts_s)
    return Price(assumed=assumed)
