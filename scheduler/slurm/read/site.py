"""Makes a `Site` (what slurmctld decides by) from the output of Slurm's commands, and requests from
its jobs.

Every command can be run without special rights. A cluster without slurmdbd has no associations and
no QOS.
"""

from __future__ import annotations

import grp
import os
import pwd
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from math import isfinite
from typing import TypeVar

from scheduler.slurm.read import parse
from scheduler.slurm.read.client import Slurm, SlurmError
from scheduler.slurm.read.parse import Node, ParseError, SlurmJob
from scheduler.slurm.read.tres import counts
from scheduler.slurm.read.versions import partition_as_first
from scheduler.slurm.twin.capacity import counted_by_kind
from scheduler.slurm.twin.known import LIMITS, QOS_FLAGS, Known
from scheduler.slurm.twin.passes import Ranked, as_shown, blaming
from scheduler.slurm.twin.priority import duration_s
from scheduler.slurm.twin.site import (
    Ask,
    Assoc,
    AssocKey,
    Limits,
    Partition,
    Qos,
    Reservation,
    Share,
    Site,
    SiteNode,
)

R = TypeVar("R")
T = TypeVar("T")
ASSOC = (
    "Account", "User", "Partition", "ParentName", "Share", "Priority", "GrpTRES", "GrpJobs",
    "MaxTRES", "MaxJobs", "MaxWall", "GrpTRESMins", "GrpTRESRunMins", "GrpWall", "MaxTRESMins",
    "MaxTRESPerNode", "QOS", "DefaultQOS", "GrpJobsAccrue", "MaxJobsAccrue",
)  # fmt: skip
QOS = (
    "Name", "Priority", "GrpTRES", "GrpJobs", "MaxTRES", "MaxWall", "MaxTRESPU", "MaxJobsPU",
    "MaxTRESPA", "MaxJobsPA", "Preempt", "GrpTRESMins", "GrpTRESRunMins", "GrpWall", "MaxTRESMins",
    "MaxTRESPerNode", "MinTRES", "Flags", "UsageFactor", "GrpJobsAccrue", "MaxJobsAccruePA",
    "MaxJobsAccruePU", "PreemptExemptTime", "PreemptMode", "MaxTRESRunMinsPU", "MaxTRESRunMinsPA",
)  # fmt: skip
_SENTENCES = {"Nodes required for job are DOWN": "Resources"}  # up to the comma; of 22.05
# set, these change what starts, and the twin does not know them
_NOT_MODELLED = (*(name for name, what in LIMITS.items() if what is Known.WITHHELD), "Flags")
_FLAGS = frozenset(name for name, what in QOS_FLAGS.items() if what is not Known.WITHHELD)
_DEFAULTS = (
    "DefMemPerCPU", "DefMemPerNode", "DefMemPerGPU", "DefCpuPerGPU", "MaxMemPerCPU", "MaxMemPerNode"
)  # fmt: skip


def has_accounting(config: Mapping[str, str]) -> bool:
    """Return whether a site with this configuration has slurmdbd (Slurm's accounting database)."""
    return "slurmdbd" in config.get("AccountingStorageType", "")


def read_site(slurm: Slurm, nodes: Sequence[Node], before: Site | None = None) -> Site:
    """Return the site's present configuration, partitions, limits and accounts. Raise SlurmDown,
    SlurmError or ParseError where Slurm cannot be read.

    Args:
        before: the site as last read; its limits and accounts are kept while slurmdbd does not
            answer.
    """
    faults = [f"node {node.name}: {node.fault}" for node in nodes if node.fault]
    config = config_of(slurm.read("scontrol", "show", "config"))
    partitions = partitions_of(slurm.read("scontrol", "-a", "show", "partition", "-o"), faults)
    reservations = reservations_of(slurm.read("scontrol", "show", "reservation", "-o"), faults)
    licences = licences_of(slurm.read("scontrol", "show", "licenses", "-o"), faults)
    return Site(
        {node.name: site_node(node) for node in nodes},
        {part.name: part for part in partitions},
        tuple(reservations),
        licences,
        *_accounts(slurm, config, faults, before),
        config,
        _backfilled(slurm),
        tuple(faults),
        _own_accounts(slurm, config, before),
    )


