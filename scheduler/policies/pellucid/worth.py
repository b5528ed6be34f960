"""How a job's duration counts in the order: as the predicted number, or as two numbers of its
curve.

Users are bimodal: most of their jobs end within the hour, a few run for days and hold most of the
GPU time. One predicted number between the two is true of neither. With `counted_s` the order goes
by two numbers of the job's curve: the mean duration, of which so much counts at most, by the square
root of its GPUs; and the chance to last over six hours, by all of them: a wide job taken to be
short is what costs most.

The curve is that of the job's own hazards and claims. How other predictions turned out is left out:
it changes with each job that ends, and jobs that ask for the same would change places by it. Off
by default: see docs/dropped.md.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from scheduler.core.curves import Curve
from scheduler.core.decisions import Evidence
from scheduler.core.durations import DurationDistribution, seconds_of
from scheduler.core.queue import QueuedJob

LONG_S = 21_600.0
COUNTS, ODDS = "counts_s", "counts_odds"  # as they are recorded


class Worth(NamedTuple):
    """How a job's duration counts in the order, seconds.

    Attributes:
        duration_s: the seconds of its duration that count.
        sized_s: these seconds, weighted by the job's GPUs.
        long_s: what the chance to be long adds.
        recorded: the numbers of the curve behind these; () without a curve.
    """

    duration_s: float
    sized_s: float
    long_s: float
    recorded: Evidence = ()

    @property
    def sum_s(self) -> float:
        """The seconds that the job's duration counts in the order in all: `sized_s` plus
        `long_s`.
        """
        return self.sized_s + self.long_s


def worth(
    seconds: float,
    curve: Curve | None,
    gpus: int,
    gpu_exponent: float,
    *,
    counted_s: float,
    long_s: float,
) -> Worth:
    """Return how a predicted duration counts in the order.

    Args:
        seconds: the predicted duration, which counts whole where there is no curve.
        counted_s: of each possible duration, at most so many seconds count.
        long_s: seconds added for each GPU of a job that is certain to last over `LONG_S`.
    """
    if curve is None:
        return Worth(float(seconds), float(seconds * gpus**gpu_exponent), 0.0)
    counts_s, odds = curve.within(counted_s), curve.chance(LONG_S)
    recorded = ((COUNTS, counts_s), (ODDS, odds))
    return Worth(counts_s, counts_s * gpus**gpu_exponent, odds * long_s * gpus, recorded)


class Orders(Protocol):
    """The parts of a policy that an order by durations depends on; see `PellucidSettings`."""

    distribution: DurationDistribution
    ageing: float
    gpu_exponent: float
    counted_s: float | None
    long_s: float


def forgiven(policy: Orders, queued: QueuedJob) -> float:
    """Return the predicted duration that a job is forgiven per second it waits.

    `ageing`; nothing where nobody knows whose the job is: those of a size are then believed alike,
    and only sizes would change places.
    """
    return policy.ageing if queued.job.user else 0.0


def worth_by(policy: Orders, queued: QueuedJob) -> Worth:
    """Return the seconds that a job's predicted duration adds to its key in the queue. A job
    without a prediction adds 0.
    """
    predicted, counted_s = queued.estimate_s or 0.0, policy.counted_s
    curve = policy.distribution.alone(predicted, queued.outlived_s) if counted_s else None
    return worth(
        seconds_of(predicted),
        curve,
        queued.job.gpus,
        policy.gpu_exponent,
        counted_s=counted_s or 0.0,
        long_s=policy.long_s,
    )


def described_by(policy: Orders, queued: QueuedJob) -> Evidence:
    """Return as evidence the predicted distribution of a job's duration, and how much of the
    duration counts in the order.
    """
    assert queued.estimate_s is not None
    described = policy.distribution.described(queued.estimate_s, queued.outlived_s)
    return (*described, *worth_by(policy, queued).recorded)
