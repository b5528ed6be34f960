"""A service goes on with the logs of older versions: nothing is lost, everything can be asked.

`older/make.py` says how those logs were made: jobs that ended, failed, were refused, cancelled and
cut off, some that wait, one that nobody has looked at, a drained node; by 9ff0a41 also a pair that
shares GPUs, and a job that is being profiled.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from features.clock import Clock
from features.job import Profile
from scheduler.backends.base import Launch
from scheduler.backends.events import Kind
from scheduler.backends.simulated import JobOutcome, SimulatedBackend, World, by_command
from scheduler.service.analyst.process import Analyst
from scheduler.service.api import tokens
from scheduler.service.api.limits import Limits
from scheduler.service.app import create_app
from scheduler.service.decide.decider import Decider
from scheduler.service.log.audit import audit
from scheduler.service.log.bundles import BundleStore
from scheduler.service.log.header import known
from scheduler.service.log.store.schema import prepare
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import jobs
from scheduler.service.log.store.visibility import Role
from scheduler.service.settings import Settings
from scheduler.simulation.work import Work
from tests.scheduler.service.api.conftest import address_of

OLDER = Path(__file__).with_name("older")
LATER = 1.7e9 + 1e6
BUNDLES = {
    "9ff0a41": "034891f3fa3204b9c9040f94bba3ffdabfc782e916d88649e0e6023bd4f22a5e",
    "c737a8b": "673c3400bbffdbab27137d90409cfedf38d527b314796c75bc408b70e9ee6f13",
}
WAS = {
    "short": "ended", "ended": "ended", "failed": "ended", "toolarge": "refused",
    "timeout": "ended", "cancelled": "cancelled", "alone": "running", "packed": "running",
    "other": "queued", "lost": "running", "waits": "queued", "urgent": "queued",
    "looked-at": "profiling", "fresh": "submitted",
}  # fmt: skip
OF = {  # by the version that wrote the log
    "9ff0a41": WAS,
    "c737a8b": WAS | {"other": "running", "lost": "queued", "looked-at": "queued"},
}


def outcome(launch: Launch) -> JobOutcome:
    """As in the older world."""
    work = by_command(launch).work
    return JobOutcome(Work(work.duration_s, work.state, profile=Profile(10.0, 5.0, 1000.0, False)))


class Upgraded:
    """The same database, models and world, found by the code of today."""

    def __init__(self, folder: Path, name: str):
        self.name, self.was, self.bundle = name, OF[name], BUNDLES[name]
        with sqlite3.connect(folder / "pellucid.db") as database:
            database.executescript((OLDER / f"{name}.sql").read_text())
        shutil.copytree(OLDER / f"{name}.bundle", folder / "bundles" / self.bundle)
        shutil.copy(OLDER / f"{name}.world.jsonl", folder / "world.jsonl")
        clock = Clock.by(lambda: LATER)
        self.store = Store(f"sqlite:///{folder / 'pellucid.db'}", clock)
        prepare(self.store)
        self.bundles = BundleStore(folder / "bundles")
        self.world = World(outcome, start=0.0, path=folder / "world.jsonl")
        self.decider = Decider(
            self.store, lambda: SimulatedBackend(self.world), self.bundles,
            holder="today",
        )  # fmt: skip

    def phases(self) -> dict[str, str]:
        with self.store.engine.connect() as connection:
            return {row.job_id: row.phase for row in connection.execute(jobs.select())}


@contextmanager
def asking(store: Store, found: Iterable[str]) -> Iterator[TestClient]:
    """An operator, whom every page and address of these jobs answers."""
    _, secret = tokens.create(store, "olga", Role.OPERATOR, now=LATER)
    settings = Settings(database=address_of(store), auth="on", backend="simulated")
    app = create_app(settings, store=store, limits=Limits(rate_per_s=1e6, burst=10**6))
    olga = TestClient(app, headers={"Authorization": f"Bearer {secret}"})
    paths = [f"/api/v1/jobs/{job}{more}" for job in found for more in ("", "/explain", "/story")]
    pages = ["/", "/history?period=all", "/fairness?period=all", "/forecasts"]
    for path in (*paths, *(f"/jobs/{job}" for job in found), *pages):
        answer = olga.get(path)
        assert answer.status_code == 200, (path, answer.text)
    yield olga
    app.state.changes.close()


@pytest.fixture(params=sorted(OF))
def upgraded(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Upgraded]:
    made = Upgraded(tmp_path, request.param)
    yield made
    made.store.close()


def test_it_goes_on_where_the_older_one_was(upgraded: Upgraded) -> None:
    assert upgraded.phases() == upgraded.was
    begun = list(upgraded.world.begun)
    assert upgraded.decider.take_over()
    assert upgraded.phases() == upgraded.was
    assert list(upgraded.world.begun) == begun
    core = upgraded.decider.state.core
    partner = core.cluster.runs["packed"].partner
    shares = "alone" if upgraded.name == "9ff0a41" else None
    assert (partner and partner.job.job_id) == shares
    assert not core.cluster.pools["vc"].is_open(1)
    assert core.jobs["urgent"].priority == 5
    assert upgraded.decider.state.bundle == upgraded.bundle
    for _ in range(200):
        upgraded.decider.turn(100.0)
    now = upgraded.phases()
    never = {"toolarge": "refused", "cancelled": "cancelled"}
    if upgraded.name == "9ff0a41":  # whose profiling partition keeps a node for good
        never["urgent"] = "queued"  # 8 GPUs wait for the drained node
    assert {name: phase for name, phase in now.items() if phase != "ended"} == never
    assert upgraded.world.problems == []
    ran = [name for name, phase in upgraded.was.items() if phase == "running"]
    again = [key for key in upgraded.world.begun if key[0] in ran]
    assert again == [key for key in begun if key in again]


def test_its_log_is_clean(upgraded: Upgraded) -> None:
    assert upgraded.decider.take_over()
    for _ in range(5):
        upgraded.decider.turn(100.0)
    found = audit(upgraded.store, upgraded.bundles.find)
    assert [one.sentence() for one in found.divergences] == []
    assert found.jobs == len(WAS)


def test_pages_and_explanations_answer_for_old_jobs(upgraded: Upgraded) -> None:
    assert upgraded.decider.take_over()
    upgraded.decider.turn(1.0)
    store = upgraded.store
    analyst = Analyst(store, upgraded.bundles, holder="today", samples=4)
    assert analyst.take_over()
    with asking(store, WAS) as olga:
        for job in WAS:
            assert job in olga.get(f"/jobs/{job}").text
        if upgraded.name == "9ff0a41":
            assert "alone" in olga.get("/jobs/packed").text
        assert olga.get("/models").status_code == 200
    for job in (name for name in ("other", "waits", "urgent") if upgraded.was[name] == "queued"):
        why = analyst.reply("why", {"job_id": job, "names": True})
        assert not why["unavailable"], why


def test_the_log_says_that_other_code_goes_on(upgraded: Upgraded) -> None:
    assert upgraded.decider.take_over()
    leases = upgraded.store.read(kinds=[Kind.LEASE])
    assert len({event.body["version"] for event in leases}) == 2


def test_what_was_said_in_seconds_is_read_as_times_what_profiling_took() -> None:
    assert known({"profile_above_s": 300.0, "requeue": None, "ageing": 0.1}) == {
        "profile_above": 1.5,
        "ageing": 0.1,
    }
    assert known({"profile_above_s": 300.0}, 600.0) == {"profile_above": 0.5}
    assert known({"profile_above_s": 0}) == {"profile_above": 0.0}


@pytest.mark.parametrize("value", [None, "fast", [1], True, -1.0])
def test_what_never_was_a_setting_is_left_to_be_refused(value: Any) -> None:
    assert known({"profile_above_s": value}) == {"profile_above_s": value}
