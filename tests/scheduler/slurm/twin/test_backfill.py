"""Rules of slurmctld's backfill and limits that were read off its log: which plan it makes."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any
from unittest import mock

import pytest

from scheduler.assembly import CoreSpec, assemble
from scheduler.core.decisions import Action
from scheduler.core.estimates import Estimator
from scheduler.slurm.follow.checks import against_slurm
from scheduler.slurm.read.parse import Node, SlurmJob
from scheduler.slurm.read.shape import Shape
from scheduler.slurm.read.snapshot import ClusterSnapshot, build_snapshot
from scheduler.slurm.twin.capacity import Capacity
from scheduler.slurm.twin.clock import Clock, Rhythm
from scheduler.slurm.twin.limits import Usage, first_hit
from scheduler.slurm.twin.passes import Passes, Ranked, Space, in_order, ranks
from scheduler.slurm.twin.policy import Slurm, since_calculated
from scheduler.slurm.twin.priority import FairShare, Multifactor
from scheduler.slurm.twin.site import (
    Ask,
    Assoc,
    Limits,
    Partition,
    Qos,
    Running,
    Share,
    Site,
    SiteNode,
)

NOW = 1_200_000.0
NODES = {name: SiteNode(name, 8, 64_000, (("gpu", 4),)) for name in ("n1", "n2", "n3")}
PARTITION = Partition("all", frozenset(NODES))
SITE = Site(NODES, {"all": PARTITION}, config={"AccountingStorageEnforce": "limits"})


def running(name: str, node: str, until: float, *, listed: float = 0.0) -> Running:
    shares = (Share(node, 1, 100.0, (("gpu", 4),)),)
    return Running(Ask(name, shares=shares), NOW - 60, until, listed)


def starts_at(*runs: Running, names: tuple[str, ...]) -> float:
    """When a job of four GPUs could have one of these nodes, by time limits."""
    capacity = Capacity.of(SITE)
    for run in runs:
        capacity.take(run.ask.shares)
    passes = Passes(SITE, NOW + 0.9, capacity, Usage(), {run.ask.job_id: run for run in runs})
    assert passes.now == NOW, "moments are whole seconds"
    found = passes._will_run(Ask("new", gpus=(("gpu", 4),), gpus_per_node=True), PARTITION, names)
    assert found is not None
    return found[0] - NOW


def test_ends_of_half_a_minute_are_taken_together() -> None:
    assert starts_at(running("a", "n1", NOW + 60), names=("n1",)) == 60
    both = running("a", "n1", NOW + 60), running("b", "n2", NOW + 100)
    assert starts_at(*both, names=("n1", "n2")) == 100
    apart = running("a", "n1", NOW + 60), running("b", "n2", NOW + 130)
    assert starts_at(*apart, names=("n1", "n2")) == 60


def test_the_end_after_one_on_other_nodes_is_taken_with_the_one_before() -> None:
    """Slurm asks how far the next end is only after one that matters to the job."""
    runs = (
        running("a", "n1", NOW + 60),
        running("elsewhere", "n3", NOW + 70),
        running("b", "n2", NOW + 500),
    )
    assert starts_at(*runs, names=("n1", "n2")) == 500


def test_of_ends_in_one_second_that_of_the_older_record_comes_first() -> None:
    """The task of an array is listed anew when the one before it begins."""
    old = running("old", "n1", NOW + 60, listed=1.0)
    other = running("other", "n3", NOW + 60, listed=2.0)
    far = running("far", "n2", NOW + 500)
    assert starts_at(old, other, far, names=("n1", "n2")) == 500
    assert starts_at(replace(old, listed=3.0), other, far, names=("n1", "n2")) == 60


# of each field of a request something else than in `WANTED`
OTHERWISE: dict[str, Any] = {
    "user": "bob",
    "account": "ml",
    "qos": "first",
    "partitions": ("all", "some"),
    "nodes": 2,
    "max_nodes": 0,
    "cpus": 5,
    "min_cpus": 5,
    "memory_mib": 40_000.0,
    "per_cpu": True,
    "per_gpu": True,
    "gpus": (("gpu", 1),),
    "gpus_per_node": True,
    "features": "[small|big]",  # all of one kind
    "req_nodes": frozenset({"n1"}),
    "exc_nodes": frozenset({"n1"}),
    "exclusive": True,
    "licences": (("matlab", 1),),
    "reservation": "kept",
    "time_limit_s": 7200.0,
    "submit": NOW - 5,
    "accrue": NOW - 5,
    "sizes": ((2, 2),),
    "nice": 5,
    "site_factor": 5,
    "priority": 5,
    "array": "7",
    "array_limit": 1,
    "reason": "Resources",
    "tres": {"cpu": 5.0},
    "after": ("3",),
    "begin": NOW + 50,
    "deadline": NOW + 9000,
    "odd": ("--switches",),
    "gres": (("shard", 1),),
}
WANTED = Ask("new", max_nodes=1, cpus=4, memory_mib=1000.0, gpus=(("gpu", 4),), time_limit_s=3600.0)


# what decides when and where it could start on the nodes that are open to it
WANTS = frozenset((
    "qos", "nodes", "max_nodes", "cpus", "min_cpus", "memory_mib", "per_cpu", "per_gpu", "gpus",
    "gpus_per_node", "features", "req_nodes", "exclusive", "gres",
))  # fmt: skip


def _planning() -> Passes:
    nodes = {name: replace(node, gres=(("shard", 1),)) for name, node in NODES.items()}
    for name, feature in (("n1", "small"), ("n2", "big"), ("n3", "big")):
        nodes[name] = replace(nodes[name], features=frozenset({feature}))
    first = Qos("first", preempts=frozenset({"last"}))
    qos = {"first": first, "last": Qos("last", preempted="CANCEL"), "": Qos("")}
    site = replace(SITE, nodes=nodes, qos=qos, config={"PreemptType": "preempt/qos"})
    runs = {
        name: Running(
            Ask(
                f"on-{name}",
                qos="last" if name == "n2" else "",
                partitions=("all",),
                shares=(Share(name, cpus, 32_000.0, (("gpu", gpus),), (("shard", shards),)),),
            ),
            NOW - 60,
            NOW + ends_s,
        )
        for name, cpus, gpus, shards, ends_s in (
            ("n1", 4, 2, 1, 900.0),
            ("n2", 4, 3, 0, 500.0),
            ("n3", 4, 3, 0, 2000.0),
        )
    }
    capacity = Capacity.of(site)
    for run in runs.values():
        capacity.take(run.ask.shares)
    return Passes(site, NOW, capacity, Usage(), {run.ask.job_id: run for run in runs.values()})


def _earliest(passes: Passes, ask: Ask, part: Partition = PARTITION) -> object:
    return passes._earliest(ask, part, Space(NOW, 86_400.0, 60.0), NOW)


def test_a_start_is_found_once_for_jobs_that_want_the_same() -> None:
    passes = _planning()
    with mock.patch.object(Passes, "_will_run", autospec=True, side_effect=Passes._will_run) as ran:
        first = _earliest(passes, WANTED)
        once = ran.call_count
        assert once
        assert _earliest(passes, replace(WANTED, job_id="other", priority=7)) == first
        assert ran.call_count == once
        small, few = (
            replace(WANTED, gpus=(), cpus=1),
            replace(PARTITION, name="few", cpus_per_node=0),
        )
        assert _earliest(passes, small) != _earliest(passes, small, few)
        assert _earliest(passes, replace(WANTED, job_id="5+0", qos="first")) != _earliest(
            passes, replace(WANTED, job_id="6", qos="first")
        ), "no job makes way for a part of a heterogeneous one"


def test_every_field_of_a_request_is_tried_otherwise() -> None:
    fixed = {"job_id", "shares", "gpus_in_all", "turn"}
    assert OTHERWISE.keys() == {one.name for one in fields(Ask)} - fixed


@pytest.mark.parametrize("name", sorted(OTHERWISE))
def test_what_was_found_of_one_job_is_not_taken_for_one_that_wants_something_else(
    name: str,
) -> None:
    wanted, passes = WANTED, _planning()
    if name == "gpus_per_node":  # of one node the same
        wanted = replace(wanted, nodes=2, max_nodes=2)
    if name == "features":
        two: dict[str, Any] = {"nodes": 2, "max_nodes": 2, "gpus": (("gpu", 3),)}
        wanted = replace(wanted, features="small|big", **two)
    other = replace(wanted, job_id="other", **{name: OTHERWISE[name]})
    was = _earliest(passes, wanted)
    found = _earliest(passes, other)
    assert found == _earliest(_planning(), other)
    assert (found != was) is (name in WANTS)


def test_what_was_found_does_not_hold_once_another_job_has_started() -> None:
    passes, anew = _planning(), _planning()
    small = replace(WANTED, gpus=(("gpu", 1),), cpus=1)
    was = _earliest(passes, small)
    for one in (passes, anew):
        for name, gpus in (("n1", 2), ("n2", 1), ("n3", 1)):
            share = Share(name, 1, 1.0, (("gpu", gpus),))
            ask = replace(small, job_id=f"now-{name}")
            one.start(Ranked(ask, PARTITION, 1), (share,))
    assert _earliest(passes, small) == _earliest(anew, small) != was


def test_a_plan_is_looked_for_no_further_than_the_stretches_a_run_now_would_reach() -> None:
    space = Space(NOW, 86_400.0, 60.0)
    names = sorted(NODES)
    everything = frozenset(NODES)
    assert space.open(NOW, NOW + 300, names) == (names, None)
    space.plan(NOW, 600.0, everything)
    assert space.open(NOW, NOW + 300, names) == ([], NOW + 600)
    space.plan(NOW + 600, 600.0, everything)
    space.plan(NOW + 1200, 600.0, frozenset({"n1"}))
    assert space.open(NOW, NOW + 300, names) == ([], NOW + 1200)
    space = Space(NOW, 86_400.0, 60.0)
    space.plan(NOW, 600.0, everything)
    space.plan(NOW + 600, 300.0, everything - {"n3"})
    space.plan(NOW + 900, 300.0, frozenset({"n1"}))
    # n3 is free after the first stretch: the next ones are not asked about
    assert space.open(NOW, NOW + 300, names) == ([], NOW + 600)
    assert space.open(NOW + 600, NOW + 700, names) == (["n3"], NOW + 900)
    assert space.taken(NOW + 890, NOW + 950) == {"n1", "n2"}


def test_where_no_stretch_near_has_other_nodes_a_short_job_is_given_no_plan() -> None:
    """Slurm asks of no stretch past the first that begins after the job would be over."""
    space = Space(NOW, 86_400.0, 60.0)
    space.plan(NOW, 900.0, frozenset({"n1", "n2"}))
    space.plan(NOW + 300, 300.0, frozenset({"n3"}))
    assert space.open(NOW, NOW + 120, ["n1", "n2"]) == ([], None)
    assert space.open(NOW, NOW + 400, ["n1", "n2"]) == ([], NOW + 900)


def test_a_limit_holds_where_it_is_set_first_a_qos_before_an_account() -> None:
    """https://slurm.schedmd.com/resource_limits.html: the point where it is first defined."""
    account = Assoc("ai", limits=Limits(grp_tres={"gres/gpu": 2, "cpu": 1}, max_jobs=0))
    user = Assoc("ai", "ada", "ai", limits=Limits(max_jobs=0))
    qos = Qos("wide", limits=Limits(grp_tres={"gres/gpu": 8}, max_jobs_pu=4))
    assocs = {("ai", ""): account, ("ai", "ada"): user}
    site = replace(SITE, qos={"wide": qos}, assocs=assocs)
    ask = Ask("job", "ada", "ai", "wide", ("all",), tres={"gres/gpu": 4.0, "cpu": 1.0})
    assert first_hit(ask, PARTITION, site, Usage()) is None
    plain = first_hit(replace(ask, qos=""), PARTITION, site, Usage(), tres=True)
    assert plain is not None
    assert plain.reason == "AssocGrpGRES"
    cpus = replace(ask, tres={"cpu": 2.0})
    hit = first_hit(cpus, PARTITION, site, Usage())
    assert hit is not None
    assert hit.reason == "AssocGrpCpuLimit"
    of_part = replace(PARTITION, qos="narrow")
    narrow = Qos("narrow", limits=Limits(grp_tres={"gres/gpu": 1}))
    both = replace(site, qos={"wide": qos, "narrow": narrow})
    hit = first_hit(ask, of_part, both, Usage())
    assert hit is not None
    assert hit.whose == "QOS narrow"
    over = replace(both, qos={"wide": replace(qos, first=True), "narrow": narrow})
    assert first_hit(ask, of_part, over, Usage()) is None, "OverPartQOS"


