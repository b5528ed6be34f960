"""Waiting jobs: what operators and owners do to them, and jobs that cannot start at all.

The core knows in which queue a job waits (`Core.queues`, or the profiling stage). This module knows
which jobs are held, and which can never start on the cluster as it is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from copy import copy
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Protocol, Self

from features import pulse
from features.job import Job
from scheduler.core.cluster import suits
from scheduler.core.decisions import Action, Reason
from scheduler.core.dependencies import Blocked, Dependencies, EndMemory
from scheduler.core.estimates import Estimate, Estimator, Known, moved_by, with_progress
from scheduler.core.policy import Policy
from scheduler.core.queue import QueuedJob
from scheduler.core.turn import Host

if TYPE_CHECKING:
    from scheduler.core.profiling import Stage


class Room(Protocol):
    """Tells which jobs can ever start, from the nodes that there are and will be
    (`nodes.Nodes`)."""

    @property
    def capacity(self) -> dict[str, int]: ...
    def refusal(self, job: Job) -> Reason | None: ...
    def too_large(self, job: Job) -> bool: ...
    def too_large_once_changed(self, job: Job) -> bool: ...


class WaitingHost(Host, Protocol):
    """The part of the core that `Waiting` uses."""

    @property
    def policy(self) -> Policy: ...
    @property
    def profiling(self) -> Stage | None: ...
    @property
    def nodes(self) -> Room: ...

    def join(
        self,
        queued: QueuedJob,
        now: float,
        reason: Reason | None = None,
        estimator: Estimator | None = None,
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class _Dependent:
    """A job that waits for other jobs to end.

    Attributes:
        blocked: the job that it waits for now.
        since: time since when it waits, seconds since the epoch.
        joined: whether it had joined its queue before.
    """

    blocked: Blocked
    since: float
    joined: bool


@dataclass(slots=True, kw_only=True)
class DependentMemory:
    """A plain record of a job that waits for other jobs to end; see `_Dependent` and `Blocked`."""

    job_id: str
    by: str
    never: bool
    since: float
    joined: bool


@dataclass(slots=True, kw_only=True)
class WaitingMemory:
    """A plain record of the jobs that wait outside a queue.

    Attributes:
        set_aside: ids of the jobs that can never start on the cluster as it is.
        held: ids of the held jobs, and whether each had joined its queue before.
        dependent: jobs that wait for other jobs to end.
        ends: how those other jobs ended.
        recheck: see `Waiting`.
    """

    set_aside: list[str]
    held: dict[str, bool]
    dependent: list[DependentMemory]
    ends: list[EndMemory]
    recheck: bool


class Waiting:
    """Holds, dependencies, changes, priorities, and jobs that can never start; part of a core.

    Attributes:
        recheck: whether to check again which jobs can ever start, because nodes were added or
            removed, or are about to be.
    """

    def __init__(self, core: WaitingHost) -> None:
        self._core = core
        self.recheck = False
        self._set_aside: dict[str, QueuedJob] = {}  # can never start as the cluster is
        self._held: dict[str, bool] = {}  # kept back: whether they were in a queue
        self._dependencies = Dependencies()
        self._dependent: dict[str, _Dependent] = {}  # kept back until others have ended

    def remember(self) -> WaitingMemory:
        """Return a plain record of the jobs that wait outside a queue."""
        return WaitingMemory(
            set_aside=list(self._set_aside),
            held=dict(self._held),
            dependent=[
                DependentMemory(
                    job_id=job_id,
                    by=one.blocked.by,
                    never=one.blocked.never,
                    since=one.since,
                    joined=one.joined,
                )
                for job_id, one in self._dependent.items()
            ],
            ends=self._dependencies.remember(),
            recheck=self.recheck,
        )

    def restore(self, memory: WaitingMemory) -> None:
        """Restore what `remember` returned. The core's jobs must be restored already."""
        jobs = self._core.jobs
        self._set_aside = {job_id: jobs[job_id] for job_id in memory.set_aside}
        self._held, self.recheck = dict(memory.held), memory.recheck
        self._dependent = {
            one.job_id: _Dependent(Blocked(one.by, one.never), one.since, one.joined)
            for one in memory.dependent
        }
        self._dependencies.restore(memory.ends, (queued.job for queued in jobs.values()))

    def set_priority(self, job_id: str, priority: int) -> None:
        """Set a job's priority, as an operator asks. This moves a waiting job in its queue; a job
        that has its GPUs is not affected."""
        queued = self._core.jobs[job_id]
        queue = self._core.queues[queued.job.vc]
        waits = queued in queue
        if waits:
            queue.remove(queued)
        queued.priority = priority
        if waits:
            queue.insert(queued)
            self._core.touch(queued.job.vc)

    def hold(self, job_id: str, now: float, reason: Reason = Reason.HELD_BY_OWNER) -> None:
        """Keep a waiting job from starting until it is released. Jobs behind it are served
        meanwhile.

        A job that is being profiled is held when its profiling ends. A running job is not affected.
        """
        core = self._core
        queued = core.jobs[job_id]
        run = core.cluster.runs.get(job_id)
        if run is not None and not run.profiling:
            return
        if job_id not in self._held:
            self._held[job_id] = run is None and self._step_aside(queued, now)
            queued.held_since = now if run is None else None
        queued.reason = reason
        core.record(
            now,
            action=Action.WAIT,
            reason=reason,
            job_id=job_id,
            vc=queued.job.vc,
            need=queued.job.gpus,
        )

    def release(self, job_id: str, now: float) -> None:
        """Release a held job, so that it may start again. The time for which it was held does not
        count as waiting."""
        if job_id not in self._held:
            return
        queued, joined = self._core.jobs[job_id], self._held.pop(job_id)
        queued.reason = None
        if queued.held_since is None:
            return  # it is still being profiled
        queued.submit_time += now - queued.held_since
        queued.held_since = None
        self._wait_again(queued, now, Reason.RELEASED, self._as_before(queued), joined=joined)

    def held(self) -> list[str]:
        """Return the ids of the jobs that an owner or operator holds."""
        return list(self._held)

    def is_held(self, job_id: str) -> bool:
        """Return whether a job is held."""
        return job_id in self._held

    def change(self, job: Job, now: float) -> None:
        """Replace the request of a waiting job: GPUs, limits, sharing, virtual cluster.

        The job keeps its id, submission time, priority and waited time. Its predicted duration
        changes by the difference between the two requests, and not by what was learned since it was
        predicted, so that the change has no effect on other jobs. With another number of GPUs, its
        profile is dropped. A job that cannot run on the cluster as it is waits until it can.
        """
        core = self._core
        queued = core.jobs[job.job_id]
        resized = job.gpus != queued.job.gpus
        heard = self.to_estimate(job, queued.job)
        estimator = core.estimator
        if queued.estimate_s is not None:
            known = Estimate(queued.estimate_s, queued.score, queued.outlived_s)
            if heard != queued.job:
                was, new = (
                    with_progress(one, queued.progress)
                    for one in core.estimator.as_changed(queued.job, heard, now)
                )
                known = moved_by(known, was, new)
            if resized:  # what it outlived was on other GPUs
                known = replace(known, outlived_s=0.0)
            estimator = Known(core.estimator, known)
        joined = self._step_aside(queued, now)
        if resized:
            queued.profile, queued.profiled, queued.outlived_s = None, False, 0.0
        if heard != queued.job:
            core.estimator.changed(heard, now)
        self._dependencies.drop(queued.job)
        self._dependencies.add(job)
        queued.job = job
        if job.job_id in self._held:
            self._held[job.job_id] = (joined or self._held[job.job_id]) and not resized
        else:
            joined = joined and not resized
            self._wait_again(queued, now, Reason.REQUEST_CHANGED, estimator, joined=joined)

    def to_estimate(self, job: Job, before: Job) -> Job:
        """Return the changed job in the form that the estimator gets.

        The job keeps its former GPU type there, if old and new type suit the same nodes of its
        virtual cluster.
        """
        pool, nodes = self._core.cluster.pools.get(job.vc), self._core.cluster.nodes
        if pool is None or job.vc != before.vc or job.gpu_type == before.gpu_type:
            return job
        types = {nodes[node].gpu_type for node in pool.nodes()}
        same = all(suits(one, job.gpu_type) == suits(one, before.gpu_type) for one in types)
        return replace(job, gpu_type=before.gpu_type) if same else job

    def never_starts(self, job_id: str) -> bool:
        """Return whether a job was set aside because it asks for more GPUs than its virtual cluster
        has, and also for more than that will have after all pending changes of nodes."""
        job, nodes = self._core.jobs[job_id].job, self._core.nodes
        small = job_id in self._set_aside and job.gpus > nodes.capacity[job.vc]
        return small and nodes.too_large_once_changed(job)

    def review(self, now: float) -> None:
        """Remove jobs from their queues that can never start on the present cluster, so that no job
        waits behind them. Put removed jobs back when the cluster has room for them again."""
        self.recheck = False
        core = self._core
        for job_id in list(self._dependent):
            self._reconsider(job_id, now)
        refusal = core.nodes.refusal
        for queued in list(chain.from_iterable(core.queues.values())):
            job = queued.job
            reason = refusal(job)
            if reason is None:
                continue
            self.forget(queued)
            core.policy.withdrawn(job.job_id, now)
            self._set_aside[job.job_id] = queued
            if core.nodes.too_large(job):
                reason = Reason.VC_TOO_SMALL
            limit = core.nodes.capacity[job.vc]
            if queued.reason is not reason:
                queued.reason = reason
                core.record(
                    now,
                    action=Action.WAIT,
                    reason=reason,
                    job_id=job.job_id,
                    vc=job.vc,
                    need=job.gpus,
                    limit=limit,
                )
        for job_id, queued in list(self._set_aside.items()):
            if refusal(queued.job) is None:
                del self._set_aside[job_id]
                queued.reason = None
                self.prepare_again(queued, now)
                core.queues[queued.job.vc].add(queued)
                core.queues[queued.job.vc].resorted = True
                core.touch(queued.job.vc)

    def rekeyed(self) -> Iterator[QueuedJob]:
        """Yield the waiting jobs of queues whose keys a policy changed since the last call."""
        for queue in self._core.queues.values():
            if queue.resorted:
                queue.resorted = False
                yield from queue

    # --- used by the core and its nodes -----------------------------------------------------

    def prepare_again(self, queued: QueuedJob, now: float) -> None:
        """Have the policy set a job's key as of now, from the job's last estimate."""
        pulse.beat()
        self._core.policy.prepare(queued, now, self._as_before(queued))

    def _as_before(self, queued: QueuedJob) -> Estimator:
        """Return an estimator that repeats the last estimate of a job. For a job without one,
        return the core's estimator.
        """
        inner = self._core.estimator
        if queued.estimate_s is None:
            return inner
        return Known(inner, Estimate(queued.estimate_s, queued.score, queued.outlived_s))

    def forget(self, queued: QueuedJob) -> None:
        """Remove a waiting job from its queue and from the profiling stage."""
        core = self._core
        queue = core.queues[queued.job.vc]
        if queued in queue:
            queue.remove(queued)
            if queued in queue.fresh:
                queue.fresh.remove(queued)
            core.touch(queued.job.vc)  # whoever stood behind it may now be first
        self._set_aside.pop(queued.job.job_id, None)
        if core.profiling is not None:
            core.profiling.remove(queued)

    def arrived(self, queued: QueuedJob, now: float) -> bool:
        """Record which jobs a submitted job depends on. Return whether it has to wait for them, so
        that it joins no queue yet."""
        self._dependencies.add(queued.job)
        return self._depends(queued, now, joined=False)

    def gone(self, job: Job, success: bool, now: float) -> None:
        """Record that a job ended, was withdrawn or refused. Jobs that wait for its end may now
        start, or never will."""
        self._held.pop(job.job_id, None)
        self._dependent.pop(job.job_id, None)
        self._dependencies.drop(job)
        for other in self._dependencies.ended(job.job_id, success, now):
            if other in self._dependent:
                self._reconsider(other, now)

    def blocked(self, job_id: str) -> Blocked | None:
        """Return the job that a dependent job waits for, or None where it waits for no job any
        more."""
        dependent = self._dependent.get(job_id)
        return None if dependent is None else dependent.blocked

    def held_profiled(self, queued: QueuedJob, now: float) -> bool:
        """Called when the profiling of a job ends. If the job was held meanwhile, keep it out of
        its queue and return True; otherwise return False."""
        job = queued.job
        if job.job_id not in self._held:
            return False
        self._core.policy.set_aside(job.job_id, now)
        self._held[job.job_id], queued.held_since = True, now
        self._core.touch(job.vc)  # GPUs may have been kept for it
        return True

    def keep_held(self, job_id: str, *, joined: bool) -> None:
        """Mark a job as held, because it was held in the core that this one replaces. `joined` says
        whether it had joined its queue there."""
        self._held[job_id] = joined

    def keep_dependent(self, job: Job, since: float, failed: str, *, joined: bool) -> None:
        """Mark a job as waiting for other jobs to end, because it did so in the core that this one
        replaces. The next round of decisions checks its dependencies.

        Args:
            since: time since when it waits, seconds since the epoch.
            failed: id of a job that had to succeed and did not, or "".
            joined: whether it had joined its queue.
        """
        if failed:
            self._dependencies.ended(failed, False, since)
        self._dependent[job.job_id] = _Dependent(Blocked(""), since, joined)
        self.recheck = True

    def adopted(self, job: Job) -> None:
        """Record which jobs a job depends on that was taken over from another core."""
        self._dependencies.add(job)

    def restricted_to(self, kept: Collection[str], core: WaitingHost) -> Self:
        """Return a copy of this object for `core`, without jobs that are not in `kept`; see
        `Core.restricted_to`."""
        waiting = copy(self)
        waiting._core = core
        waiting._set_aside = {j: queued for j, queued in self._set_aside.items() if j in kept}
        waiting._dependent = {j: known for j, known in self._dependent.items() if j in kept}
        return waiting

    def _step_aside(self, queued: QueuedJob, now: float) -> bool:
        """Take a waiting job out of its queue, or out of the jobs that wait for a dependency, until
        `_wait_again`. Return whether it has ever been in its queue."""
        dependent = self._dependent.pop(queued.job.job_id, None)
        if dependent is not None:  # the time counts as no waiting
            queued.submit_time += now - dependent.since
            queued.reason = None
            return dependent.joined
        joined = queued in self._core.queues[queued.job.vc] or queued.job.job_id in self._set_aside
        self.forget(queued)
        if joined:
            self._core.policy.set_aside(queued.job.job_id, now)
        queued.reason = None
        return joined

    def _wait_again(
        self,
        queued: QueuedJob,
        now: float,
        reason: Reason,
        estimator: Estimator,
        *,
        joined: bool,
    ) -> None:
        """Have a job wait again that `_step_aside` had removed.

        Args:
            joined: whether it had joined its queue; if so, it is put there at once.
            estimator: predicts its duration, as in `Core.join`.
        """
        if self._depends(queued, now, joined=joined):
            return
        if joined:
            self._core.enqueue(queued, now, reason, estimator)
        else:
            self._core.join(queued, now, reason, estimator)

    def _depends(self, queued: QueuedJob, now: float, *, joined: bool) -> bool:
        """Return whether a job has to wait for other jobs to end. If so, keep it from starting."""
        blocked = self._dependencies.blocked(queued.job, self._core.jobs)
        if blocked is not None:
            self._keep_back(queued, _Dependent(blocked, now, joined), now)
        return blocked is not None

    def _keep_back(self, queued: QueuedJob, dependent: _Dependent, now: float) -> None:
        job, blocked = queued.job, dependent.blocked
        self._dependent[job.job_id] = dependent
        queued.reason = blocked.reason(job)
        self._core.record(
            now,
            action=Action.WAIT,
            reason=queued.reason,
            job_id=job.job_id,
            vc=job.vc,
            need=job.gpus,
            blocker=blocked.by,
            held_by=(blocked.by,),
        )

    def _reconsider(self, job_id: str, now: float) -> None:
        """Check the dependencies of a job that waits for other jobs to end. If none is left, have
        it wait in its queue. If another is now the first, record that one."""
        queued, dependent = self._core.jobs[job_id], self._dependent[job_id]
        blocked = self._dependencies.blocked(queued.job, self._core.jobs)
        if blocked is None:
            joined = self._step_aside(queued, now)
            self._wait_again(
                queued, now, Reason.DEPENDENCY_MET, self._as_before(queued), joined=joined
            )
        elif blocked != dependent.blocked:
            self._keep_back(queued, replace(dependent, blocked=blocked), now)
