"""Converts a site's own slurm.conf and `sacctmgr dump` to the text that Slurm's commands would
print."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from features.given import read_text
from scheduler.slurm.read import parse
from scheduler.slurm.read.parse import ParseError
from scheduler.slurm.read.site import ASSOC
from scheduler.slurm.read.tres import gpu_types
from scheduler.slurm.twin.site import GPU

# of slurm.conf, whose names are in letters of either size, those that are read
_NAMES = (
    "AccountingStorageEnforce", "AccountingStorageTRES", "AccountingStorageType", "AllowAccounts",
    "AllowGroups", "AllowQos", "AuthInfo", "ClusterName", "CPUs", "CoresPerSocket",
    "CoreSpecCount", "Default",
    "DefaultTime", "DefCpuPerGPU", "DefMemPerCPU", "DefMemPerGPU", "DefMemPerNode",
    "DenyAccounts", "DenyQos",
    "Exclusive", "Feature", "Gres", "Hidden", "Licenses", "MaxMemPerCPU", "MaxMemPerNode",
    "MaxNodes", "MaxTime", "MemSpecLimit", "NodeName", "Nodes", "OverSubscribe", "PartitionName",
    "PreemptExemptTime", "PreemptMode", "PreemptParameters", "PreemptType", "PriorityCalcPeriod",
    "PriorityDecayHalfLife",
    "PriorityFavorSmall", "PriorityFlags", "PriorityJobFactor", "PriorityMaxAge", "PriorityTier",
    "PriorityType", "PriorityWeightAge", "PriorityWeightAssoc", "PriorityWeightFairShare",
    "PriorityWeightJobSize", "PriorityWeightPartition", "PriorityWeightQOS", "PriorityWeightTRES",
    "PrivateData", "QoS", "RealMemory", "ReqResv", "RootOnly", "SchedulerParameters",
    "SchedulerType", "SlurmUser", "Sockets", "SocketsPerBoard", "State", "ThreadsPerCore", "Weight",
)  # fmt: skip
_CALLED = {name.lower(): name for name in _NAMES} | {
    "features": "Feature",
    "shared": "OverSubscribe",
    "procs": "CPUs",
}
_OWN = re.compile(r"^\s*(ClusterName|ControlMachine|SlurmctldHost|SelectType)=", re.I | re.M)
_DUMP = re.compile(r"^Cluster - '", re.M)
_GRES = re.compile(r"^\s*(NodeName=\S+\s+)?(Name=gpu|AutoDetect=)", re.I | re.M)
_FIELD = re.compile(r"(?<!\w)(\w++)\s*+=\s*+(\"[^\"]*\"|\S+)")
_PAIR = re.compile(r":(\w+)=('[^']*'|[^:]*)")
Record = dict[str, str]
DEEPEST = 8  # files that are included by files that are included


def as_printed(path: Path, text: str) -> str:
    """Return the content of a file as `scontrol` and `sacctmgr` would print it. Text that is
    neither a slurm.conf nor a dump of sacctmgr is returned unchanged. Raises ParseError if the file
    is wrong."""
    if _OWN.search(text):
        return "\n".join(_conf(_lines(path, text)))
    if _DUMP.search(text):
        return "\n".join(_accounts(text.splitlines()))
    return text


def is_gres(text: str) -> bool:
    """Return whether a text is a gres.conf. Such a file is not needed, because the GPUs that
    slurm.conf states count."""
    return _GRES.search(text) is not None and not _OWN.search(text)


def _lines(path: Path, text: str, deep: int = 0) -> Iterator[str]:
    """Yield the lines of a configuration file, without comments, and those of the files that it
    includes. Raises ParseError if one of these does not exist, or if they include each other.
    `deep` is the number of files around this one."""
    if deep > DEEPEST:
        raise ParseError(f"Include {path.name[:80]}: files that include each other")
    for line in re.sub(r"\\\n", " ", text).splitlines():
        plain = re.sub(r"(?<!\\)#.*", "", line).strip()
        word, _, name = plain.partition(" ")
        if word.lower() != "include":
            yield plain
            continue
        other = path.parent / name.strip()
        if not other.is_file():
            raise ParseError(f"Include {name.strip()[:80]}: no such file beside it")
        yield from _lines(other, read_text(other, errors="replace"), deep + 1)


def _fields(line: str) -> Record:
    pairs = _FIELD.findall(line)
    return {_CALLED.get(name.lower(), name): value.strip('"') for name, value in pairs}


def _conf(lines: Iterator[str]) -> Iterator[str]:
    config, parts, nodes = Record(), list[Record](), list[Record]()
    defaults: dict[str, Record] = {"NodeName": {}, "PartitionName": {}}
    for line in filter(None, lines):
        row = _fields(line)
        first = next(iter(row), "")
        if first not in defaults:
            config |= row
        elif row[first].upper() == "DEFAULT":
            defaults[first] |= row
        else:
            (nodes if first == "NodeName" else parts).append(defaults[first] | row)
    for licence in filter(None, config.get("Licenses", "").split(",")):
        name, _, many = licence.replace("=", ":").partition(":")
        yield f"LicenseName={name} Total={many or 1}"
    each = {name: one for one in nodes for name in parse.hosts(one["NodeName"])}
    named = {one["PartitionName"]: _nodes_of(one.get("Nodes", ""), each) for one in parts}
    yield from (_node(name, one, named) for name, one in each.items())
    way = config.get("PreemptMode", "OFF").split(",")[-1]
    counted = config.get("AccountingStorageTRES", "").split(",")
    for one in parts:
        name, jobs = one.pop("PartitionName"), ("DefCpuPerGPU", "DefMemPerGPU")
        more = {
            "PreemptMode": way,
            "JobDefaults": ",".join(f"{n}={one[n]}" for n in jobs if n in one),
            **one,
            "Nodes": ",".join(named[name]),
            "TRES": _tres([each[node] for node in named[name]], counted),
        }
        yield f"PartitionName={name} " + " ".join(f"{n}={v}" for n, v in more.items())
    yield from (f"{name} = {value}" for name, value in config.items())


def _nodes_of(text: str, every: Mapping[str, Record]) -> list[str]:
    """Return the names of the nodes that `text` lists, or all for "ALL". Raises ParseError for a
    name that is not a node's, such as that of a NodeSet."""
    found = list(every) if text.upper() == "ALL" else list(parse.hosts(text))
    if unknown := [name for name in found if name not in every]:
        raise ParseError(f"Nodes={unknown[0][:80]}: no NodeName says what that is")
    return found


