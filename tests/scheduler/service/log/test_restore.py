"""A backup taken under load, restored on another machine: see "Operations" in docs/service.md."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from features.clock import Clock
from scheduler.backends.events import Kind
from scheduler.backends.simulated import SimulatedBackend, World
from scheduler.service.decide.decider import Decider
from scheduler.service.log.audit import audit
from scheduler.service.log.bundles import BundleStore
from scheduler.service.log.restore import Restore
from scheduler.service.log.store.schema import prepare
from scheduler.service.log.store.store import Store
from tests.scheduler.service.desk import Desk, lasting
from tests.scheduler.service.pages.bundle import small_bundle


def test_what_waited_goes_on_and_what_ran_is_lost_and_the_log_is_sound(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    store = Store(f"sqlite:///{here / 'pellucid.db'}")
    prepare(store)
    outcomes = {f"j{i}": lasting(50.0) for i in range(12)}
    champion = small_bundle().save(here / "champion")
    desk = Desk(store, here, outcomes, policy="pellucid", champion=champion)
    for i in range(6):
        desk.submit(f"j{i}", gpus=4)
        desk.turn(3.0)
    ran = {r.job_id for r in desk.decider.state.ledger.holding.values()}
    assert ran
    with closing(sqlite3.connect(here / "pellucid.db")) as connection:  # while it decides
        connection.execute(f"VACUUM INTO '{there / 'pellucid.db'}'")
    shutil.copytree(here / "bundles", there / "bundles")
    for i in range(6, 12):  # it goes on meanwhile, which the backup has not
        desk.submit(f"j{i}", gpus=4)
        desk.turn(3.0)
    desk.until_idle()
    assert audit(store, desk.bundle_store.find, decide_again=True).clean
    store.close()

    restored = Store(f"sqlite:///{there / 'pellucid.db'}", Clock.by(lambda: desk.wall + 60.0))
    prepare(restored)
    world = World(lambda launch: outcomes[launch.job_id], start=desk.world.now() + 60.0)
    bundles = BundleStore(there / "bundles")
    decider = Decider(restored, lambda: SimulatedBackend(world), bundles, holder="restored")
    assert decider.take_over()
    for _ in range(40):
        decider.turn(30.0)
    lost = {event.job_id for event in restored.read(kinds=[Kind.LOST])}
    assert lost == ran, "nobody knows how far they got: they are said to be lost, and not run twice"
    assert set(decider.state.ledger.records) <= {f"j{i}" for i in range(6)}
    ended = {event.job_id for event in restored.read(kinds=[Kind.ENDED])}
    assert ended | lost == {f"j{i}" for i in range(6)}
    assert {job_id for job_id, _ in world.begun}.isdisjoint(ran)
    assert audit(restored, bundles.find, decide_again=True).clean
    decider.let_go()
    restored.close()


def test_a_crash_while_it_is_put_there_leaves_the_database_that_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service that finds none begins an empty log."""
    for name in ("now", "then"):
        (tmp_path / name).mkdir()
        store = Store(f"sqlite:///{tmp_path / name / 'pellucid.db'}")
        prepare(store)
        store.close()
    file = tmp_path / "now" / "pellucid.db"

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    found = Restore.of(f"sqlite:///{file}", file.parent, tmp_path / "then" / "pellucid.db")
    monkeypatch.setattr(os, "replace", crash)
    with pytest.raises(KeyboardInterrupt):
        found.apply()
    assert Store(f"sqlite:///{file}").last_seq() == 0


def test_models_and_the_name_of_the_site_come_back_where_there_are_none(tmp_path: Path) -> None:
    now, then = tmp_path / "now", tmp_path / "then"
    for folder in (now, then):
        (folder / "bundles" / "there").mkdir(parents=True)
        (folder / "bundles" / "there" / "model").write_text(folder.name)
        store = Store(f"sqlite:///{folder / 'pellucid.db'}")
        prepare(store)
        store.close()
    (then / "bundles" / "gone").mkdir()
    (then / "bundles" / "gone" / "model").write_text("then")
    (then / "site").write_text("ours")
    done = Restore.of(f"sqlite:///{now / 'pellucid.db'}", now, then).apply()
    assert done[1:3] == ["restored models gone", "restored the name of the state folder"]
    kept = {path.parent.name: path.read_text() for path in now.glob("bundles/*/model")}
    assert kept == {"there": "now", "gone": "then"}
    assert (now / "site").read_text() == "ours"