def _own_accounts(
    slurm: Slurm, config: Mapping[str, str], before: Site | None
) -> Mapping[str, str]:
    """Return the default account of each user; {} without slurmdbd. While slurmdbd does not answer,
    return those in `before`."""
    if not has_accounting(config):
        return {}
    try:
        text = slurm.read("sacctmgr", "-n", "-P", "show", "user", "format=User,DefaultAccount")
    except SlurmError:
        return before.accounts if before is not None else {}
    pairs = (line.partition("|") for line in text.splitlines())
    return {user: account for user, _, account in pairs if account}


def _backfilled(slurm: Slurm) -> float | None:
    try:
        return backfilled_of(slurm.read("sdiag"))
    except SlurmError:  # a site may keep it to itself
        return None


def _accounts(
    slurm: Slurm, config: Mapping[str, str], faults: list[str], before: Site | None
) -> tuple[Mapping[str, Qos], Mapping[AssocKey, Assoc]]:
    """Return the QOS and the associations, each with its usage; both are empty without slurmdbd.
    While slurmdbd does not answer, return those in `before`, and append a line to `faults`."""
    if not has_accounting(config):
        return {}, {}
    cluster = config.get("ClusterName", "")
    manager = "sacctmgr", "-n", "-P", "show"
    try:
        qos = slurm.read(*manager, "qos", f"format={','.join(QOS)}")
        assoc = slurm.read(
            *manager, "assoc", "where", f"cluster={cluster}", f"format={','.join(ASSOC)}"
        )
        columns = "Account,User,Partition,RawUsage,FairShare"
        usage = slurm.read("sshare", "-h", "-P", "-a", "-o", columns)
    except SlurmError as error:
        faults.append(f"limits of QOS and accounts, by sacctmgr: {error}"[:200])
        return ({}, {}) if before is None else (before.qos, before.assocs)
    return qos_of(qos, faults), assocs_of(assoc, usage, faults)


# --- text -----------------------------------------------------------------------------------------


def config_of(text: str) -> dict[str, str]:
    """Return the values in the output of `scontrol show config`, by name."""
    lines = (line.partition("=") for line in text.splitlines())
    return {name.strip(): value.strip() for name, equals, value in lines if equals}


def backfilled_of(text: str) -> float | None:
    """Return when backfill ran last, from the output of `sdiag`, in whole seconds since the epoch.
    Return None where it has not run, or the output does not show it."""
    found = re.search(r"^[ \t]*+Last cycle when: .*\((\d+)\)", text, re.M)
    return float(found[1]) or None if found else None


def site_node(node: Node) -> SiteNode:
    """Return a node in the form that the policy `slurm` uses."""
    return SiteNode(
        name=node.name,
        cpus=node.cpus,
        memory_mib=node.memory_mib,
        gpus=node.types,
        features=frozenset(node.features),
        weight=node.weight,
        open=node.sound,  # reservations are known by themselves
        state=node.state,
        reason=node.reason,
        gres=node.gres,
    )


def _each(
    what: str, rows: Iterable[R], read: Callable[[R], T], faults: list[str] | None
) -> list[T]:
    """Return the result of `read` for each row. A row that cannot be read is left out, and a line
    about it is appended to `faults`; if that is None, raise ParseError."""
    found = []
    for row in rows:
        try:
            found.append(read(row))
        except (ValueError, OverflowError, LookupError, OSError) as error:
            named = next(iter(row.values()), "") if isinstance(row, dict) else str(row)
            fault = f"{what} {named[:40]}: {type(error).__name__} {error}"[:160]
            if faults is None:
                raise ParseError(fault) from None
            faults.append(fault)
    return found


