"""Simulates two services, on hosts whose clocks differ, that order the queue of a simulated Slurm.

The follower, its leases, API and maintenance are the service's own. Slurm's commands are replaced
by a controller that starts the job of the highest priority. The controller may be out of reach, or
carry out a command while its answer is lost. The database is on a host of its own.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.chaos.kernel import EPOCH, Host, Kernel, Process
from benchmarks.chaos.people import Person
from benchmarks.chaos.run import HANGS_S, LEASE_S, QUIET_S, WATCHDOG_S, Simulation
from scheduler.assembly import CoreSpec
from scheduler.service.settings import Settings
from scheduler.slurm.read.client import SlurmDown
from scheduler.slurm.read.parse import Node, SlurmJob
from scheduler.slurm.read.shape import Shape

NODES = tuple(Node(name, 4, "", ("main",), True, "IDLE", memory_mib=1e6) for name in ("n1", "n2"))
KEPT_S = 300.0  # MinJobAge
_UPDATE = re.compile(r'update jobid=(\S+)(?: priority=(\d+))?(?: AdminComment=(?:"(.*)")?)?$')


@dataclass
class Batch:
    """A job of the simulated Slurm. `own` is the priority that Slurm itself, or an authorised user,
    gave to the job.
    """

    id: str
    gpus: int
    runs_s: float
    own: int
    submit: float
    priority: int
    state: str = "PENDING"
    node: int = -1
    held: tuple[int, ...] = ()  # GPUs, by index
    comment: str = ""
    start: float | None = None
    end: float | None = None

    def shown(self) -> SlurmJob:
        where = (NODES[self.node].name,) if self.state == "RUNNING" else ()
        times = (None if at is None else EPOCH + at for at in (self.submit, self.start, self.end))
        submit, start, end = times
        assert submit is not None
        return SlurmJob(
            self.id,
            self.state,
            f"u{int(self.id) % 3}",
            "a",
            "main",
            submit,
            eligible=submit,
            start=start,
            end=end,
            priority=self.priority,
            gpus=self.gpus,
            reason="Priority" if self.priority else "JobHeldUser",
            nodes=where,
            held_gpus=(self.held,) if where else (),
            admin_comment=self.comment,
            time_limit_s=600.0,
        )


class Controller:
    """The simulated Slurm: its jobs, and the changes that commands made to them."""

    def __init__(self, kernel: Kernel, note: Any, draw: random.Random):
        self.kernel, self.note, self.draw = kernel, note, draw
        self.jobs: dict[str, Batch] = {}
        self.down = False
        self.rate = 0.0  # share of commands whose answer is lost

    # --- its users ------------------------------------------------------------------------------

    def live(self, jobs: int) -> None:
        """Submit `jobs` jobs, and hold, release and cancel some. The last few can never start."""
        draw, sleep = self.draw, self.kernel.sleep
        for _ in range(jobs):
            sleep(draw.expovariate(1 / 3))
            self.submit(draw.choice([1, 2, 4]), draw.expovariate(1 / 12), draw.randint(10, 30) * 10)
            waiting = [job for job in self.jobs.values() if job.state == "PENDING"]
            if waiting and draw.random() < 0.4:
                self.act(draw.choice(waiting))
        for _ in NODES:
            self.submit(3, 1e6, 1000)
        sleep(30.0)
        for _ in range(4):
            self.submit(draw.choice([2, 3, 4]), 5.0, draw.randint(1, 9) * 10)

    def submit(self, gpus: int, runs_s: float, priority: int) -> None:
        name = str(len(self.jobs) + 1)
        self.jobs[name] = Batch(name, gpus, runs_s, priority, self.kernel.clock, priority)
        self.note("batch", job=name, priority=priority)

    def act(self, job: Batch) -> None:
        what = self.draw.choice(["hold", "cancel", "say"])
        if what == "hold":
            job.priority = 0
            self.note("batch_held", job=job.id)
        elif what == "cancel":
            job.state, job.end = "CANCELLED", self.kernel.clock
        elif not job.comment:
            job.comment = "the site's own"
            self.note("batch_said", job=job.id)

    def schedule(self) -> None:
        """Once a second, without end: end the jobs that are due, and start the waiting job of the
        highest priority.
        """
        while True:
            now, running = self.kernel.clock, self._running()
            for job in running:
                if job.start is not None and now - job.start >= job.runs_s:
                    job.state, job.end = "COMPLETED", now
            waiting = [j for j in self.jobs.values() if j.state == "PENDING" and j.priority]
            for job in sorted(waiting, key=lambda j: (-j.priority, int(j.id))):
                free = [self._free(n) for n in range(len(NODES))]
                there = [n for n, gpus in enumerate(free) if len(gpus) >= job.gpus]
                if not there:
                    break
                job.state, job.node, job.start = "RUNNING", there[0], now
                job.held = free[job.node][: job.gpus]
            self.kernel.sleep(1.0)

    def _free(self, node: int) -> tuple[int, ...]:
        held = {gpu for job in self._running() if job.node == node for gpu in job.held}
        return tuple(gpu for gpu in range(4) if gpu not in held)

    def _running(self) -> list[Batch]:
        return [job for job in self.jobs.values() if job.state == "RUNNING"]

    # --- its commands ---------------------------------------------------------------------------

    def shown(self) -> list[SlurmJob]:
        since = self.kernel.clock - KEPT_S
        return [j.shown() for j in self.jobs.values() if j.end is None or j.end > since]

    def carry_out(self, line: str) -> str:
        found = _UPDATE.match(line)
        assert found is not None, line
        job, priority, comment = self.jobs[found[1]], found[2], found[3] or ""
        if job.state != "PENDING":
            return "Job is no longer pending execution"
        marked = "AdminComment" in line
        self.note(
            "update",
            job=job.id,
            priority=priority and int(priority),
            mark=comment,
            was=job.priority,
            there=job.comment,
        )
        if priority is not None:
            job.priority = int(priority)
        if marked:
            job.comment = comment
        return ""


class Commands:
    """Stands in for `Slurm`, the client of Slurm's commands, in one simulated process."""

    dry = False

    def __init__(self, controller: Controller):
        self.controller = controller

    def _asked(self, what: str) -> bool:
        """Return whether the simulated Slurm's answer to a command gets lost. Raise SlurmDown if
        that Slurm is out of reach.
        """
        there = self.controller
        there.kernel.point(f"before {what}")
        if there.down:
            raise SlurmDown("no answer")
        return there.draw.random() < there.rate

    def ping(self) -> None:
        if self._asked("scontrol"):
            raise SlurmDown("no answer")

    def nodes(self) -> list[Node]:
        self._asked("scontrol")
        return list(NODES)

    def jobs(self) -> list[SlurmJob]:
        if self._asked("squeue"):
            raise SlurmDown("no answer")
        return self.controller.shown()

    def read(self, *_: str) -> str:
        self._asked("scontrol")
        return "PriorityType = priority/basic"

    def write(self, lines: Sequence[str]) -> list[str]:
        said = []
        for line in lines:
            lost = self._asked("scontrol")
            said.append(self.controller.carry_out(line))
            if lost:
                raise SlurmDown("no answer")
        return said

    def close(self) -> None:
        """Do nothing: a simulated client holds nothing open."""


