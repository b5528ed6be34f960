"""Fits how much faster jobs run on other types of GPU, with intervals for the error.

Tables of measured rates hold few model families, and how fast a GPU type is depends on the family.
So the general speed is the median over families, a family's own speed is shrunk towards it by the
number of its measurements, and the interval comes from the errors when whole families, or single
configurations, are left out of the fit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.bundle.gputypes import LEVELS, SEEN, UNSEEN, GpuTypeSpeed
from models.training.errors import TrainingError

Floats = NDArray[np.float64]

# A family measured as often as this is believed by half. Slopes: doublings they are shrunk by.
FAMILY_ROWS = 0.5
SLOPE_ROWS = 10.0
MIN_FAMILIES = 3


@dataclass(frozen=True, slots=True)
class Measured:
    """Measured rates of one training configuration, steps per second by GPU type; 0: it does not
    fit into that type's memory."""

    family: str
    batch: int | None
    gpus: int
    rates: dict[str, float]


Held = Callable[[Measured], object]


def fit_gpu_types(measured: Sequence[Measured], *, intervals: bool = True) -> GpuTypeSpeed:
    """Fit the relative speeds of GPU types. Return the model.

    Args:
        measured: measured configurations; only those with a rate on at least two types are used.
        intervals: also compute intervals, from fits that leave families and configurations out.

    Raises TrainingError when fewer than three families are left.
    """
    rows = [m for m in measured if sum(rate > 0 for rate in m.rates.values()) > 1]
    families = sorted({m.family for m in rows})
    if len(families) < MIN_FAMILIES:
        raise TrainingError(
            f"{len(families)} model families with rates on two GPU types, "
            f"at least {MIN_FAMILIES} needed"
        )
    types = sorted({name for m in rows for name, rate in m.rates.items() if rate > 0})
    speed = _levels(rows, types)
    family = np.array([m.family for m in rows])
    doublings = np.array([np.log2(m.batch) if m.batch else 0.0 for m in rows])
    gang = np.log2([m.gpus for m in rows])
    batch = {name: float(doublings[family == name].mean()) for name in families}
    of_family = np.stack([np.nanmean(speed[family == name], axis=0) for name in families])
    left = speed - of_family[np.searchsorted(families, family)]
    gpus_slope = _slope(gang - _mean_by(gang, family), left)
    batch_slope = _slope(doublings - _mean_by(doublings, family), left)
    level = speed - np.outer(gang, gpus_slope)  # of a gang of one
    of_family = np.stack([np.nanmean(level[family == name], axis=0) for name in families])
    base = np.nanmedian(of_family, axis=0)
    counts = np.array([(family == name).sum() for name in families])
    trust = counts / (counts + FAMILY_ROWS)
    added = np.nan_to_num((of_family - base) * trust[:, None])

    def named(values: Floats) -> dict[str, float]:
        return dict(zip(types, values.tolist(), strict=True))

    return GpuTypeSpeed(
        base=named(base),
        families={name: named(row) for name, row in zip(families, added, strict=True)},
        batch=batch,
        batch_slope=named(batch_slope),
        gpus_slope=named(gpus_slope),
        half_widths=_half_widths(rows) if intervals else {},
    )


