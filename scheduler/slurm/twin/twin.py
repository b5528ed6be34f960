"""The interface of a policy that decides as a site's own Slurm does (`Capabilities.twin`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Protocol, cast

from features.job import Job
from scheduler.core.policy import Never, Policy
from scheduler.slurm.twin.capacity import Books, Capacity, Free, choose, suits
from scheduler.slurm.twin.limits import Usage, first_hit, is_limit
from scheduler.slurm.twin.passes import (
    DOWN,
    NOT_AVAILABLE,
    PendingReason,
    Ranked,
    closed_to,
    het_job,
)
from scheduler.slurm.twin.priority import Multifactor
from scheduler.slurm.twin.site import Ask, Partition, Site

MOST_COMPONENTS = 128  # of a heterogeneous job, in Slurm (MAX_HET_JOB_COMPS)


class SlurmTwin(Protocol):
    """The interface of the policy `slurm`: its site, its order of jobs, and why jobs wait as last
    computed. See `Slurm` for each member."""

    site: Site
    weights: Multifactor
    reasons: dict[str, PendingReason]
    soon: set[str]

    def see(
        self,
        site: Site,
        names: Iterable[str],
        asks: Mapping[str, Ask],
        now: float | None = None,
        shown: Mapping[str, list[Ranked]] | None = None,
    ) -> None: ...

    def expect(self, asks: Mapping[str, Ask]) -> None: ...

    def ask(self, job: Job) -> Ask: ...

    def asked(self, job_id: str) -> Ask | None: ...

    def line(self) -> list[Ranked]: ...

    def suiting(
        self, ask: Ask, part: Partition, now: float, *, closed: bool = False
    ) -> list[str]: ...

    def books(self) -> Books: ...

    def evidence(self, job_id: str, now: float) -> PendingReason | None: ...


def twin_in(policy: Policy) -> SlurmTwin | None:
    """Return the policy as a `SlurmTwin`, if it is one that imitates Slurm (`Capabilities.twin`).
    Return None for any other policy."""
    return cast(SlurmTwin, policy) if policy.capabilities.twin else None


@dataclass(frozen=True, slots=True)
class TwinOutlook:
    """The policy `slurm`'s statements about waiting jobs, for forecasts."""

    twin: SlurmTwin

    def never(self, job_id: str) -> Never | None:
        """Return what prevents a job from ever starting in Slurm, or None if nothing is known
        to."""
        return next((why for why, is_so in _NEVER.items() if is_so(self.twin, job_id)), None)

    def latest(self, job_id: str) -> float:
        """Return the latest time at which a job may start to meet its deadline, seconds since the
        epoch; inf without one."""
        ask = self.twin.asked(job_id)
        return inf if ask is None else ask.latest

    def planned(self, job_id: str) -> float | None:
        """Return when backfill plans to start a job, seconds since the epoch, or None if it plans
        no start."""
        reason = self.twin.reasons.get(job_id)
        return None if reason is None else reason.planned_at

    def kept_until(self, job_id: str, now: float) -> float:
        """If a reservation keeps a job from its nodes, return when the first reservation ends that
        has nodes of the job's partitions, seconds since the epoch. Otherwise return `now`."""
        found, ask = self.twin.reasons.get(job_id), self.twin.asked(job_id)
        if found is None or found.reason != NOT_AVAILABLE or ask is None:
            return now
        kept, known = self.twin.evidence(job_id, now), self.twin.site.partitions
        if kept is None or not kept.reservation:
            return now
        there = {n for name in ask.partitions if name in known for n in known[name].nodes}
        ends = (r.end for r in self.twin.site.reservations if r.nodes & there and r.end > now)
        return min(ends, default=now)


def refused(twin: SlurmTwin, job_id: str) -> bool:
    """Return whether every partition refuses the job as it is, even with all nodes free and up."""
    return _never(twin, job_id, lambda ask, part: closed_to(ask, part) not in ("", DOWN))


def limited(twin: SlurmTwin, job_id: str) -> bool:
    """Return whether the job's own request exceeds a limit of a QOS or an association in each of
    its partitions, and the reason that Slurm shows is such a limit (this one or another)."""
    nobody = Usage()
    return _never(twin, job_id, lambda ask, part: _hit(ask, part, twin.site, nobody))


def misplaced(twin: SlurmTwin, job_id: str) -> bool:
    """Return whether a job names a reservation whose nodes could not run it even if they were
    empty."""
    return _never(twin, job_id, lambda ask, part: _outside(ask, part, twin.site))


def _outside(ask: Ask, part: Partition, site: Site) -> bool:
    held = next((one for one in site.reservations if one.name == ask.reservation), None)
    if held is None or "FLEX" in held.flags:
        return False
    there = [one for name, one in site.nodes.items() if name in held.nodes & part.nodes]
    names = [one.name for one in there if suits(ask, one)]
    empty = Capacity({one.name: Free.of(one) for one in there})
    return choose(ask, empty, names, site) is None


def shut_out(twin: SlurmTwin, job_id: str) -> bool:
    """Return whether the open nodes alone could not run a job even if they were empty, but together
    with the closed nodes could."""
    return _never(twin, job_id, lambda ask, part: _needs_closed(ask, part, twin.site))


def _needs_closed(ask: Ask, part: Partition, site: Site) -> bool:
    there = [site.nodes[name] for name in part.nodes if name in site.nodes]
    if all(node.open for node in there):
        return False
    empty = Capacity({node.name: Free.of(node) for node in there})
    able = sorted((n.name for n in there if suits(ask, n)), key=site.order.__getitem__)
    now = [name for name in able if site.nodes[name].open]
    return choose(ask, empty, now, site) is None and choose(ask, empty, able, site) is not None


def _hit(ask: Ask, part: Partition, site: Site, usage: Usage) -> bool:
    return is_limit(ask.reason) and first_hit(ask, part, site, usage) is not None


def _never(twin: SlurmTwin, job_id: str, keeps: Callable[[Ask, Partition], bool]) -> bool:
    """Return whether `keeps` is true for a job in each of its partitions. For a heterogeneous job,
    return whether that holds for one of its components, since they start together."""
    known = twin.site.partitions
    for ask in _together(twin, job_id):
        parts = [known[name] for name in ask.partitions if name in known]
        if parts and all(keeps(ask, part) for part in parts):
            return True
    return False


def _together(twin: SlurmTwin, job_id: str) -> list[Ask]:
    ask = twin.asked(job_id)
    head = het_job(ask) if ask is not None else ""
    found = [ask] if not head else [twin.asked(f"{head}+{n}") for n in range(MOST_COMPONENTS)]
    return [one for one in found if one is not None]


_NEVER: Mapping[Never, Callable[[SlurmTwin, str], bool]] = {
    Never.REFUSED: refused,
    Never.LIMITED: limited,
    Never.MISPLACED: misplaced,
    Never.CLOSED: shut_out,
}
