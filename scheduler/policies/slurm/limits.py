"""Limits of QOS and associations, with Slurm's own reason for each.

After acct_policy.c of Slurm 22.05 (https://slurm.schedmd.com/resource_limits.html): the QOS first,
then the association and every account above it, each for what was not set before it. What is not
modelled is in `unmodelled`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from scheduler.policies.slurm.priority import accounts_of
from scheduler.policies.slurm.site import Ask, Assoc, Limits, Partition, Qos, Site, Tres


@dataclass(frozen=True, slots=True)
class Hit:
    """A limit that a job would go beyond.

    Attributes:
        reason: as squeue shows it.
        whose: ``QOS limited``, ``account physics``, ``user anna in account physics``.
        name: sacctmgr's, with the TRES: ``GrpTRES gres/gpu``.
        limit, used, asked: what may be had, what is had, what the job would add.
        ever: it is within the limit once others end.
    """

    reason: str
    whose: str
    name: str
    limit: float
    used: float
    asked: float
    ever: bool = True


class Usage:
    """What running jobs have, by whom it is counted."""

    def __init__(self) -> None:
        self._tres: dict[tuple[str, ...], Counter[str]] = {}
        self._jobs: Counter[tuple[str, ...]] = Counter()

    def add(self, ask: Ask, site: Site, sign: int = 1) -> None:
        """A job runs; `sign` -1: no longer."""
        for key in _keys(ask, site):
            self._jobs[key] += sign
            counted = self._tres.setdefault(key, Counter())
            for name, many in ask.tres.items():
                counted[name] += sign * many  # type: ignore[assignment]

    def copy(self) -> Usage:
        found = Usage()
        found._tres = {key: Counter(counted) for key, counted in self._tres.items()}
        found._jobs = Counter(self._jobs)
        return found

    def jobs(self, *key: str) -> int:
        return self._jobs[key]

    def tres(self, name: str, *key: str) -> float:
        return self._tres.get(key, Counter())[name]


def _keys(ask: Ask, site: Site) -> Iterator[tuple[str, ...]]:
    for qos in (ask.qos, *_partition_qos(ask, site)):
        yield "qos", qos
        yield "qos-user", qos, ask.user
        yield "qos-account", qos, ask.account
    yield "user", *site.key(ask.account, ask.user, next(iter(ask.partitions), ""))
    for account in accounts_of(site, ask.account):
        yield "account", account


def _partition_qos(ask: Ask, site: Site) -> list[str]:
    if not ask.shares:
        return []
    part = site.partitions.get(ask.partitions[0]) if ask.partitions else None
    return [part.qos] if part is not None and part.qos and part.qos != ask.qos else []


def first_hit(
    ask: Ask, partition: Partition, site: Site, usage: Usage, *, tres: bool | None = None
) -> Hit | None:
    """The first limit that keeps a job waiting; None: none does.

    Args:
        tres: of those on TRES only, which Slurm tests last; False: of the others; None: of all.
    """
    if not {"limits", "safe"} & site.enforced:
        return None
    if tres is None:
        early = first_hit(ask, partition, site, usage, tres=False)
        return early or first_hit(ask, partition, site, usage, tres=True)
    of_qos, of_assoc = (_qos_tres, _assoc_tres) if tres else (_qos_jobs, _assoc_jobs)
    above: list[Limits] = []
    own = site.qos.get(ask.qos)
    both = (ask.qos, partition.qos) if own is not None and own.first else (partition.qos, ask.qos)
    for name in dict.fromkeys(both):
        qos = site.qos.get(name)
        if qos is not None:
            left = replace(qos, limits=_unset(qos.limits, above))
            if hit := _first(of_qos(ask, partition, left, usage)):
                return hit
            above += [qos.limits] if qos.limits != _NONE else []
    mine = site.key(ask.account, ask.user, partition.name)
    keys = [mine, *((name, "") for name in accounts_of(site, ask.account))]
    for key in keys:
        assoc = site.assocs.get(key)
        if assoc is not None and assoc.limits != _NONE:
            left_of = replace(assoc, limits=_unset(assoc.limits, above))
            if hit := _first(of_assoc(ask, partition, left_of, usage)):
                return hit
    return None


_NONE = Limits()


def _unset(limits: Limits, above: Iterable[Limits]) -> Limits:
    """Those that no QOS sets, which comes before an association, as the one of a partition comes
    before the one of a job: a limit holds where it is set first."""
    for one in above:
        taken: dict[str, Any] = {
            name: {tres: n for tres, n in getattr(limits, name).items() if tres not in set_there}
            for name in ("grp_tres", "max_tres", "max_tres_pu", "max_tres_pa")
            if (set_there := getattr(one, name))
        }
        jobs = one.max_jobs_pu is not None or one.max_jobs_pa is not None
        limits = replace(
            limits,
            **taken,
            grp_jobs=limits.grp_jobs if one.grp_jobs is None else None,
            max_jobs=None if jobs else limits.max_jobs,
            max_wall_s=limits.max_wall_s if one.max_wall_s is None else None,
            max_jobs_pu=limits.max_jobs_pu if one.max_jobs_pu is None else None,
            max_jobs_pa=limits.max_jobs_pa if one.max_jobs_pa is None else None,
        )
    return limits


def _first(hits: Iterable[Hit | None]) -> Hit | None:
    return next(filter(None, hits), None)


def _qos_jobs(ask: Ask, partition: Partition, qos: Qos, usage: Usage) -> Iterator[Hit | None]:
    limits, whose = qos.limits, f"QOS {qos.name}"
    user, account = f"user {ask.user} in {whose}", f"account {ask.account} in {whose}"
    running = usage.jobs("qos", qos.name)
    of_account = usage.jobs("qos-account", qos.name, ask.account)
    of_user = usage.jobs("qos-user", qos.name, ask.user)
    yield _jobs(limits.grp_jobs, "QOSGrpJobsLimit", "GrpJobs", whose, running)
    yield _jobs(limits.max_jobs_pa, "MaxJobsPerAccount", "MaxJobsPA", account, of_account)
    yield _jobs(limits.max_jobs_pu, "QOSMaxJobsPerUserLimit", "MaxJobsPU", user, of_user)
    yield _wall(ask, partition, limits, "QOSMaxWallDurationPerJobLimit", whose)


def _qos_tres(ask: Ask, partition: Partition, qos: Qos, usage: Usage) -> Iterator[Hit | None]:
    limits, whose = qos.limits, f"QOS {qos.name}"
    user, account = f"user {ask.user} in {whose}", f"account {ask.account} in {whose}"
    keys = (
        ("qos", qos.name),
        ("qos-account", qos.name, ask.account),
        ("qos-user", qos.name, ask.user),
    )
    yield _tres(ask, limits.grp_tres, "QOSGrp", "", "GrpTRES", whose, usage, keys[0])
    yield _tres(ask, limits.max_tres, "QOSMax", "PerJob", "MaxTRESPerJob", whose, usage)
    yield _tres(
        ask, limits.max_tres_pa, "QOSMax", "PerAccount", "MaxTRESPA", account, usage, keys[1]
    )
    yield _tres(ask, limits.max_tres_pu, "QOSMax", "PerUser", "MaxTRESPU", user, usage, keys[2])


def _whose(assoc: Assoc) -> tuple[str, tuple[str, ...]]:
    if assoc.user:
        user, _, part = assoc.user.partition("|")
        whose = f"user {user} in account {assoc.account}{part and f', partition {part}'}"
        return whose, ("user", assoc.account, assoc.user)
    return f"account {assoc.account}", ("account", assoc.account)


def _assoc_jobs(ask: Ask, partition: Partition, assoc: Assoc, usage: Usage) -> Iterator[Hit | None]:
    limits, (whose, key) = assoc.limits, _whose(assoc)
    running = usage.jobs(*key)
    yield _jobs(limits.grp_jobs, "AssocGrpJobsLimit", "GrpJobs", whose, running)
    if assoc.user:  # MaxJobs of an account is the default of its users, not its own
        yield _jobs(limits.max_jobs, "AssocMaxJobsLimit", "MaxJobs", whose, running)
    yield _wall(ask, partition, limits, "AssocMaxWallDurationPerJobLimit", whose)


def _assoc_tres(ask: Ask, partition: Partition, assoc: Assoc, usage: Usage) -> Iterator[Hit | None]:
    limits, (whose, key) = assoc.limits, _whose(assoc)
    yield _tres(ask, limits.grp_tres, "AssocGrp", "", "GrpTRES", whose, usage, key)
    yield _tres(ask, limits.max_tres, "AssocMax", "PerJob", "MaxTRES", whose, usage)


def begin_to_age(waiting: Iterable[Ask], site: Site) -> list[str]:
    """Of the jobs that may be looked at, in order, those whose age begins to count: in each limit
    so many of them have one."""
    asks = list(waiting)
    new = [ask.job_id for ask in asks if ask.accrue is None]
    if not (new and site.limits_ages):
        return new
    counted = Counter(key for ask in asks if ask.accrue is not None for key, _ in _ages(ask, site))
    found = []
    for ask in asks:
        limits = list(_ages(ask, site)) if ask.accrue is None else []
        if ask.accrue is None and all(counted[key] < most for key, most in limits):
            found.append(ask.job_id)
            counted.update(key for key, _ in limits)
    return found


def _ages(ask: Ask, site: Site) -> Iterator[tuple[tuple[str, ...], int]]:
    """The limits that hold for a job's age, each by whose jobs it counts."""
    part = site.partitions.get(next(iter(ask.partitions), ""))
    found: list[tuple[tuple[str, ...], int | None]] = []
    for name in dict.fromkeys((ask.qos, part.qos if part is not None else "")):
        if (qos := site.qos.get(name)) is not None:
            found += [
                (("qos", name), qos.limits.grp_accrue),
                (("qos-user", name, ask.user), qos.limits.max_accrue_pu),
                (("qos-account", name, ask.account), qos.limits.max_accrue_pa),
            ]
    mine = site.key(ask.account, ask.user, part.name if part is not None else "")
    for key in (mine, *((name, "") for name in accounts_of(site, ask.account))):
        if (assoc := site.assocs.get(key)) is not None:
            found.append((("assoc", *key), assoc.limits.grp_accrue))
            found.append((("user", *key), assoc.limits.max_accrue if assoc.user else None))
    yield from ((key, most) for key, most in found if most is not None)