def evaluate_gpu_types(measured: Sequence[Measured]) -> dict[str, Any]:
    """Return the errors and coverage of predicted ratios of speeds, with whole families, and with
    single configurations (a family and a batch size), left out of the fit.

    For both, these are the mean and median absolute error of ln(ratio), over all ordered pairs of
    types on which a configuration was measured, and the share inside the 50, 80 and 95 % intervals,
    computed from the remaining rows. Keys with `types_` are the errors of the median over families
    alone, those with `same_` of equal speed on all types.
    """
    result: dict[str, Any] = {"configurations": len(measured)}
    for name, key in (("unseen_family", _family), ("unseen_configuration", _configuration)):
        errors: dict[str, list[float]] = {"": [], "types_": [], "same_": []}
        inside: list[list[bool]] = []
        for test, rest in _left_out(measured, key):
            model = fit_gpu_types(rest)
            for m in test:
                for own, other in _pairs(m, model):
                    truth = np.log(m.rates[other] / m.rates[own])
                    found = model.predict(m.family, m.batch, m.gpus, own, other=other)
                    errors[""].append(abs(sum(found.terms) - truth))
                    errors["types_"].append(abs(found.terms[0] - truth))
                    errors["same_"].append(abs(truth))
                    ratio = np.exp(truth)
                    inside.append([low <= ratio <= high for low, high in found.intervals])
        result[name] = {
            "predictions": len(inside),
            **{f"{kind}mae_log": float(np.mean(e)) for kind, e in errors.items()},
            **{f"{kind}median_log": float(np.median(e)) for kind, e in errors.items()},
            **{
                f"coverage_{round(100 * level)}": float(np.mean([row[i] for row in inside]))
                for i, level in enumerate(LEVELS)
            },
        }
    return result


def _levels(rows: Sequence[Measured], types: Sequence[str]) -> Floats:
    """Return, for each configuration, the ln of its rate on each type, less its own mean over
    types, (n, types); NaN where not measured."""
    rates = np.array([[m.rates.get(name, 0.0) for name in types] for m in rows])
    logs = np.log(np.where(rates > 0, rates, np.nan))
    return np.asarray(logs - np.nanmean(logs, axis=1, keepdims=True))


def _mean_by(values: Floats, group: NDArray[Any]) -> Floats:
    _, where = np.unique(group, return_inverse=True)
    mean = np.bincount(where, weights=values) / np.bincount(where)
    return np.asarray(mean[where])


def _slope(x: Floats, left: Floats) -> Floats:
    """Return, for every column of `left`, the slope of its least-squares line on `x` through the
    origin, shrunk towards 0."""
    return np.asarray(x @ np.nan_to_num(left) / (x @ x + SLOPE_ROWS))


def _half_widths(rows: Sequence[Measured]) -> dict[str, tuple[float, ...]]:
    """Return the half-widths of the intervals of ln(ratio of speeds): UNSEEN, for jobs of a model
    family without measurements, and SEEN, for those of a measured family. They are conformal
    quantiles of the errors when whole families, or single configurations, are left out of the
    fit."""
    widths = {}
    for basis, key in ((UNSEEN, _family), (SEEN, _configuration)):
        missed = []
        for test, rest in _left_out(rows, key):
            try:
                model = fit_gpu_types(rest, intervals=False)
            except TrainingError:
                continue
            for m in test:
                for own, other in _pairs(m, model):
                    found = model.predict(m.family, m.batch, m.gpus, own, other=other)
                    if found.basis == basis:
                        truth = np.log(m.rates[other] / m.rates[own])
                        missed.append(abs(sum(found.terms) - truth))
        if missed:
            n = len(missed)
            levels = np.minimum(1.0, np.ceil((n + 1) * np.array(LEVELS)) / n)
            widths[basis] = tuple(np.quantile(missed, levels).tolist())
    return widths


def _family(m: Measured) -> object:
    return m.family


def _configuration(m: Measured) -> object:
    return m.family, m.batch


def _left_out(rows: Sequence[Measured], key: Held) -> list[tuple[list[Measured], list[Measured]]]:
    """Return (rows left out, remaining rows) for every value of `key`. Values that leave too few
    families are skipped."""
    folds = []
    for value in dict.fromkeys(key(m) for m in rows):
        test = [m for m in rows if key(m) == value]
        rest = [m for m in rows if key(m) != value]
        if len({m.family for m in rest}) >= MIN_FAMILIES:
            folds.append((test, rest))
    return folds


def _pairs(m: Measured, model: GpuTypeSpeed) -> list[tuple[str, str]]:
    there = [name for name, rate in m.rates.items() if rate > 0 and name in model.base]
    return list(permutations(there, 2))
