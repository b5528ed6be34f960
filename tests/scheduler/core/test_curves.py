"""One curve per job: what it is made of, and that what a job has outlived is in all it says."""

from __future__ import annotations

import pickle
from itertools import pairwise
from math import expm1, log1p

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.repeats import Claim
from features.survival import BINS, EDGES_S
from scheduler.core import durations as module
from scheduler.core.curves import LONGEST_S, OWN, Curve, Predicted, _without_claim, moved, shared
from scheduler.core.durations import DurationDistribution, Stated, at_level, of_plain, plain

HAZARDS = st.lists(st.floats(0.0, 0.95), min_size=BINS, max_size=BINS)
BIMODAL = [0.0] * BINS
BIMODAL[4], BIMODAL[12] = 0.7, 0.999  # most end within five minutes, the others after six hours


def by_levels(seconds: float, hazards: list[float]) -> float:
    """Share that has ended by then: straight lines in ln(1 + seconds), written plainly."""
    ends, left = [0.0, *EDGES_S, LONGEST_S], 1.0
    for (low, high), share in zip(pairwise(ends), [*hazards[:-1], 1.0], strict=True):
        if seconds < high:
            part = (log1p(seconds) - log1p(low)) / (log1p(high) - log1p(low))
            return 1.0 - left * (1.0 - share * part)
        left *= 1.0 - share
    return 1.0


@given(HAZARDS, st.floats(0, 1e6))
def test_hazards_are_read_off_and_back(hazards: list[float], seconds: float) -> None:
    own = Predicted.of(600.0, hazards)
    assert own.share_ended(seconds) == pytest.approx(by_levels(seconds, hazards), abs=1e-9)
    levels = [0.1, 0.5, 0.9]
    for level, at in zip(levels, own.ends_at(levels), strict=True):
        assert own.share_ended(at) == pytest.approx(level, abs=1e-6)


def test_other_terms_of_the_score_move_all_of_it() -> None:
    plain, longer = Predicted.of(600.0, BIMODAL), Predicted.of(600.0, BIMODAL, log1p(1.0))
    for before, after in zip(plain.ends_at([0.2, 0.8]), longer.ends_at([0.2, 0.8]), strict=True):
        assert after == pytest.approx(2 * (1 + before) - 1)


@given(HAZARDS, st.sampled_from([0.0, 10.0, 200.0, 5000.0, 90_000.0]), st.floats(1.0, 1e5))
def test_both_parts_are_averaged_and_conditioned_together(
    hazards: list[float], outlived: float, predicted: float
) -> None:
    """Share by share: (own + others) beyond, over those that outlive as much."""
    durations, own = DurationDistribution(), Predicted.of(predicted, hazards)
    alone, found = durations.quantiles(predicted), durations.quantiles(own, outlived)
    assert list(found) == sorted(found)
    assert found[0] >= outlived

    def left(seconds: float) -> float:
        others = sum(point > seconds for point in alone) / len(alone)
        return OWN * (1 - by_levels(seconds, hazards)) + (1 - OWN) * others

    if predicted * 20 > outlived:  # beyond, what is seen of the others is too little
        for level in (0.25, 0.5, 0.75):
            at = at_level(found, level)
            if 1.02 * outlived < at < 100_000:
                share = 1 - left(at) / left(outlived)
                near = 1 - left(at * 1.3) / left(outlived), 1 - left(at / 1.3) / left(outlived)
                assert near[1] - 0.08 <= level <= near[0] + 0.08, (share, level)


def test_who_has_two_kinds_of_jobs_is_believed_to_have_two() -> None:
    durations, own = DurationDistribution(), Predicted.of(expm1(7.0), BIMODAL)
    first, later = durations.curve(own), durations.curve(own, 600.0)
    assert first.chance(6 * 3600.0) < 0.45
    assert later.chance(6 * 3600.0, 600.0) > 1.3 * first.chance(6 * 3600.0)
    assert later.remaining(600.0) > 3 * 3600.0
    assert durations.expected_s(own, 600.0) == later.remaining(600.0)
    assert durations.quantile_s(own, 0.5, 600.0) > 5 * durations.quantile_s(own, 0.5)


