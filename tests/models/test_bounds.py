"""No term acts outside what was seen, and pairs that other days do not have are dropped."""

from __future__ import annotations

from math import log1p

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.job import Job
from features.spec import FeatureSpec
from features.state import FeatureState
from features.survival import SPREAD, SUM
from models.bundle import Bundle
from models.training.bounds import seen
from models.training.duration import FittedDuration, fit_duration
from models.training.errors import TrainingError
from scheduler.core.decisions import Action, Decision, Reason
from scheduler.core.durations import seconds_of
from scheduler.core.estimates import BundleEstimator
from scheduler.explain.terms import breakdowns, describe

NOW = 1_600_000_000.0
LIKE = tuple(spec.name for spec in SUM)
HISTORIES = (*SUM, SPREAD)
FEATURES = tuple(FeatureSpec(name, "continuous", "size") for name in ("a", "b", "c", "d", "e"))


@pytest.fixture(scope="module")
def of_histories() -> FittedDuration:
    """A fit on jobs of which none had a time limit."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({name: rng.normal(0.0, 1.0, 2000) for name in LIKE})
    frame["like_all_log_s"] = rng.uniform(5.0, 7.0, len(frame))
    frame["like_limit"], frame["like_spread"] = 0.0, 2.0
    lasts = np.exp(frame[list(LIKE)].sum(axis=1).to_numpy() + rng.normal(0.0, 0.5, len(frame)))
    time = NOW + np.arange(len(frame)) * 60.0
    return fit_duration(frame, lasts, time, HISTORIES, seed=0)


def _row(**values: float) -> list[float]:
    known = dict.fromkeys(LIKE, 0.0) | {"like_all_log_s": 6.0, "like_spread": 2.0}
    return [(known | values)[spec.name] for spec in HISTORIES]


@given(name=st.sampled_from(LIKE[:-1]), beyond=st.floats(0.001, 1e6), above=st.booleans())
@settings(max_examples=50)
def test_beyond_its_data_a_term_says_what_it_says_at_their_edge(
    of_histories: FittedDuration, name: str, beyond: float, above: bool
) -> None:
    low, high = of_histories.metadata["seen"][name]
    edge, outside = (high, high + beyond) if above else (low, low - beyond)
    model = of_histories.model
    assert model.score(_row(**{name: outside})) == model.score(_row(**{name: edge}))


def test_a_column_that_never_varied_has_no_term(of_histories: FittedDuration) -> None:
    model = of_histories.model
    assert "like_limit" not in model.term_names
    assert "like_user" in model.term_names
    assert model.score(_row(like_limit=-7.0)) == model.score(_row())
    assert "like_limit" not in of_histories.metadata["seen"]


def test_what_was_seen_needs_the_rows(of_histories: FittedDuration) -> None:
    with pytest.raises(TrainingError, match="is not among the columns"):
        seen(of_histories.model, pd.DataFrame({"other": [1.0]}))


def test_a_limit_that_no_term_is_of_still_cuts_off(of_histories: FittedDuration) -> None:
    estimator = BundleEstimator(Bundle(duration=of_histories.model))
    free, limited = Job("1", NOW, 1, user="a"), Job("2", NOW, 1, user="a", time_limit_s=60.0)
    of_free, of_limited = (estimator.estimate(job, NOW) for job in (free, limited))
    assert of_free.score is not None
    assert of_limited.score is not None
    assert len(of_limited.score.terms) == len(of_free.score.terms) + 1
    assert sum(of_limited.score.terms, of_limited.score.intercept) == of_limited.score.value
    told = FeatureState({"survival"}).outlook(limited, NOW)[0][-1]
    assert of_limited.score.terms[-1] == told < 0.0
    assert log1p(seconds_of(of_limited.seconds)) == pytest.approx(of_limited.score.value)
    # what the model adds to the histories is the same with and without it
    shifts = [one.seconds.shift for one in (of_free, of_limited)]  # type: ignore[attr-defined]
    assert shifts[0] == pytest.approx(shifts[1])
    assert of_limited.seconds.share_ended(60.0) == 1.0  # type: ignore[attr-defined]


def test_it_is_said_where_a_value_lies_outside(of_histories: FittedDuration) -> None:
    bundle = Bundle(duration=of_histories.model, metadata={"duration": of_histories.metadata})
    estimator = BundleEstimator(bundle)
    high = of_histories.metadata["seen"]["like_user"][1]

    def value_of(like_user: float) -> str:
        score = estimator.scored(_row(like_user=like_user)).score
        decision = Decision(1, NOW, Action.WAIT, Reason.DEPENDENCY_NOT_MET, "1", "vc", score=score)
        (found,) = breakdowns([decision], {bundle.digest: describe(bundle)})
        return next(term.value for term in found.terms if term.name == "like_user")

    assert "the model learned from" not in value_of(high)
    assert "the model learned from" in value_of(high + 1.0)
    assert "at most" in value_of(high + 1.0)


def test_a_correction_by_a_person_is_said_with_its_term(of_histories: FittedDuration) -> None:
    edit = {"feature": "like_user", "by": "ada", "on": "2026-01-02"}
    made = {"edits": {"edits": [edit]}, "edited_terms": ["like_user"]}
    bundle = Bundle(duration=of_histories.model, metadata={"duration": made})
    score = BundleEstimator(bundle).scored(_row(like_user=1.0)).score
    decision = Decision(1, NOW, Action.WAIT, Reason.DEPENDENCY_NOT_MET, "1", "vc", score=score)
    (found,) = breakdowns([decision], {bundle.digest: describe(bundle)})
    texts = {term.name: term.text for term in found.terms}
    assert "edited by ada on 2026-01-02" in texts["like_user"]
    assert "edited" not in texts["like_vc_gpus"]


@pytest.mark.parametrize("real", [True, False])
def test_a_pair_that_other_days_do_not_have_is_dropped(real: bool) -> None:
    rng = np.random.default_rng(3)
    n = 3000
    frame = pd.DataFrame({spec.name: rng.normal(size=n) for spec in FEATURES})
    together = (frame["a"] > 0) ^ (frame["b"] > 0)
    log_s = 6.0 + 0.5 * frame["c"] + rng.normal(0.0, 1.0, n) + (1.0 * together if real else 0.0)
    time = NOW + np.arange(n) * 60.0
    fitted = fit_duration(frame, np.exp(log_s.to_numpy()), time, FEATURES, seed=0)
    found = [name for name in fitted.model.term_names if "&" in name]
    selected = [key for key in fitted.ebm.term_features_ if len(key) == 2]
    assert len(selected) == 5  # as many as there may be were fitted
    assert ("a & b" in found) == real
    assert len(found) <= 2
