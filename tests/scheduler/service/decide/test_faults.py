"""Killed at any write and any action, the service loses nothing and does nothing twice.

A short run of `benchmarks.faults`; `test_living` tries to find what that does not.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from benchmarks import faults

CRASHES = 200


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> Iterator[None]:
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.configure(**before)


def test_hundreds_of_crashes_lose_nothing(bundles: list[Path]) -> None:
    url = os.environ.get("PELLUCID_TEST_DATABASE")
    found = faults.run(url, CRASHES, first=10_000, bundles=bundles)
    assert found.crashes >= CRASHES
    assert (found.lost, found.doubled, found.divergences) == ([], [], [])
    assert found.profiled > 0
    assert found.takeovers_refused > 0
    assert {"before a write", "before a commit", "after a commit"} <= set(found.where)
    assert any("launch" in where for where in found.where)
    assert any("acknowledgement" in where for where in found.where)


def test_the_harness_would_notice(bundles: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """A decider that acts before it writes, or forgets what it was doing, is found out."""
    from scheduler.service.decide.decider import Decider

    monkeypatch.setattr(Decider, "recover", lambda self: None)
    patient = faults.Scenario.run
    monkeypatch.setattr(faults.Scenario, "run", lambda self: patient(self, turns=400))
    found = faults.run(None, 150, first=20_000, bundles=bundles)
    assert found.lost
