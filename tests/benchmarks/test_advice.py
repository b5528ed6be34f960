"""Offers are carried out where they were made: starts now and later, and trials that fail."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from benchmarks.explanations import advice
from benchmarks.explanations.advice import PLAYED, Scored, advised, shares
from benchmarks.explanations.judge import TrialFailed

QUEUED = next(world for world in PLAYED if world.name == "queued")


def test_offers_of_a_later_start_are_made_and_carried_out() -> None:
    scored, failed = advised(QUEUED, Path(), 6, 24)
    found = shares(scored, len(failed))
    assert not failed
    assert found["offers"] == len(scored) >= 6
    assert found["later"] >= 1, "in a world with queues not every offer is of a start at once"
    assert found["starts"] == sum(one.start is not None for one in scored)


def test_a_trial_that_fails_is_counted_and_the_figure_does_not_hold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: object) -> None:
        raise TrialFailed("the copy died")

    monkeypatch.setattr(advice, "aside", fails)
    scored, failed = advised(QUEUED, Path(), 5, 6)
    assert not scored
    assert failed
    assert all(one.endswith("the copy died") for one in failed)
    right = [Scored(kind="later", beside=False, start=True, speed=True)]
    monkeypatch.setattr(advice, "advised", lambda *_: (right, failed))
    asked = argparse.Namespace(seeds=[1], only=["queued"], offers=1, data=Path())
    found = advice.measure(asked)
    assert found["all"]["failed"] == len(failed)
    assert found["all"]["started_in_time"] == 1.0
    assert not found["holds"]
    monkeypatch.setattr(advice, "advised", lambda *_: (right, []))
    assert advice.measure(asked)["holds"]
