"""Rolling evaluation of predicted job durations, without knowledge of the future.

Every day the model is fitted on what was known by then, ended jobs and running ones, and predicts
the jobs submitted until the next refit. The baselines see the same rows at the same times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import logit

from features.rows import DAY_S, Rows
from models.training.baselines import fit_lightgbm
from models.training.duration import EVIDENCE, LIKE, DurationPreset, fit_at
from models.training.metrics import LN10, TAILS_S, auc, duration_metrics

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

# Edges of the central intervals of 50, 80 and 95 %, and the median.
LEVELS = (0.025, 0.1, 0.25, 0.5, 0.75, 0.9, 0.975)
INTERVALS = {"50": (2, 4), "80": (1, 5), "95": (0, 6)}
LEAST = 200


@dataclass(slots=True)
class Forecasts:
    """The predictions of each model for each row, made at the job's submission; NaN where the model
    made none.

    Attributes:
        scores: predicted ln(1 + seconds): model -> (n,).
        tails: scores (such as log-odds) that the job lasts over 1 h and over 6 h: model -> (n, 2).
        quantiles: predicted seconds at the quantiles LEVELS: model -> (n, levels).
        cpu_s: CPU seconds of each refit of the model.
    """

    scores: dict[str, Floats] = field(default_factory=dict)
    tails: dict[str, Floats] = field(default_factory=dict)
    quantiles: dict[str, Floats] = field(default_factory=dict)
    cpu_s: list[float] = field(default_factory=list)

    def put(self, kind: str, name: str, rows: Mask, values: Floats) -> None:
        """Store a model's predictions for the rows in a mask.

        Args:
            kind: "scores", "tails" or "quantiles".
            name: name of the model.
            rows: mask of the predicted rows, (n,).
            values: one prediction per row of the mask.
        """
        table: dict[str, Floats] = getattr(self, kind)
        if name not in table:
            table[name] = np.full((len(rows), *values.shape[1:]), np.nan)
        table[name][rows] = values


def roll(
    rows: Rows,
    *,
    baselines_from: float,
    since: float = float("-inf"),
    preset: str | DurationPreset = "online",
    seed: int = 0,
    forest: bool = True,
    odds: Floats | None = None,
) -> Forecasts:
    """Return the predictions of all models for the rows, day by day. The model itself predicts from
    the first day on that has enough ended jobs.

    Args:
        rows: feature rows at submission, in time order, with the family `survival`.
        baselines_from: time, seconds since the epoch, from which on the slow baselines (forests for
            quantiles) are fitted.
        since: time, seconds since the epoch, from which on anything is predicted.
        preset, seed: see `fit_duration`.
        forest: whether LightGBM is fitted.
        odds: the log-odds, by the job histories alone, to outlast each of TAILS_S, (n, 2).
    """
    out = Forecasts()
    first = float(np.floor(rows.time.min() / DAY_S) * DAY_S)
    cuts = np.arange(first, float(rows.time.max()) + 1e-9, DAY_S).tolist()
    for cut in cuts:
        ahead = (rows.time >= cut) & (rows.time < cut + DAY_S)
        if not ahead.any() or cut < since:
            continue
        _baseline(out, rows, ahead, odds)
        if (rows.end_time < cut).sum() >= LEAST:
            _own(out, rows, ahead, cut, preset=preset, seed=seed)
            if forest:
                _forest(out, rows, ahead, cut, seed=seed)
            if cut >= baselines_from:
                _tail_forest(out, rows, ahead, cut, seed=seed, odds=odds)
    return out


def _baseline(out: Forecasts, rows: Rows, ahead: Mask, odds: Floats | None) -> None:
    """Store in `out` the predictions by the survival features alone ("history") for the rows
    `ahead`."""
    out.put("scores", "history", ahead, typical(rows.X[ahead]))
    if odds is not None:
        out.put("tails", "history", ahead, odds[ahead])


def typical(X: pd.DataFrame) -> Floats:
    """Return the mean of ln(1 + seconds) by the histories of similar jobs, (n,): the sum of the
    survival features."""
    return np.asarray(X[list(LIKE)].to_numpy(np.float64).sum(axis=1))


def _own(
    out: Forecasts, rows: Rows, ahead: Mask, cut: float, preset: str | DurationPreset, seed: int
) -> None:
    fitted = fit_at(rows, cut, seed=seed, preset=preset)
    out.cpu_s.append(fitted.cpu_s)
    out.put("scores", "ga2m", ahead, fitted.model.score_batch(rows.X[ahead]))


def _forest(out: Forecasts, rows: Rows, ahead: Mask, cut: float, seed: int) -> None:
    seen, X = rows.ended_before(cut), rows.X[ahead]
    for objective in ("l1", "l2"):
        predicted = fit_lightgbm(seen.X, seen.y, seen.features, seed=seed, objective=objective)(X)
        out.put("scores", f"lightgbm_{objective}", ahead, predicted)
        weight = len(seen) / (len(seen) + EVIDENCE)
        blend = weight * predicted + (1.0 - weight) * typical(X)
        out.put("scores", f"lightgbm_{objective}_blended", ahead, blend)
    logs = np.log1p(seen.y)
    out.put("scores", "constant_median", ahead, np.full(len(X), np.median(logs)))
    by_gpus = {g: logs[seen.gpus == g].mean() for g in np.unique(seen.gpus)}
    guess = np.array([by_gpus.get(g, logs.mean()) for g in rows.gpus[ahead]])
    out.put("scores", "gpu_count", ahead, guess)


def _tail_forest(
    out: Forecasts, rows: Rows, ahead: Mask, cut: float, seed: int, odds: Floats | None
) -> None:
    seen = rows.known_by(cut)
    chances = []
    for limit in TAILS_S.values():
        known = seen.start_time + limit < cut
        longer = (~(seen.y[known] <= limit)).astype(np.float64)
        model = fit_lightgbm(
            seen.X[known], longer, seen.features, seed=seed, objective="binary", log=False
        )
        chances.append(model(rows.X[ahead]))
    predicted = np.stack(chances, axis=1)
    out.put("tails", "lightgbm", ahead, predicted)
    if odds is not None:
        weight = len(seen) / (len(seen) + EVIDENCE)
        blend = weight * logit(np.clip(predicted, 1e-3, 1 - 1e-3)) + (1.0 - weight) * odds[ahead]
        out.put("tails", "lightgbm_blended", ahead, blend)
    past = rows.ended_before(cut)
    found = []
    for level in LEVELS:
        model = fit_lightgbm(
            past.X, past.y, past.features, seed=seed, objective="quantile", alpha=level
        )
        found.append(model(rows.X[ahead]))
    out.put("quantiles", "lightgbm", ahead, np.expm1(np.sort(np.stack(found, axis=1), axis=1)))


def figures(out: Forecasts, rows: Rows, mask: Mask) -> dict[str, dict[str, float]]:
    """Return the `duration_metrics` of every model on the rows of a mask, with the AUC of its
    predictions of long jobs: model -> figure -> value. Models that did not predict all of these
    rows are left out."""
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
    return found


def interval_figures(
    quantiles: Floats, y: Floats, groups: Sequence[tuple[str, Mask]]
) -> dict[str, dict[str, float]]:
    """Return the coverage (percent) of the central intervals, their width and the pinball loss:
    group -> figure -> value.

    The width is log10(high / low) on average; the pinball loss is of ln(1 + seconds), on average
    over LEVELS.

    Args:
        quantiles: predicted seconds at LEVELS, (n, levels).
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
