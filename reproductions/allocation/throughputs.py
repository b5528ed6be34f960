"""Clusters of several GPU types: how fast a job trains on each, alone and beside another.

`ThroughputTable` holds measured rates by what is trained and on how many GPUs; `TableGroundTruth`
lets jobs get on at those rates.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import inf
from typing import Any, NamedTuple, Protocol, TypeVar

from features.job import Job
from reproductions.allocation.allocation import Allocation, Node
from reproductions.allocation.nature import RateGroundTruth
from reproductions.allocation.policy import Evidence
from reproductions.allocation.statistics import REMAINING_STEPS, Statistic
from scheduler.core.decisions import Reason

T = TypeVar("T")


class Kind(NamedTuple):
    """What is trained (model and batch size), and on how many GPUs."""

    model: str
    gpus: int


class Throughputs(Protocol):
    """The known speeds of one job."""

    @property
    def kind(self) -> Kind:
        """Return a key; jobs of equal kind are equally fast."""
        ...

    def alone(self, gpu_type: str) -> float:
        """Return the steps per second of the job's gang on a GPU type; 0 where it does not fit, or
        the rate is unknown.
        """
        ...

    def beside(self, gpu_type: str, other: Kind) -> float:
        """Return the pair speed: throughput beside a job of that kind, relative to alone; 0 where
        it cannot share.
        """
        ...


class Terms(NamedTuple):
    """What a user asked for besides GPUs.

    Attributes:
        weight: priority weight, positive.
    """

    weight: float = 1.0


THROUGHPUTS: Statistic[Throughputs] = Statistic("throughputs by GPU type")
TERMS: Statistic[Terms] = Statistic("priority weights")


class ThroughputTable:
    """Measured steps per second, by GPU type and kind.

    Args:
        alone: rates of a gang by itself.
        pairs: rates of two kinds on the same GPUs, in the order of the key.
    """

    def __init__(
        self,
        alone: Mapping[str, Mapping[Kind, float]],
        pairs: Mapping[str, Mapping[tuple[Kind, Kind], tuple[float, float]]],
    ):
        self._alone = alone
        self._speeds: dict[tuple[str, Kind, Kind], float] = {}
        for gpu_type, rates in pairs.items():
            for (a, b), (rate_a, rate_b) in rates.items():
                self._note(gpu_type, a, b, rate_a)
                self._note(gpu_type, b, a, rate_b)
        self.of = cache(lambda kind: Row(self, kind))

    def _note(self, gpu_type: str, own: Kind, other: Kind, rate: float) -> None:
        alone = self._alone[gpu_type].get(own, 0.0)
        self._speeds[gpu_type, own, other] = rate / alone if alone else 0.0

    @property
    def gpu_types(self) -> list[str]:
        return list(self._alone)

    @property
    def kinds(self) -> list[Kind]:
        """Return every kind for which some type has a rate, in the order of the table."""
        return list(dict.fromkeys(kind for rates in self._alone.values() for kind in rates))

    def rates(self, model: str, gpus: int) -> dict[str, float]:
        """Return the steps per second on each GPU type; 0 where it does not fit."""
        kind = Kind(model, gpus)
        return {gpu_type: rates.get(kind, 0.0) for gpu_type, rates in self._alone.items()}

    def rate(self, gpu_type: str, kind: Kind) -> float:
        """Return the steps per second of a gang by itself; 0 where it does not fit or was not
        measured.
        """
        return self._alone.get(gpu_type, {}).get(kind, 0.0)

    def speed(self, gpu_type: str, own: Kind, other: Kind) -> float:
        """Return the pair speed of `own` beside `other`; 0 where it cannot share or was not
        measured.
        """
        return self._speeds.get((gpu_type, own, other), 0.0)


@dataclass(frozen=True, slots=True)
class Row:
    """The speeds of one kind of job, read from a table."""

    table: ThroughputTable
    kind: Kind

    def alone(self, gpu_type: str) -> float:
        return self.table.rate(gpu_type, self.kind)

    def beside(self, gpu_type: str, other: Kind) -> float:
        return self.table.speed(gpu_type, self.kind, other)


@dataclass(frozen=True, slots=True)
class StepWork:
    """The truth about a job that makes steps."""

    kind: Kind
    steps: int
    terms: Terms


class TableGroundTruth(RateGroundTruth):
    """A truth in which jobs make steps at the rates of a table.

    Args:
        work: by job id.
        table: the truth.
        nodes: the cluster; their types are looked up in the table.
        restart_s: seconds without progress after a job got other GPUs.
        lease_s: jobs stop at the last whole step within this many seconds of a round, and wait for
            the next; None: they run on until they are done.
    """

    offers: frozenset[Statistic[object]] = frozenset({THROUGHPUTS, TERMS, REMAINING_STEPS})

    def __init__(
        self,
        work: Mapping[str, StepWork],
        table: ThroughputTable,
        nodes: Sequence[Node],
        *,
        restart_s: float = 0.0,
        lease_s: float | None = None,
    ):
        super().__init__(restart_s)
        self._work = work
        self.table = table
        self._types = {node.index: node.gpu_type for node in nodes}
        self._gpus = Counter[str]()
        for node in nodes:
            self._gpus[node.gpu_type] += node.gpus
        self._lease_s = lease_s
        self._leases: dict[str, tuple[float, float]] = {}  # end, and the work left then

    # --- what is known ------------------------------------------------------------------------

    def refusal(self, job: Job) -> tuple[Reason, Evidence] | None:
        kind = self._work[job.job_id].kind
        told: list[tuple[str, float | str]] = [("trains", kind.model)]
        for gpu_type, gpus in self._gpus.items():
            rate = self.table.rate(gpu_type, kind)
            if rate and gpus >= job.gpus and job.gpu_type in (None, gpu_type):
                return None
            told += [(f"steps/s on {gpu_type}", rate), (f"GPUs of {gpu_type}", float(gpus))]
        return Reason.NO_MATCHING_GPU_TYPE, tuple(told)

    def report(self, statistic: Statistic[T], job_id: str, now: float) -> T:
        answer: Any
        if statistic == THROUGHPUTS:
            answer = self.table.of(self._work[job_id].kind)
        elif statistic == TERMS:
            answer = self._work[job_id].terms
        elif statistic == REMAINING_STEPS:
            answer = self.remaining(job_id, now)
        else:
            return super().report(statistic, job_id, now)
        found: T = answer
        return found

    def duration_s(self, job: Job) -> float:
        """Return the seconds alone on the fastest type that holds the job; 0 when there is none."""
        work = self._work[job.job_id]
        large = [gpu_type for gpu_type, gpus in self._gpus.items() if gpus >= job.gpus]
        fastest = max((self.table.rate(t, work.kind) for t in large), default=0.0)
        return work.steps / fastest if fastest else 0.0

    # --- how it gets on -----------------------------------------------------------------------

    def work(self, job_id: str) -> float:
        return float(self._work[job_id].steps)

    def rate(self, job_id: str, allocation: Allocation, partner: Allocation | None) -> float:
        kind = self._work[job_id].kind
        gpu_type = self._types[allocation.nodes[0]]
        rate = self.table.rate(gpu_type, kind)
        if partner is not None and allocation.partner is not None:
            rate *= self.table.speed(gpu_type, kind, self._work[allocation.partner].kind)
        return rate

    def assigned(
        self, assignment: Mapping[str, Allocation], changed: Collection[str], now: float
    ) -> Collection[str]:
        if self._lease_s is None:
            return super().assigned(assignment, changed, now)
        if any(now < self.next_change(job) < inf for job in assignment):
            return ()  # inside a round; whoever lost a partner goes on as before until its end
        for job_id in changed:
            if job_id in self.progress_of and job_id not in assignment:
                self.progress_of[job_id].allocation = None  # has to restart when it comes back
        self._assignment = dict(assignment)
        self._leases = {
            job_id: self._lease(job_id, allocation, now)
            for job_id, allocation in assignment.items()
        }
        return list(assignment)

    def _lease(self, job_id: str, allocation: Allocation, now: float) -> tuple[float, float]:
        """Return (time at which the job stops, steps that remain then) for a round: whole
        steps, at least one. A pair that cannot share makes none.
        """
        assert self._lease_s is not None
        self._set(job_id, allocation, now)
        progress = self.progress_of[job_id]
        start = max(now, progress.resumes)
        if not progress.rate:
            return now + self._lease_s, progress.remaining
        steps = max(1, int(progress.rate * (now + self._lease_s - start)))
        steps = int(min(steps, progress.remaining))
        return start + steps / progress.rate, progress.remaining - steps

    def next_change(self, job_id: str) -> float:
        if self._lease_s is None:
            return super().next_change(job_id)
        return self._leases[job_id][0] if job_id in self._leases else inf

    def passed(self, job_id: str, now: float) -> bool:
        if self._lease_s is None:
            return super().passed(job_id, now)
        progress, (_, left) = self.progress_of[job_id], self._leases.pop(job_id)
        progress.remaining, progress.since, progress.rate = left, now, 0.0
        return left <= 0
