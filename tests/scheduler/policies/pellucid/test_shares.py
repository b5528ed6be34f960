"""Shares with a half-life, and the fairness term of the order."""

from __future__ import annotations

from collections import defaultdict
from math import exp, log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.cluster import Cluster, ClusterSpec, Run
from scheduler.core.decisions import Action
from scheduler.core.nodes import KnownJob
from scheduler.policies.pellucid.policy import Pellucid
from scheduler.policies.pellucid.settings import FairShare
from scheduler.policies.pellucid.shares import Shares
from scheduler.testing.builders import VC, Desk, a_job, cluster_of, pellucid, play

HOUR, DAY = 3600.0, 86_400.0


# --- shares ---------------------------------------------------------------------------------------


def a_run(job_id: str, user: str, gpus: int, now: float, partner: Run | None = None) -> Run:
    job = a_job(job_id, gpus=gpus, user=user).job
    return Run(job, VC, now, 0, (0,), ((1 << gpus) - 1,), partner)


@given(
    runs=st.lists(
        st.tuples(
            st.sampled_from(["ann", "bob", "eve"]),
            st.integers(1, 8),
            st.floats(0, 1e6),
            st.floats(1, 1e6),
        ),
        min_size=1,
        max_size=8,
    ),
    half_life_s=st.sampled_from([60.0, 3600.0, 604_800.0]),
)
def test_usage_is_the_decayed_integral_of_gpus_held(
    runs: list[tuple[str, int, float, float]], half_life_s: float
) -> None:
    """Against the integral of every run written out, at a time when the last has just begun."""
    shares, rate = Shares(FairShare(half_life_s=half_life_s)), log(2.0) / half_life_s
    events: list[tuple[float, int, int]] = []
    for i, (_, _, start, length) in enumerate(runs):
        events += [(start, 1, i), (start + length, 0, i)]
    now = max(start for _, _, start, _ in runs)
    for time, begins, i in sorted(events):
        if time > now:
            break
        if begins:
            shares.began(a_run(f"j{i}", runs[i][0], runs[i][1], time), time)
        else:
            shares.over(f"j{i}", time)
    had: dict[str, float] = defaultdict(float)
    for user, gpus, start, length in runs:
        until = min(start + length, now)
        had[user] += gpus * (exp(rate * (until - now)) - exp(rate * (start - now))) / rate
    whole = sum(had.values())
    users = set(had)
    excess = {user: shares.user(VC, user, now) for user in users}
    if whole < 2.0:  # GPU-seconds: as good as nothing
        return
    for user in users:
        assert excess[user] == pytest.approx(had[user] / whole - 1 / len(users), abs=1e-4)
    assert sum(excess.values()) == pytest.approx(0.0, abs=1e-6)


def test_half_of_a_shared_gpu_is_each_members() -> None:
    shares = Shares(FairShare(half_life_s=1e12))
    first = a_run("a", "ann", 4, 0.0)
    shares.began(first, 0.0)
    second = a_run("b", "bob", 4, 100.0, first)
    shares.began(second, 100.0)
    assert shares.user(VC, "ann", 300.0) == pytest.approx(800 / 1200 - 0.5)
    shares.over("a", 300.0)  # bob has them alone from here on: 400 and 400
    assert shares.user(VC, "bob", 500.0) == pytest.approx((400 + 800) / 2000 - 0.5)


def test_dues_are_by_weight() -> None:
    shares = Shares(FairShare(users={"ann": 3.0}, vcs={"big": 3.0, "small": 1.0}))
    for vc in ("big", "small"):
        shares.join(vc, "ann", 0.0)
        shares.join(vc, "bob", 0.0)
    run = a_run("a", "ann", 4, 0.0)
    run.vc = "big"
    shares.began(run, 0.0)
    assert shares.user("big", "ann", HOUR) == pytest.approx(1 - 0.75)
    assert shares.user("big", "bob", HOUR) == pytest.approx(-0.25)
    assert shares.vc("big", HOUR) == pytest.approx(0.25)
    assert shares.vc("small", HOUR) == pytest.approx(-0.25)
    assert shares.user("small", "ann", HOUR) == 0.0
    assert shares.user("nowhere", "ann", HOUR) == 0.0


# --- the term -------------------------------------------------------------------------------------


def test_the_term_is_told_and_is_part_of_the_key() -> None:
    off, on = (
        Desk(Pellucid(), cluster_of(nodes=1)),
        Desk(pellucid(fairness={"weight": 0.5}), cluster_of()),
    )
    for desk in (off, on):
        desk.submit(a_job("first", gpus=8, user="ann"))
        desk.submit(a_job("bobs", gpus=8, user="bob", at=50.0), now=50.0)
    told = [
        next(d for d in desk.submit(a_job("more", gpus=8, user="ann", at=100.0), now=100.0))
        for desk in (off, on)
    ]
    before, after = told
    assert "fairness_s" not in dict(before.evidence)
    terms = dict(after.evidence)
    assert terms["share_excess"] == pytest.approx(0.5)
    assert terms["fairness_s"] == pytest.approx(0.5 * DAY * 0.5)
    assert before.priority is not None
    assert after.priority is not None
    assert after.priority - before.priority == pytest.approx(terms["fairness_s"])


def test_terms_of_waiting_jobs_follow_what_is_used() -> None:
    """Both wait from the start; what their users' other jobs used meanwhile decides."""
    jobs = [
        a_job("ann's", gpus=6, for_=DAY, user="ann"),
        a_job("bob's", gpus=2, for_=DAY - 10.0, user="bob"),
        a_job("more of ann", gpus=8, for_=HOUR, user="ann", at=1.0),
        a_job("more of bob", gpus=8, for_=2 * HOUR, user="bob", at=1.0),
    ]
    for fairness, first in ((0.0, "more of ann"), (1.0, "more of bob")):
        played = play(pellucid(fairness={"weight": fairness}), cluster_of(nodes=1), *jobs)
        assert [d.job_id for d in played.actions(Action.START)][2] == first


def test_usage_survives_a_change_of_core() -> None:
    """A core that takes over what runs charges it from when it began."""
    policy = pellucid(fairness={"weight": 1.0})
    desk = Desk(policy, Cluster(ClusterSpec({VC: 1})))
    run = a_job("old", gpus=8, user="ann")
    desk.core.estimator.submitted(run.job, 0.0)
    known = KnownJob(job=run.job, order=0, queued_before=True, placement=[(0, 255)], since=0.0)
    desk.core.nodes.adopt(known, HOUR)
    policy.fairness.shares.join(VC, "bob", HOUR)
    assert policy.fairness.shares.user(VC, "ann", HOUR) == pytest.approx(0.5)


def test_idle_gpus_go_first_to_the_virtual_cluster_that_had_least() -> None:
    """One node is idle, and two virtual clusters come for it at one moment."""
    jobs = [
        a_job("busy a", gpus=8, for_=9 * HOUR, vc="a"),
        a_job("busy b", gpus=8, for_=9 * HOUR, vc="b", at=8 * HOUR),
        a_job("busy c", gpus=8, for_=9 * HOUR, vc="c"),
        a_job("more of a", gpus=8, for_=HOUR, vc="a", at=8.5 * HOUR),
        a_job("more of b", gpus=8, for_=HOUR, vc="b", at=8.5 * HOUR),
    ]
    for fairness, first in ((0.0, "more of a"), (1.0, "more of b")):
        policy = pellucid(fairness={"weight": fairness}, borrowing={})
        played = play(policy, cluster_of(nodes={"a": 1, "b": 1, "c": 1, "d": 1}), *jobs)
        assert played.result(first).queue_s == 0
