"""A Slurm cluster as values: what slurmctld decides by, and what jobs ask for.

Names are Slurm's. Durations are in seconds, times in seconds since the epoch, memory in MiB.
Resources (TRES) have Slurm's names: ``cpu``, ``mem``, ``node``, ``billing``, ``gres/gpu``,
``gres/gpu:a100``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import ClassVar

from features.job import Job
from scheduler.core.cluster import ClusterSpec

Tres = Mapping[str, float]
GPU = "gres/gpu"
UNPLACED_S = 365 * 86_400.0  # Slurm's own for a job without a limit: a year


@dataclass(frozen=True, slots=True)
class SiteNode:
    """A node of a Slurm cluster. `gpus` are numbers of GPUs by type, in the order of their indices.
    `gres` are numbers of its other generic resources, by name."""

    name: str
    cpus: int
    memory_mib: float
    gpus: tuple[tuple[str, int], ...] = ()
    features: frozenset[str] = frozenset()
    weight: int = 1
    open: bool = True
    state: str = "IDLE"
    reason: str = ""
    gres: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition of a Slurm cluster. Limits that are None do not exist.

    Attributes:
        tres: the resources of all its nodes, as Slurm counts them.
        qos: the QOS whose limits also hold for its jobs.
        accounts, all_qos: accounts and QOS that may use it; None: all.
        no_accounts, no_qos: accounts and QOS that may not use it.
        groups: groups whose users may submit to it; None: all. This is tested at submission only.
        root_only: whether only root may submit to it, also tested at submission only.
        hidden: whether Slurm shows it only to users who ask for all partitions.
        in_reservations: whether its jobs must name a reservation.
        preempted: how its jobs make way for others, such as ``REQUEUE``; "": they do not.
        defaults: memory (MiB) and CPUs that jobs get by default or may have, by slurm.conf's names.
        min_nodes: a job that asks for fewer nodes waits for ever; one that names no number gets as
            many (`MinNodes`).
        cpus_per_node: CPUs of a node that its jobs together may have (`MaxCPUsPerNode`).
    """

    name: str
    nodes: frozenset[str]
    tier: int = 1
    job_factor: int = 1
    max_time_s: float | None = None
    default_time_s: float | None = None
    max_nodes: int | None = None
    up: bool = True
    exclusive: bool = False
    default: bool = False
    qos: str = ""
    accounts: frozenset[str] | None = None
    all_qos: frozenset[str] | None = None
    tres: Tres = field(default_factory=dict)
    groups: frozenset[str] | None = None
    no_accounts: frozenset[str] = frozenset()
    no_qos: frozenset[str] = frozenset()
    root_only: bool = False
    hidden: bool = False
    in_reservations: bool = False
    preempted: str = ""
    defaults: Mapping[str, float] = field(default_factory=dict)
    min_nodes: int = 0
    cpus_per_node: int | None = None


