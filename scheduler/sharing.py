"""What a policy believes about two jobs on one GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from features.job import Profile
from models.bundle import SHARING_SCORES, Bundle, PackingModel, PairSpeedModel
from scheduler.core import QueuedJob


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judgement on a pair.

    Attributes:
        scores: sharing score of newcomer and partner (0 tiny, 1 medium, 2 jumbo).
        speeds: predicted relative speed of newcomer and partner; None when not predicted.
        path: the tree path behind the newcomer's score, then the partner's, root first.
    """

    scores: tuple[int, int]
    speeds: tuple[float, float] | None = None
    path: tuple[str, ...] = ()


class Judge(Protocol):
    """Judges pairs. Returns None when too little is known of either job to judge."""

    def verdict(self, newcomer: QueuedJob, partner: QueuedJob) -> Verdict | None: ...


class TableJudge:
    """Sharing scores (and pair speeds) known beforehand, by job id.

    Only for the track that grants Lucid this knowledge; see `specs` of the published settings.
    """

    def __init__(
        self,
        scores: Mapping[str, int],
        speeds: Callable[[str, str], tuple[float, float]] | None = None,
    ):
        self._scores = scores
        self._speeds = speeds

    def verdict(self, newcomer: QueuedJob, partner: QueuedJob) -> Verdict | None:
        a, b = newcomer.job.job_id, partner.job.job_id
        if a not in self._scores or b not in self._scores:
            return None
        path = (f"listed score {self._scores[a]}", f"partner's listed score {self._scores[b]}")
        speeds = self._speeds(a, b) if self._speeds is not None else None
        return Verdict((self._scores[a], self._scores[b]), speeds, path)


class BundleJudge:
    """Judges by the packing tree and the pair-speed model of an exported bundle."""

    def __init__(self, packing: PackingModel, speed: PairSpeedModel | None):
        self._packing = packing
        self._speed = speed
        self._verdicts: dict[tuple[Profile, Profile], Verdict] = {}

    def verdict(self, newcomer: QueuedJob, partner: QueuedJob) -> Verdict | None:
        if newcomer.profile is None or partner.profile is None:
            return None
        key = newcomer.profile, partner.profile
        verdict = self._verdicts.get(key)
        if verdict is None:
            verdict = self._verdicts[key] = tree_verdict(self._packing, self._speed, *key)
        return verdict


def judge_of(bundle: Bundle) -> BundleJudge | None:
    """The judge whose models a bundle holds; None when it holds no packing model."""
    if "packing" not in bundle.parts:
        return None
    return BundleJudge(bundle.packing, bundle.pair_speed if "pair_speed" in bundle.parts else None)


def tree_verdict(
    packing: PackingModel, speed: PairSpeedModel | None, newcomer: Profile, partner: Profile
) -> Verdict:
    """The verdict of a packing tree (and a pair-speed model, if any) on two profiles."""
    own, path = packing.classify(newcomer)
    other, other_path = packing.classify(partner)
    return Verdict(
        (own, other),
        speed(newcomer, partner) if speed is not None else None,
        (
            *path,
            f"sharing score {own} ({SHARING_SCORES[own]})",
            *(f"partner: {step}" for step in other_path),
            f"partner: sharing score {other} ({SHARING_SCORES[other]})",
        ),
    )
