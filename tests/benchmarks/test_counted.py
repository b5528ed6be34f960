"""The judge works out again which mean duration counts in a job's place."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks.explanations.counted import counted
from benchmarks.explanations.log import Moment
from features.codec import encode
from features.repeats import Claim
from features.survival import BINS
from scheduler.core.curves import Curve, Predicted
from scheduler.core.durations import Stated
from scheduler.core.estimates import TableEstimator
from scheduler.testing.builders import Desk, a_job, cluster_of, pellucid

HOUR = 3600.0
HAZARDS = [0.02 + 0.01 * (i % 7) for i in range(BINS)]
BELIEVED = {
    "plain": Predicted.of(900.0, HAZARDS),
    "moved": Predicted.of(900.0, HAZARDS).moved(4000.0),
    "limited": Predicted.of(900.0, HAZARDS, most_s=2 * HOUR),
    "claimed": Predicted.of(900.0, HAZARDS, claims=(Claim(HOUR, 2 * HOUR, 0.7),)),
    "seldom": Predicted.of(900.0, HAZARDS, claims=(Claim(7 * HOUR, 9 * HOUR, 0.3),)),
    "twice": Predicted.of(
        900.0, HAZARDS, claims=(Claim(60.0, 300.0, 0.5), Claim(8 * HOUR, 9 * HOUR, 0.6))
    ),
    "says": Stated(5000.0, 0.05, 600.0),
}


def recorded() -> Moment:
    """What is recorded of jobs that wait behind one."""
    policy = pellucid(max_wait_s=1e9, predict_again_s=0.0)
    desk = Desk(policy, cluster_of(gpus=8), TableEstimator("given", BELIEVED, default=600.0))
    desk.core.keeps_receipts = True
    found = list(desk.submit(a_job("holds", gpus=8, user="u")))
    found += desk.submit(*(a_job(name, gpus=4, user="u") for name in BELIEVED), now=1.0)
    moment = Moment({"settings": []})
    for decision in found:
        body = json.loads(json.dumps(encode(decision)))
        moment.by_job.setdefault(decision.job_id, []).append({"at": decision.time, "body": body})
    return moment


def test_what_counts_is_what_the_recorded_durations_say() -> None:
    moment = recorded()
    told = {name: dict(rows[-1]["body"]["evidence"]) for name, rows in moment.by_job.items()}
    assert {name for name, one in told.items() if "counts_s" in one} >= BELIEVED.keys() - {"says"}
    assert {name: why for name in BELIEVED if (why := counted(moment, name))} == {}


def the_longest_left_out(curve: Curve, elapsed_s: float = 0.0) -> float:
    return sum(curve.points[:-1]) / (len(curve.points) - 1)


def one_too_many(curve: Curve, elapsed_s: float = 0.0) -> float:
    return sum(curve.points) / (len(curve.points) + 1)


def the_median(curve: Curve, elapsed_s: float = 0.0) -> float:
    return curve.points[len(curve.points) // 2]


def six_hours_at_most(curve: Curve, elapsed_s: float = 0.0) -> float:
    return sum(min(one, 6 * HOUR) for one in curve.points) / len(curve.points)


@pytest.mark.parametrize(
    "wrong", [the_longest_left_out, one_too_many, the_median, six_hours_at_most]
)
def test_a_mean_that_is_miscounted_is_found(wrong: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Curve, "expected", wrong)
    assert "by the durations recorded" in counted(recorded(), "plain")