@dataclass(frozen=True, slots=True)
class Reservation:
    """Nodes that are reserved from `start` to `end` for certain users and accounts."""

    name: str
    nodes: frozenset[str]
    start: float
    end: float
    users: frozenset[str] = frozenset()
    accounts: frozenset[str] = frozenset()
    flags: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of an association or a QOS, by sacctmgr's names. None, or a missing entry, means no
    limit."""

    grp_tres: Tres = field(default_factory=dict)
    grp_jobs: int | None = None
    max_tres: Tres = field(default_factory=dict)  # per job
    max_jobs: int | None = None  # of an association
    max_wall_s: float | None = None
    max_tres_pu: Tres = field(default_factory=dict)
    max_jobs_pu: int | None = None
    max_tres_pa: Tres = field(default_factory=dict)
    max_jobs_pa: int | None = None
    min_tres: Tres = field(default_factory=dict)  # per job, of a QOS
    max_tres_pn: Tres = field(default_factory=dict)  # per node
    max_tres_mins: Tres = field(default_factory=dict)  # per job, by its time limit
    grp_run_mins: Tres = field(default_factory=dict)  # of running jobs, that they have left
    run_mins_pu: Tres = field(default_factory=dict)  # the same of a user; of a QOS
    run_mins_pa: Tres = field(default_factory=dict)  # of an account
    grp_mins: Tres = field(default_factory=dict)  # used up
    grp_wall_s: float | None = None  # used up
    # waiting jobs whose age counts
    grp_accrue: int | None = None
    max_accrue: int | None = None  # of an association
    max_accrue_pu: int | None = None
    max_accrue_pa: int | None = None

    @property
    def of_ages(self) -> bool:
        own = self.grp_accrue, self.max_accrue, self.max_accrue_pu, self.max_accrue_pa
        return any(one is not None for one in own)


@dataclass(frozen=True, slots=True)
class Qos:
    """A QOS (quality of service) of Slurm.

    Attributes:
        not_modelled: its settings that the policy `slurm` does not know.
        factor: factor with which its jobs' usage counts.
        preempts: QOS whose jobs make way for jobs of this QOS.
        first: whether its limits go before those of a partition's QOS (OverPartQOS).
        exempt_s: seconds that its jobs run before they may be preempted; None: as the site sets it.
        preempted: how its jobs make way, such as ``REQUEUE``; "": as the site sets it.
    """

    name: str
    priority: int = 0
    limits: Limits = Limits()
    not_modelled: tuple[str, ...] = ()
    factor: float = 1.0
    preempts: frozenset[str] = frozenset()
    first: bool = False
    exempt_s: float | None = None
    preempted: str = ""


# account, user; user "" = the account itself, ``ada|gpu`` = in partition gpu only
AssocKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Assoc:
    """An association of Slurm: a user in an account, or an account.

    Attributes:
        parent: the account above; "" for none.
        usage: decayed usage, as sshare shows it.
        shares: its shares; None: those of its parent (`Fairshare=parent`).
        fairshare: for a user: the fair share as Slurm computed it last; None: not known.
        qos: the QOS that its jobs may have.
        default_qos: QOS of jobs that name none, inherited from accounts above as sacctmgr prints
            it.
    """

    account: str
    user: str = ""
    parent: str = ""
    shares: int | None = 1
    usage: float = 0.0
    priority: int = 0
    limits: Limits = Limits()
    not_modelled: tuple[str, ...] = ()
    fairshare: float | None = None
    qos: frozenset[str] = frozenset()
    default_qos: str = ""


@dataclass(frozen=True)
class Site:
    """All by which slurmctld decides: nodes, partitions, configuration, limits and accounts.

    Attributes:
        licences: maps each licence to its number.
        config: values of `scontrol show config`, by name.
        backfilled: when backfill ran last, in whole seconds since the epoch; None: not known.
        faults: what could not be read, as lines.
        accounts: maps each user to the account of jobs that name none.
    """

    in_copies: ClassVar = "shared"  # of a core (`explain.whatif.copies`)

    nodes: Mapping[str, SiteNode]
    partitions: Mapping[str, Partition]
    reservations: tuple[Reservation, ...] = ()
    licences: Mapping[str, int] = field(default_factory=dict)
    qos: Mapping[str, Qos] = field(default_factory=dict)
    assocs: Mapping[AssocKey, Assoc] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)
    backfilled: float | None = None
    faults: tuple[str, ...] = ()
    accounts: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def parameters(self) -> Mapping[str, str]:
        """The words of `SchedulerParameters` with their values, by name."""
        parts = self.config.get("SchedulerParameters", "").split(",")
        return dict(part.partition("=")[::2] for part in parts if part and part != "(null)")

    def parameter(self, name: str, default: float) -> float:
        """Return the number that `SchedulerParameters` gives for a word, or `default`."""
        try:
            return float(self.parameters.get(name, default))
        except ValueError:
            return default

    @cached_property
    def booted(self) -> float | None:
        """When slurmctld started; priorities are computed at intervals from then on. None where
        Slurm does not show it."""
        text = self.config.get("BOOT_TIME", "")
        return float(text) if text.isdecimal() else None

    @cached_property
    def enforced(self) -> frozenset[str]:
        """The flags set in `AccountingStorageEnforce`."""
        return frozenset(self.config.get("AccountingStorageEnforce", "").lower().split(","))

    @cached_property
    def limits_ages(self) -> bool:
        """Whether the site limits the number of waiting jobs whose age counts, so that the age of
        some does not count because that of others does."""
        known = [one.limits for one in self.qos.values()]
        known += [one.limits for one in self.assocs.values()]
        return bool({"limits", "safe"} & self.enforced) and any(one.of_ages for one in known)

    def key(self, account: str, user: str, partition: str) -> AssocKey:
        """Return the key of the association that applies to a job in a partition. An association
        for this partition only goes first."""
        own = account, f"{user}|{partition}"
        return own if own in self.assocs else (account, user)

    def default_account(self, user: str) -> str:
        """Return the account of a user's jobs that name none; "" where it is not known."""
        first = next((a for a, of in self.assocs if of.partition("|")[0] == user), "")
        return self.accounts.get(user) or first

    def default_qos(self, account: str, user: str, partition: str = "") -> str:
        """Return the QOS of a job that names none, chosen as slurmctld does; "" for none."""
        mine = self.assocs.get(self.key(account, user, partition))
        if mine is not None and mine.default_qos:
            return mine.default_qos
        if mine is not None and len(mine.qos) == 1:
            return next(iter(mine.qos))
        return "normal" if "normal" in self.qos else ""

    @cached_property
    def backfills(self) -> bool:
        return self.config.get("SchedulerType", "sched/backfill").endswith("backfill")

    @cached_property
    def weighs(self) -> bool:
        """Whether the site computes priorities (priority/multifactor), instead of taking jobs in
        order of arrival."""
        return self.config.get("PriorityType", "").endswith("multifactor")

    @cached_property
    def cpus(self) -> int:
        return sum(node.cpus for node in self.nodes.values())

    @cached_property
    def types(self) -> frozenset[str]:
        """The types of GPU that nodes state; "" is among them where some state none."""
        return frozenset(kind for node in self.nodes.values() for kind, _ in node.gpus)

    @cached_property
    def order(self) -> Mapping[str, tuple[int, int]]:
        """The sort key of each node, by name: (weight, position in slurm.conf)."""
        return {name: (node.weight, i) for i, (name, node) in enumerate(self.nodes.items())}

    @classmethod
    def of_cluster(cls, spec: ClusterSpec) -> Site:
        """Return the site for a cluster of which only nodes are known. Each virtual cluster becomes
        a partition without limits, priority is order of arrival, there is backfill, and CPUs and
        memory are plentiful."""
        nodes: dict[str, SiteNode] = {}
        members: dict[str, set[str]] = {vc: set() for vc in spec.vcs}
        for number, has in enumerate(spec.nodes()):
            gpus = ((has.gpu_type, has.gpus),) if has.gpus else ()
            nodes[str(number)] = SiteNode(str(number), 1_000_000, 1e12, gpus)
            members[has.vc].add(str(number))
        partitions = {vc: Partition(vc, frozenset(names)) for vc, names in members.items()}
        return cls(nodes, partitions)


