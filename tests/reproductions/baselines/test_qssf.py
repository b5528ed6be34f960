"""Quasi-shortest-service first, and its quirk."""

from __future__ import annotations

from reproductions.baselines.qssf import Qssf
from scheduler.testing.builders import Desk, Sample, a_job, cluster_of, truth


def under_the_quirk() -> Qssf:
    policy = Qssf()
    policy.gpu_count_first = True
    return policy


def order(policy: Qssf, *samples: Sample, behind: Sample | None = None) -> list[str]:
    """Who starts when, on a node of 8 GPUs that is held while the jobs arrive together."""
    holder = a_job("holder", gpus=8)
    desk = Desk(policy, cluster_of(), truth([holder, *samples, *([behind] if behind else [])]))
    desk.submit(holder)
    if behind is not None:
        desk.submit(behind)
    desk.submit(*samples)
    return [q.job.job_id for q in desk.core.queues["vc"]]


def together(policy: Qssf) -> list[str]:
    """Three jobs meet an empty queue and an idle node that cannot take them all."""
    jobs = [
        a_job("wide", gpus=7, for_=1),  # 7 GPU-seconds
        a_job("narrow", gpus=2, for_=100),  # 200
        a_job("middle", gpus=3, for_=10),  # 30
    ]
    desk = Desk(policy, cluster_of(), truth(jobs))
    desk.submit(*jobs)
    return list(desk.cluster.runs)


def test_jobs_that_meet_an_empty_queue_are_ordered_by_gpus_under_the_quirk_alone() -> None:
    assert together(Qssf()) == ["wide"]
    assert together(under_the_quirk()) == ["narrow", "middle"]


def test_whoever_finds_others_waiting_is_ordered_by_prediction_even_under_the_quirk() -> None:
    jobs = (a_job("wide", gpus=8, for_=1), a_job("narrow", gpus=1, for_=100))
    first = a_job("first", gpus=8, for_=1000)
    assert order(under_the_quirk(), *jobs, behind=first) == [
        "wide",
        "narrow",
        "first",
    ]
