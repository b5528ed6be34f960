"""What a job says itself of how long it runs: weighed, told as a term, and used."""

from __future__ import annotations

import pickle
from dataclasses import replace
from math import expm1, log1p
from statistics import fmean
from types import SimpleNamespace
from typing import Any

import pytest

from features.commands import work_of
from features.job import Job, Profile
from features.progress import Progress
from features.repeats import Claim
from features.schema import State
from features.survival import EDGES_S
from features.throughput import Ran, asked
from scheduler.core.cluster import Cluster, ClusterSpec
from scheduler.core.core import Core
from scheduler.core.curves import Predicted
from scheduler.core.decisions import Action, Score
from scheduler.core.durations import DurationDistribution, Stated, seconds_of
from scheduler.core.estimates import (
    OF_HISTORIES,
    Estimate,
    HistoriesEstimator,
    with_command,
    with_progress,
)
from scheduler.core.following import moved_to
from scheduler.core.profiling import WaitingStage
from scheduler.explain.terms import breakdowns, gap_of, reasons
from scheduler.testing.builders import Desk, a_job, pellucid

HOUR = 3600.0
SURE = Progress(12 * HOUR, 11.8 * HOUR, 12.2 * HOUR, 3, 90, "epoch", 480.0, 1440.0, "epoch")
UNSURE = replace(SURE, low_s=2 * HOUR, high_s=60 * HOUR)


def test_it_is_weighed_by_its_error_and_is_a_term_of_the_score() -> None:
    score = Score(log1p(600.0), 5.0, (log1p(600.0) - 5.0,), "coldstart", ("0.5",))
    sure, unsure = (with_progress(Estimate(600.0, score), said) for said in (SURE, UNSURE))
    assert seconds_of(sure.seconds) == pytest.approx(12 * HOUR, rel=0.02)
    assert seconds_of(unsure.seconds) < 0.75 * seconds_of(sure.seconds)
    assert sure.score is not None
    assert gap_of(sure.score) < 1e-9
    assert seconds_of(sure.seconds) == pytest.approx(expm1(sure.score.value))
    assert sure.score.inputs[-1] == "90 epochs of 480 s"
    assert with_progress(sure, SURE) is sure, "once is enough"
    assert with_progress(Estimate(600.0, score), None).score is score


def test_what_its_command_says_is_weighed_by_its_error_and_ends_at_the_limit() -> None:
    work = work_of(["train.py", "--epochs", "90"])
    assert work is not None
    runs = tuple(Ran(replace(work, amount=n), 1, 100.0 * n) for n in (10.0, 20.0, 30.0))
    state: Any = SimpleNamespace(ran=lambda job: runs)
    job = replace(a_job("a", gpus=1).job, work=work)
    found = asked(work, 1, runs)
    assert found is not None
    before, weight = log1p(600.0), 2.25 / (2.25 + found.error**2)
    score = Score(before, 5.0, (before - 5.0,), "coldstart", ("0.5",))
    for given in (None, score):
        own = with_command(Estimate(600.0, given), job, state)
        mean = expm1(before + weight * (log1p(found.total_s) - before))
        assert isinstance(own.seconds, Stated)
        assert (own.seconds.seconds, own.score is None) == (pytest.approx(mean), given is None)
        assert own.seconds.error == pytest.approx(weight**0.5 * found.error)
        assert own.seconds.without_s == 600.0
    limited = with_command(Estimate(600.0, score), replace(job, time_limit_s=700.0), state)
    assert 600.0 < seconds_of(limited.seconds) <= 700.0
    longer = with_command(Estimate(1e5), replace(job, time_limit_s=700.0), state)
    assert seconds_of(longer.seconds) <= 700.001
    own = with_command(Estimate(600.0, score), job, state)
    surer = replace(SURE, low_s=SURE.total_s * 0.8, high_s=SURE.total_s * 1.2)
    assert found.error < surer.error < 0.25  # doubtful from there on
    assert seconds_of(with_progress(own, surer).seconds) == pytest.approx(SURE.total_s, rel=0.1)
    assert with_progress(own, UNSURE) is own
    nobody: Any = SimpleNamespace(ran=lambda job: ())
    assert with_command(Estimate(600.0), job, nobody) == Estimate(600.0)
    assert with_command(Estimate(600.0), replace(job, work=None), state) == Estimate(600.0)


