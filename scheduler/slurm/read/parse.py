"""Parses the output of Slurm's commands.

Text that users write (names, comments) is read from JSON, or between marks that no user can know
(`table`), because in `scontrol show job -o` a job named ``x JobState=RUNNING`` would forge a field.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

from features.amounts import Work
from features.clock import LAST_S
from scheduler.core.cluster import MOST_GPUS
from scheduler.slurm.read.job_states import OVER
from scheduler.slurm.read.tres import ParseError as ParseError
from scheduler.slurm.read.tres import counts, gpu_types, other_gres
from scheduler.slurm.read.versions import UNLIMITED, job_as_first, release_of

NO_LIMIT = 0xFFFFFFFE  # from here on: the partition's, or none
MOST_TASKS = 100_000  # of one array
MOST_HOSTS = 100_000  # Slurm has no cluster of more than 65,536
MOST_RANGES = 4  # in one name: "rack[1-4]n[1-8]" has two
_CLOSING = frozenset(
    [
        "BLOCKED",
        "DOWN",
        "DRAIN",
        "DRAINED",
        "DRAINING",
        "ERROR",
        "FAIL",
        "FAILING",
        "FUTURE",
        "INVAL",
        "NO_RESPOND",
        "NOT_RESPONDING",
        "PLANNED_DOWN",
        "POWERED_DOWN",
        "POWERING_DOWN",
        "REBOOT",
        "REBOOT_ISSUED",
        "UNKNOWN",
    ]
)
_SET_APART = frozenset(("MAINT", "MAINTENANCE", "RESERVED"))  # by a reservation, while it lasts


def moment(text: str) -> float | None:
    """Return a time, given in seconds since the epoch, as a number; None where the text stands for
    no time (``N/A``). Raise ValueError for any other text."""
    return None if text.upper() in ("N/A", "UNKNOWN", "NONE", "") else _dated(int(text))


def _dated(epoch_s: int) -> float:
    """Return a time in seconds since the epoch, limited to the last one that a calendar holds,
    since users may name any begin time."""
    return float(min(epoch_s, LAST_S))


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """A job as `squeue --json` shows it.

    Attributes:
        id: job id; ``123_4`` for a task of an array, never ``123_[1-9]``.
        gpus: GPUs asked for in all; 0: none.
        gpu_type: type of these GPUs; "": any.
        held_gpus: GPU indices on each of `nodes` while the job runs; empty where Slurm does not
            show them.
        time_limit_s: time limit in seconds; None: no limit.
        memory_mib: memory asked for; None: not stated.
        submit, eligible, start, end: seconds since the epoch; None: not known.
        num_nodes, max_nodes: nodes asked for while it waits; 0: any number.
        account, qos, features, licences, nice, req_nodes: as squeue shows them.
        planned: nodes on which Slurm plans to start it.
        min_cpus: CPUs asked for on every node.
        per: to what `least_mib` refers: node, cpu or gpu.
        gpu_types: GPUs asked for by type, in all or (`gpus_per_node`) on each node.
        accrue: time since when its age counts for its priority.
        array_limit: number of tasks of its array that may run at once; 0: any number.
        tres: the resources for which it is counted (TRES), memory in MiB.
        cpus_per_gpu: CPUs asked for with each GPU; 0: it asks for CPUs independently.
        exc_nodes: nodes on which it must not run.
        deadline: time by which it must have ended.
        gres: generic resources other than GPUs, asked for on each node, by name (and type).
        odd: names of its options that the policy `slurm` does not know.
        fault: fields and values that could not be read; these fields have their defaults.
        work: the amount of work that its script asks for, which squeue does not show; None: not
            known.
    """

    id: str
    state: str
    user: str
    name: str
    partition: str
    submit: float
    eligible: float | None = None
    start: float | None = None
    end: float | None = None
    priority: int = 0
    reason: str = ""
    gpus: int = 0
    gpu_type: str = ""
    nodes: tuple[str, ...] = ()
    held_gpus: tuple[tuple[int, ...], ...] = ()
    num_nodes: int = 1
    max_nodes: int = 0
    cpus: int = 1
    memory_mib: float | None = None
    time_limit_s: float | None = None
    comment: str = ""
    admin_comment: str = ""
    reservation: str = ""
    dependency: str = ""
    account: str = ""
    qos: str = ""
    features: str = ""
    licences: str = ""
    nice: int = 0
    req_nodes: tuple[str, ...] = ()
    planned: tuple[str, ...] = ()
    min_cpus: int = 1
    least_mib: float = 0.0
    per: str = "node"
    exclusive: bool = False
    gpu_types: tuple[tuple[str, int], ...] = ()
    gpus_per_node: bool = False
    accrue: float | None = None
    array_limit: int = 0
    tres: tuple[tuple[str, float], ...] = ()
    cpus_per_gpu: int = 0
    exc_nodes: tuple[str, ...] = ()
    deadline: float | None = None
    odd: tuple[str, ...] = ()
    fault: str = ""
    gres: tuple[tuple[str, int], ...] = ()
    work: Work | None = None

    @property
    def held(self) -> bool:
        return self.state == "PENDING" and self.priority == 0


def jobs(text: str) -> list[SlurmJob]:
    """Return the jobs in the output of `squeue --json` of any release. The tasks of an array are
    separate jobs. The `fault` of a job that cannot be read says why. Raise ParseError where no job
    can be read."""
    try:
        whole = json.loads(text)
        release, entries = release_of(whole), whole["jobs"]
    except RecursionError:
        raise ParseError("squeue --json: too many brackets within brackets") from None
    except (ValueError, OverflowError, LookupError, TypeError, AttributeError) as error:
        raise ParseError(f"squeue --json: {type(error).__name__} {error}") from None
    found, faults = list[SlurmJob](), list[str]()
    for entry in entries:
        try:
            found += _job(job_as_first(entry, release))
        except (ValueError, OverflowError, LookupError, TypeError, AttributeError) as error:
            faults.append(f"{type(error).__name__} {error}"[:120])
            found += _faulty(entry, faults[-1])
    if faults and len(faults) == len(entries):
        raise ParseError(f"squeue --json: {faults[0]}")
    return found


def _faulty(entry: Any, fault: str) -> Iterator[SlurmJob]:
    """Yield a job that could not be read, of which only the id is certain; `fault` says why. Yield
    nothing where even the id cannot be read."""
    if isinstance(entry, dict) and str(entry.get("job_id", "")).isdecimal():
        state, user, partition = (
            str(value[0] if isinstance(value, list) and value else value or "")
            for value in map(entry.get, ("job_state", "user_name", "partition"))
        )
        yield SlurmJob(
            id=str(entry["job_id"]),
            state=state,
            user=user,
            name="",
            partition=partition,
            submit=0.0,
            fault=fault,
        )


def _job(entry: Mapping[str, Any]) -> Iterator[SlurmJob]:
    text = {name: str(entry.get(name) or "") for name in _TEXTS}
    admin = text["admin_comment"].strip('"')
    gpus, gpu_type = asked(entry)
    nodes, held = _held(entry)
    limit = number(entry.get("time_limit"))
    per_node, per_cpu = number(entry.get("memory_per_node")), number(entry.get("memory_per_cpu"))
    cpus = number(entry.get("cpus")) or 1
    made = SlurmJob(
        id="",
        state=str(entry["job_state"]),
        user=text["user_name"],
        name=text["name"],
        partition=text["partition"],
        submit=_dated(number(entry.get("submit_time")) or 0),
        eligible=_moment(entry.get("eligible_time")),
        **times(
            str(entry["job_state"]),
            _moment(entry.get("start_time")),
            _moment(entry.get("end_time")),
            nodes,
        ),
        priority=number(entry.get("priority")) or 0,
        reason=text["state_reason"],
        gpus=gpus,
        gpu_type=gpu_type,
        nodes=nodes,
        held_gpus=held,
        num_nodes=number(entry.get("node_count")) or 1,
        max_nodes=number(entry.get("max_nodes")) or 0,
        cpus=cpus,
        memory_mib=float(per_node) if per_node else float(per_cpu * cpus) if per_cpu else None,
        time_limit_s=60.0 * limit if limit and limit < NO_LIMIT else None,
        comment=text["comment"],
        admin_comment=admin,
        reservation=text["resv_name"],
        dependency=text["dependency"],
        account=text["account"],
        qos=text["qos"],
        features=text["features"],
        licences=text["licenses"],
        nice=number(entry.get("nice")) or 0,
        req_nodes=hosts(text["required_nodes"]),
        planned=hosts(text["scheduled_nodes"]),
        exc_nodes=hosts(text["excluded_nodes"]),
        deadline=_moment(entry.get("deadline")),
        odd=odd(
            bool(entry.get("contiguous")),
            number(entry.get("required_switches")) or 0,
            text["features"],
        ),
        exclusive=entry.get("shared") == "none",
        min_cpus=number(entry.get("minimum_cpus_per_node")) or 1,
        accrue=_moment(entry.get("accrue_time")),
        array_limit=number(entry.get("array_max_tasks")) or 0,
        **asks_for(
            text,
            number(entry.get("tasks")) or 1,
            text["tres_alloc_str"] or text["tres_req_str"],
            (float(per_cpu), "cpu") if per_cpu else (float(per_node or 0), "node"),
        ),
    )
    for job_id in _ids(entry):
        yield SlurmJob(**{**{n: getattr(made, n) for n in SlurmJob.__slots__}, "id": job_id})


_TEXTS = [
    "admin_comment",
    "user_name",
    "name",
    "partition",
    "state_reason",
    "comment",
    "resv_name",
    "dependency",
    "tres_per_node",
    "tres_per_job",
    "tres_per_task",
    "tres_alloc_str",
    "tres_req_str",
    "memory_per_tres",
    "cpus_per_tres",
    "account",
    "qos",
    "features",
    "licenses",
    "required_nodes",
    "excluded_nodes",
    "scheduled_nodes",
]


_FEATURE = r"[^][()*&|,]+"
_COUNTED = rf"{_FEATURE}\*\d+(?:[&,]{_FEATURE}\*\d+)*"
_CONSTRAINT = re.compile(
    rf"(?:{_FEATURE}(?:[&,|]{_FEATURE})*|\[{_FEATURE}(?:\|{_FEATURE})*\]|{_FEATURE}\*\d+|\[{_COUNTED}\])?"
)


def odd(contiguous: bool, switches: int, constraint: str) -> tuple[str, ...]:
    """Return the names of a job's sbatch options that the policy `slurm` does not model."""
    known = _CONSTRAINT.fullmatch(constraint)
    options = ("--contiguous", contiguous), ("--switches", switches), ("--constraint", not known)
    return tuple(name for name, is_set in options if is_set)


