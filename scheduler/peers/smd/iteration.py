"""How long an iteration takes, layer by layer: the model behind SMD (INFOCOM'21).

A reconstruction: the paper's abstract names the layered structure of networks and parameter
servers, not the formula. Backward passes run from the last layer to the first; the gradients of
a layer travel once it is computed and the layers behind it have travelled. That is a flow shop of
two machines, and its length is the largest of one sum per layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Overheads:
    """Seconds of an iteration: fixed, per worker, per parameter server."""

    fixed_s: float = 0.0
    worker_s: float = 0.0
    server_s: float = 0.0


@dataclass(frozen=True, slots=True)
class LayeredIteration:
    """Time of one iteration by workers and parameter servers, or by GPUs in a ring.

    Attributes:
        forward_s: seconds of the forward passes of a whole batch on one worker.
        corners: (backward seconds of a batch, bytes) of the layers that can be the bottleneck:
            backward from a layer to the last, and bytes of the layers up to it.
        bytes_per_s: of a machine's link.
        overheads: of an iteration.
    """

    forward_s: float
    corners: tuple[tuple[float, float], ...]
    bytes_per_s: float
    overheads: Overheads = Overheads()

    @classmethod
    def of_layers(
        cls,
        forward_s: Sequence[float],
        backward_s: Sequence[float],
        layer_bytes: Sequence[float],
        *,
        batch: float,
        bytes_per_s: float,
        overheads: Overheads = Overheads(),
    ) -> LayeredIteration:
        """From layers, first to last.

        Args:
            forward_s, backward_s: seconds of one sample, by layer.
            layer_bytes: size of the gradients, by layer.
            batch: samples of an iteration.
        """
        if not len(forward_s) == len(backward_s) == len(layer_bytes) > 0:
            raise ValueError("every layer needs a forward time, a backward time and a size")
        from_here = np.cumsum(np.asarray(backward_s, dtype=np.float64)[::-1])[::-1] * batch
        up_to_here = np.cumsum(np.asarray(layer_bytes, dtype=np.float64))
        points = list(zip(from_here.tolist(), up_to_here.tolist(), strict=True))
        return cls(float(sum(forward_s)) * batch, _upper_hull(points), bytes_per_s, overheads)

    def seconds(self, workers: ArrayLike, servers: ArrayLike) -> Floats:
        """Seconds of an iteration with parameter servers. Broadcasts over its arguments."""
        w, p = np.asarray(workers, dtype=np.float64), np.asarray(servers, dtype=np.float64)
        each_way = 2.0 * w / (p * self.bytes_per_s)
        extra = self.overheads.worker_s * w + self.overheads.server_s * p
        return self._length(1.0 / w, each_way) + extra

    def ring_seconds(self, gpus: ArrayLike) -> Floats:
        """Seconds of an iteration with a ring all-reduce. Broadcasts."""
        k = np.asarray(gpus, dtype=np.float64)
        around = 2.0 * (k - 1.0) / (k * self.bytes_per_s)
        return self._length(1.0 / k, around) + self.overheads.worker_s * k

    def _length(self, share: Floats, per_byte: Floats) -> Floats:
        """Forward, then the flow shop of backward and exchange.

        Args:
            share: of the batch that one worker does.
            per_byte: seconds to exchange a byte of the model.
        """
        sums = [backward * share + size * per_byte for backward, size in self.corners]
        longest: Floats = np.max(sums, axis=0)
        return self.forward_s * share + longest + self.overheads.fixed_s


def _upper_hull(points: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """The points at which x u + y v is largest for some u, v > 0."""
    hull: list[tuple[float, float]] = []
    for x, y in sorted(points, reverse=True):  # x falls, y has to rise
        if hull and y <= hull[-1][1]:
            continue
        while len(hull) > 1 and _below(hull[-2], hull[-1], (x, y)):
            hull.pop()
        hull.append((x, y))
    return tuple(hull)


def _below(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> bool:
    """True when b lies on or below the line from a to c (x falls, y rises)."""
    return (b[0] - a[0]) * (c[1] - a[1]) <= (b[1] - a[1]) * (c[0] - a[0])
