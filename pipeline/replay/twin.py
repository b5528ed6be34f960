"""The twin: the site's own Slurm as a replay imitates it, with nodes, partitions, settings and the
requests of the jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, tzinfo

import numpy as np

from features.job import Job
from pipeline.replay.asked import Row, ask_of, licences_of
from pipeline.replay.extra import Extra
from pipeline.replay.printed import Printed
from pipeline.worlds.shape import Hide, Shape
from scheduler.core.cluster import ClusterSpec
from scheduler.core.policy import Policy
from scheduler.simulation.work import Workload
from scheduler.slurm.read.site import site_node
from scheduler.slurm.twin.passes import het_job
from scheduler.slurm.twin.site import Ask, Assoc, Limits, Partition, Site
from scheduler.slurm.twin.twin import twin_in
from scheduler.slurm.twin.unmodelled import unmodelled, unmodelled_words


@dataclass(frozen=True)
class Twin:
    """A site in the form that the policy `slurm`, which imitates Slurm, needs.

    Attributes:
        site: nodes, partitions and settings.
        spec: the cluster as the core sees it; `names`: names of its nodes, in order.
        pools: virtual cluster of other policies -> virtual cluster here.
        asks: what each job asked for, including jobs without GPUs.
        limits: whether limits of QOS or associations are known and enforced.
        notes: sentences that a reader must know; left_out: sentences about settings that replays
            ignore.
    """

    site: Site
    spec: ClusterSpec
    names: tuple[str, ...]
    pools: Mapping[str, str]
    asks: Mapping[str, Ask]
    limits: bool = False
    notes: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def with_settings(self, changed: Mapping[str, str]) -> Twin:
        """Return the same Slurm with some settings changed.

        Args:
            changed: name -> value. A name that begins in lower case is of `SchedulerParameters`,
                any other of slurm.conf.
        """
        config = dict(self.site.config)
        parameters = dict(self.site.parameters)
        for name, value in changed.items():
            if name[:1].islower():
                parameters[name] = value
            else:
                config[name] = value
        config["SchedulerParameters"] = ",".join(
            f"{name}={value}" if value else name for name, value in parameters.items()
        )
        return replace(self, site=replace(self.site, config=config))

    @property
    def refuses(self) -> frozenset[str]:
        """Return the ids of the jobs that this Slurm refuses at submission: without backfill, the
        parts of heterogeneous jobs (https://slurm.schedmd.com/heterogeneous_jobs.html)."""
        if self.site.backfills:
            return frozenset()
        return frozenset(job_id for job_id, ask in self.asks.items() if het_job(ask))

    def choosing_otherwise(self, seed: int) -> Twin:
        """Return the same Slurm with a random order of preference among nodes of equal weight.
        Records do not show which of these Slurm prefers."""
        rng = np.random.default_rng(seed)
        names = list(self.site.nodes)
        drawn = rng.permutation(len(names)).tolist()
        nodes = {
            name: replace(node, weight=node.weight * len(names) + place)
            for (name, node), place in zip(self.site.nodes.items(), drawn, strict=True)
        }
        return replace(self, site=replace(self.site, nodes=nodes))

    def workload(self, others: Workload, beside: Workload | None = None) -> Workload:
        """Return the jobs of `others`, and those of `beside` (jobs without GPUs), for the cluster
        of this twin, without those that it refuses. Each job with GPUs moves to its virtual cluster
        here; its GPU type is part of its request."""
        jobs = [replace(job, vc=self.pools[job.vc], gpu_type=None) for job in others.jobs]
        work = others.work
        if beside is not None:
            jobs = sorted([*jobs, *beside.jobs], key=lambda job: job.submit_time)
            work = {**work, **beside.work}
        if refused := self.refuses:
            jobs = [job for job in jobs if job.job_id not in refused]
        return replace(others, jobs=jobs, work=work, cluster=self.spec)

    def shown(self, jobs: Sequence[Job]) -> Callable[[Policy], None]:
        """Return a function that prepares a policy for a replay of these jobs. It gives a policy
        that imitates Slurm the site and the requests of the jobs, and does nothing for others."""
        asks = {
            job.job_id: replace(
                self.asks[job.job_id],
                submit=job.submit_time,
                accrue=None,
                time_limit_s=job.time_limit_s,
            )
            for job in jobs
        }

        def show(policy: Policy) -> None:
            if (twin := twin_in(policy)) is not None:
                twin.see(self.site, self.names, asks)

        return show


@dataclass(frozen=True)
class Rows:
    """Some jobs of a dump, with the partition in which each ran, and the columns that the trace
    schema lacks."""

    jobs: Sequence[Job]
    partitions: Sequence[str]
    extra: Extra


def twin_of(
    shape: Shape,
    printed: Printed,
    rows: Sequence[Rows],
    pools: Mapping[str, str],
    hide: Hide,
    zone: tzinfo,
) -> Twin:
    """Return the twin of a site: its Slurm, as a replay imitates it.

    Args:
        shape: the nodes of the site.
        printed: the content of the files that its Slurm printed.
        rows: the jobs of the dump.
        pools: see `Twin`.
        hide: returns the name that replaces a name of a partition, user, account or QOS.
        zone: time zone of clock times.
    """
    site = _site(shape, printed, hide, zone)
    held = [one.limits for one in site.qos.values()] + [one.limits for one in site.assocs.values()]
    limits = any(one != Limits() for one in held) and bool({"limits", "safe"} & site.enforced)
    asks: dict[str, Ask] = {}
    for some in rows:
        asks |= _asks(some, site, shape, hide)
    names = tuple(node.name for node in shape.nodes)
    # how long a partition lets jobs run counted where a job named several, and nowhere else
    free = {name: replace(one, max_time_s=None) for name, one in site.partitions.items()}
    site = replace(site, partitions=free)
    found = unmodelled(site, asks.values())
    left_out = [unmodelled_words(what, jobs) for what, jobs in found.items()]
    notes = [*_notes(printed, site, limits), *left_out, *_not_given(printed, rows)]
    return Twin(
        site=site,
        spec=shape.spec,
        names=names,
        pools=pools,
        asks=asks,
        limits=limits,
        notes=notes,
        left_out=left_out,
    )


def _asks(rows: Rows, site: Site, shape: Shape, hide: Hide) -> dict[str, Ask]:
    basic = site.config.get("PriorityType", "").endswith("basic")
    names = (
        "User", "Account", "QOS", "Priority", "AllocTRES", "ReqTRES", "SubmitLine", "Reservation"
    )  # fmt: skip
    columns = (rows.extra.of(name) for name in names)
    reserved = {one.name for one in site.reservations}
    asks = {}
    for job, partition, (user, account, qos, priority, given, asked, line, reservation) in zip(
        rows.jobs, rows.partitions, zip(*columns, strict=True), strict=True
    ):
        row = Row(job=job, partition=partition, given=given, asked=asked, line=line)
        ask = ask_of(row, site, shape.pools.get, hide)
        within = reservation or ask.reservation
        asks[job.job_id] = replace(
            ask,
            user=hide(user),
            account=_hidden(account, hide),
            qos=hide(qos),
            priority=int(priority) if basic and priority.isdecimal() else 1,
            reservation=within if within in reserved else "",
        )
    return asks


def _not_given(printed: Printed, rows: Sequence[Rows]) -> list[str]:
    """Return notes about licences and reservations for which no file was given, with the number of
    jobs that used them."""
    notes = []
    if printed.licences is None:
        texts = [
            (asked, line)
            for one in rows
            for asked, line in zip(one.extra.of("ReqTRES"), one.extra.of("SubmitLine"), strict=True)
        ]
        many = sum(bool(licences_of(asked, line)) for asked, line in texts)
        if many:
            notes.append(
                f"{many:,} jobs had licences; how many there are was not given (--site: scontrol "
                "show licenses), so they are replayed as if there were enough."
            )
    if printed.reservations is None:
        reasons = [why for some in rows for why in some.extra.of("Reason")]
        inside = [name for some in rows for name in some.extra.of("Reservation")]
        many = sum("Reserv" in why or "ReqNodeNotAvail" in why for why in reasons)
        notes.append(
            "Reservations were not given (--site: sacctmgr show reservation), so nodes that "
            f"were set apart are replayed as free: {many:,} jobs were recorded as waiting for "
            f"reserved nodes, {sum(map(bool, inside)):,} ran in a reservation."
        )
    return notes


def _site(shape: Shape, printed: Printed, hide: Hide, zone: tzinfo) -> Site:
    """Return the site as Slurm's files and the nodes describe it, with all nodes and partitions
    open, and without partition limits on nodes, accounts or QOS, because the recorded jobs did
    run."""
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
        (_hidden(account, hide), _user(user, hide)): _assoc(assoc, hide)
        for (account, user), assoc in printed.assocs.items()
    }
    reservations = tuple(one.at(zone) for one in printed.reservations or ())
    if (booted := config.get("BOOT_TIME", "")) and not booted.isdecimal():
        config["BOOT_TIME"] = _seconds(booted, zone)
    licences = printed.licences or {}
    return Site(
        nodes=nodes,
        partitions=partitions,
        reservations=reservations,
        licences=licences,
        qos=qos,
        assocs=assocs,
        config=config,
    )


