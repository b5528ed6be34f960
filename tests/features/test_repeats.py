"""Claims: what is run again and again, and what owners expect, believed as often as it held."""

from __future__ import annotations

from dataclasses import replace
from math import nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.expected import checked, expected
from features.job import Job
from features.repeats import LAST, Claim, Kind, Repeats, Statements, made_of
from features.schema import State
from features.state import FeatureState


def test_runs_that_agree_claim_the_next_and_others_claim_nothing() -> None:
    made = made_of("command", [500.0, 15.0, 15.5, 16.0], nan)
    assert made is not None
    assert made.low_s < 15.0
    assert 16.0 < made.high_s < 16.0 * 1.3
    assert made_of("command", [15.0, 500.0], nan) is None
    assert made_of("command", [], nan) is None


def test_one_that_has_outlasted_the_claim_makes_it_another_kind() -> None:
    near, far = made_of("name", [60.0] * 3, 30.0), made_of("name", [60.0] * 3, 3600.0)
    assert near is not None
    assert far is not None
    repeats = Repeats()
    assert repeats.share(far.kind) < repeats.share(near.kind)


@given(st.lists(st.booleans(), min_size=1, max_size=300))
def test_a_kind_is_believed_as_often_as_it_held(held: list[bool]) -> None:
    made, repeats = made_of("command", [60.0] * LAST, nan), Repeats()
    assert made is not None
    before = repeats.share(made.kind)
    for one in held:
        repeats.learn(made, 60.0 if one else 6000.0)
    other = Kind("kind", 1, 0, False)
    assert 0.0 < repeats.share(made.kind) < 1.0
    assert repeats.share(other) == other.prior
    if all(held):
        assert repeats.share(made.kind) > before
    if not any(held):
        assert repeats.share(made.kind) < before


def test_an_owner_is_believed_as_far_as_that_owners_word_held() -> None:
    words = Statements()
    for i in range(9):
        words.learn("right", *expected_of("6h"), 20_000.0 if i < 7 else 60.0)
        words.learn("wrong", *expected_of("6h"), 60.0)
    right, wrong, new = (words.claim(who, "6h") for who in ("right", "wrong", "new"))
    assert right is not None
    assert wrong is not None
    assert new is not None
    assert right.share > new.share > wrong.share
    assert "right in 7 of 9" in right.text
    assert words.word("wrong") == (0, 9)
    assert words.claim("right", "soon") is None


def expected_of(text: str) -> tuple[float, float]:
    between = expected(text)
    assert between is not None
    return between


@pytest.mark.parametrize("text", ["6h", "1:30:00", "test", "full", "90", ""])
def test_lengths_are_taken(text: str) -> None:
    assert checked(f" {text} ") == text


@pytest.mark.parametrize("text", ["six", "-6h", "0", "nan", "1e99h", "Test"])
def test_what_is_no_length_is_not(text: str) -> None:
    with pytest.raises(ValueError, match="is no length"):
        checked(text)


def test_a_state_learns_claims_from_ends_alone() -> None:
    state = FeatureState({"survival"})
    for i in range(4):
        job = Job(f"j{i}", 100.0 * i, 1, "ann", "vc", like="same", expect="full")
        claims = state.claims(job, job.submit_time)
        assert len(claims) == (2 if i else 1)
        state.submit(job, job.submit_time)
        state.start(job.job_id, job.submit_time)
        state.end(job.job_id, job.submit_time + 50.0, State.COMPLETED, 50.0)
    assert state.word("ann") == (0, 4)
    assert claims[0].holds(50.0)
    assert claims[0].share > 0.8
    assert claims[1].share < 0.4


def test_the_share_of_their_limits_that_an_owner_uses_claims_the_next() -> None:
    state = FeatureState({"survival"})
    now = 0.0

    def ran(job: Job, lasted_s: float) -> None:
        nonlocal now
        if job.job_id in ("steady1", "steady2"):
            new = replace(job, job_id="new", name="never-seen")
            assert not state.claims(new, now), "fewer than three say little"
        state.submit(job, now)
        state.start(job.job_id, now)
        now += lasted_s
        state.end(job.job_id, now, State.COMPLETED, lasted_s)

    for i, limit_s in enumerate((3600.0, 14_400.0, 7200.0, 36_000.0, 1800.0, 28_800.0)):
        for who, share in (("steady", 0.75), ("other", (0.02, 0.9, 0.3)[i % 3])):
            job = Job(f"{who}{i}", now, 1, who, "vc", name=f"{who}-{i * 'x'}", time_limit_s=limit_s)
            ran(job, share * limit_s)

    def claims(who: str, limit_s: float | None) -> tuple[Claim, ...]:
        new = Job("new", now, 1, who, "vc", name="never-seen", time_limit_s=limit_s)
        return state.claims(new, now)

    (claim,) = claims("steady", 86_400.0)
    assert claim.holds(64_800.0)
    assert not claim.holds(43_200.0)
    assert claim.share > 0.5, "it has held each time"
    assert claim.text.startswith("last runs, 3 of its owner, by the shares of their limits: ")
    (shorter,) = claims("steady", 600.0)
    assert shorter.holds(450.0)
    assert not shorter.holds(300.0)
    assert not claims("steady", None)
    assert not claims("other", 86_400.0), "whose shares do not agree"
    assert not claims("new", 86_400.0)
