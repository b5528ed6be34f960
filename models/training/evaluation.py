"""Evaluates duration models: refitted at intervals, predicting only later jobs, compared with
baselines on the same rows."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats
from scipy.stats import t as student

from features.rows import DAY_S, Rows
from models.bundle import AdditiveModel
from models.training.baselines import ewma_scores, fit_lightgbm
from models.training.duration import DurationPreset, fit_at
from models.training.errors import TrainingError
from models.training.metrics import TAILS_S, Floats, duration_metrics

GPUS_UP_TO = (1, 4, 8)  # classes of gang size that errors are shown by: 1; 2 to 4; 5 to 8; more


@dataclass(frozen=True, slots=True)
class DurationEvaluation:
    """Metrics of each model, and the predictions that they are computed from.

    Attributes:
        metrics: model name -> `duration_metrics`.
        scores: model name -> predictions, one per row of `rows`.
        rows: the test rows.
        refits: number of models that were fitted.
    """

    metrics: Mapping[str, Mapping[str, float]]
    scores: Mapping[str, Floats]
    rows: Rows
    refits: int


def evaluate_duration(
    rows: Rows,
    *,
    test_from: float,
    refit_every_s: float = DAY_S,
    user: Sequence[object] | None = None,
    preset: str | DurationPreset = "fast",
    seed: int = 0,
    lightgbm: bool = True,
    shown: Callable[[int, int], None] | None = None,
) -> DurationEvaluation:
    """Refit the model at intervals on the jobs known by then, ended and running ones. Predict the
    jobs submitted until the next refit, and return the metrics of the model and of the baselines,
    which are fitted on ended jobs alone.

    Args:
        rows: feature rows in time order, one per job.
        test_from: time from which on jobs are predicted, seconds since the epoch.
        refit_every_s: seconds between refits.
        user: user of each row, for the baseline of moving averages; None: without that baseline.
        preset, seed: see `fit_at`.
        lightgbm: whether LightGBM is fitted as a baseline, for the median and for the mean.
        shown: called with (refits done, all refits), for a progress bar.

    Raises TrainingError if too few jobs had ended at the first refit, or if no job is left to test.
    """
    test = (rows.time >= test_from) & np.isfinite(rows.y)
    if not test.any():
        raise TrainingError("no ended job to test on after the time given")
    tested = rows.where(test)
    names = ["ga2m", "constant_median", *(["lightgbm_l1", "lightgbm_l2"] if lightgbm else [])]
    scores = {name: np.full(len(tested), np.nan) for name in names}
    cuts = np.arange(test_from, tested.time.max() + 1e-9, refit_every_s)
    refits = 0
    for done, cut in enumerate(cuts.tolist()):
        if shown is not None:
            shown(done, len(cuts))
        window = (tested.time >= cut) & (tested.time < cut + refit_every_s)
        if not window.any():
            continue
        ahead = tested.where(window)
        for name, predict in _fit_all(rows, cut, preset, seed, lightgbm=lightgbm).items():
            scores[name][window] = predict(ahead)
        refits += 1
    if user is not None:
        everyone = ewma_scores(
            user, rows.gpus, submit_time=rows.time, end_time=rows.end_time, duration_s=rows.y
        )
        scores["ewma_user_gpus"] = everyone[test]
    metrics = {
        name: duration_metrics(score, tested.y, tested.gpus) for name, score in scores.items()
    }
    return DurationEvaluation(metrics, scores, tested, refits)


def by_day(found: DurationEvaluation) -> dict[str, dict[str, float]]:
    """Return the uncertainty of each metric: model -> metric -> half the width of its 95 % interval
    over days (UTC).

    Days on which a metric is not defined are left out, and so is a metric with fewer than five
    days.
    """
    rows, wide = found.rows, {}
    day = rows.time // DAY_S
    each = [day == one for one in np.unique(day)]
    for model, score in found.scores.items():
        daily = [duration_metrics(score[one], rows.y[one], rows.gpus[one]) for one in each]
        wide[model] = {
            name: float(student.ppf(0.975, len(values) - 1) * stats.sem(values))
            for name in daily[0]
            if name != "n"
            and len(values := [v for figures in daily if np.isfinite(v := figures[name])]) > 4
        }
    return wide


def slices(
    found: DurationEvaluation, cuts: Mapping[str, Sequence[object]]
) -> dict[str, dict[str, dict[str, float]]]:
    """Return the errors (`duration_metrics`) of the GA2M for groups of rows, as property -> value
    -> figures. For each property only the 8 largest groups are returned, the largest first.

    Args:
        cuts: property ("vc") -> its value for every row of `found.rows`.
    """
    rows, score = found.rows, found.scores["ga2m"]
    result: dict[str, dict[str, dict[str, float]]] = {}
    for cut, values in cuts.items():
        labels = np.array([str(value) for value in values], dtype=object)
        names, sizes = np.unique(labels, return_counts=True)
        for name in names[np.argsort(-sizes, kind="stable")][:8].tolist():
            mine = labels == name
            result.setdefault(cut, {})[name] = duration_metrics(
                score[mine], rows.y[mine], rows.gpus[mine]
            )
    return result


def _fit_all(
    rows: Rows, cut: float, preset: str | DurationPreset, seed: int, lightgbm: bool
) -> dict[str, Callable[[Rows], Floats]]:
    fitted = fit_at(rows, cut, seed=seed, preset=preset)
    seen = rows.ended_before(cut)
    median = float(np.median(np.log1p(seen.y)))
    predict: dict[str, Callable[[Rows], Floats]] = {
        "ga2m": lambda ahead: fitted.model.score_batch(ahead.X),
        "constant_median": lambda ahead: np.full(len(ahead), median),
    }
    if lightgbm:
        l1 = fit_lightgbm(seen.X, seen.y, seen.features, seed=seed, objective="l1")
        l2 = fit_lightgbm(seen.X, seen.y, seen.features, seed=seed, objective="l2")
        predict["lightgbm_l1"] = lambda ahead: l1(ahead.X)
        predict["lightgbm_l2"] = lambda ahead: l2(ahead.X)
    return predict


def tail_auc(rows: Rows) -> Callable[[AdditiveModel], float]:
    """Return a function that computes, on `rows`, a model's mean AUC of "longer than 1 h" and
    "longer than 6 h".

    Long jobs matter most for a schedule. An AUC is not defined if all jobs, or none, are longer.
    Then the result is the other one; it is NaN if neither is defined.
    """

    def figure(model: AdditiveModel) -> float:
        metrics = duration_metrics(model.score_batch(rows.X), rows.y, rows.gpus)
        known = [metrics[name] for name in TAILS_S if np.isfinite(metrics[name])]
        return float(np.mean(known)) if known else float("nan")

    return figure


def rows_digest(rows: Rows) -> str:
    """Return a digest (12 hex digits) of the rows' job ids, times and durations. It does not depend
    on the features."""
    digest = hashlib.sha256("\0".join(map(str, rows.job_id)).encode())
    digest.update(np.ascontiguousarray([rows.time, rows.y]).tobytes())
    return digest.hexdigest()[:12]
