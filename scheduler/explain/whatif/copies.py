"""Copies of the decision core that can be made repeatedly, and run without consequences.

The core is pickled once and loaded for each copy, which takes a millisecond where a fork of the
process would take fifteen. Data that never changes (jobs, profiles, scores), and objects that only
answer questions (predictors, models), are shared between the copies. The estimator, which holds the
whole history, is left out: a copy gets one that only repeats earlier predictions. Copies do not
change what the policy has learned of durations, since nothing is to be learned from simulated
events.
"""

from __future__ import annotations

import io
import pickle
from copy import copy
from types import FunctionType
from typing import Any

from features.job import Job, Profile
from scheduler.core.cluster import ClusterSpec
from scheduler.core.core import Core
from scheduler.core.curves import Predicted
from scheduler.core.decisions import PairPrediction, Score
from scheduler.core.durations import Duration, DurationDistribution, Stated
from scheduler.core.estimates import Estimator
from scheduler.core.queue import QueuedJob

# shared by the copies; so are objects of classes that state `in_copies`: "shared", or "new", where
# each copy has an empty one
_SHARED = (
    Job,
    Profile,
    Score,
    PairPrediction,
    Predicted,
    Stated,
    ClusterSpec,
    DurationDistribution,
    FunctionType,
)
_ESTIMATOR, _ORACLE = -1, -2


class CoreCopy:
    """A frozen copy of the core as it is now, from which cores can be made repeatedly.

    Args:
        core: the core that is copied; no change to a copy affects it.
        now: the present time of the core, seconds since the epoch.
    """

    def __init__(self, core: Core, now: float):
        self.now = now
        self._shared: list[Any] = []
        buffer = io.BytesIO()
        _Pickler(buffer, core, self._shared).dump(core)
        self._bytes = buffer.getvalue()

    def __len__(self) -> int:
        """Return the size of the copy in bytes."""
        return len(self._bytes)

    def restore(self, estimator: Estimator) -> Core:
        """Return a new core (what decides for the cluster), rebuilt from this copy. It asks
        `estimator` for durations. The call takes about 20 us for each job in the core."""
        core = _Unpickler(io.BytesIO(self._bytes), self._shared, estimator).load()
        assert isinstance(core, Core)
        core.keeps_receipts = False
        return core


class _FixedDistribution(DurationDistribution):
    """A duration distribution that learns no more, for use in copies of a core."""

    def __init__(self, distribution: DurationDistribution):
        self.__dict__ = distribution.__dict__ | {"_ranges": [copy(r) for r in distribution._ranges]}

    def learn(
        self, predicted_s: Duration | None, duration_s: float, now: float | None = None
    ) -> None:
        """Do nothing, since simulated ends of jobs teach nothing."""

    def began(self, job_id: str, predicted_s: Duration, now: float, speed: float = 1.0) -> None:
        """Do nothing, since simulated starts of jobs are not recorded."""

    def over(self, job_id: str) -> None:
        """Do nothing, since simulated ends of jobs are not recorded."""


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, core: Core, shared: list[Any]):
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._core = core
        self._live = {id(core.jobs[job_id]) for job_id in core.jobs}
        self._shared = shared
        self._place: dict[int, int] = {}

    def persistent_id(self, obj: Any) -> int | None:
        if obj is self._core.estimator:
            return _ESTIMATOR
        if obj is self._core.oracle and obj is not None:
            return _ORACLE
        if not self._is_shared(obj):
            return None
        place = self._place.get(id(obj))
        if place is None:
            place = self._place[id(obj)] = len(self._shared)
            self._shared.append(
                _FixedDistribution(obj)
                if isinstance(obj, DurationDistribution)
                else type(obj)()
                if getattr(obj, "in_copies", "") == "new"
                else obj
            )
        return place

    def _is_shared(self, obj: Any) -> bool:
        kind = type(obj)
        if kind is QueuedJob:
            return id(obj) not in self._live  # it has ended: nothing changes it any more
        states = hasattr(kind, "in_copies") or callable(getattr(kind, "predict_pair", None))
        return states or issubclass(kind, _SHARED)


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, shared: list[Any], estimator: Estimator):
        super().__init__(file)
        self._shared = shared
        self._estimator = estimator

    def persistent_load(self, pid: int) -> Any:
        if pid == _ESTIMATOR:
            return self._estimator
        return None if pid == _ORACLE else self._shared[pid]
