"""Limits of QOS and associations, with Slurm's own reason code for each.

After acct_policy.c of Slurm 22.05 (https://slurm.schedmd.com/resource_limits.html): the QOS comes
first, then the association and every account above it. A QOS adds only limits that no QOS before it
sets, an association only those that no QOS sets. What is not modelled is listed in `unmodelled`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from scheduler.slurm.codes import Family, family
from scheduler.slurm.twin.priority import accounts_of
from scheduler.slurm.twin.site import (
    Ask,
    Assoc,
    Limits,
    Partition,
    Qos,
    Running,
    Site,
    Tres,
)


@dataclass(frozen=True, slots=True)
class Hit:
    """A limit that a job would exceed.

    Attributes:
        reason: the reason code, as squeue shows it.
        whose: to what the limit belongs: ``QOS limited``, ``account physics``, ``user anna in
            account physics``.
        name: sacctmgr's name of the limit, with the resource: ``GrpTRES gres/gpu``.
        limit, used, asked: the largest allowed amount (the least, of a minimum), the amount in use
            (inf: not known), and the amount that the job would add.
        ever: whether the job fits within the limit once other jobs end.
    """

    reason: str
    whose: str
    name: str
    limit: float
    used: float
    asked: float
    ever: bool = True


class Usage:
    """The resources that running jobs use, by the QOS or association against which they count."""

    def __init__(self) -> None:
        self._tres: dict[tuple[str, ...], Counter[str]] = {}
        self._jobs: Counter[tuple[str, ...]] = Counter()

    def add(self, ask: Ask, site: Site, sign: int = 1) -> None:
        """Count a running job; with `sign` -1, stop counting it."""
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


class _Endless(Usage):
    """A usage in which every resource is used without end, so that every limit is exceeded."""

    def jobs(self, *key: str) -> int:
        return 1 << 60

    def tres(self, name: str, *key: str) -> float:
        return inf


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
    """Return the first limit that keeps a job waiting, or None.

    Args:
        tres: True: only limits on resources (TRES), which Slurm tests last; False: only the others;
            None: all limits.
    """
    if tres is None:
        early = first_hit(ask, partition, site, usage, tres=False)
        return early or first_hit(ask, partition, site, usage, tres=True)
    return next(_hits(ask, partition, site, usage, tres=tres), None)


def is_set(reason: str, ask: Ask, partition: Partition, site: Site) -> bool:
    """Return whether the site has the limit that a reason code of Slurm names, reached or not.
    Return False for a limit that is not on jobs that run together (`Family.TOGETHER`)."""
    full = _Endless()
    every = (_hits(ask, partition, site, full, tres=tres) for tres in (False, True))
    return family(reason) is Family.TOGETHER and any(
        hit.reason == reason for hits in every for hit in hits
    )


def _hits(ask: Ask, partition: Partition, site: Site, usage: Usage, *, tres: bool) -> Iterator[Hit]:
    """Yield the limits that keep a job waiting, in Slurm's order. With `tres`, yield only those on
    resources (TRES), otherwise only the others."""
    if not {"limits", "safe"} & site.enforced:
        return
    of_qos, of_assoc = (_qos_tres, _assoc_tres) if tres else (_qos_jobs, _assoc_jobs)
    ask = _on_whole_nodes(ask, partition, site) if tres and ask.exclusive else ask
    found: Iterator[Hit | None]
    for one in _levels(ask, partition, site):
        if isinstance(one, Qos):
            found = of_qos(ask, partition, one, usage)
        else:
            found = of_assoc(ask, partition, one, usage)
        yield from filter(None, found)


def _on_whole_nodes(ask: Ask, partition: Partition, site: Site) -> Ask:
    """Return the request of a job that shares no node in the form in which limits count it: with
    all CPUs of its nodes, assuming the smallest nodes that it could have."""
    names = ask.req_nodes & partition.nodes or partition.nodes
    least = min((site.nodes[name].cpus for name in names if name in site.nodes), default=0)
    cpus = max(ask.tres.get("cpu", 0.0), least * max(1, ask.nodes))
    return replace(ask, tres={**ask.tres, "cpu": cpus})


def _levels(ask: Ask, partition: Partition, site: Site) -> Iterator[Qos | Assoc]:
    """Yield the QOS and associations whose limits apply to a job, the QOS first. A
    QOS comes with only those limits that no QOS before it sets, an association with only those that
    no QOS sets."""
    above: list[Limits] = []
    own = site.qos.get(ask.qos)
    both = (ask.qos, partition.qos) if own is not None and own.first else (partition.qos, ask.qos)
    for name in dict.fromkeys(both):
        qos = site.qos.get(name)
        if qos is not None:
            yield replace(qos, limits=_unset(qos.limits, above))
            above += [qos.limits] if qos.limits != _NONE else []
    mine = site.key(ask.account, ask.user, partition.name)
    keys = [mine, *((name, "") for name in accounts_of(site, ask.account))]
    for key in keys:
        assoc = site.assocs.get(key)
        if assoc is not None and assoc.limits != _NONE:
            yield replace(assoc, limits=_unset(assoc.limits, above))


def minutes_hit(
    reason: str, ask: Ask, partition: Partition, site: Site, running: Iterable[Running], now: float
) -> Hit | None:
    """Return the limit on minutes that a reason code of Slurm names, or None where the site has
    none.

    Its `used` is what running jobs may still use by their time limits. For a limit on minutes that
    were used up it is inf, because Slurm does not show those here.
    """
    runs = list(running)
    for one in _levels(ask, partition, site):
        whose, of = (
            (f"QOS {one.name}", "QOS") if isinstance(one, Qos) else (_whose(one)[0], "Assoc")
        )
        limits, minutes = one.limits, _minutes(ask, partition)
        left = _left(reason, one, ask, minutes, runs=runs, site=site, now=now)
        if left is not None:
            return left
        for tres, limit in limits.grp_mins.items():
            if _named(of, "Grp", tres, "Minutes") == reason:
                asked = minutes.get(tres, 0.0)
                return Hit(
                    reason=reason,
                    whose=whose,
                    name=f"GrpTRESMins {tres}",
                    limit=limit,
                    used=inf,
                    asked=asked,
                )
        if limits.grp_wall_s is not None and reason == f"{of}GrpWallLimit":
            asked = ask.limit_s(partition) / 60
            return Hit(
                reason=reason,
                whose=whose,
                name="GrpWall wall",
                limit=limits.grp_wall_s / 60,
                used=inf,
                asked=asked,
            )
    return None


def _left(
    reason: str,
    one: Qos | Assoc,
    ask: Ask,
    minutes: Tres,
    *,
    runs: Iterable[Running],
    site: Site,
    now: float,
) -> Hit | None:
    """Return the limit on remaining running minutes that a reason code names, with the amount in
    use. Return None if it is no limit of this QOS or association. `minutes` is the amount that the
    job asks for."""
    limits, of = one.limits, "QOS" if isinstance(one, Qos) else "Assoc"
    whose = f"QOS {one.name}" if isinstance(one, Qos) else _whose(one)[0]
    user, account = f"user {ask.user} in {whose}", f"account {ask.account} in {whose}"
    for name, every, known, whom in (
        (_Name(of, "Grp", "GrpTRESRunMins", "RunMinutes"), limits.grp_run_mins, "", whose),
        (_Name("", "Max", "MaxTRESRunMinsPU", "RunMinsPerUser"), limits.run_mins_pu, "user", user),
        (
            _Name("", "Max", "MaxTRESRunMinsPA", "RunMinsPerAccount"),
            limits.run_mins_pa, "account", account,
        ),
    ):  # fmt: skip
        for tres, limit in every.items():
            if _named(name.of, name.what, tres, name.per) != reason:
                continue
            mine = (run for run in runs if _held_to(one, run.ask, site))
            asked = minutes.get(tres, 0.0)
            like = (r for r in mine if not known or getattr(r.ask, known) == getattr(ask, known))
            has = sum(r.ask.tres.get(tres, 0.0) * max(0.0, r.until - now) for r in like) / 60
            return Hit(
                reason=reason,
                whose=whom,
                name=f"{name.word} {tres}",
                limit=limit,
                used=has,
                asked=asked,
                ever=asked <= limit,
            )
    return None


def _held_to(one: Qos | Assoc, ask: Ask, site: Site) -> bool:
    """Return whether a job's use counts towards a QOS or an association."""
    if isinstance(one, Qos):
        return one.name in (ask.qos, *_partition_qos(ask, site))
    if one.user:
        return site.key(ask.account, ask.user, next(iter(ask.partitions), "")) == (
            one.account,
            one.user,
        )
    return one.account in accounts_of(site, ask.account)


