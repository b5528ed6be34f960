"""Much to do at once: the decider is heard of throughout, and is ready when it decides."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from structlog.testing import capture_logs

from scheduler.backends.events import Kind
from scheduler.core.core import Core
from scheduler.explain.render import first_words
from scheduler.service.app import create_app
from scheduler.service.decide import decider as deciders
from scheduler.service.decide.supervisor import DECIDER_HANGS_S
from scheduler.service.log.audit import audit
from scheduler.service.log.store.dossiers import explained
from scheduler.service.log.store.reads import Reads
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.visibility import Role, Viewer
from scheduler.service.settings import Settings
from tests.scheduler.service.desk import Desk

JOBS, EACH_S = 200, 0.25  # of time on the clock, which nothing else moves


@pytest.fixture
def desk(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A decider that needs 50 seconds for what was submitted since its last pass."""
    desk = Desk(store, tmp_path)
    submitted = Core.submitted

    def slow(core: Core, *given: Any, **more: Any) -> None:
        desk.wall += EACH_S
        submitted(core, *given, **more)

    monkeypatch.setattr(deciders, "SLICE", 60)
    monkeypatch.setattr(Core, "submitted", slow)
    for i in range(JOBS):
        desk.submit(f"job{i:03d}")
    return desk


def test_a_backlog_longer_than_the_patience_of_the_supervisor_is_decided(desk: Desk) -> None:
    """In passes over no more than a slice, each with signs of life and the lease renewed."""
    heard, decider = [desk.wall], desk.decider
    decider._alive = lambda: heard.append(desk.wall)
    silent_s = leased_s = 0.0
    with capture_logs() as lines:
        decider.turn(0.0)
        assert heard.count(heard[0]) > JOBS // deciders.SLICE + 1, "as it reads what came, too"
        view = Reads(desk.store.engine).seen_by(Viewer("ann", Role.OPERATOR))
        assert first_words(explained(view, f"job{JOBS - 1}", desk.wall)) == (
            "not evaluated yet: the decider takes what came, 60 events at a time: 140 wait"
        )
        while decider.state.waiting:
            decider.turn(0.0)
            leased_s = max(leased_s, desk.wall - decider.lease.beat_at)
    silent_s = max(after - before for before, after in pairwise(heard))
    assert desk.wall - heard[0] == JOBS * EACH_S > 3 * DECIDER_HANGS_S
    assert silent_s < DECIDER_HANGS_S / 10
    assert leased_s < decider.lease_s
    passes = [e.body["upto"] for e in desk.store.read(kinds=[Kind.DECIDED])]
    assert len(passes) == 4
    assert [line["doing"] for line in lines if line["event"] == "goes_on"]
    assert audit(desk.store, desk.bundle_store.find, decide_again=True).divergences == []


def test_ready_once_this_process_has_decided_and_not_while_it_reads_the_log(
    desk: Desk, tmp_path: Path
) -> None:
    while desk.decider.turn(0.0):
        pass
    url = desk.store.engine.url.render_as_string(hide_password=False)
    settings = Settings(database=url, backend="simulated", auth="off", state_dir=tmp_path)
    answers = TestClient(create_app(settings, store=desk.store))
    said = []
    # as the code of another version does, which has no snapshot
    desk.wall += 60.0
    desk.decider = desk.another("after")
    desk.decider._alive = lambda: said.append(answers.get("/ready"))
    assert desk.decider.take_over()
    assert {answer.status_code for answer in said} == {503}
    assert said[-1].json()["detail"].endswith("the decider reads the log: 200 of 215 events")
    assert desk.decider.lease is not None
    assert answers.get("/ready").status_code == 503
    desk.decider.turn(0.0)
    assert answers.get("/ready").json()["checks"]["decider"] == "decides"