def partitions_of(text: str, faults: list[str] | None = None) -> list[Partition]:
    """Return the partitions in the output of `scontrol show partition`, on one line each or over
    several.

    Args:
        faults: list to which a line is appended for each partition that cannot be read; None: raise
            ParseError.
    """
    return _each("partition", _records(text, "PartitionName="), _partition, faults)


def _partition(row: Mapping[str, str]) -> Partition:
    row = partition_as_first(row)
    return Partition(
        name=row["PartitionName"],
        nodes=frozenset(parse.hosts(row.get("Nodes", ""))),
        tier=int(row.get("PriorityTier", 1)),
        job_factor=int(row.get("PriorityJobFactor", 1)),
        max_time_s=duration_s(row.get("MaxTime", "")),
        default_time_s=duration_s(row.get("DefaultTime", "")),
        max_nodes=_limit(row.get("MaxNodes", "")),
        up=row.get("State", "UP") in ("UP", "DRAIN"),
        exclusive=row.get("OverSubscribe", "") == "EXCLUSIVE",
        default=row.get("Default", "") == "YES",
        qos="" if row.get("QoS", "N/A") == "N/A" else row["QoS"],
        accounts=_allowed(row.get("AllowAccounts", "ALL")),
        all_qos=_allowed(row.get("AllowQos", "ALL")),
        tres=counts(row.get("TRES", "")),
        groups=_allowed(row.get("AllowGroups", "ALL")),
        no_accounts=_allowed(row.get("DenyAccounts", "")) or frozenset(),
        no_qos=_allowed(row.get("DenyQos", "")) or frozenset(),
        root_only=row.get("RootOnly") == "YES",
        hidden=row.get("Hidden") == "YES",
        in_reservations=row.get("ReqResv") == "YES",
        preempted=_mode(row.get("PreemptMode", "OFF")),
        defaults=defaults_of(row),
        min_nodes=_limit(row.get("MinNodes", "")) or 0,
        cpus_per_node=_limit(row.get("MaxCPUsPerNode", "")),
    )


def _mode(text: str) -> str:
    """Return a PreemptMode without its flags GANG and OFF: how preempted jobs make way, such as
    ``REQUEUE``. "" means that jobs are not preempted."""
    modes = [one for one in text.upper().split(",") if one not in ("GANG", "OFF")]
    return ",".join(modes)


def defaults_of(row: Mapping[str, str]) -> dict[str, float]:
    """Return the memory (MiB) and CPUs that jobs get if they state none, and the most that they may
    have, from a partition or from `scontrol show config`."""
    more = (one.partition("=") for one in row.get("JobDefaults", "").split(","))
    given = {**row, **{name: value for name, _, value in more}}
    return {name: float(given[name]) for name in _DEFAULTS if given.get(name, "").isdecimal()}


_ONE_OF = {"DefMemPerCPU", "DefMemPerNode"}, {"MaxMemPerCPU", "MaxMemPerNode"}


def defaults_in(config: Mapping[str, str], part: Partition) -> dict[str, float]:
    """Return the defaults that hold in a partition. Where the partition has its own default of
    memory, by CPU or by node, both of the configuration's are left out."""
    hidden = {name for both in _ONE_OF if both & part.defaults.keys() for name in both}
    of_all = {name: n for name, n in defaults_of(config).items() if name not in hidden}
    return {**of_all, **part.defaults}


def takes(user: str, groups: Collection[str] | None) -> bool:
    """Return whether a partition that allows only these groups takes jobs of a user, as far as this
    host knows both. An unknown user or group is accepted."""
    if groups is None or user == "root":
        return True
    try:
        own = set(os.getgrouplist(user, pwd.getpwnam(user).pw_gid))
        return any(grp.getgrnam(name).gr_gid in own for name in groups)
    except (KeyError, OSError):
        return True


def _allowed(text: str) -> frozenset[str] | None:
    return None if text in ("ALL", "(null)", "") else frozenset(text.split(","))


