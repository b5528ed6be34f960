"""Compares the answers of `why` with the right answers by Slurm's manual, in one case for each of
Slurm's reason codes.

`python -m benchmarks.slurm.reasons` (as root) makes jobs wait for each code on real daemons, all in
one cluster at a time, and judges the answers after one reading of Slurm's state. An answer is
*false* where it states what is not so: room in a limit that is used up, a start of a job that can
never start, no start ever of one that can, a code that is not Slurm's. It is *short* where it lacks
a part of the right answer, such as the figures of a limit. Then the best change that is offered for
each job is made by the job's owner: Slurm must accept it, and the job must start at once where that
was promised. Exit status 1: a code did not come about, an answer is false, or an offer is refused.
"""

from __future__ import annotations

import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.slurm import SlurmCluster
from benchmarks.slurm.config import Own
from benchmarks.slurm.processes import until
from features.codec import decode
from scheduler.assembly import CoreSpec
from scheduler.explain.effect import Sooner, Tried
from scheduler.explain.whatif.forecasts import StartForecast
from scheduler.explain.words import ForecastKind
from scheduler.service.log.header import FOLLOWED, LogHeader
from scheduler.service.log.questions import TRIED
from scheduler.slurm.follow.follower import Follower, Following
from scheduler.slurm.read.client import Slurm
from scheduler.slurm.read.shape import Shape
from scheduler.slurm.read.table import Table
from scheduler.slurm.read.versions import OLDEST, Release
from scheduler.slurm.reason import SlurmReason, sentence

USER = "backup"
WAIT_S = 60.0  # for all codes to come about, and for starts at once
NO = "it can never start like this"
NEVER, LATER = "never", "later"  # whether it starts as it is; "": nothing is held against it


@dataclass(frozen=True, kw_only=True)
class Case:
    """A job that waits for a known reason.

    Attributes:
        code: the reason code that Slurm prints.
        asks: options of sbatch; ``{hog}`` stands for the id of the job that was there before.
        says: sentences, or parts of them, that the right answer contains; ``{own}`` stands for the
            QOS or account that has the limit.
        hog: options of the job that was there before; "": there is none.
        qos: limits of a QOS made for this case, in the words of sacctmgr; "": none is made.
        account: limits of an account made for this case; "": none is made.
        then: commands that run after the submission; ``{job}`` stands for the job's id.
        starts: what a right answer states of the unchanged job: it starts "later", or "never"; "":
            not checked.
        turns: another code that Slurm's backfill prints between two main passes; "": none.
        since: the first Slurm release that is known to have the code.
    """

    code: str
    asks: str
    says: Sequence[str] = ()
    hog: str = ""
    qos: str = ""
    account: str = ""
    then: Sequence[str] = ()
    starts: str = LATER
    turns: str = ""
    since: Release = OLDEST


def of_own(of: str, limit: str, case: Case) -> Case:
    """Return a copy of `case` with a limit of its own QOS (if `of` is "qos") or of its own account
    ("account")."""
    return replace(case, qos=limit) if of == "qos" else replace(case, account=limit)


def together(
    of: str, limit: str, code: str, asks: str, says: Sequence[str], hog: str | None = None
) -> Case:
    """Return a case of a limit on what running jobs use together; a job like the waiting one runs
    before it.

    Args:
        of: "qos" or "account", which has the limit.
        limit: the limit in the words of sacctmgr.
        hog: options of the job that runs; None: the same as `asks`.
    """
    before = asks if hog is None else hog
    return of_own(of, limit, Case(code=code, asks=asks, says=says, hog=before))


def alone(of: str, limit: str, code: str, asks: str, says: Sequence[str]) -> Case:
    """Return a case of a limit on each single job; the job exceeds it and can never start
    unchanged.
    """
    turns = "Resources" if "-N" in asks else ""
    return of_own(of, limit, Case(code=code, asks=asks, says=says, starts=NEVER, turns=turns))


def at_once(name: str, what: str, much: str = "1") -> list[str]:
    """Return the expected sentence on a limit that one running job has used up.

    Args:
        name: the limit's name in sacctmgr.
        what: what is limited, such as GPUs.
        much: the limit.
    """
    has = f"has {much}, and this job asks for {much} more"
    return [f"{{own}} may have {much} {what} at once ({name}), {has}"]