class Times(TypedDict):
    """When a job began and ended, as the fields of a SlurmJob."""

    start: float | None
    end: float | None


class Asks(TypedDict, total=False):
    """What a job asks for, as the fields of a SlurmJob."""

    tres: tuple[tuple[str, float], ...]
    gpu_types: tuple[tuple[str, int], ...]
    gpus_per_node: bool
    cpus_per_gpu: int
    least_mib: float
    per: str
    gres: tuple[tuple[str, int], ...]


def times(state: str, start: float | None, end: float | None, nodes: Sequence[str]) -> Times:
    """Return start and end of a job. Slurm shows a job that ended while it waited as started at its
    end; such a start is left out."""
    never = state in OVER and start == end and not nodes
    return {"start": None if never else start, "end": end}


_IN_ALL = ("mem", "gres/gpu", "node")


def asks_for(text: Mapping[str, str], tasks: int, counted: str, memory: tuple[float, str]) -> Asks:
    """Return what a job asks for as the fields of a SlurmJob: GPUs by type, memory, and CPUs with
    each GPU.

    Args:
        text: fields of the job as Slurm prints them.
        tasks: number of tasks.
        counted: the resources for which the job is counted (TRES), as text.
        memory: MiB, and to what they refer: node or cpu.
    """
    least, per = memory
    found: Asks = {"tres": tuple(counts(counted).items())}
    per_node = gpu_types(text["tres_per_node"])
    if (types := gpu_types(text["tres_per_job"])) is not None:
        found["gpu_types"] = tuple(types.items())
    elif per_node is not None:
        found |= {"gpu_types": tuple(per_node.items()), "gpus_per_node": True}
    elif (types := gpu_types(text["tres_per_task"])) is not None:
        found["gpu_types"] = tuple((kind, n * tasks) for kind, n in types.items())
    if (per_gpu := gpu_types(text["memory_per_tres"])) is not None:
        least, per = float(sum(per_gpu.values())), "gpu"
        # of several partitions, one's default in the place of what was asked for and is counted;
        # where nothing stands beside it (0), whole nodes are counted until the job runs
        asked, counted_gpus, nodes = (dict(found["tres"]).get(one, 0.0) for one in _IN_ALL)
        if not counted_gpus:  # a site need not count them
            many = sum(n for _, n in found.get("gpu_types", ()))
            counted_gpus = many * (nodes if found.get("gpus_per_node") else 1)
        if memory[0] and nodes and asked > least * counted_gpus:
            least, per = asked / nodes, "node"
    if (per_gpu := gpu_types(text["cpus_per_tres"])) is not None:
        found["cpus_per_gpu"] = sum(per_gpu.values())
    found["least_mib"], found["per"] = least, per
    found["gres"] = tuple(other_gres(text["tres_per_node"]).items())
    return found


