"""One case per reason code: it compares the answer of `why` with the right answer by the manual.

`python -m benchmarks.slurm.reasons` (as root) brings each code about on real daemons, all in one
cluster at a time, and holds the answer of one look against it. An answer is *false* where it
says what is not so: room in a limit that is used up, a start of a job that can never start, no
start ever of one that can, a code that is not Slurm's. It is *short* where it lacks a part of the
right answer, such as the figures of a limit. Exit status 1: a code did not come about, or an answer
is false.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.slurm import SlurmCluster
from benchmarks.slurm.config import Own
from benchmarks.slurm.processes import until
from scheduler.assembly import CoreSpec
from scheduler.explain.whatif.forecasts import StartForecast
from scheduler.explain.words import ForecastKind
from scheduler.service.log.header import FOLLOWED, LogHeader
from scheduler.slurm.follow.follower import Follower, Following
from scheduler.slurm.read.client import Slurm
from scheduler.slurm.read.shape import Shape
from scheduler.slurm.read.table import Table
from scheduler.slurm.reason import SlurmReason, sentence

USER = "backup"
WAIT_S = 60.0  # for all codes to come about
NEVER, LATER = "never", "later"  # whether it starts as it is; "": nothing is held against it


@dataclass(frozen=True, kw_only=True)
class Case:
    """A job that waits for a known reason.

    Attributes:
        code: Slurm's word for it.
        asks: options of sbatch; ``{hog}`` is the job that was there before.
        says: parts that the right answer has.
        hog: options of that job.
        qos, account: limits of a QOS, an account of its own, as sacctmgr takes them.
        then: commands after it was submitted, ``{job}``.
        starts: whether it starts as it is once others have ended.
    """

    code: str
    asks: str
    says: Sequence[str] = ()
    hog: str = ""
    qos: str = ""
    account: str = ""
    then: Sequence[str] = ()
    starts: str = LATER


def together(
    of: str, limit: str, code: str, asks: str, says: Sequence[str], hog: str | None = None
) -> Case:
    """Return a case of a limit on what jobs have at once, with one like it running. `of` is "qos"
    or "account".
    """
    before = asks if hog is None else hog
    return Case(code=code, asks=asks, says=says, hog=before, **{of: limit})


def alone(of: str, limit: str, code: str, asks: str, says: Sequence[str]) -> Case:
    """Return a case of a limit on a job by itself, which can never start as it is."""
    return Case(code=code, asks=asks, says=says, starts=NEVER, **{of: limit})


_HOUR = "-t 60"
LIMITS = (
    together("qos", "MaxJobsPerUser=1", "QOSMaxJobsPerUserLimit", "-c1",
             ["1 running job", "has 1"]),
    together("qos", "MaxTRESPerUser=gres/gpu=1", "QOSMaxGRESPerUser", "--gpus=1",
             ["1 gres/gpu", "has 1", "asks for 1 more"]),
    together("qos", "MaxTRESPerUser=cpu=1", "QOSMaxCpuPerUserLimit", "-c1",
             ["1 cpu", "has 1", "asks for 1 more"]),
    together("qos", "MaxTRESPerUser=mem=200M", "QOSMaxMemoryPerUser", "--mem=200",
             ["GiB mem", "asks for"]),
    together("qos", "MaxTRESPerUser=node=1", "QOSMaxNodePerUserLimit", "-w n4",
             ["1 node", "has 1"], "-w n3"),
    together("qos", "GrpJobs=1", "QOSGrpJobsLimit", "-c1", ["1 running job", "has 1"]),
    together("qos", "GrpTRES=cpu=1", "QOSGrpCpuLimit", "-c1", ["1 cpu", "has 1"]),
    together("qos", "GrpTRES=mem=200M", "QOSGrpMemLimit", "--mem=200", ["GiB mem"]),
    together("qos", "GrpTRES=gres/gpu=1", "QOSGrpGRES", "--gpus=1", ["1 gres/gpu", "has 1"]),
    together("qos", "GrpTRES=node=1", "QOSGrpNodeLimit", "-w n4",
             ["1 node", "has 1"], "-w n3"),
    together("qos", "MaxJobsPerAccount=1", "MaxJobsPerAccount", "-c1", ["1 running job", "has 1"]),
    together("qos", "MaxTRESPerAccount=gres/gpu=1", "MaxGRESPerAccount", "--gpus=1",
             ["1 gres/gpu", "has 1"]),
    together("qos", "MaxTRESPerAccount=cpu=1", "MaxCpuPerAccount", "-c1", ["1 cpu", "has 1"]),
    together("qos", "MaxTRESPerAccount=mem=200M", "MaxMemoryPerAccount", "--mem=200", ["mem"]),
    together("qos", "MaxTRESPerAccount=node=1", "MaxNodePerAccount", "-w n4",
             ["1 node", "has 1"], "-w n3"),
    together("qos", "GrpTRESRunMins=cpu=60", "QOSGrpCPURunMinutesLimit", f"-c1 {_HOUR}",
             ["60 cpu minutes", "asks for 60"]),
    together("qos", "GrpTRESRunMins=gres/gpu=60", "QOSGrpGRESRunMinutes", f"--gpus=1 {_HOUR}",
             ["60 gres/gpu minutes", "asks for 60"]),
    alone("qos", "GrpTRESMins=cpu=0", "QOSGrpCPUMinutesLimit", f"-c1 {_HOUR}", ["0 cpu minutes"]),
    alone("qos", "MaxTRESPerJob=cpu=1", "QOSMaxCpuPerJobLimit", "-c2", ["1 cpu", "asks for 2"]),
    alone("qos", "MaxTRESPerJob=gres/gpu=1", "QOSMaxGRESPerJob", "--gpus=2",
          ["1 gres/gpu", "asks for 2"]),
    alone("qos", "MaxTRESPerJob=node=1", "QOSMaxNodePerJobLimit", "-N2", ["1 node", "asks for 2"]),
    alone("qos", "MaxTRESPerJob=mem=100M", "QOSMaxMemoryPerJob", "--mem=2000", ["mem", "asks for"]),
    alone("qos", "MaxTRESPerNode=gres/gpu=1", "QOSMaxGRESPerNode", "-N1 --gres=gpu:2",
          ["1 gres/gpu on a node", "asks for 2"]),
    alone("qos", "MaxTRESPerNode=cpu=1", "QOSMaxCpuPerNode", "-c2", ["1 cpu on a node"]),
    alone("qos", "MaxWall=10", "QOSMaxWallDurationPerJobLimit", _HOUR, ["10 min", "asks for"]),
    alone("qos", "MinTRESPerJob=gres/gpu=2", "QOSMinGRES", "--gpus=1",
          ["fewer than 2 gres/gpu", "asks for 1"]),
    alone("qos", "MinTRESPerJob=cpu=2", "QOSMinCpuNotSatisfied", "-c1", ["fewer than 2 cpu"]),
    alone("qos", "MinTRESPerJob=mem=1G", "QOSMinMemory", "--mem=100", ["fewer than 1 GiB"]),
    alone("qos", "MinTRESPerJob=node=2", "QOSMinNode", "-N1", ["fewer than 2 node"]),
    alone("qos", "MaxTRESMinsPerJob=cpu=10", "QOSMaxCpuMinutesPerJobLimit", f"-c1 {_HOUR}",
          ["10 cpu minutes", "asks for 60"]),
    alone("qos", "MaxTRESMinsPerJob=gres/gpu=10", "QOSMaxGRESMinutesPerJob", f"--gpus=1 {_HOUR}",
          ["10 gres/gpu minutes", "asks for 60"]),
    together("account", "MaxJobs=1", "AssocMaxJobsLimit", "-c1", ["1 running job", "has 1"]),
    together("account", "GrpJobs=1", "AssocGrpJobsLimit", "-c1", ["1 running job", "has 1"]),
    together("account", "GrpTRES=cpu=1", "AssocGrpCpuLimit", "-c1", ["1 cpu", "has 1"]),
    together("account", "GrpTRES=mem=200M", "AssocGrpMemLimit", "--mem=200", ["mem"]),
    together("account", "GrpTRES=gres/gpu=1", "AssocGrpGRES", "--gpus=1", ["1 gres/gpu", "has 1"]),
    together("account", "GrpTRES=node=1", "AssocGrpNodeLimit", "-w n4",
             ["1 node", "has 1"], "-w n3"),
    together("account", "GrpTRESRunMins=cpu=60", "AssocGrpCPURunMinutesLimit", f"-c1 {_HOUR}",
             ["60 cpu minutes", "asks for 60"]),
    together("account", "GrpTRESRunMins=gres/gpu=60", "AssocGrpGRESRunMinutes",
             f"--gpus=1 {_HOUR}", ["60 gres/gpu minutes", "asks for 60"]),
    alone("account", "GrpTRESMins=cpu=0", "AssocGrpCPUMinutesLimit", f"-c1 {_HOUR}",
          ["0 cpu minutes"]),
    alone("account", "MaxTRES=cpu=1", "AssocMaxCpuPerJobLimit", "-c2", ["1 cpu", "asks for 2"]),
    alone("account", "MaxTRES=gres/gpu=1", "AssocMaxGRESPerJob", "--gpus=2",
          ["1 gres/gpu", "asks for 2"]),
    alone("account", "MaxTRES=node=1", "AssocMaxNodePerJobLimit", "-N2", ["1 node", "asks for 2"]),
    alone("account", "MaxTRES=mem=100M", "AssocMaxMemPerJob", "--mem=2000", ["mem", "asks for"]),
    alone("account", "MaxWall=10", "AssocMaxWallDurationPerJobLimit", _HOUR, ["10 min"]),
    alone("account", "MaxTRESMins=cpu=10", "AssocMaxCpuMinutesPerJobLimit", f"-c1 {_HOUR}",
          ["10 cpu minutes", "asks for 60"]),
    alone("account", "MaxTRESMins=gres/gpu=10", "AssocMaxGRESMinutesPerJob", f"--gpus=1 {_HOUR}",
          ["10 gres/gpu minutes", "asks for 60"]),
)  # fmt: skip
OTHERS = (
    Case(code="JobHeldUser", asks="--hold", says=["held by its user"], starts=NEVER),
    Case(code="JobHeldAdmin", asks="--begin=now+1hour", says=["held by an administrator"],
         then=["scontrol hold {job}"], starts=NEVER),
    Case(code="BeginTime", asks="--begin=now+1hour", says=["may not begin before"]),
    Case(code="Dependency", hog="-c1", asks="--dependency=afterok:{hog}", says=["waits for"],
         starts=""),
    Case(code="DependencyNeverSatisfied", hog="false", asks="--dependency=afterok:{hog}",
         says=["can never be"], starts=NEVER),
    Case(code="JobArrayTaskLimit", asks="--array=0-1%1", says=["as many tasks"], starts=""),
    Case(code="PartitionDown", asks="-p down", says=["partition is down"], starts=NEVER),
    Case(code="PartitionInactive", asks="-p idle --begin=now+10", says=["inactive"],
         starts=NEVER, then=["scontrol update partition=idle state=inactive"]),
    Case(code="PartitionTimeLimit", asks=f"-p short {_HOUR}", says=["10 min", "never starts so"],
         starts=NEVER),
    Case(code="PartitionNodeLimit", asks="-p small -N2", says=["2 nodes"], starts=NEVER),
    Case(code="ReqNodeNotAvail", asks="-p shut -w n2", says=["n2 is drained", "vendor case"],
         starts=NEVER),
    Case(code="Resources", hog="-p full --exclusive", asks="-p full --gpus=1", says=["n1"]),
    Case(code="Priority", asks="-p full --gpus=1 --nice=9", says=["higher priority", "first"]),
    Case(code="Licenses", hog="-L fluent:1", asks="-L fluent:1", says=["fluent", "1 exist"]),
    Case(code="Reservation", asks="--reservation=later", says=["reservation later"], starts=""),
    Case(code="InvalidQOS", qos="Priority=1", asks="--hold", says=["QOS"], starts=NEVER,
         then=[f"sacctmgr -i modify user {USER} set qos-={{qos}}", "scontrol release {job}"]),
    Case(code="MaxMemPerLimit", asks="-p tight --mem=5000", says=["memory"], starts=NEVER),
)  # fmt: skip
CASES = (*OTHERS, *LIMITS)


def lines(ports: Sequence[int]) -> list[str]:
    """Return lines of slurm.conf. n1 is full, n2 is closed, the others are for limits."""
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
    """Return a gres.conf with eight GPUs on each node."""
    return f"Name=gpu File={folder}/gpu[0-7]\n"


@dataclass
class Asked:
    """A case that was submitted, and its result."""

    case: Case
    job: str
    seen: str = ""
    answer: str = ""
    false: list[str] = field(default_factory=list)
    short: list[str] = field(default_factory=list)


class Suite:
    """The cases in one cluster."""

    def __init__(self, slurm: SlurmCluster, cases: Sequence[Case]) -> None:
        self.slurm, self.cases = slurm, cases

    def run(self) -> list[Asked]:
        """Bring all cases about, poll once, and judge. Return the results."""
        self._accounts()
        self.slurm.mark("n2", "drain", "vendor case")
        self.slurm.run(
            "scontrol", "create", "reservation", "reservationname=later", "starttime=now+2hours",
            "duration=60", "nodes=n1", f"users={USER}", "flags=ignore_jobs",
        )  # fmt: skip
        hogs = {i: self._hog(i, case) for i, case in enumerate(self.cases) if case.hog}
        self._until_begun(list(hogs.values()))
        asked = []
        for i, case in enumerate(self.cases):
            job = self._submit(i, case, case.asks.format(hog=hogs.get(i, "")))
            for command in case.then:
                self.slurm.run(*command.format(job=job, qos=f"q{i}").split(), check=False)
            asked.append(Asked(case, job))
        self._until_waiting(asked)
        self._judge(asked)
        return asked

    def _accounts(self) -> None:
        """A QOS, an account for each case that has limits."""
        qos = [(f"q{i}", case.qos) for i, case in enumerate(self.cases) if case.qos]
        own = [(f"a{i}", case.account) for i, case in enumerate(self.cases) if case.account]
        accounts = ",".join(["plain", *(name for name, _ in own)])
        self.slurm.account(
            "add account plain", *(f"add account {name} {limit}" for name, limit in own),
            f"add user {USER} Account={accounts} DefaultAccount=plain",
            *(f"add qos {name} {limit}" for name, limit in qos),
            f"modify user {USER} set qos+={','.join(name for name, _ in qos)}",
        )  # fmt: skip

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
        """Until each has its code, or the time is over."""
        over = time.monotonic() + WAIT_S
        while time.monotonic() < over and any(one.seen != one.case.code for one in asked):
            time.sleep(1.0)
            printed = self.slurm.run("squeue", "-h", "-r", "-o", "%i|%t|%r").stdout
            found = dict[str, str]()
            for line in printed.splitlines():
                number, state, reason = line.split("|", 2)
                if state == "PD":
                    found[number.partition("_")[0]] = reason.split(",")[0].strip("()")
            for one in asked:
                one.seen = found.get(one.job, "")

    def _judge(self, asked: Sequence[Asked]) -> None:
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


def judge(one: Asked, reason: SlurmReason, job_id: str, made: StartForecast | None) -> None:
    """Write down what of an answer is false, and what it lacks. `made` is the forecast."""
    one.answer = sentence(reason, job_id, time.time())
    if one.seen == one.case.code and reason.code.partition(",")[0] != one.seen:
        one.false.append(f"another word: {reason.code}")
    if "There is room" in one.answer:
        one.false.append("room in a limit that is used up")
    one.short = [part for part in one.case.says if part not in one.answer]
    if made is None:
        return
    if one.case.starts == NEVER and made.start_p50 is not None:
        one.false.append("a start is foreseen of a job that never starts so")
    if one.case.starts == LATER and made.estimate == ForecastKind.IMPOSSIBLE:
        one.false.append(f"no start ever of a job that starts later: {made.why_not}")


def report(asked: Sequence[Asked], took_s: float) -> Iterator[str]:
    """Yield the result of each case that is not right, and how many are right."""
    for one in asked:
        if one.seen != one.case.code:
            yield f"{one.case.code}: did not come about (Slurm says {one.seen or 'nothing'})"
        for what in one.false:
            yield f"{one.case.code}: FALSE: {what}; answered: {one.answer!r}"
        if one.short:
            yield f"{one.case.code}: short of {one.short}; answered: {one.answer!r}"
    about = [one for one in asked if one.seen == one.case.code]
    false = sum(bool(one.false) for one in about)
    right = sum(not one.false and not one.short for one in about)
    yield (
        f"{len(about)} of {len(asked)} codes came about in {took_s:.0f} s: {right} answers right, "
        f"{len(about) - right - false} short, {false} false"
    )


def main(codes: Sequence[str]) -> int:
    """Run the cases of these codes, or all where none is named. Return the exit status."""
    cases = [case for case in CASES if not codes or case.code in codes]
    began = time.monotonic()
    with SlurmCluster(accounting=True, own=Own(4, gres, lines)) as slurm:
        try:
            asked = Suite(slurm, cases).run()
        finally:
            slurm.run("scancel", "-u", USER)
            until(lambda: not slurm.run("squeue", "-h", "-t", "R,CG").stdout, "all to be gone")
    for line in report(asked, time.monotonic() - began):
        print(line)
    return int(any(one.false or one.seen != one.case.code for one in asked))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
