"""What a follower learns: of jobs that are put back in the queue, and over its own restarts."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from sqlalchemy import select

from features.job import Job
from scheduler.core.durations import seconds_of
from scheduler.explain.whatif.memory import DAY_S, SubmittedJob
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import jobs as job_rows
from scheduler.service.metrics import Metrics
from scheduler.slurm.read.parse import SlurmJob
from scheduler.slurm.read.snapshot import job_of
from tests.scheduler.service.pages.conftest import scraped
from tests.scheduler.slurm.follow.test_follow import EVERYTHING, NOW, Scene

GPUS = "pellucid_gpus"


@pytest.fixture
def scene() -> Scene:
    return Scene(None, order=False)


def ran_s(scene: Scene) -> list[float]:
    """Durations of the jobs that are remembered to have run and ended."""
    return [past.ran_s for past in scene.follower.memory.arrivals if past.ran_s is not None]


def past(scene: Scene) -> SubmittedJob:
    found = scene.follower.memory.of("5")
    assert found is not None
    return found


def running(scene: Scene, number: int = 5, *, since_s: float = 0.0, **more: float) -> SlurmJob:
    return scene.job(number, "RUNNING", start=scene.now - since_s, **EVERYTHING, **more)


@pytest.mark.parametrize("submitted_s", [0.0, 2.0])
def test_a_job_that_is_put_back_waits_again_and_is_learned_from_its_last_run(
    scene: Scene, submitted_s: float
) -> None:
    scene.look(running(scene))
    back = scene.job(5)
    scene.look(replace(back, submit=back.submit + submitted_s), after_s=60.0)
    assert past(scene).started is None
    again = running(scene, submit=back.submit + submitted_s)
    scene.look(again, after_s=60.0)
    assert past(scene).started == pytest.approx(scene.now, abs=61.0)
    over = replace(again, state="COMPLETED", end=(again.start or 0.0) + 30.0)
    scene.look(over, after_s=60.0)
    scene.look(over)
    scene.look()
    assert scene.follower.memory.of("5") is None
    assert ran_s(scene) == [30.0]


def test_a_job_that_failed_with_its_node_and_was_put_back_is_remembered(scene: Scene) -> None:
    first = running(scene)
    scene.look(first, scene.job(6))
    scene.look(replace(first, state="NODE_FAIL", end=scene.now), scene.job(6))
    assert scene.follower.memory.of("5") is None, "nothing is learned from that"
    scene.look(scene.job(5), scene.job(6))
    assert past(scene).started is None
    again = running(scene)
    scene.look(again, scene.job(6))
    scene.look(replace(again, state="FAILED", end=(again.start or 0.0) + 7.0), scene.job(6))
    assert ran_s(scene) == [7.0]


def test_a_job_that_was_put_back_and_started_between_two_looks_began_anew(scene: Scene) -> None:
    scene.look(running(scene, since_s=1000.0))
    at = scene.now + 20.0
    again = replace(running(scene), submit=at, start=at + 5.0)
    scene.look(again, after_s=60.0)
    assert past(scene).started == at + 5.0
    scene.look(replace(again, state="COMPLETED", submit=at + 40.0, start=at + 41.0, end=at + 50.0),
               after_s=60.0)  # fmt: skip
    assert ran_s(scene) == [9.0], "the third run, of which only the end was seen"


def test_a_job_that_waited_for_weeks_may_be_cancelled(scene: Scene) -> None:
    scene.look(scene.job(5))
    scene.look(scene.job(5), scene.job(6, submit=scene.now + 9 * DAY_S), after_s=10 * DAY_S)
    scene.look(scene.job(6, submit=scene.now))
    assert scene.follower.memory.of("5") is None


@pytest.mark.parametrize("state", ["SIGNALING", "STAGE_OUT", "RESIZING"])
def test_a_job_in_a_passing_state_is_not_over(scene: Scene, state: str) -> None:
    job = running(scene)
    scene.look(job)
    scene.look(replace(job, state=state))
    assert past(scene).started is not None


def test_what_was_learned_outlives_a_restart(store: Store) -> None:
    scene = Scene(store, order=False)
    for number in range(6):
        job = running(scene, number)
        scene.look(job)
        scene.look(replace(job, state="COMPLETED", end=(job.start or 0.0) + 100.0), after_s=130.0)
    cancelled = scene.job(77, submit=scene.now)
    scene.look(cancelled)
    scene.look(replace(cancelled, state="CANCELLED", end=scene.now), after_s=9.0)
    asked = scene.job(99, submit=scene.now)
    scene.look(asked)
    assert ran_s(scene) == [100.0] * 6
    before = scene.follower.memory
    told = scene.follower.memory.predicted(asked_job(scene), scene.now)
    scene.restart()
    after = scene.follower.memory
    assert after is not before
    assert ran_s(scene) == [100.0] * 6
    then, since = ([one.predicted_s for one in of.arrivals][:6] for of in (before, after))
    assert [one and seconds_of(one) for one in since] == [one and seconds_of(one) for one in then]
    scene.look(asked)
    again = after.predicted(asked_job(scene), scene.now)
    assert told is not None
    assert again is not None
    assert seconds_of(again) == pytest.approx(seconds_of(told), rel=0.05)
    with store.reading() as connection:
        row = job_rows.c
        query = select(row.state, row.ended_at - row.started_at).where(row.started_at.is_not(None))
        assert [tuple(one) for one in connection.execute(query)] == [("completed", 100.0)] * 6
        state = connection.execute(select(row.state).where(row.job_id == "77")).scalar()
        assert state == "cancelled"


def test_jobs_that_ended_before_anybody_followed_are_learned_from_accounting(store: Store) -> None:
    scene = Scene(store, order=False)
    unlearned = scene.follower.memory.predicted(asked_job(scene), scene.now)
    scene.slurm.says["-o"] = "\n".join(
        f"{n}|u9|{part}|{int(NOW) - 640 + n}|{int(NOW) - 300}|{int(NOW) - 100}|{state}|60|8||a"
        for n, part, state in [
            *((n, "main", "COMPLETED") for n in range(200, 220)),
            (300, "elsewhere", "COMPLETED"),
            (301, "main", "NODE_FAIL"),
        ]
    )
    scene.restart()
    learned = scene.follower.memory.predicted(asked_job(scene), scene.now)
    assert ran_s(scene) == [200.0] * 20
    assert all(past.predicted_s is not None for past in scene.follower.memory.arrivals)
    assert unlearned is not None
    assert learned is not None
    assert abs(seconds_of(learned) - 200.0) < 60.0 < abs(seconds_of(unlearned) - 200.0)
    scene.slurm.says["-o"] = ""
    scene.look(scene.job(1))
    assert ran_s(scene) == [200.0] * 20


def test_an_end_is_learned_once_though_slurm_still_shows_it_after_a_restart(store: Store) -> None:
    scene = Scene(store, order=False)
    job = running(scene)
    scene.look(job)
    over = replace(job, state="FAILED", end=(job.start or 0.0) + 50.0)
    scene.look(over, after_s=60.0)
    scene.restart()
    scene.look(over)
    scene.look(over)
    assert ran_s(scene) == [50.0]


def test_a_row_follows_its_job(store: Store) -> None:
    scene = Scene(store, order=False)
    scene.look(scene.job(5, time_limit_s=60.0))
    for priority, reason, limit_s in ((7, "Resources", 60.0), (7, "Priority", 120.0)):
        job = scene.job(5, priority=priority, reason=reason, time_limit_s=limit_s)
        scene.look(job)
        with store.reading() as connection:
            row = connection.execute(select(job_rows)).one()
        assert json.loads(row.spec)["time_limit_s"] == job.time_limit_s
        assert json.loads(row.slurm)["code"] == job.reason


def test_the_gpus_of_a_job_that_ended_are_free(store: Store) -> None:
    scene = Scene(store, order=False)
    first = running(scene)
    everybody = scene.pages()

    def on_gpus() -> tuple[set[str], int]:
        found = {job for node in everybody.cluster() for gpu in node.gpus for job in gpu.jobs}
        use = {dict(labels)["use"] for (name, labels) in scraped(Metrics(store)) if name == GPUS}
        assert use == ({"exclusive"} if found else {"free"})
        return found, len(everybody.holding([0, 1]))

    scene.look(first)
    assert on_gpus() == ({"5"}, 1)
    scene.look(replace(first, state="COMPLETED", end=scene.now))
    assert on_gpus() == (set(), 0)
    scene.look(running(scene, 6))
    assert on_gpus() == ({"6"}, 1)
    scene.look()  # Slurm has forgotten it
    assert on_gpus() == (set(), 0)


def asked_job(scene: Scene) -> Job:
    return job_of(scene.job(4242, submit=scene.now), "main")
