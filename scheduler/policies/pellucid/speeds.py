"""What pairs that shared GPUs were seen to do, set against what was believed of them.

Pair speeds are predicted from two profiles. Where that errs, it errs alike for jobs that look
alike, and a pair that runs shows its speeds within minutes. The errors seen are kept by the kinds
of profile of the two and, for kinds not yet seen together, by the kind of the one that is slowed;
both means are shrunk towards no error. Nothing is forgotten: speeds of hardware do not drift.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from math import isfinite

from features.job import Profile
from scheduler.core.decisions import PairPrediction
from scheduler.core.pairs import PairPredictor
from scheduler.core.queue import QueuedJob
from scheduler.core.tree_steps import TreeStep, corrected_step

Kind = tuple[int | None, int | None, int | None, bool | None]
STEPS = 5.0, 5.0, 1024.0  # percent, percent, MiB


@lru_cache(maxsize=65_536)
def kind_of(profile: Profile) -> Kind:
    """Jobs of one kind look the same but for the noise of a short look. None: was not read."""
    seen = profile.gpu_util_pct, profile.gpu_mem_util_pct, profile.gpu_mem_mib
    util, mem_util, mem = (
        round(x / step) if isfinite(x) else None for x, step in zip(seen, STEPS, strict=True)
    )
    return util, mem_util, mem, profile.amp


class _Mean:
    """A mean that starts from a belief."""

    __slots__ = ("count", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0

    def of(self, belief: float, weight: float) -> float:
        """The mean, with the belief counted as `weight` observations."""
        return (self.total + weight * belief) / (self.count + weight)


class Experienced:
    """A predictor whose pair speeds are corrected by the errors that it was seen to make.

    Args:
        pair_predictor: predicts.
        weight: how many observations its own prediction is worth.

    Attributes:
        seen: observations so far, one per member of a pair.
    """

    def __init__(self, pair_predictor: PairPredictor, weight: float = 1.0):
        self.pair_predictor = pair_predictor
        self.weight = weight
        self.seen = 0
        self._own: dict[Kind, _Mean] = {}
        self._pairs: dict[tuple[Kind, Kind], _Mean] = {}

    def predict_pair(self, newcomer: QueuedJob, partner: QueuedJob) -> PairPrediction | None:
        prediction = self.pair_predictor.predict_pair(newcomer, partner)
        own, other = newcomer.profile, partner.profile
        if not self.seen or prediction is None or prediction.speeds is None:
            return prediction
        if own is None or other is None:
            return prediction
        first, second = prediction.speeds
        a, b = kind_of(own), kind_of(other)
        speeds = self._corrected(a, b, first), self._corrected(b, a, second)
        if speeds == prediction.speeds:
            return prediction
        steps = (False, speeds[0]), (True, speeds[1])
        ends = tuple(str(TreeStep(whose, corrected_step(speed))) for whose, speed in steps)
        path = (*prediction.speed_path, *ends)
        return replace(prediction, speeds=speeds, speed_path=path)

    def learn(self, own: QueuedJob, other: QueuedJob, speed: float) -> None:
        """A job was seen to run at `speed` of its speed alone, beside another."""
        prediction = self.pair_predictor.predict_pair(own, other)
        if prediction is None or prediction.speeds is None or own.profile is None:
            return
        if other.profile is None:
            return
        error = speed - min(prediction.speeds[0], 1.0)
        a, b = kind_of(own.profile), kind_of(other.profile)
        for mean in (self._own.setdefault(a, _Mean()), self._pairs.setdefault((a, b), _Mean())):
            mean.count += 1
            mean.total += error
        self.seen += 1

    def take_over(self, other: Experienced) -> None:
        """Know what another has seen."""
        self._own, self._pairs, self.seen = other._own, other._pairs, other.seen

    def _corrected(self, own: Kind, other: Kind, predicted: float) -> float:
        alone = self._own.get(own)
        if alone is None:
            return predicted
        error = alone.of(0.0, self.weight)
        pair = self._pairs.get((own, other))
        if pair is not None:
            error = pair.of(error, self.weight)
        return min(max(min(predicted, 1.0) + error, 0.01), 1.0)
