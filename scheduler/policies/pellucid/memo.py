"""What a pass over a queue found out that still holds in the next one.

Why a job waits for whom nothing can be done depends on its number of GPUs alone, and stays so until
GPUs are freed, taken or kept: a long queue is mostly such jobs, and most events change nothing for
them. `Memo.changed` passes them over. It saves work, and changes no decision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from scheduler.core.cluster import Pool
from scheduler.core.decisions import Reason
from scheduler.core.queue import Queue, QueuedJob

UNKNOWN = object()


class Memo:
    """Findings about the queue of one virtual cluster, as of `changes` of its pool.

    Args:
        hold: what GPUs are kept for.
        on: pass jobs over; otherwise each pass evaluates every job.

    Attributes:
        why: by number of GPUs, why a job waits for whom nothing can be done.
        countable: nothing but what is noted here can make a difference in the next pass.
        searchable: partners can be sought for some of those that wait.
    """

    def __init__(self, changes: int, hold: object, *, on: bool = True):
        self.why: dict[int, Reason] = {}
        self._changes = changes
        self._hold = hold
        self._on = on
        self._left: int | None = None  # waiting jobs that `why` is not true of; None = not counted
        self._waiting: list[QueuedJob] = []  # evaluated in this pass, and left waiting
        self.countable = True
        self.searchable = False

    def holds(self, pool: Pool, hold: object) -> bool:
        """Whether neither the GPUs nor what they are kept for have changed."""
        return self._on and self._changes == pool.changes and self._hold is hold

    def changed(
        self,
        queue: Queue,
        as_before: Callable[[QueuedJob], bool],
        spent: Callable[[], bool],
        *,
        but: str = "",
    ) -> Iterator[QueuedJob]:
        """The jobs of a queue for which something may have changed, in order.

        Args:
            as_before: whether nothing else can be tried for a job whose reason still holds.
            spent: whether that is so for all of them, as far as `searchable` tells.
            but: a job that is served otherwise.
        """
        if self._left is not None:
            self._left += len(queue.fresh)
        why = self.why if self._on else {}
        for queued in list(queue):
            if self._left == 0 and spent():
                return  # nobody is left for whom anything is different
            settled = queued.reason is why.get(queued.job.gpus, UNKNOWN)
            if settled and as_before(queued):
                continue
            if queued.job.job_id == but:
                continue
            if self._left and not settled:
                self._left -= 1
            yield queued

    def waits(self, queued: QueuedJob, *, alike: bool, countable: bool) -> None:
        """A job was evaluated and waits on.

        Args:
            alike: for a reason that holds for all of its size for whom nothing can be done.
            countable: nothing about the job itself may change that before the next pass.
        """
        if alike and queued.reason is not None:
            self.why[queued.job.gpus] = queued.reason
        self._waiting.append(queued)
        self.countable &= countable

    def forget(self) -> None:
        """GPUs were taken: nothing found before holds."""
        self.why.clear()
        self._left, self.countable = None, False

    def end(self, pool: Pool) -> None:
        """The pass is over."""
        self._changes = pool.changes
        self._left = None
        if self.countable:
            self._left = sum(q.reason is not self.why.get(q.job.gpus) for q in self._waiting)
        self._waiting, self.countable = [], True
