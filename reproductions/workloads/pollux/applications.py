"""Measured applications: step times by placement and batch, validation curves, gradient statistics.

A folder per application, as the Pollux artifact (OSDI'21) lays them out:
`placements.csv` (placement, local_bsz, step_time, sync_time), `scalability.csv` (num_nodes,
num_replicas, local_bsz, step_time, sync_time) and one `validation-BATCH.csv` per batch size
(progress, iteration, metric, grad_sqr, grad_var; a row per epoch). Times in seconds.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache
from math import ceil
from pathlib import Path

import numpy as np
from scipy.interpolate import LinearNDInterpolator

from features.given import opened_text
from pipeline.errors import UserError
from reproductions.allocation.allocation import Batch
from reproductions.allocation.statistics import GradientNoise, Limits, StepTimes

# epochs to completion, largest batch of one pass on a GPU where the measurements go too far
EPOCHS = {"bert": 2, "cifar10": 100, "deepspeech2": 80, "imagenet": 90, "ncf": 10, "yolov3": 50}
MOST_PER_GPU = {"yolov3": 8}
# was never trained on more GPUs, or with smaller batches when those could be chosen
MOST_GPUS, SMALLEST = {"ncf": 1}, {"ncf": 32_768}
MOST_NODES = 16  # of the measurements; more nodes are taken as that many
_SLACK = 1e-8

Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


class Application:
    """The measurements of one application.

    Args:
        folder: folder of its files.

    Raises:
        UserError: a file is missing, or lacks a column, or holds what is no number.
    """

    def __init__(self, folder: Path):
        self.name = folder.name
        curves = sorted(
            (int(path.stem.removeprefix("validation-")), _table(path, _CURVE))
            for path in folder.glob("validation-*.csv")
        )
        if not curves:
            raise UserError(f"{folder}: no validation-BATCH.csv; is it an application's folder?")
        self.epochs = EPOCHS.get(self.name, len(curves[0][1]["progress"]))
        if any(len(curve["progress"]) < self.epochs for _, curve in curves):
            raise UserError(f"{folder}: a validation curve has less than {self.epochs} epochs")
        self._batches = np.array([batch for batch, _ in curves], dtype=np.float64)
        self._square, self._variance, self._metric, self._iterations, progress = (
            np.stack([curve[column][: self.epochs] for _, curve in curves])
            for column in ("grad_sqr", "grad_var", "metric", "iteration", "progress")
        )
        self.progress: Floats = progress.min(axis=0)  # at the end of each epoch
        placements = _table(folder / "placements.csv", _PLACEMENTS)
        per_gpu = placements["local_bsz"]
        self.limits = Limits(
            initial=curves[0][0],
            largest=curves[-1][0],
            per_gpu=(int(per_gpu.min()), MOST_PER_GPU.get(self.name, int(per_gpu.max()))),
            gpus=MOST_GPUS.get(self.name),
            smallest=SMALLEST.get(self.name),
        )
        self._by_placement = _by_placement(placements)
        self._anywhere = _interpolator(placements, _table(folder / "scalability.csv", _SCALING))
        self.step_times = lru_cache(maxsize=None)(self._step_times)

    def _step_times(self, gpus: tuple[int, ...], per_gpu: int) -> StepTimes:
        """Return the seconds of a step, and of synchronising in it, with so many workers on
        each node and samples each. Raises UserError if nothing near was measured.
        """
        measured = self._by_placement.get(_rotated(gpus))
        if measured is not None:
            batches, step, sync = measured
            return StepTimes(
                float(np.interp(per_gpu, batches, step)), float(np.interp(per_gpu, batches, sync))
            )
        step_s, sync_s = self._anywhere((min(len(gpus), MOST_NODES), sum(gpus), per_gpu)).ravel()
        if np.isnan(step_s):
            raise UserError(f"{self.name}: nothing measured near {gpus} GPUs, batch {per_gpu} each")
        return StepTimes(float(step_s), float(sync_s))

    def measurements(self) -> Iterator[tuple[tuple[int, ...], int, StepTimes]]:
        """Yield every measured (GPUs on each node, batch on each GPU, times)."""
        for gpus, (batches, step, sync) in self._by_placement.items():
            for batch, step_s, sync_s in zip(batches, step, sync, strict=True):
                yield gpus, int(batch), StepTimes(float(step_s), float(sync_s))

    def noise(self, epoch: int, batch: int) -> GradientNoise:
        """Return the gradient statistics in an epoch (from 0), interpolated between measured batch
        sizes.
        """
        return GradientNoise(
            float(np.interp(batch, self._batches, self._square[:, epoch])),
            float(np.interp(batch, self._batches, self._variance[:, epoch])),
        )

    def metric(self, epoch: int, batch: int) -> float:
        """Return the validation metric at the end of an epoch."""
        return float(np.interp(batch, self._batches, self._metric[:, epoch]))

    def losses(self, epochs: int, batch: int) -> tuple[float, ...]:
        """Return a loss at the end of each of the first epochs. It is the validation metric; for a
        metric that rises, the difference to its maximum, 1 or 100.
        """
        rises = self._metric[:, -1].mean() > self._metric[:, 0].mean()
        most = 100.0 if self._metric.max() > 1.0 else 1.0
        metrics = [self.metric(epoch, batch) for epoch in range(epochs)]
        return tuple(most - m if rises else m for m in metrics)

    def iterations(self, epoch: int, batch: int) -> float:
        """Return the number of updates with a batch size by the end of an epoch (from 0)."""
        return float(np.interp(batch, self._batches, self._iterations[:, epoch]))

    def split(self, batch: int, gpus: int) -> Batch:
        """Return how a batch size is spread over GPUs: with as few passes as their memory allows.

        One GPU alone makes at least two passes of a batch beyond the initial one: in one pass
        the gradient's noise cannot be seen.
        """
        most = self.limits.per_gpu[1]
        each = ceil(batch / gpus - _SLACK)
        accumulation = ceil(each / most - _SLACK) - 1
        if gpus == 1 and batch > self.limits.initial:
            accumulation = max(accumulation, 1)
        passes = accumulation + 1
        per_gpu = ceil(each / passes - _SLACK)
        return Batch(min(per_gpu, self.limits.largest // (gpus * passes)), accumulation)


_CURVE = ("progress", "iteration", "metric", "grad_sqr", "grad_var")
_PLACEMENTS = ("placement", "local_bsz", "step_time", "sync_time")
_SCALING = ("num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time")


def _table(path: Path, columns: tuple[str, ...]) -> dict[str, Floats]:
    """Return columns of a CSV file as numbers, by name; the digits of a placement read as one
    number. Raises UserError.
    """
    try:
        with opened_text(path, newline="") as file:
            rows = list(csv.DictReader(file))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error
    try:
        return {name: np.array([float(row[name]) for row in rows]) for name in columns}
    except KeyError as error:
        raise UserError(f"{path}: no column {error.args[0]}") from None
    except (TypeError, ValueError) as error:
        raise UserError(f"{path}: {error}") from None


def _digits(placement: float) -> tuple[int, ...]:
    return tuple(int(digit) for digit in str(int(placement)))


def _rotated(gpus: tuple[int, ...]) -> tuple[int, ...]:
    """Return the lexicographically smallest rotation of a placement. Workers form a ring, so
    rotations are equivalent.
    """
    return min(gpus[i:] + gpus[:i] for i in range(len(gpus)))


def _by_placement(table: dict[str, Floats]) -> dict[tuple[int, ...], tuple[Floats, Floats, Floats]]:
    found = {}
    for placement in np.unique(table["placement"]):
        rows = np.flatnonzero(table["placement"] == placement)
        rows = rows[np.argsort(table["local_bsz"][rows], kind="stable")]
        found[_digits(placement)] = (
            table["local_bsz"][rows], table["step_time"][rows], table["sync_time"][rows],
        )  # fmt: skip
    return found


def _interpolator(
    placements: dict[str, Floats], scalability: dict[str, Floats]
) -> LinearNDInterpolator:
    """Return a function of (nodes, GPUs, batch per GPU) that gives seconds of a step and of
    synchronising, linear between measured points; NaN outside of them.
    """
    sums: dict[tuple[float, float, float], list[tuple[float, float]]] = defaultdict(list)
    for placement, batch, step, sync in zip(*(placements[c] for c in _PLACEMENTS), strict=True):
        gpus = _digits(placement)
        sums[len(gpus), sum(gpus), batch].append((step, sync))
    points = [*sorted(sums), *zip(*(scalability[c] for c in _SCALING[:3]), strict=True)]
    values = [np.mean(sums[key], axis=0) for key in sorted(sums)]
    values += list(zip(scalability["step_time"], scalability["sync_time"], strict=True))
    return LinearNDInterpolator(np.array(points, dtype=float), np.array(values))
