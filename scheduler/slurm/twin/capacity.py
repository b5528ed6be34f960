"""Which resources are free on each node, now and later, and on which nodes a job would be placed
(as in select/cons_tres)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType

from scheduler.slurm.twin.site import Ask, Running, Share, Site, SiteNode

KEPT = 4096  # constraints of jobs, and what nodes make of them
_NONE: Mapping[str, int] = MappingProxyType({})


@dataclass(slots=True)
class Free:
    """The resources that are free on a node. `jobs` is the number of jobs that run there."""

    cpus: int
    memory_mib: float
    gpus: dict[str, int]
    jobs: int = 0
    gres: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, node: SiteNode) -> Free:
        return cls(node.cpus, node.memory_mib, dict(node.gpus), gres=dict(node.gres))

    def take(self, share: Share, sign: int = 1) -> None:
        """Subtract a job's share of the node from the free resources; with `sign` -1, add it
        back."""
        self.cpus -= sign * share.cpus
        self.memory_mib -= sign * share.memory_mib
        self.jobs += sign
        for kind, count in share.gpus:
            self.gpus[kind] = self.gpus.get(kind, 0) - sign * count
        for name, count in share.gres:
            for has in self.gres_of(name)[:1]:
                self.gres[has] -= sign * count

    def gres_of(self, name: str) -> list[str]:
        """Return the names of the resources on the node that satisfy a request for the GRES
        (generic resource) `name`: for ``nvme``, also ``nvme:fast``."""
        return [has for has in self.gres if has == name or has.startswith(f"{name}:")]

    def left_of(self, name: str) -> int:
        """Return the free amount of a GRES (generic resource), summed over all its types that
        suit."""
        return sum(self.gres[has] for has in self.gres_of(name))

    def copy(self) -> Free:
        return Free(
            cpus=self.cpus,
            memory_mib=self.memory_mib,
            gpus=dict(self.gpus),
            jobs=self.jobs,
            gres=dict(self.gres),
        )


class Capacity:
    """The free resources of nodes, by node name."""

    def __init__(self, free: dict[str, Free]) -> None:
        self.free = free

    @classmethod
    def of(cls, site: Site) -> Capacity:
        """Return the capacity of a site on which no job runs."""
        return cls({name: Free.of(node) for name, node in site.nodes.items()})

    def take(self, shares: Iterable[Share], sign: int = 1) -> None:
        for share in shares:
            if share.node in self.free:
                self.free[share.node].take(share, sign)

    def later(self, names: Iterable[str]) -> Capacity:
        """Return a copy of the free resources of some nodes. Changes to it have no effect on this
        object."""
        return Capacity({name: self.free[name].copy() for name in names})


@dataclass(frozen=True, slots=True)
class Books:
    """The state of a site at one poll: free capacity, running jobs, and planned jobs with time and
    nodes."""

    capacity: Capacity
    running: Mapping[str, Running]
    planned: Mapping[str, tuple[float, frozenset[str]]]

    def licences(self) -> dict[str, int]:
        """Return how many of each licence running jobs have."""
        found: dict[str, int] = {}
        for run in self.running.values():
            for name, many in run.ask.licences:
                found[name] = found.get(name, 0) + many
        return found


def suits(ask: Ask, node: SiteNode) -> bool:
    """Return whether a job may run on a node at all, by the node's features and name."""
    if node.name in ask.exc_nodes:
        return False
    if not ask.features:
        return True
    so_many = counted_by_kind(ask.features)
    if sum(so_many.values()) < ask.nodes and so_many and "[" not in ask.features:
        return True  # the rest may be any
    return _has(node.features, "|".join(so_many) or ask.features)


@lru_cache(KEPT)
def _has(features: frozenset[str], wanted: str) -> bool:
    """Return whether a node's features satisfy a constraint such as ``a&b``, ``a,b``, ``a|b`` or
    ``[a|b]``. For a form that is not modelled (`parse.odd`), any feature that it names is enough.

    Many nodes have the same features, and one constraint can name hundreds.
    """
    plain = re.sub(r"[\[\]()]|\*\d*", "", wanted)
    if any(one in wanted for one in "[(*"):
        plain = re.sub(r"[&,]", "|", plain)
    return any(
        all(one in features for one in re.split(r"[&,]", either) if one)
        for either in plain.split("|")
    )


@lru_cache(KEPT)
def counted_by_kind(wanted: str) -> Mapping[str, int]:
    """Return how many nodes must have each feature, from a constraint such as ``a*2`` or
    ``[a*2&b*1]``; {} for other forms."""
    parts = [part.partition("*") for part in re.split(r"[&,]", wanted.strip("[]"))]
    if not all(times and most.isdecimal() for _, times, most in parts):
        return _NONE
    if len(parts) > 1 and not wanted.startswith("["):
        return _NONE
    return MappingProxyType({name: int(most) for name, _, most in parts})


