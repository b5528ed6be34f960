"""Why a start is foreseen later than it was: undone on a copy, it moves back."""

from __future__ import annotations

import pytest

from reproductions.baselines.sjf import Sjf
from scheduler.core.policy import Policy
from scheduler.explain.answer import MovedStart
from scheduler.explain.render import cause_words, moved_words
from scheduler.explain.whatif.forecasts import Futures, StartForecast, crude
from scheduler.explain.whatif.memory import Memory
from scheduler.explain.whatif.moved import moved
from scheduler.policies.fifo import FifoSkip
from scheduler.testing.builders import Desk, a_job, cluster_of

HOUR = 3600.0


class Scene:
    """Jobs on nodes of eight GPUs; what was foreseen of one, and what is later."""

    def __init__(self, nodes: int = 1, policy: Policy | None = None):
        self.desk = Desk(policy or FifoSkip(), cluster_of(nodes=nodes, gpus=8))
        self.memory = self.desk.core.estimator = Memory(self.desk.core.estimator, asks=True)

    def foreseen(self, job_id: str, now: float) -> StartForecast:
        return crude(self.desk.core, self.memory, now)[job_id]

    def moved(
        self, job_id: str, promised: StartForecast, now: float, closed: dict[int, float]
    ) -> MovedStart | None:
        futures = Futures(self.desk.core, self.memory, now)
        return moved(futures, job_id, promised, self.foreseen(job_id, now), closed)


def test_a_run_that_outlives_its_prediction_moves_a_start_and_is_named() -> None:
    scene = Scene()
    scene.desk.submit(a_job("runs", gpus=8), a_job("waits", gpus=8))
    promised = scene.foreseen("waits", 0.0)
    assert scene.moved("waits", promised, 0.0, {}) is None
    found = scene.moved("waits", promised, 2 * HOUR, {})
    assert found is not None
    (cause,) = found.causes
    assert cause_words(cause) == "1 running job runs longer than predicted"
    assert cause.by_s > 0.9 * (found.by_s - 2 * HOUR)
    assert "later than foreseen 2 h ago" in moved_words(found, 2 * HOUR)


def test_a_node_closed_since_is_named_and_one_closed_before_is_not() -> None:
    scene = Scene(nodes=2)
    scene.desk.submit(*(a_job(f"r{i}", gpus=8) for i in range(6)))
    promised = scene.foreseen("r5", 0.0)
    scene.desk.core.nodes.set_open(1, False)
    found = scene.moved("r5", promised, 30.0, {1: 10.0})
    assert found is not None
    assert [cause_words(cause) for cause in found.causes] == ["GPUs of 1 node are closed"]
    found = scene.moved("r5", promised, 30.0, {1: -10.0})
    assert found is not None
    assert found.causes == ()
    assert "no single cause was found" in moved_words(found, 30.0)


def test_those_that_came_later_and_go_before_it_are_counted() -> None:
    scene = Scene(policy=Sjf())
    scene.desk.submit(a_job("runs", gpus=8), a_job("waits", gpus=8))
    promised = scene.foreseen("waits", 0.0)
    for i in range(3):
        scene.desk.submit(a_job(f"later{i}", gpus=8, at=10.0), now=10.0)
        scene.desk.core.waiting.set_priority(f"later{i}", 5)
    found = scene.moved("waits", promised, 20.0, {})
    assert found is not None
    assert cause_words(found.causes[0]) == "3 jobs submitted later are ahead of it in line"
    assert found.causes[0].by_s == pytest.approx(found.by_s, rel=0.1)


def test_an_earlier_start_is_said_without_a_cause() -> None:
    was, now = StartForecast(0.0, 9000.0), StartForecast(10.0, 1000.0)
    scene = Scene()
    scene.desk.submit(a_job("runs", gpus=8), a_job("waits", gpus=8))
    found = moved(Futures(scene.desk.core, scene.memory, 10.0), "waits", was, now, {})
    assert found is not None
    assert moved_words(found, 10.0).startswith("Its start is now expected 2 h 13 min earlier than")


@pytest.mark.parametrize(
    ("by_s", "left_s", "considerable"),
    [(599.0, 60.0, False), (600.0, 60.0, True), (-600.0, 2400.0, True), (600.0, 2401.0, False)],
)
def test_ten_minutes_and_a_quarter_of_the_wait_are_considerable(
    by_s: float, left_s: float, considerable: bool
) -> None:
    assert MovedStart(0.0, by_s, left_s).considerable is considerable


@pytest.mark.parametrize(
    ("now", "kinds"), [(1200.0, ["closed", "outlived"]), (5400.0, ["outlived", "closed"])]
)
def test_the_cause_that_moves_it_most_is_said_first(now: float, kinds: list[str]) -> None:
    """The longer the jobs run over what was predicted, the more of it is put down to them."""
    scene = Scene(nodes=4)
    scene.desk.submit(*(a_job(f"r{i}", gpus=8) for i in range(14)))
    promised = scene.foreseen("r13", 0.0)
    for node in (1, 2, 3):
        scene.desk.core.nodes.set_open(node, False)
    found = scene.moved("r13", promised, now, dict.fromkeys((1, 2, 3), 10.0))
    assert found is not None
    assert [cause.kind for cause in found.causes] == kinds
    assert found.causes[0].by_s > found.causes[1].by_s
