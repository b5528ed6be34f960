"""What a site sets or a job asks for that the policy `slurm` does not know: it is listed with the
jobs that it touches, and those have no forecast."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from scheduler.core.plural import count
from scheduler.policies.slurm.preemption import CANCEL, REQUEUE, Preemption
from scheduler.policies.slurm.priority import accounts_of
from scheduler.policies.slurm.site import Ask, Site

_MODES = ("", REQUEUE, CANCEL)  # of preemption, that are known


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
    def odd(self) -> tuple[str, ...]: ...


@dataclass(frozen=True, slots=True)
class _Kind:
    """Jobs that are alike in this."""

    qos: str
    account: str
    user: str
    partitions: tuple[str, ...]
    odd: tuple[str, ...]

    @classmethod
    def of(cls, job: Charged) -> _Kind:
        parts = tuple(job.partition.split(","))
        return cls(job.qos, job.account, job.user, parts, job.odd)

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
    alike, preemption = Counter(_Kind.of(job) for job in jobs), Preemption(site)
    for kind, touched in alike.items():
        modes = ((name, preemption.mode(kind.qos, name)) for name in kind.partitions)
        more = (
            f"{f'QOS {kind.qos}' if preemption.by_qos else f'partition {name}'}: PreemptMode={mode}"
            for name, mode in modes
            if mode not in _MODES
        )
        found.update(dict.fromkeys((*kind.touching(site), *more), touched))
    return dict(sorted(found.items()))


def unforeseen(site: Site, waiting: Iterable[Ask], running: Iterable[Ask]) -> dict[str, str]:
    """Of which of the jobs that wait no start is foreseen, and why."""
    found: dict[str, str] = {}
    known: dict[_Kind, str] = {}
    preemption = Preemption(site)
    odd = [
        ran
        for ran in running
        if preemption.mode(ran.qos, ran.partition.partition(",")[0]) not in _MODES
    ]
    for ask in waiting:
        kind = _Kind.of(ask)
        if kind not in known:
            parts = [site.partitions[name] for name in ask.partitions if name in site.partitions]
            many = sum(any(preemption.makes_way(ran, ask, part) for part in parts) for ran in odd)
            preempts = [f"it may preempt {count(many, 'running job')}"] if many else []
            known[kind] = next(
                (f"not modelled: {one}" for one in [*kind.touching(site), *preempts]), ""
            )
        if known[kind]:
            found[ask.job_id] = known[kind]
    return found
