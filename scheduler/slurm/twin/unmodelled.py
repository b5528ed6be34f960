"""Finds the settings of a site, and the options of jobs, that the policy `slurm` does not know.
They are listed with the number of jobs that they affect. Those jobs get no forecast, except where a
setting is only named (`Known.NAMED`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Protocol

from scheduler.core.plural import count
from scheduler.slurm.twin.known import Known, gres, parameter
from scheduler.slurm.twin.limits import is_limit
from scheduler.slurm.twin.preemption import CANCEL, REQUEUE, Preemption
from scheduler.slurm.twin.priority import accounts_of
from scheduler.slurm.twin.site import Ask, Site

_RAW = attrgetter("qos", "account", "user", "partition", "odd", "gres")  # what a `_Kind` is made of
_MODES = ("", REQUEUE, CANCEL)  # of preemption, that are known


class Charged(Protocol):
    """The fields of a job that decide which features that it uses are not modelled."""

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
    @property
    def gres(self) -> tuple[tuple[str, int], ...]: ...


@dataclass(frozen=True, slots=True)
class _Kind:
    """The fields of a job by which jobs are grouped: for all jobs of one kind, the same features
    are not modelled."""

    qos: str
    account: str
    user: str
    partitions: tuple[str, ...]
    odd: tuple[str, ...]

    @classmethod
    def of(cls, job: Charged) -> _Kind:
        return cls.made_of(*_RAW(job))

    @classmethod
    def made_of(
        cls,
        qos: str,
        account: str,
        user: str,
        partition: str,
        odd: tuple[str, ...],
        asked: tuple[tuple[str, int], ...],
    ) -> _Kind:
        """Return the kind of a job with these fields, which are those of `_RAW`."""
        parts = tuple(partition.split(","))
        more = (f"gres/{name}" for name, _ in asked if gres(name) is Known.WITHHELD)
        return cls(qos=qos, account=account, user=user, partitions=parts, odd=(*odd, *more))

    def touching(self, site: Site) -> Iterator[str]:
        """Yield the settings of the kind's QOS and accounts, and its options, that are not
        modelled, as lines."""
        qos, above = site.qos.get(self.qos), [(a, "") for a in accounts_of(site, self.account)]
        yield from (f"QOS {self.qos}: {one}" for one in (qos.not_modelled if qos else ()))
        for key in (site.key(self.account, self.user, self.partitions[0]), *above):
            assoc = site.assocs.get(key)
            yield from (f"account {key[0]}: {one}" for one in (assoc.not_modelled if assoc else ()))
        yield from self.odd


def _alike(jobs: Iterable[Charged]) -> Counter[_Kind]:
    """Return how many jobs there are of each kind."""
    found = Counter[_Kind]()
    for raw, many in Counter(map(_RAW, jobs)).items():
        found[_Kind.made_of(*raw)] += many
    return found


def unmodelled_words(what: str, jobs: int) -> str:
    """Return as text one feature of Slurm that the twin does not model, with the number of jobs
    that use it.
    """
    return f"Not modelled by the policy slurm: {what} ({count(jobs, 'job')})."


def unmodelled(site: Site, jobs: Iterable[Charged]) -> dict[str, int]:
    """Return which of the site's settings, and of these jobs' partitions, QOS, associations and
    options, the policy `slurm` does not model. Maps each, as text, to the number of jobs that it
    affects."""
    found: Counter[str] = Counter()
    jobs = list(jobs)
    unknown = (Known.NAMED, Known.WITHHELD)
    names = [name for name in site.parameters if parameter(name) in unknown]
    found.update(dict.fromkeys((f"SchedulerParameters={name}" for name in names), len(jobs)))
    alike, preemption = _alike(jobs), Preemption(site)
    for kind, touched in alike.items():
        modes = ((name, preemption.mode(kind.qos, name)) for name in kind.partitions)
        more = (
            f"{f'QOS {kind.qos}' if preemption.by_qos else f'partition {name}'}: PreemptMode={mode}"
            for name, mode in modes
            if mode not in _MODES
        )
        found.update(dict.fromkeys((*kind.touching(site), *more), touched))
    return dict(sorted(found.items()))


def unforeseen(
    site: Site, waiting: Iterable[Ask], running: Iterable[Ask], others: Iterable[Ask] = ()
) -> dict[str, str]:
    """Return the waiting jobs for which no start is forecast. Maps each job id to the reason.

    Args:
        others: all waiting jobs, whose limits may stop a job behind them.
    """
    found: dict[str, str] = {}
    others = list(others) if STOPS in site.parameters else []
    running = list(running)
    shards = sum(any(gres(name) is Known.WITHHELD for name, _ in ran.gres) for ran in running)
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
        elif shards and ask.gpus:
            found[ask.job_id] = f"not modelled: {count(shards, 'running job')} with parts of GPUs"
        elif stopped_by(ask, others):
            found[ask.job_id] = f"not modelled: SchedulerParameters={STOPS}"
    return found


STOPS = "assoc_limit_stop"  # who waits for a limit holds all behind it in its partition


def stopped_by(ask: Ask, waiting: Iterable[Ask]) -> Ask | None:
    """Return the first job that waits for a limit in one of this job's partitions and is not behind
    it, or None."""
    return next(
        (
            one
            for one in waiting
            if one.job_id != ask.job_id
            and is_limit(one.reason)
            and not one.shares
            and one.priority >= ask.priority
            and set(one.partitions) & set(ask.partitions)
        ),
        None,
    )
