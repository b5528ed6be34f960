"""Slurm's priority/multifactor: the terms of a job's priority, as `sprio` shows them.

After src/plugins/priority/multifactor of Slurm 22.05 and its manual pages
(https://slurm.schedmd.com/priority_multifactor.html, https://slurm.schedmd.com/fair_tree.html).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import ClassVar, Protocol

from scheduler.slurm.twin.site import Ask, Assoc, AssocKey, Partition, Site


@dataclass(frozen=True, slots=True)
class Terms:
    """The weighted terms of a job's priority. Their sum, with `nice` subtracted, is the priority,
    cut to a whole number of at least 1."""

    site: float = 0.0
    age: float = 0.0
    assoc: float = 0.0
    fairshare: float = 0.0
    jobsize: float = 0.0
    partition: float = 0.0
    qos: float = 0.0
    nice: int = 0
    tres: Mapping[str, float] = field(default_factory=dict)

    @property
    def exact(self) -> float:
        parts = (self.site, self.age, self.assoc, self.fairshare, self.jobsize, self.partition)
        return sum(parts) + self.qos + sum(self.tres.values()) - self.nice

    @property
    def total(self) -> int:
        return max(1, int(self.exact))


class Multifactor:
    """Computes priorities of the jobs of a site."""

    in_copies: ClassVar = "shared"  # of a core (`explain.whatif.copies`)

    def __init__(self, site: Site) -> None:
        self._site = site
        weight = {name: _number(site.config.get(f"PriorityWeight{name}", "0")) for name in _WEIGHTS}
        self._weight = weight
        self._tres = _tres_weights(site.config.get("PriorityWeightTRES", ""))
        self._flags = frozenset(site.config.get("PriorityFlags", "").upper().split(","))
        self.max_age_s = duration_s(site.config.get("PriorityMaxAge", "7-0")) or inf
        self._small = site.config.get("PriorityFavorSmall", "").lower() == "yes"
        most = max((part.job_factor for part in site.partitions.values()), default=0)
        self._part_most = max(1, most)
        self._qos_most = max((qos.priority for qos in site.qos.values()), default=0)
        self._assoc_most = max((assoc.priority for assoc in site.assocs.values()), default=0)
        self.fairshare = _as_computed(site)

    def terms(
        self,
        ask: Ask,
        partition: Partition,
        now: float,
        fairshare: Mapping[AssocKey, float] | None = None,
    ) -> Terms:
        """Return the terms of a job's priority in one of its partitions, as computed at `now`. All
        are 0 where the site computes no priorities.

        Args:
            fairshare: fair shares by association; None: those of the site.
        """
        site, weight = self._site, self._weight
        if not site.weighs:
            return Terms()
        mine = site.key(ask.account, ask.user, partition.name)
        qos, assoc = site.qos.get(ask.qos), site.assocs.get(mine)
        fair = self.fairshare if fairshare is None else fairshare
        parts = {
            "site": float(ask.site_factor),
            "age": weight["Age"] * self._age(ask, now),
            "assoc": weight["Assoc"] * _part(assoc.priority if assoc else 0, self._assoc_most),
            "fairshare": weight["FairShare"] * fair.get(mine, 0.0),
            "partition": weight["Partition"] * partition.job_factor / self._part_most,
            "qos": weight["QOS"] * _part(qos.priority if qos else 0, self._qos_most),
        }
        tres = {
            name: each * _part(ask.tres.get(name, 0.0), partition.tres.get(name, 0.0))
            for name, each in self._tres.items()
        }
        sizes = (ask.sizes or ((ask.nodes, ask.cpus),)) if weight["JobSize"] else ()
        weighted = [weight["JobSize"] * self._size(ask, partition, *size) for size in sizes]
        made = [
            Terms(**parts, jobsize=size, nice=ask.nice, tres=tres) for size in weighted or [0.0]
        ]
        if len(made) == 1:
            return made[0]
        return min(made, key=lambda one: abs(one.total - ask.priority))  # as Slurm has it

    def points(self, fairshare: float) -> float:
        """Return the points of priority for a fair share from 0 to 1."""
        return self._weight["FairShare"] * fairshare

    @property
    def per_s(self) -> float:
        """The points of priority that a job's age adds in one second."""
        return self._weight["Age"] / self.max_age_s

    def _age(self, ask: Ask, now: float) -> float:
        since = ask.submit if "ACCRUE_ALWAYS" in self._flags else ask.accrue
        return 0.0 if since is None else min(1.0, max(0.0, now - since) / self.max_age_s)

    def _size(self, ask: Ask, partition: Partition, wants: int, asked: int) -> float:
        nodes, cpus = max(1, len(self._site.nodes)), max(1, self._site.cpus)
        if "SMALL_RELATIVE_TO_TIME" in self._flags:
            minutes = max(1.0, ask.limit_s(partition) / 60)
            size = max(float(asked), wants * cpus / nodes) / minutes / cpus
            return min(1.0, 1.0 - size if self._small else size)
        size = (wants / nodes + asked / cpus) / 2
        return min(1.0, max(0.0, 1.0 - size if self._small else size))


