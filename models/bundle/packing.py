"""Which jobs may share a GPU, and how fast each then runs: trees over profiles.

Memory is not asked here: whether two jobs fit on one GPU is a rule, never a prediction.
"""

from __future__ import annotations

import math

from features.job import Profile
from models.bundle.errors import BundleError
from models.bundle.tree import Tree

SHARING_SCORES = ("tiny", "medium", "jumbo")
PACKING_FEATURES = ("gpu_util_pct", "gpu_mem_util_pct", "gpu_mem_mib", "amp")
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
    """The sharing-score tree."""

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
