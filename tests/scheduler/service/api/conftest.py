"""A service in one process: API, decider, a simulated cluster whose time passes when asked to."""

from __future__ import annotations

import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from fastapi.testclient import TestClient
from typer.testing import CliRunner, Result

from features.job import Profile
from features.schema import State
from pipeline.app import app as commands
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
from tests.waiting import until

Run = Callable[..., Result]

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


def bearer(secret: str) -> dict[str, str]:
    """The header of a request with a token."""
    return {"Authorization": f"Bearer {secret}"}


def listening(app: object) -> Iterator[str]:
    """Serve an app on a free port; its address."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    until(lambda: server.started, "the server to start", every_s=0.01)
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = True
    thread.join()


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
        changes = self.app.state.changes
        wall = changes.now  # on a busy machine it is ahead of a world that nobody lets go on
        changes.now = lambda: min(wall(), self.world.now())
        self.strangers = TestClient(self.app, follow_redirects=False)

    def by(self, name: str) -> TestClient:
        """A client with the token of a person."""
        return self.having(self.secrets[name])

    def having(self, secret: str) -> TestClient:
        """A client with a token."""
        return TestClient(self.app, headers=bearer(secret), follow_redirects=False)

    def command(self, address: str, who: str, *words: str) -> Result:
        """Run a command as a person, against an address of this service."""
        environment = {
            "PELLUCID_SERVER": address, "PELLUCID_TOKEN": self.secrets[who], "COLUMNS": "160"
        }  # fmt: skip
        return CliRunner().invoke(commands, list(words), env=environment)

    def submit(self, who: str, seconds: float = 100.0, util: float = 30.0, **asked: Any) -> str:
        """Submit a job; its id."""
        body = {"command": ["train", str(seconds), str(util)], "vc": "vision", **asked}
        answer = self.by(who).post("/api/v1/jobs", json=body)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["job_id"])

    def waiting(self, **asked: Any) -> str:
        """A job of alice's that waits behind one that fills its virtual cluster; its id."""
        self.submit("bob.noyce", 1000, gpus=8)
        self.turn(2)
        job = self.submit("alice", **asked)
        self.turn(2)
        return job

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


@pytest.fixture
def run(service: Service) -> Iterator[Run]:
    """Runs a command as a person, against a service that listens on a real socket."""
    for address in listening(service.app):
        yield partial(service.command, address)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, tables: Path) -> Iterator[Service]:
    """A service for requests that change nothing."""
    folder = tmp_path_factory.mktemp("shared")
    store = Store(f"sqlite:///{shutil.copy(tables, folder / 'pellucid.db')}")
    made = Service(store, folder, Limits(rate_per_s=1e6, burst=10**6, guesses_burst=10**6))
    yield made
    made.app.state.changes.close()
    store.close()
