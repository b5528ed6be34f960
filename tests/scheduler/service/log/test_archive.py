"""What old events and decisions say is compressed, and read as ever."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from scheduler.backends.events import Event, Kind
from scheduler.service.log import retention
from scheduler.service.log.audit import audit
from scheduler.service.log.export import finished
from scheduler.service.log.store import archive
from scheduler.service.log.store.reads import Reads
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import decisions, events
from scheduler.service.log.store.visibility import Role, Viewer
from tests.scheduler.service.desk import Desk
from tests.scheduler.service.pages.bundle import small_bundle

OLGA = Viewer("olga", Role.OPERATOR)
LATER = 1e12


@pytest.fixture
def desk(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A service with a past, some of which goes on."""
    monkeypatch.setattr(archive, "BATCH", 10)
    monkeypatch.setattr(archive, "APART_S", 0.0)
    champion = small_bundle().save(tmp_path / "champion")
    desk = Desk(store, tmp_path, policy="pellucid", champion=champion)
    for i in range(14):
        desk.submit(f"job{i}", gpus=4)
        desk.turn(20.0)
    return desk


def told(store: Store) -> dict[str, Any]:
    """What is read of the log, by every way there is."""
    seen = Reads(store.engine).seen_by(OLGA)
    names = [f"job{i}" for i in range(14)]
    return {
        "log": store.read(),
        "stories": {name: seen.story(name) for name in names},
        "why": {name: seen.decisions(name) for name in names},
        "exported": finished(store).to_pylist(),
    }


def sizes(store: Store) -> dict[str, int]:
    with store.engine.connect() as connection:
        return {
            table.name: connection.execute(select(func.sum(func.length(column)))).scalar() or 0
            for table, column in (
                (events, events.c.body),
                (decisions, decisions.c.body),
                (archive.archive, archive.archive.c.content),
            )
        }


def test_everything_is_read_as_before_and_takes_less(desk: Desk) -> None:
    store = desk.store
    before, took = told(store), sizes(store)
    moved = archive.move(store, LATER)
    assert moved >= 40
    assert moved % 10 == 0
    assert archive.move(store, LATER) == 0, "what is left does not fill a row"
    assert told(store) == before
    now = sizes(store)
    assert now["events"] + now["decisions"] < (took["events"] + took["decisions"]) / 2
    assert now["archive"] < (took["events"] + took["decisions"]) / 4
    assert audit(store, desk.bundle_store.find, decide_again=True).clean


@pytest.mark.parametrize("upgraded", [False, True])
def test_the_next_decider_goes_on_from_it(desk: Desk, upgraded: bool) -> None:
    archive.move(desk.store, LATER)
    desk.restart(upgraded=upgraded)
    desk.until_idle()
    assert archive.move(desk.store, LATER) > 0, "and its past is moved, too"
    desk.restart()
    found = audit(desk.store, desk.bundle_store.find, decide_again=True)
    assert found.clean
    assert found.jobs == 14


def test_what_is_young_stays_and_so_does_the_last_of_each_kind(desk: Desk) -> None:
    store = desk.store
    first = store.read()[0].at
    assert archive.move(store, first) == 0
    archive.move(store, LATER)
    with store.engine.connect() as connection:
        for kind in {event.kind for event in store.read()}:
            query = select(events.c.body).where(events.c.kind == kind.value)
            last = connection.execute(query.order_by(events.c.seq.desc()).limit(1)).scalar_one()
            assert last, kind
            if kind in (Kind.HEADER, Kind.BUNDLE, Kind.LEASE):
                assert "" not in connection.execute(query).scalars().all()


@pytest.mark.parametrize("days", [0.0, 7.0])
def test_maintenance_does_it_where_it_is_asked_to(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, days: float
) -> None:
    asked: list[float] = []
    monkeypatch.setattr(archive, "move", lambda _, before: asked.append(before) or 0)
    monkeypatch.setattr(retention, "service_clock", lambda _: lambda: 1e9)
    rounds = iter([False, True])
    monkeypatch.setattr(retention, "Store", lambda _: desk.store)
    monkeypatch.setattr(desk.store, "close", lambda: None)
    retention.keep_pruning("", 30.0, days, lambda _: next(rounds))
    assert asked == ([1e9 - 7 * 86_400] if days else [])


def test_what_slurm_jobs_were_scored_by_is_moved_too(desk: Desk) -> None:
    store = desk.store
    scored = [Event(Kind.SCORED, LATER / 2, f"s{i}", body={"inputs": i}) for i in range(21)]
    store.append(scored)
    archive.move(store, LATER)
    query = select(events.c.body).where(events.c.kind == Kind.SCORED.value).order_by(events.c.seq)
    with store.engine.connect() as connection:
        texts = connection.execute(query).scalars().all()
    assert texts.count("") >= 20 - archive.BATCH
    assert texts[-1], "the last of its kind stays"
    told_of = [event.body for event in store.read() if event.kind is Kind.SCORED]
    assert told_of == [{"inputs": i} for i in range(21)]


def test_who_is_waited_for_is_read_from_it(desk: Desk) -> None:
    store = desk.store
    for i in range(24):
        desk.submit(f"more{i}", gpus=8)
    desk.turn(1.0)
    seen = Reads(store.engine).seen_by(OLGA)
    before = seen.causes(desk.wall)
    assert before.waited_for
    archive.move(store, LATER)
    with store.engine.connect() as connection:
        moved = select(decisions.c.job_id).where(decisions.c.body == "")
        assert {f"more{i}" for i in range(10, 14)} & set(connection.execute(moved).scalars())
    assert seen.causes(desk.wall) == before
