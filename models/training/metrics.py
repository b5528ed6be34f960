"""Error figures of predicted durations. Replays use them too, so no training library is
imported."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LN10 = float(np.log(10.0))
TAILS_S = {"auc_1h": 3600.0, "auc_6h": 21_600.0}
# What the report and MLflow name a figure and the model it is of; MLflow takes no comma.
TITLES = {
    "n": "jobs",
    "spearman": "Spearman of duration",
    "spearman_gpu_time": "Spearman of GPU-time",
    "mae_log10": "MAE of log10",
    "rmse_log10": "RMSE of log10",
    "auc_1h": "AUC longer than 1 h",
    "auc_6h": "AUC longer than 6 h",
    "auc_early": "AUC ends within 200 s",
    "ga2m": "GA2M",
    "without_edits": "exported without edits",
    "with_edits": "exported with edits",
    "constant_median": "constant median",
    "lightgbm_l1": "LightGBM median",
    "lightgbm_l2": "LightGBM mean",
    "ewma_user_gpus": "moving average per user and GPUs",
}
EARLY_S = 200.0  # the profiling limit: what ends within it, mostly by failing, never needs a start


def duration_metrics(
    score: Floats, duration_s: Floats, gpus: NDArray[np.int64]
) -> dict[str, float]:
    """Return the errors of predicted ln(1 + seconds).

    Args:
        score: predictions, (n,); rows with NaN are left out.
        duration_s: true durations, seconds, (n,).
        gpus: numbers of GPUs, (n,).

    Returns a dict of figures: n; Spearman correlation of duration and of GPU-time; MAE and RMSE of
    log10(1 + seconds); AUC of "longer than 1 h" and "longer than 6 h", which matter for a schedule,
    and of "ends within the profiling limit". A figure that is not defined (one class only, constant
    prediction) is NaN.
    """
    known = np.isfinite(score) & np.isfinite(duration_s)
    score, duration_s, gpus = score[known], duration_s[known], gpus[known]
    error = (score - np.log1p(duration_s)) / LN10
    size = gpus.astype(np.float64)
    predicted_gpu_time = np.expm1(np.clip(score, 0.0, 50.0)) * size
    gpu_time = duration_s * size
    empty = len(error) == 0
    return {
        "n": float(len(error)),
        "spearman": _spearman(score, duration_s),
        "spearman_gpu_time": _spearman(predicted_gpu_time, gpu_time),
        "mae_log10": np.nan if empty else float(np.abs(error).mean()),
        "rmse_log10": np.nan if empty else float(np.sqrt(np.square(error).mean())),
        **{name: auc(score, duration_s > limit) for name, limit in TAILS_S.items()},
        "auc_early": auc(-score, duration_s <= EARLY_S),
    }


def auc(score: Floats, positive: NDArray[np.bool_]) -> float:
    """Return the probability that a positive row scores above a negative one, ties counting half.
    NaN if all rows are of one class."""
    p, n = int(positive.sum()), int((~positive).sum())
    if not p or not n:
        return float("nan")
    return float((_ranks(score)[positive].sum() - p * (p + 1) / 2) / (p * n))


def _spearman(a: Floats, b: Floats) -> float:
    if len(a) < 2 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return float("nan")
    return float(np.corrcoef(_ranks(a), _ranks(b))[0, 1])


def _ranks(values: Floats) -> Floats:
    """Return the ranks of values, from 1; equal values share the mean of theirs."""
    _, place, times = np.unique(values, return_inverse=True, return_counts=True)
    ranks: Floats = (np.cumsum(times) - (times - 1) / 2)[place]
    return ranks
