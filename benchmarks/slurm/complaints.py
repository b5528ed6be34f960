"""Repeats complaints that users of Slurm made in public, on real daemons, and judges the answers.

`python -m benchmarks.slurm.complaints` (as root) starts one cluster in which each complaint has
nodes, or limits, of its own. For each it asks why the job waits, or whether Slurm would accept the
job. The answer is compared with what settled the complaint, or with the manual. `--only NAME` plays
one complaint. Exit status 1: fewer than nine in ten answers are right, or an answer is false.
"""

from __future__ import annotations

import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.slurm import SlurmCluster
from benchmarks.slurm.config import Own
from benchmarks.slurm.processes import until
from features.codec import decode
from scheduler.assembly import CoreSpec
from scheduler.explain.effect import Sooner
from scheduler.explain.words import ForecastKind
from scheduler.service.log.header import FOLLOWED, LogHeader
from scheduler.service.log.questions import ETA, TRIED
from scheduler.slurm.follow.follower import Follower, Following
from scheduler.slurm.read.client import Slurm
from scheduler.slurm.read.shape import Shape
from scheduler.slurm.read.table import Table
from scheduler.slurm.reason import sentence

USER, OTHER = "backup", "games"
WAIT_S, SETTLE_S = 60.0, 8.0
NEVER, LATER = "never", "later"
HOUR = "-t 60"
ENOUGH = 0.9  # of the complaints
NODES = 16


@dataclass(frozen=True, kw_only=True)
class Complaint:
    """A job whose waiting or refusal somebody complained of in public.

    Attributes:
        source: the public thread with the complaint.
        asks: options of sbatch; ``{hog}`` stands for the id of the job that was there first.
        says: parts that a right answer contains; of two parts joined by "|", one is enough.
        hogs: options of the jobs that are submitted first; one that begins with ``@`` belongs to
            another user, one that begins with ``!`` fails.
        before: commands that run before the job is submitted.
        then: commands that run after the job is submitted.
        refused: Slurm refuses the job, and the answer before submission must say so.
        offers: a word that one of the offered commands must contain; "": any.
        starts: what a right answer states of the unchanged job: it starts "later", or "never"; "":
            not checked.
    """

    source: str
    asks: str
    says: Sequence[str] = ()
    hogs: Sequence[str] = ()
    before: Sequence[str] = ()
    then: Sequence[str] = ()
    refused: bool = False
    offers: str = ""
    starts: str = ""


