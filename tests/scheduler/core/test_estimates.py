"""What a policy is told about durations."""

from __future__ import annotations

import numpy as np
import pytest

from features.spec import FeatureSpec
from features.state import FeatureState
from models.bundle import AdditiveModel, Axis, Bundle, BundleError, Term
from scheduler.core.estimates import (
    BundleEstimator,
    HistoriesEstimator,
    LiveEstimator,
    TableEstimator,
)
from scheduler.testing.builders import a_job


def test_a_table_gives_what_it_holds() -> None:
    table = TableEstimator("given", {"a": 5.0, "b": -3.0})
    assert table.estimate(a_job("a").job, 0.0).seconds == 5.0
    assert table.estimate(a_job("b").job, 0.0).seconds == 1000.0, "negative predictions are floored"
    assert TableEstimator("x", {"b": -3.0}, floor=1.0).estimate(a_job("b").job, 0.0).seconds == 1.0
    assert TableEstimator("x", {"z": 0.0}).estimate(a_job("z").job, 0.0).seconds == 0.0


def test_a_job_missing_from_a_table_is_an_error_unless_there_is_a_default() -> None:
    with pytest.raises(LookupError, match="the given estimator has no estimate for job x"):
        TableEstimator("given", {}).estimate(a_job("x").job, 0.0)
    assert TableEstimator("given", {}, default=7.0).estimate(a_job("x").job, 0.0).seconds == 7.0


def test_a_bundle_fitted_on_what_is_no_longer_kept_is_refused_with_what_to_do() -> None:
    axis = Axis(FeatureSpec("like_log_s", "continuous", "survival", "ln s"), cuts=(2.0,))
    term = Term((0,), np.zeros(axis.size), np.ones(axis.size), np.zeros(axis.size))
    with pytest.raises(BundleError, match=r"'like_log_s'.*train it again"):
        LiveEstimator().use(Bundle(duration=AdditiveModel([axis], [term], 6.0)))


def test_a_bundle_estimates_by_the_gpus_that_are_asked_for() -> None:
    (gpus,) = (one for one in FeatureState().features if one.name == "gpus")
    term = Term((0,), np.array([0.0, -1.0, 1.0]), np.ones(3), np.zeros(3))
    model = AdditiveModel([Axis(gpus, cuts=(2.0,))], [term], 6.0)
    estimator = BundleEstimator(Bundle(duration=model))
    for asked, score in ((1, 5.0), (4, 7.0)):
        found = estimator.estimate(a_job("x", gpus=asked).job, 0.0)
        assert found.seconds == pytest.approx(model.seconds(score))


def test_the_histories_say_how_uncertain_they_are_in_what_is_recorded() -> None:
    estimator = HistoriesEstimator()
    score = estimator.estimate(a_job("x").job, 0.0).score
    assert score is not None
    described = estimator.descriptions[score.bundle]
    assert len(score.terms) == len(described["terms"])
    assert float(dict(zip(described["inputs"], score.inputs, strict=True))["like_error"]) > 0
