"""Writes the log of an older service that followed a Slurm, with its code and its tests' Slurm:

    git worktree add ../older c737a8b
    cd ../older && PYTHONPATH=. python PATH/TO/tests/scheduler/service/log/older/make_followed.py

It looks first, with Slurm's own twin, and gives orders then. Times are given, no clock is read:
twice the same, but for the digest of the code. The jobs are made up.
"""

import sqlite3
import tempfile
from dataclasses import replace
from pathlib import Path

from scheduler.service.log.store.schema import prepare
from scheduler.service.log.store.store import Store
from tests.scheduler.service.follow.test_follow import EVERYTHING, NOW, Scene

HERE = Path(__file__).parent


def live(store: Store) -> None:
    """Until a moment at which it is killed."""
    scene = Scene(store, "slurm", order=False)
    ran = scene.job(1, "COMPLETED", start=NOW - 90, end=NOW - 10, nodes=("n1",), gpus=4)
    runs = scene.job(2, "RUNNING", start=NOW, time_limit_s=3600.0, **EVERYTHING)
    waits = [
        scene.job(3, reason="Priority", time_limit_s=600.0),
        scene.job(4, reason="QOSMaxJobsPerUserLimit", priority=900, gpus=1),
        scene.job(5, reason="JobHeldUser", priority=0),
        scene.job(6, reason="Dependency", dependency="afterok:2", priority=800),
        scene.job(7, reason="ReqNodeNotAvail, UnavailableNodes:n2", priority=700, name="seven"),
    ]
    for _ in range(3):
        scene.look(ran, runs, *waits, after_s=30.0)
    scene.look(runs, *waits[1:], scene.job(3, "CANCELLED", end=scene.now), after_s=30.0)
    scene.order, scene._policy = True, "pellucid"
    scene.restart()
    for _ in range(3):
        scene.look(runs, *waits[1:], scene.job(8, submit=scene.now, gpus=1), after_s=60.0)
    scene.slurm.has = [replace(node, open=node.name == "n1") for node in scene.slurm.has]
    ended = replace(runs, state="COMPLETED", end=scene.now)
    scene.look(ended, *waits[1:], scene.job(9, submit=scene.now, gpus=4), after_s=60.0)


with tempfile.TemporaryDirectory() as name:
    database = Path(name, "pellucid.db")
    store = Store(f"sqlite:///{database}")
    prepare(store)
    live(store)
    store.close()
    with sqlite3.connect(database) as made:
        (HERE / "c737a8b.followed.sql").write_text("\n".join(made.iterdump()) + "\n")
