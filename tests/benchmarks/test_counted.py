"""The judge works out again how much of a job's duration counts in its place."""

from __future__ import annotations

import json
from bisect import bisect_right
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


def recorded(counted_s: float = 6 * HOUR) -> Moment:
    """What is recorded of jobs that wait behind one, under an order by their curves."""
    chosen: dict[str, Any] = {"counted_s": counted_s, "long_s": 5400.0}
    policy = pellucid(max_wait_s=1e9, predict_again_s=0.0, **chosen)
    desk = Desk(policy, cluster_of(gpus=8), TableEstimator("given", BELIEVED, default=600.0))
    desk.core.keeps_receipts = True
    found = list(desk.submit(a_job("holds", gpus=8, user="u")))
    found += desk.submit(*(a_job(name, gpus=4, user="u") for name in BELIEVED), now=1.0)
    moment = Moment({"settings": list(chosen.items())})
    for decision in found:
        body = json.loads(json.dumps(encode(decision)))
        moment.by_job.setdefault(decision.job_id, []).append({"at": decision.time, "body": body})
    return moment


@pytest.mark.parametrize("counted_s", [60.0, HOUR, 6 * HOUR, 1e6])
def test_what_counts_is_what_the_recorded_durations_say(counted_s: float) -> None:
    moment = recorded(counted_s)
    told = {name: dict(rows[-1]["body"]["evidence"]) for name, rows in moment.by_job.items()}
    assert {name for name, one in told.items() if "counts_s" in one} >= BELIEVED.keys() - {"says"}
    assert {name: why for name in BELIEVED if (why := counted(moment, name))} == {}


def longer_ones_whole(curve: Curve, most_s: float) -> float:
    return curve.expected()


def longer_ones_left_out(curve: Curve, most_s: float) -> float:
    first = bisect_right(curve.points, most_s)
    return sum(curve.points[:first]) / len(curve.points)


def one_too_many(curve: Curve, most_s: float) -> float:
    return sum(min(one, most_s) for one in curve.points) / (len(curve.points) + 1)


def the_median(curve: Curve, most_s: float) -> float:
    return min(curve.points[len(curve.points) // 2], most_s)


@pytest.mark.parametrize(
    "wrong", [longer_ones_whole, longer_ones_left_out, one_too_many, the_median]
)
def test_a_mean_that_is_miscounted_is_found(wrong: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Curve, "within", wrong)
    assert "by the durations recorded" in counted(recorded(), "plain")


def test_a_chance_of_another_duration_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = Curve.chance
    monkeypatch.setattr(Curve, "chance", lambda curve, seconds: chance(curve, 3 * HOUR))
    assert "a chance of" in counted(recorded(), "plain")
