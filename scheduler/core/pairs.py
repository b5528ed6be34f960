"""Predictors of how two jobs run that share a GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

from features.job import Profile
from models.bundle import SHARING_SCORES, Bundle, PackingModel, PairHinge, PairSpeedModel
from scheduler.core.decisions import PairPrediction
from scheduler.core.findings import NotExamined
from scheduler.core.queue import QueuedJob
from scheduler.core.settings import SharingRules
from scheduler.core.tree_steps import TreeStep, speed_step


class PairPredictor(Protocol):
    """Predicts how two jobs run that share GPUs. `predict_pair` returns None when too little is
    known of either job."""

    def predict_pair(self, newcomer: QueuedJob, partner: QueuedJob) -> PairPrediction | None: ...


class TablePairPredictor:
    """A pair predictor with a table of sharing scores (and pair speeds), by job id.

    It is used only in comparisons in which Lucid is given this knowledge; see `specs` of the
    published settings.
    """

    def __init__(
        self,
        scores: Mapping[str, int],
        speeds: Callable[[str, str], tuple[float, float]] | None = None,
    ):
        self._scores = scores
        self._speeds = speeds

    def predict_pair(self, newcomer: QueuedJob, partner: QueuedJob) -> PairPrediction | None:
        a, b = newcomer.job.job_id, partner.job.job_id
        if a not in self._scores or b not in self._scores:
            return None
        path = (f"listed score {self._scores[a]}", f"partner's listed score {self._scores[b]}")
        speeds = self._speeds(a, b) if self._speeds is not None else None
        return PairPrediction((self._scores[a], self._scores[b]), speeds, path)


_Class = tuple[int, tuple[str, ...], tuple[str, ...]]  # sharing score, tree path, as a partner


class BundlePairPredictor:
    """A pair predictor with the packing tree and the pair-speed model of an exported bundle.

    Args:
        sharing: how GPUs were shared (MPS or time-slicing) when the pairs of the training data were
            measured; "" where that is not known.
        hinge: model of the speeds of a pair, used where the profiles of both jobs have hardware
            counters.
    """

    def __init__(
        self,
        packing: PackingModel,
        speed: PairSpeedModel | None,
        sharing: str = "",
        hinge: PairHinge | None = None,
    ):
        self.sharing = sharing
        self._hinge = hinge
        self._packing = packing
        self._speed = speed
        self._predictions: dict[tuple[Profile, Profile], PairPrediction] = {}
        self._classes: dict[Profile, _Class] = {}

    def predict_pair(self, newcomer: QueuedJob, partner: QueuedJob) -> PairPrediction | None:
        own, other = newcomer.likely, partner.likely
        if own is None or other is None:
            return None
        prediction = self._predictions.get((own, other))
        if prediction is None:
            if len(self._predictions) >= REMEMBERED:  # profiles of a real cluster never repeat
                self._predictions.clear()
                self._classes.clear()
            speeds, by_speed = self._speeds(own, other)
            score, path, _ = self._class(own)
            other_score, _, other_path = self._class(other)
            scores = score, other_score
            prediction = PairPrediction(scores, speeds, path + other_path, by_speed)
            self._predictions[own, other] = prediction
        return prediction

    def _speeds(
        self, own: Profile, other: Profile
    ) -> tuple[tuple[float, float] | None, tuple[str, ...]]:
        """Return the relative speeds of the job and of its partner, and the comparisons that led to
        them, as text.

        Where both profiles have hardware counters, the hinge model gives one speed for both jobs.
        Without a model of speeds, return None and ().
        """
        counted = self._hinge and self._hinge.explain(own, other)
        if counted:
            speed, steps = counted
            return (speed, speed), (*steps, speed_step(speed))
        if self._speed is None:
            return None, ()
        return self._speed(own, other), _speed_path(self._speed, own, other)

    def _class(self, profile: Profile) -> _Class:
        found = self._classes.get(profile)
        if found is None:
            score, path = self._packing.classify(profile)
            ends = (*path, f"sharing score {score} ({SHARING_SCORES[score]})")
            of_partner = tuple(str(TreeStep(True, step)) for step in ends)
            found = self._classes[profile] = score, ends, of_partner
        return found


def _speed_path(model: PairSpeedModel, own: Profile, other: Profile) -> tuple[str, ...]:
    """Return the comparisons behind the speeds of a pair, as text: the newcomer's first, then
    the partner's."""
    steps = list[str]()
    for of_partner, pair in ((False, (own, other)), (True, (other, own))):
        speed, path = model.explain(*pair)
        ends = (*path, speed_step(speed))
        steps += [str(TreeStep(of_partner, step)) for step in ends]
    return tuple(steps)


REMEMBERED = 50_000  # predictions that are kept


def pair_predictor_of(bundle: Bundle) -> BundlePairPredictor | None:
    """Return a pair predictor that uses a bundle's models, or None when the bundle has no packing
    model."""
    if "packing" not in bundle.parts:
        return None
    speed = bundle.pair_speed if "pair_speed" in bundle.parts else None
    hinge = bundle.pair_hinge if "pair_hinge" in bundle.parts else None
    return BundlePairPredictor(bundle.packing, speed, bundle.sharing, hinge)


class _Marked:
    """A pair predictor that passes on another's predictions. To each it adds a note that the pairs
    of the training data were measured in another mode of sharing."""

    def __init__(self, predictor: PairPredictor, mark: str):
        self._predictor = predictor
        self._mark = mark

    def predict_pair(self, newcomer: QueuedJob, partner: QueuedJob) -> PairPrediction | None:
        found = self._predictor.predict_pair(newcomer, partner)
        if found is None:
            return None
        by_speed = (self._mark, *found.speed_path) if found.speed_path else ()
        return replace(found, path=(self._mark, *found.path), speed_path=by_speed)


def believed(
    predictor: PairPredictor | None, rules: SharingRules
) -> tuple[PairPredictor | None, NotExamined]:
    """Return the pair predictor that may be used under the sharing rules, or None; and the reason
    to record for pairs that are not examined.

    Two kernels run at once under MPS, and in turns without it, so pairs measured in one mode say
    little about the other. Predictions from another mode are not used; with `rules.unmeasured`,
    they are used with a note.
    """
    if rules.mode == "exclusive":
        return None, NotExamined.EXCLUSIVE
    if predictor is None:
        return None, NotExamined.NO_PAIR_PREDICTOR
    measured = getattr(predictor, "sharing", "")
    if measured == (rules.mode or ""):
        return predictor, NotExamined.UNMEASURED
    under = f"under {measured}" if measured else "in a mode that is not known"
    was = f"speeds were measured {under}"
    if rules.mode is None:
        return _Marked(predictor, f"{was}; how GPUs are shared here is not stated"), (
            NotExamined.UNMEASURED
        )
    if not rules.unmeasured:
        return None, NotExamined.UNMEASURED
    return _Marked(predictor, f"{was}, not under {rules.mode}"), NotExamined.UNMEASURED
