"""The engine on examples small enough to work out by hand."""

from __future__ import annotations

import pytest

from features.schema import State
from reproductions.baselines.lucid import Lucid
from reproductions.baselines.qssf import Qssf
from reproductions.baselines.sjf import Sjf
from reproductions.baselines.srtf import Srtf
from scheduler.core.core import Core
from scheduler.core.decisions import Action
from scheduler.core.estimates import Estimator
from scheduler.policies.fifo import Fifo
from scheduler.simulation.engine import Engine
from scheduler.simulation.work import PairTable
from scheduler.testing.builders import (
    Likes,
    Played,
    Sample,
    a_job,
    a_stage,
    cluster_of,
    pair_speeds,
    play,
)
from tests.reproductions.baselines.lucid import lucid


def times(played: Played) -> dict[str, tuple[float | None, float | None]]:
    return {r.job.job_id: (r.start_time, r.end_time) for r in played.outcome.jobs}


def test_one_job_after_the_other() -> None:
    a, b = a_job("a", gpus=8, for_=600), a_job("b", gpus=8, for_=60, at=100)
    played = play(Fifo(), cluster_of(), a, b)
    assert times(played) == {"a": (0, 600), "b": (600, 660)}
    result = played.result("b")
    assert (result.jct_s, result.queue_s, result.ran_s) == (560, 500, 60)


def test_shortest_first_by_duration_and_by_gpu_time() -> None:
    jobs = (
        a_job("running", gpus=8, for_=100),
        a_job("long", gpus=1, for_=50, at=1),
        a_job("wide", gpus=8, for_=10, at=2),
    )
    assert times(play(Sjf(), cluster_of(), *jobs)) == {
        "running": (0, 100),
        "wide": (100, 110),
        "long": (110, 160),
    }
    assert times(play(Qssf(), cluster_of(), *jobs)) == {
        "running": (0, 100),
        "long": (100, 150),  # 50 GPU-seconds against 80
        "wide": (150, 160),
    }


def test_a_job_ending_makes_room_for_one_submitted_at_that_instant() -> None:
    jobs = (a_job("a", gpus=8, for_=10), a_job("b", gpus=8, for_=10, at=10))
    played = play(Fifo(), cluster_of(), *jobs)
    assert times(played)["b"] == (10, 20)
    assert played.reasons("b") == []


def test_preemption_costs_work_and_the_rest_is_done_later() -> None:
    jobs = (a_job("long", gpus=8, for_=1000), a_job("short", gpus=8, for_=100, at=200))
    played = play(Srtf(), cluster_of(), *jobs)
    # 800 s left at 200; stopped; 40 s on top; resumed at 300
    assert times(played) == {"long": (0, 1140), "short": (200, 300)}
    result = played.result("long")
    assert (result.preemptions, result.ran_s, result.queue_s) == (1, 1040, 100)
    assert played.outcome.preemptions == 1
    assert played.outcome.busy_gpu_s == 8 * 1140
    wide = (a_job("long", gpus=16, for_=1000), a_job("short", gpus=16, for_=100, at=200))
    assert times(play(Srtf(), cluster_of(nodes=2), *wide))["long"] == (0, 1160)


# --- pairs ----------------------------------------------------------------------------------------


def play_pair(speed: PairTable, *jobs: Sample, nodes: int = 1) -> Played:
    """Lucid that packs whatever it may, every profile being known."""
    played = play(
        lucid(Likes()),
        cluster_of(nodes=nodes, gpus=1, profiling=1),
        *jobs,
        stage=a_stage(limit=0.0, max_gpus=1),
        speed=speed,
    )
    assert played.outcome.packings == len(played.actions(Action.PACK))
    return played


def test_a_pair_runs_at_its_speeds_and_the_survivor_at_full_speed_again() -> None:
    speed = pair_speeds({("a", "b"): 0.5, ("b", "a"): 0.8})
    played = play_pair(
        speed, a_job("a", for_=100, config="a"), a_job("b", for_=40, at=20, config="b"), nodes=2
    )
    # alone to 20 (80 left), beside b at half speed to 70 (55 left), alone again
    assert times(played) == {"a": (0, 125), "b": (20, 70)}
    assert played.outcome.packings == 1
    assert [played.result(j).packed for j in "ab"] == [1, 1]
    assert played.outcome.busy_gpu_s == 125


