"""Records how real daemons run a workload: every poll that an advising service could have made, and
the true starts and ends.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.slurm.cluster import SlurmCluster
from benchmarks.slurm.processes import until
from benchmarks.slurm.workload import ACCOUNTING, USERS, Order, orders
from scheduler.slurm.read.client import Slurm
from scheduler.slurm.read.parse import Node, SlurmJob
from scheduler.slurm.read.site import read_site
from scheduler.slurm.read.table import Table
from scheduler.slurm.twin.site import Site

LOOK_S = 4.0
SACCT = (
    "sacct", "-X", "-a", "-D", "-P", "-S", "now-1days", "-o",
    "JobID,JobName,User,Account,Partition,QOS,Submit,Eligible,Start,End,Timelimit,State,Reason,"
    "Priority,Flags,NNodes,NodeList,ReqTRES,AllocTRES,SubmitLine",
)  # fmt: skip
SITE = (
    ("scontrol", "-a", "show", "nodes"),
    ("scontrol", "-a", "show", "partition"),
    ("scontrol", "show", "config"),
    ("sacctmgr", "-P", "show", "assoc", "format=Account,User,Partition,ParentName,Share,Priority,"
     "GrpTRES,GrpJobs,MaxTRES,MaxJobs,MaxWall"),
    ("sacctmgr", "-P", "show", "qos"),
    ("scontrol", "show", "licenses"),
    ("sacctmgr", "-P", "show", "reservation", "start=now-1days",
     "format=Name,NodeNames,Start,End,Flags"),
)  # fmt: skip
OVER = frozenset(("COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY"))
IDLE_LOOKS = 9
PATIENCE_S = 900.0  # after the last submission
MAINTENANCE_S = 60  # after the first submission, and how long


@dataclass
class Submitted:
    """A submission that was made to Slurm. `at` is when Slurm had accepted it, in seconds since
    1970.
    """

    order: Order
    job_id: str
    at: float

    def tasks(self) -> list[str]:
        """Return the ids of the jobs of this submission: one, or one for each task of an array."""
        count = len(self.order.runs_s)
        return [f"{self.job_id}_{n + 1}" for n in range(count)] if count > 1 else [self.job_id]


@dataclass
class Look:
    """The nodes, site and jobs that were read from Slurm at one poll."""

    at: float
    nodes: list[Node]
    site: Site
    jobs: list[SlurmJob]


@dataclass
class Truth:
    """When a job began and ended, in seconds since 1970, and on which nodes it ran."""

    start: float
    end: float
    nodes: tuple[str, ...]
    state: str


@dataclass
class Recording:
    """The recorded run of one seed. `sacct` and `site` are the outputs that `pellucid replay` asks
    an administrator for.
    """

    seed: int
    began: float = 0.0
    submitted: list[Submitted] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)
    truth: dict[str, Truth] = field(default_factory=dict)
    log: str = ""
    sacct: str = ""
    site: str = ""


def record(seed: int, jobs: int, every_s: float, tell: Callable[[str], None]) -> Recording:
    """Start a cluster, submit the workload of `seed`, and poll Slurm until the jobs are over.
    Return the recording. Raise TimeoutError where they are not over `PATIENCE_S` seconds after the
    last submission.

    Args:
        every_s: mean seconds between two submissions.
        tell: called with each line of progress.
    """
    with SlurmCluster(university=True, accounting=True) as slurm:
        slurm.account(*ACCOUNTING)
        slurm.shared(USERS)
        return _Recorder(slurm, seed, tell).run(orders(seed, jobs, every_s))


class _Recorder:
    def __init__(self, slurm: SlurmCluster, seed: int, tell: Callable[[str], None]) -> None:
        self.slurm, self.tell = slurm, tell
        self.client = Slurm(slurm.environment)
        self.table = Table(self.client)
        self.found = Recording(seed)

    def run(self, asked: list[Order]) -> Recording:
        found = self.found
        found.began = began = time.time()
        self.slurm.run("scontrol", "setdebug", "debug2")
        self.slurm.run("scontrol", "setdebugflags", "+backfill")
        self.slurm.run(
            "scontrol",
            "create",
            "reservation",
            "reservationname=maintenance",
            "users=root",
            f"starttime=now+{MAINTENANCE_S}",
            f"duration={MAINTENANCE_S // 60}",
            "nodes=n3",
            "flags=maint",
        )
        left, last = list(asked), began
        next_look = began + LOOK_S
        while left or not self._over():
            if time.time() > last + PATIENCE_S:
                raise TimeoutError("the workload does not end")
            due = min(began + left[0].at if left else next_look, next_look)
            time.sleep(max(0.0, min(0.5, due - time.time())))
            if left and time.time() >= began + left[0].at:
                self._submit(left.pop(0))
                last = time.time()
            if time.time() >= next_look:
                self._look()
                next_look = time.time() + LOOK_S
        self._end()
        return found

    def _submit(self, order: Order) -> None:
        after = order.after
        command = order.command("" if after is None else self.found.submitted[after].job_id)
        said = self.slurm.run(*command, user=order.user)
        self.found.submitted.append(Submitted(order, said.stdout.strip(), time.time()))

    def _look(self) -> None:
        nodes = self.client.nodes()
        site = read_site(self.client, nodes)
        jobs = self.table.jobs()
        at = time.time()
        self.found.looks.append(Look(at, nodes, site, jobs))
        if len(self.found.looks) % 10 == 0:
            self._keep()
            waiting = sum(job.state == "PENDING" for job in jobs)
            self.tell(f"{at - self.found.began:.0f} s: {waiting} of {len(jobs)} jobs wait")

    def _over(self) -> bool:
        """Return whether the recording is over: no job runs, and either none waits or only waiting
        jobs were seen for several polls. What still waits then can never start.
        """
        looks = self.found.looks[-IDLE_LOOKS:]
        if len(looks) < IDLE_LOOKS:
            return False
        going = [job.state for look in looks for job in look.jobs if job.state not in OVER]
        return not any(job.state not in OVER for job in looks[-1].jobs) or set(going) == {"PENDING"}

    def _keep(self) -> None:
        """Record when and where the ended jobs ran, before Slurm forgets them."""
        for job in self.found.looks[-1].jobs:
            if job.state in OVER and job.start is not None and job.end is not None:
                self.found.truth[job.id] = Truth(job.start, job.end, job.nodes, job.state)

    def _end(self) -> None:
        self._keep()
        self.found.log = self.slurm.log()
        self.found.sacct = self._accounted()
        self.found.site = "\n".join(self.slurm.run(*words).stdout for words in SITE)

    def _accounted(self) -> str:
        """Wait until slurmdbd has the end of every job. Return what sacct prints of the run."""

        def read() -> str:
            return self.slurm.run(*SACCT).stdout

        until(lambda: "RUNNING" not in read(), "slurmdbd to know of every end", 60.0)
        return read()


def kept(folder: Path | None, seed: int, make: Callable[[], Recording]) -> Recording:
    """Return the recording of a seed from `folder`. Where the folder has none, call `make` and
    store the result there; without a folder, only call `make`.
    """
    if folder is None:
        return make()
    file = folder / f"seed{seed}.pickle"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        file.write_bytes(pickle.dumps(make()))
    found = pickle.loads(file.read_bytes())
    assert isinstance(found, Recording)
    return found