def test_usage_counts_by_the_factor_of_its_qos() -> None:
    users = {("ai", user): Assoc("ai", user, "ai", usage=1.0) for user in ("ada", "bob")}
    accounts = {("root", ""): Assoc("root"), ("ai", ""): Assoc("ai", parent="root", usage=2.0)}
    assocs = accounts | users
    qos = {"dear": Qos("dear", factor=3.0), "plain": Qos("plain")}
    shares = FairShare(replace(SITE, assocs=assocs, qos=qos))
    shares.count([], NOW)
    asks = [
        Ask("one", "ada", "ai", "dear", ("all",), tres={"billing": 2.0}),
        Ask("two", "bob", "ai", "plain", ("all",), tres={"billing": 4.0}),
    ]
    shares.count([Running(ask, NOW, NOW + 60) for ask in asks], NOW + 60)
    assert shares.fairshare["ai", "ada"] < shares.fairshare["ai", "bob"]


def test_of_an_array_that_began_in_one_partition_no_task_is_looked_at_in_another() -> None:
    short = Partition("short", frozenset({"n1"}), tier=2)
    site = Site(NODES, {"short": short, "all": PARTITION})
    tasks = [
        Ask(f"7_{n}", partitions=("short", "all"), gpus=(("gpu", 4),), array="7", time_limit_s=60)
        for n in (1, 2, 3)
    ]
    line = in_order(one for ask in tasks for one in ranks(site, ask, Multifactor(site), NOW))
    passes = Passes(site, NOW, Capacity.of(site), Usage(), {})
    passes.backfill(line, 100, 86_400.0, 60.0)
    assert set(passes.started) == {"7_1"}


