"""The statistics of a job that a policy may ask for, beyond its submission.

A statistic is a key with a type. A policy declares those it needs, the truth (or a live monitor)
those it offers; a policy cannot run where one is missing, and is shown none that it did not
declare. A statistic marked `truth` is known to nobody outside a simulation: a policy that needs one
is a yardstick.

New statistics are declared here when several policies share them, beside the policy otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

from reproductions.allocation.allocation import Batch

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Statistic(Generic[T_co]):
    """A key for a statistic. `name` ends the sentence "this workload has no ..."."""

    name: str
    truth: bool = False


class Limits(NamedTuple):
    """The limits of a job's batch size, in samples.

    Attributes:
        initial: the batch size its statistical efficiency is counted from.
        largest: largest batch of one update, on all GPUs together.
        per_gpu: (smallest, largest) of one pass on one GPU.
        gpus: most GPUs it may use; None for no limit of its own.
        smallest: of one update; None = the initial one.
    """

    initial: int
    largest: int
    per_gpu: tuple[int, int]
    gpus: int | None = None
    smallest: int | None = None

    @property
    def least(self) -> int:
        """Return the smallest batch of one update, in samples."""
        return self.initial if self.smallest is None else self.smallest

    @property
    def most_gpus(self) -> int:
        """Return the number of GPUs beyond which each has too little of even the largest batch."""
        scales = self.largest // self.per_gpu[0]
        return scales if self.gpus is None else min(self.gpus, scales)


class Configuration(NamedTuple):
    """A configuration in which a step time was measured: nodes spanned, GPUs in all, samples per
    GPU and pass.
    """

    nodes: int
    gpus: int
    per_gpu: int


class StepTimes(NamedTuple):
    """Seconds of one pass with an update (`step_s`), and of the synchronising in it (`sync_s`)."""

    step_s: float
    sync_s: float


class GradientNoise(NamedTuple):
    """Squared norm and variance of the gradient, at the job's initial batch size."""

    square: float
    variance: float


class StepTimeOracle(Protocol):
    """The truth about step times, measured or interpolated."""

    def step_times(self, gpus: tuple[int, ...], per_gpu: int) -> StepTimes:
        """Return the times with `gpus` workers on each node of a placement."""
        ...

    def batch(self, gpus: int) -> Batch:
        """Return how the job splits the batch size it was submitted with over `gpus` GPUs."""
        ...


# what a running job can be seen to do
BATCH_LIMITS: Statistic[Limits] = Statistic("limits of the batch size")
STEP_PROFILE: Statistic[Mapping[Configuration, StepTimes]] = Statistic("profiled step times")
GRADIENT_NOISE: Statistic[GradientNoise | None] = Statistic("gradient statistics")
MOST_GPUS: Statistic[int] = Statistic("limits to scaling")
# the truth
REMAINING_S: Statistic[float] = Statistic("known durations", truth=True)
REMAINING_STEPS: Statistic[float] = Statistic("known numbers of steps", truth=True)
STEP_TIMES: Statistic[StepTimeOracle] = Statistic("measured step times", truth=True)