def choose(
    ask: Ask, capacity: Capacity, names: Sequence[str], site: Site
) -> tuple[Share, ...] | None:
    """Return the shares of the nodes (in order of weight) on which a job is placed, or None where
    it does not fit.

    Nodes of the lowest weights that suffice are used. Among these, groups of neighbouring nodes of
    one weight are compared: the first group that suffices by itself is taken, or the tightest.
    Within the group, the one node that suffices with the fewest free CPUs is taken, otherwise nodes
    in order.
    """
    if ask.features and (so_many := counted_by_kind(ask.features)):
        return _with_so_many(ask, so_many, capacity, names, site=site)
    if ask.features.startswith("[") and not re.search(r"[&,*(]", ask.features):  # all of one kind
        return _of_one_kind(ask, capacity, names, site)
    if ask.req_nodes and not ask.req_nodes <= set(names):
        return None
    usable = {n: room for n in names if (room := _room(ask, capacity.free[n], site.nodes[n]))}
    if not ask.req_nodes <= usable.keys():
        return None
    weights = sorted({site.order[name][0] for name in usable})
    for most in weights:
        within = {n: room for n, room in usable.items() if site.order[n][0] <= most}
        if ask.req_nodes <= within.keys() and len(within) >= max(1, ask.nodes):
            found = _of_all_or_fewer(ask, within, site)
            if found is not None:
                return found
    return None


def _of_one_kind(
    ask: Ask, capacity: Capacity, names: Sequence[str], site: Site
) -> tuple[Share, ...] | None:
    """Return the shares of nodes on which a job is placed that all have the same one of its
    features (``[a|b]``), or None where it does not fit.

    A user may name a feature five hundred times: each set of nodes is tried once.
    """
    tried = set[tuple[str, ...]]()
    for one in dict.fromkeys(ask.features.strip("[]").split("|")):
        same = tuple(name for name in names if _has(site.nodes[name].features, one))
        if same in tried:
            continue
        tried.add(same)
        if (found := choose(replace(ask, features=one), capacity, same, site)) is not None:
            return found
    return None


def _with_so_many(
    ask: Ask, so_many: Mapping[str, int], capacity: Capacity, names: Sequence[str], site: Site
) -> tuple[Share, ...] | None:
    """Return the shares of nodes on which a job is placed that asks for a number of nodes of each
    feature, or None where it does not fit.

    The nodes of each feature are found first, one feature after the other, then the rest. A node
    that the job names may serve for the first feature only.
    """
    kinds = ask.gpus if ask.gpus_per_node else tuple((kind, 1) for kind, n in ask.gpus if n)
    each = replace(ask, features="", req_nodes=frozenset(), gpus=kinds, gpus_per_node=True)
    found = set[str]()
    for feature, many in so_many.items():
        there = [n for n in names if n not in found and feature in site.nodes[n].features]
        named = ask.req_nodes.intersection(there) if not found else frozenset[str]()
        some = replace(each, nodes=many, max_nodes=many, cpus=many * ask.min_cpus, req_nodes=named)
        placed = choose(some, capacity, there, site)
        if placed is None:
            return None
        found |= {share.node for share in placed} | ask.req_nodes
    if ask.max_nodes and len(found) > ask.max_nodes:
        return None
    nodes = max(ask.nodes, len(found))
    whole = replace(ask, features="", req_nodes=frozenset(found), nodes=nodes)
    return choose(whole, capacity, names, site)


@dataclass(frozen=True, slots=True)
class Room:
    """The resources of a node that a job could get. `gpus` are those asked for on each node; those
    available, if GPUs are asked for in all or none are; all of the node's, for an exclusive job."""

    cpus: int
    memory_mib: float
    gpus: tuple[tuple[str, int], ...]

    @property
    def much(self) -> int:
        return self.cpus + sum(count for _, count in self.gpus)


