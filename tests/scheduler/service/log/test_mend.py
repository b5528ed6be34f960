"""A log that a wrong clock dated is put right: what was written stays, what it means is mended."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest
from sqlalchemy import select
from typer.testing import CliRunner

from features.clock import Clock
from pipeline.app import app
from scheduler.backends.events import Kind
from scheduler.backends.local.spool import Acks
from scheduler.service.log.audit import audit
from scheduler.service.log.mend import NothingToMend, apply, find, running
from scheduler.service.log.store.reads import Reads
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import jobs, leases
from scheduler.service.log.store.visibility import Role, Viewer
from scheduler.service.metrics import Metrics
from tests.scheduler.service.desk import START, Desk, lasting
from tests.scheduler.service.log.test_snapshots import live

YEARS_S = 57 * 365 * 86_400.0
TIMES = ("submitted_at", "queued_at", "started_at", "ended_at", "held_at")
OPERATOR = Viewer("op", Role.OPERATOR)


def set_clock(desk: Desk, by_s: float) -> None:
    """The host's time is set; what runs runs on, and the service is started again."""
    world = desk.world
    desk.decider.let_go()
    world._clock += by_s
    for attempt in world._running.values():
        attempt.since, attempt.started = attempt.since + by_s, attempt.started + by_s
        attempt.deadline += by_s
    world._events = [(at + by_s, *rest) for at, *rest in world._events]  # type: ignore[misc]
    desk.wall += by_s
    desk.store.clock = Clock.by(lambda: desk.wall)


@pytest.fixture
def desk(store: Store, tmp_path: Path) -> Desk:
    """It was 2083 for a while, with jobs that came before, ran into it and end after."""
    outcomes = {f"j{i}": lasting(60.0 + 13 * i % 90) for i in range(40)}
    desk = Desk(store, tmp_path, outcomes, policy="pellucid", snapshot_every=7)
    live(desk, Random(1), range(12))  # type: ignore[arg-type]
    set_clock(desk, YEARS_S)
    desk.restart()
    live(desk, Random(2), range(12, 24))  # type: ignore[arg-type]
    desk.submit("pending")  # that no pass covers
    set_clock(desk, -YEARS_S)
    return desk


def test_after_the_mend_all_is_as_if_the_clock_had_been_right(desk: Desk) -> None:
    store, find_bundle = desk.store, desk.bundle_store.find
    now = desk.world.now() + 3600.0
    wrong = find(store, now)
    assert wrong.begins > START + YEARS_S > wrong.before
    assert YEARS_S - 600.0 < wrong.by_s < YEARS_S + 600.0
    before = [dict(row) for row in _rows(store)]
    with store.engine.connect() as connection:
        log = connection.exec_driver_sql("SELECT seq, at, body FROM events").all()
    rows = apply(store, find_bundle, wrong, actor="ann", reason="RTC", now=now)
    assert rows > 10
    event = store.read(kinds=[Kind.CLOCK_MENDED])[-1]
    assert (event.actor, event.body["first"], event.body["reason"]) == ("ann", wrong.first, "RTC")
    with store.engine.connect() as connection:
        there = connection.exec_driver_sql("SELECT seq, at, body FROM events").all()
        assert there[: len(log)] == log, "what was written stays"
        assert max(connection.execute(select(leases.c.expires_at)).scalars()) < START + 86_400.0
    for was, row in zip(before, _rows(store), strict=True):
        for name in TIMES:
            if was[name] is not None:
                late_s = was[name] - row[name]
                assert late_s == pytest.approx(wrong.by_s if was[name] > START + 1e6 else 0.0)
    desk.restart()
    assert desk.decider.state.now < START + 86_400.0
    live(desk, Random(3), range(24, 40))  # type: ignore[arg-type]
    desk.until_idle()
    for row in _rows(store):
        assert all(row[name] is None or row[name] < START + 86_400.0 for name in TIMES), row
        if row["started_at"] is not None and row["state"] == "completed":
            assert 0.0 <= row["ended_at"] - row["started_at"] < 300.0
    again = audit(store, find_bundle, decide_again=True)
    assert again.clean, (again.divergences[:2], again.tampered[:2])
    view = Reads(store.engine).seen_by(OPERATOR)
    for job in ("j11", "j13", "j23", "pending"):
        lines = view.story(job)
        assert all(START <= line.at < START + 86_400.0 for line in lines), lines
    passed = b"pellucid_last_pass_timestamp_seconds 1.7"
    assert passed in Metrics(store).exposition()[0]