def test_when_priorities_were_computed_is_found_out_from_ages() -> None:
    old = [(40.0, 500.0)] * 3
    new = [(5.0, 5.0), (20.0, 20.0)]
    assert since_calculated([*old, *new], 1.0, 300.0) == 40.0
    # more came since than before
    assert since_calculated([(40.0, 90.0), *new, *new, (7.0, 7.0)], 1.0, 300.0) == 40.0
    assert since_calculated(new, 1.0, 300.0, likely_s=33.0) == 33.0
    assert since_calculated(old, 0.0, 300.0, likely_s=33.0) == 33.0
    # what is likely is a second off: of 14.4 s no priority would have risen by 15
    risen = [(16.0, 68.4), (15.0, 44.4), (15.0, 68.4)]
    assert since_calculated(risen, 1.157, 60.0, 14.4, 0.4) == pytest.approx(13.4)
    # one in a minute says nothing
    assert since_calculated([(0.0, 900.0), (1.0, 900.0)], 1 / 60, 60.0, 14.4, 0.4) == 14.4
    weights = {"PriorityType": "priority/multifactor", "PriorityWeightAge": "86400"}
    site = replace(SITE, config=weights | {"PriorityMaxAge": "1-0"})
    ask = Ask("1", partitions=("all",), submit=NOW - 500, accrue=NOW - 500, priority=460)
    twin = Slurm()
    twin.see(site, [], {"1": ask}, NOW)
    assert twin._clock.calculated == NOW - 40.0
    oldest: dict[str, Any] = {
        "submit": NOW - 200_000,
        "accrue": NOW - 200_000,
        "priority": 86_400,
    }  # count no more
    aged = {f"{n}": replace(ask, job_id=f"{n}", **oldest) for n in range(2, 62)}
    twin.see(site, [], {"1": ask} | aged, NOW)
    assert twin._clock.calculated == NOW - 40.0


