"""A job's place in its queue, and what is read to find it."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from sqlalchemy import event, update

from scheduler.core.cluster import ClusterSpec
from scheduler.service.log.store import reads
from scheduler.service.log.store.reads import VisibleQueries
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import jobs
from scheduler.service.log.store.visibility import Role, Viewer
from tests.scheduler.service.desk import Desk

OPERATOR = Viewer("root", Role.OPERATOR)


@pytest.fixture
def queued(store: Store, tmp_path: Path) -> list[str]:
    """Jobs that wait in two queues, many of one priority and some of one key."""
    desk = Desk(store, tmp_path, cluster=ClusterSpec({"vc": 1, "other": 1}, 8), policy="fifo")
    draw, names = Random(3), [f"j{i}" for i in range(30)]
    for name in names:
        desk.submit(name, vc="other" if name.endswith("7") else "vc")
    with store.writing() as connection:
        for name in names:
            key = draw.choice([None, -1.5, 0.0, 0.1, 0.1 + 0.2, 1e300])
            has = {"priority": draw.choice([-1, 0, 0, 2]), "key": key, "phase": "queued"}
            connection.execute(update(jobs).where(jobs.c.job_id == name).values(**has))
    return names


def test_the_place_is_that_among_all_that_wait_in_its_queue(
    store: Store, queued: list[str]
) -> None:
    view = VisibleQueries(store.engine, OPERATOR)
    with store.engine.connect() as connection:
        rows = {row["job_id"]: row for row in connection.execute(jobs.select()).mappings()}

    def place(name: str, priority: int | None = None) -> tuple[float, float, int]:
        row = rows[name]
        key = 1e300 if row["key"] is None else row["key"]
        return -(row["priority"] if priority is None else priority), key, row["submitted_seq"]

    for name in queued:
        those = [one for one in queued if rows[one]["vc"] == rows[name]["vc"]]
        for priority in (None, -2, 0, 1, 3):
            at = place(name, priority)
            before = sum(place(one) < at for one in those if one != name)
            found = view.standing(name, priority)
            assert found is not None
            assert (found.position, found.waiting) == (before + 1, len(those))


def test_a_bound_counts_nobody_again(
    store: Store, queued: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    view = VisibleQueries(store.engine, OPERATOR)
    for most in (2000, 3):
        monkeypatch.setattr(reads, "MOST", most)
        for name in queued:
            now = 1e9
            assert view.bound(name, now, view.standing(name)) == view.bound(name, now)


def test_nobody_before_it_is_looked_up_to_be_counted(store: Store, queued: list[str]) -> None:
    """Not one by one: a range of the index for each way to be before it."""
    if store.engine.dialect.name != "sqlite":
        pytest.skip("how SQLite says what it reads")
    asked: list[Any] = []

    def note(*given: object) -> None:
        asked.append(given[2:4])

    event.listen(store.engine, "before_cursor_execute", note)
    VisibleQueries(store.engine, OPERATOR).standing(queued[0])
    event.remove(store.engine, "before_cursor_execute", note)
    [(statement, given)] = [one for one in asked if "count" in str(one[0])]
    with store.engine.connect() as connection:
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", given).all()
    read = [row[-1] for row in plan if "jobs" in row[-1]]
    assert all(one.startswith("SEARCH jobs USING") for one in read)
    queue = "phase=? AND vc=?"  # all that wait there are counted by this or another index
    assert sorted(one.partition("jobs_by_place ")[2] for one in read if "<" in one) == [
        f"({queue} AND <expr><?)",
        f"({queue} AND <expr>=? AND <expr><?)",
        f"({queue} AND <expr>=? AND <expr>=? AND submitted_seq<?)",
    ]
    assert len(read) == 4