def _ids(entry: Mapping[str, Any]) -> Iterator[str]:
    array, tasks = number(entry.get("array_job_id")), entry.get("array_task_string")
    task = number(entry.get("array_task_id"))
    if array and task is not None and task < 0xFFFFFFFE:
        yield f"{array}_{task}"
    elif array and tasks:
        for index in task_numbers(str(tasks)):
            yield f"{array}_{index}"
    else:
        yield str(int(entry["job_id"]))


def number(value: Any) -> int | None:
    return None if value is None or value == "" else int(value)


def _moment(value: Any) -> float | None:
    found = number(value)
    return None if not found or found == UNLIMITED else _dated(found)


def task_numbers(text: str) -> list[int]:
    """Return the numbers in a list of tasks such as ``1-3,7,8-12:2%4``. Raise ParseError where it
    cannot be read, or has too many."""
    found: list[int] = []
    for part in text.split("%")[0].strip("[]").split(","):
        match = re.fullmatch(r"(\d{1,18})(?:-(\d{1,18})(?::(\d{1,18}))?)?", part.strip())
        if match is None:
            raise ParseError(f"array tasks {text[:40]!r}")
        low, high, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if step < 1 or high - low > MOST_TASKS:
            raise ParseError(f"array tasks {text[:40]!r}")
        found += range(low, high + 1, step)
        if len(found) > MOST_TASKS + 1:
            raise ParseError(f"array tasks {text[:40]!r} are too many")
    return found