@given(HAZARDS, st.floats(0, 1e6), st.floats(0, 1e6))
def test_a_curve_falls_and_expects_more_of_who_outlives_more(
    hazards: list[float], one: float, other: float
) -> None:
    curve = DurationDistribution().curve(Predicted.of(600.0, hazards))
    low, high = sorted((one, other))
    assert curve.chance(low) >= curve.chance(high)
    assert curve.expected(low) >= low
    assert curve.expected(high) >= curve.expected(low) - 1e-6
    assert curve.chance(high, high) == 1.0


def test_what_is_left_only_falls_for_as_long_as_it_is_said_to() -> None:
    durations, own = DurationDistribution(), Predicted.of(expm1(7.0), BIMODAL)
    for elapsed in (0.0, 14.0, 100.0, 299.0, 4000.0, 30_000.0, 50_000.0):
        falls = durations.falls_for_s(own, elapsed)
        parts = [elapsed + falls * part / 20 for part in range(20)]
        left = [durations.expected_s(own, at) for at in parts]
        assert left == sorted(left, reverse=True)


def test_a_curve_follows_what_is_learned_and_is_copied_whole() -> None:
    durations, own = DurationDistribution(weight=0), Predicted.of(600.0, BIMODAL)
    before = durations.curve(own).expected()
    for _ in range(50):
        durations.learn(600.0, 60_000.0)
    assert durations.curve(own).expected() > before
    copy = pickle.loads(pickle.dumps(own))
    assert (copy, copy.ended, copy.shift) == (own, own.ended, own.shift)
    assert durations.curve(copy) == durations.curve(own)
    for seconds in (5.0, own, Stated(9.0, 0.1, 5.0), Stated(9.0, 0.1, own)):
        kept = of_plain(plain(seconds))
        assert (type(kept), plain(kept)) == (type(seconds), plain(seconds))


def test_nobody_outlives_the_end_of_a_curve_for_sure() -> None:
    curve = Curve.of([10.0, 20.0])
    assert curve.expected(30.0) == 60.0
    assert curve.chance(60.0, 29.5) == pytest.approx(0.5, abs=0.01)
    assert curve.remaining(5.0) == 10.0


def test_no_part_of_a_curve_goes_beyond_the_time_limit() -> None:
    """A job of ten minutes by a user whose jobs last ten hours."""
    own = Predicted.of(600.0, BIMODAL, most_s=600.0)
    durations = DurationDistribution()
    assert durations.quantiles(own)[-1] <= 600.0
    assert durations.total_s(own) <= 600.0
    assert own.share_ended(600.0) == 1.0
    assert of_plain(plain(own)).ends_at([0.99])[0] <= 600.0  # type: ignore[attr-defined]
    assert own.moved(300.0).most_s == 600.0


def points_of(claims: list[tuple[float, float, float]], outlived: float = 0.0) -> list[float]:
    """What is believed of a job whose like end within five minutes or after six hours."""
    durations = DurationDistribution()
    own = Predicted.of(600.0, BIMODAL, claims=tuple(Claim(*one) for one in claims))
    return list(durations.quantiles(own, outlived))


def share_within(points: list[float], low: float, high: float) -> float:
    return sum(low <= point <= high for point in points) / len(points)


def test_a_claim_is_believed_as_often_as_such_hold() -> None:
    without, low, high = points_of([]), 1800.0, 5400.0
    assert share_within(without, low, high) < 0.2
    for share in (0.4, 0.8):
        found = points_of([(low, high, share)])
        assert share_within(found, low, high) == pytest.approx(share, abs=0.03)
        rest = [point for point in found if not low <= point <= high]
        long = share_within(without, high + 1, 1e9) / (1 - share_within(without, low, high))
        assert share_within(rest, high + 1, 1e9) == pytest.approx(long, abs=0.06)


def test_a_claim_that_says_less_than_is_believed_already_says_nothing() -> None:
    assert points_of([(0.0, 400.0, 0.1)]) == points_of([])


def test_of_two_claims_the_last_has_the_share_it_is_worth() -> None:
    found = points_of([(14.0, 17.0, 0.9), (10_800.0, 43_200.0, 0.8)])
    assert share_within(found, 10_800.0, 43_200.0) == pytest.approx(0.8, abs=0.03)
    assert share_within(found, 14.0, 17.0) == pytest.approx(0.18, abs=0.04)


