"""The exported bundle: a directory readable without any training library."""

from models.bundle.additive import AdditiveModel, Axis, Explanation, Term
from models.bundle.errors import BundleError
from models.bundle.packing import (
    ACTIVE_SUM,
    PACKING_FEATURES,
    PAIR_FEATURES,
    SHARING_SCORES,
    PackingModel,
    PairHinge,
    PairSpeedModel,
)
from models.bundle.store import Bundle
from models.bundle.tree import Node, Tree

__all__ = [
    "ACTIVE_SUM",
    "PACKING_FEATURES",
    "PAIR_FEATURES",
    "SHARING_SCORES",
    "AdditiveModel",
    "Axis",
    "Bundle",
    "BundleError",
    "Explanation",
    "Node",
    "PackingModel",
    "PairHinge",
    "PairSpeedModel",
    "Term",
    "Tree",
]
