"""Removing the named blocker starts the job: on waiting decisions, and on what the analyst says."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from features.schema import State
from scheduler.core.core import Core
from scheduler.core.decisions import Action, Decision, Reason
from scheduler.explain.whatif.forecasts import Futures
from scheduler.explain.whatif.memory import Memory
from scheduler.policies.fifo import Fifo, FifoSkip
from scheduler.policies.pellucid.policy import Pellucid
from scheduler.service.analyst.why import ANOTHER, find_blockers, starts_without, told, why, words
from tests.scheduler.builders import Desk, Likes, a_job, cluster_of
from tests.scheduler.explain.watched import a_policy, first_days, replay, waits
from tests.scheduler.worlds import World, worlds

HOUR = 3600.0
POLICIES = ["fifo", "fifo-skip", "sjf", "lucid", "pellucid"]


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


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(world=worlds(), patience_s=st.sampled_from([0.0, 300.0, 3000.0]))
def test_without_the_named_blocker_the_job_starts(
    name: str, world: World, patience_s: float
) -> None:
    policy = a_policy(name, world)
    if isinstance(policy, Pellucid):
        policy.patience_s = policy.late.patience_s = patience_s
    replay(world, policy, lambda *seen: (check_named(*seen), None)[1])


@pytest.mark.shared_data
@pytest.mark.parametrize("name", ["lucid", "pellucid"])
def test_without_the_named_blocker_the_job_starts_on_venus(name: str, shared_data: Path) -> None:
    first_days(shared_data, 0.7, name, lambda *seen: (check_named(*seen), None)[1])


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(world=worlds(), name=st.sampled_from(POLICIES))
def test_what_the_analyst_says_blocks_does(world: World, name: str) -> None:
    """Checked otherwise than it was found: the blockers end instead of leaving."""

    def look(core: Core, memory: Memory, decisions: list[Decision], now: float) -> None:
        for d in waits(decisions)[:1]:
            if d.reason is Reason.AWAITING_PROFILE:
                continue
            futures = Futures(core, memory, now)
            for blocker in find_blockers(futures, d.job_id)[0][:2]:
                if not blocker.running:
                    continue
                copy = futures.copy()
                for job_id in blocker.job_ids:
                    run = copy.cluster.runs[job_id]
                    copy.ended(job_id, State.COMPLETED, now - run.start_time, now)
                begun = {
                    x.job_id for x in copy.decide(now) if x.action in (Action.START, Action.PACK)
                }
                assert d.job_id in begun

    replay(world, a_policy(name, world), look)


def a_desk(policy: object) -> tuple[Desk, Memory]:
    desk = Desk(policy, cluster_of(nodes=1, gpus=8))  # type: ignore[arg-type]
    memory = desk.core.estimator = Memory(desk.core.estimator)
    return desk, memory


def test_the_running_job_that_is_in_the_way_is_found() -> None:
    desk, memory = a_desk(FifoSkip())
    desk.submit(a_job("small", gpus=2), a_job("large", gpus=5))
    desk.submit(a_job("next", gpus=4, at=60.0), now=60.0)
    found, left_out = find_blockers(Futures(desk.core, memory, 60.0), "next")
    assert [(b.job_ids, b.running) for b in found] == [(("large",), True)]
    assert not left_out


def test_when_no_single_job_is_in_the_way_the_fewest_are_named_together() -> None:
    desk, memory = a_desk(FifoSkip())
    desk.submit(*(a_job(f"r{i}", gpus=2) for i in range(4)))
    desk.submit(a_job("next", gpus=4, at=60.0), now=60.0)
    ((blocker,), _) = find_blockers(Futures(desk.core, memory, 60.0), "next")
    assert len(blocker.job_ids) == 2
    assert blocker.running


def test_behind_a_line_the_head_is_to_blame_only_if_it_is() -> None:
    desk, memory = a_desk(Fifo())
    desk.submit(a_job("running", gpus=6))
    taken = desk.submit(
        a_job("head", gpus=4), a_job("second", gpus=1), a_job("third", gpus=1), now=1.0
    )
    assert [(d.job_id, d.blocker) for d in waits(taken)] == [
        ("head", None),
        ("second", "head"),
        ("third", None),
    ]
    assert waits(taken)[2].sentence() == "number 3 in line, behind jobs that go first"
    (blocker, *_), _ = find_blockers(Futures(desk.core, memory, 1.0), "second")
    assert (blocker.job_ids, blocker.running) == (("head",), False)


def test_why_tells_reason_numbers_place_bound_and_pair_and_names_nobody_else() -> None:
    policy = Pellucid(Likes(speeds={("next", "large"): (0.5, 0.4)}), patience_s=HOUR, crowd=16.0)
    desk = Desk(policy, cluster_of(nodes=1, gpus=8))
    memory = desk.core.estimator = Memory(desk.core.estimator)
    desk.submit(a_job("large", gpus=8, user="ann"))
    other, mine = a_job("other", gpus=4, user="ann", at=9.0), a_job("next", gpus=8, at=10.0)
    desk.submit(other, now=9.0)
    desk.submit(mine, now=10.0)
    for job_id in ("large", "next"):
        desk.core.known(job_id).profile = mine.work.profile
    futures = Futures(desk.core, memory, 600.0)
    answer = why(futures, "next")
    assert answer.grounds[0].numbers | {"in_the_way": 1} == {
        "need": 8.0,
        "free": 0.0,
        "limit": 8.0,
        "in_the_way": 1,
    }
    assert (answer.position, answer.waiting) == (2, 2)
    assert answer.bound_s == 10.0 + HOUR - 600.0
    assert answer.pair is not None
    assert answer.pair.speeds == (0.5, 0.4)
    assert answer.pair.gain_s is not None
    assert answer.pair.gain_s <= 0
    assert len(answer.grounds) <= 4
    plain = str(told(answer, "user", futures)) + words(answer)
    assert "large" not in plain
    assert "'other'" not in plain
    assert "ann" not in plain
    assert ANOTHER in plain
    assert "large" in str(told(answer, "user", futures, names=True))


def test_a_job_that_runs_does_not_wait() -> None:
    desk, memory = a_desk(FifoSkip())
    desk.submit(a_job("a"))
    with pytest.raises(LookupError, match="job a has its GPUs"):
        why(Futures(desk.core, memory, 1.0), "a")