def _cpus(row: Record) -> int:
    """Return the number of CPUs of a node, as slurmctld counts them: as stated, otherwise sockets x
    cores x threads."""
    sockets = row.get("Sockets") or row.get("SocketsPerBoard") or "1"
    many = int(sockets) * int(row.get("CoresPerSocket", 1)) * int(row.get("ThreadsPerCore", 1))
    return int(row["CPUs"]) if "CPUs" in row else many


def _node(name: str, row: Record, parts: Mapping[str, Sequence[str]]) -> str:
    state = row.get("State", "UNKNOWN").upper()
    return (
        f"NodeName={name} CPUTot={_cpus(row)} CPUEfctv={_for_jobs(row)} "
        f"RealMemory={row.get('RealMemory', 1)} MemSpecLimit={row.get('MemSpecLimit', 0)} "
        f"Gres={row.get('Gres', '(null)')} ActiveFeatures={row.get('Feature', '(null)')} "
        f"Weight={row.get('Weight', 1)} State={'IDLE' if state == 'UNKNOWN' else state} "
        f"Partitions={','.join(one for one, has in parts.items() if name in has)}"
    )


def _for_jobs(row: Record) -> int:
    """Return the number of CPUs of a node that jobs can use: all of its CPUs but those of cores
    reserved for the system."""
    kept = int(row.get("CoreSpecCount", 0)) * int(row.get("ThreadsPerCore", 1))
    return max(0, _cpus(row) - kept)


def _tres(has: Sequence[Record], counted: Sequence[str]) -> str:
    """Return the TRES text of a partition with the nodes `has`. GPUs and their types are included
    only if the site counts them (`counted`)."""
    gpus: Counter[str] = Counter()
    for one in has:
        gpus.update(gpu_types(re.sub(r"\([^)]*+\)?+", "", one.get("Gres", ""))) or {})
    cpus, memory = sum(map(_cpus, has)), sum(int(one.get("RealMemory", 1)) for one in has)
    found = [f"cpu={cpus}", f"mem={memory}M", f"node={len(has)}", f"billing={cpus}"]
    found += [f"{GPU}={gpus.total()}"] * (GPU in counted)
    return ",".join(
        [*found, *(f"{GPU}:{k}={n}" for k, n in gpus.items() if f"{GPU}:{k}" in counted)]
    )


# --- sacctmgr dump --------------------------------------------------------------------------------

_COLUMNS = {"Share": "Fairshare", "MaxTRES": "MaxTRESPerJob", "MaxWall": "MaxWallDurationPerJob"}


def _accounts(lines: Sequence[str]) -> Iterator[str]:
    """Yield the associations in a dump of sacctmgr as lines of `sacctmgr show assoc`, in which
    users inherit fields of their accounts. Then yield the users' default accounts as lines of
    `sacctmgr show user`."""
    yield "|".join(ASSOC)
    first: dict[str, str] = {}
    parent, above = "root", dict[str, Record]()
    for line in lines:
        kind, _, rest = line.partition(" - ")
        name, _, more = rest.partition(":")
        row = {key: value.strip("'") for key, value in _PAIR.findall(f":{more}")}
        name = name.strip("'")
        if kind == "Cluster":
            above["root"] = row
            yield _row("root", "", row, {})
        elif kind == "Parent":
            parent = name
        elif kind == "Account":
            above[name] = _passed_on(above.get(parent, {})) | row
            yield _row(name, "", above[name], {"ParentName": parent})
        elif kind == "User":
            first[name] = row.get("DefaultAccount", parent)
            yield _row(parent, name, _passed_on(above.get(parent, {})) | row, {})
    yield "User|Def Acct"
    yield from (f"{user}|{account}" for user, account in first.items())


def _passed_on(row: Record) -> Record:
    """Return the fields of an account that users below it inherit. Limits on the account as a group
    are not inherited."""
    own = ("Grp", "Fairshare", "Description", "Organization", "DefaultAccount", "Partition")
    return {name: value for name, value in row.items() if not name.startswith(own)}


def _row(account: str, user: str, row: Record, more: Record) -> str:
    known = {"Account": account, "User": user, "Share": "1", **more}
    for column in ASSOC:
        value = row.get(_COLUMNS.get(column, column), row.get(column))
        if value is not None and column not in ("Account", "User", "ParentName"):
            known[column] = value
    known["QOS"] = row.get("QOS", "").lstrip("+")
    return "|".join(known.get(column, "") for column in ASSOC)