COMPLAINTS = (
    Complaint(
        source="ArjunaCluster/ArjunaUsers#257",  # an idle node, its GPUs free
        hogs=["@-p mem --mem=510000"],
        asks="-p mem -w n1 --gres=gpu:1 -n4 --mem=10G",
        says=["memory is", "10 GiB"],
        offers="minmemorynode=",
        starts=LATER,
    ),
    Complaint(source="nebius/soperator#1521", asks="-p cpu --gres=gpu:1", refused=True),
    Complaint(source="ArjunaCluster/ArjunaUsers#112", asks="-p spec -N1 -n56", refused=True),
    Complaint(source="rcgsheffield/sheffield_hpc#1042", asks="-N1 --gpus-per-node=1", refused=True),
    Complaint(
        source="SckyzO/slurm_exporter#146",
        asks="-p debug -t 120",
        says=["it asks for 2 h, and partition debug allows 30 min"],
        offers="timelimit=30",
        starts=NEVER,
    ),
    Complaint(
        source="aiidateam/aiida-core#4567",
        asks="-A walled -t 120",
        says=["may ask for 10 min at most, and this job asks for 2 h"],
        offers="timelimit=10",
        starts=NEVER,
    ),
    Complaint(
        source="AMDResearch/hpcfund#45",
        asks="-p mi -t 4-0",
        refused=True,
    ),
    Complaint(
        source="SlinkyProject/slurm-bridge#10",  # counted as all CPUs of a node
        asks="-p whole --qos=four -c1 --exclusive",
        says=["QOS four may have 4 cpu at once (GrpTRES)"],
    ),
    Complaint(
        source="ArjunaCluster/ArjunaUsers#70",
        asks="--qos=units --mem=2000",
        says=["QOS units", "mem", "1.953 GiB"],
        starts=NEVER,
    ),
    Complaint(
        source="RobertsLab/resources#1531",
        asks="-p kept -t 240:00:00 --mem=110G",
        says=["reservation upkeep|upkeep"],
        offers="timelimit=",
        starts=LATER,
    ),
    Complaint(
        source="clusterinthecloud/terraform#19",
        asks="-p five -N3 --exclusive",
        says=["n7", "down"],
        offers="numnodes=2",
    ),
    Complaint(
        source="mace-cream/clusterhowto#2",
        asks="-p six -N3 --exclusive",
        says=["n8", "drained", "disk swap"],
        offers="numnodes=2",
    ),
    Complaint(
        source="montefiore-institute/alan-cluster#24",
        hogs=["@-p old -w n9 --gres=gpu:8"],
        asks="-p old --gres=gpu:2 --mem-per-cpu=10240",
        says=["n9", "n8"],
        starts=LATER,
    ),
    Complaint(
        source="clusterinthecloud/terraform#11",
        asks="-p low --gres=gpu:1",
        says=["n10", "drained", "Low RealMemory"],
    ),
    Complaint(
        source="desihub/desispec#2682",
        hogs=["!"],
        asks="--dependency=afterok:{hog}",
        says=["can never happen any more; cancel it."],
        starts=NEVER,
    ),
    Complaint(
        source="oracle-quickstart/oci-hpc#23",
        asks="--array=2-9%2",
        says=["as many tasks of its array run as the array allows at once."],
    ),
    Complaint(source="marbl/canu#1218", asks="-A few --array=1-137", refused=True),
    Complaint(source="marbl/canu#1398", asks="-p gpu -n1 -c32 --mem-per-cpu=100G", refused=True),
    Complaint(
        source="snakemake/snakemake-executor-plugin-slurm#104",
        asks="-p gpu --gres=gpu:1 -C nvgpu",
        refused=True,
    ),
    Complaint(
        source="aws/aws-parallelcluster#5731",  # the node with its feature is gone
        hogs=["@-p spot --exclusive"],
        asks="-p spot -C spotted",
        then=["scontrol update nodename=n11 availablefeatures=other activefeatures=other"],
        says=["spotted|feature|constraint"],
        starts=NEVER,
    ),
    Complaint(source="meta-pytorch/torchforge#590", asks="-p gpu --mem=2T", refused=True),
    Complaint(source="mknoxnv/ubuntu-slurm#9", asks="-p greedy -N1", refused=True),
    Complaint(
        source="CSCfi/csc-user-guide#765",  # no job of one's own runs
        hogs=["@--qos=shared -p gpu --gres=gpu:2"],
        asks="--qos=shared -p gpu --gres=gpu:1",
        says=[
            "QOS shared may have 2 gres/gpu at once (GrpTRES), has 2, and this job asks for 1 more"
        ],
        starts=LATER,
    ),
    Complaint(
        source="hpcugent/vsc_user_docs#416",
        hogs=["@-p pair -w n13 --exclusive -t 120", "@-p pair -N2 --exclusive -t 600"],
        asks="-p pair --exclusive -t 600 --nice=100",
        says=["1 job of higher priority in its partition goes first"],
        offers="timelimit=",
        starts=LATER,
    ),
    Complaint(
        source="lyulyul/shine-cluster#170",
        hogs=["@-p speedy --exclusive"],
        asks="-p normal -w n14 --gres=gpu:1",
        says=["n14"],
        starts=LATER,
    ),
    Complaint(
        source="burrmill/burrmill#15",  # a prolog fails
        asks="-p broken -N1",
        says=["scontrol release {job}|administrator"],
        starts=NEVER,
    ),
)  # fmt: skip
ACCOUNTS = (
    "add account plain", "add account walled MaxWall=10", "add account few",
    "add qos four GrpTRES=cpu=4", "add qos units MaxTRESPerUser=mem=1000M",
    "add qos shared GrpTRES=gres/gpu=2", "add qos day MaxWall=1-0 Flags=DenyOnLimit",
    f"add user {USER} Account=plain,walled,few DefaultAccount=plain",
    f"add user {OTHER} Account=plain",
    f"modify user {USER} where account=few set MaxSubmitJobs=100",
    f"modify user {USER},{OTHER} set qos+=four,units,shared",
)  # fmt: skip


def site() -> Own:
    """Return the nodes and partitions of the cluster in which the complaints are played."""
    at: list[Path] = []  # its folder

    def gres_in(folder: Path) -> str:
        at.append(folder)
        return gres(folder)

    return Own(NODES, gres_in, lambda ports: lines(ports, at[0]))


def gres(folder: Path) -> str:
    """Return the text of a gres.conf for a cluster in `folder`: eight GPUs on every node but
    two.
    """
    return f"NodeName=n[1,4-16] Name=gpu File={folder}/gpu[0-7]\n"