def reservations_of(text: str, faults: list[str] | None = None) -> list[Reservation]:
    """Return the reservations in the output of `scontrol show reservation`. Its times are seconds
    since the epoch, or dates in the time zone of this host."""
    return _each("reservation", _records(text, "ReservationName="), _reservation, faults)


def _reservation(row: Mapping[str, str]) -> Reservation:
    return Reservation(
        name=row["ReservationName"],
        nodes=frozenset(parse.hosts(row.get("Nodes", ""))),
        start=_moment(row["StartTime"]),
        end=_moment(row["EndTime"]),
        users=_names(row.get("Users", "")),
        accounts=_names(row.get("Accounts", "")),
        flags=_names(row.get("Flags", "")),
    )


def _moment(text: str) -> float:
    return float(text) if text.isdecimal() else datetime.fromisoformat(text).timestamp()


def _names(text: str) -> frozenset[str]:
    return frozenset() if text == "(null)" else frozenset(filter(None, text.split(",")))


def licences_of(text: str, faults: list[str] | None = None) -> dict[str, int]:
    """Return how many of each licence there are for jobs, from the output of `scontrol show
    licenses`."""

    def one(row: Mapping[str, str]) -> tuple[str, int]:
        return row["LicenseName"], int(row.get("Total", 0)) - int(row.get("Reserved", 0))

    return dict(_each("licence", _records(text, "LicenseName="), one, faults))


def _records(text: str, begin: str) -> list[dict[str, str]]:
    parts = re.split(r"(?:^|\s)" + re.escape(begin), text)[1:]
    return [parse.fields(" ".join(f"{begin}{one}".split())) for one in parts]


def qos_of(text: str, faults: list[str] | None = None) -> dict[str, Qos]:
    """Return the QOS in the output of `sacctmgr -n -P show qos` with the columns `QOS`."""
    return {one.name: one for one in _each("QOS", _table(text, QOS, faults), _qos, faults)}


def _qos(row: Mapping[str, str]) -> Qos:
    limits = Limits(
        grp_tres=counts(row["GrpTRES"]),
        grp_jobs=_limit(row["GrpJobs"]),
        max_tres=counts(row["MaxTRES"]),
        max_wall_s=duration_s(row["MaxWall"]),
        max_tres_pu=counts(row["MaxTRESPU"]),
        max_jobs_pu=_limit(row["MaxJobsPU"]),
        max_tres_pa=counts(row["MaxTRESPA"]),
        max_jobs_pa=_limit(row["MaxJobsPA"]),
        grp_accrue=_limit(row["GrpJobsAccrue"]),
        max_accrue_pa=_limit(row["MaxJobsAccruePA"]),
        max_accrue_pu=_limit(row["MaxJobsAccruePU"]),
        min_tres=counts(row["MinTRES"]),
        run_mins_pu=counts(row["MaxTRESRunMinsPU"]),
        run_mins_pa=counts(row["MaxTRESRunMinsPA"]),
    )
    flags = _names(row["Flags"])
    odd = {**row, "Flags": ",".join(sorted(flags - _FLAGS))}
    return Qos(
        name=row["Name"],
        priority=int(row["Priority"] or 0),
        # a percentage is no figure to state: they are not what Slurm counts with
        limits=Limits() if "Relative" in flags else _with_minutes(limits, row),
        not_modelled=_unknown(odd),
        factor=float(row["UsageFactor"] or 1),
        preempts=_names(row["Preempt"]),
        first="OverPartQOS" in flags,
        exempt_s=duration_s(row["PreemptExemptTime"]) if row["PreemptExemptTime"] else None,
        preempted="" if row["PreemptMode"] in ("", "cluster") else row["PreemptMode"].upper(),
    )


