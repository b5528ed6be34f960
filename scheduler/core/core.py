"""The decision core: it is given events and a time, and returns decisions.

It holds no clock, no random source and no file. The simulator and the live service drive the same
object, so that what was simulated is what runs.
"""

from __future__ import annotations

from collections.abc import Collection
from copy import copy
from itertools import chain
from typing import TYPE_CHECKING, Any

from features.job import Job, Profile
from features.progress import Progress
from features.states import State
from scheduler.core.cluster import Cluster, Placement, Run
from scheduler.core.decisions import Action, Decision, Reason
from scheduler.core.estimates import Estimator
from scheduler.core.findings import Lack
from scheduler.core.following import Following
from scheduler.core.holders import HolderCache, Holding, soonest
from scheduler.core.nodes import Nodes
from scheduler.core.policy import Policy, progressed
from scheduler.core.queue import Queue, QueuedJob
from scheduler.core.rules import PolicyViolation, profiling_fault
from scheduler.core.turn import Oracle, Turn
from scheduler.core.waiting import Waiting

if TYPE_CHECKING:
    from models.bundle import Bundle
    from scheduler.core.profiling import Stage


class Core:
    """The cluster, its queues, and the one policy that decides on them.

    Args:
        cluster: nodes, and which job holds which GPU; the core owns it from now on.
        policy: decides order, partner and placement.
        estimator: notified of every event; asked for durations by policies that use them.
        profiling: the stage that measures jobs before they join a queue, for policies that profile.
        oracle: true remaining durations, for policies that declare that they read them.

    Use: call the event methods, then `decide(now)`, which returns the decisions taken since the
    last call. Two cores that are given the same events decide the same, bit for bit.

    Attributes:
        jobs: maps job ids to all jobs that have not ended, in order of submission.
        queues: maps each virtual cluster to its queue of waiting jobs.
        runs_by_vc: maps each virtual cluster to its runs, by job id.
        waiting: holds, changes, priorities, and jobs that can never start.
        nodes: which nodes there are; it also takes over jobs from another core.
        following: carries out decisions that a log records, instead of taking new ones.
        bundle: the models in use; None: none yet.
        dirty: virtual clusters that are to be served, in order of their first event.
        next_seq: the number of the next decision, which is how many were taken.
        holding: cached answers on which runs hold the GPUs that a waiting job needs.
        profile_s: how long profiling a job takes, seconds; 0 where no job is profiled.
        profiled_gpus: GPUs of the largest job that is profiled.
    """

    def __init__(
        self,
        cluster: Cluster,
        policy: Policy,
        estimator: Estimator | None = None,
        *,
        profiling: Stage | None = None,
        oracle: Oracle | None = None,
    ):
        self.cluster = cluster
        self.policy = policy
        self.estimator = estimator or Estimator()
        self.profiling = profiling
        self.oracle = oracle
        if cluster.spec.mixes_types and not policy.capabilities.mixes_types:
            raise ValueError(f"{policy.name} needs GPUs of one type; this cluster has several")
        self.profile_s = profiling.limit_s if profiling is not None else 0.0
        self.profiled_gpus = profiling.max_gpus if profiling is not None else 0
        self.jobs: dict[str, QueuedJob] = {}
        self.queues: dict[str, Queue] = {}
        self.runs_by_vc: dict[str, dict[str, Run]] = {}
        self.open_queues()
        self.waiting = Waiting(self)
        self.nodes = Nodes(self)
        self.following = Following(self)
        self.bundle: Bundle | None = None
        self.dirty: dict[str, None] = {}
        self._decisions: list[Decision] = []
        self.next_seq = 0
        self.arrivals = 0  # order of the next job
        self.holding = HolderCache()
        self.keeps_receipts = False  # with decisions, of the durations that they go by
        self.explains = True  # by a decision why a job waits; where False, only that it does

    def open_queues(self) -> None:
        """Make a queue for each virtual cluster that has none."""
        pools = self.cluster.pools
        self.queues = {vc: self.queues.get(vc, Queue()) for vc in pools}
        self.runs_by_vc = {vc: self.runs_by_vc.get(vc, {}) for vc in pools}

    # --- events -----------------------------------------------------------------------------

    def submitted(self, job: Job, now: float, *, priority: int = 0) -> None:
        """Called when a job is submitted. Send it to be profiled, put it into its queue, have it
        wait for other jobs, or refuse it. Raise ValueError where the job's id is in use."""
        queued = QueuedJob(job, self.arrivals, priority)
        self.arrivals += 1
        if job.job_id in self.jobs:
            raise ValueError(f"job {job.job_id} was submitted twice")
        nodes = self.nodes
        if self.following.script is not None:
            refusal = self.following.script.refusal(job.job_id)
        else:
            refusal = nodes.refusal(job)
            if refusal is not None and nodes.changing:
                refusal = nodes.refusal_once_changed(job)
        if refusal is not None:
            self.record(
                now=now,
                action=Action.REFUSE,
                reason=refusal,
                job_id=job.job_id,
                vc=job.vc,
                need=job.gpus,
                limit=nodes.capacity.get(job.vc, 0),
            )
            self.waiting.gone(job, False, now)
            return
        self.jobs[job.job_id] = queued
        self.estimator.submitted(job, now)
        stage = self.profiling
        if stage is not None:
            stage.submitted(job, now)
        if not self.waiting.arrived(queued, now):
            self.join(queued, now)

    def join(
        self,
        queued: QueuedJob,
        now: float,
        reason: Reason | None = None,
        estimator: Estimator | None = None,
    ) -> None:
        """Send a job to be profiled, or put it into its queue where profiling is skipped.

        Args:
            reason: recorded when the job is put into its queue; None: why profiling was skipped,
                otherwise SUBMITTED.
            estimator: predicts the job's duration for its queue; None: the core's estimator.
        """
        stage = self.profiling
        skips = stage.skips(queued.job) if stage is not None else Reason.SUBMITTED
        if self.following.script is not None and stage is not None:
            logged = self.following.script.enqueued(queued.job.job_id)
            skips = None if logged is None else logged.reason
        if stage is not None and skips is None:
            stage.add(queued)
            return
        queued.profile = stage.known_profile(queued.job) if stage is not None else None
        self.enqueue(queued, now, reason or skips or Reason.SUBMITTED, estimator)

    def profile_ended(self, job_id: str, profile: Profile | None, now: float) -> None:
        """Called when a profiling run reached its limit and was stopped. Put the job, which still
        has to run, into its queue, unless it was held meanwhile."""
        run = self.cluster.release(job_id)
        queued = self.jobs[job_id]
        queued.profile, queued.reason, queued.profiled = profile, None, True
        queued.outlived_s = max(queued.outlived_s, now - run.start_time)
        self.estimator.outlived(job_id, now)
        if profile is not None:
            self._learned(queued.job, profile, now)
        if not self.waiting.held_profiled(queued, now):
            self.enqueue(queued, now, Reason.PROFILE_COMPLETE)

    def observed(self, job_id: str, profile: Profile, now: float) -> None:
        """Called when a job has run alone on its GPUs for as long as a profile takes. Record its
        profile, and have its virtual cluster served.

        Watching the job costs it nothing: a profile is a reading of the GPU's own counters.
        """
        self.jobs[job_id].profile = profile
        self._learned(self.jobs[job_id].job, profile, now)
        self.dirty[self.cluster.runs[job_id].vc] = None

    def progressed(self, job_id: str, progress: Progress, now: float) -> None:
        """Called when a job reports its progress, which includes its predicted total duration on
        GPUs of its own. Store it, and pass it to the estimator. For a job that runs and is not
        being profiled, also update the predicted duration, and have its virtual cluster served."""
        queued, run = self.jobs[job_id], self.cluster.runs[job_id]
        progress = self.estimator.tempered(queued.job, progress)
        queued.progress = progress
        self.estimator.progressed(job_id, progress, now)
        if not run.profiling:
            progressed(self.policy, queued, now, self.estimator)
            self.cluster.pools[run.vc].changes += 1  # when its GPUs are free is another time
            self.holding = HolderCache()
            self.dirty[run.vc] = None

    def pair_speed_observed(self, job_id: str, speed: float, now: float) -> None:
        """Called when a job that shares its GPUs was measured at `speed`, a share of its speed
        alone. Pass the measurement to the policy.

        It is measured after a few minutes together: steps per second beside the partner, over those
        while the job was profiled or ran alone.
        """
        partner = self.cluster.runs[job_id].partner
        assert partner is not None
        self.policy.pair_speed_observed(self.jobs[job_id], self.jobs[partner.job.job_id], speed)

    def _learned(self, job: Job, profile: Profile, now: float) -> None:
        self.estimator.profiled(job.job_id, profile, now)
        self.policy.watched(job, profile)
        if self.profiling is not None:
            self.profiling.learned(job, profile, now)

    def ended(
        self, job_id: str, state: State, duration_s: float, now: float, *, keep_shut: bool = False
    ) -> None:
        """Called when a job ended, in its virtual cluster or while being profiled. Free its GPUs,
        and let the estimator learn from its duration.

        Args:
            keep_shut: do not let the partner that stays on the GPUs be paired again.
        """
        run = self.cluster.release(job_id, survivor_open=not keep_shut)
        job = self.jobs.pop(job_id).job
        self.runs_by_vc[run.vc].pop(job_id, None)
        if not run.profiling:
            self._freed(run)
        elif self.policy.capabilities.profiles_waiting:
            self.dirty[run.vc] = None  # GPUs may have been kept for it, or others be behind it
        if self.nodes.mixes_types:
            duration_s *= self.policy.type_speed(run)
        self.estimator.ended(job_id, state, duration_s, now)
        self.policy.ended(run, now)
        self.waiting.gone(job, state is State.COMPLETED, now)

    def withdrawn(self, job_id: str, now: float, reason: Reason = Reason.CANCELLED) -> None:
        """Remove a job from the core; the estimator learns no duration from it.

        Called when a job was cancelled while it waited, was given GPUs but never began, was lost,
        or is cancelled by the policy.
        """
        queued = self.jobs.pop(job_id)
        job = queued.job
        if job_id in self.cluster.runs:
            run = self.cluster.release(job_id)
            self.runs_by_vc[run.vc].pop(job_id, None)
            if not run.profiling:
                self._freed(run)
        else:
            self.waiting.forget(queued)
        self.estimator.withdrawn(job_id, now)
        self.policy.withdrawn(job_id, now)
        self.record(
            now=now, action=Action.CANCEL, reason=reason, job_id=job_id, vc=job.vc, need=job.gpus
        )
        self.waiting.gone(job, False, now)

    def use_policy(self, policy: Policy, now: float) -> None:
        """Decide from now on with `policy`, which is of the same kind but has other settings.

        Running jobs go on, and waiting jobs are put in the new policy's order. Estimates stay as
        they are. What the old policy had learned is kept if `Policy.take_over` can.
        """
        before, self.policy = self.policy, policy
        policy.cluster_changed(self.cluster)
        if self.bundle is not None:
            policy.use(self.bundle)
        runs = [run for run in self.cluster.runs.values() if not run.profiling]
        runs.sort(key=lambda run: run.order)
        waiting = {vc: list(queue) for vc, queue in self.queues.items()}
        if not policy.take_over(before, self.jobs.values(), runs, now):
            for run in runs:
                self.waiting.prepare_again(self.jobs[run.job.job_id], now)
                policy.started(run, run.start_time)
            for queued in chain.from_iterable(waiting.values()):
                self.waiting.prepare_again(queued, now)
        for vc, pool in self.cluster.pools.items():
            kept = policy.reservation(vc)
            pool.unreserve_all()
            pool.reserve(kept[1] if kept is not None else [])
            self.queues[vc].replace(waiting[vc])
        self.waiting.recheck = True
        self.wake(now)

    def use(self, bundle: Bundle) -> None:
        """Decide with other models from now on. Jobs that are in a queue keep their place.

        Raise BundleError, and keep the old models, where the new ones cannot be used.
        """
        self.estimator.use(bundle)
        self.policy.use(bundle)
        self.bundle = bundle

    def wake(self, now: float) -> None:
        """Mark every virtual cluster in which jobs wait as to be served. Called at the time that
        `next_wake` returned."""
        for vc, queue in self.queues.items():
            if len(queue):
                self.dirty[vc] = None

    def next_wake(self, now: float) -> float | None:
        """Return the time (seconds since the epoch) at which `wake` must be called even if no event
        happens before; None if it need not be called."""
        times = [self.policy.next_wake(now)]
        if self.profiling is not None:
            times.append(self.profiling.next_wake(now))
        return min((t for t in times if t is not None), default=None)

    def last_wake(self, now: float) -> float | None:
        """Return when to wake the core once nothing runs and no event is to come, because that may
        still start waiting jobs. Return None where no job waits, or no wake is due."""
        waiting = any(len(queue) for queue in self.queues.values())
        return self.next_wake(now) if waiting else None

    def decide(self, now: float) -> list[Decision]:
        """Take decisions for every virtual cluster in which something happened. Return all
        decisions since the last call, also those that events brought about."""
        if self.nodes.changing:
            self.nodes.change_idle(now)
        if self.waiting.recheck:
            self.waiting.review(now)
        stage = self.profiling
        if stage is not None and not stage.overlaps_waiting:
            stage.serve(self, now)
            if self.waiting.recheck:  # of those it sent to their queues, too
                self.waiting.review(now)
        if stage is not None:
            stage.reclaim(self, now)
        self._take_turns(now)
        if stage is not None and stage.overlaps_waiting:
            stage.serve(self, now)
            self._take_turns(now)
        decisions, self._decisions = self._decisions, []
        return decisions

    def next_dirty(self, now: float) -> str | None:
        """Return the virtual cluster that is to be served next, and remove it from `dirty`. Return
        None when none is left in which jobs wait."""
        while self.dirty:
            vc = self.policy.first(self.dirty, now)
            del self.dirty[vc]
            if len(self.queues[vc]):
                return vc
        return None

    def _take_turns(self, now: float) -> None:
        while (vc := self.next_dirty(now)) is not None:
            turn = Turn(self, vc, now)
            self.policy.learned.begin(turn)
            self.policy.serve(turn)
            stage = self.profiling
            turn.explain_fresh(stage.add if stage and stage.overlaps_waiting else None)

    # --- used by turns and stages -----------------------------------------------------------

    def touch(self, vc: str) -> None:
        """Mark a virtual cluster, so that the next `decide` serves it."""
        self.dirty[vc] = None

    def _freed(self, run: Run) -> None:
        """Mark the virtual clusters that may use the GPUs that a run gave up. That is the run's own
        and, where virtual clusters borrow, the owners of these GPUs and all in which jobs wait."""
        if self.policy.capabilities.borrows:
            for node in run.nodes:
                self.dirty[self.cluster.node_vc[node]] = None
            for vc, queue in self.queues.items():
                if len(queue):
                    self.dirty[vc] = None
        self.dirty[run.vc] = None

    def runs_of(self, vc: str) -> list[Run]:
        """Return the runs of a virtual cluster, oldest first."""
        return list(self.runs_by_vc[vc].values())

    def held_by(self, vc: str, gpus: int, now: float) -> Holding:
        """Return the runs that are expected to free `gpus` GPUs of a virtual cluster soonest, and
        in how many seconds. An answer may be up to a minute old. It is empty where enough GPUs are
        free, or the runs do not hold enough."""
        known = self.holding.get(vc, gpus, self.cluster, now)
        if known is not None:
            return known
        runs = self.cluster.runs.values() if self.policy.capabilities.borrows else self.runs_of(vc)
        found = soonest(
            self.cluster.pools[vc],
            gpus,
            runs,
            lambda run, level: self.policy.left_s(run, self.jobs[run.job.job_id], now, level),
        )
        return self.holding.put(vc, gpus, now, found)

    @property
    def profiles_apart(self) -> bool:
        """Whether jobs are profiled on nodes reserved for profiling, even if none of these nodes
        exists now.
        """
        stage, cluster = self.profiling, self.cluster
        return cluster.profiling.gpus > 0 if stage is None else stage.has_nodes(cluster)

    def lacks_nodes(self, vc: str, most: int, now: float) -> Lack | None:
        """Return how much waiting it costs the first job in line of a virtual cluster that whole
        nodes, up to `most`, are lent for profiling. Called by the profiling stage.

        Return None where no job waits, or the policy finds no such cost.
        """
        if most < 1 or not self.queues[vc]:
            return None
        return self.policy.lacks_nodes(Turn(self, vc, now), most)

    def profile(self, queued: QueuedJob, placement: Placement, now: float) -> Run:
        """Start a job in the profiling partition, and return its run. Called by a `Turn` and by the
        profiling stage.

        Raise PolicyViolation, and start nothing, where `rules.profiling_fault` finds that these
        GPUs cannot be used.
        """
        job, pool = queued.job, self.cluster.profiling
        fault = profiling_fault(self.cluster, job, placement, self.profiled_gpus)
        if fault and self.following.script is None:
            raise PolicyViolation(f"job {job.job_id} may not be profiled: {fault}")
        run = self.cluster.start(job, job.vc, placement, now, profiling=True)
        self.estimator.profiling(job.job_id, now)
        self.record(
            now=now,
            action=Action.PROFILE,
            reason=Reason.PROFILING_SLOT,
            job_id=job.job_id,
            vc=job.vc,
            nodes=run.nodes,
            gpus=run.gpus,
            need=job.gpus,
            free=pool.free,
            limit=int(self.profile_s),
        )
        return run

    def started(self, run: Run, queued: QueuedJob) -> None:
        """Record the start of a run in the core, its estimator and its policy. Called by the `Turn`
        that started the job."""
        self.runs_by_vc[run.vc][queued.job.job_id] = run
        self.estimator.started(queued.job.job_id, run.start_time)
        self.policy.started(run, run.start_time)

    def stopped(self, run: Run, now: float) -> QueuedJob:
        """Record that a run was preempted, in the core and its estimator, and return its job.
        Called by the `Turn` that stopped the job."""
        self.estimator.stopped(run.job.job_id, now)
        del self.runs_by_vc[run.vc][run.job.job_id]
        queued = self.jobs[run.job.job_id]
        queued.outlived_s = max(queued.outlived_s, now - run.start_time)
        return queued

    def restricted_to(self, kept: Collection[str]) -> Core:
        """Return a core with only the jobs in `kept`; the total of GPUs that jobs ask for still
        counts all of them. The result shares parts with this core, so copy it before running it."""
        core = copy(self)
        core.jobs = {job_id: queued for job_id, queued in self.jobs.items() if job_id in kept}
        core.waiting, core.nodes = self.waiting.restricted_to(kept, core), self.nodes.within(core)
        core.queues = {vc: queue.restricted_to(kept) for vc, queue in self.queues.items()}
        core.following = Following(core)
        core.policy = self.policy.restricted_to(kept)
        if self.profiling is not None:
            core.profiling = self.profiling.restricted_to(kept)
        return core

    def record(
        self,
        now: float,
        action: Action,
        reason: Reason,
        job_id: str,
        vc: str,
        **more: Any,
    ) -> None:
        """Append a decision to those that `decide` returns; `more` are further fields of
        `Decision`. Do nothing while recorded decisions of a log are followed, since the log has
        them already."""
        if self.following.script is not None:
            return
        self._decisions.append(
            Decision(
                seq=self.next_seq,
                time=now,
                action=action,
                reason=reason,
                job_id=job_id,
                vc=vc,
                **more,
            )
        )
        self.next_seq += 1

    def enqueue(
        self,
        queued: QueuedJob,
        now: float,
        reason: Reason,
        estimator: Estimator | None = None,
    ) -> None:
        """Put a job into its queue, and record that. Also called by the profiling stage;
        `estimator` is as in `join`."""
        job, script = queued.job, self.following.script
        estimator = estimator or self.estimator
        if script is None:
            self.policy.prepare(queued, now, estimator)
        else:
            script.prepare(self.policy, queued, now, estimator)
        self.queues[job.vc].add(queued)
        self.dirty[job.vc] = None
        # the cluster, or what it asks for, changed while this was profiled or held; or is to change
        nodes = self.nodes
        self.waiting.recheck |= bool(nodes.changing) or nodes.refusal(job) is not None
        self.record(
            now=now,
            action=Action.ENQUEUE,
            reason=reason,
            job_id=job.job_id,
            vc=job.vc,
            priority=queued.key,
            estimate_s=queued.predicted_s,
            score=queued.score,
            evidence=queued.evidence,
            need=job.gpus,
            limit=self.profiling.max_gpus if self.profiling is not None else None,
            receipt=self.policy.receipt(queued) if self.keeps_receipts and script is None else (),
        )