def jobs_at_once(name: str) -> list[str]:
    """Return the expected sentence on a limit of one running job. `name` is the limit's name in
    sacctmgr.
    """
    return [f"{{own}} may have 1 running job at once ({name}), and has 1"]


def by_itself(name: str, what: str, most: str = "1", asked: str = "2") -> list[str]:
    """Return the expected sentence on a limit per job (`most` units of `what`) that a job which
    asks for `asked` exceeds.
    """
    return [
        f"{{own}} gives a job {most} {what} at most ({name}), and this job asks for {asked}: {NO}"
    ]


def on_a_node(what: str) -> list[str]:
    """Return the expected sentence on a limit of 1 unit of `what` per job on one node."""
    most = f"{{own}} gives a job 1 {what} on a node at most (MaxTRESPerNode)"
    return [f"{most}, and this job asks for 2: {NO}"]


def at_least(what: str, least: str, asked: str) -> list[str]:
    """Return the expected sentence on a limit that refuses jobs with fewer than `least` units of
    `what`.
    """
    takes = f"{{own}} takes no job of fewer than {least} {what} (MinTRES)"
    return [f"{takes}, and this job asks for {asked}: {NO}"]


def by_its_limit(what: str) -> list[str]:
    """Return the expected sentence on a limit of the minutes of `what` that a job may ask for."""
    most = f"{{own}} gives a job 10 {what} minutes at most, by its time limit (MaxTRESMins)"
    return [f"{most}, and this job asks for 60: {NO}"]


def left(what: str) -> list[str]:
    """Return the expected parts of the sentence on a limit of the minutes that running jobs may
    still have left.
    """
    left = f"60 {what} minutes left by their time limits"
    may = f"{{own}} may have running jobs with {left} (GrpTRESRunMins)"
    return [f"{may}, has ", "and this job asks for 60 more"]


def left_in_a_qos(code: str, limit: str, asks: str, name: str) -> Case:
    """Return a case of a limit, set in a QOS, on the minutes that one user's or account's running
    jobs may have left. `name` is the limit's name in sacctmgr.
    """
    whose, what = (f"user {USER}", "cpu") if name.endswith("PU") else ("account plain", "gres/gpu")
    left = f"60 {what} minutes left by their time limits"
    may = f"{whose} in {{own}} may have running jobs with {left} ({name}), has "
    says = [may, "and this job asks for 60 more"]
    return Case(code=code, asks=asks, says=says, hog=asks, qos=f"{limit}=60", since=(24, 11))


