"""What a job says of how long it runs, in the log: totals, used for it and its like, and shown."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest

from features.progress import Progress
from pipeline.printed.why import lines_of
from scheduler.backends.base import Happened, Report
from scheduler.backends.events import Kind
from scheduler.core.durations import Stated
from scheduler.service.api.explanation import explain
from scheduler.service.decide.decider import _event_of
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.visibility import Role, Viewer, shown_event
from scheduler.service.pages.queries import PageQueries
from scheduler.service.pages.story import page_of
from tests.scheduler.service.desk import Desk, lasting

SAID = Progress(40_000.0, 39_000.0, 41_000.0, 3, 90, "epoch", 444.0, 1440.0, "epoch")
OWNER = Viewer("ann", Role.SUBMITTER)
WORDS = "its own progress says 90 epochs of 444 s: 11 h 7 min in all"


@pytest.fixture
def desk(store: Store, tmp_path: Path) -> Desk:
    desk = Desk(store, tmp_path, {"long": lasting(40_000.0)}, policy="pellucid")
    desk.submit("long", gpus=8)
    desk.submit("waits", gpus=8)
    desk.turn()
    desk.turn()
    assert desk.phase("long") == "running"
    return desk


def test_it_is_an_event_that_decides_and_is_shown(desk: Desk) -> None:
    desk.ask(Kind.PROGRESS, "long", attempt=1, progress=asdict(SAID))
    desk.ask(Kind.PROGRESS, "long", attempt=7, progress=asdict(replace(SAID, total_s=1e6)))
    desk.turn()
    for _ in range(2):
        core = desk.decider.state.core
        assert isinstance(core.jobs["long"].estimate_s, Stated)
        assert core.jobs["long"].estimate_s == pytest.approx(40_000.0, rel=0.02)
        assert core.held_by("vc", 8, desk.decider.state.now).gone_in_s > 3e4
        desk.restart()
    assert desk.row("long").detail.startswith(WORDS)
    queries = PageQueries(desk.store, OWNER)
    explained = explain(queries, "long", desk.world.now())
    lines = lines_of(explained, desk.world.now())
    assert any(WORDS in line for line in lines)
    assert any(
        line.endswith("It should run about 11 h 7 min, by its own progress.") for line in lines
    )
    told = [line.text for line in page_of(queries, "long").lines if "progress" in line.what]
    assert told
    assert told[0].startswith(WORDS)
    desk.until_idle()
    assert WORDS not in desk.row("long").detail


def test_of_a_report_the_numbers_alone_are_kept_and_its_owner_sees_them() -> None:
    body = _event_of(Report("a", 1, Happened.PROGRESS, 5.0, progress=SAID)).body
    assert body == {"attempt": 1, "progress": asdict(SAID)}
    assert shown_event(OWNER, Kind.PROGRESS, body) == body
