"""How fast a job steps on what it is given: the speed models of Optimus (EuroSys'18).

Parameter-server training, synchronous and asynchronous, as the paper has it; and all-reduce
training, which the paper has not. Every model is linear in its parameters once inverted, and no
parameter may be negative: one non-negative least squares fits it, without iterations. Rows are
divided by what was observed, so that the relative error is what is made small.
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
    """A model with more parameters than distinct observations."""


class PsObservation(NamedTuple):
    """Steps per second seen with so many workers and parameter servers."""

    workers: int
    servers: int
    steps_per_s: float


@dataclass(frozen=True, slots=True)
class SyncPsSpeed:
    """1/f = t0 M/w + t1 + t2 w/p + t3 w + t4 p: every worker waits for the slowest.

    Attributes:
        theta: t0 to t4, seconds.
        batch: M, samples of a step, shared among the workers.
    """

    theta: tuple[float, ...]
    batch: float

    def steps_per_s(self, workers: float, servers: float) -> float:
        """Steps per second of the job."""
        return float(1.0 / (_sync_row(workers, servers, self.batch) @ np.array(self.theta)))

    @classmethod
    def fit(cls, seen: Sequence[PsObservation], batch: float) -> SyncPsSpeed:
        """Raises TooFewObservations with fewer than five configurations."""
        rows = [_sync_row(o.workers, o.servers, batch) for o in seen]
        return cls(_fit(rows, [1.0 / o.steps_per_s for o in seen], seen), batch)


@dataclass(frozen=True, slots=True)
class AsyncPsSpeed:
    """f = w / (t0 + t1 w/p + t2 w + t3 p): every worker steps on its own.

    Attributes:
        theta: t0 to t3, seconds.
    """

    theta: tuple[float, ...]

    def steps_per_s(self, workers: float, servers: float) -> float:
        """Steps per second of all workers together."""
        return float(workers / (_async_row(workers, servers) @ np.array(self.theta)))

    @classmethod
    def fit(cls, seen: Sequence[PsObservation]) -> AsyncPsSpeed:
        """Raises TooFewObservations with fewer than four configurations."""
        rows = [_async_row(o.workers, o.servers) for o in seen]
        return cls(_fit(rows, [o.workers / o.steps_per_s for o in seen], seen))


def _sync_row(workers: float, servers: float, batch: float) -> Floats:
    return np.array([batch / workers, 1.0, workers / servers, workers, servers])


def _async_row(workers: float, servers: float) -> Floats:
    return np.array([1.0, workers / servers, workers, servers])


def _fit(
    rows: Sequence[Floats], seconds: Sequence[float], seen: Sequence[PsObservation]
) -> tuple[float, ...]:
    distinct = len({(o.workers, o.servers) for o in seen})
    if not rows or distinct < len(rows[0]):
        wanted = len(rows[0]) if rows else 1
        raise TooFewObservations(
            f"a speed model of {wanted} parameters needs {wanted} configurations, has {distinct}"
        )
    observed = np.array(seconds)
    theta, _ = nnls(np.array(rows) / observed[:, None], np.ones(len(rows)))
    return tuple(theta.tolist())


class StepObservation(NamedTuple):
    """Seconds of a step of all-reduce training.

    `batch` is of one GPU, in samples; the step is without gradient accumulation.
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
        """Seconds to compute the gradient of `batch` samples on one GPU."""
        return self.theta[0] * batch + self.theta[1]

    def step_s(self, nodes: int, gpus: int, batch: float, accumulation: int = 0) -> float:
        """Seconds of a step, after `accumulation` gradients that are not exchanged.

        Args:
            nodes, gpus: what the job spans.
            batch: samples of one GPU in one of the `accumulation` + 1 passes.
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
        """Fit to observed steps.

        What was never seen is taken to be cheap, so that it is tried: without several GPUs on a
        node, t2 = t3 = 0; without more than two GPUs, t3 = t5 = 0. With a single batch size half
        of the shortest step is taken to be independent of it. Raises TooFewObservations for none.
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