_NONE = Limits()
_TRES_LIMITS = (
    "grp_tres", "max_tres", "max_tres_pu", "max_tres_pa", "max_tres_pn", "max_tres_mins",
    "grp_run_mins", "run_mins_pu", "run_mins_pa", "grp_mins",
)  # fmt: skip


def _unset(limits: Limits, above: Iterable[Limits]) -> Limits:
    """Return `limits` without those that a level in `above` sets already, because Slurm applies a
    limit where it is set first.

    A QOS comes before an association, and usually the QOS of the partition before that of the job.
    """
    for one in above:
        taken: dict[str, Any] = {
            name: {tres: n for tres, n in getattr(limits, name).items() if tres not in set_there}
            for name in _TRES_LIMITS
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


def _qos_jobs(ask: Ask, partition: Partition, qos: Qos, usage: Usage) -> Iterator[Hit | None]:
    limits, whose = qos.limits, f"QOS {qos.name}"
    user, account = f"user {ask.user} in {whose}", f"account {ask.account} in {whose}"
    running = usage.jobs("qos", qos.name)
    of_account = usage.jobs("qos-account", qos.name, ask.account)
    of_user = usage.jobs("qos-user", qos.name, ask.user)
    yield _jobs(
        limit=limits.grp_jobs,
        reason="QOSGrpJobsLimit",
        name="GrpJobs",
        whose=whose,
        running=running,
    )
    yield _jobs(
        limit=limits.max_jobs_pa,
        reason="MaxJobsPerAccount",
        name="MaxJobsPA",
        whose=account,
        running=of_account,
    )
    yield _jobs(
        limit=limits.max_jobs_pu,
        reason="QOSMaxJobsPerUserLimit",
        name="MaxJobsPU",
        whose=user,
        running=of_user,
    )
    yield _wall(
        ask, part=partition, limits=limits, reason="QOSMaxWallDurationPerJobLimit", whose=whose
    )


def _qos_tres(ask: Ask, partition: Partition, qos: Qos, usage: Usage) -> Iterator[Hit]:
    limits, whose = qos.limits, f"QOS {qos.name}"
    user, account = f"user {ask.user} in {whose}", f"account {ask.account} in {whose}"
    of, of_user = ("qos", qos.name), ("qos-user", qos.name, ask.user)
    of_account = "qos-account", qos.name, ask.account
    yield from _over(
        limits=limits.grp_tres,
        asked_for=ask.tres,
        name=_Name("QOS", "Grp", "GrpTRES"),
        whose=whose,
        usage=usage,
        key=of,
    )
    yield from _of_one_job(ask, partition, of="QOS", limits=limits, whose=whose)
    name = _Name("", "Max", "MaxTRESPA", "PerAccount")
    yield from _over(
        limits=limits.max_tres_pa,
        asked_for=ask.tres,
        name=name,
        whose=account,
        usage=usage,
        key=of_account,
    )
    name = _Name("QOS", "Max", "MaxTRESPU", "PerUser")
    yield from _over(
        limits=limits.max_tres_pu,
        asked_for=ask.tres,
        name=name,
        whose=user,
        usage=usage,
        key=of_user,
    )


def _of_one_job(
    ask: Ask, partition: Partition, of: str, limits: Limits, whose: str
) -> Iterator[Hit]:
    """Yield the limits on single jobs that a job exceeds by its own request, whatever other jobs
    use."""
    per_job = "MaxTRESPerJob" if of == "QOS" else "MaxTRES"
    yield from _over(limits.max_tres, ask.tres, _Name(of, "Max", per_job, "PerJob"), whose)
    if limits.max_tres_mins:
        name = _Name(of, "Max", "MaxTRESMins", "MinutesPerJob")
        yield from _over(limits.max_tres_mins, _minutes(ask, partition), name, whose)
    if limits.max_tres_pn:
        each = {tres: n / max(1, ask.nodes) for tres, n in ask.tres.items()}
        yield from _over(
            limits.max_tres_pn, each, _Name(of, "Max", "MaxTRESPerNode", "PerNode"), whose
        )
    for tres, limit in limits.min_tres.items():
        asked, reason = ask.tres.get(tres, 0.0), _named(of, "Min", tres)
        if asked < limit:
            yield Hit(
                reason=reason,
                whose=whose,
                name=f"MinTRES {tres}",
                limit=limit,
                used=0.0,
                asked=asked,
                ever=False,
            )


def _whose(assoc: Assoc) -> tuple[str, tuple[str, ...]]:
    if assoc.user:
        user, _, part = assoc.user.partition("|")
        whose = f"user {user} in account {assoc.account}{part and f', partition {part}'}"
        return whose, ("user", assoc.account, assoc.user)
    return f"account {assoc.account}", ("account", assoc.account)


def _assoc_jobs(ask: Ask, partition: Partition, assoc: Assoc, usage: Usage) -> Iterator[Hit | None]:
    limits, (whose, key) = assoc.limits, _whose(assoc)
    running = usage.jobs(*key)
    yield _jobs(
        limit=limits.grp_jobs,
        reason="AssocGrpJobsLimit",
        name="GrpJobs",
        whose=whose,
        running=running,
    )
    if assoc.user:  # MaxJobs of an account is the default of its users, not its own
        yield _jobs(
            limit=limits.max_jobs,
            reason="AssocMaxJobsLimit",
            name="MaxJobs",
            whose=whose,
            running=running,
        )
    yield _wall(
        ask, part=partition, limits=limits, reason="AssocMaxWallDurationPerJobLimit", whose=whose
    )


def _assoc_tres(ask: Ask, partition: Partition, assoc: Assoc, usage: Usage) -> Iterator[Hit]:
    limits, (whose, key) = assoc.limits, _whose(assoc)
    name = _Name("Assoc", "Grp", "GrpTRES")
    yield from _over(
        limits=limits.grp_tres, asked_for=ask.tres, name=name, whose=whose, usage=usage, key=key
    )
    yield from _of_one_job(ask, partition, of="Assoc", limits=limits, whose=whose)


def _minutes(ask: Ask, partition: Partition) -> Tres:
    """Return the resource minutes (TRES minutes) that a job asks for by its time limit, by
    resource."""
    return {name: n * ask.limit_s(partition) / 60 for name, n in ask.tres.items()}


def begin_to_age(waiting: Iterable[Ask], site: Site) -> list[str]:
    """Return the ids of the waiting jobs whose age begins to count for their priority, in order.
    Limits allow only some jobs to have an age."""
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
    """Yield the limits on the number of waiting jobs whose age counts, as pairs (group of jobs to
    which the job belongs, limit)."""
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


def is_limit(reason: str) -> bool:
    """Return whether a reason code of Slurm is a limit of a QOS or an association."""
    return family(reason) is not None


def is_kept(reason: str) -> bool:
    """Return whether a reason code is of a limit that Slurm keeps showing until it considers the
    job again, even if the limit no longer holds: limits on GRES, licences or billing. Slurm clears
    other limits earlier."""
    return is_limit(reason) and ("GRES" in reason or "License" in reason or "Billing" in reason)


def _jobs(limit: int | None, reason: str, name: str, whose: str, running: int) -> Hit | None:
    if limit is None or running < limit:
        return None
    return Hit(
        reason=reason, whose=whose, name=name, limit=limit, used=running, asked=1, ever=limit > 0
    )


def _wall(ask: Ask, part: Partition, limits: Limits, reason: str, whose: str) -> Hit | None:
    asked = ask.limit_s(part)
    if limits.max_wall_s is None or asked <= limits.max_wall_s:
        return None
    return Hit(
        reason=reason,
        whose=whose,
        name="MaxWall",
        limit=limits.max_wall_s,
        used=0.0,
        asked=asked,
        ever=False,
    )


@dataclass(frozen=True, slots=True)
class _Name:
    """How Slurm names a limit: the beginning and the end of its reason code, and sacctmgr's
    name."""

    of: str
    what: str
    word: str
    per: str = ""


def _over(
    limits: Tres,
    asked_for: Tres,
    name: _Name,
    whose: str,
    usage: Usage | None = None,
    key: tuple[str, ...] = (),
) -> Iterator[Hit]:
    """Yield the limits on resources (TRES) that a job would exceed together with the `usage` of
    others. Without `usage`, yield those that it exceeds by itself."""
    for tres, limit in limits.items():
        asked = asked_for.get(tres, 0.0)
        used = usage.tres(tres, *key) if usage is not None else 0.0
        if asked and used + asked > limit:
            reason = _named(name.of, name.what, tres, name.per)
            ever = asked <= limit
            yield Hit(
                reason=reason,
                whose=whose,
                name=f"{name.word} {tres}",
                limit=limit,
                used=used,
                asked=asked,
                ever=ever,
            )


_WORDS = {"cpu": "Cpu", "mem": "Memory", "node": "Node", "billing": "Billing", "energy": "Energy"}


def _named(of: str, what: str, tres: str, per: str = "") -> str:
    """Return the reason code that Slurm shows for a limit on a resource (TRES). The codes follow no
    rule."""
    kind = tres.partition("/")[0]
    kinds = {"gres": "GRES", "license": "License", "bb": "BB"}
    word = kinds.get(kind) or _WORDS.get(tres, "Unknown")
    plain = per in ("", "PerJob", "PerUser", "MinutesPerJob")
    end = "Limit" if plain and word in ("Cpu", "Node") else ""
    if what == "Min":
        end = "NotSatisfied" if word == "Cpu" else ""
    if what == "Grp":
        if word == "Cpu" and per:
            word = "CPU"
        end = "Limit" if word == "CPU" or (word in ("Cpu", "Memory", "Node") and not per) else ""
        word = "Mem" if word == "Memory" and (of == "Assoc" or not per) else word
    elif of == "Assoc" and word == "Memory":
        word = "Mem"
    if word == "Node" and per == "MinutesPerJob":
        end = ""
    return f"{of}{what}{word}{per}{end}"
