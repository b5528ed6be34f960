"""Rolling, causal evaluation of everything a job's duration is believed to be.

Every `refit_s` all models are fitted on what was known by then, ended jobs and running ones, and
predict what is submitted until the next refit; intervals are calibrated on the predictions of the
days before. The yardsticks see the same rows at the same moments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from features.rows import DAY_S, Rows
from features.survival import THRESHOLDS_S
from models.bundle import Calibration, Tails
from models.training.blend import earned_weight
from models.training.duration import DurationPreset, fit_duration
from models.training.evaluation import EARLY_S, LN10, TAILS_S, auc, duration_metrics
from models.training.intervals import DAYS, calibrate
from models.training.tails import FittedTails, fit_tails
from models.training.yardsticks import fit_lightgbm

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

# Edges of the central intervals of 50, 80 and 95 %, and the median.
LEVELS = (0.025, 0.1, 0.25, 0.5, 0.75, 0.9, 0.975)
INTERVALS = {"50": (2, 4), "80": (1, 5), "95": (0, 6)}
LEAST = 200
# Days of forecasts that decide the weight of the GA2Ms of the thresholds.
EARNED_DAYS = 7.0


@dataclass(slots=True)
class Forecasts:
    """What each model said of each row when its job was submitted; NaN where it was not asked.

    Attributes:
        scores: ln(1 + seconds), by model, (n,).
        tails: log-odds or any score to last over 1 h and 6 h, by model, (n, 2).
        early: chance to end within the profiling limit, by model, (n,).
        quantiles: seconds at LEVELS, by model, (n, levels).
        cpu_s: CPU seconds of each refit's own models.
    """

    scores: dict[str, Floats] = field(default_factory=dict)
    tails: dict[str, Floats] = field(default_factory=dict)
    early: dict[str, Floats] = field(default_factory=dict)
    quantiles: dict[str, Floats] = field(default_factory=dict)
    cpu_s: list[float] = field(default_factory=list)

    def put(self, kind: str, name: str, rows: Mask, values: Floats) -> None:
        """Stores `values` of the rows of a mask."""
        table: dict[str, Floats] = getattr(self, kind)
        if name not in table:
            table[name] = np.full((len(rows), *values.shape[1:]), np.nan)
        table[name][rows] = values


def roll(
    rows: Rows,
    *,
    yardsticks_from: float,
    since: float = float("-inf"),
    refit_s: float = DAY_S,
    preset: str | DurationPreset = "fast",
    seed: int = 0,
    forest: bool = True,
    tail_forest: bool = True,
    progress: Callable[[int], None] | None = None,
) -> Forecasts:
    """Forecasts of all rows from the second refit on.

    Args:
        rows: at submission, in time order, with the family `survival`.
        yardsticks_from: when the forests that take long (quantiles) are first fitted.
        since: first time anything is forecast.
        refit_s, preset, seed: see `fit_duration`.
        forest, tail_forest: whether LightGBM is fitted, and its classifiers and quantiles.
        progress: told the number of refits done.
    """
    out = Forecasts()
    logits = np.full((len(rows), len(THRESHOLDS_S)), np.nan)
    unblended = np.full_like(logits, np.nan)
    first = float(np.floor(rows.time.min() / DAY_S) * DAY_S)
    cuts = np.arange(first, float(rows.time.max()) + 1e-9, refit_s).tolist()
    for done, cut in enumerate(cuts):
        ahead = (rows.time >= cut) & (rows.time < cut + refit_s)
        if not ahead.any() or cut < since:
            continue
        _baseline(out, rows, ahead)
        if (rows.end_time < cut).sum() >= LEAST:
            _own(out, rows, ahead, cut, (logits, unblended), preset, seed)
            if forest:
                _forest(out, rows, ahead, cut, seed)
            if tail_forest and cut >= yardsticks_from:
                _tail_forest(out, rows, ahead, cut, seed)
        if progress is not None:
            progress(done + 1)
    return out


def _baseline(out: Forecasts, rows: Rows, ahead: Mask) -> None:
    """The survival features alone: what is believed before any model is fitted."""
    X = rows.X
    out.put("scores", "history", ahead, X["like_log_s"].to_numpy()[ahead])
    tails = X[["like_over_1h", "like_over_6h"]].to_numpy()
    out.put("tails", "history", ahead, tails[ahead])


def known_by(rows: Rows, cut: float) -> tuple[Rows, Floats, Floats]:
    """Rows submitted before `cut`, their durations (NaN of running jobs) and elapsed seconds."""
    seen = rows.where((rows.time < cut) & (np.isfinite(rows.y) | np.isnan(rows.end_time)))
    ended = seen.end_time < cut
    duration = np.where(ended, seen.y, np.nan)
    elapsed = np.where(ended, seen.y, cut - seen.start_time)
    return seen, duration, np.maximum(elapsed, 0.0)


def _own(
    out: Forecasts,
    rows: Rows,
    ahead: Mask,
    cut: float,
    past: tuple[Floats, Floats],
    preset: str | DurationPreset,
    seed: int,
) -> None:
    logits, unblended = past  # of every row forecast so far
    seen, duration, elapsed = known_by(rows, cut)
    began = seen.start_time < cut
    fitted = fit_duration(
        seen.X[began],
        duration[began],
        seen.time[began],
        seen.features,
        seed=seed,
        preset=preset,
        elapsed_s=elapsed[began],
    )
    chances = fit_tails(
        seen.X,
        duration,
        seen.start_time,
        cut,
        seen.features,
        seed=seed,
        preset=preset,
        weights=earned_weights(rows, unblended, cut),
    )
    out.cpu_s.append(fitted.cpu_s + chances.cpu_s)
    X = rows.X[ahead]
    models = chances.tails
    logits[ahead] = models.logits_batch(X)
    for k, alone in enumerate(chances.own):
        if alone is not None:
            unblended[ahead, k] = alone.score_batch(X)
    tails = Tails(models.thresholds_s, models.models, lately(rows, logits, models, cut))
    wanted = [models.thresholds_s.index(limit) for limit in TAILS_S.values()]
    out.put("scores", "ga2m", ahead, fitted.model.score_batch(X))
    scores = [models.models[k].score_batch(X) for k in wanted]
    out.put("tails", "ga2m", ahead, np.stack(scores, axis=1))
    limit = np.full(int(ahead.sum()), EARLY_S)
    out.put("early", "ga2m", ahead, models.curve.level_of(logits[ahead], limit))
    quantiles = tails.quantiles_batch(X, LEVELS)
    out.put("quantiles", "ga2m", ahead, quantiles)
    plain = models.quantiles_batch(X, LEVELS)
    out.put("quantiles", "ga2m_uncalibrated", ahead, plain)
    # As a point the fitted median, which ranks jobs; calibration shifts all jobs of a class alike.
    out.put("scores", "ga2m_median", ahead, np.log1p(plain[:, LEVELS.index(0.5)]))


def earned_weights(rows: Rows, unblended: Floats, cut: float) -> dict[str, float]:
    """Weights of the GA2Ms by threshold, from forecasts of the last days whose outcome is known.

    Args:
        unblended: log-odds the GA2Ms alone forecast, (n, thresholds); NaN where they did not.
    """
    found = {}
    for k, (name, limit) in enumerate(THRESHOLDS_S.items()):
        feature = f"like_over_{name}"
        if feature not in rows.X:
            continue
        known = (rows.time < cut) & (rows.start_time + limit < cut) & np.isfinite(unblended[:, k])
        known &= rows.time >= cut - EARNED_DAYS * DAY_S - limit
        odds = rows.X[feature].to_numpy()[known]
        weight = earned_weight(unblended[known, k], odds, ~(rows.y[known] <= limit))
        if weight is not None:
            found[name] = weight
    return found


def lately(rows: Rows, logits: Floats, tails: Tails, cut: float) -> Calibration:
    """Calibration on the forecasts made in the last days before `cut`."""
    recent = (rows.time < cut) & (rows.time >= cut - DAYS * DAY_S) & np.isfinite(logits[:, 0])
    recent &= rows.start_time < cut
    if not recent.any():
        return Calibration.none()
    ended = rows.end_time[recent] < cut
    lasted = np.where(ended, rows.y[recent], np.maximum(cut - rows.start_time[recent], 0.0))
    return calibrate(tails.curve.level_of(logits[recent], lasted), ended, rows.gpus[recent])


def export_tails(rows: Rows, cut: float, *, preset: str | DurationPreset, seed: int) -> FittedTails:
    """Chances to outlast thresholds as known at `cut`, their intervals calibrated.

    Calibrated on what models fitted `intervals.DAYS` days earlier (or halfway through a shorter
    history) said of the jobs since. Raises TrainingError when there is nothing to learn from.
    """
    began = float(rows.time.min())
    earlier = max(cut - DAYS * DAY_S, began + (cut - began) / 2)
    logits = np.full((len(rows), len(THRESHOLDS_S)), np.nan)
    since = (rows.time >= earlier) & (rows.time < cut)
    calibration = Calibration.none()
    if since.any() and (rows.end_time < earlier).sum() >= LEAST:
        past = _tails(rows, earlier, preset=preset, seed=seed)
        logits[since] = past.tails.logits_batch(rows.X[since])
        calibration = lately(rows, logits, past.tails, cut)
    return _tails(rows, cut, preset=preset, seed=seed, calibration=calibration)


def _tails(rows: Rows, cut: float, **chosen: Any) -> FittedTails:
    seen, duration, _ = known_by(rows, cut)
    return fit_tails(seen.X, duration, seen.start_time, cut, seen.features, **chosen)


def _forest(out: Forecasts, rows: Rows, ahead: Mask, cut: float, seed: int) -> None:
    seen = rows.ended_before(cut)
    for objective in ("l1", "l2"):
        model = fit_lightgbm(seen.X, seen.y, seen.features, seed=seed, objective=objective)
        out.put("scores", f"lightgbm_{objective}", ahead, model(rows.X[ahead]))
    median = float(np.median(np.log1p(seen.y)))
    out.put("scores", "constant_median", ahead, np.full(int(ahead.sum()), median))


def _tail_forest(out: Forecasts, rows: Rows, ahead: Mask, cut: float, seed: int) -> None:
    seen, duration, _ = known_by(rows, cut)
    chances = []
    for limit in TAILS_S.values():
        known = seen.start_time + limit < cut
        longer = (~(duration[known] <= limit)).astype(np.float64)
        model = fit_lightgbm(
            seen.X[known], longer, seen.features, seed=seed, objective="binary", log=False
        )
        chances.append(model(rows.X[ahead]))
    out.put("tails", "lightgbm", ahead, np.stack(chances, axis=1))
    known = seen.start_time + EARLY_S < cut
    early = (duration[known] <= EARLY_S).astype(np.float64)
    model = fit_lightgbm(
        seen.X[known], early, seen.features, seed=seed, objective="binary", log=False
    )
    out.put("early", "lightgbm", ahead, model(rows.X[ahead]))
    past = rows.ended_before(cut)
    found = []
    for level in LEVELS:
        model = fit_lightgbm(
            past.X, past.y, past.features, seed=seed, objective="quantile", alpha=level
        )
        found.append(model(rows.X[ahead]))
    out.put("quantiles", "lightgbm", ahead, np.expm1(np.sort(np.stack(found, axis=1), axis=1)))


def figures(out: Forecasts, rows: Rows, mask: Mask) -> dict[str, dict[str, float]]:
    """`duration_metrics` of every model on the rows of a mask, with the AUCs of its tails."""
    y, gpus = rows.y[mask], rows.gpus[mask]
    found = {
        name: duration_metrics(score[mask], y, gpus)
        for name, score in out.scores.items()
        if np.isfinite(score[mask]).all()
    }
    for name, tails in out.tails.items():
        if np.isfinite(tails[mask]).all():
            for i, (key, limit) in enumerate(TAILS_S.items()):
                column = found.setdefault(name, {"n": float(len(y))})
                column[f"tail_{key}"] = auc(tails[mask][:, i], y > limit)
    for name, chance in out.early.items():
        if mask.any() and np.isfinite(chance[mask]).all():
            column = found.setdefault(name, {"n": float(len(y))})
            ended = y <= EARLY_S
            column["early_auc"] = auc(chance[mask], ended)
            column["early_brier"] = float(np.square(chance[mask] - ended).mean())
            column["early_said"] = float(chance[mask].mean())
            column["early_true"] = float(ended.mean())
    return found


def interval_figures(
    quantiles: Floats, y: Floats, groups: Sequence[tuple[str, Mask]]
) -> dict[str, dict[str, float]]:
    """Coverage (percent) of the central intervals, their width and pinball loss, by group.

    Width: log10(high / low) on average. Pinball: mean over LEVELS, of ln(1 + seconds).
    """
    found = {}
    for name, mask in groups:
        low_high = np.log1p(quantiles[mask])
        target = np.log1p(y[mask])
        row = {"n": float(mask.sum())}
        for label, (low, high) in INTERVALS.items():
            inside = (target >= low_high[:, low]) & (target <= low_high[:, high])
            row[f"coverage_{label}"] = 100.0 * float(inside.mean()) if len(inside) else np.nan
            width = (low_high[:, high] - low_high[:, low]) / LN10
            row[f"width_{label}"] = float(width.mean()) if len(width) else np.nan
        error = target[:, None] - low_high
        loss = np.maximum(np.array(LEVELS) * error, (np.array(LEVELS) - 1.0) * error)
        row["pinball"] = float(loss.mean()) if len(loss) else np.nan
        found[name] = row
    return found
