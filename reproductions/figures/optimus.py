"""Figures of Optimus: its parts on synthetic data with a known answer, its extensions on
measured data.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import fmean

import numpy as np

from features.given import opened_text
from reproductions.figures.figure import CpuClock, Figure, at_most
from reproductions.optimus.convergence import fit, fit_envelope, smooth
from reproductions.optimus.speed import (
    AllReduceSpeed,
    StepObservation,
)
from reproductions.workloads.pollux import applications


def figures(data: Path) -> Iterable[Figure]:
    yield from epochs()
    yield from all_reduce(data)
    yield from curves(data)


# --- synthetic ------------------------------------------------------------------------------------


def epoch_errors(jobs: int = 200) -> list[float]:
    """Return, for each of `jobs` noisy curves, the relative error of the epoch of convergence as
    predicted from half of the curve. Curves whose half has fewer than ten points are left out.
    """
    rng = np.random.default_rng(1)
    errors = []
    for _ in range(jobs):
        b0, b1, b2 = 10 ** rng.uniform(-1.3, 0.3), rng.uniform(0.8, 2.0), rng.uniform(0.0, 0.3)
        threshold = rng.choice([0.001, 0.002, 0.005])
        loss = 1.0 / (b0 * np.arange(1, 2001) + b1) + b2
        end = int(np.argmax(-np.diff(loss) / loss[0] < threshold)) + 1
        half = end // 2
        if half < 10:
            continue
        seen = loss[:half] * (1.0 + 0.02 * rng.standard_normal(half))
        errors.append(abs(fit(*smooth(seen)).converges_at(threshold) - end) / end)
    return errors


def epochs() -> Iterator[Figure]:
    clock = CpuClock()
    errors = epoch_errors()
    yield at_most(
        system="optimus",
        figure="mean error of the epoch of convergence, half a curve, 2 % noise",
        reference=0.20,
        measured=fmean(errors),
        cpu_s=clock.lap(),
        note=f"of {len(errors)} curves; 90 % below {np.quantile(errors, 0.9):.3f}",
    )


# --- measured -------------------------------------------------------------------------------------


def observations(folder: Path) -> list[tuple[str, StepObservation]]:
    """Return the measured steps of an application: (placement, observation)."""
    with opened_text(folder / "placements.csv", newline="") as file:
        return [
            (
                row["placement"],
                StepObservation(
                    len(row["placement"]),
                    sum(map(int, row["placement"])),
                    float(row["local_bsz"]),
                    float(row["step_time"]),
                ),
            )
            for row in csv.DictReader(file)
        ]


def step_error(model: AllReduceSpeed, seen: Sequence[StepObservation]) -> float:
    """Return the mean of |measured / predicted - 1|."""
    return fmean(abs(o.seconds / model.step_s(o.nodes, o.gpus, o.batch) - 1.0) for o in seen)


def all_reduce(data: Path) -> Iterator[Figure]:
    clock = CpuClock()
    for folder in sorted((data / "pollux" / "traces").iterdir()):
        rows = observations(folder)
        seen = [observation for _, observation in rows]
        yield at_most(
            system="optimus all-reduce",
            figure=f"mean error of the step time, {folder.name}",
            reference=0.12,
            measured=step_error(AllReduceSpeed.fit(seen), seen),
            cpu_s=clock.lap(),
        )


def curves(data: Path) -> Iterator[Figure]:
    """Yield, for each application of at least ten epochs, the error of the final loss predicted by
    `fit_envelope` at four fifths of the training. Its note has the error of the published fit."""
    clock = CpuClock()
    for name, app in applications(data / "pollux" / "traces").items():
        if app.epochs < 10:
            continue
        losses = np.array(app.losses(app.epochs, app.limits.initial))
        seen = int(0.8 * len(losses))
        steps = np.arange(1.0, seen + 1.0)
        best = float(losses.min())
        envelope = float(fit_envelope(steps, losses[:seen]).loss(len(losses))) / best - 1.0
        plain = float(fit(*smooth(losses[:seen])).loss(len(losses))) / best - 1.0
        yield at_most(
            system="optimus envelope",
            figure=f"|error| of the final loss at 80 % of training, {name}",
            reference=0.12,
            measured=abs(envelope),
            cpu_s=clock.lap(),
            note=f"signed {envelope:+.3f}; the published fit {plain:+.3f}",
        )
