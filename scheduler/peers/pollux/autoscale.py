"""How many nodes a cluster needs, by the utility of its GPUs (Pollux, OSDI'21).

Utility is the sum of speedups over the number of GPUs: 1 when every GPU adds as much as a job's
first one did. While it stays between two bounds nothing changes; beyond them the number of nodes is
sought whose utility comes closest to their middle.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from statistics import fmean

ROUNDS = 15  # over which utility is averaged


class Autoscaler:
    """Nodes to keep on.

    Args:
        low, high: bounds of utility.
        nodes: on at first.
        most: nodes there are.
    """

    def __init__(self, low: float, high: float, *, nodes: int, most: int):
        if not 0 < low < high <= 1:
            raise ValueError(f"bounds of utility are {low:g} and {high:g}; 0 < low < high <= 1")
        self.low, self.high = low, high
        self.nodes, self.most = nodes, most
        self._seen: deque[float] = deque(maxlen=ROUNDS)

    def observe(self, utility: float, utility_of: Callable[[int], float]) -> None:
        """A round has been allocated.

        Args:
            utility: of the nodes that are on.
            utility_of: of another number of nodes; falls as nodes are added.
        """
        self._seen.append(utility)
        mean = fmean(self._seen)
        if len(self._seen) < ROUNDS or self.low <= mean <= self.high:
            return
        self._seen.clear()
        self.nodes = closest(utility_of, (self.low + self.high) / 2, self.most)


def closest(utility_of: Callable[[int], float], target: float, most: int) -> int:
    """The number of nodes, from 1 to `most`, whose utility is closest to the target.

    Utility falls with nodes, so that the search halves its range every time.
    """
    found: dict[int, float] = {}
    low, high = 1, most
    while low <= high:
        middle = (low + high) // 2
        found[middle] = utility_of(middle)
        if found[middle] > target:
            low = middle + 1
        else:
            high = middle - 1
    return min(found, key=lambda nodes: (abs(found[nodes] - target), nodes))
