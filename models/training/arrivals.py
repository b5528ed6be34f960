"""Trains the GA2M (an additive model with pairs of features) of job arrivals, and compares it with
baselines.

The target is ln(1 + count). The loss is pseudo-Huber with a small delta: nearly the absolute error,
so the score is nearly the logarithm of the median count. Squared error would follow the bursts:
this series has single bins of several hundred jobs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from interpret.glassbox import ExplainableBoostingRegressor
from numpy.typing import NDArray

from features.given import opened
from models.bundle import AdditiveModel
from models.bundle.arrivals import (
    BIN_S,
    DAY_BINS,
    LEADS,
    SERIES,
    ArrivalModel,
    Calibration,
    Lead,
    arrival_columns,
    arrival_specs,
    day_of,
)
from models.training.blocks import block_bags
from models.training.boosting import boost
from models.training.errors import TrainingError
from models.training.export import additive_model

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

QUANTILES = (0.025, 0.1, 0.25, 0.5, 0.75, 0.9, 0.975)
GROUPS = 8  # levels of the forecast that are calibrated apart
CALIBRATION_BINS = 28 * DAY_BINS
MIN_DAYS = 14  # to the nearest: that no job came in a trace's first minutes costs it no model
# bags, interactions, learning rate, rounds without gain, bins of a feature alone and in pairs:
# "fast" is a tenth of the work, and a fifth of the size: pairs are as fine as both bins together
PRESETS = {"fast": (2, 4, 0.2, 10, 20, 20), "full": (8, 15, 0.03, 50, 48, 16)}
LOSS = "pseudo_huber:delta=0.1"


@dataclass(frozen=True)
class Arrivals:
    """Numbers of arriving jobs, and of their GPUs, per bin of ten minutes, without gaps.

    Attributes:
        jobs, gpus: number of jobs, and of their GPUs, submitted in each bin, (bins,).
        first_bin_s: start of the first bin, seconds since the epoch (UTC).
        utc_offset_s: local time minus UTC, for the calendar.
        holidays: local dates of holidays, ISO format.

    Raises TrainingError if a count is negative or missing, or if `jobs` and `gpus` differ in
    length.
    """

    jobs: Floats
    gpus: Floats
    first_bin_s: float
    utc_offset_s: float = 0.0
    holidays: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(self.jobs) != len(self.gpus):
            raise TrainingError(f"{len(self.jobs)} bins of jobs and {len(self.gpus)} of GPUs")
        for name in SERIES:
            wrong = ~np.isfinite(self.counts[name]) | (self.counts[name] < 0)
            if wrong.any():
                at = int(wrong.argmax())
                raise TrainingError(f"{name} of bin {at} is {self.counts[name][at]}, must be >= 0")

    @property
    def counts(self) -> dict[str, Floats]:
        """Return both series of counts by name: "jobs" and "gpus"."""
        return {"jobs": self.jobs, "gpus": self.gpus}

    @property
    def enough(self) -> bool:
        """Return whether these are enough to fit a model on: `MIN_DAYS`, to the nearest day."""
        return round(len(self.jobs) / DAY_BINS) >= MIN_DAYS

    def until(self, bins: int) -> Arrivals:
        """Return the arrivals of the first `bins` bins."""
        return Arrivals(
            jobs=self.jobs[:bins],
            gpus=self.gpus[:bins],
            first_bin_s=self.first_bin_s,
            utc_offset_s=self.utc_offset_s,
            holidays=self.holidays,
        )

    @classmethod
    def of_jobs(
        cls,
        submit_s: Floats,
        gpus: Floats,
        *,
        until_s: float | None = None,
        utc_offset_s: float = 0.0,
        **calendar: Any,
    ) -> Arrivals:
        """Return the arrivals counted from jobs: their submit times (seconds since the epoch, in
        any order) and numbers of GPUs.

        Args:
            until_s: until when all jobs are known, after the last of them: so long nobody came.
                None: until the last of them.
            utc_offset_s, calendar: see the attributes of the class.

        Raises TrainingError if there is no job.
        """
        if not len(submit_s):
            raise TrainingError("no job to count arrivals of")
        first = float(np.min(submit_s) // BIN_S * BIN_S)
        where = ((np.asarray(submit_s) - first) // BIN_S).astype(np.int64)
        whole = 0 if until_s is None else int((until_s - first) // BIN_S)
        return cls(
            np.bincount(where, minlength=whole).astype(np.float64),
            np.bincount(where, weights=gpus, minlength=whole).astype(np.float64),
            first,
            utc_offset_s,
            **calendar,
        )

    @classmethod
    def read_csv(cls, path: Any, *, holidays: tuple[str, ...] = ()) -> Arrivals:
        """Return the arrivals in a CSV file of `time, submit_gpu_job, submit_gpu_num`, with
        local times. Raises TrainingError if it cannot be read or its bins are not ten minutes
        apart.
        """
        try:
            with opened(path) as file:
                frame = pd.read_csv(file, usecols=["time", "submit_gpu_job", "submit_gpu_num"])
            when = (
                pd.to_datetime(frame["time"], format="ISO8601")
                .to_numpy("datetime64[s]")
                .astype(np.float64)
            )
        except (OSError, ValueError) as error:
            raise TrainingError(f"{path}: {str(error).splitlines()[0]}") from None
        if len(when) < 2 or (np.diff(when) != BIN_S).any():
            raise TrainingError(f"{path}: bins are not {BIN_S:g} s apart throughout")
        jobs, gpus = (frame[n].to_numpy(np.float64) for n in ("submit_gpu_job", "submit_gpu_num"))
        return cls(
            jobs=jobs, gpus=gpus, first_bin_s=float(when[0]), utc_offset_s=0.0, holidays=holidays
        )


@dataclass(frozen=True, slots=True)
class FittedArrivals:
    """A fitted model of arrivals, with the settings and data of its fit."""

    model: ArrivalModel
    metadata: Mapping[str, Any]


def fit_arrivals(
    history: Arrivals,
    *,
    leads: Sequence[Lead] = LEADS,
    preset: str = "full",
    seed: int = 0,
) -> FittedArrivals:
    """Fit one GA2M for each series (jobs, GPUs) and each lead (time ahead that is forecast), with
    calibrated quantiles. Return all of them in one model.

    The last four weeks (or the last quarter, if that is less) are forecast by a model fitted on the
    bins before them; its errors give the quantiles. The returned model is then fitted on all bins.

    Raises TrainingError with less than two weeks of history, to the nearest day.
    """
    if preset not in PRESETS:
        raise TrainingError(f"preset is {preset!r}, must be one of {', '.join(PRESETS)}")
    bins = len(history.jobs)
    if not history.enough:
        raise TrainingError(
            f"{bins / DAY_BINS:.1f} days of arrivals, at least {MIN_DAYS} needed, to the nearest"
        )
    cut = bins - min(CALIBRATION_BINS, bins // 4)
    models, calibrations = {}, {}
    for name in SERIES:
        for lead in leads:
            key = f"{name}@{lead.name}"
            early = _fit(
                history=history.until(cut), series=name, lead=lead, preset=preset, seed=seed
            )
            at = np.arange(cut, bins - lead.ahead - lead.width + 1)
            score = early.score_batch(_frame(history, at, lead))
            calibrations[key] = _calibration(score, arrivals_at(history, name, at, lead))
            models[key] = _fit(history, series=name, lead=lead, preset=preset, seed=seed)
    end = history.first_bin_s + bins * BIN_S
    metadata = {
        "bins": bins,
        "window_from": day_of(history.first_bin_s),
        "window_to": day_of(end),
        "models": sorted(models),
        "target": "ln(1 + count per bin)",
        "loss": LOSS,
        "preset": preset,
        "seed": seed,
    }
    model = ArrivalModel(
        models, calibrations, utc_offset_s=history.utc_offset_s, holidays=history.holidays
    )
    return FittedArrivals(model, metadata)


def arrivals_at(history: Arrivals, series: str, at: Ints, lead: Lead) -> Floats:
    """Return the mean count per bin that a forecast made at each of the bins `at` aims at, (n,).

    Args:
        series: "jobs" or "gpus".
        lead: how many bins ahead the forecast starts, and over how many it averages.
    """
    total = np.concatenate([[0.0], np.cumsum(history.counts[series])])
    first = at + lead.ahead
    followed: Floats = (total[first + lead.width] - total[first]) / lead.width
    return followed


def _frame(history: Arrivals, at: Ints, lead: Lead) -> pd.DataFrame:
    columns = arrival_columns(
        history.counts,
        history.first_bin_s,
        at,
        lead,
        utc_offset_s=history.utc_offset_s,
        holidays=history.holidays,
    )
    return pd.DataFrame({spec.name: columns[spec.name] for spec in arrival_specs()})


def _training_bins(history: Arrivals, lead: Lead) -> Ints:
    """Return the indices of the time bins to train on. The first week of the history is left out,
    or its first day if it has at most four weeks.
    """
    first = 7 * DAY_BINS if len(history.jobs) > 28 * DAY_BINS else DAY_BINS
    return np.arange(first, len(history.jobs) - lead.ahead - lead.width + 1)


def _fit(history: Arrivals, series: str, lead: Lead, preset: str, seed: int) -> AdditiveModel:
    at = _training_bins(history, lead)
    frame, y = _frame(history, at, lead), np.log1p(arrivals_at(history, series, at, lead))
    bag_count, interactions, rate, patience, bins, pair_bins = PRESETS[preset]
    bags = block_bags((at * BIN_S).astype(np.float64), bag_count)
    limit = np.abs(y - np.median(y)).mean()
    for objective in (LOSS, "rmse"):
        ebm = ExplainableBoostingRegressor(
            feature_names=list(frame.columns),
            feature_types=["continuous"] * len(frame.columns),
            objective=objective,
            interactions=interactions,
            outer_bags=bag_count,
            learning_rate=rate,
            smoothing_rounds=50,
            interaction_smoothing_rounds=20,
            early_stopping_rounds=patience,
            max_rounds=3000,
            # far from the data this loss has next to no curvature: a free step would diverge
            max_delta_step=0.5,
            max_bins=bins,
            max_interaction_bins=pair_bins,
            min_samples_leaf=50,
            n_jobs=1,
            random_state=seed,
        )
        boost(ebm, frame, y, bags)
        model = additive_model(ebm, frame, arrival_specs())
        if np.abs(model.score_batch(frame) - y).mean() <= limit:
            break  # no worse than a constant: it has not diverged
    return model


def _calibration(score: Floats, followed: Floats) -> Calibration:
    cuts = np.unique(np.quantile(score, np.linspace(0, 1, GROUPS + 1)[1:-1]))
    group = np.searchsorted(cuts, score, side="right")
    miss = np.log1p(followed) - score
    rows, means = [], []
    for g in range(len(cuts) + 1):
        mine = group == g
        held = miss[mine] if mine.any() else miss
        rows.append(tuple(np.quantile(held, QUANTILES).tolist()))
        ratio = (
            (followed[mine].mean() + 1) / (np.expm1(score[mine]).mean() + 1) if mine.any() else 1
        )
        means.append(float(ratio))
    return Calibration(tuple(cuts.tolist()), QUANTILES, tuple(rows), tuple(means))


def evaluate_arrivals(
    history: Arrivals,
    test_from_s: float,
    *,
    leads: Sequence[Lead] = LEADS[:3],
    lightgbm: bool = True,
    preset: str = "full",
    seed: int = 0,
) -> dict[str, Any]:
    """Return the errors of forecasts of the arrivals after `test_from_s` (seconds since the epoch),
    by a model fitted on earlier ones and by baselines.

    The result maps "series@lead" to figures: the MAE per model (`ga2m`, `last_value`, `naive_1d`,
    `naive_7d`, `constant_median`, `lightgbm_l1`, and that rounded to whole counts), the coverage of
    50, 80 and 95 % intervals, and the mean pinball loss over the quantiles on ln(1 + count), of the
    model and of LightGBM's quantile regression.
    """
    bins = len(history.jobs)
    cut = int((test_from_s - history.first_bin_s) // BIN_S)
    before = history.until(max(cut, 0))
    if not before.enough or cut >= bins:
        raise TrainingError("too little before or nothing after the time to test from")
    model = fit_arrivals(before, leads=leads, preset=preset, seed=seed).model
    result: dict[str, Any] = {}
    for series in SERIES:
        for lead in leads:
            key = f"{series}@{lead.name}"
            at = np.arange(cut - lead.ahead, bins - lead.ahead - lead.width + 1)
            truth = arrivals_at(history, series, at, lead)
            frame = _frame(history, at, lead)
            guesses = _naive(history, series, at, lead)
            guesses["constant_median"] = np.full(len(at), np.median(history.counts[series][:cut]))
            score = model.models[key].score_batch(frame)
            guesses["ga2m"] = np.round(np.maximum(np.expm1(score), 0.0)).astype(np.float64)
            row: dict[str, Any] = _intervals(model.calibrations[key], score, truth)
            if lightgbm:
                more, pinball = _forest(before, series, lead, frame, truth=truth, seed=seed)
                guesses |= more
                row["lightgbm_pinball"] = pinball
            mae = {name: float(np.abs(g - truth).mean()) for name, g in guesses.items()}
            result[key] = {"bins": len(at), "mae": mae, **row}
    return result


def _naive(history: Arrivals, series: str, at: Ints, lead: Lead) -> dict[str, Floats]:
    counts = history.counts[series]
    target = at + lead.ahead
    return {
        "last_value": counts[at],
        "naive_1d": counts[target - DAY_BINS],
        "naive_7d": counts[target - 7 * DAY_BINS],
    }


def _intervals(table: Calibration, score: Floats, truth: Floats) -> dict[str, float]:
    misses = np.array(table.misses)[np.searchsorted(table.levels, score, side="right")]
    bounds = score[:, None] + misses
    rounded = np.round(np.maximum(np.expm1(bounds), 0.0))  # counts are whole
    level = {q: i for i, q in enumerate(table.quantiles)}
    inside = {
        f"coverage_{name}": float(
            ((truth >= rounded[:, level[a]]) & (truth <= rounded[:, level[b]])).mean()
        )
        for name, a, b in (("50", 0.25, 0.75), ("80", 0.1, 0.9), ("95", 0.025, 0.975))
    }
    return {**inside, "pinball": pinball(bounds, np.log1p(truth), table.quantiles)}


def pinball(bounds: Floats, truth: Floats, levels: Sequence[float]) -> float:
    """Return the pinball loss, averaged over rows and quantile levels.

    Args:
        bounds: predicted quantiles, (n, levels).
        truth: true values, (n,).
        levels: the levels of the quantiles, 0 to 1.
    """
    miss = truth[:, None] - bounds
    q = np.asarray(levels)
    return float(np.maximum(q * miss, (q - 1) * miss).mean())


def _forest(
    before: Arrivals, series: str, lead: Lead, frame: pd.DataFrame, truth: Floats, seed: int
) -> tuple[dict[str, Floats], float]:
    """Fit LightGBM on the rows that the GA2M is fitted on. Return its predictions of the median for
    `frame`, by name (exact, and rounded to whole counts), and the pinball loss of its quantiles
    against `truth`, with one forest per quantile."""
    import lightgbm

    at = _training_bins(before, lead)
    X, y = _frame(before, at, lead), np.log1p(arrivals_at(before, series, at, lead))

    def fitted(**objective: Any) -> Floats:
        model = lightgbm.LGBMRegressor(
            n_estimators=300,
            learning_rate=0.03,
            num_leaves=15,
            random_state=seed,
            n_jobs=1,
            verbose=-1,
            **objective,
        )
        return np.asarray(model.fit(X, y).predict(frame), dtype=np.float64)

    median = np.maximum(np.expm1(fitted(objective="l1")), 0.0)
    bounds = np.column_stack([fitted(objective="quantile", alpha=q) for q in QUANTILES])
    loss = pinball(np.sort(bounds, axis=1), np.log1p(truth), QUANTILES)
    whole = np.round(median).astype(np.float64)
    return {"lightgbm_l1": median, "lightgbm_l1_rounded": whole}, loss
