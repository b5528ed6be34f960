"""Shortest job first by true duration, which knows the future and is only for comparison."""

from __future__ import annotations

from scheduler.core.capabilities import Capabilities
from scheduler.core.policy import Policy
from scheduler.core.queue import QueuedJob


class Sjf(Policy):
    """A policy that starts the job of the smallest true duration first; a job that does not fit
    blocks those behind it. It needs an estimator that knows the truth.
    """

    name = "sjf"
    capabilities = Capabilities(oracle=True, estimates=True)

    def key(self, queued: QueuedJob, now: float) -> float:
        assert queued.predicted_s is not None
        return queued.predicted_s
