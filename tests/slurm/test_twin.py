"""The policy `slurm` beside the slurmctld it stands for."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from benchmarks.slurm import SlurmCluster
from scheduler.assembly import CoreSpec
from scheduler.service.log.header import FOLLOWED, LogHeader
from scheduler.slurm.follow.follower import Follower, Following
from scheduler.slurm.read.client import Slurm
from scheduler.slurm.read.shape import Shape
from scheduler.slurm.read.site import asks_of, read_site, slurm_word
from scheduler.slurm.read.table import Table
from scheduler.slurm.reason import sentence, whole
from scheduler.slurm.twin.policy import Slurm as SlurmPolicy
from scheduler.slurm.twin.priority import Multifactor, Terms
from scheduler.slurm.twin.site import Ask, Site
from tests.slurm.site import client
from tests.waiting import until

USERS = ("backup", "games", "mail")
SPRIO = "%i|%r|%Y|%A|%F|%J|%P|%Q|%T|%B|%N|%S"


@pytest.fixture(scope="module")
def university() -> Iterator[SlurmCluster]:
    """Full, with jobs of three users waiting for every kind of reason, and some usage."""
    with SlurmCluster(university=True, accounting=True) as slurm:
        slurm.account(
            "add account physics Fairshare=30",
            "add account chem Fairshare=10",
            "add account bio parent=physics Fairshare=5",
            "add user backup Account=physics Fairshare=10",
            "add user games Account=chem",
            "add user mail Account=bio GrpTRES=gres/gpu=2",
            "add qos high Priority=100",
            "add qos limited Priority=10 MaxJobsPerUser=1 GrpTRES=gres/gpu=4",
            "modify account physics set qos=normal,high,limited",
        )
        for user, asked in (
            ("games", "-N3 --exclusive -t 9"),
            ("games", "-N2 --gpus-per-node=2 --ntasks-per-node=2 --cpus-per-gpu=2 --exclude=n1"),
            ("backup", "--gpus=2080ti:8 -N1 -n1 -t 20"),
            ("backup", "--gres=gpu:2080ti:8 -t 20 --cpus-per-task=4"),
            ("games", "--gres=gpu:a100:2 -p long -t 30"),
            ("mail", "--gpus=2"),
            ("mail", "--gpus=1"),
            ("games", "-p cpu -n 4 -L matlab:2"),
            ("games", "-p cpu -n 4 -L matlab:1"),
            ("backup", "-p long --gres=gpu:2080ti:8 --qos=high -t 120 --nice=50"),
            ("backup", "--qos=limited --gpus=1"),
            ("backup", "--qos=limited --gpus=1"),
            ("backup", "-t 300 --gpus=1"),
            ("backup", "--array=1-5%2 --gres=gpu:1 -C ampere --mem=40G"),
            ("backup", "-C ampere|turing --gpus=1 -p long -N1 --exclusive"),
        ):
            script = ["--output=/dev/null", "--chdir=/tmp", "--wrap", "sleep 600"]
            slurm.run("sbatch", *asked.split(), *script, user=user)
        yield slurm


def rounded(terms: Terms) -> tuple[int, ...]:
    """As `sprio` prints them."""
    parts = (terms.age, terms.fairshare, terms.jobsize, terms.partition, terms.qos)
    return tuple(round(one) for one in (*parts, terms.assoc, float(terms.nice)))


def wrong(site: Site, asks: dict[str, Ask], told: list[list[str]], now: float) -> list[str]:
    """Where terms, rounded as `sprio` does, or priorities are others when computed at `now`."""
    weights, found = Multifactor(site), []
    for job_id, part, priority, age, fair, size, in_part, qos, tres, assoc, nice, _ in told:
        ask = asks.get(job_id) or next(a for a in asks.values() if a.array == job_id)
        terms = weights.terms(ask, site.partitions[part], now)
        said = tuple(int(one) for one in (age, fair, size, in_part, qos, assoc, nice))
        by_name = dict(one.partition("=")[::2] for one in tres.split(","))
        off = any(abs(a - b) > 1 for a, b in zip(rounded(terms), said, strict=True))
        off |= any(abs(int(by_name.get(n, 0)) - x) > 1 for n, x in terms.tres.items())
        if off or abs(terms.total - int(priority)) > 1:
            found.append(f"{job_id} in {part}: {terms} = {terms.total}; {priority} {said} {tres}")
    return found


def test_terms_are_sprios_for_every_waiting_job(university: SlurmCluster) -> None:
    slurm: Slurm = client(university)
    table = Table(slurm)

    def agrees() -> bool:
        before = university.run("sprio", "-h", "-o", SPRIO).stdout
        site = read_site(slurm, slurm.nodes())
        asks = asks_of(table.jobs(), site)
        same = university.run("sprio", "-h", "-o", SPRIO).stdout == before
        assert same, "computed anew meanwhile"
        told = [line.split("|") for line in before.splitlines()]
        assert len(told) >= 9
        assert any(assoc.usage for assoc in site.assocs.values())
        now = time.time()  # Slurm computes them once a minute: at which moment it does not say
        tries = [wrong(site, asks, told, now - back) for back in range(-2, 75)]
        assert not min(tries, key=len)
        return True

    until(agrees, "them to agree", not_yet=(AssertionError,), every_s=2.0, patience_s=300.0)


def test_every_job_has_slurms_own_reason_and_priority(university: SlurmCluster) -> None:
    slurm = client(university)
    shape = Shape.followed(slurm.nodes())
    spec = CoreSpec.of(shape.spec, "slurm")
    header = LogHeader(spec, time.time(), backend=FOLLOWED, names=shape.names)
    follower = Follower(header, shape, slurm, None, Following(table=Table(slurm)))
    snapshot = follower.look()
    policy = snapshot.core.policy
    assert isinstance(policy, SlurmPolicy)
    assert not snapshot.left_out
    assert len(snapshot.waiting) >= 12
    assert not [d for d in snapshot.decisions if d.job_id in snapshot.core.cluster.runs]
    reasons = {job.id: slurm_word(job.reason) for job in snapshot.waiting.values()}
    assert {job_id: policy.reasons[job_id].reason for job_id in reasons} == reasons
    for job_id, job in snapshot.waiting.items():
        why = follower.reasons[job_id]
        assert why.code == reasons[job_id]
        assert sentence(why, job_id, snapshot.now)
        if job.accrue is not None and job.qos != "high":
            assert why.priority == job.priority
            assert abs(sum(term.points for term in why.terms) - job.priority) <= 4
    every = " ".join(whole(why, job, snapshot.now) for job, why in follower.reasons.items())
    assert "user mail in account bio may have 2 gres/gpu at once (GrpTRES), has 2" in every
    assert (
        "user backup in QOS limited may have 1 running job at once (MaxJobsPU), and has 1" in every
    )
    assert "partition short allows 1 h" in every
    assert "Pellucid: its own policy" in every