# --- GPUs -----------------------------------------------------------------------------------------


def asked(entry: Mapping[str, Any]) -> tuple[int, str]:
    """Return the number and type of GPUs that a job asks for, from its fields in JSON; (0, "") for
    none."""
    nodes, tasks = number(entry.get("node_count")) or 1, number(entry.get("tasks")) or 1
    for name, times in (
        ("tres_per_job", 1),
        ("tres_req_str", 1),
        ("tres_per_node", nodes),
        ("tres_per_task", tasks),
        ("tres_alloc_str", 1),
    ):
        found = gpus_in(str(entry.get(name) or ""))
        if found is not None:
            return found[0] * times, found[1]
    return 0, ""


def gpus_in(tres: str) -> tuple[int, str] | None:
    """Return the number and type of GPUs in a list like ``cpu=4,gres/gpu:a100=2`` or
    ``gres:gpu:2``; None where it names no GPU.

    If there are several types, the number is that of all, and the last type is returned.
    """
    found = gpu_types(tres)
    if found is None:
        return None
    return sum(found.values()), next((kind for kind in reversed(found) if kind), "")


def _held(entry: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[tuple[int, ...], ...]]:
    nodes = hosts(str(entry.get("nodes") or ""))
    details = entry.get("gres_detail") or ()
    held = tuple(indices(str(one)) for one in details)
    return nodes, held if len(held) == len(nodes) and any(held) else ()


