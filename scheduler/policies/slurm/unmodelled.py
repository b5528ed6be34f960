"""What a site sets or a job asks for that the policy `slurm` does not know: it is listed with the
jobs that it touches, and those have no forecast."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from scheduler.core.plural import count
from scheduler.policies.slurm.priority import accounts_of, duration_s
from scheduler.policies.slurm.site import Ask, Site


class Charged(Protocol):
    """A job, as far as this is concerned."""

    @property
    def qos(self) -> str: ...
    @property
    def account(self) -> str: ...
    @property
    def user(self) -> str: ...
    @property
    def partition(self) -> str: ...
    @property
    def accrue(self) -> float | None: ...
    @property
    def odd(self) -> tuple[str, ...]: ...


@dataclass(frozen=True, slots=True)
class _Kind:
    """Jobs that are alike in this."""

    qos: str
    account: str
    user: str
    partitions: tuple[str, ...]
    odd: tuple[str, ...]
    ages: bool

    @classmethod
    def of(cls, job: Charged) -> _Kind:
        parts = tuple(job.partition.split(","))
        return cls(job.qos, job.account, job.user, parts, job.odd, job.accrue is not None)

    def touching(self, site: Site) -> Iterator[str]:
        """What of it is not modelled."""
        qos, above = site.qos.get(self.qos), [(a, "") for a in accounts_of(site, self.account)]
        yield from (f"QOS {self.qos}: {one}" for one in (qos.not_modelled if qos else ()))
        for key in (site.key(self.account, self.user, self.partitions[0]), *above):
            assoc = site.assocs.get(key)
            yield from (f"account {key[0]}: {one}" for one in (assoc.not_modelled if assoc else ()))
        yield from self.odd


def unmodelled_words(what: str, jobs: int) -> str:
    """A line about one of `unmodelled`."""
    return f"Not modelled by the policy slurm: {what} ({count(jobs, 'job')})."


def unmodelled(site: Site, jobs: Iterable[Charged]) -> dict[str, int]:
    """What of these jobs' partitions, QOS, associations and options is not modelled, and how many
    have it."""
    found: Counter[str] = Counter()
    alike = Counter(_Kind.of(job) for job in jobs)
    for kind, touched in alike.items():
        ways = [name for name in kind.partitions if _preempted(site, name)]
        after = f", PreemptExemptTime={s:g} s" if (s := _exempt_s(site, kind.qos)) else ""
        more = (
            f"partition {name}: PreemptMode={site.partitions[name].preempted}{after}"
            for name in ways
        )
        found.update(dict.fromkeys((*kind.touching(site), *more), touched))
    return dict(sorted(found.items()))


def _preempted(site: Site, name: str) -> bool:
    """Whether jobs of other partitions may take what those of a partition have."""
    of = site.partitions.get(name)
    by_tier = site.config.get("PreemptType", "").endswith("partition_prio")
    if of is None or not (by_tier and of.preempted):
        return False
    return any(one.tier > of.tier and one.nodes & of.nodes for one in site.partitions.values())


def _exempt_s(site: Site, name: str) -> float:
    """For how long a job of a QOS runs before it can be preempted."""
    qos = site.qos.get(name)
    if qos is not None and qos.exempt_s is not None:
        return qos.exempt_s
    return duration_s(site.config.get("PreemptExemptTime", "")) or 0.0


def unforeseen(site: Site, waiting: Iterable[Ask], running: Iterable[Ask]) -> dict[str, str]:
    """Of which of the jobs that wait no start is foreseen, and why."""
    found: dict[str, str] = {}
    known: dict[_Kind, str] = {}
    there = list(running) if not site.config.get("PreemptType", "none").endswith("none") else []
    for ask in waiting:
        kind = _Kind.of(ask)
        if kind not in known:
            named = [
                one
                for one in kind.touching(site)
                # who ages is kept back by no such limit; whom it may preempt is seen below
                if "Preempt=" not in one and not (kind.ages and "JobsAccrue" in one)
            ]
            many = sum(_makes_way(site, ask, other) for other in there)
            preempts = [f"it may preempt {count(many, 'running job')}"] if many else []
            known[kind] = next((f"not modelled: {one}" for one in [*named, *preempts]), "")
        if known[kind]:
            found[ask.job_id] = known[kind]
    return found


def _makes_way(site: Site, ask: Ask, ran: Ask) -> bool:
    """Whether a running job may be preempted for one that waits."""
    here, kind = next(iter(ran.partitions), ""), site.config.get("PreemptType", "")
    on = {share.node for share in ran.shares}
    if ran.limit_s(site.partitions.get(here)) <= _exempt_s(site, ran.qos):
        return False  # it is over before
    parts = (site.partitions[name] for name in ask.partitions if name in site.partitions)
    near = [part for part in parts if part.nodes & on]
    if kind.endswith("qos"):
        qos = site.qos.get(ask.qos)
        return bool(near) and qos is not None and ran.qos in qos.preempts
    return _preempted(site, here) and any(p.tier > site.partitions[here].tier for p in near)
