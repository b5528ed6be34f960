"""Models refitted while a trace is replayed: they learn from what has ended, and blend as told."""

from __future__ import annotations

from math import expm1, log1p
from random import Random

import pytest

from features.job import Job
from features.schema import State
from models.training.duration import EVIDENCE
from pipeline.online import DAY_S, LightGbmEstimator, OnlineEstimator
from scheduler.core.durations import seconds_of
from scheduler.core.estimates import HistoriesEstimator

LONG_S, SHORT_S = 20_000.0, 20.0
APART_S = 900.0  # so 96 jobs a day
JOBS = 120


def taught(estimator: OnlineEstimator | HistoriesEstimator, jobs: int = JOBS) -> None:
    """Jobs of two users, in no order, each over before the next one comes."""
    drawn = Random(0)
    for i in range(jobs):
        at, user = APART_S * i, drawn.choice(("slow", "fast"))
        said(estimator, f"{user}{i}", user, at)
        estimator.started(f"{user}{i}", at)
        took_s = LONG_S if user == "slow" else SHORT_S  # as told, not as it passed
        estimator.ended(f"{user}{i}", State.COMPLETED, took_s, at + 5.0)


def said(estimator: OnlineEstimator | HistoriesEstimator, name: str, user: str, at: float) -> float:
    job = Job(name, at, 1, user, "vc")
    estimator.submitted(job, at)
    return seconds_of(estimator.enqueued(job, at).seconds)


def model(*, blends: bool) -> LightGbmEstimator:
    return LightGbmEstimator(blends=blends, min_rows=50)


def test_it_answers_by_histories_until_there_is_a_fit() -> None:
    alone, histories = model(blends=False), HistoriesEstimator()
    taught(alone, 90)
    taught(histories, 90)
    assert alone.fits == 0
    at = 90 * APART_S
    assert said(alone, "next", "slow", at) == pytest.approx(said(histories, "next", "slow", at))
    said(alone, "tomorrow", "slow", at + DAY_S)
    assert alone.fits == 1


def test_a_fit_tells_users_apart_and_a_blend_weighs_it_by_what_was_seen() -> None:
    alone, blended, histories = model(blends=False), model(blends=True), HistoriesEstimator()
    for estimator in (alone, blended, histories):
        taught(estimator)
    assert alone.fits == blended.fits == 1
    weight = 96 / (96 + EVIDENCE)
    for user, took_s in (("slow", LONG_S), ("fast", SHORT_S)):
        mine, mixed, before = (
            said(e, f"{user}-next", user, JOBS * APART_S) for e in (alone, blended, histories)
        )
        assert took_s / 5 < mine < took_s * 5
        both = weight * log1p(mine) + (1 - weight) * log1p(before)
        assert mixed == pytest.approx(expm1(both), abs=1e-5)
        assert mixed != pytest.approx(before, rel=1e-5), "the model has a part in it"
