"""A deep queue is predicted again: all of it at once, by what can tell of its jobs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from features.job import Job
from features.schema import State
from scheduler.core.decisions import Action, Decision
from scheduler.core.durations import seconds_of
from scheduler.core.estimates import Estimate, Estimator, HistoriesEstimator
from scheduler.explain.whatif.memory import Memory
from scheduler.policies.pellucid.policy import Pellucid
from scheduler.testing.builders import (
    Desk,
    Sample,
    UserMeans,
    a_job,
    actions,
    cluster_of,
    pellucid,
)

HOUR = 3600.0


def a_desk(
    *, estimator: Estimator | None = None, period_s: float = HOUR, max_wait_s: float = 1e9
) -> Desk:
    """One node of 8 GPUs, all of them taken from the start."""
    policy = pellucid(
        predict_again_s=period_s, max_wait_s=max_wait_s, overload=1000.0, ageing=0.0, price=1e12
    )
    desk = Desk(policy, cluster_of(), estimator or UserMeans())
    desk.submit(a_job("first", gpus=8, user="nobody", for_=1e9))
    return desk


def of(user: str, name: str, *, at: float = 0.0, for_: float = 600.0, gpus: int = 8) -> Sample:
    return a_job(name, gpus=gpus, user=user, at=at, for_=for_)


def waits(decisions: list[Decision]) -> dict[str, Decision]:
    return {d.job_id: d for d in decisions if d.action is Action.WAIT}


def burst(desk: Desk) -> None:
    """Two users send ten jobs each, of which nothing is known yet; one of each has ended since."""
    desk.submit(*(of(user, f"{user}{i}") for i in range(10) for user in ("slow", "fast")))
    for user, took_s in (("slow", 90_000.0), ("fast", 10.0)):
        has_ended(desk, a_job(f"gone-{user}", gpus=8, user=user).job, took_s, 2.0)


def has_ended(desk: Desk, job: Job, took_s: float, now: float) -> None:
    """A job of elsewhere has ended: both who predicts and who asks again are notified."""
    desk.core.estimator.submitted(job, now)
    desk.core.estimator.ended(job.job_id, State.COMPLETED, took_s, now)
    assert isinstance(desk.core.policy, Pellucid)
    desk.core.policy.repredict.ended(job)


def test_a_burst_is_ordered_by_what_its_first_jobs_showed() -> None:
    desk = a_desk()
    burst(desk)
    decisions = desk.end("first", now=2 * HOUR)
    assert (Action.START, "fast0") in actions(decisions)
    assert [queued.job.user for queued in desk.core.queues["vc"]] == ["fast"] * 9 + ["slow"] * 10
    told = waits(decisions)
    assert set(told) == {f"fast{i}" for i in range(1, 10)} | {f"slow{i}" for i in range(10)}
    assert told["slow3"].estimate_s == pytest.approx(45_300.0)
    assert dict(told["slow3"].evidence)["predicted_before_s"] == 600.0
    assert told["slow3"].priority == pytest.approx(45_300.0 * 8**0.5)
    never = a_desk(period_s=0.0)
    burst(never)
    assert (Action.START, "slow0") in actions(never.end("first", now=2 * HOUR))


def test_once_in_a_period_and_nobody_is_told_the_same_twice() -> None:
    desk = a_desk()
    burst(desk)
    assert not waits(desk.wake(HOUR - 1))
    assert len(waits(desk.wake(HOUR))) == 20
    assert not waits(desk.wake(2 * HOUR))
    has_ended(desk, a_job("gone", gpus=8, user="fast").job, 9e5, 2 * HOUR)
    assert not waits(desk.wake(3 * HOUR - 1))
    assert set(waits(desk.wake(3 * HOUR))) == {f"fast{i}" for i in range(10)}


def test_nobody_is_asked_about_of_whom_nothing_was_heard() -> None:
    """Neither jobs of users of whom none ended since, nor those of which nobody knows whose."""
    desk = a_desk()
    desk.submit(*(of(user, f"{user}{i}") for i in range(10) for user in ("ann", "")))
    asked: list[str] = []
    estimator = desk.core.estimator
    answer = estimator.estimate

    def estimate(job: Job, now: float) -> Estimate:
        asked.append(job.user)
        return answer(job, now)

    estimator.estimate = estimate  # type: ignore[method-assign]
    desk.wake(2 * HOUR)
    assert not asked
    for user in ("ann", ""):
        has_ended(desk, a_job(f"gone-{user}", user=user).job, 9e5, 2 * HOUR)
    desk.wake(3 * HOUR)
    assert set(asked) == {"ann"}


def test_where_users_are_unknown_names_tell_whose_news_it_is() -> None:
    desk = a_desk()
    jobs = [a_job(f"{name}{i}", gpus=8, user="") for i in range(10) for name in ("x", "y")]
    desk.submit(*(replace(one, job=replace(one.job, name=one.id[0])) for one in jobs))
    has_ended(desk, replace(a_job("gone", user="").job, name="x"), 9e5, 1.0)
    assert {job_id[0] for job_id in waits(desk.wake(2 * HOUR))} == {"x"}


def test_a_short_queue_is_left_alone() -> None:
    """Less than a period of work waits: 600 s of all GPUs."""
    desk = a_desk()
    desk.submit(of("slow", "one"))
    has_ended(desk, a_job("gone", gpus=8, user="slow").job, 9e5, 2.0)
    assert not waits(desk.wake(2 * HOUR))


def test_what_was_submitted_later_tells_nothing() -> None:
    """The retry of the morning took seconds; the job that was sent for the night is another."""
    desk = a_desk()
    burst(desk)
    desk.wake(HOUR)
    desk.submit(of("slow", "retry", at=3 * HOUR, gpus=1, for_=5.0), now=3 * HOUR)
    desk.end("first", now=3 * HOUR)  # a job of `fast`, then others of it, then the retry
    for at in range(10):
        holders = list(desk.cluster.runs)
        if "retry" in holders:
            break
        desk.end(*holders, now=3 * HOUR + at)
    queue = desk.core.queues["vc"]
    before = {one.job.job_id: one.predicted_s for one in queue if one.job.user == "slow"}
    assert before
    desk.end("retry", now=4 * HOUR)  # what is known of `slow` is another: the mean of one more
    desk.wake(9 * HOUR)
    after = {one.job.job_id: one.predicted_s for one in queue if one.job.user == "slow"}
    assert len(after) == 9, "one of them started"
    assert after.items() <= before.items()


def test_a_job_past_its_bound_keeps_its_place() -> None:
    desk = a_desk(max_wait_s=1.5 * HOUR)
    burst(desk)
    desk.wake(2 * HOUR)
    queue = desk.core.queues["vc"]
    assert [queued.submit_time for queued in queue] == [0.0] * 20
    before = {queued.job.job_id: (queued.key, queued.estimate_s) for queued in queue}
    has_ended(desk, a_job("gone", gpus=8, user="fast").job, 9e5, 2 * HOUR)
    assert not waits(desk.wake(4 * HOUR))
    assert before == {queued.job.job_id: (queued.key, queued.estimate_s) for queued in queue}


def test_who_remembers_predictions_hears_of_the_new_one() -> None:
    """Forecasts draw from what is predicted of a job now."""
    memory = Memory(UserMeans())
    desk = a_desk(estimator=memory)
    burst(desk)
    desk.wake(2 * HOUR)
    past = memory.of("slow3")
    assert past is not None
    assert past.predicted_s == desk.core.jobs["slow3"].estimate_s
    assert desk.core.jobs["slow3"].predicted_s == pytest.approx(45_300.0)


class Recorded(HistoriesEstimator):
    """Counts the answers that are decided with."""

    def __init__(self) -> None:
        super().__init__()
        self.said: dict[str, list[float]] = {}

    def enqueued(self, job: Job, now: float) -> Estimate:
        estimate = super().enqueued(job, now)
        self.said.setdefault(job.job_id, []).append(seconds_of(estimate.seconds))
        return estimate


def test_histories_answer_as_of_now_with_terms_that_add_up() -> None:
    estimator = Recorded()
    desk = a_desk(estimator=estimator)
    desk.submit(*(of("slow", f"slow{i}", gpus=8) for i in range(10)))
    policy, gone = desk.core.policy, list[Job]()
    assert isinstance(policy, Pellucid)
    for i in range(20):
        job = a_job(f"gone{i}", gpus=8, user="slow").job
        estimator.submitted(job, 1.0)
        estimator.started(job.job_id, 1.0)
        gone.append(job)
    for job in gone:
        estimator.ended(job.job_id, State.COMPLETED, 50_000.0, 50_001.0)
        policy.repredict.ended(job)
    told = waits(desk.wake(50_001.0))["slow3"]
    before_s, after_s = estimator.said["slow0"]  # the others are believed as it is
    assert before_s < 3600 < 20_000 < after_s
    assert told.score is not None
    assert told.score.value == pytest.approx(told.score.intercept + sum(told.score.terms))


@pytest.mark.parametrize("field", ["like", "expect"])
def test_the_end_of_one_of_a_sweep_is_news_of_the_others(field: str) -> None:
    """Each has a command of its own, or is expected to take another time."""
    desk = a_desk(estimator=HistoriesEstimator())
    sweep = [replace(one, job=replace(one.job, **{field: f"{i + 1}h"})) for i, one in enumerate(
        of("ann", f"sweep{i}") for i in range(5)
    )]  # fmt: skip
    desk.submit(*sweep)
    before = {job_id: desk.core.jobs[job_id].predicted_s for job_id in ("sweep2", "sweep3")}
    has_ended(desk, replace(sweep[0].job, job_id="gone", **{field: "9h"}), 5.0, 2.0)
    told = waits(desk.wake(3.0))
    for job_id, before_s in before.items():
        assert before_s is not None
        assert (told[job_id].estimate_s or 0.0) < before_s / 2


def test_what_became_of_a_job_is_counted_with_its_last_prediction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk = a_desk()
    burst(desk)
    desk.wake(HOUR)
    policy = desk.core.policy
    assert isinstance(policy, Pellucid)
    learned: list[tuple[float, float]] = []
    monkeypatch.setattr(policy.distribution, "learn", lambda *told: learned.append(told[:2]))
    desk.end("first", now=2 * HOUR)
    assert list(desk.cluster.runs) == ["fast0"]
    predicted_s = desk.core.jobs["fast0"].estimate_s
    assert desk.core.jobs["fast0"].predicted_s != 600.0
    desk.end("fast0", now=2 * HOUR + 7)
    assert learned[-1] == (predicted_s, 7.0)
