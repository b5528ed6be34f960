"""Trees are drawn as trees, with the way that a decision came by lit."""

from __future__ import annotations

import math

import numpy as np
import pytest

from models.bundle import (
    PACKING_FEATURES,
    PAIR_FEATURES,
    Bundle,
    Node,
    PackingModel,
    PairHinge,
    PairSpeedModel,
    Tree,
)
from scheduler.charts.trees import lit_by, trees
from scheduler.core.tree_steps import TreeStep

LEAF = {"feature": -1, "threshold": 0.0, "left": -1, "right": -1, "missing_left": False}


def split(feature: int, threshold: float, left: int, right: int, *value: float) -> Node:
    return Node(feature, threshold, left, right, True, value, 10)


@pytest.fixture
def bundle() -> Bundle:
    """A pair's speed by two questions; a sharing score by two, of which one changes nothing."""
    speeds = [
        split(1, 119.252, 1, 2, 0.8),
        Node(**LEAF, value=(0.97,), rows=6),
        split(0, -5.0, 3, 4, 0.6),
        Node(**LEAF, value=(0.7,), rows=2),
        Node(**LEAF, value=(0.5,), rows=2),
    ]
    scores = [
        split(0, 43.0, 1, 4, 0.6, 0.0, 0.4),
        split(1, 8.0, 2, 3, 1.0, 0.0, 0.0),
        Node(**LEAF, value=(1.0, 0.0, 0.0), rows=3),
        Node(**LEAF, value=(0.9, 0.1, 0.0), rows=3),
        Node(**LEAF, value=(0.0, 0.1, 0.9), rows=4),
    ]
    return Bundle(
        packing=PackingModel(Tree(PACKING_FEATURES, scores)),
        pair_speed=PairSpeedModel(Tree(PAIR_FEATURES, speeds)),
    )


def test_every_leaf_has_a_column_and_a_question_stands_over_its_answers(bundle: Bundle) -> None:
    _, speeds, _ = trees(bundle)
    assert speeds is not None
    leaves = [node for node in speeds.nodes if node.short]
    assert [leaf.short for leaf in sorted(leaves, key=lambda n: n.x)] == ["97 %", "70 %", "50 %"]
    assert len({leaf.x for leaf in leaves}) == len(leaves)
    assert all(0 < node.x < speeds.width and 0 < node.y < speeds.height for node in speeds.nodes)
    assert all(edge.y2 > edge.y1 for edge in speeds.edges)
    assert not speeds.path
    assert not any(edge.lit for edge in speeds.edges)


def test_a_question_whose_answers_lead_to_the_same_is_not_asked(bundle: Bundle) -> None:
    packing, *_ = trees(bundle)
    assert packing is not None
    assert [node.short for node in packing.nodes if node.short] == ["tiny", "jumbo"]
    assert [node.text for node in packing.nodes if not node.short] == ["GPU utilisation ≤ 43 %?"]


@pytest.mark.parametrize(
    ("values", "path"),
    [
        ((3.0, 100.0, 1.0), ["both utilisations ≤ 119.3 %? yes", "97 % of its speed alone"]),
        (
            (3.0, 130.0, 1.0),
            [
                "both utilisations ≤ 119.3 %? no",
                "own − partner's utilisation ≤ -5 points? no",
                "50 % of its speed alone",
            ],
        ),
        ((math.nan, math.nan, math.nan), ["both utilisations ≤ 119.3 %? yes", "97 % of its"]),
    ],
)
def test_the_way_of_a_recorded_decision_is_lit(
    bundle: Bundle, values: tuple[float, ...], path: list[str]
) -> None:
    steps = [TreeStep.of(text) for text in bundle.pair_speed.tree.path(np.array(values).tolist())]
    drawn = lit_by(bundle, [*steps, TreeStep.of("speed 0.5")])
    assert drawn is not None
    assert len(drawn.path) == len(path)
    assert all(text.startswith(start) for text, start in zip(drawn.path, path, strict=True))
    assert sum(edge.lit for edge in drawn.edges) == len(path) - 1


def test_steps_of_another_tree_light_nothing(bundle: Bundle) -> None:
    other = [TreeStep.of("gpu_util_sum_pct 51.2 <= 90.5"), TreeStep.of("speed 0.9")]
    assert lit_by(bundle, other) is None
    assert lit_by(bundle, [TreeStep.of("gpu_util_sum_pct 130 > 119.252")]) is None  # not to a leaf
    assert lit_by(bundle, []) is None


@pytest.mark.parametrize(("step", "answer"), [("> 60", "−0.5 % a point"), ("<= 60", "full")])
def test_the_hinge_is_drawn_with_the_side_that_decided_lit(
    bundle: Bundle, step: str, answer: str
) -> None:
    hinge = PairHinge(knee_pct=60.0, slope=0.005, least=0.3)
    bundle = Bundle(packing=bundle.packing, pair_speed=bundle.pair_speed, pair_hinge=hinge)
    assert trees(bundle)[2] is not None
    found = lit_by(bundle, [TreeStep.of(f"sm_active_sum_pct 60 {step}"), TreeStep.of("speed 0.9")])
    assert found is not None
    assert "both SM activities ≤ 60 %" in found.path[0]
    assert found.path[-1].startswith(answer)
    other = [TreeStep.of("sm_active_sum_pct 60 > 55"), TreeStep.of("speed 0.9")]
    assert lit_by(bundle, other) is None, "of another model"
