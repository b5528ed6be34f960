"""What a policy believes about two jobs on one GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from features.job import Profile
from models.bundle import SHARING_SCORES, Bundle, PackingModel, PairSpeedModel
from scheduler.core.core import QueuedJob


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
        self._classes: dict[Profile, tuple[int, tuple[str, ...]]] = {}

    def verdict(self, newcomer: QueuedJob, partner: QueuedJob) -> Verdict | None:
        own, other = newcomer.profile, partner.profile
        if own is None or other is None:
            return None
        verdict = self._verdicts.get((own, other))
        if verdict is None:
            if len(self._verdicts) >= REMEMBERED:  # profiles of a real cluster never repeat
                self._verdicts.clear()
                self._classes.clear()
            speeds = self._speed(own, other) if self._speed is not None else None
            verdict = _verdict(self._class(own), self._class(other), speeds)
            self._verdicts[own, other] = verdict
        return verdict

    def _class(self, profile: Profile) -> tuple[int, tuple[str, ...]]:
        found = self._classes.get(profile)
        if found is None:
            found = self._classes[profile] = self._packing.classify(profile)
        return found


REMEMBERED = 50_000  # verdicts


def judge_of(bundle: Bundle) -> BundleJudge | None:
    """The judge whose models a bundle holds; None when it holds no packing model."""
    if "packing" not in bundle.parts:
        return None
    return BundleJudge(bundle.packing, bundle.pair_speed if "pair_speed" in bundle.parts else None)


def tree_verdict(
    packing: PackingModel, speed: PairSpeedModel | None, newcomer: Profile, partner: Profile
) -> Verdict:
    """The verdict of a packing tree (and a pair-speed model, if any) on two profiles."""
    speeds = speed(newcomer, partner) if speed is not None else None
    return _verdict(packing.classify(newcomer), packing.classify(partner), speeds)


def _verdict(
    newcomer: tuple[int, tuple[str, ...]],
    partner: tuple[int, tuple[str, ...]],
    speeds: tuple[float, float] | None,
) -> Verdict:
    """The verdict on two classified profiles: sharing score and tree path of each."""
    (own, path), (other, other_path) = newcomer, partner
    return Verdict(
        (own, other),
        speeds,
        (
            *path,
            f"sharing score {own} ({SHARING_SCORES[own]})",
            *(f"partner: {step}" for step in other_path),
            f"partner: sharing score {other} ({SHARING_SCORES[other]})",
        ),
    )
