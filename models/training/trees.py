"""Converts a fitted scikit-learn tree to the tree of a bundle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from models.bundle import Node, Tree


def exported_tree(
    fitted: Any,
    features: Sequence[str],
    value: Callable[[int], tuple[float, ...]],
) -> Tree:
    """Return the nodes of `fitted` as a tree, parents before children.

    Args:
        fitted: DecisionTreeClassifier or DecisionTreeRegressor.
        features: names of its columns.
        value: function that returns the prediction of the node with a given number: shares of the
            classes, or one mean.
    """
    tree = fitted.tree_
    nodes = []
    for i in range(tree.node_count):
        left, right = int(tree.children_left[i]), int(tree.children_right[i])
        leaf = left < 0
        nodes.append(
            Node(
                feature=-1 if leaf else int(tree.feature[i]),
                threshold=0.0 if leaf else float(tree.threshold[i]),
                left=-1 if leaf else left,
                right=-1 if leaf else right,
                missing_left=not leaf and bool(tree.missing_go_to_left[i]),
                value=value(i),
                rows=int(tree.n_node_samples[i]),
            )
        )
    return Tree(features, nodes)
