"""A service in one process: API, decider, a simulated cluster whose time passes when asked to."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from features.job import Profile
from features.schema import State
from scheduler.assembly import CoreSpec
from scheduler.backends.base import Launch
from scheduler.backends.events import Event
from scheduler.backends.simulated import JobOutcome, SimulatedBackend, World
from scheduler.core.cluster import ClusterSpec
from scheduler.service.api import tokens
from scheduler.service.api.auth import service_user
from scheduler.service.api.limits import Limits
from scheduler.service.app import create_app
from scheduler.service.decide.decider import Decider
from scheduler.service.log.bundles import BundleStore
from scheduler.service.log.header import LogHeader, establish
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.visibility import Role
from scheduler.service.settings import Settings
from scheduler.simulation.work import Work

ROLES = {
    "alice": (Role.SUBMITTER, ("vision",)),
    "bob.noyce": (Role.SUBMITTER, ("vision", "speech")),
    "vera": (Role.VIEWER, ()),
    "olga": (Role.OPERATOR, ()),
}


def outcome(launch: Launch) -> JobOutcome:
    """Jobs named by their command: ``train SECONDS UTILISATION``."""
    _, seconds, utilisation = launch.command
    profile = Profile(float(utilisation), float(utilisation) / 2, 4321.5, True)
    return JobOutcome(Work(float(seconds), State.COMPLETED, profile=profile))


def address_of(store: Store) -> str:
    """The URL of a database."""
    return store.engine.url.render_as_string(hide_password=False)


class Service:
    """One service and the people who use it."""

    def __init__(self, store: Store, folder: Path, limits: Limits, policy: str = "pellucid"):
        self.store, self.database = store, address_of(store)
        spec = ClusterSpec({"vision": 2, "speech": 1}, gpus_per_node=4, gpu_type="V100")
        start = time.time()
        establish(store, LogHeader(CoreSpec.of(spec, policy), start, backend="simulated"))
        self.world = World(outcome, start=start)
        self.decider = Decider(
            store, lambda: SimulatedBackend(self.world), BundleStore(folder / "bundles"),
            holder="test", lease_s=3600.0,
        )  # fmt: skip
        assert self.decider.take_over()
        self.secrets = {
            name: tokens.create(
                store, name, role, vcs=vcs, os_user=service_user(), now=time.time()
            )[1]
            for name, (role, vcs) in ROLES.items()
        }
        self.app = create_app(
            Settings(database=self.database, auth="on", backend="simulated"),
            store=store,
            limits=limits,
        )
        self.strangers = TestClient(self.app, follow_redirects=False)

    def by(self, name: str) -> TestClient:
        """A client with the token of a person."""
        headers = {"Authorization": f"Bearer {self.secrets[name]}"}
        return TestClient(self.app, headers=headers, follow_redirects=False)

    def submit(self, who: str, seconds: float = 100.0, util: float = 30.0, **asked: Any) -> str:
        """Submit a job; its id."""
        body = {"command": ["train", str(seconds), str(util)], "vc": "vision", **asked}
        answer = self.by(who).post("/api/v1/jobs", json=body)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["job_id"])

    def turn(self, times: int = 1, wait_s: float = 0.0) -> None:
        """Let the decider take turns; `wait_s` passes on the cluster in each."""
        for _ in range(times):
            self.decider.turn(wait_s)

    def events(self) -> list[Event]:
        return self.store.read()


@pytest.fixture
def service(store: Store, tmp_path: Path) -> Iterator[Service]:
    """A service that hurries nobody."""
    made = Service(store, tmp_path, Limits(rate_per_s=1e6, burst=10**6, answer_s=0.2))
    yield made
    made.app.state.changes.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, tables: Path) -> Iterator[Service]:
    """A service for requests that change nothing."""
    folder = tmp_path_factory.mktemp("shared")
    store = Store(f"sqlite:///{shutil.copy(tables, folder / 'pellucid.db')}")
    made = Service(store, folder, Limits(rate_per_s=1e6, burst=10**6, guesses_burst=10**6))
    yield made
    made.app.state.changes.close()
    store.close()
