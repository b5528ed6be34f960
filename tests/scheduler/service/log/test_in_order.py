"""The order of a table of jobs, page by page, and what is read for a page."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from sqlalchemy import event, update

from scheduler.core.cluster import ClusterSpec
from scheduler.service.log.store.reads import VisibleQueries
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import digits_of, jobs
from scheduler.service.log.store.visibility import Role, Viewer
from tests.scheduler.service.desk import Desk

OPERATOR = Viewer("root", Role.OPERATOR)
IN_ORDER = [  # numbers by their size, then tasks as texts, then all that is no number
    "7", "12", "12_1", "12_10", "12_9", "99", "123456", "123456_2", "123457", "9" * 30,
    "007", "12+0", "12.a", "1a", "A1", "a-9", "a1", "a10", "a9", "j_1",
]  # fmt: skip


@pytest.fixture
def listed(store: Store, tmp_path: Path) -> list[str]:
    """Jobs of one owner with odd ids, in the order of a table; and two that are over."""
    desk = Desk(store, tmp_path, cluster=ClusterSpec({"vc": 1}, 8), policy="fifo")
    shuffled = [*IN_ORDER, "8", "b"]
    Random(1).shuffle(shuffled)
    for name in shuffled:
        desk.submit(name, vc="vc")
    with store.writing() as connection:
        over = update(jobs).where(jobs.c.job_id.in_(["8", "b"]))
        connection.execute(over.values(phase="ended", ended_at=1.0))
        alone = update(jobs).where(jobs.c.job_id == "99")
        connection.execute(alone.values(gpus=0))
    return [name for name in IN_ORDER if name != "99"]


def viewers(store: Store) -> list[VisibleQueries]:
    """The queries of an operator and of the owner of all jobs, which read different indexes."""
    with store.engine.connect() as connection:
        owner = str(connection.execute(jobs.select()).mappings().first()["owner"])  # type: ignore[index]
    return [
        VisibleQueries(store.engine, OPERATOR),
        VisibleQueries(store.engine, Viewer(owner, Role.SUBMITTER)),
    ]


def test_ids_are_in_order_from_wherever_one_begins(store: Store, listed: list[str]) -> None:
    assert sorted(IN_ORDER, key=lambda name: (digits_of(name), name)) == IN_ORDER
    for view in viewers(store):
        for back in (False, True):
            wanted = listed[::-1] if back else listed
            asked: dict[str, Any] = {"gpus": True, "back": back}
            assert view.in_order(100, **asked) == wanted
            for place, name in enumerate(wanted):
                assert view.in_order(3, after=name, **asked) == wanted[place + 1 :][:3], name
                assert view.in_order(3, first=place, **asked) == wanted[place:][:3]
            gone = "8"  # over meanwhile: the page goes on where it was
            later = [name for name in wanted if (name == "7") is back]
            assert view.in_order(100, after=gone, **asked) == later
        assert view.in_order(5, gpus=False) == ["99"]
        assert view.in_order(5, gpus=True, phase="running") == []
    nobody = VisibleQueries(store.engine, Viewer("nobody", Role.SUBMITTER))
    assert nobody.in_order(100, gpus=True) == []


def test_a_page_reads_nobody_before_it(store: Store, listed: list[str]) -> None:
    if store.engine.dialect.name != "sqlite":
        pytest.skip("how SQLite says what it reads")
    asked: list[Any] = []

    def note(*given: object) -> None:
        if "SELECT" in str(given[2]):
            asked.append(given[2:4])

    event.listen(store.engine, "before_cursor_execute", note)
    view = VisibleQueries(store.engine, OPERATOR)
    view.in_order(100, gpus=True)
    view.in_order(100, gpus=True, after="12")
    event.remove(store.engine, "before_cursor_execute", note)
    plans = []
    with store.engine.connect() as connection:
        for statement, given in asked:
            plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", given).all()
            plans.append([row[-1] for row in plan])
    assert plans == [
        ["SCAN jobs USING INDEX jobs_by_id"],
        ["SEARCH jobs USING INDEX jobs_by_id (<expr>=? AND job_id>?)"],
        ["SEARCH jobs USING INDEX jobs_by_id (<expr>>?)"],
    ]
