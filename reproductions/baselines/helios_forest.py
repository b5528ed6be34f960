"""The gradient-boosted trees of Helios' QSSF (SC'21).

Helios' own training code was never released; only a list of its features is known. The rest is
ours: names are reduced to templates, where theirs were clustered by edit distance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, tzinfo

import lightgbm
import numpy as np
from numpy.typing import NDArray

from features.job import Job
from features.names import normalise

Floats = NDArray[np.float64]

NAMES = 100  # most frequent templates kept apart; the others share one by their first letter
_NOMINAL = 3  # user, virtual cluster and template come first


class HeliosForest:
    """Predicts the duration of jobs, in seconds, from the user, name, size and submission time.

    Args:
        jobs, duration_s: ended jobs to learn from, and their durations.
        zone: time zone of the calendar features.
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
        """Return predicted seconds, (n,). They may be negative, since the trees are fitted to plain
        seconds.
        """
        return np.asarray(self._model.booster_.predict(self._rows(jobs)), dtype=np.float64)

    def _labels(self, job: Job) -> tuple[str, str, str]:
        name = normalise(job.name)
        return job.user, job.vc, name if name in self._kept else name[:1] + "*"

    def _rows(self, jobs: Sequence[Job]) -> Floats:
        """Return the features of jobs as an array (n, 9). A category that the training data did not
        have is NaN."""
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