USED_UP = [
    "{own} may use up 0 cpu minutes (GrpTRESMins), and this job asks for 60 by its time limit"
]
WALL = ["{own} may ask for 10 min at most, and this job asks for 1 h"]
LITTLE, SOME, MUCH = "0.09766 GiB", "0.1953 GiB", "1.953 GiB"  # 100, 200 and 2000 MiB
_HOUR = "-t 60"
LIMITS = (
    together("qos", "MaxJobsPerUser=1", "QOSMaxJobsPerUserLimit", "-c1", jobs_at_once("MaxJobsPU")),
    together(
        "qos",
        "MaxTRESPerUser=gres/gpu=1",
        "QOSMaxGRESPerUser",
        "--gpus=1",
        at_once("MaxTRESPU", "gres/gpu"),
    ),
    together(
        "qos", "MaxTRESPerUser=cpu=1", "QOSMaxCpuPerUserLimit", "-c1", at_once("MaxTRESPU", "cpu")
    ),
    together(
        "qos",
        "MaxTRESPerUser=mem=200M",
        "QOSMaxMemoryPerUser",
        "--mem=200",
        at_once("MaxTRESPU", "mem", SOME),
    ),
    together(
        "qos",
        "MaxTRESPerUser=node=1",
        "QOSMaxNodePerUserLimit",
        "-w n4",
        at_once("MaxTRESPU", "node"),
        "-w n3",
    ),
    together("qos", "GrpJobs=1", "QOSGrpJobsLimit", "-c1", jobs_at_once("GrpJobs")),
    together("qos", "GrpTRES=cpu=1", "QOSGrpCpuLimit", "-c1", at_once("GrpTRES", "cpu")),
    together(
        "qos", "GrpTRES=mem=200M", "QOSGrpMemLimit", "--mem=200", at_once("GrpTRES", "mem", SOME)
    ),
    together("qos", "GrpTRES=gres/gpu=1", "QOSGrpGRES", "--gpus=1", at_once("GrpTRES", "gres/gpu")),
    together(
        "qos", "GrpTRES=node=1", "QOSGrpNodeLimit", "-w n4", at_once("GrpTRES", "node"), "-w n3"
    ),
    together("qos", "MaxJobsPerAccount=1", "MaxJobsPerAccount", "-c1", jobs_at_once("MaxJobsPA")),
    together(
        "qos",
        "MaxTRESPerAccount=gres/gpu=1",
        "MaxGRESPerAccount",
        "--gpus=1",
        at_once("MaxTRESPA", "gres/gpu"),
    ),
    together(
        "qos", "MaxTRESPerAccount=cpu=1", "MaxCpuPerAccount", "-c1", at_once("MaxTRESPA", "cpu")
    ),
    together(
        "qos",
        "MaxTRESPerAccount=mem=200M",
        "MaxMemoryPerAccount",
        "--mem=200",
        at_once("MaxTRESPA", "mem", SOME),
    ),
    together(
        "qos",
        "MaxTRESPerAccount=node=1",
        "MaxNodePerAccount",
        "-w n4",
        at_once("MaxTRESPA", "node"),
        "-w n3",
    ),
    together(
        "qos", "GrpTRESRunMins=cpu=60", "QOSGrpCPURunMinutesLimit", f"-c1 {_HOUR}", left("cpu")
    ),
    together(
        "qos",
        "GrpTRESRunMins=gres/gpu=60",
        "QOSGrpGRESRunMinutes",
        f"--gpus=1 {_HOUR}",
        left("gres/gpu"),
    ),
    alone("qos", "GrpTRESMins=cpu=0", "QOSGrpCPUMinutesLimit", f"-c1 {_HOUR}", USED_UP),
    alone(
        "qos",
        "MaxTRESPerJob=cpu=1",
        "QOSMaxCpuPerJobLimit",
        "-c2",
        by_itself("MaxTRESPerJob", "cpu"),
    ),
    alone(
        "qos",
        "MaxTRESPerJob=gres/gpu=1",
        "QOSMaxGRESPerJob",
        "--gpus=2",
        by_itself("MaxTRESPerJob", "gres/gpu"),
    ),
    alone(
        "qos",
        "MaxTRESPerJob=node=1",
        "QOSMaxNodePerJobLimit",
        "-N2",
        by_itself("MaxTRESPerJob", "node"),
    ),
    alone(
        "qos",
        "MaxTRESPerJob=mem=100M",
        "QOSMaxMemoryPerJob",
        "--mem=2000",
        by_itself("MaxTRESPerJob", "mem", LITTLE, MUCH),
    ),
    alone(
        "qos",
        "MaxTRESPerNode=gres/gpu=1",
        "QOSMaxGRESPerNode",
        "-N1 --gres=gpu:2",
        on_a_node("gres/gpu"),
    ),
    alone("qos", "MaxTRESPerNode=cpu=1", "QOSMaxCpuPerNode", "-c2", on_a_node("cpu")),
    alone("qos", "MaxWall=10", "QOSMaxWallDurationPerJobLimit", _HOUR, WALL),
    alone(
        "qos", "MinTRESPerJob=gres/gpu=2", "QOSMinGRES", "--gpus=1", at_least("gres/gpu", "2", "1")
    ),
    alone("qos", "MinTRESPerJob=cpu=2", "QOSMinCpuNotSatisfied", "-c1", at_least("cpu", "2", "1")),
    alone(
        "qos", "MinTRESPerJob=mem=1G", "QOSMinMemory", "--mem=100", at_least("mem", "1 GiB", LITTLE)
    ),
    alone("qos", "MinTRESPerJob=node=2", "QOSMinNode", "-N1", at_least("node", "2", "1")),
    alone(
        "qos",
        "MaxTRESMinsPerJob=cpu=10",
        "QOSMaxCpuMinutesPerJobLimit",
        f"-c1 {_HOUR}",
        by_its_limit("cpu"),
    ),
    alone(
        "qos",
        "MaxTRESMinsPerJob=gres/gpu=10",
        "QOSMaxGRESMinutesPerJob",
        f"--gpus=1 {_HOUR}",
        by_its_limit("gres/gpu"),
    ),
    together("account", "MaxJobs=1", "AssocMaxJobsLimit", "-c1", jobs_at_once("MaxJobs")),
    together("account", "GrpJobs=1", "AssocGrpJobsLimit", "-c1", jobs_at_once("GrpJobs")),
    together("account", "GrpTRES=cpu=1", "AssocGrpCpuLimit", "-c1", at_once("GrpTRES", "cpu")),
    together(
        "account",
        "GrpTRES=mem=200M",
        "AssocGrpMemLimit",
        "--mem=200",
        at_once("GrpTRES", "mem", SOME),
    ),
    together(
        "account", "GrpTRES=gres/gpu=1", "AssocGrpGRES", "--gpus=1", at_once("GrpTRES", "gres/gpu")
    ),
    together(
        "account",
        "GrpTRES=node=1",
        "AssocGrpNodeLimit",
        "-w n4",
        at_once("GrpTRES", "node"),
        "-w n3",
    ),
    together(
        "account",
        "GrpTRESRunMins=cpu=60",
        "AssocGrpCPURunMinutesLimit",
        f"-c1 {_HOUR}",
        left("cpu"),
    ),
    together(
        "account",
        "GrpTRESRunMins=gres/gpu=60",
        "AssocGrpGRESRunMinutes",
        f"--gpus=1 {_HOUR}",
        left("gres/gpu"),
    ),
    alone("account", "GrpTRESMins=cpu=0", "AssocGrpCPUMinutesLimit", f"-c1 {_HOUR}", USED_UP),
    left_in_a_qos(
        "MaxCpuRunMinsPerUser", "MaxTRESRunMinsPerUser=cpu", f"-c1 {_HOUR}", "MaxTRESRunMinsPU"
    ),
    left_in_a_qos(
        "MaxGRESRunMinsPerAccount",
        "MaxTRESRunMinsPerAccount=gres/gpu",
        f"--gpus=1 {_HOUR}",
        "MaxTRESRunMinsPA",
    ),
    alone("account", "MaxTRES=cpu=1", "AssocMaxCpuPerJobLimit", "-c2", by_itself("MaxTRES", "cpu")),
    alone(
        "account",
        "MaxTRES=gres/gpu=1",
        "AssocMaxGRESPerJob",
        "--gpus=2",
        by_itself("MaxTRES", "gres/gpu"),
    ),
    alone(
        "account", "MaxTRES=node=1", "AssocMaxNodePerJobLimit", "-N2", by_itself("MaxTRES", "node")
    ),
    alone(
        "account",
        "MaxTRES=mem=100M",
        "AssocMaxMemPerJob",
        "--mem=2000",
        by_itself("MaxTRES", "mem", LITTLE, MUCH),
    ),
    alone("account", "MaxWall=10", "AssocMaxWallDurationPerJobLimit", _HOUR, WALL),
    alone(
        "account",
        "MaxTRESMins=cpu=10",
        "AssocMaxCpuMinutesPerJobLimit",
        f"-c1 {_HOUR}",
        by_its_limit("cpu"),
    ),
    alone(
        "account",
        "MaxTRESMins=gres/gpu=10",
        "AssocMaxGRESMinutesPerJob",
        f"--gpus=1 {_HOUR}",
        by_its_limit("gres/gpu"),
    ),
)
OTHERS = (
    Case(
        code="JobHeldUser",
        asks="--hold",
        says=["it is held by its user; `scontrol release {job}` lets it go."],
        starts=NEVER,
    ),
    Case(
        code="JobHeldAdmin",
        asks="--begin=now+1hour",
        says=["it is held by an administrator, who alone can release it."],
        then=["scontrol hold {job}"],
        starts=NEVER,
    ),
    Case(code="BeginTime", asks="--begin=now+1hour", says=["it may not begin before "]),
    Case(
        code="Dependency",
        hog="-c1",
        asks="--dependency=afterok:{hog}",
        says=["it waits for afterok:{hog}"],
        starts="",
    ),
    Case(
        code="DependencyNeverSatisfied",
        hog="false",
        asks="--dependency=afterok:{hog}",
        says=["what it waits for (afterok:{hog}", "can never happen any more; cancel it."],
        starts=NEVER,
    ),
    Case(
        code="JobArrayTaskLimit",
        asks="--array=0-1%1",
        says=["as many tasks of its array run as the array allows at once."],
        starts="",
    ),
    Case(
        code="PartitionDown",
        asks="-p down",
        says=["its partition is down: jobs wait until an administrator opens it."],
        starts=NEVER,
    ),
    Case(
        code="PartitionInactive",
        asks="-p idle --begin=now+10",
        says=["inactive"],
        starts=NEVER,
        then=["scontrol update partition=idle state=inactive"],
    ),
    Case(
        code="PartitionTimeLimit",
        asks=f"-p short {_HOUR}",
        says=[
            "it asks for 1 h, and partition short allows 10 min. It can never start like this",
            "timelimit=10",
        ],
        starts=NEVER,
    ),
    Case(
        code="PartitionNodeLimit",
        asks="-p small -N2",
        says=[
            "it asks for 2 nodes, and partition small gives a job 1 node at most (MaxNodes). It "
            "can never start like this: ask for 1 (`scontrol update jobid={job} numnodes=1-1`)."
        ],
        starts=NEVER,
    ),
    Case(
        code="ReqNodeNotAvail",
        asks="-p shut -w n2",
        says=["n2 is drained", "vendor case"],
        starts=NEVER,
    ),
    Case(
        code="Resources",
        hog="-p full --exclusive",
        asks="-p full --gpus=1",
        says=["it asks for 1", "n1 "],
    ),
    Case(
        code="Priority",
        asks="-p full --gpus=1 --nice=9",
        says=["1 job of higher priority in its partition goes first"],
    ),
    Case(
        code="Licenses",
        hog="-L fluent:1",
        asks="-L fluent:1",
        says=["it asks for 1 licence of fluent, of which 1 exist and running jobs use 1."],
    ),
    Case(
        code="Reservation",
        asks="--reservation=later",
        says=["it waits for reservation later to begin, or for room in it."],
        starts="",
    ),
    Case(
        code="InvalidQOS",
        qos="Priority=1",
        asks="--hold",
        says=["its QOS is not one that it may use."],
        starts=NEVER,
        then=[f"sacctmgr -i modify user {USER} set qos-={{qos}}", "scontrol release {job}"],
    ),
    Case(code="MaxMemPerLimit", asks="-p tight --mem=5000", says=["memory"], starts=NEVER),
)
CASES = (*OTHERS, *LIMITS)


