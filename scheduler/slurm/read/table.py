"""Reads Slurm's queue with `squeue -O`, which takes Slurm a third of the time of `squeue --json`,
and Pellucid a twentieth.

Text that users write is last in a record, between marks that are random for every read, so that no
name can forge a field or a line. A record that has not changed since the last poll is not parsed
again. No column shows on which GPUs a job runs; that is read once for each run, from `scontrol show
job -d`. No column shows AdminComment either; callers that need it read JSON.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TypeVar

from scheduler.slurm.read import parse
from scheduler.slurm.read.client import Slurm, SlurmError, Warn, unheard
from scheduler.slurm.read.job_states import RUNNING
from scheduler.slurm.read.parse import Node, ParseError, SlurmJob
from scheduler.slurm.read.tres import counts, mib
from scheduler.slurm.read.versions import OLDEST, Release, more_columns, row_as_first

# what Slurm itself writes, then what users do
COLUMNS = (
    "JobArrayID",
    "State",
    "PriorityLong",
    "SubmitTime",
    "EligibleTime",
    "StartTime",
    "EndTime",
    "Reason",
    "UserName",
    "Partition",
    "NumNodes",
    "NumCPUs",
    "NumTasks",
    "TimeLimit",
    "MinMemory",
    "tres-per-job",
    "tres-per-node",
    "tres-per-task",
    "tres-alloc",  # while it waits: what it asks for
    "NodeList",
    "Account",
    "QOS",
    "Nice",
    "ReqNodes",
    "SchedNodes",
    "MinCPUs",
    "mem-per-tres",
    "OverSubscribe",
    "AccrueTime",
    "Reservation",
    "Dependency",
    "cpus-per-tres",
    "Deadline",
    "Contiguous",
    "ReqSwitch",
)
WRITTEN = ("Name", "Feature", "Licenses")  # by users, or with bars in them; and then the comment
FEW = 8  # new jobs up to which they are asked for one by one where they must not run
SINGLY = 64  # runs that began since the last look, up to which they are asked for one by one
_LIMIT = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)")
_GPUS = re.compile(r"^ +Nodes=(\S+) CPU_IDs=\S* Mem=\S+ GRES=(.*)$", re.MULTILINE)

T = TypeVar("T")
Held = tuple[tuple[int, ...], ...]


class Table:
    """The queue, read poll after poll. With `numbered`, it also reads on which GPUs each job runs.
    `warn` is a function that is called once when a table cannot be read."""

    def __init__(self, slurm: Slurm, *, numbered: bool = True, warn: Warn = unheard) -> None:
        self._slurm, self._numbered, self._warn = slurm, numbered, warn
        self._kept: dict[str, list[SlurmJob]] = {}  # by record
        self._mark = secrets.token_hex(8)  # in records that are kept; shown to nobody
        self._limits: dict[str, int] = {}  # of arrays; no longer shown when one task is left
        self._release: Release | None = None
        self._excluded: dict[str, tuple[str, ...]] = {}  # nodes, by job or array
        self._warned = False
        self.unread: list[str] = []  # records of which not even the job is known

    def jobs(self) -> list[SlurmJob]:
        """Return all jobs that the controller knows, as `Slurm.jobs` does, but without
        `admin_comment`. Where the table cannot be read, return those of `Slurm.jobs`. Raise
        SlurmDown, SlurmError or ParseError where these cannot be read, either.

        `fault` names the fields of a job that cannot be read. `max_nodes` is an estimate
        (`_most_nodes`). A job that has not changed is the same object as at the last poll.
        """
        try:
            return self._read()
        except (ParseError, SlurmError) as error:  # a version that prints otherwise, perhaps
            if not self._warned:
                self._warn("slurm_table_unread", why=str(error), instead="squeue --json")
            self._warned, self._release = True, None
            return self._slurm.jobs()

    def _read(self) -> list[SlurmJob]:
        self._release = self._release or self._slurm.release()
        mark = secrets.token_hex(8)
        marked = [f"{name}:|{mark}|" for name in WRITTEN]
        plain = (*COLUMNS, *more_columns(self._release))
        columns = ",".join([f"{name}:|" for name in plain] + marked + [f"Comment:|{mark}."])
        text = self._slurm.table(columns).replace(mark, self._mark)
        records = text.split(f"|{self._mark}.\n")
        if records.pop():
            raise ParseError("squeue -O ended within a record")
        before, kept = self._kept, dict[str, list[SlurmJob]]()
        was = {job.id: job for jobs in before.values() for job in jobs if job.held_gpus}
        fresh: list[str] = []
        self.unread = []
        for record in records:
            known = before.get(record)
            if known is None:
                try:
                    first, *written = record.split(f"|{self._mark}|")
                    if len(written) != len(WRITTEN):
                        raise ParseError(f"squeue -O printed {record[:80]!r}")
                    known = self._limited(read(first, *written, release=self._release))
                except ParseError as error:
                    self.unread.append(str(error))
                    continue
                except (ValueError, OverflowError) as error:  # such as a number of 5,000 digits
                    self.unread.append(f"squeue -O printed {record[:40]!r}: {error}")
                    continue
                fresh.append(record)
            kept[record] = known
        if records and (
            len(self.unread) == len(records) or all(jobs[0].fault for jobs in kept.values())
        ):
            raise ParseError(self.unread[0] if self.unread else next(iter(kept.values()))[0].fault)
        self._fill([kept[record] for record in fresh], was)
        if "ExcNodes" not in plain:
            self._exclude([kept[record] for record in fresh], kept.values())
        self._kept = kept  # last: a record whose GPUs were not shown is new at the next look
        return [job for jobs in kept.values() for job in jobs]

    def _limited(self, jobs: list[SlurmJob]) -> list[SlurmJob]:
        array, task, _ = jobs[0].id.partition("_")
        limit = jobs[0].array_limit
        if limit:
            self._limits[array] = limit
        elif task and array in self._limits:
            return [replace(job, array_limit=self._limits[array]) for job in jobs]
        return jobs

    def _fill(self, fresh: Sequence[list[SlurmJob]], was: Mapping[str, SlurmJob]) -> None:
        """Add the indices of its GPUs to each running job whose record was read again: the ones
        known from the last poll or, for a new run, those that Slurm shows."""
        asked: list[list[SlurmJob]] = []
        for jobs in fresh:
            job = jobs[0]  # a record of several tasks is of such that wait
            if not (job.gpus and job.nodes and job.state in (*RUNNING, "CONFIGURING")):
                continue
            earlier = was.get(job.id)
            if earlier is not None and (earlier.start, earlier.nodes) == (job.start, job.nodes):
                jobs[0] = replace(job, held_gpus=earlier.held_gpus)
            else:
                asked.append(jobs)
        if not (asked and self._numbered):
            return
        found = self._gpus_of([jobs[0] for jobs in asked])
        for jobs in asked:
            jobs[0] = replace(jobs[0], held_gpus=found.get(jobs[0].id, ()))

    def _exclude(self, fresh: Iterable[list[SlurmJob]], every: Iterable[list[SlurmJob]]) -> None:
        """Add to jobs the nodes on which they must not run. Slurm is asked once about each waiting
        job or array; where more than `FEW` are new, about all in one command."""
        waiting = {_array(jobs[0].id) for jobs in every if jobs[0].state == "PENDING"}
        self._excluded = {j: nodes for j, nodes in self._excluded.items() if j in waiting}
        new = waiting - self._excluded.keys()
        texts = [self._slurm.excluded()] if len(new) > FEW else [*map(self._without, new)]
        lines = (line.partition("|") for text in texts for line in text.splitlines())
        found = {_array(job_id): parse.hosts(nodes) for job_id, _, nodes in lines}
        self._excluded |= {job_id: found.get(job_id, ()) for job_id in new}
        for jobs in fresh:
            nodes = self._excluded.get(_array(jobs[0].id))
            if nodes:
                jobs[:] = [replace(job, exc_nodes=nodes) for job in jobs]

    def _without(self, job_id: str) -> str:
        try:
            return self._slurm.excluded(job_id)
        except SlurmError:  # it is over already
            return ""

    def _gpus_of(self, jobs: Sequence[SlurmJob]) -> dict[str, Held]:
        if len(jobs) <= SINGLY:
            found = {job.id: self._gpus(job) for job in jobs}
            sure = {job_id: held for job_id, held in found.items() if held is not None}
            if len(sure) == len(found):
                return sure
        return {job.id: job.held_gpus for job in self._slurm.jobs()}

    def _gpus(self, job: SlurmJob) -> Held | None:
        """Return the indices of a job's GPUs on each of its nodes. Return None where the output is
        not certain, and () where the job is over, or Slurm counts GPUs without numbering them."""
        try:
            return held(self._slurm.detail(job.id), job.nodes)
        except SlurmError:  # it is over already
            return ()


def _array(job_id: str) -> str:
    """Return the id of a task's array; for any other job its own id, also for a part of a
    heterogeneous job (``12+1``)."""
    return job_id.partition("_")[0]


def on_gpus(jobs: Sequence[SlurmJob], nodes: Iterable[Node]) -> list[SlurmJob]:
    """Return the jobs, each with the indices of its GPUs on its nodes, worked out from the GPUs in
    use there. Which of several jobs uses which GPU is a guess; which GPUs are in use is known.

    Jobs that asked for GPU types are assigned first. For a job on several nodes, the number of GPUs
    on each is known only if it shares at most one of these nodes with other such jobs.
    """
    in_use = _InUse(nodes)
    there = [
        job
        for job in sorted(jobs, key=lambda job: not job.gpu_type)
        if job.gpus and job.nodes and job.state in RUNNING and not job.held_gpus
    ]
    spread = [job for job in there if _is_spread(job)]
    found = {job.id: in_use.take(job) for job in there if not _is_spread(job)}
    for job, shared in _in_turn(spread):
        found[job.id] = in_use.take(job, shared)
    return [replace(job, held_gpus=found[job.id]) if job.id in found else job for job in jobs]


def _is_spread(job: SlurmJob) -> bool:
    """Return whether a job has several nodes, and nothing says how many GPUs it has on each."""
    return len(job.nodes) > 1 and not job.gpus_per_node


def _in_turn(spread: Sequence[SlurmJob]) -> Iterator[tuple[SlurmJob, set[str]]]:
    """Yield each job that shares at most one of its nodes with other jobs, with that node. These
    jobs are then left out, and those of which it holds now are yielded, and so on.

    It takes a step for each node of each job. One user can run thousands of jobs on nodes in a
    ring, each of which shares two.
    """
    left = dict[str, set[int]]()  # positions of jobs, by node
    for i, job in enumerate(spread):
        for node in job.nodes:
            left.setdefault(node, set()).add(i)
    shares = [sum(len(left[node]) > 1 for node in {*job.nodes}) for job in spread]
    turn = [i for i, many in enumerate(shares) if many < 2]
    while turn:
        for i in turn:
            yield spread[i], {node for node in spread[i].nodes if len(left[node]) > 1}
        after = set[int]()
        for i in turn:
            for node in {*spread[i].nodes}:
                left[node].discard(i)
                for other in left[node] if len(left[node]) == 1 else ():
                    shares[other] -= 1
                    if shares[other] == 1:
                        after.add(other)
        turn = sorted(after)


class _InUse:
    """The GPUs in use on each node that are not assigned to a job yet, and their types."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._left, self._kinds = dict[str, list[int]](), dict[str, list[str]]()
        for node in nodes:
            self._left[node.name] = list(node.used)
            self._kinds[node.name] = [kind for kind, n in node.types for _ in range(n)]

    def take(self, job: SlurmJob, last: Collection[str] | None = None) -> Held:
        """Assign GPUs in use to a job. Return their indices on each of its nodes. Return (), and
        assign none, where there are fewer than the job has.

        Args:
            last: nodes that other jobs use, too. On the job's other nodes, it gets all GPUs in use;
                on these, what it still lacks. None: on each node, it gets as many as it asks for.
        """
        taken: dict[str, tuple[int, ...]] = {}
        short = job.gpus
        for node in sorted(job.nodes, key=lambda node: node in (last or ())):
            mine: list[int] = []
            for kind, count in job.gpu_types or ((job.gpu_type, job.gpus),):
                own = [i for i in self._left.get(node, ()) if i not in mine]
                own = [i for i in own if kind in ("", self._kinds[node][i])]
                most = count if last is None else short - len(mine) if node in last else None
                mine += own[:most]
            taken[node], short = tuple(sorted(mine)), short - len(mine)
        if short:
            return ()
        for node, indices in taken.items():
            self._left[node] = [i for i in self._left[node] if i not in indices]
        return tuple(taken[node] for node in job.nodes)