def test_passes_go_on_from_the_backfill_that_was_last() -> None:
    clock = Clock(Rhythm(3.0, 60.0, 30.0, 300.0))
    clock.see(NOW, NOW - 40)
    assert clock.tries("gpu")
    assert not clock.tries("gpu")
    assert not clock.main_due("gpu", NOW)
    assert not clock.backfill_due("gpu", NOW)
    assert clock.next(NOW, backfills=True) == NOW + 1.5
    assert clock.main_due("gpu", NOW + 1.5)
    assert not clock.backfill_due("gpu", NOW + 20.0)
    assert clock.backfill_due("gpu", NOW + 20.5)


def seen(site: Site, jobs: list[SlurmJob], now: float) -> tuple[ClusterSnapshot, Slurm]:
    """A look at these jobs on idle nodes, and the policy that decided."""
    nodes = [
        Node(name, 4, "gpu", ("all",), True, "IDLE", (("gpu", 4),), 8, 64_000) for name in NODES
    ]
    shape = Shape.followed(nodes)
    core = assemble(CoreSpec.of(shape.spec, "slurm"), Estimator())
    snapshot = build_snapshot(core, shape, jobs, nodes, now, by_slurm=True, site=site)
    assert isinstance(core.policy, Slurm)
    return snapshot, core.policy


