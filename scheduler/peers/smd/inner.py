"""The inner problem of SMD: the workers and servers that make a job fastest within its limit.

The paper's is a sum of ratios. `enumerate_tasks` looks at every pair of numbers there is and is
exact; `relax` solves the problem without integrality and rounds. A sum of ratios of this kind is a
posynomial, hence convex in the logarithms of workers and servers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import floor, inf

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from scheduler.peers.smd.iteration import LayeredIteration

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PsLimits:
    """What a job may take.

    Attributes:
        worker, server: what one task takes, by resource.
        limit: of the job, by resource.
    """

    worker: tuple[float, ...]
    server: tuple[float, ...]
    limit: tuple[float, ...]

    def admits(self, workers: int, servers: int) -> bool:
        """True for at least one task of each kind, within the limit."""
        return (
            workers >= 1
            and servers >= 1
            and all(
                workers * w + servers * s <= v + 1e-9
                for w, s, v in zip(self.worker, self.server, self.limit, strict=True)
            )
        )

    def most(self, task: Sequence[float], beside: Sequence[float]) -> int:
        """How many of one task fit beside one of the other."""
        fits = [(v - b) / t for t, b, v in zip(task, beside, self.limit, strict=True) if t > 0]
        return max(floor(min(fits) + 1e-9), 0) if fits else 0


@dataclass(frozen=True, slots=True)
class Tasks:
    """Workers and servers of a job, and the seconds of an iteration with them."""

    workers: int
    servers: int
    seconds: float


def enumerate_tasks(iteration: LayeredIteration, limits: PsLimits) -> Tasks | None:
    """The fastest numbers of tasks, exactly; None when not even one of each fits."""
    w = np.arange(1, limits.most(limits.worker, limits.server) + 1)[:, None]
    p = np.arange(1, limits.most(limits.server, limits.worker) + 1)[None, :]
    if not w.size or not p.size:
        return None
    seconds = iteration.seconds(w, p)
    for worker, server, limit in zip(limits.worker, limits.server, limits.limit, strict=True):
        seconds = np.where(w * worker + p * server <= limit + 1e-9, seconds, inf)
    best = int(np.argmin(seconds))
    i, j = divmod(best, p.shape[1])
    return Tasks(i + 1, j + 1, float(seconds[i, j]))


def equal_tasks(iteration: LayeredIteration, limits: PsLimits) -> Tasks | None:
    """As many servers as workers: the rule that the choice of both is measured against."""
    most = limits.most(
        [w + s for w, s in zip(limits.worker, limits.server, strict=True)],
        [0.0] * len(limits.limit),
    )
    if most < 1:
        return None
    k = np.arange(1, most + 1)
    seconds = iteration.seconds(k, k)
    best = int(np.argmin(seconds))
    return Tasks(best + 1, best + 1, float(seconds[best]))


def relax(iteration: LayeredIteration, limits: PsLimits) -> Tasks | None:
    """The relaxed problem, solved in logarithms; from there, downhill over the integers.

    The largest of the sums is handled as a bound t: minimise t subject to sum_k <= t for each.
    """
    if not limits.admits(1, 1):
        return None
    scale = float(iteration.seconds(1, 1))
    start = np.array([0.0, 0.0, np.log(1.05)])
    found = minimize(
        lambda z: z[2],
        start,
        jac=lambda z: np.array([0.0, 0.0, 1.0]),
        method="SLSQP",
        bounds=[(0.0, None), (0.0, None), (None, None)],
        constraints=[
            {"type": "ineq", "fun": lambda z: z[2] - np.log(_sums(iteration, z) / scale)},
            {"type": "ineq", "fun": lambda z: -np.log(_uses(limits, z))},
        ],
    )
    w, p = (max(int(x), 1) for x in np.exp(np.maximum(found.x[:2], 0.0)))
    best = (w, p) if limits.admits(w, p) else (1, 1)
    while True:
        around = product(range(best[0] - 1, best[0] + 2), range(best[1] - 1, best[1] + 2))
        step = min(
            (t for t in around if limits.admits(*t)), key=lambda t: float(iteration.seconds(*t))
        )
        if iteration.seconds(*step) >= iteration.seconds(*best):
            return Tasks(*best, float(iteration.seconds(*best)))
        best = step


def _sums(iteration: LayeredIteration, z: Floats) -> Floats:
    w, p = np.exp(z[0]), np.exp(z[1])
    o = iteration.overheads
    per_byte = 2.0 * w / (p * iteration.bytes_per_s)
    common = iteration.forward_s / w + o.fixed_s + o.worker_s * w + o.server_s * p
    return np.array([b / w + g * per_byte + common for b, g in iteration.corners])


def _uses(limits: PsLimits, z: Floats) -> Floats:
    """What is taken over what may be, by resource that is taken at all."""
    w, p = np.exp(z[0]), np.exp(z[1])
    rows = zip(limits.worker, limits.server, limits.limit, strict=True)
    return np.array([(w * a + p * b) / v for a, b, v in rows if a + b > 0])