def held(text: str, nodes: Sequence[str]) -> Held | None:
    """Return the GPU indices on each node, from the output of `scontrol show job -d`. Return None
    when the output names a node twice or not at all, which happens where a job's name forges a
    line. Return () where it shows no index."""
    pairs: list[tuple[str, str]] = []
    for match in _GPUS.finditer(text):
        try:
            names = parse.hosts(match[1], len(nodes) - len(pairs))
        except ParseError:  # more than its nodes, or no list at all
            return None
        pairs += [(name, match[2]) for name in names]
    if sorted(name for name, _ in pairs) != sorted(nodes):
        return None
    by_node = {name: parse.indices(gres) for name, gres in pairs}
    found = tuple(by_node[name] for name in nodes)
    return found if any(found) else ()


def read(
    plain: str, features: str, licences: str, comment: str, *, release: Release = OLDEST
) -> list[SlurmJob]:
    """Return the job, or the tasks, of one record. Raise ParseError where not even the job's id can
    be read."""
    columns = (*COLUMNS, *more_columns(release))
    parts = plain.split("|", len(columns))
    if len(parts) != len(columns) + 1 or not all(parts[:2]):
        raise ParseError(f"squeue -O printed {plain[:80]!r}")
    row = row_as_first(dict(zip(columns, parts, strict=False)), release)
    faults: list[str] = []
    job_id, bracket, tasks = row["JobArrayID"].partition("_[")
    made = _job(
        job_id=job_id,
        row=_Row(row, faults),
        name=parts[-1],
        features=features,
        licences=licences,
        comment=comment,
    )
    if faults:
        made = replace(made, fault="; ".join(faults))
    if not bracket:
        return [made]
    return [replace(made, id=f"{job_id}_{number}") for number in parse.task_numbers(tasks)]


