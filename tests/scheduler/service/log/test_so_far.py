"""What the wait of a job of a service was made of, so far."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event

from scheduler.backends.events import Kind
from scheduler.explain.render import waited_words
from scheduler.service.log.store.dossiers import explained
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.visibility import Role, Viewer
from scheduler.service.pages.queries import PageQueries
from scheduler.service.pages.story import page_of
from tests.scheduler.service.desk import CLUSTER, Desk, lasting

OPERATOR, ANN = Viewer("op", Role.OPERATOR), Viewer("ann", Role.SUBMITTER)
HOUR_S = 3600.0


def test_who_had_the_gpus_is_summed_and_named_to_who_may_see_it(
    store: Store, tmp_path: Path
) -> None:
    desk = Desk(store, tmp_path, {"long": lasting(9 * HOUR_S), "short": lasting(HOUR_S)})
    assert CLUSTER.vcs == {"vc": 2}
    desk.submit("short", gpus=4, owner="bob")
    desk.submit("long", gpus=4, owner="bob")
    desk.turn()
    desk.submit("waits", gpus=8)
    desk.turn()
    for _ in range(8):
        desk.turn(HOUR_S / 4)
    desk.ask(Kind.HELD, "waits", operator=True)
    desk.turn()
    for _ in range(4):
        desk.turn(HOUR_S / 4)
    desk.ask(Kind.RELEASED, "waits", operator=True)
    desk.turn()

    def said(viewer: Viewer) -> str:
        view = PageQueries(store, viewer)
        found = explained(view, "waits", desk.world.now())
        assert found.whole_wait is not None
        told = waited_words(found, found.whole_wait)
        assert told == page_of(view, "waits").drawn.story.wait
        return told

    wait = (
        "Job waits (8 GPUs, virtual cluster vc) has waited 2 h: too few GPUs free (100 % of the "
        "wait). 8 GPUs for that long are 16 GPU hours. Meanwhile, of the GPUs there, {}. Besides, "
        "it was kept from starting for 1 h (held by an operator); that does not count as waiting."
    )
    assert said(ANN) == wait.format("2 jobs had 12 GPU hours together")
    hidden = explained(PageQueries(store, ANN), "waits", desk.world.now()).whole_wait
    assert hidden is not None
    assert (hidden.meanwhile, hidden.others) == ([], 2)
    assert hidden.others_gpu_s == pytest.approx(12 * HOUR_S)
    assert said(OPERATOR) == wait.format(
        "job long had 8 GPU hours (has run 3 h) and job short had 4 GPU hours (ran 1 h in all)"
    )
    desk.until_idle()
    assert said(OPERATOR).startswith("Job waits (8 GPUs, virtual cluster vc) waited 8 h: ")


def test_who_had_the_gpus_is_found_without_reading_every_decision(
    store: Store, tmp_path: Path
) -> None:
    if not store.is_sqlite:
        pytest.skip("the plan is SQLite's")
    desk = Desk(store, tmp_path, {"long": lasting(9 * HOUR_S)})
    desk.submit("long", gpus=8, owner="bob")
    desk.turn()
    desk.submit("waits", gpus=8)
    desk.turn()
    desk.turn(HOUR_S)
    asked: list[tuple[str, Any]] = []

    def seen(_: Any, __: Any, statement: str, parameters: Any, *___: Any) -> None:
        asked.append((statement, parameters))

    view = PageQueries(store, OPERATOR)
    listens_to = Engine, "before_cursor_execute", seen
    event.listen(*listens_to)
    explained(view, "waits", desk.world.now())
    event.remove(*listens_to)
    [(statement, parameters)] = [
        one for one in asked if "jobs.estimate_s, jobs.vc AS of_vc" in one[0]
    ]
    with store.engine.connect() as connection:
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters).all()
    assert not [row for row in plan if "SCAN decisions" in row[-1] or "SCAN jobs" in row[-1]]
