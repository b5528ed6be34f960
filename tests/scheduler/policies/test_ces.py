"""Advice on which nodes could sleep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.policies.ces import PUBLISHED, Ces, CesReason

SETTINGS = replace(PUBLISHED["venus"], history=3, buffer=5, keep=2, least=2.0)


def falling(past: Sequence[float], horizon: int) -> float:
    """Ever fewer nodes: less the sooner, so that later is not busier."""
    return past[-1] - 2.0 - horizon / 1000.0


def rising(past: Sequence[float], horizon: int) -> float:
    return past[-1] + 1.0


def advice(ces: Ces, *busy: float) -> list[tuple[CesReason, int]]:
    return [(a.reason, a.awake) for a in (ces.advise(b, 600.0 * i) for i, b in enumerate(busy))]


def test_past_and_forecast_have_to_agree() -> None:
    ces = Ces(100, SETTINGS, falling)
    assert advice(ces, 60.0, 55.0) == [(CesReason.NOT_FALLING, 100), (CesReason.QUIET, 60)]
    busy = Ces(100, SETTINGS, rising)
    assert advice(busy, 60.0, 55.0)[1] == (CesReason.FORECAST_BUSY, 100)


def test_nodes_are_woken_at_once_and_kept_awake_for_a_while() -> None:
    ces = Ces(100, SETTINGS, falling)
    advice(ces, 60.0, 50.0)
    assert ces.awake == 55
    found = advice(ces, 70.0, 40.0, 30.0, 20.0)
    assert [reason for reason, _ in found] == [
        CesReason.MORE_IN_USE,
        CesReason.JUST_WOKEN,
        CesReason.QUIET,
        CesReason.QUIET,
    ]
    assert found[0][1] == 75


def test_small_cuts_are_not_worth_it() -> None:
    ces = Ces(20, SETTINGS, falling)
    assert advice(ces, 18.0, 14.0)[1] == (CesReason.TOO_FEW, 20)


def test_advice_can_be_said() -> None:
    ces = Ces(100, SETTINGS, falling)
    kept = ces.advise(60.0, 0.0)
    cut = ces.advise(50.0, 600.0)
    woken = ces.advise(80.0, 1200.0)
    assert kept.sentence().startswith("keep 100 awake (NotFalling): 60 nodes in use")
    assert cut.sentence() == "45 may sleep: 50 nodes in use, 55.0 lately, 48.0 forecast"
    assert woken.sentence().startswith("wake 30: 80 nodes in use")


@given(st.lists(st.integers(0, 50), min_size=1, max_size=60), st.sampled_from(sorted(PUBLISHED)))
def test_never_more_than_there_are_nor_fewer_than_in_use(busy: list[int], name: str) -> None:
    ces = Ces(50, PUBLISHED[name], falling)
    before = 50
    for i, nodes in enumerate(busy):
        found = ces.advise(float(nodes), 600.0 * i)
        assert nodes <= found.awake <= 50
        assert found.awake - found.change == before
        before = found.awake


def test_every_published_setting_is_there() -> None:
    assert set(PUBLISHED) == {"venus", "earth", "saturn", "uranus", "philly"}
    assert PUBLISHED["philly"].buffer == 20


def test_a_forecast_is_asked_only_when_it_decides() -> None:
    def never(past: Sequence[float], horizon: int) -> float:
        raise AssertionError("not needed")

    ces = Ces(10, SETTINGS, never)
    with pytest.raises(AssertionError, match="not needed"):
        advice(ces, 8.0, 0.0)
    assert advice(Ces(10, SETTINGS, never), 4.0, 4.0, 5.0)
