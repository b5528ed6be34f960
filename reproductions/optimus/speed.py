"""Predicts how long a training step takes on a given allocation: the speed model of Optimus
(EuroSys'18).

It is for all-reduce training, where the paper has parameter servers. As in the paper, the inverted
model is linear in its parameters, none of which may be negative: one non-negative least squares
fits it, without iterations. Rows are divided by the observed times, so that relative errors are
minimised.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

Floats = NDArray[np.float64]

# A step across nodes costs at least this many times a step within one (see AllReduceSpeed).
ACROSS = 1.1


class TooFewObservations(ValueError):
    """Raised when a model is to be fitted to no observation at all."""


class StepObservation(NamedTuple):
    """An observed duration in seconds of one step of all-reduce training.

    `batch` is the number of samples per GPU; the step has no gradient accumulation.
    """

    nodes: int
    gpus: int
    batch: float
    seconds: float


@dataclass(frozen=True, slots=True)
class AllReduceSpeed:
    """T = t0 m + t1 + [one node, K > 1] (t2 + t3 (K-2)+) + [more nodes] (t4 + t5 (K-2)+).

    The cost of a ring is affine in the number of its members, and what each of them sends nears
    twice the model, so nothing steeper is needed up to some 64 GPUs. Across nodes a step costs at
    least `ACROSS` times as much as within one: t4 = 1.1 t2 + something, t5 = 1.1 t3 + something,
    which leaves the fit a single NNLS and keeps a regime that was never seen from being free.

    Attributes:
        theta: t0 to t5, seconds.
    """

    theta: tuple[float, float, float, float, float, float]

    def gradient_s(self, batch: float) -> float:
        """Return the seconds in which one GPU computes the gradient of `batch` samples."""
        return self.theta[0] * batch + self.theta[1]

    def step_s(self, nodes: int, gpus: int, batch: float, accumulation: int = 0) -> float:
        """Return the seconds of one step: `accumulation` passes without an exchange of gradients,
        and one with it.

        Args:
            nodes, gpus: numbers of nodes and GPUs that the job uses.
            batch: samples per GPU in each of the `accumulation` + 1 passes.
        """
        _, _, t2, t3, t4, t5 = self.theta
        beyond = max(gpus - 2, 0)
        exchange = 0.0
        if nodes > 1:
            exchange = t4 + t5 * beyond
        elif gpus > 1:
            exchange = t2 + t3 * beyond
        return (accumulation + 1) * self.gradient_s(batch) + exchange

    @classmethod
    def fit(cls, seen: Sequence[StepObservation]) -> AllReduceSpeed:
        """Fit the model to observed steps. Return it.

        Costs that no observation shows are taken as zero, so that the policy tries what it has not
        seen: without several GPUs on a node, t2 = t3 = 0; without more than two GPUs, t3 = t5 = 0.
        With a single batch size, half of the shortest step is taken to be independent of the batch.
        Raises TooFewObservations for an empty list.
        """
        if not seen:
            raise TooFewObservations("the all-reduce model needs an observation, has none")
        nodes, gpus, batch, seconds = np.array(seen, dtype=np.float64).T
        within = (nodes == 1) & (gpus > 1)
        across = nodes > 1
        beyond = np.maximum(gpus - 2, 0)
        columns = np.stack(
            [
                batch,
                np.ones(len(seen)),
                within + ACROSS * across,
                beyond * (within + ACROSS * across),
                1.0 * across,
                beyond * across,
            ],
            axis=1,
        )
        known = np.array(
            [
                True,
                len(np.unique(batch)) > 1,
                within.any(),
                (within & (gpus > 2)).any(),
                across.any(),
                (across & (gpus > 2)).any(),
            ]
        )
        fixed = 0.0 if known[1] else float(seconds.min()) / 2
        found, _ = nnls(columns[:, known] / seconds[:, None], (seconds - fixed) / seconds)
        theta = np.zeros(6)
        theta[known] = found
        theta[1] += fixed
        t0, t1, t2, t3, more, more_each = theta.tolist()
        return cls((t0, t1, t2, t3, ACROSS * t2 + more, ACROSS * t3 + more_each))
