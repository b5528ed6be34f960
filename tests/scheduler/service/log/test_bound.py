"""The latest start as it is read from the tables: by GPU type, limits and progress."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest
from sqlalchemy import insert

from features.progress import Progress
from pipeline.printed.why import lines_of
from scheduler.backends.events import Kind
from scheduler.core.cluster import ClusterSpec, NodeGroup
from scheduler.explain.bound import Bound
from scheduler.service.log.store.dossiers import explained
from scheduler.service.log.store.reads import VisibleQueries
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import forecasts
from scheduler.service.log.store.visibility import Role, Viewer
from tests.scheduler.service.desk import Desk, lasting

HOUR_S = 3600.0
SAID = Progress(1500.0, 1400.0, 1600.0, 3, 10, "epoch", 150.0, 450.0, "epoch")


def bound_of(desk: Desk, job_id: str) -> Bound:
    view = VisibleQueries(desk.store.engine, Viewer("ann", Role.SUBMITTER))
    return view.bound(job_id, desk.world.now())


def test_only_gpus_of_the_type_that_is_asked_for_bound_a_start(
    store: Store, tmp_path: Path
) -> None:
    types = [NodeGroup("V100", 1, 4), NodeGroup("A100", 1, 4)]
    desk = Desk(store, tmp_path, cluster=ClusterSpec.mixed({"vc": types}), policy="pellucid")
    desk.submit("short", gpus=4, gpu_type="V100", time_limit_s=HOUR_S)
    desk.submit("long", gpus=4, gpu_type="A100", time_limit_s=9 * HOUR_S)
    desk.turn()
    desk.turn()
    waits = {"V100": HOUR_S, "A100": 9 * HOUR_S, None: HOUR_S}
    for gpu_type in waits:
        desk.submit(f"on {gpu_type}".replace(" ", "-"), gpus=4, gpu_type=gpu_type)
    for gpu_type, latest_s in waits.items():
        job_id = f"on-{gpu_type}"
        with store.writing() as connection:  # each as if nobody were before it
            connection.exec_driver_sql("UPDATE jobs SET priority = 0")
            connection.exec_driver_sql(
                f"UPDATE jobs SET priority = 9, phase = 'queued' WHERE job_id = '{job_id}'"
            )
        found = bound_of(desk, job_id)
        assert found.latest == pytest.approx(desk.row("short").started_at + latest_s, abs=5.0)


def test_the_progress_of_those_that_run_says_sooner_than_their_limits(
    store: Store, tmp_path: Path
) -> None:
    desk = Desk(store, tmp_path, {"runs": lasting(1500.0)}, policy="fifo")
    desk.submit("runs", gpus=8, time_limit_s=9 * HOUR_S)
    desk.submit("waits", gpus=8)
    desk.turn()
    desk.turn()
    desk.turn()
    since = desk.row("runs").started_at
    assert bound_of(desk, "waits") == Bound(since + 9 * HOUR_S)
    desk.ask(Kind.PROGRESS, "runs", attempt=1, progress=asdict(SAID))
    desk.turn()
    assert bound_of(desk, "waits") == Bound(since + 9 * HOUR_S, stated=since + SAID.high_s)
    made = explained(VisibleQueries(store.engine, Viewer("ann", Role.SUBMITTER)), "waits", since)
    assert made.forecast is not None
    assert made.forecast.stated == since + SAID.high_s
    lines = " ".join(lines_of(made, since))
    assert "starts at the latest" in lines
    assert "when their progress says (not guaranteed)" in lines
    with store.writing() as connection:  # what was made of it since counts where it is later
        later = {"job_id": "runs", "basis": "latest", "made_at": since, "end_p90": since + 2000.0}
        connection.execute(insert(forecasts).values(later))
    assert bound_of(desk, "waits").stated == since + 2000.0
    desk.ask(Kind.PROGRESS, "runs", attempt=7, progress=asdict(SAID))  # of no run of its own
    assert bound_of(desk, "waits").stated is None
