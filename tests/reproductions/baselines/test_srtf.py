"""Shortest remaining time first: the quota, the walk, and what stopping costs."""

from __future__ import annotations

from reproductions.baselines.srtf import Srtf
from scheduler.core.decisions import Action
from scheduler.explain.reasons import sentence
from scheduler.testing.builders import Desk, Sample, a_job, cluster_of, truth


class Left:
    """Work left as the test says; a job not named has as much left as it is long."""

    def __init__(self, *samples: Sample, **left: float):
        self._left = {s.id: s.work.duration_s for s in samples} | left

    def remaining_s(self, job_id: str, now: float) -> float:
        return self._left[job_id]


def a_desk(*samples: Sample, nodes: int = 1, ties: bool = False, **left: float) -> Desk:
    policy = Srtf()
    policy.ties_preempt = ties
    return Desk(
        policy,
        cluster_of(nodes=nodes),
        truth(samples),
        oracle=Left(*samples, **left),
    )


def test_a_shorter_job_takes_the_gpus_of_a_longer_one() -> None:
    long, short = a_job("long", gpus=8, for_=100), a_job("short", gpus=1, for_=10)
    desk = a_desk(long, short)
    desk.submit(long)
    enqueue, preempt, start = desk.submit(short)
    assert enqueue.action is Action.ENQUEUE
    assert (preempt.action, preempt.job_id, preempt.blocker) == (Action.PREEMPT, "long", "short")
    assert sentence(preempt) == "stopped in favour of job short, which has less left to do"
    assert preempt.priority == 140.0, "what is left and what stopping costs"
    assert (start.action, start.job_id) == (Action.START, "short")


def test_equals_stay_where_they_are_unless_the_quirk_is_on() -> None:
    a, b = a_job("a", gpus=8, for_=10), a_job("b", gpus=8, for_=10)
    for ties in (False, True):
        desk = a_desk(a, b, ties=ties)
        desk.submit(a)
        desk.submit(b)
        assert list(desk.cluster.runs) == (["b"] if ties else ["a"])
