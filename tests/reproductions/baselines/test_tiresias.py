"""Tiresias: rounds, two queues by attained GPU-time, first come first served inside each."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.worlds import open_scenario
from reproductions.baselines.tiresias import Tiresias
from scheduler.core.decisions import Action, Reason
from scheduler.simulation.results import summarise
from scheduler.testing.builders import a_job, cluster_of, play

PUBLISHED_S = 14_700.0
TIE_ORDER_SD_S = 124.0  # of the average over orders of jobs submitted in the same second


def test_nothing_happens_between_rounds() -> None:
    played = play(Tiresias(), cluster_of(nodes=1), a_job("a", at=1.0))
    assert played.result("a").start_time == 60.0
    assert played.reasons("a") == [Reason.NEXT_ROUND]


def test_a_job_that_had_its_share_gives_way_and_comes_back() -> None:
    """8 GPUs x 2,250 s is the threshold; the next round stops the job, which pays 40 s."""
    jobs = [a_job("old", gpus=8, for_=9000.0), a_job("new", gpus=8, for_=600.0, at=600.0)]
    played = play(Tiresias(), cluster_of(nodes=1), *jobs)
    (stop,) = played.actions(Action.PREEMPT)
    assert (stop.job_id, stop.time, stop.reason) == ("old", 2280.0, Reason.MORE_SERVICE_ATTAINED)
    assert stop.blocker == "new"
    assert played.result("new").start_time == 2280.0
    assert played.result("old").end_time == 2280.0 + 600.0 + (9000.0 - 2280.0) + 40.0


@pytest.mark.shared_data
def test_published_average(shared_data: Path) -> None:
    scenario = open_scenario(shared_data / "venus", track="published")
    outcome, _ = scenario.simulate("tiresias")
    figures = summarise(outcome, scenario.workload.cluster.gpus)
    assert figures["avg_jct_s"] == pytest.approx(PUBLISHED_S, abs=TIE_ORDER_SD_S)
    assert figures["p999_queue_s"] == pytest.approx(195_846, rel=1e-4)
    assert figures["makespan_s"] == 3_354_133
