"""What a job says of how long it runs, by its command or its progress, in the log: it decides, and
is shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from features.amounts import Work
from features.commands import work_of
from features.progress import Progress
from pipeline.printed.why import lines_of
from scheduler.backends.base import Happened, Report
from scheduler.backends.events import Kind
from scheduler.core.durations import Stated, seconds_of
from scheduler.core.estimates import with_progress
from scheduler.explain.terms import gap_of
from scheduler.service.decide.decider import _event_of
from scheduler.service.log.store.dossiers import explained
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.visibility import Role, Viewer, shown_event
from scheduler.service.pages.queries import PageQueries
from scheduler.service.pages.story import page_of
from tests.scheduler.service.desk import Desk, lasting

SAID = Progress(40_000.0, 39_000.0, 41_000.0, 3, 90, "epoch", 444.0, 1440.0, "epoch")
OWNER = Viewer("ann", Role.SUBMITTER)
PROGRESS = "its own progress says 90 epochs of 444 s: 11 h 7 min in all"
COMMAND = "asks for 90 epochs; its last 2 runs took 8.0 min an epoch"


@pytest.fixture
def make(store: Store, tmp_path: Path) -> Callable[..., Desk]:
    def desk(**lasts_s: float) -> Desk:
        outcomes = {job: lasting(seconds) for job, seconds in lasts_s.items()}
        return Desk(store, tmp_path, outcomes, policy="pellucid")

    return desk


def test_its_progress_is_an_event_that_decides_and_is_shown(make: Callable[..., Desk]) -> None:
    desk = make(long=40_000.0)
    desk.submit("long", gpus=8)
    desk.submit("waits", gpus=8)
    desk.turn()
    desk.turn()
    assert desk.phase("long") == "running"
    desk.ask(Kind.PROGRESS, "long", attempt=1, progress=asdict(SAID))
    desk.ask(Kind.PROGRESS, "long", attempt=7, progress=asdict(replace(SAID, total_s=1e6)))
    desk.turn()
    for _ in range(2):
        core = desk.decider.state.core
        assert isinstance(core.jobs["long"].estimate_s, Stated)
        assert core.jobs["long"].predicted_s == pytest.approx(40_000.0, rel=0.02)
        assert core.held_by("vc", 8, desk.decider.state.now).gone_in_s > 3e4
        desk.restart()
    assert desk.row("long").detail.startswith(PROGRESS)
    queries = PageQueries(desk.store, OWNER)
    lines = lines_of(explained(queries, "long", desk.world.now()), desk.world.now())
    assert any(PROGRESS in line for line in lines)
    assert any(
        line.endswith("; by its own progress it should run about 11 h 7 min in all.")
        for line in lines
    )
    told = [line.text for line in page_of(queries, "long").lines if "progress" in line.what]
    assert told
    assert told[0].startswith(PROGRESS)
    desk.until_idle()
    assert PROGRESS not in desk.row("long").detail


def test_that_its_progress_is_not_known_is_said_until_it_is(make: Callable[..., Desk]) -> None:
    desk = make(long=40_000.0)
    desk.submit("long", gpus=8)
    desk.turn()
    desk.turn()
    why = "reading it ended the process that reads"
    body = _event_of(Report("long", 1, Happened.UNREAD, 5.0, detail=why)).body
    assert shown_event(OWNER, Kind.UNREAD, body) == body
    desk.ask(Kind.UNREAD, "long", **body)
    desk.turn()
    for _ in range(2):
        assert desk.phase("long") == "running"
        assert desk.row("long").detail == f"its own progress is not known: {why}"
        desk.restart()
    queries = PageQueries(desk.store, OWNER)
    lines = lines_of(explained(queries, "long", desk.world.now()), desk.world.now())
    assert any(why in line for line in lines)
    assert any(why in line.text for line in page_of(queries, "long").lines)
    desk.ask(Kind.UNREAD, "long", attempt=1)
    desk.turn()
    assert desk.row("long").detail == ""
    desk.ask(Kind.UNREAD, "long", **body)
    desk.ask(Kind.PROGRESS, "long", attempt=1, progress=asdict(SAID))
    desk.turn()
    assert desk.row("long").detail.startswith(PROGRESS)


def test_of_a_report_the_numbers_alone_are_kept_and_its_owner_sees_them() -> None:
    body = _event_of(Report("a", 1, Happened.PROGRESS, 5.0, progress=SAID)).body
    assert body == {"attempt": 1, "progress": asdict(SAID)}
    assert shown_event(OWNER, Kind.PROGRESS, body) == body


def asking(epochs: int) -> Work | None:
    return work_of(["python", "train.py", "--epochs", str(epochs)])


def test_its_command_decides_at_submission_and_gives_way_to_progress(
    make: Callable[..., Desk],
) -> None:
    """Two runs of a script are over, and a job keeps all GPUs that the next one needs."""
    desk = make(a=4800.0, b=2400.0, all=9e4)
    desk.submit("a", gpus=8, work=asking(10))
    desk.submit("b", gpus=8, work=asking(5))
    desk.until_idle()
    desk.submit("all", gpus=8)
    desk.turn()
    desk.submit("plain", gpus=8)
    desk.submit("long", gpus=8, work=asking(90))
    desk.submit("cut", gpus=8, work=asking(90), time_limit_s=3600.0)
    desk.turn()
    for _ in range(2):
        jobs = desk.decider.state.core.jobs
        assert not isinstance(jobs["plain"].estimate_s, Stated)
        assert isinstance(jobs["long"].estimate_s, Stated)
        assert jobs["long"].predicted_s == pytest.approx(43_200.0, rel=0.15)
        assert jobs["cut"].predicted_s is not None
        assert jobs["cut"].predicted_s <= 3600.0
        desk.restart()
    queries = PageQueries(desk.store, OWNER)
    told = explained(queries, "long", desk.world.now())
    lines = lines_of(told, desk.world.now())
    assert any(f"Its command {COMMAND}." in line for line in lines)
    assert told.belief is not None
    assert told.belief.p90_s is not None
    assert 43_200.0 < told.belief.p90_s < 80_000.0
    page = page_of(queries, "long")
    assert page.belief == told.belief
    assert COMMAND in [term.value for score in page.drawn.story.scores for term in score.terms]

    core = desk.decider.state.core
    estimate = core.estimator.estimate(core.jobs["long"].job, desk.world.now())
    said = Progress(80_000.0, 78_000.0, 82_000.0, 3, 90, "epoch", 880.0, 2640.0, "epoch")
    own = with_progress(estimate, said)
    assert seconds_of(own.seconds) == pytest.approx(80_000.0, rel=0.02)
    assert own.score is not None
    assert estimate.score is not None
    assert len(own.score.terms) == len(estimate.score.terms)
    assert gap_of(own.score) < 1e-9
    unsure = replace(said, low_s=10_000.0, high_s=9e5)
    assert with_progress(estimate, unsure) is estimate, "the command knows better"
