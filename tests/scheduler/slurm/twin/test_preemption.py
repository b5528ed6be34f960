"""Preemption as Slurm has it: who makes way for whom, and what becomes of who did."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from features.job import Job
from scheduler.core.cluster import Cluster, ClusterSpec
from scheduler.core.core import Core
from scheduler.core.decisions import Action, Decision
from scheduler.simulation.engine import Engine
from scheduler.simulation.loop import JobResult
from scheduler.simulation.work import PairTable, Work
from scheduler.slurm.twin.capacity import Capacity
from scheduler.slurm.twin.limits import Usage
from scheduler.slurm.twin.passes import Passes, in_order, ranks
from scheduler.slurm.twin.policy import Slurm
from scheduler.slurm.twin.preemption import Preemption
from scheduler.slurm.twin.priority import Multifactor
from scheduler.slurm.twin.site import Ask, Partition, Qos, Running, Share, Site, SiteNode

NOW, HOUR = 1_000_000.0, 3600.0
NODES = {name: SiteNode(name, 8, 64_000, (("gpu", 8),)) for name in ("n1", "n2")}
PARTITIONS = {
    "prod": Partition("prod", frozenset(NODES), tier=5),
    "scav": Partition("scav", frozenset(NODES), tier=1, preempted="REQUEUE"),
    "other": Partition("other", frozenset({"n2"}), tier=2, preempted="CANCEL"),
}
SITE = Site(NODES, PARTITIONS, config={"PreemptType": "preempt/partition_prio"})
BY_QOS = {
    "high": Qos("high", 9, preempts=frozenset({"low", "mid"})), "low": Qos("low", 1),
    "mid": Qos("mid", 2, preempted="CANCEL"),
}  # fmt: skip


def run(name: str, node: str, gpus: int, *, since_s: float = 600.0, **asked: Any) -> Running:
    ask = Ask(name, partitions=("scav",), shares=(Share(node, 1, 100.0, (("gpu", gpus),)),))
    return Running(replace(ask, **asked), NOW - since_s, NOW + HOUR)


def look(site: Site, ask: Ask, *runs: Running, backfill: bool = False) -> Passes:
    """A pass of a job over a cluster on which these run."""
    capacity, there = Capacity.of(site), {one.ask.job_id: one for one in runs}
    for one in runs:
        capacity.take(one.ask.shares)
    passes = Passes(site, NOW, capacity, Usage(), there)
    line = in_order(ranks(site, ask, Multifactor(site), NOW))
    if backfill:
        passes.backfill(line, 100, 86_400.0, 1.0)
    else:
        passes.main(line, 100)
    return passes


def wants(gpus: int, **asked: Any) -> Ask:
    said: dict[str, Any] = {"partitions": ("prod",), "time_limit_s": HOUR, "max_nodes": 1}
    return Ask("new", gpus=(("gpu", gpus),), **said | asked)


@pytest.mark.parametrize("backfill", [False, True])
def test_only_those_make_way_without_whom_it_does_not_fit(*, backfill: bool) -> None:
    few, many, far = run("few", "n1", 2), run("many", "n1", 6), run("far", "n2", 8)
    found = look(SITE, wants(4), few, many, far, backfill=backfill)
    assert {name: by for name, (_, by) in found.preempted.items()} == {"many": "new"}
    assert [share.node for share in found.started["new"][1]] == ["n1"]
    assert set(found.running) == {"few", "far", "new"}
    assert found.capacity.free["n1"].gpus == {"gpu": 2}
    few = run("few", "n1", 2, since_s=0.5)  # as soon as it began
    alone = look(SITE, wants(8), few, many, run("busy", "n2", 8, partitions=("prod",)))
    assert set(alone.preempted) == {"few", "many"}


@pytest.mark.parametrize("backfill", [False, True])
@pytest.mark.parametrize(
    ("site", "ask", "runs"),
    [
        (SITE, {"partitions": ("scav",)}, {}),  # of its own tier
        (replace(SITE, config={}), {}, {}),
        (SITE, {}, {"since_s": 60.0, "qos": "spared"}),  # not for so long
        (SITE, {"partitions": ("other",)}, {}),  # its nodes are elsewhere
        (
            replace(SITE, partitions={
                n: replace(p, preempted="SUSPEND") for n, p in PARTITIONS.items()
            }),
            {}, {},
        ),
        (replace(SITE, config={"PreemptType": "preempt/qos"}, qos=BY_QOS), {"qos": "mid"}, {}),
    ],
)  # fmt: skip
def test_nobody_makes_way_where_slurm_says_so(
    site: Site, ask: dict[str, Any], runs: dict[str, Any], *, backfill: bool
) -> None:
    site = replace(site, qos=site.qos | {"spared": Qos("spared", exempt_s=300.0)})
    there = run("a", "n1", 8, **{"qos": "low"} | runs), run("b", "n2", 8, partitions=("prod",))
    found = look(site, wants(4, **ask), *there, backfill=backfill)
    assert not found.preempted
    assert not found.started


def test_by_qos_the_lowest_goes_first_and_each_as_its_own_says() -> None:
    site = replace(SITE, config={"PreemptType": "preempt/qos", "PreemptMode": "REQUEUE"})
    site = replace(site, qos=BY_QOS)
    runs = run("b", "n1", 8, qos="mid"), run("a", "n2", 8, qos="low")
    assert set(look(site, wants(4, qos="high"), *runs).preempted) == {"a"}
    how = Preemption(site)
    assert [how.mode(qos, "scav") for qos in ("low", "mid", "high")] == ["REQUEUE", "CANCEL", ""]


def test_the_youngest_goes_first_where_a_site_says_so() -> None:
    runs = run("old", "n1", 8), run("young", "n2", 8, since_s=60.0)
    assert set(look(SITE, wants(4), *runs).preempted) == {"old"}
    config = {**SITE.config, "PreemptParameters": "youngest_order,strict_order"}
    assert set(look(replace(SITE, config=config), wants(4), *runs).preempted) == {"young"}


def played(mode: str, config: dict[str, str]) -> tuple[dict[str, JobResult], list[Decision]]:
    """A job of an hour that makes way after a minute for one of ten."""
    low = replace(PARTITIONS["scav"], preempted=mode)
    site = replace(SITE, partitions=PARTITIONS | {"scav": low}, config=SITE.config | config)
    policy = Slurm()
    jobs = [Job(name, at, 16, "u", "vc") for name, at in (("low", 0.0), ("high", 60.0))]
    asks = {
        "low": Ask("low", partitions=("scav",), nodes=2, gpus=(("gpu", 16),), time_limit_s=7200.0),
        "high": Ask("high", partitions=("prod",), nodes=2, gpus=(("gpu", 16),), time_limit_s=900.0),
    }
    policy.see(site, list(NODES), asks)
    core = Core(Cluster(ClusterSpec({"vc": 2}, 8)), policy)
    decisions: list[Decision] = []
    work = {"low": Work(HOUR), "high": Work(600.0)}
    engine = Engine(core, jobs, work, PairTable({}), sink=decisions.extend)
    return {one.job.job_id: one for one in engine.run().jobs}, decisions


def test_who_is_requeued_begins_again_from_nothing_once_its_credential_is_void() -> None:
    jobs, decisions = played("REQUEUE", {"AuthInfo": "cred_expire=30"})
    (made_way,) = (d for d in decisions if d.action is Action.PREEMPT)
    assert (made_way.job_id, made_way.blocker) == ("low", "high")
    low, high = jobs["low"], jobs["high"]
    assert high.start_time is not None
    assert 60.0 <= high.start_time <= 63.0
    again = [d.time for d in decisions if d.action is Action.START and d.job_id == "low"][1]
    assert high.end_time is not None
    assert again == pytest.approx(high.end_time, abs=60.0)
    assert low.end_time == again + HOUR
    assert low.preemptions == 1
    waits = [d for d in decisions if d.action is Action.WAIT and d.job_id == "low"]
    assert waits


def test_who_is_cancelled_is_gone() -> None:
    jobs, decisions = played("CANCEL", {})
    (made_way,) = (d for d in decisions if d.action is Action.CANCEL)
    assert made_way.job_id == "low"
    assert jobs["low"].end_time == made_way.time == jobs["high"].start_time
