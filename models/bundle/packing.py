"""Which jobs may share a GPU, and how fast each then runs: trees over profiles.

Memory is not asked here: whether two jobs fit on one GPU is a rule, never a prediction.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from features.job import Profile
from models.bundle.additive import AdditiveModel
from models.bundle.errors import BundleError
from models.bundle.tree import Tree

SHARING_SCORES = ("tiny", "medium", "jumbo")
PACKING_FEATURES = ("gpu_util_pct", "gpu_mem_util_pct", "gpu_mem_mib", "amp")
ACTIVE_SUM = "sm_active_sum_pct"  # SM activity of both jobs together
PAIR_FEATURES = ("gpu_util_minus_partner_pct", "gpu_util_sum_pct", "gpu_mem_util_sum_pct")


def profile_values(profile: Profile) -> tuple[float, float, float, float]:
    """Return a profile as the values of `PACKING_FEATURES`."""
    amp = math.nan if profile.amp is None else float(profile.amp)
    return (profile.gpu_util_pct, profile.gpu_mem_util_pct, profile.gpu_mem_mib, amp)


def pair_values(own: Profile, partner: Profile) -> tuple[float, float, float]:
    """Return one member of a pair as the values of `PAIR_FEATURES`.

    The sums are what both ask of one GPU; the difference says which of the two asks more.
    """
    return (
        own.gpu_util_pct - partner.gpu_util_pct,
        own.gpu_util_pct + partner.gpu_util_pct,
        own.gpu_mem_util_pct + partner.gpu_mem_util_pct,
    )


class PackingModel:
    """The tree that gives a job's sharing score by its profile."""

    def __init__(self, tree: Tree) -> None:
        if tree.features != PACKING_FEATURES:
            raise BundleError(f"the packing tree reads {tree.features}, not {PACKING_FEATURES}")
        if len(tree.nodes[0].value) != len(SHARING_SCORES):
            raise BundleError("the packing tree does not hold three classes")
        self.tree = tree

    def classify(self, profile: Profile) -> tuple[int, tuple[str, ...]]:
        """Return sharing score (0 tiny, 1 medium, 2 jumbo) and the tree path that gave it."""
        values = profile_values(profile)
        shares = self.tree.leaf(values).value
        return shares.index(max(shares)), self.tree.path(values)

    def shares(self, profile: Profile) -> tuple[float, ...]:
        """Return shares of tiny, medium and jumbo among the training rows of the profile's leaf."""
        return self.tree.leaf(profile_values(profile)).value


class PairSpeedModel:
    """Speed of each of two jobs on the same GPUs, relative to running there alone.

    One tree, asked once for each member: swapping the two swaps the answers.
    """

    def __init__(self, tree: Tree) -> None:
        if tree.features != PAIR_FEATURES:
            raise BundleError(f"the pair-speed tree reads {tree.features}, not {PAIR_FEATURES}")
        if len(tree.nodes[0].value) != 1:
            raise BundleError("the pair-speed tree does not hold one value per node")
        if any(not 0.0 < node.value[0] <= 1.0 for node in tree.nodes):
            raise BundleError("the pair-speed tree holds a speed outside (0, 1]")
        self.tree = tree

    def __call__(self, a: Profile, b: Profile) -> tuple[float, float]:
        """Return (speed of a beside b, speed of b beside a), each in (0, 1]."""
        return (
            self.tree.leaf(pair_values(a, b)).value[0],
            self.tree.leaf(pair_values(b, a)).value[0],
        )

    def explain(self, own: Profile, partner: Profile) -> tuple[float, tuple[str, ...]]:
        """Return speed of `own` beside `partner` and the tree path that gave it."""
        values = pair_values(own, partner)
        return self.tree.leaf(values).value[0], self.tree.path(values)


@dataclass(frozen=True, slots=True)
class PairHinge:
    """Speed of two jobs on the same GPUs by their SM activity alone.

    Both keep their full speed up to `knee_pct` of both together; each point above costs either so
    much. It needs two profiles with counters, and is more right than the tree there.

    Attributes:
        knee_pct: SM activity of both together up to which neither is slowed, percent (0-200).
        slope: share of its speed that either loses for each point above.
        least: the lowest speed it answers.
    """

    knee_pct: float
    slope: float
    least: float

    def __post_init__(self) -> None:
        sound = 0.0 <= self.knee_pct <= 200.0 and 0.0 <= self.slope <= 1.0
        if not (sound and 0.0 < self.least <= 1.0):
            raise BundleError(f"the hinge of pair speeds is impossible: {self}")

    def speed(self, active_pct: float) -> float:
        """Return the speed of either at an SM activity of both together, percent."""
        return max(self.least, 1.0 - self.slope * max(0.0, active_pct - self.knee_pct))

    def __call__(self, a: Profile, b: Profile) -> tuple[float, float] | None:
        """Return (speed of a beside b, speed of b beside a), each in (0, 1]; None without
        counters.
        """
        active_pct = _active(a, b)
        if active_pct is None:
            return None
        speed = self.speed(active_pct)
        return speed, speed

    def explain(self, a: Profile, b: Profile) -> tuple[float, tuple[str, ...]] | None:
        """Return the predicted speed of both jobs of the pair, relative to running alone (it is the
        same for both), and the comparison that gave it; None without hardware counters."""
        active_pct = _active(a, b)
        if active_pct is None:
            return None
        sign = "<=" if active_pct <= self.knee_pct else ">"
        step = f"{ACTIVE_SUM} {active_pct:.6g} {sign} {self.knee_pct:.6g}"
        return self.speed(active_pct), (step,)

    def parts(self) -> tuple[dict[str, Any], dict[str, AdditiveModel]]:
        """Return its settings, and no additive model."""
        return {"knee_pct": self.knee_pct, "slope": self.slope, "least": self.least}, {}

    @classmethod
    def from_parts(cls, settings: Mapping[str, Any], _: Mapping[str, AdditiveModel]) -> PairHinge:
        """Return the hinge that `parts` described."""
        return cls(*(float(settings[name]) for name in ("knee_pct", "slope", "least")))


def _active(a: Profile, b: Profile) -> float | None:
    if a.sm_active_pct is None or b.sm_active_pct is None:
        return None
    return a.sm_active_pct + b.sm_active_pct
