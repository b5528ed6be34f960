"""Calibrated levels: what was promised is what comes, running jobs included."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.training.intervals import GPUS_UP_TO, LEVELS, calibrate


def test_levels_become_the_share_that_came() -> None:
    rng = np.random.default_rng(0)
    level = rng.uniform(size=20_000) ** 2  # the fit promised too much
    found = calibrate(level, np.ones(len(level), bool), np.ones(len(level), np.int64))
    asked = np.array([0.1, 0.5, 0.9])
    assert found.fitted(asked, np.zeros(3, np.int64)) == pytest.approx(asked**2, abs=0.02)
    back = found.calibrated(asked**2, np.zeros(3, np.int64))
    assert back == pytest.approx(asked, abs=0.02)


def test_jobs_still_running_count_as_longer() -> None:
    rng = np.random.default_rng(1)
    level, seen = rng.uniform(size=(2, 20_000))
    ended = level < seen
    found = calibrate(np.minimum(level, seen), ended, np.ones(len(level), np.int64))
    asked = np.array([0.1, 0.5, 0.8])
    assert found.fitted(asked, np.zeros(3, np.int64)) == pytest.approx(asked, abs=0.03)


def test_a_class_of_its_own_needs_jobs_of_its_own() -> None:
    rng = np.random.default_rng(2)
    gpus = np.repeat([1, 16], [5000, 30])
    level = np.where(gpus == 16, 0.9, rng.uniform(size=len(gpus)))
    found = calibrate(level, np.ones(len(gpus), bool), gpus).levels
    assert found[0, LEVELS // 2] == pytest.approx(0.5, abs=0.03)
    assert 0.5 < found[-1, LEVELS // 2] < 0.6
    assert (found[1] == found[2]).all()


@given(
    st.lists(st.tuples(st.floats(0, 1), st.booleans(), st.sampled_from([1, 2, 8, 64])), max_size=40)
)
def test_any_outcomes_give_a_calibration(jobs: list[tuple[float, bool, int]]) -> None:
    level, ended, gpus = (np.array([job[i] for job in jobs]) for i in range(3))
    found = calibrate(level.astype(float), ended.astype(bool), gpus.astype(np.int64))
    assert found.levels.shape == (len(GPUS_UP_TO) + 1, LEVELS)
