"""How long a job may last, as a whole: one GA2M per threshold, and intervals that keep their word.

Model k gives the log-odds that a job lasts longer than thresholds_s[k]; each is a sum of terms
like any other score. Together they are the distribution of the duration (distribution regression:
Foresi and Peracchi, JASA 1995), between the thresholds by straight lines in log-odds over
ln(1 + seconds). Intervals come from its quantiles at calibrated levels (distributional conformal
prediction: Chernozhukov, Wuthrich and Zhu, PNAS 2021): a level q is asked for at the level that,
on the latest days, a share q of the jobs stayed below.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from features.spec import FeatureSpec, Value
from models.bundle.additive import AdditiveModel, Explanation
from models.bundle.curve import Curve
from models.bundle.errors import BundleError

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """Which level of the fitted distribution to read for a level asked for.

    Attributes:
        gpus_up_to: largest gang size of each class but the last, increasing.
        levels: for each class, the fitted level below which i / (m - 1) of the jobs stayed,
            i = 0..m-1; (classes, m), from 0 to 1, never falling.
    """

    gpus_up_to: tuple[int, ...]
    levels: Floats

    def __post_init__(self) -> None:
        if any(a >= b for a, b in zip(self.gpus_up_to, self.gpus_up_to[1:], strict=False)):
            raise BundleError("the GPU classes of the intervals do not increase")
        levels = self.levels
        if levels.ndim != 2 or levels.shape[0] != len(self.gpus_up_to) + 1 or levels.shape[1] < 2:
            raise BundleError(f"interval levels have shape {levels.shape}")
        ordered = np.isfinite(levels).all() and (np.diff(levels, axis=1) >= 0).all()
        if not ordered or levels.min() < 0 or levels.max() > 1:
            raise BundleError("interval levels must rise from 0 to 1")

    @classmethod
    def none(cls) -> Calibration:
        """Takes the fitted distribution at its word."""
        return cls((), np.array([[0.0, 1.0]]))

    def class_of(self, gpus: Any) -> NDArray[np.intp]:
        """Class of each gang size."""
        return np.asarray(np.searchsorted(np.array(self.gpus_up_to), np.asarray(gpus), side="left"))

    def fitted(self, level: Floats, classes: NDArray[np.intp]) -> Floats:
        """Fitted levels for calibrated ones; arrays of one shape."""
        return self._map(level, classes, forward=True)

    def calibrated(self, fitted: Floats, classes: NDArray[np.intp]) -> Floats:
        """The inverse of `fitted`."""
        return self._map(fitted, classes, forward=False)

    def _map(self, values: Floats, classes: NDArray[np.intp], forward: bool) -> Floats:
        out = np.empty(values.shape)
        grid = np.linspace(0.0, 1.0, self.levels.shape[1])
        for k in np.unique(classes).tolist():
            mine = classes == k
            x, y = (grid, self.levels[k]) if forward else (self.levels[k], grid)
            out[mine] = np.interp(values[mine], x, y)
        return out


class Tails:
    """Chances to outlast thresholds, and the quantiles they imply. Immutable.

    Args:
        thresholds_s: increasing, seconds.
        models: one per threshold, link "logit", all with the same features.
        calibration: of the intervals.

    Raises BundleError when the parts do not fit together.
    """

    def __init__(
        self,
        thresholds_s: Iterable[float],
        models: Iterable[AdditiveModel],
        calibration: Calibration | None = None,
    ) -> None:
        self.thresholds_s = tuple(float(t) for t in thresholds_s)
        self.models = tuple(models)
        self.calibration = calibration or Calibration.none()
        if not self.models or len(self.models) != len(self.thresholds_s):
            raise BundleError(
                f"{len(self.thresholds_s)} thresholds and {len(self.models)} models do not match"
            )
        ascending = zip((0.0, *self.thresholds_s), self.thresholds_s, strict=False)
        if not all(a < b < float("inf") for a, b in ascending):
            raise BundleError("thresholds must be positive and increase")
        self.features: tuple[FeatureSpec, ...] = self.models[0].features
        if any(m.link != "logit" or m.features != self.features for m in self.models):
            raise BundleError("the models of the thresholds must share features and give log-odds")
        self.curve = Curve(self.thresholds_s)
        names = [spec.name for spec in self.features]
        self._limit = names.index("time_limit_s") if "time_limit_s" in names else None
        self._gpus = names.index("gpus") if "gpus" in names else None

    def explain(self, row: Sequence[Value], threshold_s: float) -> Explanation:
        """Log-odds to outlast a threshold of this model, with exact terms."""
        i = bisect_left(self.thresholds_s, threshold_s)
        if i == len(self.thresholds_s) or self.thresholds_s[i] != threshold_s:
            accepted = ", ".join(f"{t:g}" for t in self.thresholds_s)
            raise BundleError(f"threshold_s is {threshold_s:g}, must be one of {accepted}")
        return self.models[i].explain(row)

    def logits(self, row: Sequence[Value]) -> Floats:
        """Log-odds to outlast each threshold, never rising, (thresholds,)."""
        scores = np.array([model.score(row) for model in self.models])
        return np.minimum.accumulate(scores)

    def logits_batch(self, columns: Any) -> Floats:
        """The same for n rows, (n, thresholds)."""
        scores = np.stack([model.score_batch(columns) for model in self.models], axis=1)
        return np.minimum.accumulate(scores, axis=1)

    def quantiles(
        self, row: Sequence[Value], levels: Sequence[float], *, elapsed_s: float = 0.0
    ) -> tuple[float, ...]:
        """Durations (seconds) that a share `levels` of jobs like this one stay below.

        Of a job that has run for `elapsed_s` already, among those that have lasted as long.
        """
        number = float("nan")
        limit = number if self._limit is None else row[self._limit]
        gpus = 1 if self._gpus is None else row[self._gpus]
        found = self.quantiles_of(
            self.logits(row)[None],
            levels,
            gpus=np.array([gpus], dtype=np.float64),
            elapsed_s=np.array([elapsed_s], dtype=np.float64),
            limit_s=np.array([limit], dtype=np.float64),
        )
        return tuple(found[0].tolist())

    def quantiles_batch(self, columns: Any, levels: Sequence[float]) -> Floats:
        """Quantiles (seconds) of n rows at submission, (n, levels)."""
        logits = self.logits_batch(columns)
        n = len(logits)

        def column(name: str, index: int | None, default: float) -> Floats:
            if index is None:
                return np.full(n, default)
            return np.asarray(columns[name], dtype=np.float64)

        return self.quantiles_of(
            logits,
            levels,
            gpus=column("gpus", self._gpus, 1.0),
            elapsed_s=np.zeros(n),
            limit_s=column("time_limit_s", self._limit, float("nan")),
        )

    def quantiles_of(
        self,
        logits: Floats,
        levels: Sequence[float],
        *,
        gpus: Floats,
        elapsed_s: Floats,
        limit_s: Floats | None = None,
    ) -> Floats:
        """Quantiles (seconds) from log-odds (n, thresholds), calibrated, (n, levels)."""
        classes = self.calibration.class_of(gpus)
        lived = self.calibration.calibrated(self.curve.level_of(logits, elapsed_s), classes)
        lived = np.where(elapsed_s > 0, lived, 0.0)
        asked = np.asarray(levels, dtype=np.float64)
        wanted = lived[:, None] + asked[None, :] * (1.0 - lived[:, None])
        fitted = self.calibration.fitted(wanted, np.repeat(classes[:, None], len(asked), axis=1))
        found = np.expm1(self.curve.invert(logits, fitted))
        found = np.maximum(found, elapsed_s[:, None])
        if limit_s is not None:
            found = np.fmin(found, limit_s[:, None])
        return np.asarray(found)

    def parts(self) -> tuple[dict[str, Any], dict[str, AdditiveModel]]:
        """Settings and tables, as a bundle keeps them."""
        settings = {
            "thresholds_s": list(self.thresholds_s),
            "gpus_up_to": list(self.calibration.gpus_up_to),
            "levels": self.calibration.levels.tolist(),
        }
        return settings, {
            f"over_{t:g}s": m for t, m in zip(self.thresholds_s, self.models, strict=True)
        }

    @classmethod
    def from_parts(cls, settings: Mapping[str, Any], models: Mapping[str, AdditiveModel]) -> Tails:
        """The model that `parts` took apart."""
        thresholds = [float(t) for t in settings["thresholds_s"]]
        gpus = tuple(int(bound) for bound in settings["gpus_up_to"])
        levels = np.array(settings["levels"], dtype=np.float64)
        return cls(
            thresholds, [models[f"over_{t:g}s"] for t in thresholds], Calibration(gpus, levels)
        )


def _name(threshold_s: float) -> str:
    return f"over_{threshold_s:g}s"
