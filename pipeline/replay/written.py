"""A site's own files, slurm.conf and that of `sacctmgr dump`, as what Slurm would print of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from scheduler.backends.slurm import parse
from scheduler.backends.slurm.parse import ParseError
from scheduler.backends.slurm.site import ASSOC
from scheduler.backends.slurm.tres import gpu_types
from scheduler.policies.slurm.site import GPU

# of slurm.conf, whose names are in letters of either size, those that are read
_NAMES = (
    "AccountingStorageEnforce", "AccountingStorageTRES", "AccountingStorageType", "AllowAccounts",
    "AllowGroups", "AllowQos", "ClusterName", "CPUs", "CoresPerSocket", "Default", "DefaultTime",
    "DefCpuPerGPU", "DefMemPerCPU", "DefMemPerGPU", "DefMemPerNode", "DenyAccounts", "DenyQos",
    "Exclusive", "Feature", "Gres", "Hidden", "Licenses", "MaxMemPerCPU", "MaxMemPerNode",
    "MaxNodes", "MaxTime", "MemSpecLimit", "NodeName", "Nodes", "OverSubscribe", "PartitionName",
    "PreemptMode", "PreemptType", "PriorityCalcPeriod", "PriorityDecayHalfLife",
    "PriorityFavorSmall", "PriorityFlags", "PriorityJobFactor", "PriorityMaxAge", "PriorityTier",
    "PriorityType", "PriorityWeightAge", "PriorityWeightAssoc", "PriorityWeightFairShare",
    "PriorityWeightJobSize", "PriorityWeightPartition", "PriorityWeightQOS", "PriorityWeightTRES",
    "PrivateData", "QoS", "RealMemory", "ReqResv", "RootOnly", "SchedulerParameters",
    "SchedulerType", "SlurmUser", "Sockets", "SocketsPerBoard", "State", "ThreadsPerCore", "Weight",
)  # fmt: skip
_CALLED = {name.lower(): name for name in _NAMES} | {
    "features": "Feature", "shared": "OverSubscribe", "procs": "CPUs",
}  # fmt: skip
_OWN = re.compile(r"^\s*(ClusterName|ControlMachine|SlurmctldHost|SelectType)=", re.I | re.M)
_DUMP = re.compile(r"^Cluster - '", re.M)
_GRES = re.compile(r"^\s*(NodeName=\S+\s+)?(Name=gpu|AutoDetect=)", re.I | re.M)
_FIELD = re.compile(r"(\w+)\s*=\s*(\"[^\"]*\"|\S+)")
_SAID = re.compile(r":(\w+)=('[^']*'|[^:]*)")
Record = dict[str, str]
DEEPEST = 8  # files that are included by files that are included


def as_printed(path: Path, text: str) -> str:
    """A file as `scontrol` and `sacctmgr` would print what it says; as it is where it is none of
    these files. Raises ParseError."""
    if _OWN.search(text):
        return "\n".join(_conf(_lines(path, text)))
    if _DUMP.search(text):
        return "\n".join(_accounts(text.splitlines()))
    return text


def is_gres(text: str) -> bool:
    """Whether it is a gres.conf: what slurm.conf says of GPUs is all that slurmctld counts."""
    return _GRES.search(text) is not None and not _OWN.search(text)


def _lines(path: Path, text: str, deep: int = 0) -> Iterator[str]:
    """Without comments and line ends, and those of files that are included and there."""
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
        yield from _lines(other, other.read_text(encoding="utf-8", errors="replace"), deep + 1)


def _fields(line: str) -> Record:
    pairs = _FIELD.findall(line)
    return {_CALLED.get(name.lower(), name): said.strip('"') for name, said in pairs}


def _conf(lines: Iterator[str]) -> Iterator[str]:
    config, parts, nodes = Record(), list[Record](), list[Record]()
    defaults: dict[str, Record] = {"NodeName": {}, "PartitionName": {}}
    for line in filter(None, lines):
        said = _fields(line)
        first = next(iter(said), "")
        if first not in defaults:
            config |= said
        elif said[first].upper() == "DEFAULT":
            defaults[first] |= said
        else:
            (nodes if first == "NodeName" else parts).append(defaults[first] | said)
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


def _nodes_of(said: str, every: Mapping[str, Record]) -> list[str]:
    """Of nodes that there are. Raises ParseError: of another, as of a NodeSet."""
    found = list(every) if said.upper() == "ALL" else list(parse.hosts(said))
    if unknown := [name for name in found if name not in every]:
        raise ParseError(f"Nodes={unknown[0][:80]}: no NodeName says what that is")
    return found


def _cpus(said: Record) -> int:
    """As slurmctld counts them where they are not named."""
    sockets = said.get("Sockets") or said.get("SocketsPerBoard") or "1"
    many = int(sockets) * int(said.get("CoresPerSocket", 1)) * int(said.get("ThreadsPerCore", 1))
    return int(said["CPUs"]) if "CPUs" in said else many


def _node(name: str, said: Record, parts: Mapping[str, Sequence[str]]) -> str:
    state = said.get("State", "UNKNOWN").upper()
    return (
        f"NodeName={name} CPUTot={_cpus(said)} RealMemory={said.get('RealMemory', 1)} "
        f"MemSpecLimit={said.get('MemSpecLimit', 0)} Gres={said.get('Gres', '(null)')} "
        f"ActiveFeatures={said.get('Feature', '(null)')} Weight={said.get('Weight', 1)} "
        f"State={'IDLE' if state == 'UNKNOWN' else state} "
        f"Partitions={','.join(one for one, has in parts.items() if name in has)}"
    )


def _tres(has: Sequence[Record], counted: Sequence[str]) -> str:
    """What a partition has; of its GPUs and their types, as the site counts them."""
    gpus: Counter[str] = Counter()
    for one in has:
        gpus.update(gpu_types(re.sub(r"\([^)]*\)", "", one.get("Gres", ""))) or {})
    cpus, memory = sum(map(_cpus, has)), sum(int(one.get("RealMemory", 1)) for one in has)
    found = [f"cpu={cpus}", f"mem={memory}M", f"node={len(has)}", f"billing={cpus}"]
    found += [f"{GPU}={gpus.total()}"] * (GPU in counted)
    return ",".join(
        [*found, *(f"{GPU}:{k}={n}" for k, n in gpus.items() if f"{GPU}:{k}" in counted)]
    )


# --- sacctmgr dump --------------------------------------------------------------------------------

_COLUMNS = {"Share": "Fairshare", "MaxTRES": "MaxTRESPerJob", "MaxWall": "MaxWallDurationPerJob"}


def _accounts(lines: Sequence[str]) -> Iterator[str]:
    """Its associations as `sacctmgr show assoc`, where users have what their accounts have, and
    the users' own accounts as `sacctmgr show user`."""
    yield "|".join(ASSOC)
    first: dict[str, str] = {}
    parent, above = "root", dict[str, Record]()
    for line in lines:
        kind, _, rest = line.partition(" - ")
        name, _, more = rest.partition(":")
        said = {key: value.strip("'") for key, value in _SAID.findall(f":{more}")}
        name = name.strip("'")
        if kind == "Cluster":
            above["root"] = said
            yield _row("root", "", said, {})
        elif kind == "Parent":
            parent = name
        elif kind == "Account":
            above[name] = _passed_on(above.get(parent, {})) | said
            yield _row(name, "", above[name], {"ParentName": parent})
        elif kind == "User":
            first[name] = said.get("DefaultAccount", parent)
            yield _row(parent, name, _passed_on(above.get(parent, {})) | said, {})
    yield "User|Def Acct"
    yield from (f"{user}|{account}" for user, account in first.items())


def _passed_on(said: Record) -> Record:
    """What those below have where they do not say; limits on a group are its own."""
    own = ("Grp", "Fairshare", "Description", "Organization", "DefaultAccount", "Partition")
    return {name: value for name, value in said.items() if not name.startswith(own)}


def _row(account: str, user: str, said: Record, more: Record) -> str:
    known = {"Account": account, "User": user, "Share": "1", **more}
    for column in ASSOC:
        value = said.get(_COLUMNS.get(column, column), said.get(column))
        if value is not None and column not in ("Account", "User", "ParentName"):
            known[column] = value
    known["QOS"] = said.get("QOS", "").lstrip("+")
    return "|".join(known.get(column, "") for column in ASSOC)
