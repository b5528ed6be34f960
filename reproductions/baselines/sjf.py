"""Shortest job first by true duration: a yardstick that knows the future."""

from __future__ import annotations

from scheduler.core.capabilities import Capabilities
from scheduler.core.policy import Policy
from scheduler.core.queue import QueuedJob


class Sjf(Policy):
    """Smallest true duration first, with head-of-line blocking. It needs an oracle estimator."""

    name = "sjf"
    capabilities = Capabilities(oracle=True, estimates=True)

    def key(self, queued: QueuedJob, now: float) -> float:
        assert queued.predicted_s is not None
        return queued.predicted_s
