"""What was said of waiting jobs and is contradicted is withdrawn in the next answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import select

from scheduler.explain.claims import ROOM_S, Claim, Kind
from scheduler.explain.whatif.forecasts import WhyNot
from scheduler.service.log.questions import TRIED
from scheduler.service.log.store import claims as kept
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import claims
from scheduler.slurm.follow.audit import LATE_S
from scheduler.slurm.read.parse import SlurmJob
from scheduler.slurm.reason import sentence
from tests.scheduler.slurm.follow.test_follow import NOW, Scene, twin

QOS = "sacctmgr show qos"
LONG_AGO = {"submit": NOW - 900, "eligible": NOW - 900}


@pytest.fixture
def scene(store: Store) -> Scene:
    return twin(store)


def waits(scene: Scene, number: int = 9, gpus: int = 1, **more: Any) -> SlurmJob:
    asked = {"gpu_types": (("", gpus),), "gpus_per_node": True, "reason": "Resources"}
    known = {"max_nodes": 1, "time_limit_s": 3600.0, "tres": (("cpu", 1.0), ("gres/gpu", gpus))}
    return scene.job(number, gpus=gpus, **(asked | known | LONG_AGO | more))


def looked(scene: Scene) -> None:
    """Backfill has looked since everything that is there came."""
    scene.slurm.says["sdiag"] = f"Last cycle when: Mon Sep 21 ({int(scene.now + 100)})"
    scene.restart()


def shown(scene: Scene, job_id: str = "9") -> Any:
    found = scene.pages().forecast(job_id)
    assert found is not None
    return found


def row(scene: Scene, kind: Kind) -> Any:
    assert scene.store is not None
    with scene.store.reading() as connection:
        return connection.execute(select(claims).where(claims.c.kind == kind.value)).one()


def too_long(scene: Scene) -> SlurmJob:
    """A job of which no start is foreseen: its partition gives an hour."""
    scene.slurm.says["scontrol -a show partition"] = (
        "PartitionName=main Nodes=n[1-2] State=UP MaxTime=01:00:00"
    )
    scene.restart()
    return waits(scene, time_limit_s=7200.0, reason="PartitionTimeLimit")


def test_never_is_withdrawn_where_slurm_plans_a_start(scene: Scene) -> None:
    job = too_long(scene)
    scene.look(job)
    assert shown(scene).why_not == WhyNot.REFUSED
    assert row(scene, Kind.NEVER).held is None
    looked(scene)
    scene.look(job)
    assert shown(scene).why_not == WhyNot.REFUSED, "no plan contradicts it"
    scene.look(replace(job, start=scene.now + 7200.0))
    found = shown(scene)
    assert found.why_not.startswith("it was never to start as it is, and Slurm plans to start it")
    assert found.estimate is None
    made = row(scene, Kind.NEVER)
    assert (made.held, made.came) == (False, None)
    scene.look(replace(job, start=scene.now + 7200.0))
    found = shown(scene)
    (line,) = (one for one in scene.pages().not_modelled() if one.startswith("Withdrawn"))
    assert line.endswith(
        "it never starts as it is, or in no future (0 of 1 such statement came true)."
    )
    as_it_is = scene.follower.answer(TRIED, {"job_id": "9"})["as_it_is"]
    assert as_it_is["why"] == found.why_not


def test_never_is_withdrawn_of_a_job_like_one_that_started(scene: Scene) -> None:
    job = too_long(scene)
    other = replace(job, id="10", user=job.user)
    scene.look(job, other)
    assert shown(scene, "10").why_not == WhyNot.REFUSED
    on = {"state": "RUNNING", "reason": "", "nodes": ("n1",), "held_gpus": ((0,),)}
    began = replace(job, start=scene.now, **on)
    another = replace(other, id="11", user="somebody")
    scene.look(began, other, another)
    assert shown(scene, "10").why_not.startswith(
        "it was never to start as it is, and a job that asked for the same started at"
    )
    assert shown(scene, "11").why_not == WhyNot.REFUSED, "it asks for something else"
    assert row_of(scene, "10").held is False


def row_of(scene: Scene, job_id: str) -> Any:
    assert scene.store is not None
    with scene.store.reading() as connection:
        return connection.execute(select(claims).where(claims.c.job_id == job_id)).one()


def test_a_start_at_once_that_did_not_come_is_withdrawn_and_said_again_of_another_request(
    scene: Scene,
) -> None:
    """Where Slurm shows no backfill, "starts about now" stood for as long as the job waited."""
    job = waits(scene)
    scene.look(job)
    assert shown(scene).start_p50 is not None
    scene.look(job, after_s=LATE_S - 10.0)
    assert shown(scene).start_p50 is not None
    scene.look(job, after_s=20.0)
    found = shown(scene)
    assert found.start_p50 is None
    assert found.why_not.startswith("it was to start at once at ")
    scene.look(replace(job, time_limit_s=600.0))
    assert shown(scene).start_p50 is not None


def test_room_in_a_limit_is_withdrawn_once_slurm_has_not_started_the_job(scene: Scene) -> None:
    scene.slurm.says[QOS] = "lab||||gres/gpu=2|||||||||||||||||||||"
    job = waits(scene, qos="lab", reason="QOSMaxGRESPerUser")

    def why() -> str:
        return sentence(scene.follower.reasons["9"], "9", scene.now)

    lapsed = replace(scene_reason(scene, job), lapsed=True)
    reasons = scene.follower._planner.reasons
    scene.follower._planner.reasons = lambda *a, **k: reasons(*a, **k) | {"9": lapsed}  # type: ignore[method-assign]
    scene.look(job)
    assert "There is room in that limit now" in why()
    scene.look(job, after_s=ROOM_S + 5.0)
    assert "There is room" not in why()
    assert why().startswith("by all that is known here there has been room in that limit since ")
    assert row(scene, Kind.ROOM).held is False
    scene.look(job)
    assert "(0 of 1 such statement came true)" in why()
    assert any(one.startswith("Withdrawn of 1") for one in scene.pages().not_modelled())
    scene.look(replace(job, time_limit_s=600.0))  # another request: it is said of it anew
    assert "There is room in that limit now" in why()


def test_room_that_an_earlier_follower_claimed_is_withdrawn_at_the_first_look(scene: Scene) -> None:
    scene.slurm.says[QOS] = "lab||||gres/gpu=2|||||||||||||||||||||"
    job = waits(scene, qos="lab", reason="QOSMaxGRESPerUser")
    lapsed = replace(scene_reason(scene, job), lapsed=True)
    for said in ("There is room in that limit now", "there has been room in that limit since "):
        reasons = scene.follower._planner.reasons
        scene.follower._planner.reasons = (  # type: ignore[method-assign]
            lambda *a, of=reasons, **k: of(*a, **k) | {"9": lapsed}
        )
        scene.look(job)
        assert said in sentence(scene.follower.reasons["9"], "9", scene.now)
        scene.restart()
        scene.now += ROOM_S


def scene_reason(scene: Scene, job: SlurmJob) -> Any:
    scene.look(job)
    return scene.follower.reasons["9"]


def test_what_is_refuted_is_judged_once(scene: Scene) -> None:
    assert scene.store is not None
    with scene.store.writing() as connection:
        kept.keep(connection, [Claim(Kind.NEVER, "3", scene.now, due=scene.now + 1e6)], 0)
        kept.refute(connection, Kind.NEVER, ["3"], scene.now)
        kept.refute(connection, Kind.NEVER, ["3"], scene.now + 5.0)
    made = row(scene, Kind.NEVER)
    assert (made.held, made.judged_at) == (False, scene.now)
