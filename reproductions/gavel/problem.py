"""The input of Gavel's optimisations: jobs, GPU types, throughputs, and speeds of pairs of jobs.

Shapes: n jobs (or classes of identical jobs), m GPU types.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Index = Ints | int


class NoGpuTypeHolds(ValueError):
    """Raised when no GPU type of the cluster can hold some jobs.

    Attributes:
        jobs: indices of these jobs.
    """

    def __init__(self, jobs: Ints):
        super().__init__(f"no GPU type can hold jobs {', '.join(map(str, jobs[:8]))}")
        self.jobs = jobs


@dataclass(frozen=True, eq=False)
class Problem:
    """Jobs that share a cluster of several GPU types.

    Attributes:
        throughput: (n, m) steps per second of a job on all its GPUs; 0: it does not fit there. Must
            also be 0 on a type with fewer GPUs than the job needs, since the program would give the
            job some of them, which no round can turn into running time.
        gpus: (n,) GPUs of each job, all of one type.
        capacity: (m,) GPUs of each type.
        weights: (n,) priority weights, positive.
        count: (n,) number of identical jobs that a row stands for.
        kind: (n,) index of what each job trains, used in `speeds`.
        speeds: (m, k, k) speed of the row's kind while it shares GPUs with the column's kind,
            relative to its speed alone; 0: they cannot share. None: no job shares.

    Raises:
        NoGpuTypeHolds: a job has no type on which it can run.
        ValueError: a shape or a sign is wrong.
    """

    throughput: Floats
    gpus: Ints
    capacity: Ints
    weights: Floats
    count: Ints
    kind: Ints
    speeds: NDArray[np.floating] | None = None

    def __post_init__(self) -> None:
        n, m = self.throughput.shape
        if self.capacity.shape != (m,) or (self.capacity < 0).any():
            raise ValueError("capacity needs one number of GPUs, at least 0, per GPU type")
        for name in ("gpus", "weights", "count"):
            values = getattr(self, name)
            if values.shape != (n,) or not (values > 0).all():
                raise ValueError(f"{name} needs one positive number per job")
        if not (np.isfinite(self.throughput) & (self.throughput >= 0)).all():
            raise ValueError("throughputs must be finite and at least 0")
        k = int(self.kind.max(initial=-1)) + 1
        if self.speeds is not None and (len(self.speeds) != m or self.speeds.shape[1] < k):
            raise ValueError("pair speeds need one number per GPU type and ordered pair of kinds")
        stranded = np.flatnonzero(~(self.throughput > 0).any(axis=1))
        if stranded.size:
            raise NoGpuTypeHolds(stranded)

    @classmethod
    def of(
        cls,
        throughput: object,
        capacity: object,
        gpus: object = None,
        weights: object = None,
        count: object = None,
        kind: object = None,
        speeds: NDArray[np.floating] | None = None,
    ) -> Problem:
        """Return a problem from array-like arguments. By default, GPUs per job, weights and counts
        are 1, and all kinds differ.
        """
        rates = np.asarray(throughput, float)
        n = len(rates)
        return cls(
            throughput=rates,
            gpus=np.ones(n, np.int64) if gpus is None else np.asarray(gpus, np.int64),
            capacity=np.asarray(capacity, np.int64),
            weights=np.ones(n) if weights is None else np.asarray(weights, float),
            count=np.ones(n, np.int64) if count is None else np.asarray(count, np.int64),
            kind=np.arange(n) if kind is None else np.asarray(kind, np.int64),
            speeds=speeds,
        )

    @property
    def jobs(self) -> int:
        """Return the number of rows: jobs, or classes of them."""
        return len(self.throughput)

    @property
    def types(self) -> int:
        return len(self.capacity)

    @cached_property
    def proportional(self) -> Floats:
        """Return (n,) the throughput of each row if every job spends on each type a share of time
        equal to the type's share of all GPUs.
        """
        rates: Floats = self.throughput @ (self.capacity / self.capacity.sum())
        return rates

    @cached_property
    def isolated(self) -> Floats:
        """Return the throughput of each of n rows if every job had an n-th of the GPUs of each type
        for itself, an array (n,)."""
        share = self.capacity / (self.count.sum() * self.gpus[:, None])
        share /= np.maximum(1.0, share.sum(axis=1, keepdims=True))
        rates: Floats = (share * self.throughput).sum(axis=1)
        return rates

    def speed(self, gpu_type: int, a: Index, b: Index) -> NDArray[np.floating]:
        """Return the speeds of jobs `a` while they share GPUs of a type with jobs `b`; the two
        index arrays are broadcast.
        """
        assert self.speeds is not None
        found: NDArray[np.floating] = self.speeds[gpu_type, self.kind[a], self.kind[b]]
        return found

    def blind(self) -> Problem:
        """Return a copy of the problem as a policy sees it that treats all GPU types as equal."""
        return replace(self, throughput=np.ones_like(self.throughput))
