"""A followed queue is read again for whoever asks: a job of a moment ago is known, and nobody waits
until all futures are simulated."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import insert, select

from scheduler.backends.events import canonical
from scheduler.service.log.questions import LOOK, TRIED
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import questions
from scheduler.slurm.follow import follower
from scheduler.slurm.follow.answers import answer_questions
from tests.scheduler.slurm.follow.test_follow import EVERYTHING, NOW, Scene, twin


def asked(scene: Scene, kind: str, **body: Any) -> str:
    """Put a question, and return its id."""
    assert scene.store is not None
    with scene.store.writing() as connection:
        values = {"id": kind, "kind": kind, "actor": "ada", "body": canonical(body)}
        connection.execute(insert(questions).values(asked_at=scene.now, **values))
    return kind


def answered(scene: Scene, question: str) -> bool:
    """Return whether a question has an answer."""
    assert scene.store is not None
    found = select(questions.c.answer).where(questions.c.id == question)
    with scene.store.reading() as connection:
        return connection.execute(found).scalar() is not None


def test_a_job_of_a_moment_ago_is_read_for_whoever_asks(store: Store) -> None:
    """It was "no such job of yours" for up to half a minute after sbatch."""
    scene = twin(store)
    first = scene.job(5)
    scene.look(first)
    scene.slurm.queue = [first, scene.job(6)]
    scene.now += 3.0
    asked(scene, LOOK)
    answer_questions(store, scene.follower.answer)
    assert answered(scene, LOOK)
    assert "6" in scene.follower.reasons


def test_whoever_asks_again_and_again_does_not_have_slurm_read_each_time(store: Store) -> None:
    scene = twin(store)
    scene.look(scene.job(5))
    reads = []
    scene.slurm.jobs = lambda: reads.append(scene.now) or scene.slurm.queue  # type: ignore[method-assign, func-returns-value]
    for _ in range(40):
        scene.now += 0.1
        scene.follower.answer(LOOK, {})
    assert 1 <= len(reads) <= 2


def test_a_question_is_answered_between_two_futures(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waited until all were simulated, which takes seconds. One to read the queue again waits
    until the queue that was just read is written."""
    scene = twin(store)
    runs = scene.job(7, "RUNNING", start=NOW, **EVERYTHING)
    asked(scene, TRIED, job_id="5")
    asked(scene, LOOK)
    seen: list[bool] = []
    meanwhile: Callable[[], None] = scene.follower._meanwhile

    def noted() -> None:
        meanwhile()
        seen.append(answered(scene, TRIED))

    monkeypatch.setattr(scene.follower, "_meanwhile", noted)
    scene.look(runs, scene.job(5, reason="Resources"))
    assert seen[:1] == [True]
    assert not answered(scene, LOOK)


def test_a_read_for_whoever_asks_simulates_no_futures(store: Store) -> None:
    scene = twin(store)
    waits = scene.job(5, reason="Resources")
    scene.look(scene.job(7, "RUNNING", start=NOW, **EVERYTHING), waits)
    scene.follower._foresee_at = 0.0
    scene.slurm.queue = [scene.job(7, "RUNNING", start=NOW, **EVERYTHING), waits]
    scene.now += 5.0
    scene.follower.answer(LOOK, {})
    assert scene.follower._foresee_at == 0.0
    scene.follower._watch()
    assert scene.follower._foresee_at > 0.0


def test_who_asks_between_two_futures_has_no_forecast_rest_for_longer(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred seconds without a forecast were due for each second that such an answer took."""
    scene = twin(store)
    used = [50.0]

    def answers(*_: Any) -> None:
        used[0] += 8.0

    def simulated(*_: Any, between: Callable[[], None], **__: Any) -> dict[str, Any]:
        between()
        used[0] += 1.0
        return {}

    futures = SimpleNamespace(forecast=simulated)
    monkeypatch.setattr(scene.follower._planner, "futures", lambda *_: futures)
    monkeypatch.setattr(follower, "answer_questions", answers)
    monkeypatch.setattr(time, "process_time", lambda: used[0])
    runs = scene.job(7, "RUNNING", start=NOW, **EVERYTHING)
    scene.look(runs, scene.job(5, reason="Resources"))
    assert used[0] == 59.0
    rests_s = scene.follower._foresee_at - scene.follower.clock.monotonic()
    assert 0.5 * follower.REST < rests_s <= follower.REST, "for its own second"
