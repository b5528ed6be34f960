"""Drift: how far today's rows, and today's errors, differ from those that the model was trained on.

A bundle keeps how many training rows fell into each bin of each feature, so the comparison needs
the bundle and the new rows only. Features: population stability index over the model's own bins,
sum of (new - old) * ln(new / old) over shares; by custom, below 0.1 is no change and above 0.25
another population. Residuals: mean and standard deviation of ln(1 + true seconds) - score, compared
with those of a reference window.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.bundle import AdditiveModel
from models.training.errors import TrainingError

Floats = NDArray[np.float64]

DRIFTED = 0.25
MIN_ROWS = 200  # below this the index is mostly noise
BIASED = 0.25  # a shift of the mean residual by this share of its spread


@dataclass(frozen=True, slots=True)
class Drift:
    """How far features and errors have drifted.

    Attributes:
        features: stability index of each feature with a main effect, largest first.
        residual_shift: mean residual now minus that of the reference, in standard deviations of the
            reference; NaN without a reference.
        residual_spread: standard deviation of residuals now, divided by that of the reference; NaN
            without a reference.
        rows: number of new rows compared.
        warnings: one line per drift found, worst first; empty when there is none.
    """

    features: Mapping[str, float]
    residual_shift: float
    residual_spread: float
    rows: int
    warnings: tuple[str, ...]

    def metrics(self) -> dict[str, float]:
        """Return the drift as {name: number}, as MLflow logs it."""
        return {
            **{f"drift/{name}": value for name, value in self.features.items()},
            "drift/shift of errors": self.residual_shift,
            "drift/spread of errors": self.residual_spread,
        }


def measure_drift(
    model: AdditiveModel,
    X: Any,
    *,
    residual: Floats | None = None,
    reference: Floats | None = None,
) -> Drift:
    """Return how far rows `X` differ from the training rows of `model`, with warnings.

    Args:
        model: the model of a bundle; it keeps how many training rows fell into each bin.
        X: the new rows; columns of the model.
        residual: ln(1 + true) - score of new rows whose jobs have ended, (m,).
        reference: residuals of the validation days, to compare with, (k,).

    Raises TrainingError with fewer than 200 rows: too few for the index.
    """
    bins = model.bins_batch(X)
    n = len(bins[0]) if bins else 0
    if n < MIN_ROWS:
        raise TrainingError(f"{n} rows to look for drift in, at least {MIN_ROWS} needed")
    found = {
        model.term_names[k]: stability_index(
            term.weights, np.bincount(bins[term.features[0]], minlength=len(term.weights))
        )
        for k, term in enumerate(model.terms)
        if len(term.features) == 1
    }
    ranked = dict(sorted(found.items(), key=lambda item: -item[1]))
    shift = spread = float("nan")
    lines = [
        f"{name} has drifted: stability index {value:.2f} (above {DRIFTED:g})"
        for name, value in ranked.items()
        if value > DRIFTED
    ]
    if residual is not None and reference is not None and min(len(residual), len(reference)) > 1:
        scale = float(np.std(reference)) or 1.0
        shift = float((np.mean(residual) - np.mean(reference)) / scale)
        spread = float(np.std(residual)) / scale
        if abs(shift) > BIASED:
            way = "longer" if shift > 0 else "shorter"
            lines.insert(0, f"jobs now run {way} than predicted, by {abs(shift):.2f} spreads")
    return Drift(
        features=ranked, residual_shift=shift, residual_spread=spread, rows=n, warnings=tuple(lines)
    )


def stability_index(before: Any, now: Any) -> float:
    """Return the population stability index of two histograms over the same bins, arrays (bins,): 0
    if they have equal shares, larger the more the shares differ.

    Half a row is added to every bin, so that an empty bin does not make the index infinite.
    """
    old = np.asarray(before, np.float64) + 0.5
    new = np.asarray(now, np.float64) + 0.5
    old, new = old / old.sum(), new / new.sum()
    return float(((new - old) * np.log(new / old)).sum())