def _room(ask: Ask, free: Free, node: SiteNode) -> Room | None:
    """Return the resources of a node that a job could get. Return None if it can get none."""
    if any(free.left_of(name) < count for name, count in ask.gres):
        return None
    if ask.exclusive:
        if free.jobs:
            return None
        got = tuple(node.gpus)
        short = ask.gpus_per_node and _gpus(dict(node.gpus), ask.gpus) is None
        return None if short or node.cpus < ask.min_cpus else Room(node.cpus, free.memory_mib, got)
    gpus = _gpus_there(ask, free)
    if gpus is None:
        return None
    cpus = free.cpus
    if ask.per_cpu and ask.memory_mib:
        cpus = min(cpus, int(free.memory_mib // ask.memory_mib))
    elif not ask.per_gpu and ask.memory_mib > free.memory_mib:
        return None
    each = max(1, ask.min_cpus)
    if ask.nodes > 1 and ask.min_cpus * ask.nodes == ask.cpus:  # so many tasks on each
        cpus = min(cpus, ask.min_cpus)
    return Room(cpus // each * each, free.memory_mib, gpus) if cpus >= each else None


def _gpus_there(ask: Ask, free: Free) -> tuple[tuple[str, int], ...] | None:
    """Return the GPUs by type that a job asks for on each node or, if it asks for them in all,
    could have on this node. Return None where too few are free, or none of its types."""
    most = 1_000_000
    if ask.per_gpu and ask.memory_mib:
        most = int(free.memory_mib // ask.memory_mib)
    if ask.gpus and ask.gpus_per_node:
        each = _gpus(free.gpus, ask.gpus)
        return None if each is None or sum(count for _, count in each) > most else each
    there = _first(((kind, n) for kind, n in free.gpus.items() if n > 0), most)
    usable = any(not kind or free.gpus.get(kind, 0) > 0 for kind, _ in ask.gpus)
    return there if not ask.gpus or (there and usable) else None


def _first(gpus: Iterable[tuple[str, int]], most: int) -> tuple[tuple[str, int], ...]:
    """Return the first of the given GPUs by type, at most `most` in all."""
    found = []
    for kind, count in gpus:
        some = min(count, most)
        most -= some
        found += [(kind, some)] * (some > 0)
    return tuple(found)


def _of_all_or_fewer(ask: Ask, usable: Mapping[str, Room], site: Site) -> tuple[Share, ...] | None:
    """Return the shares of nodes on which a job is placed; None if it does not fit. If it does not
    fit when all nodes are tried, the nodes with few CPUs are left out and the others tried again,
    as Slurm does."""
    much = {name: room.much for name, room in usable.items() if name not in ask.req_nodes}
    kept, little = dict(usable), 0
    while len(kept) >= max(1, ask.nodes):
        wanted = _evaluate(ask, kept, site)
        if wanted.done and _enough(ask, wanted.shares, usable):
            return tuple(wanted.shares)
        for share in wanted.shares:
            if share.node in much:
                room = usable[share.node]
                much[share.node] -= room.cpus - share.cpus
        little = max(little + 1, min((much[n] for n in kept if n in much), default=0))
        some = {n: room for n, room in kept.items() if much.get(n, little + 1) > little}
        if len(some) == len(kept):
            return None
        kept = some
    return None


class _Wanted:
    """The resources that a job still needs, and the shares of nodes that it has taken so far."""

    def __init__(self, ask: Ask) -> None:
        self.ask = ask
        self.nodes = max(1, ask.nodes)
        self.most = ask.max_nodes or 1_000_000
        self.cpus = ask.cpus
        self.per_job = bool(ask.gpus) and not ask.gpus_per_node
        self.gpus = dict(ask.gpus) if self.per_job else {}
        self.shares: list[Share] = []

    @property
    def done(self) -> bool:
        return self.nodes <= 0 and self.cpus <= 0 and not any(self.gpus.values())

    def suffices(self, rooms: Iterable[Room]) -> bool:
        """Return whether nodes have the GPUs that the job still needs in all. Return True if its
        GPUs are asked for on each node."""
        if not self.per_job:
            return True
        there: dict[str, int] = {}
        for room in rooms:
            for kind, count in room.gpus:
                there[kind] = there.get(kind, 0) + count
        return _gpus(there, tuple(self.gpus.items())) is not None

    def take(self, name: str, room: Room) -> None:
        """Take what the job still needs from a node, but leave something for each of the further
        nodes that it must have."""
        ask = self.ask
        if ask.exclusive:
            cpus, gpus = room.cpus, room.gpus
            for kind in self.gpus:
                self.gpus[kind] -= sum(n for has, n in gpus if kind in ("", has))
            self.gpus = {kind: max(0, n) for kind, n in self.gpus.items()}
        else:
            others = max(0, self.nodes - 1) * max(1, ask.min_cpus)
            cpus = min(room.cpus, max(ask.min_cpus, self.cpus - others, 1))
            gpus = self._some(dict(room.gpus)) if self.per_job else room.gpus
            gpus = gpus if ask.gpus else ()
        self.nodes -= 1
        self.most -= 1
        self.cpus -= cpus
        memory = ask.memory_mib
        if ask.per_cpu:
            memory *= cpus
        elif ask.per_gpu:
            memory *= sum(count for _, count in gpus)
        self.shares.append(Share(node=name, cpus=cpus, memory_mib=memory, gpus=gpus, gres=ask.gres))

    def _some(self, there: dict[str, int]) -> tuple[tuple[str, int], ...]:
        got: dict[str, int] = {}
        for kind, wanted in self.gpus.items():
            for has in [kind] if kind else list(there):
                count = min(wanted, there.get(has, 0))
                if count > 0:
                    got[has] = got.get(has, 0) + count
                    there[has] -= count
                    wanted -= count
            self.gpus[kind] = wanted
        return tuple(got.items())


def _evaluate(ask: Ask, usable: Mapping[str, Room], site: Site) -> _Wanted:
    """Take nodes for a job in Slurm's order, as long as they help. Return what was taken, and what
    the job still needs."""
    wanted = _Wanted(ask)
    for name in sorted(ask.req_nodes, key=lambda n: site.order[n][1]):
        wanted.take(name, usable[name])
    runs = [run for run in _neighbours(usable, site) if not ask.req_nodes.issuperset(run)]
    while runs and wanted.most > 0 and not wanted.done:
        best = _best(runs, wanted, usable, site)
        runs.remove(best)
        for name in _from_required(best, ask) or _single(best, wanted, usable) or best:
            if wanted.done or wanted.most <= 0:
                break
            if wanted.most == 1 and usable[name].cpus < wanted.cpus:
                continue
            wanted.take(name, usable[name])
    return wanted


def _enough(ask: Ask, shares: Iterable[Share], usable: Mapping[str, Room]) -> bool:
    return all(share.memory_mib <= usable[share.node].memory_mib for share in shares)


def _neighbours(names: Iterable[str], site: Site) -> list[list[str]]:
    """Return nodes in groups of neighbours, in the order of slurm.conf. A group ends where a node
    is missing, or has another weight."""
    found: list[list[str]] = []
    before = (-1, -2)
    for name in sorted(names, key=lambda n: site.order[n][1]):
        weight, place = site.order[name]
        if (weight, place - 1) != before:
            found.append([])
        found[-1].append(name)
        before = weight, place
    return found


def _best(
    runs: Sequence[list[str]], wanted: _Wanted, usable: Mapping[str, Room], site: Site
) -> list[str]:
    """Return the group of neighbouring nodes from which to take next: that of the lowest weight,
    then the smallest that suffices, otherwise the largest. A group with a node that the job names
    goes before groups without one."""
    required = wanted.ask.req_nodes

    def worth(run: list[str]) -> tuple[int, bool, int]:
        others = [name for name in run if name not in required]
        cpus = sum(usable[name].cpus for name in others)
        fits = cpus >= wanted.cpus and len(others) >= wanted.nodes
        fits = fits and wanted.suffices(usable[name] for name in others)
        return site.order[run[0]][0], not fits, cpus if fits else -cpus

    best, most = runs[0], worth(runs[0])
    for run in runs[1:]:
        named = required.isdisjoint(best) and not required.isdisjoint(run)
        if (other := worth(run)) < most or named:
            best, most = run, other
    return best


def _from_required(run: Sequence[str], ask: Ask) -> list[str]:
    """Return the other nodes of a group in the order in which they are taken: from the first node
    that the job names upwards, then from it downwards. Return [] where the job names none of the
    group."""
    first = next((place for place, name in enumerate(run) if name in ask.req_nodes), None)
    if first is None:
        return []
    return [name for name in (*run[first:], *run[:first][::-1]) if name not in ask.req_nodes]


def _single(run: Sequence[str], wanted: _Wanted, usable: Mapping[str, Room]) -> list[str]:
    """Return, in a list, the one node that has all that the job still needs; if there are several,
    the one with the fewest free CPUs. Return [] where there is none."""
    if wanted.nodes > 1:
        return []
    fit = [
        name for name in run if usable[name].cpus >= wanted.cpus and wanted.suffices([usable[name]])
    ]
    return [min(fit, key=lambda name: usable[name].cpus)] if fit else []


def _gpus(
    free: Mapping[str, int], wanted: Sequence[tuple[str, int]]
) -> tuple[tuple[str, int], ...] | None:
    got: dict[str, int] = {}
    for kind, count in wanted:
        for has in [kind] if kind else list(free):
            some = min(count, free.get(has, 0) - got.get(has, 0))
            if some > 0:
                got[has] = got.get(has, 0) + some
                count -= some
        if count > 0:
            return None
    return tuple(got.items())
