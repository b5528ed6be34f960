"""Every waiting job has a forecast, or why there is none, from the look that first sees it; and no
forecast lies in the past when the next look comes."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import pytest
from sqlalchemy import select

from scheduler.explain.whatif.forecasts import StartForecast, still_waiting
from scheduler.explain.words import ForecastKind
from scheduler.service.log.store.dossiers import explained
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import forecasts
from scheduler.service.log.store.visibility import Role, Viewer
from scheduler.service.pages.queries import PageQueries
from scheduler.slurm.follow import follower
from scheduler.slurm.reason import headline, rows
from tests.scheduler.slurm.follow.test_follow import EVERYTHING, NOW, Scene, twin

RUNS = EVERYTHING | {"cpus": 16, "num_nodes": 2}
ASKS = {"cpus": 8, "gpus": 4, "time_limit_s": 600.0}


def told(store: Store) -> dict[str, Any]:
    with store.reading() as connection:
        rows = connection.execute(select(forecasts).where(forecasts.c.basis == "latest"))
        return {row.job_id: row for row in rows}


def test_what_comes_while_no_futures_are_run_is_forecast_roughly(store: Store) -> None:
    scene = twin(store)
    runs = scene.job(1, "RUNNING", start=NOW, time_limit_s=600.0, **RUNS)
    scene.look(runs, scene.job(2, **ASKS))
    assert told(store)["2"].start_p90 is not None
    scene.follower._foresee_at = inf
    late = scene.job(3, submit=NOW + 10, **ASKS)
    behind = scene.job(4, dependency="afternotok:1", reason="Dependency")
    scene.look(runs, scene.job(2, **ASKS), late, behind)
    found = told(store)
    assert found["3"].estimate == ForecastKind.CRUDE
    assert found["3"].start_p50 > scene.now
    assert found["4"].start_p50 is None
    assert "waits for another job" in found["4"].why_not


def test_a_job_that_starts_in_no_future_costs_the_others_no_forecast(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where jobs come on and on, a future that waits for it takes all the time that there is."""
    monkeypatch.setattr(follower, "BUDGET_S", 20.0)
    scene = twin(store)
    hours = range(int(NOW) - 7200, int(NOW) - 600, 60)
    scene.slurm.says["-o"] = "\n".join(
        f"9{at}|u{at % 7}|main|{at}|{at}|{at + 60}|COMPLETED|60|4|gres/gpu=4|a" for at in hours
    )
    scene.restart()
    runs = scene.job(1, "RUNNING", start=NOW, time_limit_s=600.0, **RUNS)
    never = scene.job(3, reason="Resources", **ASKS | {"cpus": 999})
    scene.look(runs, scene.job(2, **ASKS), never)
    found = told(store)
    assert found["2"].start_p90 is not None
    assert found["3"].estimate == ForecastKind.CRUDE


@pytest.mark.parametrize("late", [False, True])
def test_what_its_partition_never_takes_has_no_start_however_crude(
    store: Store, *, late: bool
) -> None:
    """Jobs that ask for more nodes than their partition gives were all forecast crudely."""
    scene = twin(store)
    scene.look(scene.job(1, "RUNNING", start=NOW, **RUNS), scene.job(2, **ASKS))
    scene.follower._foresee_at = inf if late else 0.0
    never = scene.job(3, reason="PartitionNodeLimit", **ASKS | {"num_nodes": 3})
    scene.look(scene.job(1, "RUNNING", start=NOW, **RUNS), scene.job(2, **ASKS), never)
    found = told(store)
    assert found["2"].start_p50 is not None
    assert (found["3"].start_p50, found["3"].estimate) == (None, ForecastKind.IMPOSSIBLE)
    answer = explained(scene.pages(), "3", scene.now)
    assert "it cannot start as it is: its partition does not take what it asks for" in str(answer)
    assert (
        "asks for 3 nodes, and partition main has 2 nodes. It can never start like this"
        in answer.detail
    )


def test_the_last_task_of_a_throttled_array_waits_for_those_that_run(store: Store) -> None:
    """squeue prints ``5_3`` and no ``%2`` where one task waits; it was to start at once."""
    scene = twin(store)
    one: dict[str, Any] = {"gpus": 1, "held_gpus": ((0,),), "cpus": 1, "start": NOW}
    run = one | {"nodes": ("n1",), "num_nodes": 1, "time_limit_s": 600.0}
    runs = [scene.job("5_1", "RUNNING", **run), scene.job("5_2", "RUNNING", **run)]
    runs[1] = replace(runs[1], held_gpus=((1,),))
    waits = scene.job("5_3", reason="JobArrayTaskLimit", cpus=1, gpus=1, time_limit_s=600.0)
    scene.look(*runs, waits)
    assert told(store)["5_3"].start_p50 > scene.now + 60.0


def test_no_forecast_has_passed_when_the_next_look_comes(store: Store) -> None:
    scene = twin(store)
    runs = scene.job(1, "RUNNING", start=NOW, time_limit_s=600.0, **RUNS)
    scene.look(runs, scene.job(2, **ASKS), scene.job(3, submit=NOW + 10, **ASKS))
    for _ in range(20):
        scene.look(runs, scene.job(2, **ASKS), scene.job(3, submit=NOW + 10, **ASKS), after_s=500.0)
        for one in told(store).values():
            if one.job_id != "1":
                assert one.start_p50 >= scene.now + 30.0
                assert one.start_p90 is None or one.start_p90 > one.start_p50