@pytest.mark.parametrize("outlived", [600.0, 3000.0, 6000.0])
def test_a_claim_is_conditioned_on_what_was_outlived(outlived: float) -> None:
    """As long again as the claim, it is over; until then it is the likelier, the more is ruled out
    beside it."""
    low, high = 1800.0, 5400.0
    found = points_of([(low, high, 0.5)], outlived)
    assert min(found) >= outlived
    if outlived < high:
        assert share_within(found, low, high) > 0.4
    else:
        without = [point for point in points_of([], outlived) if point > 12_000.0]
        assert share_within(found, 12_000.0, 1e9) == pytest.approx(len(without) / 64, abs=0.1)


def test_what_was_outlived_weighs_a_claim_by_what_is_left_beside_it() -> None:
    low, high, share, outlived = 1800.0, 5400.0, 0.5, 600.0
    own = Predicted.of(600.0, BIMODAL)
    lies = share_within(list(Curve.alone(own).points), low, high)
    far = 1.0 - share_within(list(Curve.alone(own, outlived).points), low, high)
    beside = (1.0 - share) / (1.0 - lies) * (1.0 - own.share_ended(outlived)) * far
    told = Predicted.of(600.0, BIMODAL, claims=(Claim(low, high, share),))
    found = Curve.alone(told, outlived)
    within = share_within(list(found.points), low, high)
    assert within == pytest.approx(share / (share + beside), abs=0.02)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_a_claim_that_was_outlived_leaves_the_share_that_it_leaves_of_all(share: float) -> None:
    """One that said as much as was believed anyway leaves what was left."""
    all_of, left = [float(i) for i in range(1, 101)], 0.9
    lies = Claim(1.0, 50.0, 0.5)
    assert _without_claim(all_of, lies, left) == pytest.approx(left)
    more = _without_claim(all_of, Claim(1.0, 50.0, share), left)
    assert more == pytest.approx(left * min(1.0, (1.0 - share) / 0.5))
    assert _without_claim(all_of, Claim(1.0, 100.0, share), left) == left, "none is beside it"


@pytest.mark.parametrize("outlived", [0.0, 600.0])
def test_a_claim_that_says_less_than_the_one_before_says_nothing(outlived: float) -> None:
    window = 1800.0, 5400.0
    assert points_of([(*window, 0.8)], outlived) != points_of([], outlived)
    assert points_of([(*window, 0.8), (*window, 0.7)], outlived) == points_of(
        [(*window, 0.8)], outlived
    )


def test_claims_are_kept_as_numbers_with_the_curve() -> None:
    own = Predicted.of(600.0, BIMODAL, 0.1, 7200.0, (Claim(1.0, 2.0, 0.5), Claim(3.0, 4.0, 0.6)))
    for one in (own, Stated(500.0, 0.2, own)):
        again = of_plain(plain(one))
        assert plain(again) == plain(one)
        assert type(again) is type(one)


@given(HAZARDS, st.floats(60.0, 1e5), st.floats(0.3, 0.95))
def test_the_score_moves_towards_a_claim(hazards: list[float], at: float, share: float) -> None:
    own, value = Predicted.of(600.0, hazards), log1p(600.0)
    claim = Claim(at / 1.2, at * 1.2, share)
    (moves,) = moved(own, (claim,), value)
    assert abs(moves) <= abs(log1p(at) - value) + 0.2
    assert moves == 0.0 or (moves > 0) == (log1p(at) > value - 0.2) or abs(moves) < 0.2


def test_no_more_curves_are_kept_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CURVES", 3)
    monkeypatch.setattr(module, "_CURVES", kept := {})  # type: ignore[var-annotated]
    durations = DurationDistribution()
    for i in range(20):
        durations.curve(Predicted.of(600.0 + i, BIMODAL))
        assert 0 < len(kept) <= 3


def test_the_durations_of_a_mixture_come_from_who_has_any_left() -> None:
    others = [float(i) for i in range(1, 11)]
    assert shared(1.0, others, 0.0, 10) == (0, others)
    assert shared(0.0, others, 0.0, 10)[0] == 10
    assert shared(1.0, others, 0.5, 10) == (0, others)
    n, found = shared(0.0, others, 1.0, 10)
    assert (n, n + len(found)) == (round(10 * OWN), 10)
    assert {*found} <= {*others}
