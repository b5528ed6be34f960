"""What commands ask for, in the log: it decides at submission, and is shown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from features.amounts import Work
from features.progress import Progress
from pipeline.printed.why import lines_of
from scheduler.core.durations import Stated
from scheduler.core.estimates import with_progress
from scheduler.explain.terms import gap_of
from scheduler.service.api.explanation import explain
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.visibility import Role, Viewer
from scheduler.service.pages.queries import PageQueries
from scheduler.service.pages.story import page_of
from tests.scheduler.service.desk import Desk, lasting

OWNER = Viewer("ann", Role.SUBMITTER)
SAYS = "asks for 90 epochs; its last 2 runs took 8.0 min an epoch"


def asking(epochs: int) -> Work | None:
    return Work.of(["python", "train.py", "--epochs", str(epochs)])


@pytest.fixture
def desk(store: Store, tmp_path: Path) -> Desk:
    """Two runs of a script are over, and a job keeps all GPUs that the next one needs."""
    outcomes = {"a": lasting(4800.0), "b": lasting(2400.0), "all": lasting(9e4)}
    desk = Desk(store, tmp_path, outcomes, policy="pellucid")
    desk.submit("a", gpus=8, work=asking(10))
    desk.submit("b", gpus=8, work=asking(5))
    desk.until_idle()
    desk.submit("all", gpus=8)
    desk.turn()
    desk.turn()
    return desk


def test_it_decides_at_submission_and_is_shown(desk: Desk) -> None:
    desk.submit("plain", gpus=8)
    desk.submit("long", gpus=8, work=asking(90))
    desk.submit("cut", gpus=8, work=asking(90), time_limit_s=3600.0)
    desk.turn()
    for _ in range(2):
        jobs = desk.decider.state.core.jobs
        assert not isinstance(jobs["plain"].estimate_s, Stated)
        assert isinstance(jobs["long"].estimate_s, Stated)
        assert jobs["long"].estimate_s == pytest.approx(43_200.0, rel=0.15)
        assert jobs["cut"].estimate_s is not None
        assert jobs["cut"].estimate_s <= 3600.0
        desk.restart()
    queries = PageQueries(desk.store, OWNER)
    explained = explain(queries, "long", desk.world.now())
    lines = lines_of(explained, desk.world.now())
    assert any(f"Its command {SAYS}." in line for line in lines)
    assert explained.belief is not None
    assert explained.belief.p90_s is not None
    assert 43_200.0 < explained.belief.p90_s < 80_000.0
    page = page_of(queries, "long")
    assert page.belief == explained.belief
    assert SAYS in [term.value for score in page.drawn.story.scores for term in score.terms]


def test_its_own_progress_replaces_it_unless_the_command_knows_better(desk: Desk) -> None:
    desk.submit("long", gpus=8, work=asking(90))
    desk.turn()
    estimator = desk.decider.state.core.estimator
    estimate = estimator.estimate(desk.decider.state.core.jobs["long"].job, desk.world.now())
    said = Progress(80_000.0, 78_000.0, 82_000.0, 3, 90, "epoch", 880.0, 2640.0, "epoch")
    own = with_progress(estimate, said)
    assert own.seconds == pytest.approx(80_000.0, rel=0.02)
    assert own.score is not None
    assert estimate.score is not None
    assert len(own.score.terms) == len(estimate.score.terms)
    assert gap_of(own.score) < 1e-9
    assert with_progress(estimate, replace(said, low_s=10_000.0, high_s=9e5)) is estimate
