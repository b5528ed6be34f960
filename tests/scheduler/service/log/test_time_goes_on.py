"""Every process of the service begins at the time the others are at."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from scheduler.service.analyst import process
from scheduler.service.app import create_app
from scheduler.service.follow import follower
from scheduler.service.log.store.schema import prepare
from scheduler.service.log.store.store import Store
from scheduler.service.settings import Settings

AHEAD_S = 3000.0  # of the host's time, which was set back


class Begun(Exception):
    """A process got as far as its work."""


@pytest.mark.parametrize("name", ["analyst", "follower", "api"])
def test_after_the_clock_was_set_back(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(database=f"sqlite:///{tmp_path / 'p.db'}", state_dir=tmp_path / "state")
    before = Store(settings.database)
    prepare(before)
    before.clock.not_before(time.time() + AHEAD_S)
    before.take("decider", "x", 10.0)
    before.close()

    def begins(store: Store, *_: object, **__: object) -> None:
        assert store.clock.ahead_s() > AHEAD_S - 100.0
        raise Begun

    monkeypatch.setattr(os, "nice", lambda _: 0)
    monkeypatch.setattr(os, "sched_setscheduler", lambda *_: None)
    monkeypatch.setattr(process, "Analyst", begins)
    monkeypatch.setattr(follower, "followed_header", begins)
    if name == "api":
        assert create_app(settings).state.store.clock.ahead_s() > AHEAD_S - 100.0
        return
    run = process.run_analyst if name == "analyst" else follower.run_follower
    with pytest.raises(Begun):
        run(settings, lambda: True)


def test_who_takes_over_goes_on_from_the_time_of_the_other_host(tmp_path: Path) -> None:
    """An earlier version looked at it only as a process began, and not as one that stood by."""
    url = f"sqlite:///{tmp_path / 'p.db'}"
    leads, stands_by = Store(url), Store(url)
    prepare(leads)
    leads.clock.not_before(time.time() + AHEAD_S)
    lease = leads.take("decider", "east", 10.0)
    assert lease is not None
    assert stands_by.take("decider", "west", 10.0) is None
    assert stands_by.clock.ahead_s() < 1.0
    leads.let_go(lease)
    assert stands_by.take("decider", "west", 10.0) is not None
    assert stands_by.clock.ahead_s() > AHEAD_S - 100.0
    leads.close()
    stands_by.close()
