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
        left, right: positions of the children, both after this node; -1 in a leaf.
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
        self._features = tuple(node.feature for node in self.nodes)
        self._cuts = tuple(
            _cut(node.threshold) if node.feature >= 0 else 0.0 for node in self.nodes
        )

    @property
    def leaves(self) -> int:
        """Return the number of leaves."""
        return sum(node.feature == -1 for node in self.nodes)

    def leaf(self, values: Sequence[float]) -> Node:
        """Return the leaf of one row.

        Args:
            values: one per feature; NaN is missing. Rounded to float32 first, as in training.
        """
        i = 0
        while (feature := self._features[i]) >= 0:
            value, node = values[feature], self.nodes[i]
            left = value <= self._cuts[i] or (node.missing_left and value != value)
            i = node.left if left else node.right
        return self.nodes[i]

    def path(self, values: Sequence[float]) -> tuple[str, ...]:
        """Return the comparisons on the way to `leaf(values)`, as text."""
        steps = []
        i = 0
        while (node := self.nodes[i]).feature >= 0:
            value = values[node.feature]
            left = value <= self._cuts[i] or (node.missing_left and value != value)
            seen = "missing, taken as" if value != value else f"{value:.6g}"
            sign = "<=" if left else ">"
            steps.append(f"{self.features[node.feature]} {seen} {sign} {node.threshold:.6g}")
            i = node.left if left else node.right
        return tuple(steps)


def _cut(threshold: float) -> float:
    """Return the greatest float64 that, rounded to float32, is still at most `threshold`.

    Comparing with it saves rounding every value.
    """
    low = np.float32(threshold)
    if float(low) > threshold:
        low = np.nextafter(low, np.float32(-np.inf))
    high = np.nextafter(low, np.float32(np.inf))
    if not math.isfinite(high):
        return threshold
    middle = (float(low) + float(high)) / 2  # exact in float64; rounds to whichever is even
    return middle if np.float32(middle) == low else math.nextafter(middle, -math.inf)
