"""Makes up sites that run Slurm, and writes what their sacct and scontrol would print.

A small batch system, which shares no code with the policy `slurm`, runs the jobs: it orders them by
priority, stops a partition at the first job that does not fit, backfills every 30 s by time limits,
and limits each user to a number of GPUs. What happened is then written as Slurm writes it.

    python -m benchmarks.sites --site mixed --out FOLDER
"""

from __future__ import annotations

import argparse
import heapq
import random
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

START = int(datetime(2026, 3, 2, tzinfo=UTC).timestamp())
BACKFILL_S, DEPTH, WINDOW_S = 30, 50, 86_400
RUSH = 0.4
HEADER = (
    "JobID|JobName|User|Account|Partition|QOS|Submit|Eligible|Start|End|Timelimit|State|Reason|"
    "Priority|Flags|NNodes|NodeList|ReqTRES|AllocTRES"
)


@dataclass
class Host:
    """A node of a made-up site."""

    name: str
    gpus: int
    kind: str
    partitions: tuple[str, ...]
    free: int = 0


@dataclass
class Task:
    """A job of a made-up site: its request, and when and where it ran."""

    number: int
    submit: int
    user: str
    partition: str
    gpus: int
    limit: int
    runs: int
    qos: str = "normal"
    typed: bool = False
    start: int = -1
    on: list[tuple[Host, int]] = field(default_factory=list)
    reason: str = "None"
    by: str = "SchedMain"

    @property
    def until(self) -> int:
        """Return the time (in seconds) at which the running job ends at the latest, by its time
        limit.
        """
        return self.start + self.limit


@dataclass(frozen=True)
class MadeUp:
    """The description of a made-up site.

    Attributes:
        nodes: groups of nodes: how many nodes, with how many GPUs of which type, in which
            partitions.
        jobs: number of jobs that are submitted.
        load: the share of all GPUs that the jobs would keep busy.
        sizes: maps a partition to the numbers of GPUs that its jobs ask for.
        per_user: GPUs that a user may have at once; 0: any number.
        qos: maps the name of a QOS to its priority.
    """

    nodes: tuple[tuple[int, int, str, tuple[str, ...]], ...]
    jobs: int
    load: float
    sizes: dict[str, tuple[int, ...]]
    per_user: int = 0
    qos: dict[str, int] = field(default_factory=lambda: {"normal": 0})


SITES = {
    # 15 x 8 + 20 x 4 GPUs in two partitions
    "mixed": MadeUp(
        ((15, 8, "a100", ("big",)), (20, 4, "v100", ("small",))),
        300,
        0.7,
        {"big": (1, 1, 2, 4, 8, 8), "small": (1, 1, 2, 2, 4)},
    ),
    # the same GPUs in one partition, 15 x 8 + 40 x 2
    "one": MadeUp(
        ((40, 2, "t4", ("gpu",)), (15, 8, "a100", ("gpu",))),
        400,
        0.7,
        {"gpu": (1, 2, 2, 2, 4, 8)},
    ),
    # 4 x 8 + 8 x 4 GPUs, of which a user may have 12
    "limited": MadeUp(
        ((4, 8, "a100", ("gpu",)), (8, 4, "a100", ("gpu",))),
        300,
        0.7,
        {"gpu": (1, 1, 2, 2, 4)},
        per_user=12,
    ),
    # a few nodes, to try things on
    "small": MadeUp(
        ((2, 8, "a100", ("big",)), (4, 2, "v100", ("small",))),
        90,
        0.7,
        {"big": (1, 2, 4, 8), "small": (1, 1, 2)},
    ),
    # two QOS, one of which goes first; partitions that overlap
    "qos": MadeUp(
        ((6, 8, "a100", ("long", "short")), (10, 4, "2080ti", ("short",))),
        300,
        0.7,
        {"long": (1, 2, 4, 8), "short": (1, 1, 2, 4)},
        qos={"normal": 0, "urgent": 1_000},
    ),
}


