"""The site's own Slurm, to be replayed: its nodes, partitions and settings, what jobs asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from features.job import Job
from pipeline.replay.inferred import gpus_of
from pipeline.replay.printed import Printed
from pipeline.replay.shape import Hide, Shape
from pipeline.replay.told import Told
from scheduler.backends.slurm.site import site_node
from scheduler.backends.slurm.tres import ParseError, counts, gpu_types
from scheduler.core.cluster import ClusterSpec
from scheduler.core.policy import Policy
from scheduler.policies.slurm.limits import unmodelled, unmodelled_words
from scheduler.policies.slurm.policy import Slurm
from scheduler.policies.slurm.site import GPU, Ask, Assoc, Limits, Partition, Site
from scheduler.simulation.work import Workload


@dataclass(frozen=True)
class Twin:
    """A site as the policy `slurm` has it.

    Attributes:
        site: nodes, partitions, settings.
        spec: the cluster as the core has it; `names`: its nodes, in order.
        pools: virtual cluster of each of the other policies' virtual clusters.
        asks: what each job asked for.
        limits: whether limits of QOS and associations are among what it knows.
        notes: what a reader must know, sentences.
    """

    site: Site
    spec: ClusterSpec
    names: tuple[str, ...]
    pools: Mapping[str, str]
    asks: Mapping[str, Ask]
    limits: bool = False
    notes: list[str] = field(default_factory=list)

    def workload(self, others: Workload) -> Workload:
        """The same jobs, each in the pool it is in here; types are in what it asks for."""
        jobs = [replace(job, vc=self.pools[job.vc], gpu_type=None) for job in others.jobs]
        return replace(others, jobs=jobs, cluster=self.spec)

    def shown(self, jobs: Sequence[Job]) -> Callable[[Policy], None]:
        """Has the policy see the site before these jobs come."""
        asks = {
            job.job_id: replace(
                self.asks[job.job_id],
                submit=job.submit_time,
                accrue=job.submit_time,
                time_limit_s=job.time_limit_s,
            )
            for job in jobs
        }

        def show(policy: Policy) -> None:
            if isinstance(policy, Slurm):
                policy.see(self.site, self.names, asks)

        return show


def twin_of(
    shape: Shape,
    printed: Printed,
    jobs: Sequence[Job],
    partitions: Sequence[str],
    told: Told,
    pools: Mapping[str, str],
    hide: Hide,
) -> Twin:
    """The twin of a site.

    Args:
        shape: its nodes.
        printed: what its Slurm says of itself.
        jobs, partitions, told: each job, where it ran, and what the dump tells of it beside.
        pools: see `Twin`.
        hide: how partitions, users, accounts and QOS are called from here on.
    """
    site = _site(shape, printed, hide)
    held = [one.limits for one in site.qos.values()] + [one.limits for one in site.assocs.values()]
    limits = any(one != Limits() for one in held) and bool({"limits", "safe"} & site.enforced)
    basic = site.config.get("PriorityType", "").endswith("basic")
    columns = (told.of(name) for name in ("User", "Account", "QOS", "Priority", "ReqTRES"))
    asks = {}
    for job, partition, tres, (user, account, qos, priority, asked) in zip(
        jobs, partitions, told.of("AllocTRES"), zip(*columns, strict=True), strict=True
    ):
        asks[job.job_id] = replace(
            _ask(job, site, partition, tres, asked),
            user=hide(user),
            account=_hidden(account, hide),
            qos=hide(qos),
            priority=int(priority) if basic and priority.isdigit() else 1,
        )
    names = tuple(node.name for node in shape.nodes)
    notes = _notes(printed, site, list(asks.values()), limits)
    return Twin(site, shape.spec, names, pools, asks, limits, notes)


def _site(shape: Shape, printed: Printed, hide: Hide) -> Site:
    """Everything open, and no limit of a partition: whatever the jobs were, they did run."""
    nodes = {node.name: replace(site_node(node), open=True) for node in shape.nodes}
    members: dict[str, set[str]] = {}
    for node in shape.nodes:
        for name in node.partitions:
            members.setdefault(name, set()).add(node.name)
    known = {hide(part.name): part for part in printed.partitions}
    partitions = {
        name: replace(
            known.get(name, Partition(name, frozenset())),
            name=name,
            nodes=frozenset(has),
            qos=hide(known[name].qos) if name in known else "",
            max_time_s=None,
            max_nodes=None,
            up=True,
            accounts=None,
            all_qos=None,
        )
        for name, has in members.items()
    }
    config = dict(printed.config)
    if not config and (printed.qos or printed.assocs):
        config["AccountingStorageEnforce"] = "limits"
    qos = {hide(name): replace(one, name=hide(name)) for name, one in printed.qos.items()}
    assocs = {
        (_hidden(account, hide), hide(user)): _assoc(assoc, hide)
        for (account, user), assoc in printed.assocs.items()
    }
    return Site(nodes, partitions, qos=qos, assocs=assocs, config=config)


def _assoc(assoc: Assoc, hide: Hide) -> Assoc:
    parent = "" if assoc.user or assoc.account == "root" else assoc.parent or "root"
    return replace(
        assoc,
        account=_hidden(assoc.account, hide),
        user=hide(assoc.user),
        parent=_hidden(parent, hide),
    )


def _hidden(account: str, hide: Hide) -> str:
    return account if account == "root" else hide(account)


def _ask(job: Job, site: Site, partition: str, tres: str, asked: str) -> Ask:
    """What a job asked for: as recorded, where a record says it, else as it was given."""
    given, wanted = _counts(tres), _counts(asked)
    nodes = max(1, int(wanted.get("node", given.get("node", 1))))
    cpus = max(1, int(given.get("cpu", wanted.get("cpu", job.cpus or 1))))
    kinds = _kinds(job.gpus, asked or tres, site, partition)
    even = nodes > 1 and all(count % nodes == 0 for _, count in kinds)
    counted = {name: n for name, n in given.items() if name != "energy"}
    return Ask(
        job.job_id,
        partitions=(partition,),
        nodes=nodes,
        max_nodes=nodes if even or nodes == 1 else 0,
        cpus=max(cpus, nodes),
        memory_mib=given.get("mem", 0.0) / nodes,
        gpus=tuple((kind, n // nodes) for kind, n in kinds) if even else kinds,
        gpus_per_node=even,
        exclusive=site.partitions[partition].exclusive,
        tres={"cpu": cpus, "node": nodes, **counted, GPU: job.gpus},
    )


def _counts(tres: str) -> dict[str, float]:
    try:
        return counts(tres)
    except (ParseError, ValueError):
        return {}


def _kinds(gpus: int, tres: str, site: Site, partition: str) -> tuple[tuple[str, int], ...]:
    """GPUs by the types asked for; "" any, also where the partition has none of that type."""
    found = gpu_types(tres) if tres else None
    if not found or sum(found.values()) != gpus:
        found = gpus_of("", gpus)
    has = {kind for name in site.partitions[partition].nodes for kind, _ in site.nodes[name].gpus}
    merged: Counter[str] = Counter()
    for kind, count in found.items():
        merged[kind if kind in has else ""] += count
    return tuple(merged.items())


def _notes(printed: Printed, site: Site, asks: Sequence[Ask], limits: bool) -> list[str]:
    said = []
    if not printed.config:
        said.append(
            "Slurm's settings were not given (--site), so its own schedule is replayed in order "
            "of arrival, with backfill as Slurm has it unless told otherwise."
        )
    elif site.weighs and not site.assocs:
        said.append("Accounts were not given (--site), so fair share counts for nothing.")
    if not limits:
        said.append("No limits of QOS or accounts are known (--site), so none is replayed.")
    said += [unmodelled_words(what, jobs) for what, jobs in unmodelled(site, asks).items()]
    return said