def test_a_duration_it_states_has_an_error_of_its_own() -> None:
    distribution = DurationDistribution()
    stated = Stated(12 * HOUR, 0.05, without_s=600.0)
    for seen in (stated, pickle.loads(pickle.dumps(stated))):
        low, high = (distribution.quantile_s(seen, level) for level in (0.1, 0.9))
        assert 0.9 * seen.seconds < low < seen.seconds < high < 1.1 * seen.seconds
        quantiles = distribution.quantiles(seen, 6 * HOUR)
        assert quantiles[len(quantiles) // 2] == pytest.approx(12 * HOUR, rel=0.02)
        assert distribution.expected_s(seen, 6 * HOUR) == pytest.approx(6 * HOUR, rel=0.02)
        assert distribution.quantile_at(0.9)(seen) == high
        assert distribution.expected_s(seen, 14 * HOUR) < 2 * HOUR, "it will be over soon"
    before = distribution.quantile_s(600.0, 0.9)
    for _ in range(200):
        distribution.learn(stated, 12 * HOUR)  # of it the prediction without it is learned from
    assert distribution.quantile_s(600.0, 0.9) > max(before, 6 * HOUR)
    assert distribution.quantile_s(stated, 0.9) == high


def core_of(gpus: int = 2) -> Core:
    cluster = Cluster(ClusterSpec({"vc": 1}, gpus))
    return Core(cluster, pellucid(), HistoriesEstimator())


def submitted(core: Core, job_id: str, at: float, gpus: int = 2, user: str = "ann") -> None:
    core.submitted(Job(job_id, at, gpus, user=user, vc="vc"), at)


def test_of_a_job_that_runs_what_is_left_is_what_it_says() -> None:
    core = core_of()
    submitted(core, "runs", 0.0)
    assert [d.action for d in core.decide(0.0)] == [Action.ENQUEUE, Action.START]
    submitted(core, "waits", 60.0)
    core.decide(60.0)
    assert core.held_by("vc", 2, 60.0).gone_in_s < 3 * HOUR
    core.progressed("runs", SURE, 1440.0)
    core.decide(1440.0)
    assert core.held_by("vc", 2, 1440.0).gone_in_s == pytest.approx(12 * HOUR - 1440, rel=0.05)
    estimate = core.jobs["runs"].estimate_s
    assert isinstance(estimate, Stated)
    assert core.jobs["waits"].progress is None


def test_a_script_that_stops_early_again_and_again_is_not_believed_to_go_to_its_end() -> None:
    core, work = core_of(), work_of(["train.py", "--epochs", "90"])
    for i, name in enumerate(("a", "b", "c", "now")):
        at = i * 4 * HOUR
        core.submitted(Job(name, at, 2, user="ann", vc="vc", work=work), at)
        core.decide(at)
        if name != "now":
            core.ended(name, State.COMPLETED, 4 * HOUR, at + 4 * HOUR)
    core.progressed("now", SURE, 12 * HOUR + 1440.0)
    found = core.jobs["now"].progress
    assert found is not None
    assert found.total_s == pytest.approx(4 * HOUR)
    assert found.high_s == SURE.high_s
    core.decide(12 * HOUR + 1440.0)
    assert core.held_by("vc", 2, 12 * HOUR + 1440.0).gone_in_s < 8 * HOUR


def test_jobs_like_it_are_predicted_by_it_until_it_ends_and_then_by_its_end() -> None:
    core = core_of(8)
    submitted(core, "first", 0.0)
    core.decide(0.0)
    ask = Job("next", 1500.0, 2, user="ann", vc="vc")

    def predicted() -> float:
        return seconds_of(core.estimator.estimate(ask, 1500.0).seconds)

    before = predicted()
    core.progressed("first", UNSURE, 1500.0)
    unsure = predicted()
    core.progressed("first", SURE, 1500.0)
    sure = predicted()
    assert before < unsure < sure
    other = Job("other", 1500.0, 2, user="bob", vc="vc")
    assert seconds_of(core.estimator.estimate(other, 1500.0).seconds) < sure
    own = Job("first", 0.0, 2, user="ann", vc="vc")
    assert seconds_of(core.estimator.estimate(own, 1500.0).seconds) < before, (
        "it is no news to itself"
    )
    core.ended("first", State.FAILED, 1500.0, 1500.0)
    assert predicted() < 0.5 * sure, "it said more than it did"


def test_the_queue_is_ordered_by_it_after_the_profiling_run_and_it_is_said_why() -> None:
    cluster = Cluster(ClusterSpec({"vc": 2}, 1), {"vc": 1})
    desk = Desk(pellucid(), cluster, HistoriesEstimator(), WaitingStage())
    samples = [a_job(name, gpus=1, user="ann", for_=12 * HOUR) for name in "abcd"]
    taken = desk.submit(*samples)
    (profiled,) = [d.job_id for d in taken if d.action is Action.PROFILE]
    desk.core.progressed(profiled, SURE, 200.0)
    desk.core.profile_ended(profiled, Profile(90.0, 50.0, 9000.0, False), 200.0)
    decisions = desk.core.decide(200.0)
    queue = [queued.job.job_id for queued in desk.core.queues["vc"]]
    assert len(queue) > 1
    assert queue[-1] == profiled
    (joined,) = [d for d in decisions if d.action is Action.ENQUEUE]
    assert joined.estimate_s == pytest.approx(12 * HOUR, rel=0.02)
    assert joined.evidence[0][1] > 11 * HOUR  # a tenth of such jobs is shorter
    (breakdown,) = breakdowns([joined], {"coldstart": OF_HISTORIES})
    assert breakdown.adds_up
    assert breakdown.terms_known
    assert "\u00d727 (its own progress says 90 epochs of 480 s)" in reasons(breakdown)


def mean_of(predicted: Any) -> float:
    return fmean([predicted, 900.0])


def test_what_is_predicted_is_no_number_and_keeps_its_error_under_another() -> None:
    stated: Any = Stated(600.0, 0.05, 60.0)
    curve: Any = Predicted.of(600.0, [0.1] * len(EDGES_S), claims=(Claim(1.0, 2.0, 0.5),))
    for one in (stated, curve):
        for lost in (lambda of: of + 1.0, lambda of: min(of, 900.0), lambda of: of * 2, mean_of):
            with pytest.raises(TypeError):
                lost(one)
    assert moved_to(curve, 700.0) == curve.moved(700.0)
    assert seconds_of(curve.moved(700.0)) == 700.0
    assert curve.moved(700.0) != Predicted.of(700.0, [0.2] * len(EDGES_S)), "a curve counts, too"
    assert moved_to(stated, 700.0) == Stated(700.0, 0.05, 60.0)
    assert moved_to(None, 700.0) == 700.0