def test_a_forecast_is_told_as_of_when_it_is_asked_for(store: Store) -> None:
    scene = twin(store)
    scene.look(scene.job(1, "RUNNING", start=NOW, time_limit_s=600.0, **RUNS), scene.job(2, **ASKS))
    queries = scene.pages()
    for late_s in (0.0, 400.0, 4000.0):
        found = explained(queries, "2", scene.now + late_s).forecast
        assert found is not None
        assert found.start_p10 is not None
        assert found.start_p50 is not None
        assert scene.now + late_s <= found.start_p10 < found.start_p50


def test_a_plan_that_has_passed_is_not_told(store: Store) -> None:
    scene = twin(store)
    runs = scene.job(1, "RUNNING", start=NOW, **RUNS)
    at = scene.now + 20.0
    scene.look(runs, scene.job(2, reason="Resources", start=at))
    queries = scene.pages()
    before, after = (explained(queries, "2", at + shift) for shift in (-5.0, 5.0))
    assert before.slurm is not None
    assert before.slurm.plan is not None
    assert "Slurm plans" in before.detail
    assert after.slurm is not None
    assert after.slurm.plan is None
    assert "Slurm plans" not in after.detail


@pytest.mark.parametrize("late_s", [0.0, 50.0, 5000.0])
def test_beyond_its_even_odds_a_wait_goes_on_at_the_pace_that_its_odds_had(late_s: float) -> None:
    made = StartForecast(0.0, 100.0, 200.0, 300.0, 400.0, start_p10=50.0)
    found = still_waiting(made, 100.0 + late_s)
    assert found.start_p10 == 100.0 + late_s
    assert found.start_p50 == pytest.approx(100.0 + late_s + 43.07, abs=0.01)
    assert found.start_p90 == pytest.approx(100.0 + late_s + 143.07, abs=0.01)
    assert found.end_p50 == pytest.approx(found.start_p50 + 200.0)


def test_a_component_of_a_heterogeneous_job_is_answered_for(store: Store) -> None:
    scene = Scene(store, "slurm", order=False)
    scene.look(scene.job("12+1", reason="None"))
    assert explained(PageQueries(store, Viewer("u12+1", Role.SUBMITTER)), "12+1", scene.now)


def test_who_waits_for_a_limit_has_its_place_among_those_that_wait_for_it() -> None:
    """Twenty jobs under one limit were all told of the same jobs before them."""
    scene = twin(None)
    scene.slurm.says["qos"] = "limited|0|gres/gpu=4" + 23 * "|"
    scene.slurm.says["scontrol show config"] += "\nAccountingStorageEnforce = limits,qos"
    scene.restart()
    runs = scene.job(1, "RUNNING", start=NOW, qos="limited", **RUNS)
    tres = (("gres/gpu", 4.0),)
    limited = [
        scene.job(n, priority=1000 - n, qos="limited", reason="QOSGrpGRES", tres=tres, **ASKS)
        for n in (2, 3, 4)
    ]
    runs = replace(runs, tres=(("gres/gpu", 8.0),))
    scene.look(runs, *limited, scene.job(5, priority=2000, reason="Resources", **ASKS))
    places = {job: scene.follower.reasons[job].places for job in ("2", "3", "4")}
    assert [[one.before for one in places[job]] for job in "234"] == [[0], [1], [2]]
    said = rows(scene.follower.reasons["4"], "4", scene.now)
    assert (
        "Place",
        "of the jobs that wait for QOS limited (GrpTRES gres/gpu), 2 have a higher priority.",
    ) in said


def test_jobs_of_a_higher_tier_go_first_only_where_there_are_some() -> None:
    scene = twin(None)
    scene.slurm.says["scontrol -a show partition"] = (
        "PartitionName=main Nodes=n[1-2] State=UP\n\n"
        "PartitionName=top Nodes=n[1-2] State=UP PriorityTier=9"
    )
    scene.slurm.has = [replace(node, partitions=("main", "top")) for node in scene.slurm.has]
    scene.restart()
    runs, waits = (
        scene.job(1, "RUNNING", start=NOW, **RUNS),
        scene.job(2, reason="Priority", **ASKS),
    )
    scene.look(runs, waits)
    assert scene.follower.reasons["2"].goes_first is None
    scene.look(runs, waits, scene.job(3, partition="top", reason="Resources", **ASKS))
    first = scene.follower.reasons["2"].goes_first
    assert first is not None
    assert first.partitions == ("top",)


def test_a_job_whose_node_is_down_is_told_so() -> None:
    """The commonest case of ReqNodeNotAvail had no explanation."""
    scene = twin(None)
    down, up = scene.slurm.has
    scene.slurm.has = [
        replace(down, open=False, state="DOWN*", features=("big",), weight=1), replace(up, weight=2)
    ]  # fmt: skip
    scene.restart()
    waits = scene.job(2, reason="ReqNodeNotAvail, UnavailableNodes:n1", features="big", **ASKS)
    scene.look(waits)
    assert headline(scene.follower.reasons["2"], "2", scene.now) == (
        "Slurm says ReqNodeNotAvail: no node of partition main that suits it is open to it; "
        "n1 is down."
    )


@pytest.mark.parametrize("named", ["", "course"])
def test_a_reservation_without_a_name_is_not_told(named: str) -> None:
    """Backfill of 22.05 gives the word to jobs that asked for no reservation."""
    scene = twin(None)
    scene.look(scene.job(2, reason="Reservation", reservation=named, **ASKS))
    found = scene.follower.reasons["2"]
    assert (found.reservation.name if found.reservation else "") == named
    assert ("it waits for reservation course" in headline(found, "2", scene.now)) is bool(named)
    assert found.reservation is None or named
