"""Other settings from now on: what was learned before stays."""

from __future__ import annotations

from typing import Any

import pytest

from features.schema import State
from scheduler.core.cluster import Cluster, ClusterSpec
from scheduler.core.core import Core
from scheduler.core.pairs import TablePairPredictor
from scheduler.core.policy import Policy
from scheduler.policies.pellucid.policy import Pellucid
from scheduler.testing.builders import Desk, UserMeans, a_job, cluster_of, pellucid

HOUR = 3600.0


def of(policy: Policy) -> Pellucid:
    assert isinstance(policy, Pellucid)
    return policy


def test_what_a_user_has_had_still_counts_by_the_new_weights() -> None:
    fair = {"weight": 1.0, "half_life_s": 10 * HOUR}
    desk = Desk(pellucid(fairness=fair), cluster_of(gpus=4))
    desk.submit(a_job("a", gpus=4, user="ann"))
    desk.submit(a_job("b", gpus=1, user="bob", at=1.0), now=1.0)
    desk.end("a", now=HOUR)
    was = of(desk.core.policy).fairness.shares.user("vc", "ann", HOUR)
    assert was > 0.4
    desk.core.use_policy(pellucid(fairness=fair, ageing=0.5), HOUR)
    assert of(desk.core.policy).fairness.shares.user("vc", "ann", HOUR) == was
    desk.end("b", now=HOUR)
    bob = of(desk.core.policy).fairness.shares._users["vc"].members["bob"]
    assert bob.rate == 0, "who is over holds nothing, though it began under other settings"
    heavier = {**fair, "users": {"ann": 3.0}, "half_life_s": HOUR}
    desk.core.use_policy(pellucid(fairness=heavier), HOUR)
    shares = of(desk.core.policy).fairness.shares
    assert shares.user("vc", "ann", HOUR) == pytest.approx(was + 0.5 - 0.75)
    usage = shares._users["vc"].members["ann"]
    assert usage.at(2 * HOUR, HOUR) == pytest.approx(usage.at(HOUR, HOUR) / 2)


def test_terms_of_fairness_go_with_it_and_come_with_it() -> None:
    desk = Desk(pellucid(fairness={"weight": 1.0}), cluster_of(gpus=4))
    desk.submit(a_job("a", gpus=4, user="ann"), a_job("b", gpus=4, user="ann"))
    waiting = desk.core.jobs["b"]
    assert "fairness_s" in dict(waiting.evidence)
    desk.core.use_policy(pellucid(), HOUR)
    assert "fairness_s" not in dict(waiting.evidence)
    assert waiting.key == 2 * (waiting.predicted_s or 0.0), "4 GPUs count twice"
    desk.core.use_policy(pellucid(fairness={"weight": 1.0}), 2 * HOUR)
    desk.core.submitted(a_job("c", user="bob", at=2 * HOUR).job, 2 * HOUR)
    usage = of(desk.core.policy).fairness.shares
    assert usage.user("vc", "ann", 2 * HOUR) > 0, "what runs has been used since it began"


def test_pair_speeds_that_were_seen_are_believed_under_other_settings() -> None:
    predictor = TablePairPredictor({}, lambda a, b: (0.9, 0.9))
    policy = pellucid(predictor)
    policy.pair_errors.seen = 3
    core = Core(Cluster(ClusterSpec({"vc": 1})), policy, UserMeans())
    core.use_policy(pellucid(predictor, ageing=0.1), 1.0)
    experience = of(core.policy)._experience
    assert experience is not None
    assert experience.seen == 3
    core.use_policy(pellucid(predictor, learns_speeds=False), 2.0)
    assert of(core.policy)._experience is None


def starving(**chosen: Any) -> Desk:
    """A job past its bound, for which the GPUs of a busy node are kept."""
    desk = Desk(pellucid(max_wait_s=100.0, **chosen), cluster_of(nodes=1, gpus=4))
    desk.submit(a_job("runs", gpus=4), a_job("waits", gpus=4))
    desk.wake(1000.0)
    assert desk.core.policy.reservation("vc") == ("waits", [(0, 15)])
    return desk


def test_a_reservation_is_kept_while_its_holder_is_past_the_bound() -> None:
    desk = starving()
    desk.core.use_policy(pellucid(max_wait_s=100.0, ageing=1.0), 1001.0)
    assert desk.core.decide(1001.0) == []
    assert desk.core.policy.reservation("vc") == ("waits", [(0, 15)])
    assert desk.cluster.is_reserved(desk.run("runs"))
    desk.core.use_policy(pellucid(max_wait_s=1e9), 1002.0)
    desk.core.decide(1002.0)
    assert desk.core.policy.reservation("vc") is None
    assert not desk.cluster.is_reserved(desk.run("runs"))
    assert desk.core.jobs["waits"].key < 1e9


def test_a_wait_counts_by_the_fair_clock_when_virtual_clusters_begin_to_borrow() -> None:
    desk = Desk(pellucid(max_wait_s=1000.0), cluster_of(nodes={"a": 1, "b": 3}, gpus=4))
    jobs = [a_job(f"j{i}", gpus=4, vc="a") for i in range(4)]
    desk.submit(*jobs)  # of which one runs: four times what there is
    waiting = desk.core.jobs["j1"]
    assert of(desk.core.policy).starvation.left_s(waiting, 400.0) == 3600.0
    desk.core.use_policy(pellucid(max_wait_s=1000.0, borrowing={}), 400.0)
    desk.core.decide(400.0)
    later = desk.core.policy.promise(desk.core.jobs["j1"], 400.0)
    assert later is not None
    assert later.soonest_s == 900.0, "a quarter of the time counts, and nobody waits twice from now"


def test_an_end_is_learned_from_though_the_settings_changed_while_the_job_was_profiled() -> None:
    policy = pellucid()
    core = Core(Cluster(ClusterSpec({"vc": 1})), policy, UserMeans())
    core.submitted(a_job("a").job, 0.0)
    core.decide(0.0)
    core.use_policy(pellucid(ageing=0.1), 1.0)
    learned: list[tuple[float | None, ...]] = []
    of(core.policy).distribution.learn = lambda *pair: learned.append(pair)  # type: ignore[method-assign]
    core.ended("a", State.COMPLETED, 5.0, 5.0)
    assert learned == [(600.0, 5.0, 5.0)]