def lines(ports: Sequence[int]) -> list[str]:
    """Return the lines of slurm.conf that define the nodes: n1 is full, n2 is closed, the others
    serve the cases with limits.
    """
    host = socket.gethostname()
    nodes = [
        f"NodeName=n{i} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=128 "
        "RealMemory=512000 Gres=gpu:8"
        for i, port in enumerate(ports, start=1)
    ]
    return [
        "GresTypes=gpu", "PriorityType=priority/basic", "AccountingStorageTRES=gres/gpu",
        "AccountingStorageEnforce=limits,qos", "Licenses=fluent:1", *nodes,
        "SchedulerParameters=bf_interval=1,sched_interval=1,default_queue_depth=1000",
        "PartitionName=main Nodes=n[3-4] Default=YES State=UP", "PartitionName=full Nodes=n1",
        "PartitionName=shut Nodes=n[2-3]", "PartitionName=down Nodes=n3 State=DOWN",
        "PartitionName=idle Nodes=n3", "PartitionName=short Nodes=n3 MaxTime=10",
        "PartitionName=small Nodes=n[3-4] MaxNodes=1",
        "PartitionName=tight Nodes=n3 MaxMemPerNode=1000",
    ]  # fmt: skip


def gres(folder: Path) -> str:
    """Return the text of a gres.conf for a cluster in `folder`: eight GPUs on each node."""
    return f"Name=gpu File={folder}/gpu[0-7]\n"


