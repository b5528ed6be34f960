"""A service that follows a Slurm goes on with the log of an older one, whose notes were sentences.

`older/make_followed.py` says how it was made: it looked with Slurm's twin, then gave orders. Jobs
ended, one was cancelled, one gone; others wait, are held, wait for another or for a limit.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from features.clock import Clock
from scheduler.service.log.audit import audit
from scheduler.service.log.store.schema import prepare
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import jobs
from tests.scheduler.service.follow.test_follow import EVERYTHING, NOW, Scene
from tests.scheduler.service.log.test_older_log import asking

OLDER = Path(__file__).with_name("older") / "c737a8b.followed.sql"
LATER = NOW + 3600.0
WAS = {
    "1": "ended", "2": "ended", "3": "ended", "4": "queued", "5": "submitted", "6": "submitted",
    "7": "queued", "8": "ended", "9": "queued",
}  # fmt: skip


@pytest.fixture
def older(tmp_path: Path) -> Iterator[Store]:
    with sqlite3.connect(tmp_path / "pellucid.db") as database:
        database.executescript(OLDER.read_text())
    store = Store(f"sqlite:///{tmp_path / 'pellucid.db'}", Clock.by(lambda: LATER))
    prepare(store)
    yield store
    store.close()


def go_on(store: Store) -> Scene:
    """Today's follower on the older log, and two looks at what is left of its queue."""
    scene = Scene(None, "pellucid")
    scene.store, scene.now = store, LATER
    scene.restart()
    runs = scene.job(9, "RUNNING", submit=NOW + 500, gpus=4, start=LATER, nodes=("n1",),
                     held_gpus=((0, 1, 2, 3),))  # fmt: skip
    for _ in range(2):
        scene.look(
            runs,
            scene.job(4, reason="QOSMaxJobsPerUserLimit", priority=900, gpus=1),
            scene.job(5, reason="JobHeldUser", priority=0),
            scene.job(6, reason="Dependency", dependency="afterok:2", priority=800),
            scene.job(7, "COMPLETED", start=LATER, end=LATER + 60, name="seven", **EVERYTHING),
            after_s=30.0,
        )
    return scene


def phases(store: Store) -> dict[str, str]:
    with store.engine.connect() as connection:
        return {row.job_id: row.phase for row in connection.execute(jobs.select())}


def divergences(store: Store) -> list[str]:
    return [one.sentence() for one in audit(store, lambda digest: None).divergences]


def test_it_is_read_followed_and_audited(older: Store) -> None:
    assert phases(older) == WAS
    assert divergences(older) == []
    seen = len(older.read())
    go_on(older)
    assert phases(older) == WAS | {"7": "ended", "9": "running"}
    assert len(older.read()) > seen
    assert divergences(older) == []


@pytest.mark.parametrize("first", [True, False], ids=["before a look", "after it"])
def test_pages_and_explanations_answer_for_its_jobs(older: Store, first: bool) -> None:
    if not first:
        go_on(older)
    with asking(older, WAS) as olga:
        held = olga.get("/api/v1/jobs/5/explain").json()
    assert held["reason"] == held["slurm"]["code"] == "JobHeldUser"
    assert held["dominant"].startswith("Slurm says JobHeldUser: it is held by its user")
    assert bool(held["slurm"]["text"]) is first  # the older one's sentence, until today's value