class InFront(Simulation):
    """Two services on two hosts over one database, in front of one Slurm."""

    def __init__(self, *args: Any):
        super().__init__(*args)
        draw = random.Random(f"hosts {self.plan.seed}")
        self.hosts = [
            Host(
                name,
                wall_s=draw.choice([0.0, 0.4, -7.0, 90.0, 3600.0]),
                booted_at=-draw.random() * 1e6,
            )
            for name in ("east", "west")
        ]
        self.disk.database = None  # it is elsewhere
        self.controller = Controller(
            self.kernel, self.note, random.Random(f"slurm {self.plan.seed}")
        )
        self.shape = Shape.followed(list(NODES))
        self.settings = Settings(
            **{
                **self.settings.model_dump(exclude={"cluster"}),
                "backend": "slurm",
                "fake_gpus": False,
                "slurm_mode": "order",
                "slurm_interval_s": 1.0,
                "bundle": None,
                "policy": draw.choice(["pellucid", "fifo"]),
            }
        )
        assert self.settings.policy is not None
        self.spec, self.names = CoreSpec.of(self.shape.spec, self.settings.policy), self.shape.names

    def host_of(self, name: str) -> Host:
        return self.hosts[name == "two"]

    def _direct(self) -> None:
        kernel, controller = self.kernel, self.controller
        self.note("begins", lease_s=LEASE_S, hangs_s=HANGS_S, watchdog_s=WATCHDOG_S, slurm=True)
        self.serve("one")
        self.serve("two")
        kernel.spawn(kernel.process("slurmctld", self.elsewhere), controller.schedule)
        kernel.spawn(kernel.process("nemesis", self.elsewhere), self._spoil)
        self.working = 1
        controller.live(14)
        self.working = 0
        kernel.wait(self.healed.is_set, 3000.0)
        healed_at = kernel.clock  # both may hang as they begin, until the watchdog
        kernel.wait(lambda: self._turned[1] > healed_at, WATCHDOG_S + 60.0)
        kernel.sleep(60.0)  # a process that died again and again is back
        olga = Person(
            self.door, self.note, "olga", self.secrets["olga"], self.plan.seed, operator=True
        )
        for row in olga.every_job():
            self.note("row", job=row["job_id"], phase=row["phase"])
        self._let_end()
        for job in controller.jobs.values():
            self.note(
                "batch_is",
                job=job.id,
                state=job.state,
                priority=job.priority,
                own=job.own,
                comment=job.comment,
                submitted=job.submit,
                since=max(job.submit, job.start or 0.0, job.end or 0.0),
            )
        kernel.stop()

    def _let_end(self) -> None:
        """Stop both services, not to be started again."""
        ends = list(self.services.values())
        self.services.clear()
        for process in ends:
            process.told.append(15)
        if not self.kernel.wait(lambda: all(p.dead for p in ends), QUIET_S):
            self.run.wrong.append("a service does not stop")

    def heal(self) -> None:
        super().heal()
        self.controller.down, self.controller.rate = False, 0.0

    def _one(self, draw: random.Random) -> None:
        self.controller.rate = self.faults.rate
        was, self.controller.down = self.controller.down, draw.random() < 0.15
        if was != self.controller.down:
            self.note("fault", kind="slurm is out of reach" if not was else "slurm is back")
        super()._one(draw)

    def _upgrade(self, draw: random.Random, process: Process) -> None:
        """Do nothing: in front of Slurm, there is no log of decisions that another version could
        continue.
        """

    def _promote(self, draw: random.Random, _: Process) -> None:
        """Do nothing: in front of Slurm, no champion (bundle of models) is in use."""

    def _audit(self) -> None:
        """Do nothing: in front of Slurm, there is no log of decisions to audit."""
