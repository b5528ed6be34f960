"""What a follower claims of jobs of Slurm's, and what came of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import select

from scheduler.explain.claims import VALID_S, Claim, Kind
from scheduler.service.log.questions import TRIED
from scheduler.service.log.store import claims as kept
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import claims
from scheduler.slurm.follow.claims import PASS_S, Claims, differs
from scheduler.slurm.read.parse import SlurmJob
from scheduler.slurm.reason import SlurmReason
from tests.scheduler.slurm.follow.test_follow import NOW, Scene, twin
from tests.scheduler.slurm.follow.test_trials import job

ALL_OF, HALF_OF = ((0, 1, 2, 3),), ((0, 1),)


def rows(scene: Scene) -> dict[Kind, Any]:
    assert scene.store is not None
    with scene.store.reading() as connection:
        found = connection.execute(select(claims).order_by(claims.c.id)).all()
    return {Kind(row.kind): row for row in found}


def running(scene: Scene) -> list[SlurmJob]:
    runs = {"state": "RUNNING", "start": NOW}
    return [
        job(scene, 1, 4, 90.0, nodes=("n1",), held_gpus=ALL_OF, **runs),
        job(scene, 2, 2, 10.0, nodes=("n2",), held_gpus=HALF_OF, **runs),
    ]


def offered(scene: Scene) -> SlurmJob:
    """A job of four GPUs waits, and is told that with two it starts at once."""
    waits = job(scene, 3, 4, 20.0, reason="Resources")
    scene.look(*running(scene), waits)
    told = scene.follower.answer(TRIED, {"job_id": "3"})["tried"]
    assert "with 2 GPUs" in [one["words"] for one in told if not one["reason"]]
    return replace(waits, gpus=2, gpu_types=(("", 2),))


@pytest.mark.parametrize("starts", [True, False])
def test_an_offer_that_its_owner_takes_is_judged_by_what_slurm_does(
    store: Store, starts: bool
) -> None:
    scene = twin(store)
    fewer = offered(scene)
    scene.look(*running(scene), fewer, after_s=10.0)
    made = rows(scene)[Kind.OFFER_AT_ONCE]
    assert (made.taken_by, made.held) == ("3", None)
    if starts:
        on = {"state": "RUNNING", "nodes": ("n2",), "held_gpus": ((2, 3),), "start": scene.now}
        fewer = replace(fewer, reason="", **on)
    scene.look(*running(scene), fewer, after_s=PASS_S + 30.0)
    assert rows(scene)[Kind.OFFER_AT_ONCE].held is starts
    waits = job(scene, 4, 4, 20.0, reason="Resources")
    scene.look(*running(scene), waits)
    told = scene.follower.answer(TRIED, {"job_id": "4"})["tried"]
    records = {(one["held"], one["judged"]) for one in told if not one["reason"]}
    assert records <= {(int(starts), 1)}


def test_a_job_that_asks_for_something_else_has_no_claims_any_more(store: Store) -> None:
    scene = twin(store)
    fewer = offered(scene)
    with store.writing() as connection:
        kept.keep(connection, [Claim(Kind.NEVER, "3", scene.now, due=scene.now + 1e6)], 0)
    scene.look(*running(scene), replace(fewer, time_limit_s=60.0))  # more than was offered
    assert not rows(scene)


def test_offers_of_jobs_that_are_gone_are_forgotten(store: Store) -> None:
    scene = twin(store)
    offered(scene)
    assert scene.follower._claims._offers
    scene.look(*running(scene), after_s=VALID_S + 1.0)
    assert not scene.follower._claims._offers


def test_a_job_that_starts_although_it_never_could_counts_at_once(store: Store) -> None:
    scene = twin(store)
    waits = job(scene, 3, 4, 20.0, reason="Resources")
    scene.look(*running(scene), waits)
    with store.writing() as connection:
        kept.keep(connection, [Claim(Kind.NEVER, "3", scene.now, due=scene.now + 1e6)], 0)
    on = {"state": "RUNNING", "nodes": ("n2",), "held_gpus": ALL_OF, "start": scene.now}
    scene.look(running(scene)[0], replace(waits, reason="", **on), after_s=10.0)
    assert rows(scene)[Kind.NEVER].held is False


def test_room_is_claimed_of_whom_nobody_is_before() -> None:
    said = Claims()
    reasons = {
        "1": SlurmReason("QOSMaxGRESPerUser", lapsed=True),
        "2": SlurmReason("QOSMaxGRESPerUser", lapsed=True, ahead=1),
        "3": SlurmReason("QOSMaxGRESPerUser"),
    }
    said.room(reasons, 5.0)
    assert [(one.kind, one.job_id, one.due) for one in said._made] == [(Kind.ROOM, "1", 125.0)]


def test_what_differs_of_a_job_is_what_its_owner_would_change() -> None:
    was = SlurmJob("1", "PENDING", user="a", name="a", partition="main", gpus=4, submit=0.0)
    now = replace(was, gpus=2, tres=(("cpu", 1.0),), priority=7, gpu_types=(("v100", 2),))
    assert differs(was, now) == {"gpus": 2, "gpu_types": [["v100", 2]]}