class _Row:
    """A row of the table. For a cell that cannot be read, a fault is recorded and its default is
    used."""

    def __init__(self, row: Mapping[str, str], faults: list[str]) -> None:
        self.row, self._faults = row, faults

    def get(self, name: str, read: Callable[[str], T], default: T) -> T:
        try:
            return read(self.row[name])
        except (ValueError, OverflowError, KeyError):
            self._faults.append(f"{name} {self.row.get(name, '')[:40]!r}")
            return default

    def whole(self, name: str, least: int = 0, default: int = 1) -> int:
        """Return the whole number in a cell; for ``2-4``, the first one. Return `default` where it
        is below `least` or cannot be read."""

        def plain(text: str) -> int:
            found = int(text.partition("-")[0])  # nodes are ``2-4`` while a job waits
            if found < least:
                raise ValueError(text)
            return found

        return self.get(name, plain, default)

    def text(self, name: str) -> str:
        return _text(self.row[name])

    def hosts(self, name: str) -> tuple[str, ...]:
        return self.get(name, parse.hosts, ())

    def moment(self, name: str) -> float | None:
        return self.get(name, parse.moment, None)


def _job(job_id: str, row: _Row, name: str, features: str, licences: str, comment: str) -> SlurmJob:
    counted: Mapping[str, float] = row.get("tres-alloc", counts, {})
    cells = {**row.row, "tres-alloc": row.row["tres-alloc"] if counted else ""}
    cpus, tasks, nodes = (row.whole(name) for name in ("NumCPUs", "NumTasks", "NumNodes"))
    gpus, gpu_type = _gpus_asked(cells, nodes, tasks)
    each = row.get("MinMemory", mib, 0.0)
    memory = each, "node" if counted.get("mem", each * nodes) == each * nodes else "cpu"
    held_on = row.hosts("NodeList")
    start, end = row.moment("StartTime"), row.moment("EndTime")
    return SlurmJob(
        id=job_id,
        state=cells["State"],
        user=cells["UserName"],
        name=_text(name),
        partition=cells["Partition"],
        submit=row.moment("SubmitTime") or 0.0,
        eligible=row.moment("EligibleTime"),
        **parse.times(cells["State"], start, end, held_on),
        priority=row.whole("PriorityLong"),
        reason=cells["Reason"],
        gpus=gpus,
        gpu_type=gpu_type,
        nodes=held_on,
        num_nodes=nodes,
        max_nodes=_most_nodes(nodes, tasks, gpus, cells),
        cpus=cpus,
        memory_mib=memory[0] * (cpus if memory[1] == "cpu" else 1) or None,
        time_limit_s=_limit(cells["TimeLimit"]),
        comment=_text(comment),
        reservation=row.text("Reservation"),
        dependency=row.text("Dependency"),
        account=row.text("Account"),
        qos=row.text("QOS"),
        features=_text(features),
        licences=_text(licences),
        nice=row.get("Nice", int, 0),
        req_nodes=row.hosts("ReqNodes"),
        planned=row.hosts("SchedNodes"),
        min_cpus=row.whole("MinCPUs"),
        exclusive=cells["OverSubscribe"] == "NO",
        accrue=row.moment("AccrueTime"),
        array_limit=_array_limit(cells["JobArrayID"]),
        exc_nodes=row.hosts("ExcNodes") if "ExcNodes" in cells else (),
        deadline=row.moment("Deadline"),
        odd=parse.odd(
            cells["Contiguous"] == "1", row.whole("ReqSwitch", default=0), _text(features)
        ),
        **_asks(cells, tasks, memory),
    )


