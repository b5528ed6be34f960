"""The profiling stage: a few minutes on a small partition before a job joins its queue.

Least-GPU-first, never past the first that does not fit; at most `limit_s` seconds each; one more
node while many wait (Lucid, ASPLOS'23, section 3.2). What a job did there is lost unless it ended.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass
from math import floor
from typing import TYPE_CHECKING, Protocol

from features.job import Job, Profile
from scheduler.decisions import Action, Reason
from scheduler.forecast import Forecast

if TYPE_CHECKING:
    from scheduler.core import Core, QueuedJob


class Stage(Protocol):
    """What stands in front of the queues."""

    limit_s: float
    max_gpus: int
    overlaps_waiting: bool  # looks at jobs that wait in their queues, after every queue's turn

    def skips(self, job: Job) -> Reason | None:
        """Why a job goes straight to its queue; None when it is to be profiled."""
        ...

    def known_profile(self, job: Job) -> Profile | None:
        """The profile of a job that skips the stage, where one is known."""
        ...

    def add(self, queued: QueuedJob) -> None:
        """A job joins the stage."""
        ...

    def serve(self, core: Core, now: float) -> None:
        """Start what fits; lend or return nodes."""
        ...

    def next_wake(self, now: float) -> float | None:
        """When to be served even if nothing happens."""
        ...


@dataclass(frozen=True, slots=True)
class Scaling:
    """Time-aware scaling of the partition, by one node.

    Attributes:
        lender: virtual cluster the extra node comes from.
        grow_above, grow_every_s: lend when more than this many jobs wait; looked at this often.
        shrink_below, shrink_every_s: return when fewer than this many wait, a node is idle, and
            no more than `quiet_gpus` GPUs are forecast per bin.
    """

    lender: str
    grow_above: int = 10
    grow_every_s: float = 10.0
    shrink_below: int = 5
    shrink_every_s: float = 100.0
    quiet_gpus: float = 40.0


class ProfilingStage:
    """The stage of the Lucid paper."""

    overlaps_waiting = False

    def __init__(
        self,
        *,
        limit_s: float = 200.0,
        max_gpus: int = 8,
        scaling: Scaling | None = None,
        forecast: Forecast | None = None,
    ):
        self.limit_s = limit_s
        self.max_gpus = max_gpus
        self.scaling = scaling
        self.forecast = forecast
        self._queue: list[tuple[int, int, QueuedJob]] = []
        self._extra: int | None = None  # the node lent by scaling

    def skips(self, job: Job) -> Reason | None:
        return Reason.PROFILING_SKIPPED if job.gpus > self.max_gpus else None

    def known_profile(self, job: Job) -> Profile | None:
        return None

    def add(self, queued: QueuedJob) -> None:
        insort(self._queue, (queued.job.gpus, queued.seq, queued))

    def serve(self, core: Core, now: float) -> None:
        self._place(core, now)
        if self.scaling is not None and self._scale(core, now, self.scaling):
            self._place(core, now)

    def next_wake(self, now: float) -> float | None:
        scaling = self.scaling
        if scaling is None:
            return None
        if self._extra is not None:
            return _next_multiple(now, scaling.shrink_every_s)
        if len(self._queue) > scaling.grow_above:
            return _next_multiple(now, scaling.grow_every_s)
        return None

    def _place(self, core: Core, now: float) -> None:
        pool = core.cluster.profiling
        while self._queue:
            gpus, _, queued = self._queue[0]
            placement = pool.place(gpus)
            if placement is None:
                break
            del self._queue[0]
            core.profile(queued, placement, now)
        for position, (gpus, _, queued) in enumerate(self._queue, 1):
            if queued.reason is None:
                queued.reason = Reason.AWAITING_PROFILE
                core.record(
                    now,
                    Action.WAIT,
                    Reason.AWAITING_PROFILE,
                    queued.job.job_id,
                    queued.job.vc,
                    need=gpus,
                    free=pool.free,
                    limit=pool.gpus,
                    position=position,
                )

    def _scale(self, core: Core, now: float, scaling: Scaling) -> bool:
        """Lend or return the extra node. True when a node came."""
        waiting = len(self._queue)
        cluster, vc = core.cluster, scaling.lender
        if self._extra is None:
            if waiting <= scaling.grow_above or now % scaling.grow_every_s:
                return False
            node = cluster.pools[vc].idle_node()
            if node is None:
                return False
            cluster.lend(node)
            self._extra = node
            core.record(
                now, Action.LEND, Reason.PROFILING_BACKLOG, "", vc, nodes=(node,), position=waiting
            )
            return True
        quiet = self.forecast is None or self.forecast.gpus(now) <= scaling.quiet_gpus
        if (
            waiting < scaling.shrink_below
            and now % scaling.shrink_every_s == 0
            and cluster.profiling.is_idle(self._extra)
            and quiet
        ):
            cluster.give_back(self._extra)
            core.record(
                now,
                Action.RETURN,
                Reason.PROFILING_IDLE,
                "",
                vc,
                nodes=(self._extra,),
                position=waiting,
            )
            core.touch(vc)
            self._extra = None
        return False


class WaitingStage(ProfilingStage):
    """Looks only at jobs that have to wait anyway, while they wait.

    A job that can start at once does, and is watched where it runs. One that waits is looked at
    when there is room, smallest first: its wait goes on meanwhile, and if it is short or fails
    fast it is over. The policy may have others looked at before they start.
    """

    overlaps_waiting = True

    def skips(self, job: Job) -> Reason | None:
        return Reason.SUBMITTED

    def add(self, queued: QueuedJob) -> None:
        if not queued.looked_at and queued.profile is None and queued.job.gpus <= self.max_gpus:
            super().add(queued)

    def _place(self, core: Core, now: float) -> None:
        pool, left = core.cluster.profiling, []
        for entry in self._queue:
            queued = entry[-1]
            if not core.waits(queued):
                continue
            placement = pool.place(queued.job.gpus)
            if placement is None:
                left.append(entry)
                continue
            core.queues[queued.job.vc].remove(queued)
            core.touch(queued.job.vc)  # whoever stood behind it may now be first
            core.profile(queued, placement, now)
        self._queue = left


def _next_multiple(now: float, step: float) -> float:
    return (floor(now / step) + 1) * step
