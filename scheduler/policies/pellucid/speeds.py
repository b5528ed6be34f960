"""Corrections of predicted pair speeds, learned from the measured speeds of pairs.

Pair speeds are predicted from two profiles. The prediction's errors are similar for jobs with
similar profiles, and a running pair shows its speeds within minutes. Observed errors are kept by
the kinds of profile of the two jobs and, for kinds not yet seen together, by the kind of the job
that is slowed. Both means are shrunk towards no error. Old errors are never dropped, since the
speeds of hardware do not drift.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
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
    """Return the kind of a profile, which is the same for profiles that differ only by the noise of
    a short measurement. None stands for a value that was not measured."""
    seen = profile.gpu_util_pct, profile.gpu_mem_util_pct, profile.gpu_mem_mib
    util, mem_util, mem = (
        round(x / step) if isfinite(x) else None for x, step in zip(seen, STEPS, strict=True)
    )
    return util, mem_util, mem, profile.amp


@dataclass(slots=True)
class _Mean:
    """A mean of observations that starts from an assumed value."""

    count: int = 0
    total: float = 0.0

    def of(self, belief: float, weight: float) -> float:
        """Return the mean, where the assumed value `belief` counts as `weight` further
        observations."""
        return (self.total + weight * belief) / (self.count + weight)


@dataclass(slots=True, kw_only=True)
class _OwnError:
    kind: Kind
    error: _Mean


@dataclass(slots=True, kw_only=True)
class _PairError:
    kind: Kind
    beside: Kind
    error: _Mean


@dataclass(slots=True, kw_only=True)
class PairErrorsMemory:
    """A plain record of the measured errors, and of how many there are."""

    own: list[_OwnError]
    pairs: list[_PairError]
    seen: int


class PairErrors:
    """The measured errors of a predictor of pair speeds.

    Attributes:
        seen: number of observations so far; each member of a pair counts as one.
    """

    def __init__(self) -> None:
        self.seen = 0
        self.own: dict[Kind, _Mean] = {}
        self.pairs: dict[tuple[Kind, Kind], _Mean] = {}

    def add(self, own: Kind, other: Kind, error: float) -> None:
        """Add one measured error, of a job of kind `own` beside a job of kind `other`."""
        means = self.own.setdefault(own, _Mean()), self.pairs.setdefault((own, other), _Mean())
        for mean in means:
            mean.count += 1
            mean.total += error
        self.seen += 1

    def remember(self) -> PairErrorsMemory:
        """Return a plain record of the errors."""
        return PairErrorsMemory(
            own=[_OwnError(kind=kind, error=replace(one)) for kind, one in self.own.items()],
            pairs=[
                _PairError(kind=kind, beside=beside, error=replace(one))
                for (kind, beside), one in self.pairs.items()
            ],
            seen=self.seen,
        )

    def restore(self, memory: PairErrorsMemory) -> None:
        """Restore the errors that `remember` returned."""
        self.own = {one.kind: replace(one.error) for one in memory.own}
        self.pairs = {(one.kind, one.beside): replace(one.error) for one in memory.pairs}
        self.seen = memory.seen


class Experienced:
    """A pair predictor whose speeds are corrected by its measured errors.

    Args:
        pair_predictor: the predictor that is corrected.
        errors: its measured errors; `learn` adds to them.
        weight: number of observations that its own prediction counts as.
    """

    def __init__(
        self, pair_predictor: PairPredictor, errors: PairErrors | None = None, weight: float = 1.0
    ):
        self.pair_predictor = pair_predictor
        self.errors = errors or PairErrors()
        self.weight = weight

    @property
    def seen(self) -> int:
        """Number of measured errors so far; each member of a pair counts as one."""
        return self.errors.seen

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
        """Learn from a measurement: a job ran at `speed`, a share of its speed alone, beside
        another job."""
        prediction = self.pair_predictor.predict_pair(own, other)
        if prediction is None or prediction.speeds is None or own.profile is None:
            return
        if other.profile is None:
            return
        error = speed - min(prediction.speeds[0], 1.0)
        self.errors.add(kind_of(own.profile), kind_of(other.profile), error)

    def _corrected(self, own: Kind, other: Kind, predicted: float) -> float:
        alone = self.errors.own.get(own)
        if alone is None:
            return predicted
        error = alone.of(0.0, self.weight)
        pair = self.errors.pairs.get((own, other))
        if pair is not None:
            error = pair.of(error, self.weight)
        return min(max(min(predicted, 1.0) + error, 0.01), 1.0)
