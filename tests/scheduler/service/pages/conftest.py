"""A small service that has lived a while: real decisions on the simulated backend."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Literal

import pytest
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families

from features.job import Profile
from features.schema import State
from scheduler.assembly import CoreSpec
from scheduler.backends.base import Launch
from scheduler.backends.simulated import JobOutcome, SimulatedBackend, World
from scheduler.core.cluster import ClusterSpec
from scheduler.core.settings import ProfilingPartition
from scheduler.service.analyst.process import Analyst
from scheduler.service.api import tokens
from scheduler.service.api.auth import COOKIE, service_user
from scheduler.service.api.limits import Limits
from scheduler.service.api.schemas import SubmitRequest
from scheduler.service.app import create_app
from scheduler.service.decide.decider import Decider
from scheduler.service.log.bundles import BundleStore
from scheduler.service.log.header import LogHeader, establish
from scheduler.service.log.store.reads import Reads, VisibleQueries
from scheduler.service.log.store.rows import JobRow
from scheduler.service.log.store.schema import prepare
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.visibility import Role, Viewer
from scheduler.service.metrics import Metrics
from scheduler.service.settings import Settings
from scheduler.simulation.work import Work
from tests.scheduler.service.conftest import empty_database
from tests.scheduler.service.pages.bundle import small_bundle

START = 1.7e9
PEOPLE = {"ada.byron": ("vision",), "grace.hopper": ("vision", "speech")}


@dataclass
class Lived:
    """A service and its log.

    Attributes:
        decider: driven by `settle`, not by a thread.
        secrets: token of each person.
    """

    store: Store
    settings: Settings
    decider: Decider
    world: World
    secrets: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.app = create_app(
            self.settings,
            store=self.store,
            limits=Limits(rate_per_s=1e6, burst=10**6),
            clock=self.world.now,
        )

    def viewer(self, user: str) -> Viewer:
        role = Role.OPERATOR if user == "olga" else Role.SUBMITTER
        return Viewer(user, role, PEOPLE.get(user, ()), os_user=service_user())

    def see(self, user: str) -> VisibleQueries:
        """The database as somebody sees it."""
        reads: Reads = self.app.state.reads
        return reads.seen_by(self.viewer(user))

    def submit(self, user: str, **asked: object) -> str:
        answer = TestClient(self.app).post(
            "/api/v1/jobs",
            json={"command": ["train"], **asked},
            headers={"Authorization": f"Bearer {self.secrets[user]}"},
        )
        assert answer.is_success, answer.text
        return str(answer.json()["job_id"])

    def settle(self, seconds: float, turns: int = 1000) -> None:
        """Let time pass, and take every decision that is due."""
        until = self.world.now() + seconds
        for _ in range(turns):
            self.decider.turn(min(30.0, max(0.0, until - self.world.now())))
            if self.world.now() >= until:
                return

    def analysed(self, patch: pytest.MonkeyPatch) -> Analyst:
        """An analyst that answers in this process, however slow it is."""
        analyst = Analyst(self.store, self.decider.bundle_store, holder="test", samples=12)
        analyst.search_s = 600.0
        assert analyst.take_over()

        async def ask(kind: str, body: dict[str, Any], *_: object) -> dict[str, Any]:
            return analyst.reply(kind, body)

        patch.setattr(self.app.state.questions, "ask", ask)
        return analyst

    def browser(self, user: str) -> TestClient:
        """A client that is logged in as a browser is."""
        client = TestClient(self.app, follow_redirects=False)
        if user:
            client.cookies.set(COOKIE, self.secrets[user])
        return client


def _truth(launch: Launch, met: dict[str, int]) -> JobOutcome:
    random = Random(met.setdefault(launch.job_id, len(met)))  # ids are drawn anew each time
    profile = Profile(
        gpu_util_pct=random.choice([15.0, 40.0, 90.0]),
        gpu_mem_util_pct=random.uniform(2, 50),
        gpu_mem_mib=random.uniform(1000, 9000),
        amp=random.random() < 0.5,
    )
    state = State.FAILED if random.random() < 0.2 else State.COMPLETED
    return JobOutcome(Work(random.uniform(20, 2000), state, None, profile))


SPEC = ClusterSpec({"vision": 2, "speech": 1}, gpus_per_node=4, gpu_type="A100")
LUCID = CoreSpec.of(
    SPEC, "lucid", profiling=ProfilingPartition(nodes={"vision": 1}, limit_s=60.0, max_gpus=2)
)


def begin(store: Store, tmp_path: Path, core: CoreSpec = LUCID, *, trained: bool = True) -> Lived:
    """Two virtual clusters, nobody there yet."""
    establish(store, LogHeader(core, START, backend="simulated"))
    settings = Settings(
        database="sqlite:///unused.db", state_dir=tmp_path, backend="simulated", auth="on",
        bundle=tmp_path / "champion", mail_program="/usr/bin/true",
    )  # fmt: skip
    if trained:
        small_bundle().save(tmp_path / "champion")
    secrets = {
        user: tokens.create(
            store, user, Role.OPERATOR if user == "olga" else Role.SUBMITTER,
            vcs=PEOPLE.get(user, ()), os_user=service_user(), now=time.time(),
        )[1]
        for user in (*PEOPLE, "olga")
    }  # fmt: skip
    world = World(partial(_truth, met={}), start=START)
    decider = Decider(
        store, lambda: SimulatedBackend(world), BundleStore(tmp_path / "bundles"), holder="test",
        champion=tmp_path / "champion", lease_s=1e6, bundle_poll_s=0.0,
    )  # fmt: skip
    assert decider.take_over()
    return Lived(store, settings, decider, world, secrets)


@pytest.fixture
def lived(store: Store, tmp_path: Path) -> Lived:
    """A service where nobody was yet."""
    return begin(store, tmp_path)


def _as_long_as_it_is_there(
    fixture_name: str, config: pytest.Config
) -> Literal["module", "session"]:
    """A PostgreSQL is emptied for the tests of the next module."""
    return "module" if os.environ.get("PELLUCID_TEST_DATABASE") else "session"


@pytest.fixture(scope=_as_long_as_it_is_there)
def busy(tmp_path_factory: pytest.TempPathFactory, postgresql: str) -> Iterator[Lived]:
    """A service after a morning of work: some jobs are over, some run, some share, some wait.

    Its tests only look at it. Those of a module stand together: the others empty the database.
    """
    folder = tmp_path_factory.mktemp("busy")
    store = Store(empty_database(folder, postgresql))
    prepare(store)
    service = begin(store, folder)
    random = Random(3)
    busy_morning(service, 40, random)
    assert _shares(service)
    yield service
    store.close()


def of_each_kind(jobs: Iterable[JobRow]) -> list[JobRow]:
    """Two jobs of each owner, phase, state, number of runs, and of those that share GPUs."""
    kinds: dict[object, list[JobRow]] = {}
    for job in jobs:
        kind = job.owner, job.phase, job.state, job.attempt, bool(job.partner)
        kinds.setdefault(kind, []).append(job)
    return [job for alike in kinds.values() for job in alike[:2]]


def _shares(lived: Lived) -> bool:
    view = lived.app.state.reads.seen_by(lived.viewer("olga"))
    return any(len(gpu.jobs) == 2 for node in view.cluster() for gpu in node.gpus)


def busy_morning(
    lived: Lived,
    jobs: int,
    random: Random,
    name: Callable[[str, int], str] = lambda user, i: f"{user}-job-{i}",
    users: Sequence[str] = tuple(PEOPLE),
) -> list[str]:
    """Submit jobs over some time. Returns their ids."""
    ids = []
    for i in range(jobs):
        user = random.choice(users)
        ids.append(
            lived.submit(
                user, name=name(user, i), gpus=random.choice([1, 1, 2, 4]),
                vc=random.choice(PEOPLE[user]), share=random.random() > 0.1,
            )
        )  # fmt: skip
        lived.settle(random.expovariate(1 / 60))
    lived.settle(600)
    for _ in range(6):
        ids.append(lived.submit("ada.byron", name=name("ada.byron", 1000), gpus=4, vc="vision"))
    lived.settle(1)
    return ids


def submit_many(lived: Lived, user: str, asked: Sequence[Mapping[str, Any]]) -> None:
    """Submit jobs as the API does, without a request for each, and take what decisions are due."""
    viewer, changes = lived.viewer(user), lived.app.state.changes
    written = [
        changes.submit(viewer, SubmitRequest.model_validate({"command": ["train"], **one}))
        for one in asked
    ]
    for one in written:
        one.result(60)
    lived.settle(0.5)


def scraped(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    text = metrics.exposition()[0].decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