def test_a_look_between_passes_starts_none_and_says_who_is_next() -> None:
    jobs = [SlurmJob(n, "PENDING", "ada", "", "all", NOW - 5, priority=9, gpus=4) for n in "1234"]
    snapshot, policy = seen(replace(SITE, backfilled=NOW - 10.0), jobs, NOW)
    assert not [d for d in snapshot.decisions if d.action is Action.START]
    assert policy.soon == {"1", "2", "3"}
    assert snapshot.order == ["1", "2", "3", "4"]


def test_the_age_of_a_job_counts_once_it_may_be_looked_at() -> None:
    jobs = [
        SlurmJob(n, "PENDING", user, "", "all", NOW - age_s, priority=9, gpus=4, qos="one")
        for n, user, age_s in (("1", "ada", 9), ("2", "ada", 8), ("3", "bob", 7), ("4", "eva", 6))
    ]
    jobs[0] = replace(jobs[0], accrue=NOW - 9)
    jobs[3] = replace(jobs[3], eligible=NOW + 60)
    site = replace(SITE, qos={"one": Qos("one", limits=Limits(max_accrue_pu=1))})
    _, policy = seen(site, jobs, NOW + 0.5)
    ages = {n: ask.accrue for n in "1234" if (ask := policy.asked(n)) is not None}
    assert ages == {"1": NOW - 9, "2": None, "3": NOW, "4": None}


def test_where_nothing_waits_nothing_is_due_again_and_again() -> None:
    """A job ends, nobody waits, so no pass is made: one wake at most, not one every millisecond."""
    clock = Clock(Rhythm(3.0, 60.0, 30.0, 300.0))
    assert clock.main_due("gpu", 0.0)
    clock.backfill_due("gpu", 0.0)
    clock.ended()
    clock.changed()
    now, wakes = 100.0, 0
    while (at := clock.next(now, backfills=True)) is not None:
        assert at > now
        now, wakes = at, wakes + 1
        assert wakes < 5


def test_slurm_contradicts_nothing_before_it_has_looked_at_a_job_that_may_start() -> None:
    """A pass from before a job was eligible says nothing of it."""
    waits = SlurmJob("1", "PENDING", "ada", "", "all", NOW - 900, priority=9, gpus=4)
    for eligible, kept in ((NOW - 800.0, ["1"]), (NOW - 5.0, [])):
        asked = replace(waits, eligible=eligible, reason="Priority")
        snapshot, policy = seen(replace(SITE, backfilled=NOW - 10.0), [asked], NOW)
        assert policy.soon == {"1"}
        assert list(against_slurm(replace(snapshot, changed=NOW - 900.0), ["1"])) == kept
