"""Findings of one pass over a queue that still hold in the next pass.

Why a job waits for whom nothing can be done depends on its number of GPUs alone, and stays so until
GPUs are freed, taken or kept. Jobs that are alike in all that the moves of a pass look at (`Kind`)
are passed over together: a pass costs by the kinds there are and by the jobs for which something
may have changed, not by the jobs that wait. It saves work, and changes no decision.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple

from scheduler.core.cluster import Pool
from scheduler.core.obstacles import Obstacle
from scheduler.core.queue import Queue, QueuedJob

Filter = Callable[[QueuedJob], bool]
_Entry = tuple[int, float, int, QueuedJob]  # sorts as the queue does, at C's speed


class Kind(NamedTuple):
    """What the policy compares waiting jobs by. Jobs of one kind are passed over together.

    Attributes:
        obstacle: why they wait; None: they have not been evaluated.
        shares: whether their owners let them share.
        seeks: whether partners can be sought for them.
        considered: whether their last search considered a partner.
        pays: whether they are worth profiling.
    """

    gpus: int
    obstacle: Obstacle | None
    shares: bool
    seeks: bool
    considered: bool
    pays: bool


def everybody(queued: QueuedJob) -> bool:
    return True


class Line:
    """The waiting jobs of a virtual cluster, grouped by their kind.

    It follows its queue (`scheduler.core.queue.Index`); what a copy of a core needs of it is made
    again from the queue.
    """

    def __init__(self) -> None:
        self._stale = True  # to be made from the queue
        self._kinds: dict[Kind | None, list[_Entry]] = {}  # None: not filed yet
        self._filed: dict[str, tuple[Kind | None, _Entry]] = {}  # by job

    def __reduce__(self) -> tuple[type[Line], tuple[()]]:
        return Line, ()

    def follow(self, queue: Queue, kind: Callable[[QueuedJob], Kind]) -> None:
        """Group the jobs of a queue by kind, and follow its changes from now on."""
        if queue.index is not self:
            queue.index, self._stale = self, True
        if not self._stale:
            return
        self._stale = False
        self._kinds, self._filed = {}, {}
        for queued in queue:
            entry, of = _entry(queued), kind(queued)
            self._filed[queued.job.job_id] = of, entry
            self._kinds.setdefault(of, []).append(entry)

    def joined(self, queued: QueuedJob) -> None:
        if not self._stale:
            self._put(queued.job.job_id, None, _entry(queued))

    def left(self, queued: QueuedJob) -> None:
        if not self._stale:
            self._drop(*self._filed.pop(queued.job.job_id))

    def reordered(self) -> None:
        self._stale = True

    def file(self, queued: QueuedJob, kind: Kind) -> None:
        """Move a job to the kind that its evaluation showed."""
        job_id = queued.job.job_id
        was, entry = self._filed[job_id]
        if was != kind:
            self._drop(was, entry)
            self._put(job_id, kind, entry)

    def wait_before(self, queued: QueuedJob, obstacle: Obstacle) -> bool:
        """Return whether a job ahead of this one waits for the same reason."""
        entry = _entry(queued)
        return any(
            kind is not None and kind.obstacle is obstacle and entries[0] < entry
            for kind, entries in self._kinds.items()
        )

    def offered(
        self, wanted: Callable[[Kind], Filter | None], stamp: Callable[[], object]
    ) -> Iterator[QueuedJob]:
        """Yield the jobs of the wanted kinds, in the order of the queue.

        Those that were not evaluated yet are. The job at hand may be filed or leave meanwhile.

        Args:
            wanted: returns which jobs of a kind are wanted; None: none.
            stamp: `wanted` is asked again when this changes.
        """
        heap: list[tuple[_Entry, int, list[_Entry], Filter]] = []
        last: _Entry | None = None
        asked: object = None
        while True:
            now = stamp()
            if now != asked:
                asked, heap = now, []
                for n, (kind, entries) in enumerate(self._kinds.items()):
                    whom = everybody if kind is None else wanted(kind)
                    if whom is not None:
                        at = 0 if last is None else bisect_right(entries, last)
                        if at < len(entries):
                            heap.append((entries[at], n, entries, whom))
                heapify(heap)
            if not heap:
                return
            last, n, entries, whom = heap[0]
            at = bisect_right(entries, last)
            if at < len(entries):
                heapreplace(heap, (entries[at], n, entries, whom))
            else:
                heappop(heap)
            if whom(last[3]):
                yield last[3]

    def _put(self, job_id: str, kind: Kind | None, entry: _Entry) -> None:
        insort(self._kinds.setdefault(kind, []), entry)
        self._filed[job_id] = kind, entry

    def _drop(self, kind: Kind | None, entry: _Entry) -> None:
        entries = self._kinds[kind]
        del entries[bisect_left(entries, entry)]
        if not entries:
            del self._kinds[kind]


class Memo:
    """Findings about the queue of one virtual cluster, as of `changes` of its pool.

    Attributes:
        why: by number of GPUs, why a job waits for whom nothing can be done.
        line: who waits, by kind.
        stamp: counts what was found and forgotten.
    """

    def __init__(self) -> None:
        self.why: dict[int, Obstacle] = {}
        self.line = Line()
        self.stamp = 0
        self._changes = -1
        self._hold: object = None

    def begin(self, pool: Pool, hold: object) -> None:
        """Begin a pass, and forget what no longer holds. `hold` is what GPUs are kept for."""
        if self._changes != pool.changes or self._hold is not hold:
            self.why.clear()
        self._hold = hold

    def find(self, gpus: int, obstacle: Obstacle) -> None:
        """Note why jobs of so many GPUs wait."""
        if self.why.get(gpus) is not obstacle:
            self.why[gpus] = obstacle
            self.stamp += 1

    def forget(self) -> None:
        """Forget all findings, since GPUs were taken."""
        self.why.clear()
        self.stamp += 1

    def end(self, pool: Pool) -> None:
        """End the pass: the findings hold for the pool as it is now."""
        self._changes = pool.changes


def _entry(queued: QueuedJob) -> _Entry:
    return -queued.priority, queued.key, queued.seq, queued