@dataclass
class Asked:
    """A case whose job was submitted, and how the answer was judged."""

    case: Case
    job: str
    own: str = ""
    hog: str = ""
    seen: str = ""
    offer: Tried | None = None
    refused: str = ""
    stayed: str = ""  # what it waited for after it was to start at once
    took_s: float = 0.0  # of the question what would help
    cpu_s: float = 0.0
    answer: str = ""
    false: list[str] = field(default_factory=list)
    short: list[str] = field(default_factory=list)


class Suite:
    """Runs cases in one running cluster."""

    def __init__(self, slurm: SlurmCluster, cases: Sequence[Case]) -> None:
        self.slurm, self.cases = slurm, cases

    def run(self) -> list[Asked]:
        """Submit the jobs of all cases, read Slurm's state once, and judge the answers. Return the
        results.
        """
        self._accounts()
        self.slurm.mark("n2", "drain", "vendor case")
        self.slurm.run(
            "scontrol",
            "create",
            "reservation",
            "reservationname=later",
            "starttime=now+2hours",
            "duration=60",
            "nodes=n1",
            f"users={USER}",
            "flags=ignore_jobs",
        )
        hogs = {i: self._hog(i, case) for i, case in enumerate(self.cases) if case.hog}
        self._until_begun(list(hogs.values()))
        asked = []
        for i, case in enumerate(self.cases):
            job = self._submit(i, case, case.asks.format(hog=hogs.get(i, "")))
            for command in case.then:
                self.slurm.run(*command.format(job=job, qos=f"q{i}").split(), check=False)
            own = f"QOS q{i}" if case.qos else f"account a{i}" if case.account else ""
            asked.append(Asked(case, job, own=own, hog=hogs.get(i, "")))
        self._until_waiting(asked)
        follower = self._judge(asked)
        self._offers(asked, follower)
        return asked

    def _accounts(self) -> None:
        """Create a QOS or an account for each case that has limits."""
        qos = [(f"q{i}", case.qos) for i, case in enumerate(self.cases) if case.qos]
        own = [(f"a{i}", case.account) for i, case in enumerate(self.cases) if case.account]
        accounts = ",".join(["plain", *(name for name, _ in own)])
        self.slurm.account(
            "add account plain",
            *(f"add account {name} {limit}" for name, limit in own),
            f"add user {USER} Account={accounts} DefaultAccount=plain",
            *(f"add qos {name} {limit}" for name, limit in qos),
            f"modify user {USER} set qos+={','.join(name for name, _ in qos)}",
        )

    def _submit(self, i: int, case: Case, asked: str, command: str = "sleep 3000") -> str:
        of = [f"--qos=q{i}"] if case.qos else [f"--account=a{i}"] if case.account else []
        words = ["--output=/dev/null", "--chdir=/tmp", "-t", "60", *of, *asked.split()]
        done = self.slurm.run("sbatch", "--parsable", *words, "--wrap", command, user=USER)
        return done.stdout.strip()

    def _hog(self, i: int, case: Case) -> str:
        fails = case.hog == "false"
        return self._submit(i, case, "" if fails else case.hog, "exit 1" if fails else "sleep 3000")

    def _until_begun(self, hogs: Sequence[str]) -> None:
        over = time.monotonic() + WAIT_S
        while time.monotonic() < over:
            states = {str(number): job["job_state"] for number, job in self.slurm.jobs().items()}
            if all(states.get(job) not in ("PENDING", None) for job in hogs):
                return
            time.sleep(1.0)

    def _until_waiting(self, asked: Sequence[Asked]) -> None:
        """Wait until each case's job waits with its code, or the time for that is over."""
        over = time.monotonic() + WAIT_S
        while time.monotonic() < over and any(one.seen != one.case.code for one in asked):
            time.sleep(1.0)
            found = self._words()
            for one in asked:
                one.seen = found.get(one.job, "")

    def _words(self) -> dict[str, str]:
        """Return the reason codes that Slurm prints for the waiting jobs now, by job id."""
        printed = self.slurm.run("squeue", "-h", "-r", "-o", "%i|%t|%r").stdout
        found = dict[str, str]()
        for line in printed.splitlines():
            number, state, reason = line.split("|", 2)
            if state == "PD":
                found[number.partition("_")[0]] = reason.split(",")[0].strip("()")
        return found

    def _judge(self, asked: Sequence[Asked]) -> Follower:
        of = Slurm(self.slurm.environment)
        shape = Shape.followed(of.nodes())
        header = LogHeader(
            CoreSpec.of(shape.spec, "slurm"), time.time(), backend=FOLLOWED, names=shape.names
        )
        follower = Follower(header, shape, of, None, Following(table=Table(of)))
        follower.look()
        by_job = {job_id.partition("_")[0]: job_id for job_id in follower.reasons}
        for one in asked:
            job_id = by_job.get(one.job, one.job)
            reason = follower.reasons.get(job_id)
            if reason is None:
                one.false.append("no reason at all")
                continue
            made = None if job_id in follower._withheld else follower._forecasts.get(job_id)
            judge(one, reason, job_id, made)
        return follower

    def _offers(self, asked: Sequence[Asked], follower: Follower) -> None:
        """Ask what would help each job, and make the first change that it is offered, one job after
        the other. Slurm's state is read again before each question, since changes made before may
        have taken its room."""
        for one in asked:
            follower.look()
            began, used = time.monotonic(), time.process_time()
            answer = follower.answer(TRIED, {"job_id": one.job})
            one.took_s, one.cpu_s = time.monotonic() - began, time.process_time() - used
            found = decode(Sooner, answer)
            one.offer = found.tried[0] if found.tried else None
            if one.offer is None:
                continue
            done = self.slurm.run(*one.offer.command.split(), user=USER, check=False)
            one.refused = " ".join(done.stderr.split()) or "refused" * bool(done.returncode)
            if not one.offer.reason and not one.refused:
                one.stayed = self._until_started(one.job)

    def _until_started(self, job: str) -> str:
        """Wait until a job starts, or the time for that is over. Return what it still waits for;
        "" where it started.
        """
        over = time.monotonic() + WAIT_S
        while (waits := self._words().get(job, "")) and time.monotonic() < over:
            time.sleep(0.5)
        return waits


