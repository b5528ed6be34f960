"""A small decision tree that can name every comparison it made."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from models.bundle.errors import BundleError


@dataclass(frozen=True, slots=True)
class Node:
    """A node. A leaf has `feature` -1.

    Attributes:
        feature: position of the feature compared, -1 in a leaf.
        threshold: values <= threshold go left.
        left, right: positions of the children, both after this node.
        missing_left: where a missing value goes.
        value: class shares, or one mean.
        rows: training rows that reached the node.
    """

    feature: int
    threshold: float
    left: int
    right: int
    missing_left: bool
    value: tuple[float, ...]
    rows: int


def _finite(values: Iterable[float]) -> bool:
    return all(map(math.isfinite, values))


class Tree:
    """Nodes, parents before children; node 0 is the root. Immutable.

    Raises BundleError when the nodes do not form a tree over `features`.
    """

    def __init__(self, features: Iterable[str], nodes: Iterable[Node]) -> None:
        self.features = tuple(features)
        self.nodes = tuple(nodes)
        if not self.nodes:
            raise BundleError("a tree has no nodes")
        width = len(self.nodes[0].value)
        children: list[int] = []
        for i, node in enumerate(self.nodes):
            if not width or len(node.value) != width or not _finite(node.value):
                raise BundleError(f"tree node {i} has no usable value")
            if node.feature == -1:
                continue
            # Children after their parent: no walk can loop.
            if not (0 <= node.feature < len(self.features) and math.isfinite(node.threshold)):
                raise BundleError(f"tree node {i} compares something that does not exist")
            if not all(i < child < len(self.nodes) for child in (node.left, node.right)):
                raise BundleError(f"tree node {i} has a child that is not below it")
            children += [node.left, node.right]
        if sorted(children) != list(range(1, len(self.nodes))):
            raise BundleError("tree nodes do not form one tree")

    @property
    def leaves(self) -> int:
        """Number of leaves."""
        return sum(node.feature == -1 for node in self.nodes)

    def leaf(self, values: Sequence[float]) -> Node:
        """The leaf of one row.

        Args:
            values: one per feature; NaN is missing. Rounded to float32 first, as in training.
        """
        node = self.nodes[0]
        while node.feature >= 0:
            node = self.nodes[node.left if self._left(node, values) else node.right]
        return node

    def path(self, values: Sequence[float]) -> tuple[str, ...]:
        """The comparisons on the way to `leaf(values)`, as text."""
        steps = []
        node = self.nodes[0]
        while node.feature >= 0:
            left = self._left(node, values)
            value = values[node.feature]
            seen = "missing, taken as" if value != value else f"{value:.6g}"
            sign = "<=" if left else ">"
            steps.append(f"{self.features[node.feature]} {seen} {sign} {node.threshold:.6g}")
            node = self.nodes[node.left if left else node.right]
        return tuple(steps)

    @staticmethod
    def _left(node: Node, values: Sequence[float]) -> bool:
        value = float(np.float32(values[node.feature]))
        return node.missing_left if value != value else value <= node.threshold
