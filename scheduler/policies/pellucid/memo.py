"""Findings of one pass (one round of decisions on a queue) that still hold in the next pass.

If no move helps a job, the reason why it waits depends only on its number of GPUs, and stays the
same until GPUs are freed, taken or reserved. Jobs that are equal in everything that the moves
compare are of one kind (`Kind`), and are skipped together. So the cost of a pass depends on the
number of kinds, and of jobs for which something may have changed, instead of the number of waiting
jobs. This saves work, and changes no decision.
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
    """The properties by which the policy compares waiting jobs. Jobs of one kind are skipped
    together.

    Attributes:
        obstacle: why the jobs wait; None: they have not been considered yet.
        shares: whether their owners allow them to share GPUs.
        seeks: whether the policy can search partners for them.
        considered: whether their last search found a candidate to consider.
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

    Its queue notifies it of each change (`scheduler.core.queue.Index`). It is not copied with a
    core, but built again from the copy's queue.
    """

    def __init__(self) -> None:
        self._stale = True  # to be made from the queue
        self._kinds: dict[Kind | None, list[_Entry]] = {}  # None: not filed yet
        self._filed: dict[str, tuple[Kind | None, _Entry]] = {}  # by job

    def __reduce__(self) -> tuple[type[Line], tuple[()]]:
        return Line, ()

    def follow(self, queue: Queue, kind: Callable[[QueuedJob], Kind]) -> None:
        """Group the jobs of a queue by kind, and be notified of the queue's changes from now on."""
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
        """Move a job to the group of `kind`, which became its kind when the job was considered."""
        job_id = queued.job.job_id
        was, entry = self._filed[job_id]
        if was != kind:
            self._drop(was, entry)
            self._put(job_id, kind, entry)

    def wait_before(self, queued: QueuedJob, obstacle: Obstacle) -> bool:
        """Return whether a job ahead of this one waits because of `obstacle`."""
        entry = _entry(queued)
        return any(
            kind is not None and kind.obstacle is obstacle and entries[0] < entry
            for kind, entries in self._kinds.items()
        )

    def offered(
        self, wanted: Callable[[Kind], Filter | None], stamp: Callable[[], object]
    ) -> Iterator[QueuedJob]:
        """Yield the jobs of the wanted kinds, in the order of the queue.

        Jobs that were not considered yet are always yielded. The job just yielded may be moved to
        another kind, or leave the queue, before the next one is asked for.

        Args:
            wanted: function that returns a test of which jobs of a kind are wanted; None: none are.
            stamp: function that returns a value; when the value changes, `wanted` is called again.
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
    """Findings about the queue of one virtual cluster, which hold as long as `changes` of its pool
    stays the same.

    Attributes:
        why: maps a number of GPUs to the reason why jobs of that size wait if no move helps them.
        line: the waiting jobs, by kind.
        stamp: counter that grows with each finding, and each time findings are dropped.
    """

    def __init__(self) -> None:
        self.why: dict[int, Obstacle] = {}
        self.line = Line()
        self.stamp = 0
        self._changes = -1
        self._hold: object = None

    def begin(self, pool: Pool, hold: object) -> None:
        """Begin a pass (a round of decisions on the queue), and drop findings that hold no longer.
        `hold` is the reservation of the virtual cluster; when it changes, no finding holds."""
        if self._changes != pool.changes or self._hold is not hold:
            self.why.clear()
        self._hold = hold

    def find(self, gpus: int, obstacle: Obstacle) -> None:
        """Store why jobs of `gpus` GPUs wait."""
        if self.why.get(gpus) is not obstacle:
            self.why[gpus] = obstacle
            self.stamp += 1

    def forget(self) -> None:
        """Drop all findings, because GPUs were taken."""
        self.why.clear()
        self.stamp += 1

    def end(self, pool: Pool) -> None:
        """End a pass (a round of decisions on the queue). The findings hold until the pool changes
        again."""
        self._changes = pool.changes


def _entry(queued: QueuedJob) -> _Entry:
    return -queued.priority, queued.key, queued.seq, queued
