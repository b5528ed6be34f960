"""What a policy found while it decided is what is told of it."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from features.job import Profile
from scheduler.core.decisions import Action, Reason
from scheduler.core.estimates import TableEstimator
from scheduler.core.findings import NotExamined, Partner, Promise
from scheduler.core.policy import Policy
from scheduler.explain.answer import OrderTerm
from scheduler.explain.blockers import find_blockers
from scheduler.explain.findings import analysis
from scheduler.explain.reasons import NOT_EXAMINED
from scheduler.explain.render import place, promise, says
from scheduler.explain.whatif.forecasts import Futures
from scheduler.explain.whatif.memory import Memory
from scheduler.explain.words import ONE_CURVE
from scheduler.testing.builders import Desk, Likes, a_job, cluster_of, pellucid
from tests.reproductions.baselines.lucid import lucid

HOUR = 3600.0
LIGHT = Profile(50.0, 30.0, 1_000.0)
HEAVY = Profile(50.0, 30.0, 20_000.0)
SLOW = {("waits", "runs"): (0.5, 0.4)}


def a_pair(policy: Policy, own: Profile = LIGHT, other: Profile = LIGHT, **seconds: float) -> Desk:
    """One GPU on which a job runs; another is about to wait for it, both profiled."""
    estimates = TableEstimator("given", seconds, default=600.0)
    desk = Desk(policy, cluster_of(gpus=1), estimates)
    memory = desk.core.estimator = Memory(desk.core.estimator)
    assert memory is not None
    desk.submit(a_job("runs", user="ann"))
    desk.core.jobs["runs"].profile = other
    desk.core.submitted(a_job("waits", at=1.0, user="bob").job, 1.0)
    desk.core.jobs["waits"].profile = own
    return desk


def partner(desk: Desk) -> Partner | None:
    return desk.core.policy.findings(desk.core.jobs["waits"]).partner


def said(desk: Desk, now: float) -> dict[str, object]:
    memory = desk.core.estimator
    assert isinstance(memory, Memory)
    futures = Futures(desk.core, memory, now)
    found = analysis(futures, "waits", "bob")
    return says(found) | asdict(found)


@pytest.mark.parametrize("what", ["the model's duration, on the mean", "the model's duration"])
def test_where_the_mean_orders_both_figures_are_said_to_be_of_one_curve(what: str) -> None:
    """Beside "should run about 14 min" a reader sees "on the mean +1 h 18 min"."""
    desk = a_pair(pellucid(Likes(speeds=SLOW)))
    memory = desk.core.estimator
    assert isinstance(memory, Memory)
    found = analysis(Futures(desk.core, memory, 1.0), "waits", "bob")
    ordered = replace(found, order=(OrderTerm(what, 4680.0),))
    assert place(ordered).endswith(ONE_CURVE) == ("mean" in what)


def test_a_pair_that_does_not_pay_is_found_with_its_speeds_and_loss() -> None:
    desk = a_pair(pellucid(Likes(speeds=SLOW)))
    (wait,) = [d for d in desk.core.decide(1.0) if d.action is Action.WAIT]
    found = partner(desk)
    assert found is not None
    assert (found.at, found.job_id, found.speeds) == (1.0, "runs", (0.5, 0.4))
    assert found.refused is wait.reason is Reason.INTERFERENCE_GUARD
    assert found.gain_s == dict(wait.evidence)["gain_s"]
    assert found.gain_s is not None
    assert found.gain_s < 0
    words = said(desk, 1.0)
    assert words["place"] == (
        "Number 1 of 1 in virtual cluster vc. The line is ordered by this sum, smallest first: the "
        "model's duration +10 min."
    )
    assert words["still"] == ""  # without `runs` it would start
    text = str(words["sharing"])
    assert "run at 50% of its speed alone and the other at 40%" in text
    assert "cost more time than it saves" in text
    assert "runs" not in text.split()
    desk.core.withdrawn("runs", 2.0)
    assert partner(desk) is not None
    assert said(desk, 2.0)["sharing"] == "", "it is gone"


@pytest.mark.parametrize("make", [pellucid, lucid])
def test_memory_that_does_not_fit_is_told_as_such(make: type[Policy]) -> None:
    """Though the pair would run at full speed."""
    desk = a_pair(make(Likes()), HEAVY, HEAVY)
    desk.core.decide(1.0)
    assert partner(desk) == Partner(1.0, "runs", Reason.MEMORY_GUARD)
    assert "the memory of GPUs there does not hold both" in str(said(desk, 1.0)["sharing"])


def test_lucids_priority_rule_is_told_as_such_and_not_as_interference() -> None:
    desk = a_pair(lucid(Likes()), runs=600.0, waits=1300.0)
    desk.core.decide(1.0)
    assert partner(desk) == Partner(1.0, "runs", Reason.PRIORITY_RATIO)
    assert desk.core.jobs["waits"].reason is Reason.GPUS_BUSY
    assert "GPU-time is too large beside the other's" in str(said(desk, 1.0)["sharing"])


def test_a_partner_whose_gpus_are_kept_is_not_told_as_one_that_would_do() -> None:
    desk = a_pair(
        pellucid(Likes(), max_wait_s=HOUR, overload=16.0, backfill=0.0), runs=1e6, waits=10.0
    )
    desk.core.submitted(replace(a_job("first").job, share=False), 0.0)
    desk.core.jobs["waits"].profile = None
    desk.core.decide(HOUR)
    assert desk.core.policy.reservation("vc") == ("first", [(0, 1)])
    desk.core.jobs["waits"].profile = LIGHT
    desk.core.submitted(a_job("again", at=HOUR).job, HOUR)
    desk.core.decide(HOUR + 1.0)
    assert partner(desk) == Partner(HOUR + 1.0, "runs", Reason.RESERVED_FOR_STARVING_JOB)
    assert "kept for a waiting job" in str(said(desk, HOUR + 1.0)["sharing"])


def test_what_was_not_examined_is_said() -> None:
    desk = a_pair(pellucid(Likes(speeds=SLOW), partner_searches=0))
    desk.core.decide(1.0)
    found = desk.core.policy.findings(desk.core.jobs["waits"])
    assert (found.partner, found.not_examined) == (None, (NotExamined.SEARCHES_SPENT,))
    assert NOT_EXAMINED[NotExamined.SEARCHES_SPENT] in said(desk, 1.0)["not_examined"]  # type: ignore[operator]
    desk.core.jobs["waits"].profile = None
    found = desk.core.policy.findings(desk.core.jobs["waits"])
    assert found.not_examined == (NotExamined.NO_PROFILE,)


def test_two_that_share_gpus_are_told_as_a_set_that_would_do_as_well() -> None:
    desk = Desk(
        lucid(Likes()), cluster_of(nodes=2, gpus=2), TableEstimator("given", {}, default=600.0)
    )
    memory = desk.core.estimator = Memory(desk.core.estimator)
    for job_id, gpus in (("host", 2), ("one", 1), ("two", 1), ("guest", 2), ("waits", 2)):
        sample = a_job(job_id, gpus=gpus, user=job_id)
        desk.core.submitted(sample.job, 0.0)
        light = job_id in ("host", "guest")  # none of the others may share
        desk.core.jobs[job_id].profile = LIGHT if light else Profile(50.0, 30.0, 24_000.0)
        desk.core.decide(0.0)
    runs = desk.core.cluster.runs
    guest = runs["host"].partner
    assert guest is not None
    assert guest.job.job_id == "guest"
    assert "waits" not in runs
    blockers = find_blockers(Futures(desk.core, memory, 1.0), "waits")
    sets = [blockers.holders, *blockers.instead]
    assert sorted(sorted(holder.job_id for holder in runs) for runs in sets) == [
        ["guest", "host"],
        ["one", "two"],
    ]


def test_a_bound_that_many_jobs_make_longer_is_not_said_to_be_the_shorter_one() -> None:
    desk = a_pair(pellucid())
    desk.core.decide(1.0)
    memory = desk.core.estimator
    assert isinstance(memory, Memory)
    found = analysis(Futures(desk.core, memory, 1.0), "waits", "bob")
    long = Promise(4 * 24 * HOUR, 12 * 24 * HOUR, demand=3.0)
    words = promise(replace(found, bound=long, reserved=None))
    assert (
        "in 12 d at the latest (not 4 d after its submission but longer: jobs ask for 3.0" in words
    )
