"""A bundle small enough to check by hand, with every part the pages draw."""

from __future__ import annotations

import numpy as np

from features.state import FeatureState
from models.bundle import (
    AdditiveModel,
    Axis,
    Bundle,
    Node,
    PackingModel,
    PairSpeedModel,
    Term,
    Tree,
)
from models.bundle.packing import PACKING_FEATURES, PAIR_FEATURES


def small_bundle() -> Bundle:
    """Duration by GPUs, the user's last hour and the GPU type; tiny trees for sharing."""
    specs = {spec.name: spec for spec in FeatureState().features}
    axes = [
        Axis(specs["gpus"], cuts=(2.0, 4.0)),
        Axis(specs["user_submitted_1h"], cuts=(3.0, 10.0, 30.0)),
        Axis(specs["gpu_type"], categories=("A100", "V100", "secret-type")),
    ]
    terms = [
        _term((0,), [0.0, -0.2, 0.0, 0.4], [0, 60, 30, 10]),
        _term((1,), [0.0, 0.3, 0.1, -0.1, -0.5], [5, 40, 30, 20, 5]),
        _term((2,), [0.0, 0.5, -0.5, 0.1, 0.0], [0, 50, 40, 10, 0]),
        _term((0, 1), np.outer([0, 1, 0, -1], [0, 0.1, 0.0, 0.0, -0.1]), np.ones((4, 5))),
    ]
    packing = PackingModel(Tree(PACKING_FEATURES, (
        Node(0, 50.0, 1, 2, True, (0.5, 0.3, 0.2), 10),
        Node(-1, 0.0, -1, -1, True, (1.0, 0.0, 0.0), 6),
        Node(-1, 0.0, -1, -1, True, (0.0, 1.0, 0.0), 4),
    )))  # fmt: skip
    speed = PairSpeedModel(Tree(PAIR_FEATURES, (Node(-1, 0.0, -1, -1, True, (0.8,), 10),)))
    return Bundle(
        duration=AdditiveModel(axes, terms, 6.0), packing=packing, pair_speed=speed,
        metadata={"duration": {"rows": 100}, "packing": {"origin": "made up for a test"}},
    )  # fmt: skip


def _term(features: tuple[int, ...], scores: object, weights: object) -> Term:
    table = np.array(scores, dtype=float)
    return Term(features, table, np.array(weights, dtype=float), np.zeros_like(table))
