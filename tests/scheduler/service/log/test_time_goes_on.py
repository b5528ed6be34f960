"""Every process of the service begins at the time the others are at."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from features.clock import Clock, boot_id
from scheduler.assembly import CoreSpec
from scheduler.backends.local.backend import LocalBackend
from scheduler.core.cluster import ClusterSpec
from scheduler.service.analyst import process
from scheduler.service.app import create_app
from scheduler.service.decide import start_time
from scheduler.service.decide.begin import begin
from scheduler.service.log.store.schema import prepare
from scheduler.service.log.store.store import Store
from scheduler.service.settings import Settings, SettingsError, read_settings
from scheduler.slurm import entry
from scheduler.slurm.follow import follower

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
    run = process.run_analyst if name == "analyst" else entry.follow
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


@pytest.mark.parametrize(("boot", "at"), [("another", 77.0), (boot_id(), 940.0)])
def test_monotonic_times_count_in_their_own_boot_only(boot: str, at: float) -> None:
    backend: Any = SimpleNamespace(_host_clock=Clock(lambda: 1000.0, lambda: 100.0))
    attempt: Any = SimpleNamespace(claim={"boot": boot})
    assert LocalBackend._when(backend, attempt, {"at": 77.0, "monotonic": 40.0}) == at


DAY_S = 86_400.0
NOON = 1_800_000_000.0  # 2027-01-15 08:00 UTC, when the log was written last


@pytest.mark.parametrize(
    ("boot", "since_s", "slept_s", "off_s", "server_s", "refused"),
    [
        ("one", 3 * DAY_S, 0.0, 3 * DAY_S, None, ""),  # a weekend
        ("one", 60.0, 0.0, 0.9 * DAY_S, None, ""),
        ("one", 60.0, 0.0, 1.1 * DAY_S, None, "since its boot 2027-01-15 08:01 UTC"),
        ("one", 60.0, 3 * DAY_S, 3 * DAY_S, None, ""),  # a lid that was closed
        ("two", 60.0, 0.0, 29 * DAY_S, None, ""),  # it was switched off
        ("two", 60.0, 0.0, 31 * DAY_S, None, "the log's last 2027-01-15 08:00 UTC, over 30 days"),
        ("two", 60.0, 0.0, 2 * DAY_S, 0.5 * DAY_S, "the database server's 2027-01-15 20:00 UTC"),
        ("two", 60.0, 0.0, 2 * DAY_S, 2 * DAY_S, ""),
    ],
)
def test_a_start_at_a_time_that_other_clocks_do_not_bear_out(
    boot: str,
    since_s: float,
    slept_s: float,
    off_s: float,
    server_s: float | None,
    refused: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(start_time, "_asleep_s", lambda _: slept_s)
    url = f"sqlite:///{tmp_path / 'p.db'}"
    store = Store(url, Clock(lambda: NOON, lambda: 1000.0, boot="one"))
    prepare(store)
    start_time.check_time(store, None)  # a log that is new
    lease = store.take("decider", "x", 10.0)
    assert lease is not None
    store.let_go(lease)
    later = NOON + off_s
    store.clock = Clock(lambda: later, lambda: 1000.0 + since_s, boot=boot)
    if server_s is not None:
        monkeypatch.setattr(Store, "is_sqlite", False)
        monkeypatch.setattr(start_time, "_server_time", lambda _: NOON + server_s)
    if not refused:
        start_time.check_time(store, None)
        return
    day = start_time._day(later)
    with pytest.raises(SettingsError, match=f"{refused}.*--accept-clock {day}"):
        start_time.check_time(store, start_time._day(later - DAY_S))
    with capture_logs() as logged:
        start_time.check_time(store, day)
    assert [line["event"] for line in logged] == ["clock_accepted"]
    store.close()


def test_serve_does_not_begin_on_it_and_writes_nothing(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'p.db'}"
    store = Store(url, Clock(lambda: time.time() - 40 * DAY_S, boot="before"))
    prepare(store)
    store.take("decider", "x", 10.0)
    settings = Settings(database=url, state_dir=tmp_path / "state", backend="simulated")
    spec = CoreSpec.of(ClusterSpec({"vc": 1}, 4), "fifo")
    with pytest.raises(SettingsError, match=r"this host's time is .* the log's last .* over 30"):
        begin(settings, spec)
    assert not store.last_seq()
    begin(settings.model_copy(update={"accept_clock": start_time._day(time.time() + DAY_S)}), spec)
    store.close()
    with pytest.raises(SettingsError, match="accept_clock is 'soon'"):
        read_settings(accept_clock="soon")