_WEIGHTS = ("Age", "Assoc", "FairShare", "JobSize", "Partition", "QOS")


def fair_tree(
    assocs: Mapping[AssocKey, Assoc], usage: Mapping[AssocKey, float] | None = None
) -> dict[AssocKey, float]:
    """Return the fair share of every user's association, from 0 to 1, by Slurm's Fair Tree
    algorithm.

    Args:
        usage: usage of each association; None: the usage stored in it.
    """
    used = {key: one.usage for key, one in assocs.items()} if usage is None else usage
    children: dict[str, list[Assoc]] = {}
    for assoc in assocs.values():
        above = assoc.account if assoc.user else assoc.parent
        if above:
            children.setdefault(above, []).append(assoc)
    count = sum(bool(assoc.user) for assoc in assocs.values())
    found: dict[AssocKey, float] = {}
    rank = tied_rank = count

    def below(accounts: list[Assoc]) -> list[tuple[float, Assoc]]:
        return [one for a in accounts for one in _levels(a, children.get(a.account, []), used)]

    def walk(siblings: list[tuple[float, Assoc]], account_tied: bool) -> None:
        nonlocal rank, tied_rank
        siblings.sort(key=lambda one: (-one[0], not one[1].user))  # users before accounts
        place, before = 0, None
        while place < len(siblings):
            level, assoc = siblings[place]
            tied = account_tied if place == 0 else level == before
            if assoc.user:
                tied_rank = tied_rank if tied else rank
                found[assoc.account, assoc.user] = tied_rank / count
                rank -= 1
                place += 1
            else:  # accounts of one level are ranked as one
                alike = [one for same, one in siblings[place:] if same == level]
                walk(below(alike), tied)
                place += len(alike)
            before = level

    walk(below([assocs["root", ""]] if ("root", "") in assocs else []), False)
    return found


def _as_computed(site: Site) -> dict[AssocKey, float]:
    """Return the fair share of each user's association: the one that Slurm computed last or, where
    it shows none, the one it would compute now."""
    own = fair_tree(site.assocs) if site.assocs else {}
    shares = {key: one.fairshare for key, one in site.assocs.items() if key in own}
    return {key: own[key] if share is None else share for key, share in shares.items()}


def _levels(
    above: Assoc, siblings: list[Assoc], usage: Mapping[AssocKey, float]
) -> list[tuple[float, Assoc]]:
    """Return each association in `siblings` with its LevelFS, by which Slurm's Fair Tree ranks it:
    its part of the shares divided by its part of the usage. LevelFS is inf without usage, and 0
    without shares."""
    shares = sum(assoc.shares or 0 for assoc in siblings)
    own = [usage.get((assoc.account, assoc.user), 0.0) for assoc in siblings]
    total = max(usage.get((above.account, above.user), 0.0), sum(own))
    found = []
    for assoc, used in zip(siblings, own, strict=True):
        mine = (assoc.shares or 0) / shares if shares else 0.0
        part = used / total if total else 0.0
        found.append(((mine / part if part else inf) if mine else 0.0, assoc))
    return found


