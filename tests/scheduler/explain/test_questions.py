"""A question to an estimator changes nothing: neither its later answers nor what is decided."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.online import OnlineEstimator
from reproductions.baselines.helios import OnlineHelios
from scheduler.core.core import Core
from scheduler.core.decisions import Decision
from scheduler.core.estimates import Estimator, LiveEstimator
from scheduler.explain.whatif.memory import Memory
from scheduler.policies import build
from scheduler.testing.worlds import World, worlds
from tests.scheduler.explain.watched import replay

HOUR_S = 3600.0


class Fitless(OnlineEstimator):
    """Notes when it would have been fitted, and goes on with the histories."""

    refit_s = HOUR_S

    def __init__(self) -> None:
        super().__init__(min_rows=1)
        self.fitted: list[float] = []

    def _refit(self, now: float) -> None:
        self.fitted.append(now)


class FitlessHelios(OnlineHelios):
    def __init__(self) -> None:
        super().__init__(refit_s=HOUR_S, min_rows=1)

    def _fit(self) -> None:
        self.fits += 1


@pytest.mark.parametrize("make", [LiveEstimator, Fitless, FitlessHelios])
@given(world=worlds(), later=st.lists(st.floats(0, 1e6), max_size=4))
@settings(max_examples=12)
def test_questions_at_any_later_time_change_no_decision(
    make: Callable[[], Estimator], world: World, later: list[float]
) -> None:
    def decided(times: list[float]) -> tuple[list[str], object]:
        found: list[str] = []

        def look(core: Core, memory: Memory, taken: list[Decision], now: float) -> None:
            found.extend(map(repr, taken))
            for seconds in times:
                for sample in world.samples:
                    asked = replace(sample.job, gpus=max(1, sample.job.gpus))
                    memory.predicted(asked, now + seconds)
                    memory.estimate(asked, now + seconds)

        estimator = make()
        replay(world, build("qssf"), look, estimator)
        return found, (
            getattr(estimator, "fits", None),
            getattr(estimator, "fitted", None),
            getattr(estimator, "_waiting", {}).keys(),
        )

    assert decided(later) == decided([])