def lines(ports: Sequence[int], folder: Path) -> list[str]:
    """Return the lines of slurm.conf that define the nodes and partitions for each kind of
    complaint.
    """
    host = socket.gethostname()
    more = {2: "", 3: "CoreSpecCount=2", 11: "Gres=gpu:8 Feature=spotted"}
    nodes = [
        f"NodeName=n{i} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=56 "
        f"RealMemory=512000 {more.get(i, 'Gres=gpu:8')}"
        for i, port in enumerate(ports, start=1)
    ]
    prolog = folder / "prolog"
    prolog.write_text('#!/bin/sh\n[ "$SLURM_JOB_PARTITION" != broken ]\n')
    prolog.chmod(0o755)
    parts = {
        "cpu": "n2 Default=YES", "mem": "n1", "spec": "n3", "gpu": "n4", "debug": "n4 MaxTime=30",
        "mi": "n4", "whole": "n4", "kept": "n12", "five": "n[5-7]", "six": "n[5-6,8]",
        "old": "n[8-9]", "low": "n10", "spot": "n11", "greedy": "n4 DefMemPerNode=900000",
        "pair": "n[13,16]", "speedy": "n14", "normal": "n14", "broken": "n15",
    }  # fmt: skip
    return [
        "GresTypes=gpu", "PriorityType=priority/multifactor", "PriorityWeightAge=1000",
        "AccountingStorageTRES=gres/gpu", "AccountingStorageEnforce=limits,qos",
        f"Prolog={prolog}",
        "SchedulerParameters=bf_interval=1,sched_interval=1,default_queue_depth=1000", *nodes,
        *(f"PartitionName={name} Nodes={of} State=UP" for name, of in parts.items()),
    ]  # fmt: skip


@dataclass
class Asked:
    """A complaint that was played on the daemons, and how its answer was judged."""

    complaint: Complaint
    job: str = ""
    code: str = ""
    answer: str = ""
    offers: Sequence[str] = ()
    false: list[str] = field(default_factory=list)
    short: list[str] = field(default_factory=list)
    took_s: float = 0.0


