"""Speed, convergence and outlook: what is believed of a job."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

import numpy as np
import pytest

from reproductions.figures.optimus import epoch_errors, observations, step_error
from reproductions.optimus.convergence import TooFewPoints, fit
from reproductions.optimus.outlook import Source, outlook
from reproductions.optimus.speed import (
    ACROSS,
    AllReduceSpeed,
    StepObservation,
    TooFewObservations,
)

# --- speed ----------------------------------------------------------------------------------------


def test_a_model_needs_an_observation() -> None:
    with pytest.raises(TooFewObservations, match="has none"):
        AllReduceSpeed.fit([])


@pytest.mark.parametrize("app", ["bert", "cifar10", "deepspeech2", "imagenet", "ncf", "yolov3"])
def test_measured_steps_are_fitted(shared_data: Path, app: str) -> None:
    rows = [seen for _, seen in observations(shared_data / "pollux" / "traces" / app)]
    assert step_error(AllReduceSpeed.fit(rows), rows) <= 0.12


def test_across_nodes_is_never_cheaper_than_within_one() -> None:
    seen = [
        StepObservation(nodes, gpus, batch, 0.1 * batch + 0.2 + 0.05 * gpus)
        for nodes, gpus in ((1, 1), (1, 2), (1, 4), (2, 4), (2, 8))  # as cheap, as measured
        for batch in (1.0, 2.0)
    ]
    t = AllReduceSpeed.fit(seen).theta
    assert t[4] >= ACROSS * t[2] - 1e-12
    assert t[5] >= ACROSS * t[3] - 1e-12
    assert t[3] > 0


def test_what_was_never_seen_is_worth_a_try() -> None:
    model = AllReduceSpeed.fit([StepObservation(1, 1, 32.0, 1.0)])
    assert model.step_s(1, 1, 32.0) == pytest.approx(1.0)
    assert model.step_s(4, 16, 2.0) == pytest.approx(0.5 + 0.5 / 16)


def test_accumulated_gradients_are_not_exchanged() -> None:
    model = AllReduceSpeed((0.1, 0.2, 1.0, 0.0, 2.0, 0.0))
    assert model.step_s(1, 2, 4.0, accumulation=2) == pytest.approx(3 * 0.6 + 1.0)


# --- convergence ----------------------------------------------------------------------------------


def test_half_of_a_noisy_curve_tells_the_epoch_to_a_fifth() -> None:
    assert fmean(epoch_errors(60)) < 0.20


def test_too_little_is_said() -> None:
    with pytest.raises(TooFewPoints, match="has 2"):
        fit(np.array([1.0, 2.0]), np.array([1.0, 0.5]))
    with pytest.raises(ValueError, match="positive"):
        fit(np.arange(3.0), np.array([1.0, 0.0, 0.5]))


# --- outlook --------------------------------------------------------------------------------------


def losses(count: int) -> list[float]:
    return [1.0 / (0.1 * k + 1.0) + 0.2 for k in range(1, count + 1)]


def test_a_schedule_with_an_end_says_when() -> None:
    found = outlook(losses(10), threshold=0.001, schedule_epochs=30.0)
    assert (found.epochs, found.source) == (20.0, Source.SCHEDULE)


def test_a_flat_curve_stops_a_schedule_early() -> None:
    flat = [1.0, 0.5, 0.4] + [0.39] * 20
    assert outlook(flat, threshold=0.001, schedule_epochs=90.0).epochs == 0.0


def test_a_smooth_curve_is_trusted_and_a_wild_one_is_not() -> None:
    assert outlook(losses(30), threshold=0.002).source is Source.CURVE
    rng = np.random.default_rng(3)
    noisy = np.array(losses(12)) * (1.0 + 0.1 * rng.standard_normal(12))
    wild = outlook(noisy.tolist(), threshold=0.0001)
    assert wild.source is Source.UNKNOWN
    assert not wild.sure


def test_a_new_job_gets_an_assumption() -> None:
    assert outlook([], threshold=0.002).epochs == 20.0
