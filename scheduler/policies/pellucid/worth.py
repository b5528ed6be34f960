"""How a job's duration counts in the order of the queue.

Most jobs of a user end within an hour; a few run for days and hold most of the GPU time. A single
predicted duration lies between the two and fits neither: four in five jobs of over six hours are
predicted to last a tenth of that. So the order goes by the mean of the job's own curve, in which a
small chance of days weighs as much as it costs the jobs behind.

The curve is made of the job's own hazards and claims. How other predictions turned out is left out
of it: that changes with each job that ends, and jobs that ask for the same would change places by
it. What the two orders were measured to give stands in docs/policy-figures.md.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from scheduler.core.curves import Predicted
from scheduler.core.decisions import Evidence
from scheduler.core.durations import DurationDistribution, seconds_of
from scheduler.core.queue import QueuedJob

COUNTS = "counts_s"  # as the mean is recorded
SUBMITTED = "submitted"  # of `order_by`


class Worth(NamedTuple):
    """How a job's duration counts in the order, seconds.

    Attributes:
        duration_s: the duration that counts.
        sized_s: the same, weighted by the job's GPUs: what it adds to the job's key.
        recorded: the mean of the curve, as evidence; () where the predicted number counts.
    """

    duration_s: float
    sized_s: float
    recorded: Evidence = ()


class Orders(Protocol):
    """The parts of a policy that an order by durations depends on; see `PellucidSettings`."""

    distribution: DurationDistribution
    ageing: float
    gpu_exponent: float
    order_by: str


def forgiven(policy: Orders, queued: QueuedJob) -> float:
    """Return how many seconds a job's order value falls for each second that it waits.

    That is the setting `ageing`. It is 0 for a job without a user: all such jobs of one size are
    predicted alike, so ageing would only let sizes change places. It is 1 where the order is that
    of submission, in which no duration counts.
    """
    if policy.order_by == SUBMITTED:
        return 1.0
    return policy.ageing if queued.job.user else 0.0


def _rests_on_more(queued: QueuedJob) -> bool:
    """Return whether the prediction of a job rests on more than what it asks for: on its user, name
    or command, or on what was stated of its duration.

    Otherwise its curve is that of all jobs of its size. Its mean moves with each that ends, and
    jobs of one size would change places by when they came.
    """
    job, predicted = queued.job, queued.estimate_s
    stated = bool(predicted.claims) if isinstance(predicted, Predicted) else True
    return bool(job.user or job.name or job.like) or stated


def worth_by(policy: Orders, queued: QueuedJob) -> Worth:
    """Return how a job's duration counts in its key: as the mean of its curve, or as the predicted
    duration where it has no curve, `order_by` is "predicted", or nothing but its size is known of
    the job.

    A job without a prediction adds 0, as every job does in order of submission.
    """
    if policy.order_by == SUBMITTED:
        return Worth(0.0, 0.0)
    predicted = queued.estimate_s or 0.0
    curve = None
    if policy.order_by == "mean" and _rests_on_more(queued):
        curve = policy.distribution.alone(predicted, queued.outlived_s)
    seconds = float(seconds_of(predicted)) if curve is None else curve.expected()
    recorded = () if curve is None else ((COUNTS, seconds),)
    return Worth(seconds, seconds * queued.job.gpus**policy.gpu_exponent, recorded)


def described_by(policy: Orders, queued: QueuedJob) -> Evidence:
    """Return as evidence the predicted distribution of a job's duration and, where the order goes
    by it, the mean of its curve."""
    assert queued.estimate_s is not None
    described = policy.distribution.described(queued.estimate_s, queued.outlived_s)
    return (*described, *worth_by(policy, queued).recorded)