def hosts(site: MadeUp) -> list[Host]:
    """Return the site's nodes, named n001, n002 and so on, with all GPUs free."""
    found: list[Host] = []
    for count, gpus, kind, partitions in site.nodes:
        found += [
            Host(f"n{len(found) + i + 1:03d}", gpus, kind, partitions, gpus) for i in range(count)
        ]
    return found


def tasks(site: MadeUp, seed: int) -> list[Task]:
    """Return the jobs that are submitted to the site, drawn by the seed, in the order of
    submission.
    """
    rng = random.Random(seed)
    there = {p: [h for h in hosts(site) if p in h.partitions] for p in site.sizes}
    capacity = {p: sum(h.gpus for h in has) for p, has in there.items()}
    drawn = []
    for _ in range(site.jobs):
        partition = rng.choices(list(capacity), list(capacity.values()))[0]
        runs = int(min(4 * 86_400, max(60.0, rng.lognormvariate(8.2, 1.3))))
        limit = max(300, -(-int(runs * rng.choice([1.1, 1.5, 3, 6])) // 300) * 300)
        drawn.append((partition, rng.choice(site.sizes[partition]), runs, limit))
    work = sum(gpus * runs for _, gpus, runs, _ in drawn)
    span = work / sum(h.gpus for h in hosts(site)) / site.load
    first = round(RUSH * len(drawn))  # on a Monday morning all at once, so that every GPU is used
    moments = sorted(rng.uniform(0, span if i >= first else 300) for i in range(len(drawn)))
    return [
        Task(
            1_000 + i,
            START + int(at),
            f"user{min(rng.randrange(12), rng.randrange(12)):02d}",
            partition,
            gpus,
            limit,
            runs,
            rng.choices(list(site.qos), [7] + [3] * (len(site.qos) - 1))[0],
            rng.random() < 0.3,
        )
        for i, (at, (partition, gpus, runs, limit)) in enumerate(zip(moments, drawn, strict=True))
    ]


Promise = tuple[int, int, set[str]]  # nodes that a job will have, from when to when


class BatchSystem:
    """The simulated batch system of a made-up site.

    Args:
        interval_s: seconds between two rounds of backfill; None: there is no backfill.
        depth: number of waiting jobs that a round of backfill considers.
    """

    def __init__(
        self, site: MadeUp, *, interval_s: int | None = BACKFILL_S, depth: int = DEPTH
    ) -> None:
        self.site, self.hosts = site, hosts(site)
        self.interval_s, self.depth = interval_s, depth
        self.running: list[Task] = []
        self.has: dict[str, int] = {}

    def play(self, todo: list[Task]) -> None:
        """Run all jobs. Write into each when it started, on which nodes, and why it did not start
        earlier.
        """
        events = [(task.submit, 1, task.number) for task in todo]
        heapq.heapify(events)
        known = {task.number: task for task in todo}
        queue: list[Task] = []
        rest = self.interval_s
        last, due = -(rest or 0), False  # due: something came or went that no backfill has seen
        while events:
            now = events[0][0]
            while events and events[0][0] == now:
                _, what, number = heapq.heappop(events)
                due |= what < 2
                if what == 1:
                    queue.append(known[number])
                elif what == 0:
                    self._leave(known[number])
            started = self._main(queue, now)
            left = [task for task in queue if task not in started]
            if rest is not None and due and left:
                if now >= last + rest:
                    started += self._backfill(left, now)
                    last, due = now, False
                else:
                    heapq.heappush(events, (last + rest, 2, 0))
            for task in started:
                queue.remove(task)
                heapq.heappush(events, (now + min(task.runs, task.limit), 0, task.number))

    def _leave(self, task: Task) -> None:
        self.running.remove(task)
        self.has[task.user] -= task.gpus
        for host, gpus in task.on:
            host.free += gpus

    def _main(self, queue: list[Task], now: int) -> list[Task]:
        stuck: set[str] = set()
        started = []
        for task in sorted(queue, key=self._turn):
            if self._limited(task) or task.partition in stuck:
                continue
            where = self._fit(task, {host.name: host.free for host in self._open(task, stuck)})
            if where:
                self._begin(task, where, now, "SchedMain" if now > task.submit else "SchedSubmit")
                started.append(task)
            else:
                stuck.add(task.partition)
        return started

    def _backfill(self, queue: list[Task], now: int) -> list[Task]:
        promised: list[Promise] = []
        started = []
        for task in sorted(queue, key=self._turn)[: self.depth]:
            at, where = (0, {}) if self._limited(task) else self._soonest(task, promised, now)
            if where and at == now:
                self._begin(task, where, now, "SchedBackfill")
                started.append(task)
            elif where:
                promised.append((at, at + task.limit, set(where)))
        return started

    def _soonest(self, task: Task, promised: list[Promise], now: int) -> tuple[int, dict[str, int]]:
        """Return the earliest time at which a job could start if running jobs end at their time
        limits and the promised starts are kept, and the GPUs that it would have then, by node.
        """
        moments = {now, *(t.until for t in self.running), *(end for _, end, _ in promised)}
        room = {host.name: host.free for host in self._open(task, set())}
        leaving = sorted(self.running, key=lambda run: run.until)
        for at in sorted(t for t in moments if now <= t <= now + WINDOW_S):
            while leaving and leaving[0].until <= at:
                for host, gpus in leaving.pop(0).on:
                    if host.name in room:
                        room[host.name] += gpus
            if sum(room.values()) < task.gpus:
                continue
            taken: set[str] = set()
            for begin, end, names in promised:
                if begin < at + task.limit and at < end:
                    taken |= names
            where = self._fit(task, {n: free for n, free in room.items() if n not in taken})
            if where:
                return at, where
        return 0, {}

    def _turn(self, task: Task) -> tuple[int, int]:
        return -self.site.qos[task.qos], task.number

    def _limited(self, task: Task) -> bool:
        most = self.site.per_user
        if most and self.has.get(task.user, 0) + task.gpus > most:
            task.reason = "QOSMaxGRESPerUser"
            return True
        return False

    def _open(self, task: Task, stuck: set[str]) -> list[Host]:
        kind = self._kind(task)
        return [
            host
            for host in self.hosts
            if task.partition in host.partitions
            and not stuck & set(host.partitions)
            and (not kind or host.kind == kind)
        ]

    def _kind(self, task: Task) -> str:
        """Return the GPU type that a task asks for: that of the largest nodes of its partition;
        "" if it asks for any.
        """
        there = (host for host in self.hosts if task.partition in host.partitions)
        return max(there, key=lambda host: host.gpus).kind if task.typed else ""

    def _fit(self, task: Task, room: dict[str, int]) -> dict[str, int]:
        """Return the GPUs that a job would get, by node: on the first node with room; for more than
        8 GPUs, on whole nodes of 8. Return {} if the job does not fit.
        """
        whole, rest = divmod(task.gpus, 8)
        if whole > 1 or (whole and rest):
            idle = [name for name, free in room.items() if free == 8]
            return dict.fromkeys(idle[:whole], 8) if len(idle) >= whole and not rest else {}
        return next(({name: task.gpus} for name, free in room.items() if free >= task.gpus), {})

    def _begin(self, task: Task, where: dict[str, int], now: int, by: str) -> None:
        named = {host.name: host for host in self.hosts}
        task.start, task.by = now, by
        task.on = [(named[name], gpus) for name, gpus in where.items()]
        for host, gpus in task.on:
            host.free -= gpus
        self.has[task.user] = self.has.get(task.user, 0) + task.gpus
        self.running.append(task)


def written(site: MadeUp, todo: list[Task]) -> str:
    """Return the jobs of a site as `sacct -X -P` would print them."""
    lines = [HEADER]
    for task in todo:
        nodes = len(task.on)
        kind = task.on[0][0].kind
        plain = f"billing={4 * task.gpus},cpu={4 * task.gpus},gres/gpu={task.gpus}"
        typed = f"gres/gpu:{kind}={task.gpus}"
        asked = f"{plain}{',' + typed if task.typed else ''},mem={8 * task.gpus}G,node={nodes}"
        given = f"{plain},{typed},mem={8 * task.gpus}G,node={nodes}"
        over = task.runs > task.limit
        fields = (
            str(task.number), "train", task.user, "lab", task.partition, task.qos,
            _clock(task.submit), _clock(task.submit), _clock(task.start),
            _clock(task.start + min(task.runs, task.limit)), _span(task.limit),
            "TIMEOUT" if over else "COMPLETED", task.reason,
            str(site.qos[task.qos] + 1), task.by, str(nodes),
            ",".join(host.name for host, _ in task.on), asked, given,
        )  # fmt: skip
        lines.append("|".join(fields))
    return "\n".join(lines) + "\n"


def settings(site: MadeUp) -> str:
    """Return the site's configuration as scontrol and sacctmgr would print it."""
    said = ["Configuration data as of 2026-04-01T12:00:00"]
    for name, value in {
        "AccountingStorageEnforce": "associations,limits,qos",
        "AccountingStorageType": "accounting_storage/slurmdbd",
        "PriorityType": "priority/multifactor",
        "PriorityWeightQOS": "1000",
        "PriorityWeightAge": "0",
        "SchedulerParameters": f"bf_interval={BACKFILL_S},bf_max_job_test={DEPTH}",
        "SchedulerType": "sched/backfill",
        "SLURM_VERSION": "22.05.8",
    }.items():
        said.append(f"{name:<23} = {value}")
    said.append("")
    for host in hosts(site):
        said += [
            f"NodeName={host.name} Arch=x86_64 CoresPerSocket=32 ",
            "   CPUAlloc=0 CPUEfctv=64 CPUTot=64 CPULoad=0.00",
            f"   Gres=gpu:{host.kind}:{host.gpus}(S:0-1)",
            "   RealMemory=512000 AllocMem=0 FreeMem=500000 Sockets=2 Boards=1",
            "   State=IDLE ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A",
            f"   Partitions={','.join(host.partitions)} ",
            "",
        ]
    for name in site.sizes:
        names = ",".join(host.name for host in hosts(site) if name in host.partitions)
        said += [
            f"PartitionName={name}",
            "   AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL",
            "   DefaultTime=NONE MaxNodes=UNLIMITED MaxTime=UNLIMITED",
            f"   Nodes={names}",
            "   PriorityJobFactor=1 PriorityTier=1 State=UP",
            "",
        ]
    said += ["Account|User|Par Name|Share|Priority|GrpTRES|GrpJobs|MaxTRES|MaxJobs|MaxWall"]
    said += ["root||||||||1|", "lab||root|1||||||"]
    said += [f"lab|user{i:02d}||1||||||" for i in range(12)]
    said += ["", "Name|Priority|GrpTRES|MaxTRESPU|MaxJobsPU"]
    most = f"gres/gpu={site.per_user}" if site.per_user else ""
    said += [f"{name}|{priority}||{most}|" for name, priority in site.qos.items()]
    return "\n".join(said) + "\n"


def write(name: str, folder: Path, seed: int = 0) -> tuple[Path, Path]:
    """Run a site's jobs, and write ``dump.txt`` (sacct) and ``site.txt`` (the settings) into
    `folder`. Return both paths.
    """
    site = SITES[name]
    todo = tasks(site, seed)
    BatchSystem(site).play(todo)
    folder.mkdir(parents=True, exist_ok=True)
    dump, printed = folder / "dump.txt", folder / "site.txt"
    dump.write_text(written(site, todo))
    printed.write_text(settings(site))
    return dump, printed


def _clock(at: int) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _span(seconds: int) -> str:
    days, rest = divmod(seconds, 86_400)
    clock = f"{rest // 3600:02d}:{rest % 3600 // 60:02d}:{rest % 60:02d}"
    return f"{days}-{clock}" if days else clock


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--site", choices=sorted(SITES), required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    wanted = parser.parse_args()
    for path in write(wanted.site, wanted.out, wanted.seed):
        print(path)


if __name__ == "__main__":
    main()
