"""What a pass over a queue found out that still holds in the next one.

Why a job waits for whom nothing can be done depends on its number of GPUs alone, and stays so until
GPUs are freed, taken or kept: a long queue is mostly such jobs, and most events change nothing
for them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from scheduler.core.cluster import Pool
from scheduler.core.core import QueuedJob
from scheduler.core.decisions import Reason


@dataclass(slots=True)
class Settled:
    """Findings about one virtual cluster as of `changes` of its pool.

    Attributes:
        hold: what GPUs were kept for.
        told: by number of GPUs, why a job waits for whom nothing can be done.
        others: how many waiting jobs that is not true of; None = nobody counted.
    """

    changes: int
    hold: object
    told: dict[int, Reason] = field(default_factory=dict)
    others: int | None = None

    def holds(self, pool: Pool, hold: object) -> bool:
        """Whether neither the GPUs nor what they are kept for have changed."""
        return self.changes == pool.changes and self.hold is hold

    def end(self, pool: Pool, looked_through: Iterable[QueuedJob] | None) -> None:
        """The pass is over. `looked_through`: those that `told` may not be true of, where known."""
        self.changes = pool.changes
        self.others = None
        if looked_through is not None:
            self.others = sum(q.reason is not self.told.get(q.job.gpus) for q in looked_through)
