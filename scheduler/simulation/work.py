"""What a job has to do (work), and how fast that gets done (rate).

`Work` is the truth about a job, which only the simulator knows. A `SpeedModel` gives the rate:
seconds of work, at the speed of a job alone, done per second. A job alone on GPUs of the type for
which durations are stated has rate 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from features.job import Job, Profile
from features.states import State
from scheduler.core.cluster import ClusterSpec, Run
from scheduler.simulation.loop import After


class Configuration(NamedTuple):
    """What a job trains and how. Pair speeds are measured for pairs of these."""

    model: str
    dataset: str
    batch_size: int
    amp: bool


@dataclass(frozen=True, slots=True)
class Work:
    """The truth about a job.

    Attributes:
        duration_s: seconds that the job runs when it has its GPUs to itself.
        state: how it ends.
        configuration: what it trains; None when the trace does not say.
        profile: the profile that measuring the job would give; None when the trace does not say.
    """

    duration_s: float
    state: State = State.COMPLETED
    configuration: Configuration | None = None
    profile: Profile | None = None


@dataclass(slots=True)
class Workload:
    """Jobs in order of submission, the truth about each, and the cluster they ran on.

    Attributes:
        left_out: number of rows of the trace that are left out because their running time is
            unknown.
        recorded_ends: when jobs ended in the trace (seconds since the epoch), where it states that.
        after: by job id, the end for which a submission waits, in a closed loop
            (`pipeline.worlds.closed_loop`).
    """

    name: str
    jobs: list[Job]
    work: dict[str, Work]
    cluster: ClusterSpec
    left_out: int = 0
    recorded_ends: Mapping[str, float] = field(default_factory=dict)
    after: Mapping[str, After] = field(default_factory=dict)


class SpeedModel(Protocol):
    """The rule of a simulation for the rate at which work is done."""

    def rate(self, work: Work, run: Run, neighbour: Work | None) -> float:
        """Return the seconds of work, at the speed of a job alone, that `run` does per second.
        `work`: the truth about its job; `neighbour`: that about the job on the same GPUs, or None.
        """
        ...


class PairTable:
    """Measured pair speeds: each job's throughput relative to running alone.

    Args:
        measured: speed of the first configuration beside the second.
        unmeasured: speed of each job of a pair that was never measured.
        cap: upper limit of a speed (above 1 is measurement noise); None for no limit.
    """

    def __init__(
        self,
        measured: Mapping[tuple[Configuration, Configuration], float],
        *,
        unmeasured: float = 0.8,
        cap: float | None = 1.0,
    ):
        for pair, speed in measured.items():
            if not speed > 0:
                raise ValueError(f"speed of {pair[0]} beside {pair[1]} is {speed}; it must be > 0")
        self._speeds = {
            pair: min(speed, cap) if cap is not None else speed for pair, speed in measured.items()
        }
        self._unmeasured = unmeasured

    def rate(self, work: Work, run: Run, neighbour: Work | None) -> float:
        if neighbour is None:
            return 1.0
        return self.speed(work.configuration, neighbour.configuration)

    def speed(self, own: Configuration | None, other: Configuration | None) -> float:
        """Return the speed of configuration `own` beside `other`, relative to running alone."""
        if own is None or other is None:
            return self._unmeasured
        return self._speeds.get((own, other), self._unmeasured)
