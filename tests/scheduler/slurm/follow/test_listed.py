"""Jobs of a followed Slurm in the table of jobs: what they are billed to, and how accounts wait."""

from __future__ import annotations

from scheduler.service.log.store.store import Store
from scheduler.service.log.store.visibility import Role, Viewer
from scheduler.service.pages.listing import Wanted, as_csv, listing
from scheduler.service.pages.queries import PageQueries
from tests.scheduler.slurm.follow.test_follow import EVERYTHING, NOW, Scene


def test_a_qos_is_a_column_and_an_account_is_shown_its_waits(store: Store) -> None:
    scene = Scene(store, "slurm", order=False)
    physics = {"account": "physics", "qos": "high", "gpus": 8}
    ran = {"start": NOW - 60.0, "submit": NOW - 360.0, "eligible": NOW - 360.0, **EVERYTHING}
    scene.look(
        scene.job(1, "RUNNING", **physics, **ran),
        scene.job(2, **physics, reason="Resources"),
        scene.job(3, account="chem", qos="low", reason="Priority"),
    )
    scene.look(
        scene.job(1, "COMPLETED", end=scene.now, **physics, **ran),
        scene.job(2, **physics, reason="Resources"),
        scene.job(3, account="chem", qos="low", reason="Priority"),
    )
    view = scene.pages()
    every = listing(view, Wanted())
    assert [(row.job.job_id, row.job.account, row.job.qos) for row in every.rows] == [
        ("2", "physics", "high"), ("3", "chem", "low")
    ]  # fmt: skip
    assert [row.job.job_id for row in listing(view, Wanted(sort="-qos")).rows] == ["3", "2"]
    assert as_csv(every.rows).splitlines()[0].split(",")[3:5] == ["account", "QOS"]

    tiles = {what: (value, note) for value, what, note in listing(
        view, Wanted(account="physics")).tiles}  # fmt: skip
    assert tiles["GPUs had of those asked for"] == ("0 of 8", "0 %")
    assert tiles["jobs waiting"] == (
        "1", "submitted or held 3 min 22 s ago"
    )  # fmt: skip
    assert tiles["median wait in seven days"][0] == "5 min"
    (other,) = (tiles for tiles in [listing(view, Wanted(account="chem")).tiles])
    assert "median wait in seven days" not in {what for _, what, _ in other}


def test_what_others_of_an_account_had_is_shown_to_operators_only(store: Store) -> None:
    scene = Scene(store, "slurm", order=False)
    ran = {"start": NOW - 60.0, "account": "physics", **EVERYTHING}
    scene.look(scene.job(1, "RUNNING", **ran), scene.job(2, account="physics"))
    scene.look(scene.job(1, "COMPLETED", end=scene.now, **ran), scene.job(2, account="physics"))
    own = PageQueries(store, Viewer("u2", Role.VIEWER))
    shown = {what for _, what, _ in listing(own, Wanted(account="physics")).tiles}
    assert "jobs waiting" in shown
    assert "GPU-hours in seven days" not in shown
    assert [one.account for one in own.outcomes(accounts=True)] == [""]
