"""What a duration counts in the order: the mean of its curve."""

from __future__ import annotations

from dataclasses import replace
from math import expm1, log1p
from typing import Any

import pytest

from features.repeats import Claim
from features.survival import BINS, EDGES_S
from scheduler.core.cluster import Run
from scheduler.core.curves import Curve, Predicted
from scheduler.core.durations import Duration, Stated
from scheduler.core.estimates import TableEstimator
from scheduler.core.queue import QueuedJob
from scheduler.explain.findings import compared
from scheduler.policies.pellucid.policy import Pellucid
from scheduler.policies.pellucid.worth import COUNTS, Worth, forgiven, worth_by
from scheduler.testing.builders import VC, Desk, a_job, cluster_of, pellucid

HOUR = 3600.0


def two_kinds(long: float, seconds: float = 600.0, claims: tuple[Claim, ...] = ()) -> Predicted:
    """A job that lasts a minute or so, or, by this chance, over half a day."""
    short = next(at for at, edge in enumerate(EDGES_S) if edge >= 60.0)
    hazards = [0.0] * BINS
    hazards[short] = 1.0 - long
    twelve = next(at for at, edge in enumerate(EDGES_S) if edge > 12 * HOUR)
    hazards[twelve + 1] = 1.0
    return Predicted.of(seconds, hazards, claims=claims)


def a_desk(**believed: Duration) -> Desk:
    """A full cluster; jobs of the table wait for it."""
    policy = pellucid(max_wait_s=1e9, predict_again_s=0.0)
    table = TableEstimator("given", believed, default=600.0)
    desk = Desk(policy, cluster_of(gpus=8), table)
    desk.submit(a_job("holds", gpus=8, user="u"))
    return desk


def test_the_curve_of_a_jobs_own_is_conditioned_on_what_it_has_outlived() -> None:
    fresh, later = Curve.alone(two_kinds(0.25)), Curve.alone(two_kinds(0.25), 1000.0)
    assert fresh.chance(6 * HOUR) == pytest.approx(0.25, abs=0.02)
    assert later.chance(6 * HOUR) == 1.0
    claim = Claim(7 * HOUR, 9 * HOUR, 0.8)
    claimed = Curve.alone(two_kinds(0.25, claims=(claim,)))
    assert claimed.chance(6 * HOUR) > 0.8


def test_of_equal_predictions_who_may_be_long_goes_later() -> None:
    desk = a_desk(sure=two_kinds(0.02), open=two_kinds(0.4))
    desk.submit(*(a_job(name, gpus=4, user="u") for name in ("open", "sure")), now=1.0)
    assert [one.job.job_id for one in desk.core.queues[VC]] == ["sure", "open"]


@pytest.mark.parametrize(
    ("known", "claims", "by_mean"),
    [
        ({}, (), False),
        ({"user": "u"}, (), True),
        ({"name": "train"}, (), True),
        ({"like": "a1b2"}, (), True),
        ({}, (Claim(7 * HOUR, 9 * HOUR, 0.8),), True),
    ],
)
def test_the_mean_counts_only_where_more_than_its_size_is_known(
    known: dict[str, Any], claims: tuple[Claim, ...], by_mean: bool
) -> None:
    """Else it is the mean of all jobs of its size, which moves with each that ends."""
    desk = a_desk(open=two_kinds(0.4, 700.0, claims=claims))
    sample = a_job("open", gpus=4, at=1.0, user="")
    desk.submit(replace(sample, job=replace(sample.job, **known)), now=1.0)
    queued, policy = desk.core.jobs["open"], desk.core.policy
    assert isinstance(policy, Pellucid)
    counts = worth_by(policy, queued)
    assert (counts.duration_s > 1000.0) == by_mean
    assert bool(counts.recorded) == by_mean == (COUNTS in dict(queued.evidence))
    if not by_mean:
        assert counts == Worth(700.0, 1400.0)


def test_the_terms_of_a_place_sum_to_its_key_and_the_first_is_the_mean_that_is_recorded() -> None:
    believed = two_kinds(0.4)
    desk = a_desk(open=believed)
    desk.submit(a_job("open", gpus=4, user="u", at=1.0), now=1.0)
    queued, policy = desk.core.jobs["open"], desk.core.policy
    assert isinstance(policy, Pellucid)
    terms = dict(policy.order_terms(queued, 1.0))
    assert sum(terms.values()) == pytest.approx(queued.key - forgiven(policy, queued) * 1.0)
    mean = terms["the model's duration, on the mean"]
    assert mean == dict(queued.evidence)[COUNTS]
    levels = [(i + 0.5) / 64 for i in range(64)]
    assert mean == pytest.approx(sum(believed.ends_at(levels)) / 64)
    assert mean > 10 * believed.seconds, "four in ten last for half a day"


