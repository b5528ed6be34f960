"""The exported bundle: a directory readable without any training library."""

from models.bundle.additive import AdditiveModel, Axis, Explanation, Term
from models.bundle.errors import BundleError
from models.bundle.packing import (
    PACKING_FEATURES,
    PAIR_FEATURES,
    SHARING_SCORES,
    PackingModel,
    PairSpeedModel,
)
from models.bundle.pairs import PairSpeedGA2M
from models.bundle.store import Bundle
from models.bundle.tails import Calibration, Tails
from models.bundle.tree import Node, Tree

__all__ = [
    "PACKING_FEATURES",
    "PAIR_FEATURES",
    "SHARING_SCORES",
    "AdditiveModel",
    "Axis",
    "Bundle",
    "BundleError",
    "Calibration",
    "Explanation",
    "Node",
    "PackingModel",
    "PairSpeedGA2M",
    "PairSpeedModel",
    "Tails",
    "Term",
    "Tree",
]
