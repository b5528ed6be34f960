"""Terms grouped by thought: nothing is lost, and what says the same is one reason."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from features.job import Job
from features.schema import State
from features.state import FAMILIES, features_of
from features.survival import OUTLOOK_TERMS
from scheduler.core.estimates import OF_HISTORIES, HistoriesEstimator
from scheduler.explain.terms import thought_of, thoughts

NAMES = [spec.name for spec in features_of(FAMILIES)]


@given(st.lists(st.tuples(st.sampled_from([*NAMES, "a & b", "odd"]), st.floats(-9, 9))))
def test_the_groups_hold_every_term_and_sum_to_what_they_sum_to(
    terms: list[tuple[str, float]],
) -> None:
    found = thoughts(terms)
    assert sorted(name for one in found for name in one.terms) == sorted(n for n, _ in terms)
    total = math.fsum(one.contribution for one in found)
    assert math.isclose(total, math.fsum(c for _, c in terms), abs_tol=1e-9)
    sizes = [abs(one.contribution) for one in found]
    assert sizes == sorted(sizes, reverse=True)


def test_no_feature_of_ours_is_told_by_its_name() -> None:
    assert all("_" not in thought_of(name) for name in (*NAMES, *OUTLOOK_TERMS))


def test_many_odds_of_lasting_are_one_reason() -> None:
    odds = ["like_all_log_s", "like_over_1h", "like_over_6h", "like_over_1h & gpus"]
    (one,) = thoughts((name, 0.25) for name in odds)
    assert (one.contribution, one.text) == (1.0, "how long jobs like this one last")
    assert thought_of("like_user") != one.text


def test_of_a_job_without_a_user_no_user_is_spoken_of() -> None:
    estimator = HistoriesEstimator()
    for number in range(12):
        job = Job(f"j{number}", 60.0 * number, 1, vc="ab"[number % 2], cpus=4.0 + number % 3)
        estimator.submitted(job, job.submit_time)
        estimator.started(job.job_id, job.submit_time)
        estimator.ended(job.job_id, State.COMPLETED, 9.0 * number, job.submit_time + 50.0)
    score = estimator.estimate(Job("next", 900.0, 1, vc="a", cpus=5.0), 900.0).score
    assert score is not None
    terms = dict(zip(OF_HISTORIES["terms"], score.terms, strict=True))
    said = [OF_HISTORIES["texts"][name] for name, value in terms.items() if value]
    said += [one.text for one in thoughts(terms.items()) if one.contribution]
    assert len(said) == 3
    assert not [text for text in said if "user" in text]