def test_no_snapshot_of_the_wrong_time_is_gone_on_from(desk: Desk) -> None:
    now = desk.world.now() + 3600.0
    wrong = find(desk.store, now)
    with desk.store.reading() as connection:
        kept = desk.checkpoints.newest(connection, desk.store, wrong.last)
    assert kept is not None
    assert kept.seen >= wrong.first
    apply(desk.store, desk.bundle_store.find, wrong, actor="", reason="", now=now)
    desk.restart(released=True)
    assert desk.decider.state.now < START + 86_400.0
    assert desk.decider.state.core.estimator.state._now < START + 86_400.0  # type: ignore[attr-defined]


def test_what_is_refused(desk: Desk) -> None:
    now, store = desk.world.now() + 3600.0, desk.store
    wrong = find(store, now)
    assert find(store, now, wrong.first, wrong.before + 5.0).by_s == wrong.by_s - 5.0
    for given, why in (
        ((wrong.ends + 1.0,), "nothing in the log is dated after now"),
        ((wrong.ends - wrong.by_s - 1.0, wrong.first), "which is after now"),
        ((now, 1), "--began"),
        ((now, 10_000), "no event 10000"),
        ((now, wrong.first, wrong.before - 5.0), "cannot be earlier"),
        ((now, wrong.first, wrong.begins + 5.0), "cannot be earlier"),
    ):
        with pytest.raises(NothingToMend, match=why):
            find(store, *given)
    desk.ask(Kind.CANCEL_ASKED, "j1")
    with pytest.raises(NothingToMend, match="written meanwhile"):
        apply(store, desk.bundle_store.find, wrong, actor="", reason="", now=now)
    assert running(store) == []
    desk.restart()

    def beats(seconds: float) -> None:
        desk.wall += seconds
        assert desk.decider.lease is not None
        desk.decider.lease = store.renew(desk.decider.lease)

    store.clock.sleep = beats
    assert running(store) == ["decider"]


def test_the_backend_goes_back_too(tmp_path: Path) -> None:
    told = Acks(tmp_path / "told.log")
    told.add([("a", 1, "started", False, START), ("b", 1, "ended", True, START + YEARS_S)])
    told.mend(YEARS_S)
    told.close()
    again = Acks(tmp_path / "told.log")
    assert again.latest == START
    assert again.done == {("b", 1): "ended"}
    again.close()


def test_the_command_shows_first_and_then_does(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not desk.store.is_sqlite:
        pytest.skip("names a file")
    url = desk.store.engine.url.render_as_string(hide_password=False)
    given = ["mend-clock", "--database", url, "--state-dir", str(tmp_path)]
    seq, runner = desk.store.last_seq(), CliRunner()
    monkeypatch.setattr("time.time", lambda: desk.world.now() + 3600.0)
    shown = runner.invoke(app, given, catch_exceptions=False)
    assert "are dated 2080" in shown.output
    assert "nothing was changed: --apply" in shown.output
    assert desk.store.last_seq() == seq
    done = runner.invoke(app, [*given, "--apply", "--reason", "RTC", "--json"])
    assert json.loads(done.output)["applied"] is True, done.output
    assert [event.kind for event in desk.store.read(seq)] == [Kind.CLOCK_MENDED]
    desk.restart()
    desk.until_idle()
    assert audit(desk.store, desk.bundle_store.find, decide_again=True).clean


def _rows(store: Store) -> list[dict[str, float | None]]:
    with store.engine.connect() as connection:
        query = select(jobs).order_by(jobs.c.submitted_seq)
        return [dict(row) for row in connection.execute(query).mappings()]
