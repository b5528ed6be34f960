"""Equal jobs are predicted by equal knowledge; a change moves a prediction by what it changes."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.job import Job
from features.schema import State
from scheduler.core.cluster import Cluster, ClusterSpec
from scheduler.core.decisions import Fact, Score
from scheduler.core.durations import Stated, seconds_of
from scheduler.core.estimates import Estimate, LiveEstimator, moved_by
from scheduler.explain.whatif.changes import Change
from scheduler.explain.whatif.counterfactuals import WhatIf
from scheduler.explain.whatif.forecasts import Futures
from scheduler.explain.whatif.memory import Memory
from scheduler.policies.pellucid.repredict import _request
from scheduler.testing.builders import VC, Desk, Sample, a_job, pellucid

HOUR_S = 3600.0
TYPE = "V100"


class TypeMinded(LiveEstimator):
    """Takes a job that asks for a GPU type to be long."""

    def estimate(self, job: Job, now: float) -> Estimate:
        found = super().estimate(job, now)
        return Estimate(90.0 * seconds_of(found.seconds)) if job.gpu_type else found


def a_desk(**chosen: float) -> Desk:
    """Two nodes of 8 GPUs of one type, one of them taken for good."""
    cluster = Cluster(ClusterSpec({VC: 2}, 8, TYPE))
    desk = Desk(pellucid(**chosen), cluster, Memory(TypeMinded()))
    desk.submit(a_job("first", gpus=8, user="nobody", for_=1e9))
    desk.submit(a_job("second", gpus=8, user="nobody", for_=1e9))
    return desk


def learn(desk: Desk, user: str, seconds: float, now: float, name: str = "") -> None:
    """A job of a user has come, run and ended elsewhere."""
    job, core = Job(f"gone-{user}-{now}", now - 1, 1, user, VC, name), desk.core
    core.estimator.submitted(job, now)
    core.estimator.started(job.job_id, now)
    core.estimator.ended(job.job_id, State.COMPLETED, seconds, now)


def order(desk: Desk) -> list[tuple[str, float | None]]:
    return [(one.job.job_id, one.predicted_s) for one in desk.core.queues[VC]]


def change(desk: Desk, job_id: str, now: float, **to: object) -> None:
    desk.core.waiting.change(replace(desk.core.jobs[job_id].job, **to), now)  # type: ignore[arg-type]
    desk.core.decide(now)


def no_change(desk: Desk, job_id: str, which: str, now: float) -> None:
    """Do something to a waiting job that changes nothing of it."""
    if which == "held":
        submitted_at = desk.core.jobs[job_id].submit_time
        desk.core.waiting.hold(job_id, now)
        desk.core.waiting.release(job_id, now)
        assert desk.core.jobs[job_id].submit_time == submitted_at
        desk.core.decide(now)
    elif which == "type":
        has = desk.core.jobs[job_id].job.gpu_type
        change(desk, job_id, now, gpu_type=None if has else TYPE)
    else:
        change(desk, job_id, now)


def test_to_ask_for_the_type_that_all_nodes_have_buys_no_place() -> None:
    desk = a_desk()
    desk.submit(*(a_job(f"j{i}", gpus=8, user=f"u{i}", at=float(i)) for i in range(5)), now=5.0)
    for i in range(40):
        learn(desk, f"u{i % 5}", 20.0, 100.0 + i)
    before = order(desk)
    change(desk, "j4", 200.0, gpu_type=TYPE)
    assert order(desk) == before
    assert desk.core.jobs["j4"].job.gpu_type == TYPE


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.floats(1.0, 1e5)), min_size=1, max_size=12),
    st.lists(st.tuples(st.integers(0, 7), st.sampled_from(("none", "type", "held"))), max_size=8),
)
def test_what_changes_nothing_moves_nothing(
    ended: list[tuple[int, float]], changes: list[tuple[int, str]]
) -> None:
    desk = a_desk()
    waiting = [a_job(f"j{i}", gpus=1 + i % 3, user=f"u{i % 4}", at=float(i)) for i in range(8)]
    desk.submit(*waiting, now=10.0)
    for n, (user, seconds) in enumerate(ended):
        learn(desk, f"u{user}", seconds, 100.0 + n)
    before = order(desk)
    for n, (which, how) in enumerate(changes):
        no_change(desk, f"j{which}", how, 200.0 + n)
        assert order(desk) == before


Move = tuple[str, int, int, float]
MOVES = st.tuples(
    st.sampled_from(("submit", "submit", "end", "end", "none", "type", "held", "limit")),
    st.integers(0, 5),
    st.integers(0, 2),
    st.floats(1.0, 1e5),
)


def a_request(user: int, kind: int, number: int, now: float, seconds: float) -> Sample:
    sample = a_job(f"j{number}", gpus=(1, 4, 8)[kind], user=f"u{user % 2}", at=now, for_=seconds)
    return replace(sample, job=replace(sample.job, name=f"run{user % 3}"))


@settings(max_examples=60, deadline=None)
@given(st.lists(MOVES, min_size=5, max_size=60))
def test_two_jobs_that_ask_for_the_same_are_believed_alike(moves: list[Move]) -> None:
    desk = a_desk(predict_again_s=HOUR_S)
    now, submitted = 0.0, 0
    for what, at, kind, seconds in moves:
        now += 100.0
        waiting = [one.job.job_id for one in desk.core.queues[VC]]
        running = [job_id for job_id in desk.cluster.runs if job_id != "first"]
        if what == "submit":
            desk.submit(a_request(at, kind, submitted, now, seconds), now=now)
            submitted += 1
        elif what == "end" and running:
            desk.end(running[at % len(running)], now=now)
        elif what == "limit" and waiting:
            change(desk, waiting[at % len(waiting)], now, time_limit_s=3600.0 * (1 + kind))
        elif waiting:
            no_change(desk, waiting[at % len(waiting)], what, now)
        seen: dict[Job, tuple[float | None, float]] = {}
        for one in desk.core.queues[VC]:
            asked = replace(one.job, job_id="", submit_time=0.0, gpu_type=None)
            if one.job.gpu_type:  # asked for so since; it was predicted as the others were then
                continue
            estimate_s, came = seen.get(asked, (one.predicted_s, one.submit_time))
            assert one.predicted_s == estimate_s
            assert came <= one.submit_time
            seen[asked] = one.predicted_s, one.submit_time


def test_an_end_is_news_of_those_alike_and_of_nobody_else() -> None:
    desk = a_desk(order_by="predicted")
    kin = [a_job(f"j{i}", gpus=8, user="u", at=float(i), for_=10.0) for i in range(3)]
    desk.submit(*kin, a_job("other", gpus=8, user="v", at=4.0, for_=1e6), now=5.0)
    first_s = desk.core.jobs["j1"].estimate_s
    beside_s = desk.core.jobs["other"].estimate_s
    desk.end("second", now=1000.0)
    desk.end("j0", now=1010.0)
    assert "j1" in desk.cluster.runs
    later_s = desk.core.jobs["j2"].estimate_s
    assert later_s is not None
    assert first_s is not None
    assert seconds_of(later_s) < seconds_of(first_s) / 1.5
    assert desk.core.jobs["other"].estimate_s == beside_s
    memory = desk.core.estimator
    assert isinstance(memory, Memory)
    assert (of := memory.of("j2")) is not None
    assert of.predicted_s == later_s


def test_one_that_joins_is_believed_as_those_that_wait() -> None:
    desk = a_desk()
    desk.submit(a_job("a", gpus=8, user="u", at=1.0), now=1.0)
    for i in range(30):
        learn(desk, "u", 10.0, 100.0 + i)
    desk.submit(a_job("b", gpus=8, user="u", at=200.0), now=200.0)
    assert [one.job.job_id for one in desk.core.queues[VC]] == ["a", "b"]
    assert desk.core.jobs["a"].estimate_s == desk.core.jobs["b"].estimate_s


def test_a_change_moves_a_prediction_term_by_term_and_a_what_if_knows_by_how_much() -> None:
    desk = a_desk()
    desk.submit(a_job("j", gpus=8, user="u", at=1.0), a_job("k", gpus=4, user="u"), now=1.0)
    for i in range(30):
        learn(desk, "u", 10.0, 100.0 + i)
    before = desk.core.jobs["j"].score
    memory = desk.core.estimator
    assert isinstance(memory, Memory)
    asked = replace(desk.core.jobs["j"].job, gpus=2)
    foreseen_s = memory.predicted(asked, 200.0)
    assert foreseen_s is not None
    said = WhatIf(Futures(desk.core, memory, 200.0), lambda job: memory.predicted(job, 200.0))
    assert said._predicted(desk.core.jobs["j"].job, Change({"gpus": 2}))[0] == foreseen_s
    new = memory.inner.estimate(replace(asked, job_id="new", submit_time=200.0), 200.0)
    fresh_s = seconds_of(new.seconds)
    change(desk, "j", 200.0, gpus=2)
    after = desk.core.jobs["j"]
    assert after.predicted_s == pytest.approx(seconds_of(foreseen_s))
    assert after.predicted_s is not None
    assert after.predicted_s > 2 * fresh_s, "what its user's other jobs took is no part of a change"
    assert before is not None
    assert after.score is not None
    assert after.score.value == sum(after.score.terms, after.score.intercept)
    assert after.score.terms != before.terms


def test_answers_that_cannot_be_compared_stand_as_they_are() -> None:
    one = Estimate(10.0, Score(2.4, 2.0, (0.4,), "m"))
    other = Estimate(20.0, Score(3.0, 2.0, (1.0,), "m"))
    new_model = Estimate(30.0, Score(3.4, 3.0, (0.4,), "n"))
    assert moved_by(new_model, one, other) == other
    assert moved_by(new_model, one, one) == new_model, "nothing has changed"
    assert moved_by(Estimate(10.0), one, other) == other
    assert moved_by(one, one, other) == other
    limited = Estimate(10.0, Score(2.4, 2.0, (0.4,), "m", facts=(Fact.LIMIT,)))
    outlived = Estimate(20.0, Score(3.0, 2.0, (1.0,), "m", facts=(Fact.OUTLIVED,)))
    assert moved_by(one, limited, outlived) == outlived, "terms of unlike facts"
    stated = Estimate(Stated(20.0, 0.1, 40.0))
    moved = moved_by(Estimate(5.0), Estimate(10.0), stated).seconds
    assert isinstance(moved, Stated)
    assert moved.error == 0.1
    assert moved.seconds == pytest.approx(6 * 21 / 11 - 1)


def test_all_that_a_job_asks_for_makes_it_another() -> None:
    job = Job("j", 0.0, 1, "u", VC)
    alone = {"job_id": "k", "submit_time": 9.0, "after": "x", "after_any": "x"}
    for one in fields(Job):
        other = replace(job, **{one.name: alone.get(one.name, "something else")})
        assert (_request(job) == _request(other)) is (one.name in alone), one.name
