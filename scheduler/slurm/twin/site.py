"""A Slurm cluster as values: what slurmctld decides by, and what a job asks of it.

Words are Slurm's. Times are seconds (moments: since the epoch), memory MiB. TRES are named as
Slurm names them: ``cpu``, ``mem``, ``node``, ``billing``, ``gres/gpu``, ``gres/gpu:a100``.
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
    """A node. `gpus` are numbers by type, in the order of their indices; `gres` are numbers of its
    other resources, by name.
    """

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
    """A partition. None: no limit.

    Attributes:
        tres: what it has in all, as Slurm counts it.
        qos: whose limits hold for its jobs, too.
        accounts, all_qos: that may use it; None: any. `no_accounts`, `no_qos`: that may not.
        groups: whose users may submit to it; None: any. Jobs in its queue are not tested again.
        root_only: only root may submit to it, likewise.
        hidden: Slurm shows it to nobody who does not ask for all.
        in_reservations: its jobs must name a reservation.
        preempted: how its jobs make way for others, ``REQUEUE``; "": they do not.
        defaults: memory and CPUs that jobs have or may have, by slurm.conf's names (MiB).
        min_nodes: a job with fewer waits for ever (`MinNodes`).
        cpus_per_node: that its jobs together may have of a node (`MaxCPUsPerNode`).
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
    """Nodes set apart from `start` to `end`, for these users and accounts."""

    name: str
    nodes: frozenset[str]
    start: float
    end: float
    users: frozenset[str] = frozenset()
    accounts: frozenset[str] = frozenset()
    flags: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of an association or a QOS, by sacctmgr's names. None or absent: none."""

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
    """A QOS.

    Attributes:
        not_modelled: what it sets that the twin does not know.
        factor: by which its jobs' usage counts. preempts: QOS whose jobs make way for its own.
        first: its limits go before those of a partition's QOS (OverPartQOS).
        exempt_s: for how long its jobs run before they make way; None: as the site has it.
        preempted: how they make way, ``REQUEUE``; "": as the site has it.
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
    """An association. `parent` is the account above, "" for none. `usage` is decayed, as sshare
    shows it.

    `shares` None: those of its parent (`Fairshare=parent`). `fairshare`: a user's, as Slurm
    computed it last; None: it is not known. `qos`: that its jobs may have. `default_qos`: of jobs
    that name none, inherited as sacctmgr prints it.
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
    """Everything that slurmctld decides by.

    Attributes:
        licences: how many there are, by name.
        config: values of `scontrol show config`.
        backfilled: the second in which backfill ran last; None: it is not known.
        faults: what of it could not be read, a line each.
        accounts: default accounts of users that name none.
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
        """`SchedulerParameters`, by name."""
        parts = self.config.get("SchedulerParameters", "").split(",")
        return dict(part.partition("=")[::2] for part in parts if part and part != "(null)")

    def parameter(self, name: str, default: float) -> float:
        """Return a number of `SchedulerParameters`."""
        try:
            return float(self.parameters.get(name, default))
        except ValueError:
            return default

    @cached_property
    def booted(self) -> float | None:
        """When slurmctld started, from when on it computes priorities; None where that is not
        shown.
        """
        text = self.config.get("BOOT_TIME", "")
        return float(text) if text.isdecimal() else None

    @cached_property
    def enforced(self) -> frozenset[str]:
        """The flags set in `AccountingStorageEnforce`."""
        return frozenset(self.config.get("AccountingStorageEnforce", "").lower().split(","))

    @cached_property
    def limits_ages(self) -> bool:
        """Whether a limit on ages holds: then the age of some waiting jobs does not count, because
        that of others does.
        """
        known = [one.limits for one in self.qos.values()]
        known += [one.limits for one in self.assocs.values()]
        return bool({"limits", "safe"} & self.enforced) and any(one.of_ages for one in known)

    def key(self, account: str, user: str, partition: str) -> AssocKey:
        """Return the association of a job in a partition. One of that partition alone goes
        first.
        """
        own = account, f"{user}|{partition}"
        return own if own in self.assocs else (account, user)

    def default_account(self, user: str) -> str:
        """Return the account of a job that names none; "" where it is not known."""
        first = next((a for a, of in self.assocs if of.partition("|")[0] == user), "")
        return self.accounts.get(user) or first

    def default_qos(self, account: str, user: str, partition: str = "") -> str:
        """Return the QOS of a job that names none, as slurmctld chooses it; "" for none."""
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
        """Whether priorities are computed (priority/multifactor), not given in order of arrival."""
        return self.config.get("PriorityType", "").endswith("multifactor")

    @cached_property
    def cpus(self) -> int:
        return sum(node.cpus for node in self.nodes.values())

    @cached_property
    def types(self) -> frozenset[str]:
        """Types of GPU that nodes state; "" among them where some state none."""
        return frozenset(kind for node in self.nodes.values() for kind, _ in node.gpus)

    @cached_property
    def order(self) -> Mapping[str, tuple[int, int]]:
        """The sort key of each node, by name: (weight, position in slurm.conf)."""
        return {name: (node.weight, i) for i, (name, node) in enumerate(self.nodes.items())}

    @classmethod
    def of_cluster(cls, spec: ClusterSpec) -> Site:
        """Return the site of a cluster of which only nodes are known. Each virtual cluster is a
        partition without limits, priority is order of arrival, there is backfill, and CPUs and
        memory are plenty.
        """
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
    """What a job has, or would have, of a node; `gpus` by type, `gres` by name."""

    node: str
    cpus: int
    memory_mib: float
    gpus: tuple[tuple[str, int], ...] = ()
    gres: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Ask:
    """What a job asks for.

    Attributes:
        nodes, max_nodes: at least, and at most (0: any number).
        cpus: in all. `min_cpus`: on every node.
        memory_mib: per node, or per CPU (`per_cpu`), or per GPU (`per_gpu`).
        gpus: GPUs of each type ("" any), per job, or per node (`gpus_per_node`).
        features: constraint, as written (``a&b``, ``[a|b]``, ``[a*2&b*1]``).
        accrue: since when its age counts; None: it does not.
        sizes: nodes and CPUs that its size may count by: those it names, and those Slurm may have
            found for it by the time it computed its priority. (): `nodes` and `cpus`.
        priority: Slurm's own at the last look; 0 = held.
        tres: what it is counted as.
        shares: what it has while it runs.
        array, array_limit: its array, and how many tasks of that may run at once (0: any number).
        reason: Slurm's own.
        after: jobs that must have ended first; an array's id stands for its tasks.
        begin: not before; None: at once.
        deadline: by when it must have ended; None: no matter when.
        gres: on each node beside GPUs, by name.
        odd: what else it asks for that the twin does not know.
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

    @property
    def partition(self) -> str:
        """The partitions, as squeue shows them."""
        return ",".join(self.partitions)

    @property
    def gpus_in_all(self) -> int:
        """GPUs over all its nodes."""
        found = 0
        for _, each in self.gpus:
            found += each
        return found * self.nodes if self.gpus_per_node else found

    def limit_s(self, partition: Partition | None) -> float:
        """Return how many seconds the job may run in a partition."""
        if self.time_limit_s is not None:
            return self.time_limit_s
        if partition is None:
            return UNPLACED_S
        return partition.default_time_s or partition.max_time_s or UNPLACED_S

    @property
    def latest(self) -> float:
        """The last moment to start, since Slurm cancels a job whose limit reaches beyond its
        deadline.
        """
        if self.deadline is None or self.time_limit_s is None:
            return inf
        return self.deadline - self.time_limit_s

    @classmethod
    def of_job(cls, job: Job, site: Site) -> Ask:
        """Return what a job of a trace asks for."""
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
    """A running job, from `start` until its limit at the latest.

    `listed`: since when Slurm has a record of it: of a task of an array, since the one before it
    began.
    """

    ask: Ask
    start: float
    until: float
    listed: float = 0.0