def _with_minutes(limits: Limits, row: Mapping[str, str]) -> Limits:
    """Return `limits` completed by three more kinds from a row: of one job on each node, minutes of
    one job, and minutes of all jobs together."""
    return replace(
        limits,
        max_tres_pn=counts(row["MaxTRESPerNode"]),
        max_tres_mins=counts(row["MaxTRESMins"]),
        grp_run_mins=counts(row["GrpTRESRunMins"]),
        grp_mins=counts(row["GrpTRESMins"]),
        grp_wall_s=duration_s(row["GrpWall"]),
    )


def assocs_of(text: str, usage: str, faults: list[str] | None = None) -> dict[AssocKey, Assoc]:
    """Return the associations in the output of `sacctmgr -n -P show assoc` with the columns
    `ASSOC`. Raw usage and fair share are added from the output of `sshare`. Usage grows as jobs
    end; the share is as Slurm computed it last."""
    lines = usage.splitlines()
    used = dict(_each("usage", (dict(enumerate([line])) for line in lines), _used, faults))
    rows = _table(text, ASSOC, faults)
    made = _each("association", rows, lambda row: _assoc(row, used), faults)
    return {(one.account, one.user): one for one in made}


def _used(row: Mapping[int, str]) -> tuple[AssocKey, tuple[float, float | None]]:
    parts = (part.strip() for part in [*row[0].split("|"), *[""] * 4][:5])
    account, user, partition, raw, fair = parts
    user += f"|{partition}" if partition else ""
    found = float(raw or 0), float(fair) if fair else None
    if not all(isfinite(one) for one in found if one is not None):
        raise ParseError(f"a usage {row[0][:80]!r}")
    return (account, user), found


def _assoc(row: Mapping[str, str], used: Mapping[AssocKey, tuple[float, float | None]]) -> Assoc:
    only = row["Partition"]
    key = row["Account"], row["User"] + (f"|{only}" if only else "")
    limits = Limits(
        grp_tres=counts(row["GrpTRES"]),
        grp_jobs=_limit(row["GrpJobs"]),
        max_tres=counts(row["MaxTRES"]),
        max_jobs=_limit(row["MaxJobs"]),
        grp_accrue=_limit(row["GrpJobsAccrue"]),
        max_accrue=_limit(row["MaxJobsAccrue"]),
        max_wall_s=duration_s(row["MaxWall"]),
    )
    usage, fairshare = used.get(key, (0.0, None))
    return Assoc(
        *key,
        row["ParentName"],
        int(row["Share"]) if row["Share"].isdecimal() else None,
        usage,
        int(row["Priority"] or 0),
        _with_minutes(limits, row),
        _unknown(row),
        fairshare,
        _names(row["QOS"]),
        default_qos=row["DefaultQOS"],
    )


