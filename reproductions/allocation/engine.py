"""The event loop for allocations: a core on a simulated clock, against the ground truth."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
from typing import Any

from features.job import Job
from features.schema import State
from reproductions.allocation.core import AllocationCore
from reproductions.allocation.nature import GroundTruth
from scheduler.core.decisions import Action, Decision
from scheduler.simulation.loop import END, EventLoop


class AllocationEngine(EventLoop):
    """Runs jobs through an `AllocationCore`.

    Args:
        core: built by the caller with nodes, policy and source.
        jobs: in order of submission.
        ground_truth: the truth; usually also the core's source.
        sink, progress: as for every event loop.
    """

    progress_every = 16

    def __init__(
        self,
        core: AllocationCore,
        jobs: Iterable[Job],
        ground_truth: GroundTruth,
        *,
        sink: Callable[[list[Decision]], None] | None = None,
        progress: Callable[[int], None] | None = None,
    ):
        super().__init__(
            core,
            ((job, ground_truth.duration_s(job)) for job in jobs),
            sink=sink,
            progress=progress,
        )
        self.core = core
        self.ground_truth = ground_truth
        self._versions: dict[str, int] = {}
        self._changed: list[str] = []
        self._moved: dict[str, None] = {}
        self._rounds = 0
        self._since = 0.0  # of the sum of busy GPU-seconds
        self._in_use = 0

    def _anything_running(self) -> bool:
        return bool(self.core.assignment)

    def _happened(self, kind: int, what: Any, version: int, now: float) -> None:
        job_id: str = what
        if self._versions[job_id] != version:
            return
        if self.ground_truth.passed(job_id, now):
            self._end(job_id, now)
            return
        lease_over = self.ground_truth.next_change(job_id) == inf
        self.core.progressed(job_id, now, lease_over=lease_over)
        if not lease_over:
            self._moved[job_id] = None

    def _end(self, job_id: str, now: float) -> None:
        result = self.results[job_id]
        active = self.core.jobs[job_id]
        active.settle(now)
        result.end_time = now
        result.ran_s = active.attained_s
        self.core.ended(job_id, State.COMPLETED, active.attained_s, now)
        self._changed.append(job_id)
        self._moved.pop(job_id, None)
        self._ended(job_id, now)

    def _carry_out(self, decisions: list[Decision], now: float) -> None:
        for d in decisions:
            result = self.results[d.job_id]
            if d.action is Action.REFUSE:
                self._refused(d.job_id, now)
                continue
            if d.action in (Action.ENQUEUE, Action.WAIT):
                continue
            self._changed.append(d.job_id)
            if d.action is Action.START and result.start_time is None:
                result.start_time = now
            elif d.action is Action.RESIZE:
                result.resizes += 1
            elif d.action is Action.PREEMPT:
                result.preemptions += 1
                self._counts["preemptions"] += 1
            elif d.action is Action.PACK:
                result.packed += 1
                self._counts["packings"] += 1

    def _decided(self, now: float) -> None:
        core = self.core
        self._busy_gpu_s += self._in_use * (now - self._since)
        self._since, self._in_use = now, core.inventory.in_use
        if self._changed or core.rounds != self._rounds:
            self._rounds = core.rounds
            touched = self.ground_truth.assigned(core.assignment, self._changed, now)
            self._moved.update(dict.fromkeys(touched))
            self._changed = []
        for job_id in self._moved:
            version = self._versions[job_id] = self._versions.get(job_id, 0) + 1
            change = self.ground_truth.next_change(job_id)
            if change != inf:
                self._push(max(change, now), END, job_id, version)
        self._moved.clear()
