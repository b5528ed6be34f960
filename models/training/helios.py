"""The gradient-boosted half of Helios' QSSF (SC'21), and its forecast of busy nodes.

Helios' own training code was never released. What is known of it is a list of features; the rest
is ours: names are reduced to templates where theirs were clustered by edit distance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, tzinfo

import lightgbm
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from features.job import Job
from features.names import normalise

Floats = NDArray[np.float64]

NAMES = 100  # most frequent templates kept apart; the others share one by their first letter
_NOMINAL = 3  # user, virtual cluster and template come first


class HeliosForest:
    """Predicted seconds of jobs, from who submits them, what, how much, and when.

    Args:
        jobs, duration_s: the past; only jobs that have ended.
        zone: clock of the calendar features.
    """

    def __init__(
        self, jobs: Sequence[Job], duration_s: Floats, *, zone: tzinfo = UTC, seed: int = 0
    ):
        self._zone = zone
        counts = Counter(normalise(job.name) for job in jobs)
        self._kept = {name for name, _ in counts.most_common(NAMES)}
        self._codes: list[dict[str, int]] = [{} for _ in range(_NOMINAL)]
        for job in jobs:
            for codes, label in zip(self._codes, self._labels(job), strict=True):
                codes.setdefault(label, len(codes))
        self._model = lightgbm.LGBMRegressor(
            random_state=seed, n_jobs=1, deterministic=True, force_row_wise=True, verbose=-1
        )
        rows = self._rows(jobs)
        self._model.fit(rows, duration_s, categorical_feature=list(range(_NOMINAL)))

    def predict(self, jobs: Sequence[Job]) -> Floats:
        """Seconds, (n,); may be negative, as trees on raw seconds are."""
        return np.asarray(self._model.booster_.predict(self._rows(jobs)), dtype=np.float64)

    def _labels(self, job: Job) -> tuple[str, str, str]:
        name = normalise(job.name)
        return job.user, job.vc, name if name in self._kept else name[:1] + "*"

    def _rows(self, jobs: Sequence[Job]) -> Floats:
        """Features, (n, 9); a label never seen is missing."""
        rows = []
        for job in jobs:
            at = datetime.fromtimestamp(job.submit_time, self._zone)
            labels = zip(self._codes, self._labels(job), strict=True)
            rows.append(
                [
                    *(codes.get(label, np.nan) for codes, label in labels),
                    job.gpus,
                    np.nan if job.cpus is None else job.cpus,
                    *(at.month, at.day, at.hour, at.weekday()),
                ]
            )
        return np.array(rows, dtype=np.float64)


def node_features(series: Floats, time: Floats, zone: tzinfo = UTC) -> pd.DataFrame:
    """What is known of the number of busy nodes at each interval, from it and those before.

    Args:
        series: busy nodes per interval, (n,).
        time: when each interval ended, seconds since the epoch, (n,).
    """
    values = pd.Series(series)
    clock = pd.to_datetime(time, unit="s", utc=True).tz_convert(zone)
    columns: dict[str, object] = {
        "now": values,
        "minute": clock.hour * 60 + clock.minute,
        "weekday": clock.day_of_week,
        "day": clock.day,
        "hour_ago": values.shift(6),
        "day_ago": values.shift(144),
        "week_ago": values.shift(1008),
    }
    for width in (3, 6, 36):
        rolling = values.rolling(width, min_periods=1)
        columns[f"mean_{width}"] = rolling.mean()
        columns[f"std_{width}"] = rolling.std()
    return pd.DataFrame(columns)


class NodeForecaster:
    """Mean busy nodes over the next intervals, from a model fitted for just that horizon.

    The published forecast predicts each interval and was asked about intervals whose features
    were not known yet. Here the target is the mean itself, and every feature is known.

    Args:
        series, time: the past, see `node_features`.
        horizons: intervals ahead that will be asked for.
    """

    def __init__(
        self,
        series: Floats,
        time: Floats,
        horizons: Sequence[int],
        *,
        zone: tzinfo = UTC,
        seed: int = 0,
    ):
        self._zone = zone
        features = node_features(series, time, zone)
        total = np.concatenate([[0.0], np.cumsum(series)])
        self._models: dict[int, lightgbm.LGBMRegressor] = {}
        for horizon in horizons:
            rows = np.arange(len(series) - horizon)
            ahead = (total[rows + 1 + horizon] - total[rows + 1]) / horizon
            model = lightgbm.LGBMRegressor(
                random_state=seed, n_jobs=1, deterministic=True, force_row_wise=True, verbose=-1
            )
            # the change is what is learned: a level never seen before is no surprise to it
            model.fit(features.iloc[rows], ahead - series[rows])
            self._models[horizon] = model

    def predict(self, series: Floats, time: Floats, horizon: int) -> Floats:
        """Mean over the next `horizon` intervals, as of each interval of a series, (n,).

        Row i is computed from intervals up to i alone.
        """
        features = node_features(series, time, self._zone)
        change = self._models[horizon].predict(features)
        return np.maximum(np.asarray(change, dtype=np.float64) + series, 0.0)


def table_forecast(
    forecaster: NodeForecaster, series: Floats, time: Floats, horizons: Sequence[int]
) -> Callable[[Sequence[float], int], float]:
    """The forecaster as `scheduler.policies.ces` asks it, for a series replayed from its start.

    Everything is predicted at once, since no row looks ahead; the answer for a series of n
    values is that of row n - 1.
    """
    known = {h: forecaster.predict(series, time, h) for h in horizons}
    return lambda past, horizon: float(known[horizon][len(past) - 1])
