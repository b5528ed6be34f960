"""Tiresias' queues, their published averages, and skew-aware placement."""

from __future__ import annotations

from pathlib import Path

import pytest

from reproductions.allocation.nature import GangGroundTruth
from reproductions.figures.tiresias import PUBLISHED, SCHEDULES, average_jct_s
from reproductions.tiresias_las import TiresiasLas, TiresiasLasSettings
from reproductions.workloads.tiresias import (
    TRACE,
    GangJob,
    TiresiasGroundTruth,
    read_trace,
    workload,
)
from scheduler.core.decisions import Action, Reason
from tests.reproductions.builders import a_job, nodes_of, play


@pytest.mark.parametrize("name", ["x10", "x30"])
@pytest.mark.parametrize("schedule", sorted(PUBLISHED))
def test_average_jct_is_the_published_one(shared_data: Path, schedule: str, name: str) -> None:
    folder = shared_data / "tiresias"
    rows = read_trace(folder / TRACE, stretch=float(name[1:]))[0]
    policy = TiresiasLas(TiresiasLasSettings(published_jumps=True, **SCHEDULES[schedule]))
    found = average_jct_s(workload(rows).simulate(policy))
    assert round(found, 2) == PUBLISHED[schedule][name]


# --- the policy -----------------------------------------------------------------------------------


def test_a_job_that_had_less_stops_one_that_had_more_and_says_so() -> None:
    ground_truth = GangGroundTruth({"old": 10_000.0, "new": 100.0})
    jobs = [a_job("old", 2), a_job("new", 2, at=5000.0)]
    played = play(TiresiasLas(), nodes_of(2), jobs, ground_truth)
    (stop,) = played.of("old", Action.PREEMPT)
    assert (stop.time, stop.reason, stop.blocker) == (5000.0, Reason.MORE_SERVICE_ATTAINED, "new")
    assert ("queue", 2.0) in stop.evidence or ("queue", 1.0) in stop.evidence
    assert dict(stop.evidence)["attained service"] == 10_000.0
    assert played.result("old").end_time == 10_100.0


def models(*rows: tuple[str, int, float, float, str]) -> list[GangJob]:
    return [GangJob(a_job(i, gpus, at), lasts, model) for i, gpus, at, lasts, model in rows]


def skewed() -> TiresiasLas:
    return TiresiasLas(TiresiasLasSettings(consolidate="skewed"))


def test_skewed_models_are_kept_on_the_fewest_nodes_and_others_are_not() -> None:
    rows = models(
        ("x", 2, 0.0, 1000.0, "resnet50"),
        ("y", 2, 0.0, 1000.0, "resnet50"),
        ("flat", 4, 1.0, 10.0, "resnet50"),
    )
    nodes = nodes_of(4, 4)
    spread = play(skewed(), nodes, [r.job for r in rows],
                  TiresiasGroundTruth(rows))  # fmt: skip
    assert spread.of("flat", Action.START)[0].time == 1.0
    assert len(spread.of("flat", Action.START)[0].nodes) == 2
    rows[2] = models(("skewed", 4, 1.0, 10.0, "vgg16"))[0]
    together = play(skewed(), nodes, [r.job for r in rows],
                    TiresiasGroundTruth(rows))  # fmt: skip
    assert len(together.of("skewed", Action.START)[0].nodes) == 1


def test_a_skewed_job_makes_those_behind_it_move() -> None:
    rows = models(
        ("x", 2, 0.0, 9000.0, "resnet50"),
        ("y", 2, 0.0, 9000.0, "resnet50"),
        ("skewed", 4, 5000.0, 10.0, "vgg16"),
    )
    played = play(skewed(), nodes_of(4, 4), [r.job for r in rows],
                  TiresiasGroundTruth(rows))  # fmt: skip
    assert played.of("skewed", Action.START)[0].time == 5000.0
    moved = played.of("x", Action.RESIZE) + played.of("y", Action.RESIZE)
    assert [d.time for d in moved] == [5000.0]
    assert played.outcome.preemptions == 0
