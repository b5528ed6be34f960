"""Goodput: how fast a job makes training progress, and the batch size that maximises it.

    gain(S) = (var + sqr) / (var / S + sqr)        S = batch / initial batch
    efficiency = gain / S                          1 at the initial batch, less beyond
    goodput = throughput * efficiency

var and sqr are the gradient's variance and squared norm at the initial batch size (Pollux, OSDI'21;
the gradient noise scale of McCandlish et al. 2018).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from reproductions.allocation.allocation import Batch
from reproductions.allocation.statistics import GradientNoise, Limits
from reproductions.pollux.throughput import Floats, Throughput

CANDIDATES = 50  # batch sizes looked at, in geometric steps
UNKNOWN_NOISE = GradientNoise(0.0, 1.0)  # then every batch size is as efficient as any
_SLACK = 1e-8


def efficiency(noise: GradientNoise, scale: Floats) -> Floats:
    """Return the statistical efficiency at `scale` times the initial batch size: the progress per
    sample, relative to that at the initial size."""
    square, variance = max(noise.square, 0.0), max(noise.variance, 1e-6)
    return (variance + square) / (variance / scale + square) / scale


class Choice(NamedTuple):
    """The best batch on each of several allocations (arrays of one shape).

    Attributes:
        goodput: samples of the initial batch size's worth per second; 0 = not possible.
        per_gpu, accumulation: the batch.
    """

    goodput: Floats
    per_gpu: Floats
    accumulation: Floats


@dataclass(frozen=True, slots=True)
class Goodput:
    """The model of one job's goodput: its throughput, its gradient noise and its limits."""

    throughput: Throughput
    noise: GradientNoise
    limits: Limits

    def best(self, nodes: Floats, gpus: Floats) -> Choice:
        """Return the best batch by nodes and GPUs (arrays of one shape, GPUs at least 1)."""
        nodes, gpus = np.asarray(nodes, float)[..., None], np.asarray(gpus, float)[..., None]
        initial, largest, (least, most) = self.limits[:3]
        floor = np.maximum(self.limits.least, least * gpus)
        steps = np.linspace(0.0, 1.0, CANDIDATES)
        each = floor * (largest / floor) ** steps / gpus  # samples per GPU and update
        accumulation = np.maximum(np.ceil(each / most - _SLACK) - 1, 0)
        # one GPU alone has to make two passes: the gradient's noise cannot be seen otherwise
        twice = (gpus == 1) & (each > initial + _SLACK)
        accumulation = np.where(twice, np.maximum(accumulation, 1), accumulation)
        per_gpu = np.ceil(each / (accumulation + 1) - _SLACK)
        possible = (per_gpu >= least) & (per_gpu <= most) & (floor <= largest)
        goodput = np.where(possible, self.of(nodes, gpus, per_gpu, accumulation), 0.0)
        top = goodput.argmax(axis=-1)[..., None]
        return Choice(
            *(np.take_along_axis(a, top, -1)[..., 0] for a in (goodput, per_gpu, accumulation))
        )

    def of(self, nodes: Floats, gpus: Floats, per_gpu: Floats, accumulation: Floats) -> Floats:
        """Return the goodput (samples per second, weighted by their statistical efficiency) of each
        given batch size."""
        grad_s, step_s = self.throughput.times(nodes, gpus, per_gpu)
        batch = gpus * per_gpu * (accumulation + 1)
        return (
            batch
            / (accumulation * grad_s + step_s)
            * efficiency(self.noise, batch / self.limits.initial)
        )

    def batch(self, nodes: int, gpus: int) -> tuple[Batch, float] | None:
        """Return the best batch on one allocation, and its goodput, or None when there is none."""
        found = self.best(np.array(nodes), np.array(gpus))
        if not found.goodput > 0:
            return None
        return Batch(int(found.per_gpu), int(found.accumulation)), float(found.goodput)
