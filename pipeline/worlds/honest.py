"""Track `honest`: the one that counts. Nothing about a job is known before it happened.

Workloads are permuted over the jobs, profiling is charged, pairs that were never measured run at
0.8 each, speeds are capped at 1, and what a policy believes about a pair comes from models trained
without either of the pair's model families.

Track `honest-open` is the same with the walls between virtual clusters down, for the policies
that can borrow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from features.job import Profile
from models.bundle import Bundle, PackingModel, PairSpeedModel
from pipeline.online import OnlineEstimator
from pipeline.worlds.published import PROFILING
from pipeline.worlds.scenario import Scenario, by_gpu_count, oracle
from pipeline.worlds.venus import TrackError, Venus, jitter
from scheduler.core.core import QueuedJob
from scheduler.core.estimates import BundleEstimator, Estimator, TableEstimator
from scheduler.core.pairs import Verdict, tree_verdict
from scheduler.core.policy import Policy
from scheduler.explain.whatif.futures import AGAIN
from scheduler.simulation.work import PairTable, Work, Workload

DURATIONS = ("own", "oracle", "ebm", "lgb", "gpus")


class UnseenFamilies:
    """A judge whose models never saw either family of the pair it judges.

    The harness, not the policy, knows which family a job belongs to: it only picks the models.
    """

    def __init__(
        self,
        families: Mapping[str, str],
        train: Callable[[frozenset[str]], tuple[PackingModel, PairSpeedModel]],
    ):
        self._families = families
        self._train = cache(train)
        self._verdicts: dict[tuple[frozenset[str], Profile, Profile], Verdict] = {}

    def verdict(self, newcomer: QueuedJob, partner: QueuedJob) -> Verdict | None:
        if newcomer.profile is None or partner.profile is None:
            return None
        unseen = frozenset((self._family(newcomer), self._family(partner)))
        key = unseen, newcomer.profile, partner.profile
        verdict = self._verdicts.get(key)
        if verdict is None:
            packing, speed = self._train(unseen)
            verdict = tree_verdict(packing, speed, newcomer.profile, partner.profile)
            self._verdicts[key] = verdict
        return verdict

    def _family(self, queued: QueuedJob) -> str:
        """The family of a job; of one that a forecast lets come again, that of the original."""
        return self._families[queued.job.job_id.partition(AGAIN)[0]]


def judge_of_strangers(workload: Workload, packing: Path) -> UnseenFamilies:
    """What may be believed of a pair when neither of its model families was measured before."""
    from models.training.packing import fit_packing, fit_pair_speed
    from models.training.pairs import read_artifact

    pairs = read_artifact(packing)

    def train(unseen: frozenset[str]) -> tuple[PackingModel, PairSpeedModel]:
        return (
            fit_packing(pairs, exclude_families=unseen).model,
            fit_pair_speed(pairs, exclude_families=unseen).model,
        )

    return UnseenFamilies({i: _family(w) for i, w in workload.work.items()}, train)


def scenario(
    venus: Venus,
    *,
    seed: int = 0,
    durations: str | None = None,
    compress: float = 1.0,
    bundle: Path | None = None,
    walls: bool = True,
) -> Scenario:
    """The honest track on the Venus folder.

    Args:
        seed: of the permutation; seeds above 0 also move submit times by U(0, 60) s.
        durations: `own` (the default), or a yardstick: `oracle`, `ebm`, `lgb`, `gpus`.
        compress: multiplies submit times.
        bundle: use this bundle's duration model, trained elsewhere, instead of learning online.
        walls: False for track `honest-open`.
    """
    workload = jitter(venus.workload, seed, compress=compress)
    truth = oracle(workload)
    given: dict[str, Callable[[], Estimator]] = {
        "own": lambda: OnlineEstimator(seed=seed),
        "oracle": lambda: truth,
        "gpus": by_gpu_count,
        "ebm": lambda: TableEstimator("ebm", venus.predictions("ebm")),
        "lgb": lambda: TableEstimator("lgb", venus.predictions("lgb")),
    }
    if bundle is not None:
        loaded = Bundle.load(bundle)
        given["own"] = lambda: BundleEstimator(loaded)
    if durations is not None and durations not in given:
        raise TrackError(f"--durations {durations} is unknown; use one of {', '.join(given)}")

    def estimator(policy: Policy) -> Estimator:
        if not policy.estimates:
            return Estimator()
        return given["oracle" if policy.oracle else durations or "own"]()

    judge = judge_of_strangers(workload, venus.folder.parent / "packing")
    return Scenario(
        "honest" if walls else "honest-open",
        workload,
        PairTable(venus.pair_speeds, unmeasured=0.8, cap=1.0),
        estimator,
        judge=lambda: judge,
        forecast=lambda: venus.forecast(compress),
        profiling=PROFILING,
        seed=seed,
        walls=walls,
    )


def _family(work: Work) -> str:
    return work.configuration.model if work.configuration else ""
