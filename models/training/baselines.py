"""Baseline models that the GA2M (the additive model of durations) is compared with. They make no
decisions."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Literal

import lightgbm
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from features.spec import FeatureSpec
from models.training.duration import checked_frame
from models.training.settled import on_grid

Floats = NDArray[np.float64]


def fit_lightgbm(
    X: pd.DataFrame,
    duration_s: Floats,
    specs: Sequence[FeatureSpec],
    *,
    seed: int,
    objective: Literal["l1", "l2", "quantile", "binary"] = "l1",
    alpha: float = 0.5,
    log: bool = True,
) -> Callable[[pd.DataFrame], Floats]:
    """Fit LightGBM's gradient-boosted trees on the rows `X` of ended jobs. Return a function from
    rows to predictions.

    The objective "l1" (median) has the better MAE and rank correlation, "l2" (mean) finds long jobs
    better; "quantile" predicts the quantile of level `alpha`. With `log` true the target is ln(1 +
    `duration_s`). With `log` false it is `duration_s` itself: 0 or 1 for "binary", which predicts
    probabilities.
    """
    known = {
        spec.name: pd.CategoricalDtype(sorted(set(X[spec.name].dropna())))
        for spec in specs
        if spec.kind == "nominal"
    }

    def encode(frame: pd.DataFrame) -> pd.DataFrame:
        checked = checked_frame(frame, specs)
        for name, dtype in known.items():
            column = checked[name]
            checked[name] = column.where(column.isin(dtype.categories), None).astype(dtype)
        return checked

    model = lightgbm.LGBMRegressor(
        objective=objective,
        alpha=alpha,
        n_estimators=200,
        learning_rate=0.05,
        num_leaves=31,
        min_child_samples=min(50, max(2, len(X) // 40)),
        random_state=seed,
        n_jobs=1,
        deterministic=True,
        force_row_wise=True,
        verbose=-1,
    )
    model.fit(encode(X), on_grid(np.log1p(duration_s)) if log else duration_s)
    return lambda frame: np.asarray(model.predict(encode(frame)), dtype=np.float64)


def ewma_scores(
    user: Sequence[object],
    gpus: NDArray[np.int64],
    submit_time: Floats,
    end_time: Floats,
    duration_s: Floats,
    *,
    weight: float = 0.3,
) -> Floats:
    """Return, for each job, the exponential moving average of ln(1 + seconds) of jobs that had
    ended before it was submitted: those of the same (user, GPUs), otherwise of the same user,
    otherwise all.

    Args:
        user: submitting user of each job, (n,).
        gpus, submit_time, end_time, duration_s: of each job, (n,); NaN end or duration never enters
            an average.
        weight: weight of the newest job.

    The result has one value per job, (n,); NaN before any job has ended.
    """
    target = np.log1p(duration_s)
    groups: list[tuple[tuple[object, ...], ...]] = [
        ((who, int(g)), (who,), ()) for who, g in zip(user, gpus, strict=True)
    ]
    average: dict[tuple[object, ...], float] = defaultdict(lambda: np.nan)
    scores = np.full(len(target), np.nan)
    running: list[tuple[float, int]] = []
    for i in np.argsort(submit_time, kind="stable").tolist():
        while running and running[0][0] <= submit_time[i]:
            _, ended = heapq.heappop(running)
            for group in groups[ended]:
                old = average[group]
                new = target[ended]
                average[group] = new if np.isnan(old) else old + weight * (new - old)
        known = (average[group] for group in groups[i])
        scores[i] = next((value for value in known if not np.isnan(value)), np.nan)
        if np.isfinite(end_time[i]) and np.isfinite(target[i]):
            heapq.heappush(running, (float(end_time[i]), i))
    return scores
