"""How fast a job takes steps, by nodes, GPUs and batch: the throughput model of Pollux (OSDI'21).

    T_grad = a + b m                               m samples per GPU
    T_sync = 0 for one GPU, else a' + b' max(K - 2, 0), with one pair (a', b') inside a node and
             another across nodes
    T_step = (T_grad^g + T_sync^g)^(1/g)           1 <= g <= 10: from no overlap to almost full

A step with s accumulated passes takes s T_grad + T_step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize
from threadpoolctl import ThreadpoolController

from reproductions.allocation.statistics import Configuration, StepTimes

Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]

TINY = 1e-8  # stands for nothing where a logarithm is taken
GAMMA = (1.0, 10.0)
SLOWER_ACROSS = 1.1  # a network is at least so much slower than a node's own links
_START = np.array([0.1, 0.01, 0.1, 0.01, 0.1, 0.01, 1.001])
_POOR = 0.15  # a fit worse than this is tried again from another point
# seven parameters are too few for threads: waking them takes twenty times as long as the fit
_BLAS = ThreadpoolController()


class Throughput(NamedTuple):
    """Parameters in seconds (per sample, or per GPU beyond two, where it says so).

    Attributes:
        grad, grad_per_sample: of a pass forward and backward.
        across, across_per_gpu: of synchronising when several nodes take part.
        within, within_per_gpu: the same inside a node.
        overlap: the exponent, from 1 (none) to 10.
    """

    grad: float
    grad_per_sample: float
    across: float
    across_per_gpu: float
    within: float
    within_per_gpu: float
    overlap: float

    def times(self, nodes: Floats, gpus: Floats, per_gpu: Floats) -> tuple[Floats, Floats]:
        """Return the seconds of a pass without an update, and of one with it, as arrays of one
        shape.
        """
        grad = self.grad + self.grad_per_sample * per_gpu
        more = np.maximum(gpus - 2, TINY)
        sync = np.where(
            nodes > 1,
            self.across + self.across_per_gpu * more,
            self.within + self.within_per_gpu * more,
        )
        log_sync = np.log(np.where(gpus > 1, sync, TINY))
        step = np.exp(
            np.logaddexp(self.overlap * np.log(grad), self.overlap * log_sync) / self.overlap
        )
        return grad, step

    def step_s(self, nodes: int, gpus: int, per_gpu: int, accumulation: int = 0) -> float:
        """Return the seconds of an update."""
        grad, step = self.times(np.array(nodes), np.array(gpus), np.array(per_gpu))
        return float(accumulation * grad + step)


def fit(profile: Mapping[Configuration, StepTimes]) -> Throughput:
    """Return the parameters that explain measured step times best, optimistic about what was never
    tried.

    Args:
        profile: at least one measured configuration.

    What was not explored is taken to cost next to nothing, so that it looks worth trying: no time
    for synchronising across nodes before more than one was used, and so on.
    """
    rows = np.array([(*where, *times) for where, times in profile.items()])
    nodes, gpus, per_gpu, step_s, sync_s = rows.T
    pass_s = np.maximum(step_s - sync_s, TINY)
    low, high = np.full(7, TINY), np.full(7, np.inf)
    low[6], high[6] = GAMMA
    start = _START.copy()

    def pin(index: int, value: float) -> None:
        start[index] = low[index] = high[index] = value

    if len(np.unique(per_gpu)) == 1:
        pin(0, pass_s.mean() / 2)
    if not (nodes > 1).any():
        pin(2, TINY)
        pin(3, TINY)
    if not ((nodes == 1) & (gpus > 1)).any():
        pin(4, TINY)
        pin(5, TINY)
    if not (gpus > 2).any():
        pin(3, TINY)
        pin(5, TINY)
    problem = _Problem(
        nodes=nodes, gpus=gpus, per_gpu=per_gpu, log_pass=np.log(pass_s), log_step=np.log(step_s)
    )
    bounds = list(zip(low, high, strict=True))
    with _BLAS.limit(limits=1):
        best = minimize(problem, start, jac=True, method="L-BFGS-B", bounds=bounds)
        if best.fun > _POOR:
            other = np.clip(_guess(pass_s, per_gpu, sync_s), low, high)
            again = minimize(problem, other, jac=True, method="L-BFGS-B", bounds=bounds)
            best = min(best, again, key=lambda found: found.fun)
    found = [float(value) for value in best.x]
    if not (nodes > 1).any():
        found[2] = max(found[2], SLOWER_ACROSS * found[4])
        found[3] = max(found[3], SLOWER_ACROSS * found[5])
    return Throughput(*found)


def _guess(pass_s: Floats, per_gpu: Floats, sync_s: Floats) -> Floats:
    """Return the parameters from which the fit of the throughput model starts, of the same order of
    magnitude as the measured times."""
    per_sample = float((pass_s / per_gpu).min()) / 2
    grad = max(float((pass_s - per_sample * per_gpu).mean()), TINY)
    sync = max(float(sync_s.mean()), TINY)
    return np.array([grad, per_sample, sync, sync / 10, sync, sync / 10, 2.0])


class _Problem:
    """The loss of a fit and its gradient, both in the logarithm of times.

    Root-mean-square errors of the two logarithms, a pull of the overlap towards none, and of
    synchronising costs towards not growing with GPUs.
    """

    def __init__(
        self, nodes: Floats, gpus: Floats, per_gpu: Floats, log_pass: Floats, log_step: Floats
    ):
        self.per_gpu = per_gpu
        self.alone = gpus <= 1
        self.across = nodes > 1
        self.more = np.maximum(gpus - 2, TINY)
        self.log_pass, self.log_step = log_pass, log_step

    def __call__(self, x: Floats) -> tuple[float, Floats]:
        grad, per, across, across_per, within, within_per, gamma = x.tolist()
        t_grad = grad + per * self.per_gpu
        t_sync = np.where(
            self.across, across + across_per * self.more, within + within_per * self.more
        )
        t_sync[self.alone] = TINY
        log_grad, log_sync = np.log(t_grad), np.log(t_sync)
        log_sum = np.logaddexp(gamma * log_grad, gamma * log_sync)
        log_step = log_sum / gamma
        share = np.exp(gamma * log_grad - log_sum)  # of the pass in the step
        loss_pass, slope_pass = _rms(log_grad - self.log_pass)
        loss_step, slope_step = _rms(log_step - self.log_step)
        by_grad = (slope_pass + slope_step * share) / t_grad
        by_sync = slope_step * (1 - share) / t_sync
        by_sync[self.alone] = 0.0
        by_gamma = slope_step @ (share * log_grad + (1 - share) * log_sync - log_step) / gamma
        on_across = np.where(self.across, by_sync, 0.0)
        on_within = by_sync - on_across
        ratio_a, ratio_w = across_per / across, within_per / within
        loss = loss_pass + loss_step + 1e-3 * (gamma - 1) ** 2 + 1e-2 * (ratio_a**2 + ratio_w**2)
        slope = np.array(
            [
                by_grad.sum(),
                by_grad @ self.per_gpu,
                on_across.sum() - 2e-2 * ratio_a**2 / across,
                on_across @ self.more + 2e-2 * ratio_a / across,
                on_within.sum() - 2e-2 * ratio_w**2 / within,
                on_within @ self.more + 2e-2 * ratio_w / within,
                by_gamma + 2e-3 * (gamma - 1),
            ]
        )
        return float(loss), slope


def _rms(errors: Floats) -> tuple[float, Floats]:
    """Return the root mean square of the errors, and its slope by each error."""
    rms = float(np.sqrt(errors @ errors / len(errors)))
    return rms, errors / (len(errors) * rms) if rms > 0 else np.zeros_like(errors)