class Runs(Protocol):
    """A running job that is charged for its usage: its request, and its start."""

    @property
    def ask(self) -> Ask: ...
    @property
    def start(self) -> float: ...


class FairShare:
    """The fair share of associations, as usage grows and decays. It begins with the site's values.

    Attributes:
        fairshare: maps each association to its fair share at the last `count`.
        counted: time up to which usage is counted; None before the first `count`.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        self._usage = {key: assoc.usage for key, assoc in site.assocs.items()}
        self._half_life = duration_s(site.config.get("PriorityDecayHalfLife", "7-0")) or inf
        self.counted: float | None = None
        self.fairshare = _as_computed(site)

    def count(self, runs: Iterable[Runs], now: float) -> None:
        """Charge running jobs for their usage until `now`, and compute fair shares again. The first
        call only records the time, because the site has charged the jobs until then."""
        if self.counted is not None and self._usage:
            kept = 0.5 ** (max(0.0, now - self.counted) / self._half_life)
            self._usage = {key: used * kept for key, used in self._usage.items()}
            for run in runs:
                self._charge(run, now)
            self.fairshare = fair_tree(self._site.assocs, self._usage)
        self.counted = now

    def ran(self, run: Runs, now: float) -> None:
        """Charge a job that ends for its usage since the last `count`. Do nothing before the
        first."""
        if self.counted is not None and self._usage:
            self._charge(run, now)

    def _charge(self, run: Runs, now: float) -> None:
        assert self.counted is not None
        ask = run.ask
        seconds = now - max(run.start, self.counted)
        qos = self._site.qos.get(ask.qos)
        used = max(0.0, seconds) * ask.tres.get("billing", float(ask.cpus))
        used *= qos.factor if qos is not None else 1.0
        for key in (
            self._site.key(ask.account, ask.user, next(iter(ask.partitions), "")),
            *((a, "") for a in accounts_of(self._site, ask.account)),
        ):
            if key in self._usage:
                self._usage[key] += used


def accounts_of(site: Site, account: str) -> Iterator[str]:
    """Yield the account `account` and the accounts above it, up to root."""
    seen = set()
    while account and account not in seen:
        yield account
        seen.add(account)
        assoc = site.assocs.get((account, ""))
        account = assoc.parent if assoc is not None else ""


def _part(mine: float, most: float) -> float:
    return mine / most if most else 0.0


def _number(text: str) -> float:
    return float(text) if text.replace(".", "", 1).isdecimal() else 0.0


def _tres_weights(text: str) -> dict[str, float]:
    parts = (part.partition("=") for part in text.split(","))
    return {name.lower(): _number(value) for name, _, value in parts if value}


def duration_s(text: str) -> float | None:
    """Return a duration such as ``7-00:00:00``, ``01:00:00``, ``30`` (minutes) or ``5 sec`` in
    seconds. Return None for UNLIMITED and for any other text."""
    text = text.strip()
    if text.endswith(" sec"):
        return float(text[:-4])
    days, dash, rest = text.rpartition("-")
    parts = rest.split(":")
    if not all(part.isdecimal() for part in parts) or (dash and not days.isdecimal()):
        return None
    if dash:
        hours, minutes, seconds = (int(part) for part in [*parts, "0", "0"][:3])
    elif len(parts) == 1:
        hours, minutes, seconds = 0, int(parts[0]), 0
    else:
        hours, minutes, seconds = (int(part) for part in (["0", *parts])[-3:])
    return float(((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds)