def indices(detail: str) -> tuple[int, ...]:
    """Return the GPU indices in a text like ``gpu:a100:2(IDX:0-1)``."""
    found: set[int] = set()
    for match in re.findall(r"gpu(?:(?!gpu)[^(,])*+\(IDX:([\d,-]++)\)", detail):
        found.update(task_numbers(match))
    return tuple(sorted(found))


# --- nodes ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Node:
    """A node as `scontrol show nodes -o` shows it.

    Attributes:
        gpus: number of GPUs of all types (gres/gpu).
        gpu_type: type of its GPUs; where they differ, the last one.
        types: all types, each with its number of GPUs.
        open: whether jobs may start on it.
        memory_mib: memory that jobs may have, MiB.
        weight: nodes with the lowest weight are given to jobs first.
        reason: why it is in its state, in an administrator's words.
        fault: field and value that could not be read; the node is closed because of it.
        used: indices of the GPUs that jobs have; ignored where nodes are compared.
        gres: number of each of its other countable resources, by name (and type).
    """

    name: str
    gpus: int
    gpu_type: str
    partitions: tuple[str, ...]
    open: bool
    state: str
    types: tuple[tuple[str, int], ...] = ()
    cpus: int = 0
    memory_mib: float = 0.0
    features: tuple[str, ...] = ()
    weight: int = 1
    reason: str = ""
    fault: str = ""
    used: tuple[int, ...] = field(default=(), compare=False)
    gres: tuple[tuple[str, int], ...] = ()

    @property
    def sound(self) -> bool:
        """Whether the node is up and open, except perhaps for a reservation."""
        flags = _flags(self.state)
        return not flags & _CLOSING and not self.state.endswith("*")


def _flags(state: str) -> set[str]:
    return {word.rstrip("*~#!%$@^-") for word in state.upper().split("+")}


def nodes(text: str) -> list[Node]:
    """Return the nodes in the output of `scontrol show nodes -o`. A node that cannot be read is
    closed, and its `fault` says why. Empty output has no nodes.

    Raise ParseError where other output names no node.
    """
    lines = [fields(line) for line in text.splitlines() if line.strip()]
    named = [row for row in lines if row.get("NodeName")]
    if lines and not named:
        raise ParseError(f"scontrol show nodes printed fields {sorted(lines[0])[:5]}")
    return [_node(row) for row in named]


def _node(row: Mapping[str, str]) -> Node:
    partitions = tuple(name for name in row.get("Partitions", "").split(",") if name)
    try:
        return _whole_node(row, partitions)
    except (ValueError, OverflowError, KeyError) as error:
        fault = f"{error}"[:120]
        return Node(
            name=row["NodeName"],
            gpus=0,
            gpu_type="",
            partitions=partitions,
            open=False,
            state="UNKNOWN",
            fault=fault,
        )


