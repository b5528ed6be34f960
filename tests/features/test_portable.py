"""Durations and ratios that every processor gives alike."""

from __future__ import annotations

from features import portable


def test_no_duration_is_below_zero_and_digits_are_cut() -> None:
    assert portable.expm1(-1e-9) == portable.expm1(-3.0) == 0.0
    assert portable.expm1(1.0) == 1.718282
    assert portable.exp(-1.0) == 0.367879
    assert portable.exp(-1.0, portable.RATIO) == 0.367879441
