"""What a world lets a policy believe about two jobs on one GPU, and what that was learned from."""

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
    """Return a predictor fitted on measurements, without those of some model families."""
    from models.training.packing import fit_packing, fit_pair_speed

    return BundlePairPredictor(
        fit_packing(pairs, exclude_families=unseen).model,
        fit_pair_speed(pairs, exclude_families=unseen).model,
    )


def simulated(seed: int) -> BundlePairPredictor:
    """Return a predictor fitted on pairs that were never measured: speeds come from a stated
    formula.
    """
    from models.training.simulated import simulated_pairs

    return fitted(simulated_pairs(seed))


def of_bundle_or_simulated(
    bundle: Bundle | None, seed: int
) -> tuple[str, Callable[[], PairPredictor]]:
    """Return the name of the source of a pair predictor, and a function that makes the predictor.
    The bundle's predictor is used if it has one, otherwise a simulated one.
    """
    held = None if bundle is None else pair_predictor_of(bundle)
    if held is not None:
        return BUNDLE, lambda: held
    return SIMULATED, lambda: simulated(seed)


class UnseenFamilies:
    """A predictor whose models never saw either family of the pair it is asked about.

    The harness, not the policy, knows which family a job belongs to: it only picks the models.

    Args:
        families: model family by job id.
        train: a predictor that knows nothing of some families.
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
        """Return the family of a job. A job that a forecast lets come again has that of the
        original.
        """
        return self._families[queued.job.job_id.partition(AGAIN)[0]]


def unseen_pair_predictor(workload: Workload, packing: Path) -> UnseenFamilies:
    """Return a predictor that knows nothing of either of a pair's model families."""
    from models.training.pairs import read_artifact

    pairs = read_artifact(packing)
    families = {
        job_id: work.configuration.model if work.configuration else ""
        for job_id, work in workload.work.items()
    }
    return UnseenFamilies(families, lambda unseen: fitted(pairs, unseen))
