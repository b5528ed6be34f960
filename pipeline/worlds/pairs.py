"""Predictors of the speed of two jobs on one GPU, as a world gives them to policies, and the pairs
that they are fitted on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from models.bundle import Bundle
from scheduler.core.decisions import PairPrediction
from scheduler.core.pairs import BundlePairPredictor, PairPredictor, pair_predictor_of
from scheduler.core.queue import QueuedJob
from scheduler.explain.whatif.futures import AGAIN
from scheduler.simulation.work import Workload

if TYPE_CHECKING:
    from models.training.pairs import PairMeasurements

SIMULATED = "models fitted on simulated pairs"  # where nobody has measured any
BUNDLE = "the bundle's models"


def fitted(pairs: PairMeasurements, unseen: Collection[str] = ()) -> BundlePairPredictor:
    """Return a predictor of pair speeds fitted on measured pairs, without the pairs of the model
    families in `unseen`."""
    from models.training.packing import fit_packing, fit_pair_speed

    return BundlePairPredictor(
        fit_packing(pairs, exclude_families=unseen).model,
        fit_pair_speed(pairs, exclude_families=unseen).model,
    )


def simulated(seed: int) -> BundlePairPredictor:
    """Return a predictor of pair speeds fitted on simulated pairs, with speeds by a formula and not
    measured."""
    from models.training.simulated import simulated_pairs

    return fitted(simulated_pairs(seed))


def of_bundle_or_simulated(
    bundle: Bundle | None, seed: int
) -> tuple[str, Callable[[], PairPredictor]]:
    """Return (name of the source, function that returns the predictor of pair speeds). It is the
    bundle's predictor if the bundle has one, otherwise one fitted on simulated pairs."""
    held = None if bundle is None else pair_predictor_of(bundle)
    if held is not None:
        return BUNDLE, lambda: held
    return SIMULATED, lambda: simulated(seed)


class UnseenFamilies:
    """A predictor of pair speeds that answers by models fitted without either model family of the
    pair.

    The policy does not know the family of a job; this class does, and only to choose the models.

    Args:
        families: job id -> model family.
        train: returns a predictor fitted without the families given.
    """

    def __init__(
        self, families: Mapping[str, str], train: Callable[[frozenset[str]], PairPredictor]
    ):
        self._families = families
        self._train = cache(train)

    def predict_pair(self, newcomer: QueuedJob, partner: QueuedJob) -> PairPrediction | None:
        if newcomer.likely is None or partner.likely is None:
            return None
        unseen = frozenset((self._family(newcomer), self._family(partner)))
        return self._train(unseen).predict_pair(newcomer, partner)

    def _family(self, queued: QueuedJob) -> str:
        """Return the model family of a job. A copy of a job that a forecast submits again has the
        family of the original."""
        return self._families[queued.job.job_id.partition(AGAIN)[0]]


def unseen_pair_predictor(workload: Workload, packing: Path) -> UnseenFamilies:
    """Return a predictor that answers for each pair by models fitted without the pair's model
    families.

    Args:
        packing: folder with the measured pairs.
    """
    from models.training.pairs import read_artifact

    pairs = read_artifact(packing)
    families = {
        job_id: work.configuration.model if work.configuration else ""
        for job_id, work in workload.work.items()
    }
    return UnseenFamilies(families, lambda unseen: fitted(pairs, unseen))