def test_a_prediction_without_a_curve_counts_whole() -> None:
    desk = a_desk(given=50_000.0)
    desk.submit(a_job("given", gpus=4, user="u", at=1.0), now=1.0)
    terms = desk.core.policy.order_terms(desk.core.jobs["given"], 1.0)
    assert dict(terms)["the model's duration"] == 50_000.0
    assert COUNTS not in dict(desk.core.jobs["given"].evidence)


def test_what_a_job_says_of_itself_has_a_curve_too() -> None:
    desk = a_desk(says=Stated(expm1(log1p(9 * HOUR)), 0.05, 600.0))
    desk.submit(a_job("says", gpus=4, user="u", at=1.0), now=1.0)
    assert dict(desk.core.jobs["says"].evidence)[COUNTS] == pytest.approx(9 * HOUR, rel=0.01)


def test_the_place_is_the_same_for_as_long_as_the_prediction_is() -> None:
    desk = a_desk(open=two_kinds(0.4))
    desk.submit(a_job("open", gpus=4, user="u", at=1.0), now=1.0)
    queued, policy = desk.core.jobs["open"], desk.core.policy
    before = queued.key
    assert isinstance(policy, Pellucid)
    for _ in range(200):
        policy.distribution.learn(two_kinds(0.4), 9.0)
    policy.rank(queued, 2.0)
    assert queued.key == before


def test_the_terms_of_one_that_left_the_queue_are_named_where_they_sum_to_its_place() -> None:
    """Of one that has its GPUs no curve is kept: its number alone gave it another sum."""
    desk = a_desk(open=two_kinds(0.4))
    desk.submit(a_job("open", gpus=4, user="u", at=1.0), now=1.0)
    queued = desk.core.jobs["open"]
    gone = QueuedJob(a_job("gone", gpus=4, user="u", at=0.5).job, -1)
    gone.key, gone.estimate_s = queued.key - 1.0, 600.0
    found = compared(desk.core, "open", gone, 2.0)
    assert found.first
    assert {one.other for one in found.terms} == {None}
    gone.estimate_s = two_kinds(0.4)
    assert isinstance(desk.core.policy, Pellucid)
    gone.key = desk.core.policy.key(gone, 2.0)
    assert None not in {one.other for one in compared(desk.core, "open", gone, 2.0).terms}


def test_settings_that_change_rank_who_waits_again() -> None:
    desk = a_desk(sure=two_kinds(0.02, 900.0), open=two_kinds(0.4))
    desk.submit(*(a_job(name, gpus=4, user="u") for name in ("open", "sure")), now=1.0)
    before = desk.core.policy
    assert isinstance(before, Pellucid)
    waiting = list(desk.core.queues[VC])
    after = Pellucid(before.settings.model_copy(update={"order_by": "predicted"}))
    assert after.take_over(before, waiting, [], 2.0)
    assert [one.job.job_id for one in sorted(waiting)] == ["open", "sure"], "by the number alone"
    assert all(COUNTS not in dict(one.evidence) for one in waiting)


@pytest.mark.parametrize("user", ["u", ""])
def test_in_order_of_submission_no_duration_counts(user: str) -> None:
    policy = pellucid(order_by="submitted", max_wait_s=1e9)
    table = TableEstimator("given", {"long": 9 * HOUR, "short": 60.0}, default=HOUR)
    desk = Desk(policy, cluster_of(gpus=8), table)
    desk.submit(a_job("holds", gpus=8, user=user))
    for at, name, gpus in ((1.0, "long", 8), (2.0, "short", 1)):
        desk.submit(a_job(name, gpus=gpus, user=user, at=at), now=at)
    line = desk.core.queues[VC]
    assert [one.job.job_id for one in line] == ["long", "short"]
    assert policy.order_terms(line[0], 5.0) == (("credit for waiting", -4.0),)
    again = Pellucid(policy.settings.model_copy(update={"order_by": "predicted"}))
    assert again.take_over(policy, list(line), [], 3.0)
    assert [one.job.job_id for one in sorted(line)] == ["short", "long"]
    shared = pellucid(order_by="submitted", fairness={"weight": 1.0})
    shared.prepare(line[1], 3.0, table)
    assert [what for what, _ in shared.order_terms(line[1], 5.0)] == [
        "credit for waiting",
        "fair share",
    ]


def test_one_that_has_run_as_long_as_predicted_is_not_said_to_end_now() -> None:
    policy, job = pellucid(), a_job("runs").job
    queued, run = QueuedJob(job, VC), Run(job, VC, 0.0, 0, (0,), (1,))
    queued.estimate_s = 600.0
    assert policy.left_s(run, queued, 599.0) == 1.0
    rest_s = policy.distribution.total_s(600.0, 600.0) - 600.0
    assert rest_s > 1.0
    assert policy.left_s(run, queued, 600.0) == rest_s