_LIMITS = re.compile("QOS(Grp|Max|Min)|Assoc(Grp|Max)|MaxJobsPer")  # how Slurm names them


def is_limit(reason: str) -> bool:
    """Whether a reason of Slurm's is a limit of a QOS or an association."""
    return _LIMITS.match(reason) is not None


def is_kept(reason: str) -> bool:
    """Whether Slurm keeps a reason until the job's turn comes, though it may hold no more: it
    drops limits on jobs, CPUs, memory, nodes and time first, and knows the others for none."""
    return is_limit(reason) and ("GRES" in reason or "License" in reason or "Billing" in reason)


def _jobs(limit: int | None, reason: str, name: str, whose: str, running: int) -> Hit | None:
    if limit is None or running < limit:
        return None
    return Hit(reason, whose, name, limit, running, 1, ever=limit > 0)


def _wall(ask: Ask, part: Partition, limits: Limits, reason: str, whose: str) -> Hit | None:
    asked = ask.limit_s(part)
    if limits.max_wall_s is None or asked <= limits.max_wall_s:
        return None
    return Hit(reason, whose, "MaxWall", limits.max_wall_s, 0.0, asked, ever=False)


def _tres(
    ask: Ask,
    limits: Tres,
    begin: str,
    per: str,
    name: str,
    whose: str,
    usage: Usage,
    key: tuple[str, ...] | None = None,
) -> Hit | None:
    for tres, limit in limits.items():
        asked = ask.tres.get(tres, 0.0)
        used = usage.tres(tres, *key) if key is not None else 0.0
        if asked and used + asked > limit:
            reason = _reason(begin, tres, per)
            return Hit(reason, whose, f"{name} {tres}", limit, used, asked, ever=asked <= limit)
    return None


_WORDS = {"cpu": "Cpu", "mem": "Mem", "node": "Node", "billing": "Billing"}


def _reason(begin: str, tres: str, per: str) -> str:
    """Slurm's name of a limit on TRES; it is not regular."""
    if tres.startswith("gres/"):
        return f"{begin}GRES{per}"
    if tres.startswith("license/"):
        return f"{begin}License{per}"
    word = _WORDS.get(tres, "Unknown")
    if word == "Billing":
        return f"{begin}Billing{per}"
    if not per:
        return f"{begin}{word}Limit"
    return f"{begin}Memory{per}" if word == "Mem" else f"{begin}{word}{per}Limit"
