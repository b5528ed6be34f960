"""Killed at any write and any action, the service loses nothing and does nothing twice.

A short run of `benchmarks.faults`, and a machine that tries to find what that does not.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, precondition, rule

from benchmarks import faults
from benchmarks.faulty import hurry
from scheduler.backends.events import Kind
from scheduler.backends.simulated import JobOutcome
from scheduler.core.settings import ProfilingPartition
from scheduler.service.log.audit import audit
from scheduler.service.log.record import Phase
from scheduler.service.log.store.schema import prepare
from scheduler.service.log.store.store import Store
from tests.scheduler.service.desk import Desk, lasting

CRASHES = 200


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> Iterator[None]:
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.configure(**before)


def test_hundreds_of_crashes_lose_nothing(bundles: list[Path]) -> None:
    url = os.environ.get("PELLUCID_TEST_DATABASE")
    found = faults.run(url, CRASHES, first=10_000, bundles=bundles)
    assert found.crashes >= CRASHES
    assert (found.lost, found.doubled, found.divergences) == ([], [], [])
    assert found.profiled > 0
    assert found.takeovers_refused > 0
    assert {"before a write", "before a commit", "after a commit"} <= set(found.where)
    assert any("launch" in where for where in found.where)
    assert any("acknowledgement" in where for where in found.where)


def test_the_harness_would_notice(bundles: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """A decider that acts before it writes, or forgets what it was doing, is found out."""
    from scheduler.service.decide.decider import Decider

    monkeypatch.setattr(Decider, "recover", lambda self: None)
    patient = faults.Scenario.run
    monkeypatch.setattr(faults.Scenario, "run", lambda self: patient(self, turns=400))
    found = faults.run(None, 60, first=20_000, bundles=bundles)
    assert found.lost


JOBS = [f"job{i}" for i in range(12)]


class Service(RuleBasedStateMachine):
    """Submissions, changes of mind, time, crashes, in any order."""

    submitted = Bundle("submitted")

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.store = Store(f"sqlite:///{self.folder.name}/pellucid.db")
        hurry(self.store)
        prepare(self.store)
        self.outcomes: dict[str, JobOutcome] = {}
        self.desk = Desk(
            self.store,
            Path(self.folder.name),
            self.outcomes,
            policy="lucid",
            partition=ProfilingPartition(nodes={"vc": 1}, limit_s=30.0, max_gpus=4),
        )
        self.ids = iter(JOBS)

    @rule(
        target=submitted,
        gpus=st.sampled_from([1, 2, 4, 9]),
        seconds=st.sampled_from([0.0, 10.0, 50.0, 400.0]),
        priority=st.integers(-1, 2),
        share=st.booleans(),
        profile=st.booleans(),
    )
    def submit(
        self, gpus: int, seconds: float, priority: int, share: bool, profile: bool
    ) -> str | None:
        job_id = next(self.ids, None)
        if job_id is not None:
            self.outcomes[job_id] = lasting(seconds)
            self.desk.submit(job_id, gpus=gpus, priority=priority, share=share, profile=profile)
        return job_id

    @rule(job_id=submitted)
    def cancel(self, job_id: str | None) -> None:
        if job_id is not None:
            self.desk.cancel(job_id)

    @rule(job_id=submitted, priority=st.integers(-2, 5))
    def reprioritise(self, job_id: str | None, priority: int) -> None:
        if job_id is not None:
            self.desk.ask(Kind.PRIORITY_SET, job_id, priority=priority)

    @rule(node=st.integers(0, 1), is_open=st.booleans())
    def drain_or_open(self, node: int, is_open: bool) -> None:
        self.desk.ask(Kind.NODE_SET, node=node, open=is_open)

    @rule(node=st.integers(0, 1))
    def lose_node(self, node: int) -> None:
        self.desk.world.lose_node(node)

    @rule(wait_s=st.sampled_from([0.0, 5.0, 60.0]))
    def turn(self, wait_s: float) -> None:
        self.desk.turn(wait_s)

    @rule()
    def crash(self) -> None:
        self.desk.restart()

    @precondition(lambda self: not self.desk.decider.state.pending)
    @invariant()
    def gpus_are_held_by_those_who_have_them(self) -> None:
        state = self.desk.decider.state
        state.core.cluster.validate()
        state.ledger.validate()
        held = {r.job_id for r in state.ledger.records.values() if r.phase.holds_gpus}
        assert held == set(state.core.cluster.runs)

    @invariant()
    def the_world_sees_nothing_wrong(self) -> None:
        assert self.desk.world.problems == []

    def teardown(self) -> None:
        for node in (0, 1):
            self.desk.ask(Kind.NODE_SET, node=node, open=True)
        self.desk.until_idle()
        with self.store.reading() as connection:
            phases = connection.exec_driver_sql("SELECT phase FROM jobs").scalars().all()
        assert all(Phase(phase).over for phase in phases)
        assert audit(self.store, self.desk.bundle_store.find).divergences == []
        self.store.close()
        self.folder.cleanup()


Service.TestCase.settings = settings(
    max_examples=20,
    stateful_step_count=25,
    suppress_health_check=list(HealthCheck),
)
TestService = Service.TestCase