def _seconds(clock: str, zone: tzinfo) -> str:
    """Return a clock time in `zone` as whole seconds since the epoch, as text; "" if it is no
    time.
    """
    try:
        return f"{datetime.fromisoformat(clock).replace(tzinfo=zone).timestamp():.0f}"
    except ValueError:
        return ""


def _assoc(assoc: Assoc, hide: Hide) -> Assoc:
    parent = "" if assoc.user or assoc.account == "root" else assoc.parent or "root"
    return replace(
        assoc,
        account=_hidden(assoc.account, hide),
        user=_user(assoc.user, hide),
        parent=_hidden(parent, hide),
    )


def _user(name: str, hide: Hide) -> str:
    """Return a user's name replaced by `hide`. For an association of one partition (``ada|gpu``),
    both names are replaced."""
    return "|".join(map(hide, name.split("|"))) if name else name


def _hidden(account: str, hide: Hide) -> str:
    return account if account == "root" else hide(account)


def _notes(printed: Printed, site: Site, limits: bool) -> list[str]:
    notes = []
    if not printed.config:
        notes.append(
            "Slurm's settings were not given (--site), so its own schedule is replayed in order "
            "of arrival, with backfill as Slurm has it by default."
        )
    elif site.weighs and not site.assocs:
        notes.append("Accounts were not given (--site), so fair share counts for nothing.")
    if not limits:
        notes.append("No limits of QOS or accounts are known (--site), so none is replayed.")
    return notes
