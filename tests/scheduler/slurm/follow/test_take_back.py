"""`pellucid slurm release-all` after a stop: not what another service keeps, nor a dry run."""

from __future__ import annotations

from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from typer.testing import CliRunner

from pipeline.app import app
from scheduler.service.log.questions import LEASE
from scheduler.service.log.store.schema import prepare
from scheduler.service.log.store.store import Store


class Stopped:
    """A service that was stopped; `taken` counts how often its order was taken back."""

    def __init__(self, folder: Path) -> None:
        self.config, self.taken = folder / "service.yaml", 0
        url = f"sqlite:///{folder / 'pellucid.db'}"
        self.config.write_text(f"backend: slurm\nslurm_mode: order\ndatabase: {url}\n")
        self.store = Store(url)
        prepare(self.store)

    def release_all(self, *options: str) -> str:
        asked = ["slurm", "release-all", "--config", str(self.config), *options]
        done = CliRunner().invoke(app, asked)
        assert done.exit_code == 0, done.output
        return done.output


@pytest.fixture
def stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stopped:
    made = Stopped(tmp_path)

    def take_back(_: Any) -> dict[str, str]:
        made.taken += 1
        return {}

    monkeypatch.setattr("scheduler.slurm.follow.orders.release_all", take_back)
    return made


def test_another_service_keeps_its_order(stopped: Stopped) -> None:
    store, done = stopped.store, Event()

    def lives() -> None:
        while not done.wait(0.02):
            store.take(LEASE, "leader", 600.0)  # its own again: a renewal

    held = store.take(LEASE, "leader", 600.0)
    assert held is not None
    leader = Thread(target=lives)
    leader.start()
    try:
        assert stopped.release_all().startswith("Nothing is taken back: another service")
        assert stopped.taken == 0
        stopped.release_all("--force")
        assert stopped.taken == 1
    finally:
        done.set()
        leader.join()
    store.let_go(held)
    stopped.release_all()
    assert stopped.taken == 2, "nobody holds it"


def test_the_order_of_who_died_is_taken_back(stopped: Stopped) -> None:
    assert stopped.store.take(LEASE, "dead", 0.5) is not None
    stopped.release_all()
    assert stopped.taken == 1


def test_of_a_dry_run_nothing_is_taken_back(stopped: Stopped) -> None:
    stopped.config.write_text(stopped.config.read_text() + "dry_run: true\n")
    assert stopped.release_all().startswith("Nothing is taken back: dry_run")
    assert stopped.taken == 0
    stopped.release_all("--force")
    assert stopped.taken == 1