def _unknown(row: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(f"{name}={row[name]}" for name in _NOT_MODELLED if row.get(name))


def _table(
    text: str, columns: Sequence[str], faults: list[str] | None = None
) -> list[dict[str, str]]:
    def row(line: Mapping[str, str]) -> dict[str, str]:
        return dict(zip(columns, line["sacctmgr"].split("|"), strict=True))

    lines = ({"sacctmgr": line} for line in text.splitlines())
    return _each("sacctmgr", lines, row, faults)


def _limit(text: str) -> int | None:
    return int(text) if text.isdecimal() else None


# --- jobs -----------------------------------------------------------------------------------------


def asks_of(jobs: Iterable[SlurmJob], site: Site) -> dict[str, Ask]:
    """Return, by job id, what waiting jobs ask for and what running jobs have."""
    return {job.id: _ask(job, site) for job in jobs}


class Asks:
    """Computes `asks_of` at each poll. For a job that has not changed since the last poll (the same
    object), at the same site, the earlier result is used.

    Attributes:
        shown: what `as_shown` returns of each of the jobs of the last poll, by id.
    """

    def __init__(self) -> None:
        self._site: Site | None = None
        self._kept: dict[str, tuple[SlurmJob, Ask, list[Ranked]]] = {}
        self.shown: dict[str, list[Ranked]] = {}

    def of(self, jobs: Iterable[SlurmJob], site: Site) -> dict[str, Ask]:
        if site is not self._site:
            self._site, self._kept = site, {}
        found, self.shown = dict[str, Ask](), {}
        for job in jobs:
            known = self._kept.get(job.id)
            if known is None or known[0] is not job:
                made = blaming(job.id, _ask, job, site)
                known = self._kept[job.id] = job, made, as_shown(made, site)
            _, found[job.id], self.shown[job.id] = known
        return found


def _ask(job: SlurmJob, site: Site) -> Ask:
    array, task, _ = job.id.partition("_")
    parts = tuple(name for name in job.partition.split(",") if name)
    alone = any(site.partitions[name].exclusive for name in parts if name in site.partitions)
    whole = alone or job.exclusive
    cpus = job.cpus if job.nodes else max(job.cpus, job.gpus * job.cpus_per_gpu)
    kinds = sum(counted_by_kind(job.features).values()) if job.num_nodes == 1 else 0
    # the limit of a job without one is shown as its partition's, and cut to what is left by then
    there = (site.partitions[name] for name in parts if name in site.partitions)
    unlimited = job.time_limit_s in {part.max_time_s for part in there}
    vague = job.deadline is not None and (unlimited or "+" in job.id)
    return Ask(
        job.id,
        user=job.user,
        account=job.account,
        qos=job.qos,
        partitions=parts,
        nodes=max(job.num_nodes, kinds),
        max_nodes=job.max_nodes and max(job.max_nodes, kinds),
        cpus=cpus,
        min_cpus=min(job.min_cpus, cpus),
        memory_mib=job.least_mib or _all_of_a_node(job, parts, site),
        per_cpu=job.per == "cpu",
        per_gpu=job.per == "gpu",
        # what is asked for per socket no column tells: then as many as are counted
        gpus=job.gpu_types or (((job.gpu_type, job.gpus),) if job.gpus else ()),
        gpus_per_node=job.gpus_per_node,
        features=job.features,
        req_nodes=frozenset(job.req_nodes),
        exc_nodes=frozenset(job.exc_nodes),
        exclusive=whole,
        licences=_licences(job.licences),
        reservation=job.reservation,
        time_limit_s=job.time_limit_s,
        submit=job.submit,
        accrue=job.accrue,
        sizes=_sizes(job, parts, site, cpus, whole=whole),
        nice=job.nice,
        priority=job.priority,
        array=array if task else "",
        array_limit=job.array_limit,
        reason=slurm_word(job.reason),
        tres=dict(job.tres),
        shares=_shares(job, site),
        after=dependencies(job.dependency) or (),
        begin=job.eligible if job.state == "PENDING" else None,
        deadline=None if vague else job.deadline,
        odd=(*job.odd, "--deadline") if vague else job.odd,
        gres=job.gres,
    )


def _sizes(
    job: SlurmJob, parts: Sequence[str], site: Site, cpus: int, whole: bool
) -> tuple[tuple[int, int], ...]:
    """Return the sizes by which Slurm may count a waiting job, as pairs (nodes, CPUs), ascending.
    Slurm uses the CPUs of its last attempt to start the job, and that attempt's nodes if they were
    fewer than asked for."""
    there = {n for name in parts if name in site.partitions for n in site.partitions[name].nodes}
    found = {job.cpus, cpus}
    if whole:
        found |= {job.num_nodes * site.nodes[n].cpus for n in there if n in site.nodes}
        found.add(sum(site.nodes[n].cpus for n in job.planned if n in site.nodes))
    nodes = {job.num_nodes}
    if len(job.planned) == job.num_nodes and not job.gpus_per_node:
        nodes.add(1)
    return tuple(sorted((n, c) for n in nodes for c in found if c))


_AFTER = re.compile(r"after(?:any|ok)?:(\d+(?:_\d+)?)(?:_\*)?(?:\(unfulfilled\))?")


def dependencies(text: str) -> tuple[str, ...] | None:
    """Return the jobs that must end before a job begins, from a text like
    ``afterany:12(unfulfilled),afterok:7_*``. Return None where it depends on more than ends
    (``after``, ``afternotok``, ``singleton``, alternatives)."""
    found = []
    for one in filter(None, text.split(",")):
        match = _AFTER.fullmatch(one)
        if match is None or one.startswith("after:"):
            return None
        found.append(match[1])
    return tuple(found)


@lru_cache(1024)
def slurm_word(reason: str) -> str:
    """Return Slurm's reason up to its first comma; "None" where it is empty. A sentence that stands
    for a reason code is replaced by the code."""
    word = reason.partition(",")[0].strip() or "None"
    return _SENTENCES.get(word, word)


def _licences(text: str) -> tuple[tuple[str, int], ...]:
    found = (part.replace("=", ":").partition(":") for part in text.split(",") if part)
    return tuple((name, int(count) if count.isdecimal() else 1) for name, _, count in found)


def _all_of_a_node(job: SlurmJob, parts: Sequence[str], site: Site) -> float:
    """Return the memory (MiB) of a node, for a waiting job that asks for all memory of its nodes
    (by `--mem=0`, or where there is no default). Return 0 for other jobs, or where Slurm does not
    allocate memory."""
    given_out = "MEMORY" in site.config.get("SelectTypeParameters", "").upper()
    if not given_out or job.state != "PENDING":
        return 0.0
    counted = dict(job.tres).get("mem", 0.0) / max(1, job.num_nodes)
    there = (site.partitions[name].nodes for name in parts if name in site.partitions)
    sizes = {site.nodes[n].memory_mib for nodes in there for n in nodes if n in site.nodes}
    return counted if counted in sizes else 0.0


def _shares(job: SlurmJob, site: Site) -> tuple[Share, ...]:
    """Return what a running job has of each node. Slurm does not show how CPUs and memory are
    spread over several nodes. A job with as many CPUs as its nodes have is taken to have all of
    each, and memory by their CPUs; any other job has even parts.
    """
    there = [site.nodes[name] for name in job.nodes if name in site.nodes]
    if not there:
        return ()
    count, counted = len(there), dict(job.tres)
    cpus, memory = counted.get("cpu", job.cpus), counted.get("mem", 0.0)
    whole = cpus == sum(node.cpus for node in there)
    parts = (site.partitions.get(name) for name in job.partition.split(","))
    own = job.exclusive or any(part is not None and part.exclusive for part in parts)
    numbered = len(job.held_gpus) == count
    held = job.held_gpus if numbered else ((),) * count
    shares = []
    for node, indices in zip(there, held, strict=True):
        gpus = _kinds(node.gpus, indices) if numbered else _even(node.gpus, job, count)
        gpus = node.gpus if whole and own else gpus
        mine = node.cpus if whole else -int(-cpus // count)
        part = memory * node.cpus / cpus if whole and cpus else memory / count
        shares.append(Share(node=node.name, cpus=mine, memory_mib=part, gpus=gpus, gres=job.gres))
    return tuple(shares)


def _kinds(has: Sequence[tuple[str, int]], indices: Sequence[int]) -> tuple[tuple[str, int], ...]:
    found, first = [], 0
    for kind, count in has:
        taken = sum(first <= index < first + count for index in indices)
        if taken:
            found.append((kind, taken))
        first += count
    return tuple(found)


def _even(has: Sequence[tuple[str, int]], job: SlurmJob, nodes: int) -> tuple[tuple[str, int], ...]:
    """Return the GPUs per node of a job by type, if Slurm does not state their indices. The types
    that the job asked for come first.
    """
    left, found = -(-job.gpus // nodes), []
    named = {job.gpu_type, *(kind for kind, _ in job.gpu_types)}
    for kind, count in sorted(has, key=lambda one: one[0] not in named):
        some = min(left, count)
        if some:
            found.append((kind, some))
        left -= some
    return tuple(found)
