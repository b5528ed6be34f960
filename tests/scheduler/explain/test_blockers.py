"""Removing the named blocker starts the job: on waiting decisions, and on what the analyst says."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.schema import State
from scheduler.core.core import Core
from scheduler.core.decisions import GIVES_GPUS, Decision, Reason
from scheduler.core.estimates import TableEstimator
from scheduler.explain.answer import Analysis, Group
from scheduler.explain.blockers import Blockers, Holder, Kind, find_blockers
from scheduler.explain.findings import LISTED, analysis, compared
from scheduler.explain.render import _group, dominant, in_the_way, otherwise, promise
from scheduler.explain.whatif.forecasts import Futures, WhyNot, crude
from scheduler.explain.whatif.memory import Memory
from scheduler.policies.fifo import Fifo, FifoSkip
from scheduler.testing.builders import Desk, a_job, cluster_of, pellucid
from scheduler.testing.worlds import World, worlds
from tests.scheduler.explain.watched import a_policy, replay, starts_without, waits

HOUR = 3600.0


def check_named(core: Core, memory: Memory, decisions: list[Decision], now: float) -> int:
    """Every blocker named for a job that still waits is one. How many were named."""
    last = {d.job_id: d for d in decisions}  # it may have gone to be profiled since
    named = [d for d in waits(list(last.values())) if d.blocker is not None]
    futures = Futures(core, memory, now) if named else None
    for d in named:
        assert futures is not None
        assert d.blocker is not None
        assert starts_without(futures, d.job_id, [d.blocker]), d
    return len(named)


@pytest.mark.parametrize("name", ["fifo", "fifo-skip", "sjf", "lucid"])
@settings(max_examples=30)
@given(world=worlds())
def test_without_the_named_blocker_the_job_starts(name: str, world: World) -> None:
    """So it does under `pellucid`, in the random walk of `test_pellucid_walk.py`."""
    replay(world, a_policy(name, world), lambda *seen: (check_named(*seen), None)[1])


def check_whole(futures: Futures, job_id: str) -> Blockers:
    """Checked otherwise than it was found: the blockers end instead of leaving."""
    blockers, copy, now = find_blockers(futures, job_id), futures.copy(), futures.now
    for holder in blockers.holders:
        run = copy.cluster.runs.get(holder.job_id)
        if holder.node is not None:
            copy.nodes.open_wholly(holder.node)  # GPUs of it may be closed alone
        elif run is None:
            copy.withdrawn(holder.job_id, now)
        else:
            copy.ended(holder.job_id, State.COMPLETED, now - run.start_time, now)
    if blockers.holders:
        assert job_id in {d.job_id for d in copy.decide(now) if d.action in GIVES_GPUS}, blockers
    return blockers


@settings(max_examples=25)
@given(world=worlds(), name=st.sampled_from(["fifo", "fifo-skip", "sjf", "lucid", "pellucid"]))
def test_what_the_analyst_says_blocks_does(world: World, name: str) -> None:
    def look(core: Core, memory: Memory, decisions: list[Decision], now: float) -> None:
        for d in waits(decisions)[:1]:
            if d.reason is Reason.AWAITING_PROFILE:
                continue
            futures = Futures(core, memory, now)
            blockers = check_whole(futures, d.job_id)
            others = [h.job_id or h.node for h in blockers.holders if h.kind is not Kind.RUN]
            for runs in blockers.instead:
                gone = [*others, *(run.job_id for run in runs)]
                assert starts_without(futures, d.job_id, [g for g in gone if g is not None])

    replay(world, a_policy(name, world), look)


def a_desk(policy: object) -> tuple[Desk, Memory]:
    desk = Desk(policy, cluster_of(nodes=1, gpus=8))  # type: ignore[arg-type]
    memory = desk.core.estimator = Memory(desk.core.estimator)
    return desk, memory


def jobs_of(holders: tuple[Holder, ...]) -> set[tuple[str, str]]:
    return {(holder.job_id, holder.kind.name) for holder in holders}


def test_when_no_single_job_is_in_the_way_the_fewest_are_named_together() -> None:
    desk, memory = a_desk(FifoSkip())
    desk.submit(*(a_job(f"r{i}", gpus=2) for i in range(4)))
    desk.submit(a_job("next", gpus=4, at=60.0), now=60.0)
    futures = Futures(desk.core, memory, 60.0)
    found = analysis(futures, "next", "nobody")
    assert [holder.kind for holder in found.holders] == [Kind.RUN, Kind.RUN]
    text = in_the_way(found)
    way = r"It would start if 2 running jobs of others \(.+\) ended \(tried on a copy\)\.$"
    assert re.search(way, text)


def test_a_running_and_a_waiting_job_are_named_together() -> None:
    desk, memory = a_desk(Fifo())
    desk.submit(a_job("running", gpus=8))
    desk.submit(a_job("head", gpus=8), a_job("next", gpus=8), now=1.0)
    futures = Futures(desk.core, memory, 1.0)
    found = find_blockers(futures, "next")
    assert jobs_of(found.holders) == {("running", "RUN"), ("head", "AHEAD")}
    text = in_the_way(analysis(futures, "next", "nobody"))
    assert "It needs 8 GPUs; 0 of 8 are free now." in text
    assert "1 running job of others" in text
    assert "1 waiting job of others" in text
    assert "It would start without 1 running job of others" in text


def test_a_closed_node_is_in_the_way_alone_or_beside_others() -> None:
    desk = Desk(FifoSkip(), cluster_of(nodes=2, gpus=8))
    memory = desk.core.estimator = Memory(desk.core.estimator)
    desk.submit(a_job("running", gpus=8))
    (full,) = desk.core.cluster.runs["running"].nodes
    desk.core.nodes.set_open(1 - full, False)
    desk.submit(a_job("next", gpus=8), a_job("both", gpus=16), now=1.0)
    futures = Futures(desk.core, memory, 1.0)
    found = analysis(futures, "next", "")
    assert [holder.node for holder in found.holders] == [1 - full]
    assert found.alternatives == 1
    assert otherwise(found) == "The end of one other job would do as well."
    assert f"node {1 - full}, which is closed" in in_the_way(found)
    kinds = [holder.kind for holder in find_blockers(futures, "both").holders]
    assert sorted(kinds) == [Kind.NODE, Kind.RUN, Kind.AHEAD]


def test_a_closed_node_that_would_do_as_well_is_no_job() -> None:
    desk = Desk(FifoSkip(), cluster_of(nodes=3, gpus=8))
    memory = desk.core.estimator = Memory(desk.core.estimator)
    desk.submit(a_job("running", gpus=8))
    (full,) = desk.core.cluster.runs["running"].nodes
    for node in {0, 1, 2} - {full}:
        desk.core.nodes.set_open(node, False)
    desk.submit(a_job("next", gpus=8), now=1.0)
    found = analysis(Futures(desk.core, memory, 1.0), "next", "")
    assert [holder.kind for holder in found.holders] == ["closed node"]
    assert otherwise(found) == (
        "The end of one other job would do as well. Opening one other node would do as well."
    )


def test_the_job_that_gpus_are_kept_for_is_named_as_such() -> None:
    desk = Desk(pellucid(max_wait_s=100.0, overload=16.0), cluster_of(nodes=1, gpus=8))
    memory = desk.core.estimator = Memory(desk.core.estimator)
    desk.submit(a_job("running", gpus=4))
    desk.submit(a_job("starving", gpus=8, at=1.0), now=1.0)
    desk.core.wake(500.0)
    desk.core.decide(500.0)
    desk.submit(a_job("next", gpus=4, at=500.0), now=500.0)
    futures = Futures(desk.core, memory, 500.0)
    assert jobs_of(find_blockers(futures, "next").holders) == {("starving", "KEPT")}
    found = analysis(futures, "next", "")
    assert "1 job that GPUs are kept for of others" in in_the_way(found)
    own = promise(analysis(futures, "starving", ""))
    assert re.fullmatch(
        r"8 GPUs are kept for it, 4 of them still in use by 1 running job "
        r"\(should end in [\d.]+ (s|min|h)\)\. No other job starts on them that is "
        r"likely to keep it waiting\.",
        own,
    )


def test_what_is_kept_for_the_first_in_line_is_kept_while_it_is_that() -> None:
    known = {"wide": 60.0, "lasts": 900.0 * HOUR}
    policy = pellucid(keeps_for_first=True, max_wait_s=10 * HOUR)
    desk = Desk(policy, cluster_of(nodes=1, gpus=8), TableEstimator("given", known, default=HOUR))
    memory = desk.core.estimator = Memory(desk.core.estimator)
    desk.submit(a_job("running", gpus=4))
    desk.submit(a_job("wide", gpus=8, at=1.0), now=1.0)
    desk.submit(a_job("lasts", gpus=4, at=2.0), now=2.0)
    futures = Futures(desk.core, memory, 2.0)
    own = promise(analysis(futures, "wide", ""))
    assert own.startswith("8 GPUs are kept for it, 4 of them still in use by 1 running job (")
    assert own.endswith("likely to keep it waiting, as long as it is the first in line.")
    assert jobs_of(find_blockers(futures, "lasts").holders) == {("wide", "KEPT")}


def test_the_answer_has_numbers_place_and_promise_of_now_and_names_nobody_else() -> None:
    policy = pellucid(max_wait_s=HOUR, overload=16.0)
    desk = Desk(policy, cluster_of(nodes=1, gpus=8))
    memory = desk.core.estimator = Memory(desk.core.estimator)
    desk.submit(a_job("large", gpus=8, user="ann"))
    desk.submit(a_job("other", gpus=4, user="ann", at=9.0), now=9.0)
    desk.submit(a_job("next", gpus=8, at=10.0), now=10.0)
    futures = Futures(desk.core, memory, 600.0)
    found = analysis(futures, "next", "user")
    assert (found.need, found.free, found.limit) == (8, 0, 8)
    assert (found.position, found.waiting) == (2, 2)
    assert found.bound is not None
    assert found.bound.soonest_s == 10.0 + HOUR - 600.0
    assert found.bound.left_s == 10.0 + 2 * HOUR - 600.0, "at any price"
    queued = desk.core.jobs["next"]
    terms = sum(term.seconds for term in found.order)
    assert terms == pytest.approx(queued.key - policy.ageing * 600.0)
    text = promise(found)
    assert text.startswith("As things stand, GPUs will be kept for it in 1 h 50 min at the")
    assert "They will be kept for it sooner, in 50 min, if that makes the other jobs" in text
    assert "later if more is asked for" in text
    for word in ("large", "'other'", "ann"):
        assert word not in str(found)
    assert "large" in str(analysis(futures, "next", "user", names=True))
    beside = compared(futures.core, "next", desk.core.jobs["other"], 600.0)
    assert beside.first
    for which, job_id in (("this", "next"), ("other", "other")):
        terms = sum(getattr(row, which) for row in beside.terms)
        assert terms == pytest.approx(desk.core.jobs[job_id].key - policy.ageing * 600.0)


def test_a_run_that_outlived_its_prediction_is_said_to() -> None:
    desk = Desk(pellucid(), cluster_of(nodes=1, gpus=8))
    memory = desk.core.estimator = Memory(desk.core.estimator)
    desk.submit(a_job("large", gpus=8))
    expected = desk.core.jobs["large"].predicted_s
    assert expected is not None
    now = expected + HOUR
    desk.submit(a_job("next", gpus=8, at=now), now=now)
    futures = Futures(desk.core, memory, now)
    found = analysis(futures, "next", "")
    assert found.holders[0].past_s == pytest.approx(HOUR)
    said = in_the_way(found)
    assert "(past its prediction, should end in " in said
    late = Group(kind="running job", count=2, ends_in_s=60.0, past_s=HOUR)
    assert (
        _group(late, now)
        == "2 running jobs of others (the last, past its prediction, should end in 1 min)"
    )
    assert "(the last should end in" in _group(replace(late, past_s=None), now)
    assert "overdue" not in said
    assert "spread over" not in said
    apart = replace(found, reason=Reason.GPUS_FRAGMENTED, free=8)
    assert "8 of 8 are free now, but spread over too many nodes." in in_the_way(apart)


ENOUGH_S = 600.0  # of a processor of any speed


@pytest.mark.parametrize("place", [0, 3, 299])
def test_in_a_long_line_somebody_is_found_and_it_is_true(place: int) -> None:
    desk = Desk(pellucid(), cluster_of(nodes=4, gpus=8))
    memory = desk.core.estimator = Memory(desk.core.estimator)
    desk.submit(*(a_job(f"r{i}", gpus=4) for i in range(8)))
    desk.submit(*(a_job(f"w{i}", gpus=1 + i % 8, at=9.0) for i in range(300)), now=9.0)
    (queue,) = desk.core.queues.values()
    futures = Futures(desk.core, memory, 20.0)
    job_id = queue[place].job.job_id
    holders = find_blockers(futures, job_id, ENOUGH_S).holders
    assert holders
    assert starts_without(futures, job_id, [holder.job_id for holder in holders])
    plain = analysis(futures, job_id, "nobody", budget_s=ENOUGH_S)
    assert len(plain.holders) <= LISTED
    assert plain.in_all == len(holders) == sum(group.count for group in plain.groups)


@pytest.mark.parametrize("length", [60, 160])
def test_of_a_line_who_starts_beside_it_is_not_in_its_way(length: int) -> None:
    desk = Desk(Fifo(), cluster_of(nodes=1, gpus=8))
    memory = desk.core.estimator = Memory(desk.core.estimator)
    desk.submit(a_job("runs", gpus=8), now=0.0)
    small = {f"j{i}" for i in range(7, length, length // 4)}
    line = [
        a_job(name, gpus=1 if name in small else 8) for name in map("j{}".format, range(length))
    ]
    desk.submit(*line, a_job("me", gpus=5), now=1.0)
    futures = Futures(desk.core, memory, 2.0)
    found = {holder.job_id for holder in find_blockers(futures, "me").holders}
    assert len(small) == 4
    assert len(small - found) == 3  # as many as there is room for beside it
    assert found == {"runs", *(one.job.job_id for one in line)} - (small - found)
    assert starts_without(futures, "me", found)
    assert not any(starts_without(futures, "me", found - {one}) for one in small & found)


def test_where_one_large_job_or_four_small_ones_would_do_the_large_one_is_named() -> None:
    desk = Desk(Fifo(), cluster_of(nodes=1, gpus=8))
    memory = desk.core.estimator = Memory(desk.core.estimator)
    desk.submit(a_job("runs", gpus=8), now=0.0)
    small = [a_job(f"small{i}", gpus=1) for i in range(4)]
    desk.submit(*small[:2], a_job("large", gpus=4), *small[2:], a_job("me", gpus=4), now=1.0)
    found = find_blockers(Futures(desk.core, memory, 2.0), "me").holders
    assert {holder.job_id for holder in found} == {"runs", "large"}


def test_a_job_that_runs_does_not_wait() -> None:
    desk, memory = a_desk(FifoSkip())
    desk.submit(a_job("a"))
    with pytest.raises(LookupError, match="job a has its GPUs"):
        analysis(Futures(desk.core, memory, 1.0), "a", "")


def test_of_a_quiet_line_behind_a_drained_node_who_will_go_first_is_named_too() -> None:
    """Both have waited past the bound since the policy last looked: the first to come goes first,
    though it stands behind."""
    given = TableEstimator("given", {"long": 9000.0, "short": 60.0})
    desk = Desk(pellucid(max_wait_s=3600.0), cluster_of(nodes=1, gpus=8), Memory(given, asks=True))
    desk.core.nodes.set_open(0, False)
    desk.submit(a_job("long", gpus=8), a_job("short", gpus=4, at=1.0), now=1.0)
    memory = desk.core.estimator
    assert isinstance(memory, Memory)
    futures = Futures(desk.core, memory, 1e6)
    assert [q.job.job_id for q in desk.core.queues["vc"]] == ["short", "long"]
    found = find_blockers(futures, "short")
    assert found.still is None
    assert {h.node if h.node is not None else h.job_id for h in found.holders} == {
        0,
        "long",
    }
    assert starts_without(futures, "short", [0, "long"])
    assert not starts_without(futures, "short", [0])


def test_nothing_is_promised_while_the_nodes_that_would_hold_a_job_are_closed() -> None:
    desk = Desk(pellucid(max_wait_s=HOUR, overload=16.0), cluster_of(nodes=2, gpus=4))
    memory = desk.core.estimator = Memory(desk.core.estimator)
    desk.submit(a_job("large", gpus=8))
    desk.submit(a_job("next", gpus=8, at=1.0), now=1.0)

    def asked() -> Analysis:
        desk.core.decide(1.0)
        futures = Futures(desk.core, memory, 1.0)
        return analysis(futures, "next", "")

    assert promise(asked()).startswith("As things stand, GPUs will be kept for it")
    desk.core.nodes.set_open(1, False)
    told = asked()
    assert told.reason == "NodeDrained"
    assert dominant(told).startswith("needs 8 GPUs; 4 of 8 are closed")
    closed = "No GPUs are kept for it while those that it would need are closed to new jobs."
    assert promise(told) == closed
    assert in_the_way(told).startswith(
        "It needs 8 GPUs; 0 of 8 are free now, 4 are closed. It would start without"
    )
    assert crude(desk.core, memory, 1.0)["next"].why_not == WhyNot.CLOSED