def judge(one: Asked, reason: SlurmReason, job_id: str, made: StartForecast | None) -> None:
    """Record in `one` what is false in an answer and what the answer lacks. `made` is the forecast
    of the job's start.
    """
    one.answer = sentence(reason, job_id, time.time())
    words = {one.seen, one.case.turns or one.seen}
    if one.seen == one.case.code and reason.code.partition(",")[0] not in words:
        one.false.append(f"another word: {reason.code}")
    if "There is room" in one.answer:
        one.false.append("room in a limit that is used up")
    known = {"own": one.own, "hog": one.hog, "job": job_id}
    parts = [part.format_map(known) for part in one.case.says]
    one.short = [part for part in parts if part not in one.answer]
    if made is None:
        return
    if one.case.starts == NEVER and made.start_p50 is not None:
        one.false.append("a start is foreseen of a job that never starts so")
    if one.case.starts == LATER and made.estimate == ForecastKind.IMPOSSIBLE:
        one.false.append(f"no start ever of a job that starts later: {made.why_not}")


def report(asked: Sequence[Asked], took_s: float) -> Iterator[str]:
    """Yield a line for each case that is not right, and one with how many are right."""
    for one in asked:
        if one.seen != one.case.code:
            yield f"{one.case.code}: did not come about (Slurm says {one.seen or 'nothing'})"
        for what in one.false:
            yield f"{one.case.code}: FALSE: {what}; answered: {one.answer!r}"
        if one.offer is not None and one.refused:
            yield f"{one.case.code}: offer REFUSED: {one.offer.command}: {one.refused}"
        if one.offer is not None and one.stayed:
            yield f"{one.case.code}: not at once: {one.offer.command}: {one.stayed}"
        if one.short:
            yield f"{one.case.code}: short of {one.short}; answered: {one.answer!r}"
    about = [one for one in asked if one.seen == one.case.code]
    false = sum(bool(one.false) for one in about)
    right = sum(not one.false and not one.short for one in about)
    yield (
        f"{len(about)} of {len(asked)} codes came about in {took_s:.0f} s: {right} answers right, "
        f"{len(about) - right - false} short, {false} false"
    )
    made = [one for one in asked if one.offer is not None]
    by_slurm = sum(one.offer is not None and one.offer.by_slurm for one in made)
    taken = [one for one in made if not one.refused]
    at_once = [one for one in taken if one.offer is not None and not one.offer.reason]
    came = sum(not one.stayed for one in at_once)
    yield (
        f"{len(made)} offers ({by_slurm} by sbatch --test-only, too), {len(made) - len(taken)} "
        f"refused; {came} of {len(at_once)} that were to start at once did; a question took "
        f"{max(one.took_s for one in asked):.1f} s at most ({max(one.cpu_s for one in asked):.1f} "
        "of processor)"
    )


def main(codes: Sequence[str]) -> int:
    """Run the cases of these codes, or all where none is named. Return the exit status."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that all is taken down
    cases = [case for case in CASES if not codes or case.code in codes]
    began = time.monotonic()
    with SlurmCluster(accounting=True, own=Own(4, gres, lines)) as slurm:
        try:
            release = Slurm(slurm.environment).release()
            asked = Suite(slurm, [case for case in cases if case.since <= release]).run()
        finally:
            slurm.run("scancel", "-u", USER)
            until(lambda: not slurm.run("squeue", "-h", "-t", "R,CG").stdout, "all to be gone")
    for line in report(asked, time.monotonic() - began):
        print(line)
    return int(
        any(one.false or one.refused or one.stayed or one.seen != one.case.code for one in asked)
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
