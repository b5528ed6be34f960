"""The cluster: its nodes, its virtual clusters, and which job holds which GPU.

Free capacity is kept as bit masks (one bit per node, one mask per number of free GPUs), so that
finding a node is a few integer operations however large the cluster is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from features.job import Job

GPU_SHARING_CAPACITY = 2  # jobs per GPU at most
MOST_GPUS, MOST_MIB = 1024, 1e9  # of one node, and memory of one GPU: more is a mistake


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Equal nodes of one virtual cluster: their GPU type, and the number of GPUs on each.

    Attributes:
        gpu_memory_mib: memory of one GPU, MiB; None: that of the cluster (`ClusterSpec`).
        names: names of the nodes, in order; (): the nodes are numbered.
    """

    gpu_type: str
    nodes: int
    gpus_per_node: int
    gpu_memory_mib: float | None = None
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.nodes < 1 or self.gpus_per_node < 0:
            raise ValueError(
                f"{self.nodes} nodes of {self.gpus_per_node} GPUs of type {self.gpu_type!r}: there "
                "must be at least 1 node, and GPUs cannot be fewer than 0"
            )
        if self.names and len(self.names) != self.nodes:
            raise ValueError(f"{len(self.names)} names for {self.nodes} nodes")


@dataclass(frozen=True, slots=True)
class Node:
    """One node: its virtual cluster, and the number and type of its GPUs. `gpu_memory_mib` is the
    memory of one GPU, MiB."""

    vc: str
    gpus: int
    gpu_type: str = ""
    gpu_memory_mib: float = 24_576.0


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """The shape of a cluster.

    Attributes:
        vcs: maps each virtual cluster to its number of nodes; nodes are numbered in this order.
        gpus_per_node: GPUs on every node; where nodes differ, GPUs on the largest.
        gpu_memory_mib: memory of one GPU, MiB, for node groups that do not state their own.
        gpu_type: GPU type of every node; "" where it is not stated.
        groups: where nodes are not all alike, maps each virtual cluster to its node groups, in node
            order (`mixed` makes such a cluster).
    """

    vcs: Mapping[str, int]
    gpus_per_node: int = 8
    gpu_memory_mib: float = 24_576.0
    gpu_type: str = ""
    name: str = "cluster"
    groups: Mapping[str, tuple[NodeGroup, ...]] = field(default_factory=dict)

    @classmethod
    def mixed(
        cls,
        groups: Mapping[str, Sequence[NodeGroup]],
        *,
        gpu_memory_mib: float = 24_576.0,
        name: str = "cluster",
    ) -> ClusterSpec:
        """Return the shape of a cluster whose nodes differ, also within a virtual cluster."""
        return cls(
            {vc: sum(group.nodes for group in has) for vc, has in groups.items()},
            max((1, *(group.gpus_per_node for has in groups.values() for group in has))),
            gpu_memory_mib,
            name=name,
            groups={vc: tuple(has) for vc, has in groups.items()},
        )

    @classmethod
    def of(
        cls,
        nodes: Iterable[Node],
        vcs: Iterable[str] = (),
        *,
        gpu_memory_mib: float = 24_576.0,
        name: str = "cluster",
    ) -> ClusterSpec:
        """Return the shape of a cluster with the given nodes. Like nodes of a virtual cluster
        become one group. `vcs` adds virtual clusters that may have no node."""
        groups: dict[str, dict[Node, int]] = {vc: {} for vc in vcs}
        for has in nodes:
            like = groups.setdefault(has.vc, {})
            like[has] = like.get(has, 0) + 1
        return cls.mixed(
            {
                vc: [
                    NodeGroup(has.gpu_type, count, has.gpus, has.gpu_memory_mib)
                    for has, count in like.items()
                ]
                for vc, like in groups.items()
            },
            gpu_memory_mib=gpu_memory_mib,
            name=name,
        )

    def groups_of(self, vc: str) -> tuple[NodeGroup, ...]:
        """Return the node groups of a virtual cluster, in order."""
        if self.groups:
            return self.groups[vc]
        nodes = self.vcs[vc]
        return (NodeGroup(self.gpu_type, nodes, self.gpus_per_node),) if nodes else ()

    def nodes(self) -> list[Node]:
        """Return every node, in order."""
        return [
            Node(
                vc,
                group.gpus_per_node,
                group.gpu_type,
                self.gpu_memory_mib if group.gpu_memory_mib is None else group.gpu_memory_mib,
            )
            for vc in self.vcs
            for group in self.groups_of(vc)
            for _ in range(group.nodes)
        ]

    @property
    def mixes_types(self) -> bool:
        """Whether the cluster has several types of GPU."""
        every = [g.gpu_type for has in self.groups.values() for g in has if g.gpus_per_node]
        return any(not same_type(every[0], one) for one in every[1:])

    def __post_init__(self) -> None:
        if self.gpus_per_node < 1:
            raise ValueError(f"gpus_per_node is {self.gpus_per_node}; it must be at least 1")
        for vc, nodes in self.vcs.items():
            if nodes < 0:
                raise ValueError(f"vc {vc!r} has {nodes} nodes; it must be at least 0")

    def has_type(self, gpu_type: str) -> bool:
        """Return whether the cluster has GPUs for a job that asks for `gpu_type`. GPUs of which no
        type is stated suit every job, and "" asks for no type."""
        if self.groups:
            return any(suits(g.gpu_type, gpu_type) for has in self.groups.values() for g in has)
        return suits(self.gpu_type, gpu_type)

    @property
    def gpus(self) -> int:
        """Number of GPUs in the whole cluster."""
        if self.groups:
            return sum(g.nodes * g.gpus_per_node for has in self.groups.values() for g in has)
        return sum(self.vcs.values()) * self.gpus_per_node