@dataclass(frozen=True, slots=True)
class Share:
    """What a job has, or would have, of one node; `gpus` are numbers by type, `gres` numbers by
    name."""

    node: str
    cpus: int
    memory_mib: float
    gpus: tuple[tuple[str, int], ...] = ()
    gres: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Ask:
    """What a job asks for, in Slurm's terms.

    Attributes:
        nodes, max_nodes: smallest and largest number of nodes (0: any number).
        cpus: CPUs in all.
        min_cpus: CPUs on every node.
        memory_mib: memory on each node, for each CPU (`per_cpu`), or with each GPU (`per_gpu`).
        gpus: numbers of GPUs by type ("": any type), in all or (`gpus_per_node`) on each node.
        features: the constraint on nodes' features, as written (``a&b``, ``[a|b]``, ``[a*2&b*1]``).
        accrue: time since when its age counts for its priority; None: it does not count.
        sizes: pairs of nodes and CPUs by which its size may be counted: those it names, and those
            that Slurm may have found for it when it computed the priority. (): only `nodes` and
            `cpus`.
        priority: Slurm's own priority at the last poll; 0: held.
        tres: the resources (TRES) for which it is counted.
        shares: while it runs, what it has of each node.
        array: the array of which it is a task.
        array_limit: number of tasks of that array that may run at once (0: any number).
        reason: Slurm's own reason code.
        after: ids of jobs that must have ended first; an array's id stands for all its tasks.
        begin: earliest start; None: at once.
        deadline: time by which it must have ended; None: none.
        gres: generic resources other than GPUs on each node, by name.
        odd: names of its options that the policy `slurm` does not know.
        gpus_in_all: number of GPUs that it asks for over all its nodes.
        turn: its place among jobs of one priority: the second of its submission, its number, and
            its number as a task.
    """

    in_copies: ClassVar = "shared"  # of a core (`explain.whatif.copies`)

    job_id: str
    user: str = ""
    account: str = ""
    qos: str = ""
    partitions: tuple[str, ...] = ()
    nodes: int = 1
    max_nodes: int = 0
    cpus: int = 1
    min_cpus: int = 1
    memory_mib: float = 0.0
    per_cpu: bool = False
    per_gpu: bool = False
    gpus: tuple[tuple[str, int], ...] = ()
    gpus_per_node: bool = False
    features: str = ""
    req_nodes: frozenset[str] = frozenset()
    exc_nodes: frozenset[str] = frozenset()
    exclusive: bool = False
    licences: tuple[tuple[str, int], ...] = ()
    reservation: str = ""
    time_limit_s: float | None = None
    submit: float = 0.0
    accrue: float | None = None
    sizes: tuple[tuple[int, int], ...] = ()
    nice: int = 0
    site_factor: int = 0
    priority: int = 1
    array: str = ""
    array_limit: int = 0
    reason: str = ""
    tres: Tres = field(default_factory=dict)
    shares: tuple[Share, ...] = ()
    after: tuple[str, ...] = ()
    begin: float | None = None
    deadline: float | None = None
    odd: tuple[str, ...] = ()
    gres: tuple[tuple[str, int], ...] = ()
    gpus_in_all: int = field(init=False, repr=False, compare=False)
    turn: tuple[int, int, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        gpus = sum([each for _, each in self.gpus])
        object.__setattr__(self, "gpus_in_all", gpus * self.nodes if self.gpus_per_node else gpus)
        array, _, task = self.job_id.partition("~")[0].partition("_")
        number = int(array) if array.isdecimal() else 0
        turn = int(self.submit), number, int(task) if task.isdecimal() else 0
        object.__setattr__(self, "turn", turn)

    @property
    def partition(self) -> str:
        """The partitions that it names, as squeue shows them."""
        return ",".join(self.partitions)

    def limit_s(self, partition: Partition | None) -> float:
        """Return for how many seconds the job may run in a partition, by its own time limit, else
        the partition's default or limit. Without any of these it is a year, as in Slurm."""
        if self.time_limit_s is not None:
            return self.time_limit_s
        if partition is None:
            return UNPLACED_S
        return partition.default_time_s or partition.max_time_s or UNPLACED_S

    @property
    def latest(self) -> float:
        """The latest time at which the job may start, since Slurm cancels a job whose time limit
        reaches beyond its deadline; inf without a deadline or a time limit."""
        if self.deadline is None or self.time_limit_s is None:
            return inf
        return self.deadline - self.time_limit_s

    @classmethod
    def of_job(cls, job: Job, site: Site) -> Ask:
        """Return the request of a job of a trace in Slurm's terms."""
        partitions = (job.vc,) if job.vc in site.partitions else tuple(site.partitions)[:1]
        kind = (job.gpu_type or "") if site.types != {""} else ""  # what is not stated suits any
        gpus = ((kind, job.gpus),) if job.gpus else ()
        cpus = int(job.cpus or 1)
        return cls(
            job.job_id,
            user=job.user,
            partitions=partitions,
            cpus=cpus,
            memory_mib=job.memory_mib or 0.0,
            gpus=gpus,
            time_limit_s=job.time_limit_s,
            submit=job.submit_time,
            accrue=job.submit_time,
            tres={"cpu": cpus, "mem": job.memory_mib or 0.0, "node": 1, GPU: job.gpus},
        )


@dataclass(frozen=True, slots=True)
class Running:
    """A running job, which ends at `until` (its time limit) at the latest.

    `listed` is the time since which Slurm has a record of it: the submission. For a task of an
    array, it is the latest start among its running tasks, where there is one.
    """

    ask: Ask
    start: float
    until: float
    listed: float = 0.0