class Played:
    """Plays complaints in one running cluster."""

    def __init__(self, slurm: SlurmCluster) -> None:
        self.slurm = slurm

    def run(self, complaints: Sequence[Complaint]) -> list[Asked]:
        """Submit the jobs of all complaints, and judge the answers at one reading of Slurm's state.
        Then, for each that is offered changes, read Slurm's state again and make the first one:
        changes made for others may have taken its room. Return the results."""
        self.slurm.account(*ACCOUNTS)
        self.slurm.run("scontrol", "update", "partitionname=mi", "qos=day")
        for node, why in (("n8", "disk swap"), ("n10", "Low RealMemory")):
            self.slurm.mark(node, "drain", why)
        self.slurm.kill_node("n7")
        until(lambda: "down" in self.slurm.node_states()["n7"], "n7 to be down", WAIT_S)
        self.slurm.run(
            "scontrol",
            "create",
            "reservation",
            "reservationname=upkeep",
            "starttime=now+2hours",
            "duration=120",
            "nodes=n12",
            "users=root",
            "flags=maint,ignore_jobs",
        )
        hogs = {one.source: [self._submit(hog) for hog in one.hogs] for one in complaints}
        time.sleep(SETTLE_S)
        asked = [Asked(one) for one in complaints]
        for one in asked:
            if not one.complaint.refused:
                first = next(iter(hogs[one.complaint.source]), "")
                one.job = self._submit(one.complaint.asks.format(hog=first))
        time.sleep(SETTLE_S)
        for one in asked:
            for command in one.complaint.then:
                self.slurm.run(*command.split())
        time.sleep(SETTLE_S)
        follower = self._followed()
        for one in asked:
            if one.complaint.refused:
                self._before(one, follower)
            else:
                self._waiting(one, follower)
        for one in asked:
            if one.offers:
                follower.look()
                self._carry_out(one, decode(Sooner, follower.answer(TRIED, {"job_id": one.job})))
        return asked

    def _submit(self, asks: str) -> str:
        user, command = (OTHER, "sleep 6000") if asks[:1] == "@" else (USER, "sleep 6000")
        command = "exit 1" if asks[:1] == "!" else command
        words = asks.removeprefix("@").removeprefix("!").split()
        time_limit = () if "-t" in words else HOUR.split()
        plain = ("--parsable", "--output=/dev/null", "--chdir=/tmp", *time_limit)
        done = self.slurm.run("sbatch", *plain, *words, "--wrap", command, user=user)
        return done.stdout.strip()

    def _followed(self) -> Follower:
        of = Slurm(self.slurm.environment)
        shape = Shape.followed(of.nodes())
        spec = CoreSpec.of(shape.spec, "slurm")
        header = LogHeader(spec, time.time(), backend=FOLLOWED, names=shape.names)
        follower = Follower(header, shape, of, None, Following(table=Table(of)))
        follower.look()
        return follower

    def _before(self, one: Asked, follower: Follower) -> None:
        """Ask, before submission, about a job that Slurm refuses. Judge the answer in `one`."""
        words = one.complaint.asks.split()
        if "-t" not in words:
            words += HOUR.split()
        done = self.slurm.run(
            "sbatch", "--chdir=/tmp", *words, "--wrap", "true", user=USER, check=False
        )
        if not done.returncode:
            one.false.append("Slurm takes it: this is no such complaint")
            return
        one.code = " ".join(done.stderr.split())
        began = time.monotonic()
        answer = follower.answer(ETA, {"options": words, "user": USER})
        one.took_s = time.monotonic() - began
        one.answer = str(answer.get("refused") or answer)
        named = answer.get("asked") or ()
        for made in answer.get("tried") or ():
            if made["partition"] in named and made["start_p50"] is not None:
                one.false.append("a start is foreseen of a job that Slurm refuses")

    def _waiting(self, one: Asked, follower: Follower) -> None:
        """Ask why a submitted job waits and what would help. Judge the answers in `one`."""
        words = self.slurm.run("squeue", "-h", "-j", one.job, "-t", "PD", "-o", "%i|%r")
        job_id, _, one.code = words.stdout.strip().partition("\n")[0].partition("|")
        known = {job.partition("_")[0]: job for job in follower.reasons}
        job_id = known.get(one.job, one.job)
        reason = follower.reasons.get(job_id)
        if reason is None:
            one.false.append(f"no reason at all; squeue says {one.code}")
            return
        one.answer = sentence(reason, job_id, time.time())
        parts = [part.format(job=one.job) for part in one.complaint.says]
        one.short += [p for p in parts if not any(w in one.answer for w in p.split("|"))]
        if "There is room" in one.answer:
            one.false.append("room in a limit that keeps it waiting")
        made = None if job_id in follower._withheld else follower._forecasts.get(job_id)
        if made is not None:
            if one.complaint.starts == NEVER and made.start_p50 is not None:
                one.false.append("a start is foreseen of a job that never starts so")
            if one.complaint.starts == LATER and made.estimate == ForecastKind.IMPOSSIBLE:
                one.false.append(f"no start ever of a job that starts later: {made.why_not}")
        began = time.monotonic()
        found = decode(Sooner, follower.answer(TRIED, {"job_id": job_id}))
        one.took_s = time.monotonic() - began
        one.offers = [offer.command for offer in found.tried]
        if one.complaint.offers and not any(one.complaint.offers in o for o in one.offers):
            one.short.append(f"the offer {one.complaint.offers}")

    def _carry_out(self, one: Asked, found: Sooner) -> None:
        """Make the first change that the answer `found` offers, and record in `one` what
        follows.
        """
        for offer in found.tried[:1]:
            done = self.slurm.run(*offer.command.split(), user=USER, check=False)
            if done.returncode:
                one.false.append(f"refused: {offer.command}: {' '.join(done.stderr.split())}")
            elif not offer.reason and not self._starts(one.job):
                one.false.append(f"not at once: {offer.command}")

    def _starts(self, job: str) -> bool:
        over = time.monotonic() + WAIT_S / 2
        while time.monotonic() < over:
            if not self.slurm.run("squeue", "-h", "-j", job, "-t", "PD", "-o", "%i").stdout:
                return True
            time.sleep(0.5)
        return False


def report(asked: Sequence[Asked], took_s: float) -> Iterator[str]:
    """Yield lines of text: each answer, and how many answers are right."""
    for one in asked:
        word = "FALSE" if one.false else "SHORT" if one.short else "right"
        yield f"{word} {one.complaint.source} ({one.code}): {one.answer} {list(one.offers)}"
        yield from (f"    {what}" for what in (*one.false, *map("short of {}".format, one.short)))
    right = sum(not one.false and not one.short for one in asked)
    false = sum(bool(one.false) for one in asked)
    yield (
        f"{len(asked)} complaints in {took_s:.0f} s: {right} right, "
        f"{len(asked) - right - false} short, {false} false; a question took "
        f"{max(one.took_s for one in asked):.1f} s at most"
    )


def main(only: Sequence[str]) -> int:
    """Play the complaints named, or all where none is. Return the exit status."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that all is taken down
    chosen = [one for one in COMPLAINTS if not only or any(w in one.source for w in only)]
    began = time.monotonic()
    with SlurmCluster(accounting=True, own=site()) as slurm:
        try:
            asked = Played(slurm).run(chosen)
        finally:
            for user in (USER, OTHER):
                slurm.run("scancel", "-u", user, check=False)
            until(lambda: not slurm.run("squeue", "-h", "-t", "R,CG").stdout, "all to be gone")
    for line in report(asked, time.monotonic() - began):
        print(line)
    right = sum(not one.false and not one.short for one in asked)
    return int(right < ENOUGH * len(asked) or any(one.false for one in asked))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