def _gpus_asked(cells: Mapping[str, str], nodes: int, tasks: int) -> tuple[int, str]:
    names = {
        "tres_per_job": "tres-per-job",
        "tres_req_str": "tres-alloc",
        "tres_per_node": "tres-per-node",
        "tres_per_task": "tres-per-task",
    }
    texts = {name: cells[column] for name, column in names.items()}
    return parse.asked(texts | {"node_count": nodes, "tasks": tasks})


def _asks(cells: Mapping[str, str], tasks: int, memory: tuple[float, str]) -> parse.Asks:
    return _asks_for(tuple([cells[name] for name in _REQUEST]), tasks, memory)


_REQUEST = {
    "tres-per-job": "tres_per_job",
    "tres-per-node": "tres_per_node",
    "tres-per-task": "tres_per_task",
    "cpus-per-tres": "cpus_per_tres",
    "mem-per-tres": "memory_per_tres",
    "tres-alloc": "counted",
}  # columns, and the names of their fields in JSON


@lru_cache(1024)  # most jobs ask for what others do
def _asks_for(texts: tuple[str, ...], tasks: int, memory: tuple[float, str]) -> parse.Asks:
    fields = dict(zip(_REQUEST.values(), texts, strict=True))
    return parse.asks_for(fields, tasks, fields["counted"], memory)


def _most_nodes(nodes: int, tasks: int, gpus: int, cells: Mapping[str, str]) -> int:
    """Return the largest number of nodes that a job may have; 0: any number.

    No column shows it. A job has no more nodes than tasks, except where it asks for several GPUs in
    all and states no number of tasks, which squeue shows as one.
    """
    in_all = gpus > 1 and cells["tres-per-job"] not in ("", "N/A", "(null)")
    return 0 if in_all and nodes == tasks == 1 else max(nodes, tasks)


def _array_limit(text: str) -> int:
    """Return how many tasks of an array may run at once, such as 2 for ``13_[2-5%2]``; 0: any
    number."""
    limit = text.rstrip("]").rpartition("%")[2] if "%" in text else ""
    return int(limit) if limit.isdecimal() else 0


def _text(text: str) -> str:
    return "" if text == "(null)" else text


def _limit(text: str) -> float | None:
    """Return a time limit such as ``2-03:04:05`` or ``04:05`` in seconds. Return None for
    UNLIMITED, and for the partition's own limit."""
    match = _LIMIT.fullmatch(text)
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds) or None
