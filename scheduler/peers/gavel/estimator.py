"""Pair speeds of a job that was tried beside a few others only.

A job is treated as the reference kind that it resembles most: its row of measured pair speeds is
completed by matrix factorisation together with the rows of the references, and compared with them.
Rates alone are taken as known. For jobs of one GPU. Narayanan et al., OSDI'20, section 6.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from scheduler.peers.allocation.throughputs import Kind, Throughputs
from scheduler.peers.gavel.problem import Floats

RANK = 10
RIDGE = 0.01
STILL = 1e-3  # change per entry below which the factors have settled
SWEEPS = 100


def completed(matrix: Floats, rng: np.random.Generator, rank: int = RANK) -> Floats:
    """A matrix of speeds without gaps: alternating least squares with a ridge, clipped to [0, 1].

    Args:
        matrix: NaN where nothing was measured. What was measured is kept.
    """
    seen = ~np.isnan(matrix)
    known = np.where(seen, matrix, 0.0)
    left = rng.standard_normal((matrix.shape[0], rank))
    right = rng.standard_normal((matrix.shape[1], rank))
    before = left @ right.T
    for _ in range(SWEEPS):
        left = _solved(known, seen, right)
        right = _solved(known.T, seen.T, left)
        after = left @ right.T
        if np.linalg.norm(after - before) / matrix.size < STILL:
            break
        before = after
    filled: Floats = np.where(seen, known, np.clip(after, 0.0, 1.0))
    return filled


def _solved(known: Floats, seen: Floats, factor: Floats) -> Floats:
    """Ridge regression of every row on the columns that it has."""
    gram = np.einsum("ij,jk,jl->ikl", seen.astype(float), factor, factor)
    gram += RIDGE * np.eye(factor.shape[1])
    found: Floats = np.linalg.solve(gram, (known @ factor)[..., None])[..., 0]
    return found


@dataclass(frozen=True, slots=True)
class Alike:
    """Throughputs of a job that shares GPUs like a reference kind, by all that is known."""

    own: Throughputs
    estimator: PairEstimator

    @property
    def kind(self) -> Kind:
        return self.own.kind

    def alone(self, gpu_type: str) -> float:
        return self.own.alone(gpu_type)

    def beside(self, gpu_type: str, other: Kind) -> float:
        return self.estimator.speed(gpu_type, self.kind, other)


class PairEstimator:
    """Finds the reference kind that a job resembles.

    Args:
        references: throughputs of kinds whose pair speeds were all measured.
        gpu_types: where.
        profiled: share of (GPU type, reference) columns that a new job is tried on.
        seed: of the choice of columns and of the factors.
    """

    def __init__(
        self,
        references: Sequence[Throughputs],
        gpu_types: Collection[str],
        *,
        profiled: float = 0.2,
        seed: int = 0,
    ):
        if not 0 < profiled <= 1:
            raise ValueError(f"profiled is {profiled}; it must be above 0 and at most 1")
        self.references = list(references)
        self.profiled = profiled
        self._columns = [(t, ref.kind) for t in gpu_types for ref in self.references]
        self._rng = np.random.default_rng(seed)
        self._matched: dict[Kind, Throughputs] = {}
        self._measured: dict[tuple[str, Kind, Kind], float] = {}
        self._table = np.array([self._speeds(ref, self._columns) for ref in self.references])

    @staticmethod
    def _speeds(job: Throughputs, columns: Sequence[tuple[str, Kind]]) -> list[float]:
        return [job.beside(gpu_type, other) for gpu_type, other in columns]

    def estimate(self, job: Throughputs) -> Alike:
        """Try a job beside a random part of the references, and match it; once for each kind."""
        if job.kind not in self._matched:
            tried = self._rng.random(len(self._columns)) < self.profiled
            tried[self._rng.integers(len(tried))] = True  # at least one
            row = np.full(len(self._columns), np.nan)
            row[tried] = self._speeds(job, [self._columns[i] for i in np.flatnonzero(tried)])
            filled = completed(np.vstack([self._table, row]), self._rng)[-1]
            self._matched[job.kind] = self.references[nearest(filled, self._table)]
        return Alike(job, self)

    def watched(self, gpu_type: str, job: Throughputs, other: Throughputs) -> None:
        """Two jobs shared GPUs: from now on their kinds' speeds there are known."""
        for one, two in ((job, other), (other, job)):
            measured = one.own if isinstance(one, Alike) else one
            self._measured[gpu_type, one.kind, two.kind] = measured.beside(gpu_type, two.kind)

    def speed(self, gpu_type: str, own: Kind, other: Kind) -> float:
        """Pair speed of a matched kind: as seen when they shared, else of what they resemble."""
        seen = self._measured.get((gpu_type, own, other))
        if seen is not None:
            return seen
        like = self._matched.get(other)
        return self._matched[own].beside(gpu_type, other if like is None else like.kind)


def nearest(row: Floats, table: Floats) -> int:
    """The row of a table at the smallest cosine distance; the first on ties."""
    length = np.linalg.norm(table, axis=1) * (np.linalg.norm(row) or 1.0)
    likeness = np.divide(table @ row, length, out=np.zeros(len(table)), where=length > 0)
    return int(np.argmax(likeness))