def same_type(one: str, other: str) -> bool:
    """Return whether two names mean the same GPU type; upper and lower case count as equal."""
    return one.casefold() == other.casefold()


def suits(gpu_type: str, asked: str | None) -> bool:
    """Return whether GPUs of type `gpu_type` suit a job that asks for type `asked`. They do if
    either of the two is not stated."""
    return not asked or not gpu_type or same_type(gpu_type, asked)


@dataclass(slots=True, eq=False)
class Run:
    """A job on its GPUs.

    Attributes:
        order: number of this start; a run with a lower number started earlier.
        nodes: node numbers.
        gpus: bit mask of the run's GPUs on each of `nodes`.
        partner: the run with which this run shares its GPUs; None: it has them alone.
    """

    job: Job
    vc: str
    start_time: float
    order: int
    nodes: tuple[int, ...]
    gpus: tuple[int, ...]
    partner: Run | None = None
    profiling: bool = False


Placement = list[tuple[int, int]]  # (node, GPU bit mask) pairs


@dataclass(slots=True, eq=False)
class Pool:
    """The nodes of one virtual cluster (or of the profiling partition), and which of their GPUs are
    free.

    ``_by_free[k]`` has bit n set when node n has exactly k GPUs that are free, not reserved and not
    closed. On a drained node every GPU is closed. Nodes that are lent to the profiling partition
    are in no mask of their virtual cluster. ``_of_size[k]`` has the nodes of k GPUs.
    """

    name: str
    per_node: int  # GPUs on its largest nodes
    size: int = 0  # nodes now in the pool
    gpus: int = 0  # GPUs now in the pool
    changes: int = 0  # counts when GPUs become free or busy, nodes change, or an expected end moves
    free: int = 0  # free GPUs, closed ones apart
    shared: int = 0  # GPUs that two jobs run on
    _by_free: list[int] = field(default_factory=list)
    _free_gpus: dict[int, int] = field(default_factory=dict)  # node -> bit mask of free GPUs
    _held: dict[int, int] = field(default_factory=dict)  # node -> bit mask of reserved GPUs
    _shut: set[int] = field(default_factory=set)  # drained nodes
    # node -> bit mask of its GPUs that are closed whether it is drained or not
    closed_alone: dict[int, int] = field(default_factory=dict)
    _gpus_of: dict[int, int] = field(default_factory=dict)  # node -> GPUs on it
    _of_size: dict[int, int] = field(default_factory=dict)  # GPUs on a node -> nodes with so many

    def __post_init__(self) -> None:
        self._by_free = [0] * (self.per_node + 1)

    def gpus_of(self, node: int) -> int:
        """Return the number of GPUs on a node."""
        return self._gpus_of[node]

    def add_node(self, node: int, gpus: int | None = None) -> None:
        """Add an idle node to the pool. `gpus` is its number of GPUs, by default `per_node`."""
        if node in self._free_gpus:
            raise ValueError(f"node {node} is already in pool {self.name!r}")
        self.changes += 1
        gpus = self.per_node if gpus is None else gpus
        self._by_free += [0] * (gpus + 1 - len(self._by_free))
        self._gpus_of[node] = gpus
        self._free_gpus[node] = (1 << gpus) - 1
        self._by_free[gpus] |= 1 << node
        self._of_size[gpus] = self._of_size.get(gpus, 0) | 1 << node
        self.per_node = max(self._of_size)
        self.size += 1
        self.gpus += gpus
        self.free += gpus

    def remove_node(self, node: int) -> None:
        """Remove a node from the pool. Raise ValueError where a job runs on it, or GPUs of it are
        reserved."""
        if not self.is_empty(node) or node in self._held:
            raise ValueError(f"node {node} of pool {self.name!r} is not idle")
        gpus = self._gpus_of.pop(node)
        self.changes += 1
        self._by_free[self.open_on(node).bit_count()] &= ~(1 << node)
        self.free -= _unclosed(self, node).bit_count()
        self._shut.discard(node)
        self.closed_alone.pop(node, None)
        del self._free_gpus[node]
        self._of_size[gpus] &= ~(1 << node)
        if not self._of_size[gpus]:
            del self._of_size[gpus]
            self.per_node = max(self._of_size, default=self.per_node)
        self.size -= 1
        self.gpus -= gpus

    def idle_node(self) -> int | None:
        """Return the highest-numbered node among the largest nodes of which every GPU is free, not
        reserved and not closed; None where there is none. Placement fills low numbers first, so the
        highest is missed least."""
        mask = self._idle(self.per_node)
        return mask.bit_length() - 1 if mask else None

    @property
    def idle_nodes(self) -> int:
        """The number of nodes of which every GPU is free, not reserved and not closed."""
        return sum(self._idle(size).bit_count() for size in self._of_size)

    def _idle(self, size: int) -> int:
        """Return the nodes of `size` GPUs of which every GPU is free, not reserved and not closed,
        as a bit mask of nodes."""
        return self._by_free[size] & self._of_size.get(size, 0)

    def is_idle(self, node: int) -> bool:
        """Return whether every GPU of a node is free, not reserved and not closed."""
        return bool(self._by_free[self.gpus_of(node)] >> node & 1)

    def is_empty(self, node: int) -> bool:
        """Return whether no job runs on a node. The node may be drained or reserved all the
        same."""
        return self._free_gpus[node].bit_count() == self.gpus_of(node)

    def __contains__(self, node: int) -> bool:
        return node in self._free_gpus

    def nodes(self) -> Iterator[int]:
        return iter(self._free_gpus)

    def free_on(self, node: int) -> int:
        """Return the bit mask of free GPUs on a node, closed ones included."""
        return self._free_gpus[node]

    def place(self, gpus: int, *, among: int = -1, per_node: int | None = None) -> Placement | None:
        """Return GPUs for a job on the fewest nodes, each as full as possible. Return None where
        the pool has no such placement now.

        A job that fits on one node goes on the fullest node that has room. A larger job takes
        wholly idle nodes, the largest first, and its remainder goes on the emptiest node left.

        Args:
            among: bit mask of the nodes that may be used; all by default.
            per_node: GPUs on each node of `among`, if those are alike but other nodes differ.
        """
        if per_node is None and len(self._of_size) > 1 and gpus > self.per_node:
            return _spread(self, gpus, among)
        per_node = per_node or self.per_node
        if gpus > self.free:
            return None
        if gpus <= per_node:
            for k in range(gpus, per_node + 1):
                mask = self._by_free[k] & among
                if mask:
                    node = (mask & -mask).bit_length() - 1
                    return [(node, _lowest(self.open_on(node), gpus))]
            return None
        return _place_whole(self, gpus, among, per_node)

    def take(self, placement: Placement) -> None:
        """Mark the GPUs of a placement as busy. Raise ValueError at the first node where one of
        them is not free; the GPUs of earlier nodes stay marked."""
        for node, gpus in placement:
            free = self._free_gpus[node]
            if gpus & ~free:
                raise ValueError(f"GPUs of node {node} of pool {self.name!r} are not free")
            self._set(node, free & ~gpus)

    def give(self, nodes: tuple[int, ...], gpus: tuple[int, ...]) -> None:
        for node, mask in zip(nodes, gpus, strict=True):
            self._set(node, self._free_gpus[node] | mask)

    def open_on(self, node: int) -> int:
        """Return the bit mask of the GPUs of a node that a job may get: free, not reserved and not
        closed."""
        if node in self._shut:
            return 0
        return self._free_gpus[node] & ~self._held.get(node, 0) & ~self.closed_alone.get(node, 0)

    def reserved_on(self, node: int) -> int:
        """Return the bit mask of the GPUs of a node that are reserved or closed, busy or not."""
        return self.closed_on(node) | self._held.get(node, 0)

    def closed_on(self, node: int) -> int:
        """Return the bit mask of the closed GPUs of a node, busy or not: all GPUs of a drained
        node, otherwise the GPUs that were closed one by one."""
        if node in self._shut:
            return (1 << self.gpus_of(node)) - 1
        return self.closed_alone.get(node, 0)

    @property
    def has_reserved(self) -> bool:
        """Whether any GPU of the pool is reserved or closed."""
        return bool(self._held or self._shut or self.closed_alone)

    def is_open(self, node: int) -> bool:
        """Return whether a node is open, which means that it is not drained."""
        return node not in self._shut

    @property
    def closed_nodes(self) -> Iterable[int]:
        """The numbers of the nodes with closed GPUs: drained nodes, and nodes of which some GPUs
        were closed one by one."""
        return self._shut | self.closed_alone.keys() if self.closed_alone else self._shut

    def kept(self) -> Iterable[tuple[int, int]]:
        """Return the reserved GPUs, busy or free, as (node, bit mask) pairs."""
        return self._held.items()

    def holds(self, gpus: int, *, among: int = -1, closed_too: bool = False) -> bool:
        """Return whether a request for `gpus` GPUs would fit this pool if no job ran and no GPU
        were reserved. Closed GPUs do not count.

        Args:
            among: bit mask of the nodes that may be used; all by default.
            closed_too: count closed GPUs as well.
        """
        parts = [0]  # GPUs of the nodes that have lost some, which are no whole nodes
        if not closed_too:
            lacking = self.closed_alone.keys() - self._shut
            parts += [
                (self.gpus_of(node) - self.closed_alone[node].bit_count())
                for node in lacking
                if among >> node & 1
            ]
            among &= ~sum(1 << node for node in self._shut | lacking)
        if gpus <= max(parts):
            return True
        if gpus <= self.per_node:
            return any(size >= gpus and nodes & among for size, nodes in self._of_size.items())
        left, spare = gpus, max(parts)  # spare: GPUs of the largest node not yet counted
        for size in sorted(filter(None, self._of_size), reverse=True):
            there = (self._of_size[size] & among).bit_count()
            taken = min(there, left // size)
            left -= taken * size
            spare = max(spare, size if there > taken else 0)
        return left <= spare

    def set_open(self, node: int, is_open: bool) -> None:
        """Drain a node, so that no job starts on it, or open it again."""
        if is_open is self.is_open(node):
            return
        self.changes += 1
        self._by_free[self.open_on(node).bit_count()] &= ~(1 << node)
        self.free -= _unclosed(self, node).bit_count()
        if is_open:
            self._shut.discard(node)
        else:
            self._shut.add(node)
        self.free += _unclosed(self, node).bit_count()
        self._by_free[self.open_on(node).bit_count()] |= 1 << node

    def close_alone(self, node: int, gpus: int) -> None:
        """Set which GPUs of a node are closed (a bit mask), so that no job starts on these. The
        other GPUs of the node are open, unless the node is drained."""
        if gpus >> self.gpus_of(node):
            raise ValueError(f"node {node} has {self.gpus_of(node)} GPUs, and no such ones")
        if gpus == self.closed_alone.get(node, 0):
            return
        self.changes += 1
        self._by_free[self.open_on(node).bit_count()] &= ~(1 << node)
        self.free -= _unclosed(self, node).bit_count()
        if gpus:
            self.closed_alone[node] = gpus
        else:
            del self.closed_alone[node]
        self.free += _unclosed(self, node).bit_count()
        self._by_free[self.open_on(node).bit_count()] |= 1 << node

    def reserve(self, placement: Placement) -> None:
        """Reserve the GPUs of a placement, busy or free: no job gets them until `unreserve` is
        called."""
        for node, gpus in placement:
            if self._held.get(node, 0) & gpus:
                raise ValueError(f"node {node} of pool {self.name!r} is already reserved")
            self._refile(node, self._free_gpus[node], self._held.get(node, 0) | gpus)

    def unreserve(self, placement: Placement) -> None:
        """End the reservation of the GPUs of a placement."""
        for node, gpus in placement:
            self._refile(node, self._free_gpus[node], self._held[node] & ~gpus)

    def unreserve_all(self) -> None:
        """End every reservation in this pool."""
        for node in list(self._held):
            self._refile(node, self._free_gpus[node], 0)

    def _set(self, node: int, free: int) -> None:
        self.changes += 1
        if node not in self._shut:
            closed = self.closed_alone.get(node, 0)
            self.free += (free & ~closed).bit_count() - _unclosed(self, node).bit_count()
        self._refile(node, free, self._held.get(node, 0))

    def _refile(self, node: int, free: int, held: int) -> None:
        bit = 1 << node
        self._by_free[self.open_on(node).bit_count()] &= ~bit
        self._free_gpus[node] = free
        if held:
            self._held[node] = held
        else:
            self._held.pop(node, None)
        self._by_free[self.open_on(node).bit_count()] |= bit


def are_open(pool: Pool, placement: Placement) -> bool:
    """Return whether no GPU of a placement is closed."""
    return not any(pool.closed_on(node) & gpus for node, gpus in placement)


def _place_whole(pool: Pool, gpus: int, among: int, per_node: int) -> Placement | None:
    """Return nodes of `per_node` GPUs each for a job that needs more than one node, as `Pool.place`
    does; None where there are too few."""
    whole, rest = divmod(gpus, per_node)
    idle = pool._by_free[per_node] & among
    if idle.bit_count() < whole:
        return None
    full = (1 << per_node) - 1
    placement: Placement = []
    for _ in range(whole):
        low = idle & -idle
        placement.append((low.bit_length() - 1, full))
        idle ^= low
    if rest:
        for k in range(per_node, rest - 1, -1):
            mask = idle if k == per_node else pool._by_free[k] & among
            if mask:
                node = (mask & -mask).bit_length() - 1
                placement.append((node, _lowest(pool.open_on(node), rest)))
                return placement
        return None
    return placement


def _spread(pool: Pool, gpus: int, among: int) -> Placement | None:
    """Return a placement of a job on nodes of several sizes, the largest first, as `Pool.place`
    does, on nodes of the bit mask `among`; None where there is none."""
    placement: Placement = []
    taken, left = 0, gpus
    for size in sorted(filter(None, pool._of_size), reverse=True):
        idle = pool._idle(size) & among
        while idle and left >= size:
            low = idle & -idle
            placement.append((low.bit_length() - 1, (1 << size) - 1))
            taken, idle, left = taken | low, idle ^ low, left - size
    for k in range(pool.per_node, left - 1, -1) if left else ():
        if mask := pool._by_free[k] & among & ~taken:
            node = (mask & -mask).bit_length() - 1
            return [*placement, (node, _lowest(pool.open_on(node), left))]
    return None if left else placement


def _unclosed(pool: Pool, node: int) -> int:
    """Return the bit mask of the GPUs of a node that are free and not closed; 0 on a drained
    node."""
    return 0 if node in pool._shut else pool._free_gpus[node] & ~pool.closed_alone.get(node, 0)


def _lowest(mask: int, count: int) -> int:
    """Return a bit mask of the `count` lowest set bits of `mask`."""
    taken = 0
    for _ in range(count):
        low = mask & -mask
        taken |= low
        mask ^= low
    return taken


@dataclass(slots=True, kw_only=True)
class RunMemory:
    """A plain record of a `Run`. `partner` is the id of its partner's job; `alone` says that the
    run may get a partner."""

    job_id: str
    vc: str
    start_time: float
    order: int
    nodes: tuple[int, ...]
    gpus: tuple[int, ...]
    partner: str | None
    profiling: bool
    alone: bool


@dataclass(slots=True, kw_only=True)
class NodeMemory:
    """A plain record of a node's state: its number, its GPUs, and whether it is open.

    Attributes:
        kept: bit mask of the GPUs that are reserved for a waiting job.
        closed: bit mask of the GPUs that were closed one by one, without draining the node.
    """

    node: int
    has: Node
    open: bool
    kept: int
    closed: int


@dataclass(slots=True, kw_only=True)
class ClusterMemory:
    """A plain record of which jobs hold which GPUs.

    Attributes:
        nodes: all nodes, in their order.
        pools: maps each virtual cluster to its nodes, in the order in which a placement tries them.
        profiling: nodes of the profiling partition, in the order in which a placement tries them.
        runs: all runs, the earliest start first.
        starts: how many runs have started so far.
    """

    nodes: list[NodeMemory]
    pools: dict[str, list[int]]
    profiling: list[int]
    runs: list[RunMemory]
    starts: int


class Cluster:
    """A pool of nodes for each virtual cluster, and the jobs that run on them.

    Nodes are numbered through all virtual clusters in the order of the spec; a number is never used
    again. `profiling_nodes` maps a virtual cluster to the number of nodes that it lends to the
    profiling partition from the start. `spec` and `nodes` show the present state: nodes are added,
    removed and changed (`add_node`, `remove_node`).
    """

    PROFILING = "profiling"

    def __init__(self, spec: ClusterSpec, profiling_nodes: Mapping[str, int] | None = None):
        self.spec = spec
        self.pools: dict[str, Pool] = {}
        self.profiling = Pool(self.PROFILING, spec.gpus_per_node)
        self.runs: dict[str, Run] = {}
        # runs that hold their GPUs alone and may take a partner: (vc, gpus) -> order -> run
        self.alone: dict[tuple[str, int], dict[int, Run]] = {}
        self._in_order: dict[tuple[str, int], list[Run]] = {}  # `alone`, sorted; emptied on change
        self.nodes = dict(enumerate(spec.nodes()))
        self.node_vc = {node: has.vc for node, has in self.nodes.items()}
        self._pool_of: dict[int, Pool] = {}
        self._starts = 0
        lend = dict(profiling_nodes or {})
        numbers = iter(self.nodes)
        for vc, count in spec.vcs.items():
            pool = self.pools[vc] = Pool(vc, spec.gpus_per_node)
            lent = lend.pop(vc, 0)
            if lent > count:
                raise ValueError(f"vc {vc!r} has {count} nodes and cannot lend {lent}")
            for i, node in zip(range(count), numbers, strict=False):
                home = self._pool_of[node] = pool if i < count - lent else self.profiling
                home.add_node(node, self.nodes[node].gpus)
        if lend:
            raise ValueError(f"no such vc to lend profiling nodes from: {', '.join(sorted(lend))}")

    def pool_of(self, node: int) -> Pool:
        """Return the pool in which a node is now: that of its virtual cluster, or the profiling
        partition."""
        return self._pool_of[node]

    def start(
        self, job: Job, vc: str, placement: Placement, now: float, *, profiling: bool = False
    ) -> Run:
        """Start a job on GPUs that no other job uses. Return its run."""
        for part in placement:
            self.pool_of(part[0]).take([part])
        run = Run(
            job=job,
            vc=vc,
            start_time=now,
            order=self._starts,
            nodes=tuple(node for node, _ in placement),
            gpus=tuple(gpus for _, gpus in placement),
            profiling=profiling,
        )
        self._starts += 1
        self.runs[job.job_id] = run
        if not profiling:
            self._open(run)
        return run

    def pack(self, job: Job, partner: Run, now: float) -> Run:
        """Start a job on the GPUs of a run that has no partner yet; a job of fewer GPUs gets some
        of them. Return the job's run."""
        if partner.partner is not None or partner.profiling:
            raise ValueError(f"job {partner.job.job_id} cannot take another partner")
        where = part_of(partner, job.gpus)
        if where is None:
            raise ValueError(
                f"job {job.job_id} wants {job.gpus} GPUs, its partner has {partner.job.gpus}"
            )
        run = Run(
            job=job,
            vc=partner.vc,
            start_time=now,
            order=self._starts,
            nodes=tuple(node for node, _ in where),
            gpus=tuple(mask for _, mask in where),
            partner=partner,
        )
        self._starts += 1
        partner.partner = run
        self.runs[job.job_id] = run
        self._close(partner)
        self._count_shared(run, 1)
        return run

    def release(self, job_id: str, *, survivor_open: bool = True) -> Run:
        """Take a job off its GPUs, and return its former run. Its partner, if any, keeps running
        alone; with `survivor_open`, the partner may be paired again."""
        run = self.runs.pop(job_id)
        partner = run.partner
        if partner is None:
            for node, gpus in zip(run.nodes, run.gpus, strict=True):
                self.pool_of(node).give((node,), (gpus,))
            self._close(run)
        else:
            for node, gpus in beyond(run, partner):
                self.pool_of(node).give((node,), (gpus,))
            self._count_shared(run, -1)
            partner.partner = None
            run.partner = None
            if survivor_open:
                self._open(partner)
        return run

    def _count_shared(self, run: Run, sign: int) -> None:
        """Add (`sign` 1) or subtract (`sign` -1) the GPUs that a run and its partner share in the
        pools' counts. Those are the GPUs of the run that has fewer."""
        assert run.partner is not None
        narrower = min(run, run.partner, key=lambda one: one.job.gpus)
        for node, gpus in zip(narrower.nodes, narrower.gpus, strict=True):
            self.pool_of(node).shared += sign * gpus.bit_count()

    def lent_by(self, vc: str) -> int:
        """Return how many GPUs of a virtual cluster are on nodes that are in the profiling
        partition now.
        """
        own = (node for node in self.profiling.nodes() if self.node_vc[node] == vc)
        return sum(map(self.profiling.gpus_of, own))

    def lend(self, node: int) -> None:
        """Move an idle node from its virtual cluster to the profiling partition. Raise ValueError
        where a job runs on it, or GPUs of it are reserved."""
        self._move(node, self.pools[self.node_vc[node]], self.profiling)

    def give_back(self, node: int) -> None:
        """Move an idle node from the profiling partition back to its virtual cluster."""
        self._move(node, self.profiling, self.pools[self.node_vc[node]])

    def _move(self, node: int, home: Pool, to: Pool) -> None:
        gpus, closed = home.gpus_of(node), home.closed_alone.get(node, 0)
        home.remove_node(node)
        to.add_node(node, gpus)
        to.close_alone(node, closed)
        self._pool_of[node] = to

    def add_node(self, node: int, has: Node, *, lent: bool = False) -> None:
        """Add a node to a virtual cluster, which may be new. With `lent`, put it into the profiling
        partition.
        """
        if node in self.nodes:
            raise ValueError(f"there is a node {node} already")
        pool = self.pools.setdefault(has.vc, Pool(has.vc, has.gpus))
        pool = self.profiling if lent else pool
        pool.add_node(node, has.gpus)
        self.nodes[node], self.node_vc[node], self._pool_of[node] = has, has.vc, pool
        self.spec = self._shape()

    def add_vc(self, vc: str) -> None:
        """Add a virtual cluster without a node, unless it is there already."""
        if vc not in self.pools:
            self.pools[vc] = Pool(vc, self.spec.gpus_per_node)
            self.spec = self._shape()

    def remove_node(self, node: int) -> None:
        """Remove a node on which nothing runs, from the profiling partition too."""
        self._pool_of[node].remove_node(node)
        del self._pool_of[node], self.nodes[node], self.node_vc[node]
        self.spec = self._shape()

    def _shape(self) -> ClusterSpec:
        """Return the cluster's shape, computed from its present nodes. Like nodes of a virtual
        cluster become one group."""
        was = self.spec
        return ClusterSpec.of(
            self.nodes.values(), self.pools, gpu_memory_mib=was.gpu_memory_mib, name=was.name
        )

    def remember(self) -> ClusterMemory:
        """Return a plain record of which jobs hold which GPUs."""
        nodes = [
            NodeMemory(
                node=node,
                has=has,
                open=self.pool_of(node).is_open(node),
                kept=self.pool_of(node)._held.get(node, 0),
                closed=self.pool_of(node).closed_alone.get(node, 0),
            )
            for node, has in self.nodes.items()
        ]
        runs = [
            RunMemory(
                job_id=job_id,
                vc=run.vc,
                start_time=run.start_time,
                order=run.order,
                nodes=run.nodes,
                gpus=run.gpus,
                partner=None if run.partner is None else run.partner.job.job_id,
                profiling=run.profiling,
                alone=run.order in self.alone.get((run.vc, run.job.gpus), {}),
            )
            for job_id, run in self.runs.items()
        ]
        return ClusterMemory(
            nodes=nodes,
            pools={vc: list(pool.nodes()) for vc, pool in self.pools.items()},
            profiling=list(self.profiling.nodes()),
            runs=runs,
            starts=self._starts,
        )

    def restore(self, memory: ClusterMemory, jobs: Mapping[str, Job]) -> None:
        """Restore the state that `remember` returned, with its nodes. Nothing may run on this
        cluster yet. `jobs` maps ids to jobs: at least those that ran then."""
        nodes = {one.node: one.has for one in memory.nodes}
        if nodes != self.nodes or list(nodes) != list(self.nodes):
            self.nodes, self.node_vc = nodes, {node: has.vc for node, has in nodes.items()}
        self.pools = {vc: Pool(vc, self.spec.gpus_per_node) for vc in memory.pools}
        self.profiling, self._pool_of = Pool(self.PROFILING, self.spec.gpus_per_node), {}
        for vc, members in memory.pools.items():
            self._fill(self.pools[vc], members)
        self._fill(self.profiling, memory.profiling)
        if self.spec.nodes() != list(nodes.values()) or list(self.spec.vcs) != list(self.pools):
            self.spec = self._shape()
        for known in memory.runs:
            self._run_again(known, jobs[known.job_id])
        self._starts = memory.starts
        for one in memory.nodes:
            pool = self.pool_of(one.node)
            if not one.open:
                pool.set_open(one.node, False)
            pool.close_alone(one.node, one.closed)
            if one.kept:
                pool.reserve([(one.node, one.kept)])

    def _run_again(self, known: RunMemory, job: Job) -> None:
        run = Run(
            job=job,
            vc=known.vc,
            start_time=known.start_time,
            order=known.order,
            nodes=known.nodes,
            gpus=known.gpus,
            profiling=known.profiling,
        )
        other = self.runs.get(known.partner or "")
        if other is not None:
            run.partner, other.partner = other, run
            self._count_shared(run, 1)
            own = beyond(run, other)
        else:
            own = list(zip(run.nodes, run.gpus, strict=True))
        for node, mask in own:
            self.pool_of(node).take([(node, mask)])
        self.runs[known.job_id] = run
        if known.alone:
            self.alone.setdefault((run.vc, run.job.gpus), {})[run.order] = run

    def _fill(self, pool: Pool, members: Iterable[int]) -> None:
        for node in members:
            pool.add_node(node, self.nodes[node].gpus)
            self._pool_of[node] = pool

    def set_open(self, node: int, is_open: bool) -> None:
        """Drain a node, so that no job starts on it or is packed there, or open it again."""
        self.pool_of(node).set_open(node, is_open)
        for run in self.runs.values():
            if node in run.nodes and run.partner is None and not run.profiling:
                (self._open if is_open else self._close)(run)

    def close_alone(self, node: int, gpus: int) -> None:
        """Set which GPUs of a node are closed (a bit mask), so that no job starts on these. The
        other GPUs of the node are open, unless the node is drained."""
        pool = self.pool_of(node)
        changed = pool.closed_alone.get(node, 0) ^ gpus
        pool.close_alone(node, gpus)
        for run in self.runs.values():
            on = dict(zip(run.nodes, run.gpus, strict=True)).get(node, 0)
            if on & changed and run.partner is None and not run.profiling:
                (self._close if self.has_closed(run) else self._open)(run)

    def is_reserved(self, run: Run) -> bool:
        """Return whether any GPU of a run is reserved for a waiting job, or closed to new jobs."""
        for node, mask in zip(run.nodes, run.gpus, strict=True):
            pool = self._pool_of[node]
            if pool.has_reserved and pool.reserved_on(node) & mask:
                return True
        return False

    def has_closed(self, run: Run) -> bool:
        """Return whether any GPU of a run is closed to new jobs."""
        parts = zip(run.nodes, run.gpus, strict=True)
        return any(self._pool_of[node].closed_on(node) & mask for node, mask in parts)

    def gpu_type(self, run: Run) -> str:
        """Return the GPU type of a run's nodes, or "" where none is stated. All GPUs of a run have
        one type."""
        return self.nodes[run.nodes[0]].gpu_type

    def gpu_memory_mib(self, run: Run) -> float:
        """Return the memory of one of a run's GPUs, MiB. Where its GPUs differ, return that of the
        smallest."""
        if len(run.nodes) == 1:
            return self.nodes[run.nodes[0]].gpu_memory_mib
        return min(self.nodes[node].gpu_memory_mib for node in run.nodes)

    def open_to_partners(self, vc: str, gpus: int) -> list[Run]:
        """Return the runs of exactly `gpus` GPUs that may get a partner, oldest first. Callers must
        not change the list."""
        key = vc, gpus
        found = self._in_order.get(key)
        if found is None:
            runs = self.alone.get(key, {})
            found = self._in_order[key] = [runs[order] for order in sorted(runs)]
        return found

    def open_to_narrower(self, vc: str, gpus: int) -> list[Run]:
        """Return the runs that may get a partner of `gpus` GPUs. Runs with exactly as many come
        first, then those with more that have so many on one node, each from oldest to newest.
        Callers must not change the list."""
        at = vc, -gpus
        found = self._in_order.get(at)
        if found is None:
            wider = [
                run
                for (where, has), runs in self.alone.items()
                if where == vc and has > gpus
                for run in runs.values()
                if part_of(run, gpus) is not None
            ]
            wider.sort(key=lambda run: run.order)
            found = self._in_order[at] = [*self.open_to_partners(vc, gpus), *wider]
        return found

    def _changed(self, vc: str, gpus: int) -> None:
        """Drop the cached lists of a virtual cluster's runs that may get a partner, where they
        contain runs of `gpus` GPUs. Called when such a run was added or left."""
        self._in_order.pop((vc, gpus), None)
        for at in [(v, has) for v, has in self._in_order if v == vc and -gpus <= has < 0]:
            del self._in_order[at]

    def _open(self, run: Run) -> None:
        """List a run among those that may get a partner, if the owner of its job allows sharing and
        none of its GPUs is closed."""
        if run.job.share and not self.has_closed(run):
            key = run.vc, run.job.gpus
            self.alone.setdefault(key, {})[run.order] = run
            self._changed(*key)

    def _close(self, run: Run) -> None:
        key = run.vc, run.job.gpus
        if self.alone.get(key, {}).pop(run.order, None) is not None:
            self._changed(*key)

    def validate(self) -> None:
        """Check that the counts and masks agree with each other. Raise AssertionError where they do
        not. For tests."""
        held: dict[tuple[int, int], list[Run]] = {}
        for run in self.runs.values():
            assert sum(mask.bit_count() for mask in run.gpus) == run.job.gpus, "a gang is whole"
            for node, mask in zip(run.nodes, run.gpus, strict=True):
                for gpu in range(self.nodes[node].gpus):
                    if mask >> gpu & 1:
                        held.setdefault((node, gpu), []).append(run)
        for sharers in held.values():
            assert len(sharers) <= GPU_SHARING_CAPACITY, "two jobs per GPU at most"
            if len(sharers) == 2:
                assert sharers[0].partner is sharers[1], "sharers are partners"
        for pool in [*self.pools.values(), self.profiling]:
            for node in pool.nodes():
                free = pool.free_on(node)
                for gpu in range(pool.gpus_of(node)):
                    assert bool(free >> gpu & 1) != ((node, gpu) in held), "free or held"
                assert pool._by_free[pool.open_on(node).bit_count()] >> node & 1
            sharers_here = [n for (n, _), runs in held.items() if len(runs) == 2 and n in pool]
            assert pool.shared == len(sharers_here)
            opened = (pool.free_on(n) & ~pool.closed_on(n) for n in pool.nodes())
            assert pool.free == sum(mask.bit_count() for mask in opened)
        everywhere = [n for p in [*self.pools.values(), self.profiling] for n in p.nodes()]
        assert sorted(everywhere) == sorted(self.nodes), "no node lost or doubled"


def part_of(run: Run, gpus: int) -> Placement | None:
    """Return the GPUs of a run that a job of `gpus` GPUs would share with it.

    A job of as many GPUs shares all of them. A smaller job gets the lowest ones of the first node
    with enough; None where no node of the run has that many.
    """
    if gpus == run.job.gpus:
        return list(zip(run.nodes, run.gpus, strict=True))
    for node, mask in zip(run.nodes, run.gpus, strict=True):
        if mask.bit_count() >= gpus:
            return [(node, _lowest(mask, gpus))]
    return None


def beyond(run: Run, partner: Run) -> Placement:
    """Return the GPUs of a run that it does not share with its partner, as a placement."""
    shared = dict(zip(partner.nodes, partner.gpus, strict=True))
    rest = [(n, mask & ~shared.get(n, 0)) for n, mask in zip(run.nodes, run.gpus, strict=True)]
    return [(node, mask) for node, mask in rest if mask]


def suiting(cluster: Cluster, pool: Pool, job: Job) -> int:
    """Return the nodes of a pool that have the GPU type that a job asks for, as a bit mask. Return
    -1 (all bits set) where every node suits."""
    if not job.gpu_type:
        return -1
    found = [n for n in pool.nodes() if suits(cluster.nodes[n].gpu_type, job.gpu_type)]
    return -1 if len(found) == pool.size > 0 else sum(1 << node for node in found)