def _whole_node(row: Mapping[str, str], partitions: tuple[str, ...]) -> Node:
    gres = re.sub(r"\([^)]*+\)?+", "", row.get("Gres", ""))
    types = gpu_types(gres) or {}
    gpus = gpus_in(gres) or (0, "")
    if gpus[0] > MOST_GPUS:
        raise ParseError(f"Gres {gres[:40]!r}")
    flags = _flags(row["State"])
    memory = _size(row, "RealMemory") - _size(row, "MemSpecLimit")
    return Node(
        name=row["NodeName"],
        gpus=gpus[0],
        gpu_type=gpus[1],
        partitions=partitions,
        open=not flags & (_CLOSING | _SET_APART) and not row["State"].endswith("*"),
        state=row["State"],
        types=tuple(types.items()),
        cpus=_size(row, "CPUEfctv") or _size(row, "CPUTot"),
        memory_mib=float(memory),
        features=tuple(
            name for name in row.get("ActiveFeatures", "").split(",") if name != "(null)"
        ),
        weight=_size(row, "Weight", 1),
        reason=_BY_WHOM.sub("", row.get("Reason", "")),
        used=indices(row.get("GresUsed", "")),
        gres=tuple(other_gres(row.get("Gres", "")).items()),
    )


_BY_WHOM = re.compile(r" \[[^\[\] ]{1,64}@[^\[\] ]{1,64}\]$")  # who set a node's reason, and when


def _size(row: Mapping[str, str], name: str, default: int = 0) -> int:
    """Return a whole number from a node's row; `default` where the field is missing. Raise
    ParseError where it is no whole number."""
    found = row.get(name) or str(default)
    if not re.fullmatch("[0-9]{1,15}", found):
        raise ParseError(f"{name} {found[:40]!r}")
    return int(found)


def fields(line: str) -> dict[str, str]:
    """Return the fields of a line of ``Key=value Key=value``. If a key is repeated, the first value
    counts; so this must not be used for jobs, whose users can forge fields."""
    parts = re.split(r"(?:^|\s)([A-Z][\w:/]*)=", line)
    found: dict[str, str] = {}
    for key, value in zip(parts[1::2], parts[2::2], strict=True):
        found.setdefault(key, value.strip())
    return found


def hosts(text: str, most: int = MOST_HOSTS) -> tuple[str, ...]:
    """Return the host names in a host list such as ``n[1-3,07],m2``, in its order. Raise ParseError
    where it cannot be read, or has more than `most` names, none of which is made then: a user can
    write a million names with ten characters."""
    if text in ("", "(null)", "None assigned"):
        return ()
    found: list[str] = []
    for part in re.findall(r"(?:[^,\[]++|\[[^\]]*+\]?+)++", text):
        found += _expanded(part, most - len(found))
    return tuple(found)


def _expanded(part: str, most: int) -> Sequence[str]:
    head, bracket, tail = part.partition("[")
    if not bracket:
        if most < 1:
            raise ParseError(f"host list {part[:40]!r} is too long")
        return [head]
    if part.count("[") > MOST_RANGES:
        raise ParseError(f"host list {part[:40]!r} has too many ranges in one name")
    inside, closing, rest = tail.partition("]")
    if not closing:
        raise ParseError(f"host list {part[:40]!r}")
    ranges, count = list[tuple[range, int]](), 0
    for piece in inside.split(","):
        match = re.fullmatch(r"(\d{1,18})(?:-(\d{1,18}))?", piece)
        if match is None:
            raise ParseError(f"host list {part[:40]!r}")
        low, high = int(match[1]), int(match[2] or match[1])
        ranges.append((range(low, high + 1), len(match[1])))
        count += max(0, high + 1 - low)  # `len` of a range has a limit
        if count > most:
            raise ParseError(f"host list {part[:40]!r} is too long")
    ends = _expanded(rest, most)
    if count * len(ends) > most:
        raise ParseError(f"host list {part[:40]!r} is too long")
    numbers = [f"{n:0{width}d}" for numbers, width in ranges for n in numbers]
    return [head + number + end for number in numbers for end in ends]