def test_a_survivor_is_packed_again() -> None:
    speed = pair_speeds({}, unmeasured=0.5)
    jobs = (a_job("a", for_=100), a_job("b", for_=10, at=10), a_job("c", for_=10, at=40))
    played = play_pair(speed, *jobs, nodes=2)
    # a: 90 left at 10, 80 at 30, 70 at 40, 60 at 60
    assert times(played) == {"a": (0, 120), "b": (10, 30), "c": (40, 60)}
    assert played.result("a").packed == 2


def test_members_that_end_together_both_end() -> None:
    speed = pair_speeds({}, unmeasured=0.5)
    played = play_pair(speed, a_job("a", for_=30), a_job("b", for_=20, at=10), nodes=2)
    assert times(played) == {"a": (0, 50), "b": (10, 50)}


# --- the estimator's view -------------------------------------------------------------------------


class Listener(Estimator):
    """Writes down what an estimator is told."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[object, ...]] = []

    def submitted(self, job, now):  # type: ignore[no-untyped-def]
        self.told.append(("submitted", job.job_id, now))

    def started(self, job_id, now):  # type: ignore[no-untyped-def]
        self.told.append(("started", job_id, now))

    def profiled(self, job_id, profile, now):  # type: ignore[no-untyped-def]
        self.told.append(("profiled", job_id, profile.gpu_mem_mib, now))

    def ended(self, job_id, state, duration_s, now):  # type: ignore[no-untyped-def]
        self.told.append(("ended", job_id, state, duration_s, now))


def test_an_estimator_is_told_everything_in_order_and_durations_at_the_end() -> None:
    listener = Listener()
    play(
        Fifo(),
        cluster_of(profiling=0),
        a_job("a", gpus=8, for_=10, state=State.FAILED),
        a_job("b", gpus=8, for_=5, at=2),
        a_job("refused", gpus=99, at=3),
        estimator=listener,
    )
    assert listener.told == [
        ("submitted", "a", 0),
        ("started", "a", 0),
        ("submitted", "b", 2),
        ("ended", "a", State.FAILED, 10, 10),
        ("started", "b", 10),
        ("ended", "b", State.COMPLETED, 5, 15),
    ]


def test_progress_is_told_now_and_then() -> None:
    told: list[int] = []
    jobs = [a_job(for_=1.0) for _ in range(600)]
    core = Core(cluster_of(), Fifo())
    work = {s.id: s.work for s in jobs}
    Engine(core, [s.job for s in jobs], work, PairTable({}), progress=told.append).run()
    assert told == [256, 512]


# --- accounting -----------------------------------------------------------------------------------


def test_gpus_are_busy_while_a_job_is_profiled() -> None:
    short, long = a_job("short", for_=10), a_job("long", gpus=2, for_=100)
    played = play(Lucid(), cluster_of(nodes=2, profiling=1), short, long, stage=a_stage(limit=20))
    assert played.outcome.busy_gpu_s == pytest.approx(10 + 2 * 20 + 2 * 100)


def test_queueing_is_the_time_without_gpus() -> None:
    """Submitted at 0, profiled from 10 to 30, queued to 130, run to 190."""
    jobs = (
        a_job("first", gpus=8, for_=10),  # holds the partition
        a_job("filler", gpus=8, for_=110),
        a_job("job", gpus=8, for_=60),
    )
    played = play(Lucid(), cluster_of(nodes=2, profiling=1), *jobs, stage=a_stage(limit=20))
    assert played.result("first").ended_in_profiling
    assert times(played)["filler"] == (30, 140)
    result = played.result("job")
    assert (result.profile_s, result.ran_s) == (20, 60)
    assert (result.start_time, result.end_time) == (140, 200)
    assert result.queue_s == 200 - 20 - 60
    result.profile_wait_s = 7.0  # profiled beside the clock: that wait is added
    assert result.queue_s == 127


def test_a_job_that_has_not_ended_has_no_completion_time() -> None:
    refused = play(Fifo(), cluster_of(), a_job("x", gpus=99)).result("x")
    with pytest.raises(ValueError, match="job x has not ended"):
        _ = refused.jct_s
