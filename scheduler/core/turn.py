"""A turn: what a policy sees of one virtual cluster at one moment, and the actions that it has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import isfinite
from typing import Any, NoReturn, Protocol

from features import pulse
from scheduler.core.capabilities import Capabilities
from scheduler.core.capacity import Capacity, capacity_of
from scheduler.core.cluster import Cluster, Placement, Pool, Run
from scheduler.core.decisions import Action, Evidence, Reason
from scheduler.core.durations import seconds_of
from scheduler.core.estimates import Estimator, with_progress
from scheduler.core.findings import Lack, Promise
from scheduler.core.holders import NOBODY, Holding
from scheduler.core.obstacles import Obstacle, obstacle_of
from scheduler.core.queue import Queue, QueuedJob
from scheduler.core.receipts import Plain
from scheduler.core.rules import PolicyViolation, may_share, profiling_place, start_fault


class Oracle(Protocol):
    """Gives true remaining durations to policies that declare that they read them (`oracle`)."""

    def remaining_s(self, job_id: str, now: float) -> float:
        """Return a job's remaining work, in seconds on GPUs of its own."""
        ...


class Declared(Protocol):
    """The parts of a policy against which the core checks its actions: name, capabilities,
    reservations and promises."""

    @property
    def name(self) -> str: ...
    @property
    def capabilities(self) -> Capabilities: ...
    def reservation(self, vc: str) -> tuple[str, Placement] | None: ...
    def promise(self, queued: QueuedJob, now: float) -> Promise | None: ...
    def receipt(self, queued: QueuedJob) -> Plain: ...


class Host(Protocol):
    """The part of the core that `Turn` and the profiling stage use."""

    @property
    def policy(self) -> Declared: ...
    @property
    def cluster(self) -> Cluster: ...
    @property
    def queues(self) -> Mapping[str, Queue]: ...
    @property
    def jobs(self) -> Mapping[str, QueuedJob]: ...
    @property
    def estimator(self) -> Estimator: ...
    @property
    def oracle(self) -> Oracle | None: ...
    @property
    def profile_s(self) -> float: ...
    @property
    def profiled_gpus(self) -> int: ...
    @property
    def profiles_apart(self) -> bool: ...
    @property
    def keeps_receipts(self) -> bool: ...
    @property
    def explains(self) -> bool: ...

    def runs_of(self, vc: str) -> list[Run]: ...
    def touch(self, vc: str) -> None: ...
    def enqueue(
        self,
        queued: QueuedJob,
        now: float,
        reason: Reason,
        estimator: Estimator | None = None,
    ) -> None: ...
    def started(self, run: Run, queued: QueuedJob) -> None: ...
    def stopped(self, run: Run, now: float) -> QueuedJob: ...
    def profile(self, queued: QueuedJob, placement: Placement, now: float) -> Run: ...
    def withdrawn(self, job_id: str, now: float) -> None: ...
    def held_by(self, vc: str, gpus: int, now: float) -> Holding: ...
    def lacks_nodes(self, vc: str, most: int, now: float) -> Lack | None: ...
    def record(
        self, now: float, action: Action, reason: Reason, job_id: str, vc: str, **more: Any
    ) -> None: ...


class Turn:
    """The decisions on one virtual cluster at one time. A turn shows a policy the queue and the
    free GPUs, and offers the actions.

    Every action is applied to the cluster at once, and recorded as a decision.
    """

    def __init__(self, core: Host, vc: str, now: float):
        self._core = core
        self.vc = vc
        self.now = now
        self.profile_s = core.profile_s  # how long profiling a job takes; 0 where none is profiled
        self.queue = core.queues[vc]
        self.cluster = core.cluster
        self.pool: Pool = core.cluster.pools[vc]
        self._obstacles: dict[tuple[int, str], tuple[int, Obstacle]] = {}
        self._predicted_again = set[str]()  # of whom the next decision keeps a receipt

    @property
    def profiles_apart(self) -> bool:
        """Whether jobs are profiled on nodes that are reserved for profiling."""
        return self._core.profiles_apart

    @property
    def oracle(self) -> Oracle:
        if self._core.oracle is None:
            raise LookupError("this policy needs the truth about remaining work")
        return self._core.oracle

    @property
    def lenders(self) -> list[Pool]:
        """The pools of other virtual clusters in which no job waits, in the order of the
        cluster."""
        queues = self._core.queues
        return [pool for vc, pool in self.cluster.pools.items() if vc != self.vc and not queues[vc]]

    def runs(self) -> list[Run]:
        """Return the runs of this virtual cluster, oldest first."""
        return self._core.runs_of(self.vc)

    def alone(self, gpus: int) -> list[Run]:
        """Return the runs with which a job of `gpus` GPUs may share, oldest first: those of exactly
        `gpus` GPUs that have no partner.

        Where the policy packs jobs beside larger runs, the runs with more GPUs follow. Where
        virtual clusters borrow, runs on borrowed GPUs are left out, since their owner would wait
        longer.
        """
        if self._core.policy.capabilities.packs_narrower:
            found = self.cluster.open_to_narrower(self.vc, gpus)
        else:
            found = self.cluster.open_to_partners(self.vc, gpus)
        if not self._core.policy.capabilities.borrows:
            return found
        return [run for run in found if all(self.cluster.node_vc[n] == run.vc for n in run.nodes)]

    def may_share(self, queued: QueuedJob, run: Run) -> Reason | None:
        """Return the reason code why a waiting job may not share the GPUs of a run, or None where
        it may."""
        rule = self.bar(queued, run)
        return None if rule is None else rule.reason

    def bar(self, queued: QueuedJob, run: Run) -> Obstacle | None:
        """Return the obstacle that forbids a waiting job to share the GPUs of a run, or None if it
        may.

        The rules are those of `rules.may_share`. In addition, `BUSY` is returned for a run of
        another virtual cluster, or on borrowed GPUs.
        """
        cluster = self.cluster
        if run.vc != self.vc or (
            self._core.policy.capabilities.borrows
            and any(cluster.node_vc[node] != run.vc for node in run.nodes)
        ):
            return Obstacle.BUSY
        return may_share(
            cluster,
            queued,
            run,
            self.known(run),
            memory_margin_mib=self._core.policy.capabilities.memory_margin_mib,
            narrower=self._core.policy.capabilities.packs_narrower,
        )

    def is_held(self, run: Run) -> bool:
        """Return whether any GPU of a run is kept for a waiting job, or closed to new jobs."""
        return self.cluster.is_reserved(run)

    def known(self, run: Run) -> QueuedJob:
        """Return the job of a run, with what the core knows of it."""
        return self.job(run.job.job_id)

    def job(self, job_id: str) -> QueuedJob:
        """Return a job that has not ended, by its id, with what the core knows of it."""
        return self._core.jobs[job_id]

    def start(
        self,
        queued: QueuedJob,
        placement: Placement,
        reason: Reason = Reason.EXCLUSIVE_GPUS,
        *,
        evidence: Evidence = (),
    ) -> Run:
        """Start a job on GPUs that no other job uses. Return its run.

        Raise PolicyViolation, and start nothing, where `rules.start_fault` finds that the GPUs
        cannot be used.
        """
        own, job, can = self.pool, queued.job, self._core.policy.capabilities
        fault = start_fault(
            self.cluster, own, job, placement, borrows=can.borrows, cpus=can.places_cpus
        )
        if fault:
            self._refuse(f"start {_asked(queued)} on {_named(placement)}", fault)
        self._leaves_queue(queued, "start")
        evidence = (*evidence, *_late(self._core.policy, queued, self.now))
        run = self.cluster.start(queued.job, self.vc, placement, self.now)
        self._core.started(run, queued)
        self._decide(
            Action.START, reason, queued, nodes=run.nodes, gpus=run.gpus, evidence=evidence
        )
        return run

    def try_profile(self, queued: QueuedJob) -> bool:
        """Start to profile a job now, and return True. Return False when there is no room for it,
        or it may not be profiled."""
        placement = profiling_place(self.cluster, queued.job, self._core.profiled_gpus)
        if placement is None:
            return False
        self.queue.remove(queued)
        self._core.profile(queued, placement, self.now)
        return True

    def reserve(
        self,
        queued: QueuedJob,
        held: Placement,
        replacing: Placement,
        reason: Reason = Reason.WAITED_TOO_LONG,
    ) -> None:
        """Reserve GPUs, busy or free, for a waiting job, in place of those reserved before
        (`replacing`).

        Raise PolicyViolation where they are not of this virtual cluster.
        """
        if any(n not in self.pool or not 0 < g < 1 << self.pool.gpus_of(n) for n, g in held):
            self._refuse(
                f"keep {_named(held)} for {_asked(queued)}", "they are of another virtual cluster"
            )
        self.pool.unreserve(replacing)
        self.pool.reserve(held)
        if held != replacing:
            self._decide(
                Action.RESERVE,
                reason,
                queued,
                nodes=tuple(node for node, _ in held),
                gpus=tuple(mask for _, mask in held),
            )

    def pack(self, queued: QueuedJob, partner: Run, *, evidence: Evidence = ()) -> Run:
        """Start a job on the GPUs of a run that has no partner. Return the job's run.

        Raise PolicyViolation, and pack nothing, where `bar` returns an obstacle or the policy has
        not declared that it packs.
        """
        rule = self.bar(queued, partner)
        if rule is not None or not self._core.policy.capabilities.packs:
            pair = f"pack {_asked(queued)} beside job {partner.job.job_id}"
            self._refuse(
                pair,
                f"`may_share` says {rule.name}" if rule else "it has not declared that it packs",
            )
        self._leaves_queue(queued, "pack")
        evidence = (*evidence, *_late(self._core.policy, queued, self.now))
        run = self.cluster.pack(queued.job, partner, self.now)
        self._core.started(run, queued)
        self._decide(
            Action.PACK,
            Reason.PARTNER_FOUND,
            queued,
            nodes=run.nodes,
            gpus=run.gpus,
            partner=partner.job.job_id,
            tree_path=queued.pair_prediction.path if queued.pair_prediction else (),
            speeds=queued.pair_prediction.speeds if queued.pair_prediction else None,
            evidence=evidence,
        )
        return run

    def preempt(
        self,
        run: Run,
        key: float,
        *,
        blocker: str | None = None,
        reason: Reason = Reason.SHORTER_JOB_WAITING,
    ) -> QueuedJob:
        """Stop a run and put its job back into its queue, with sort key `key`. Return the job.

        Raise PolicyViolation where the policy has not declared that it preempts.
        """
        self._may_stop(run)
        queued = self._core.stopped(run, self.now)
        self.cluster.release(run.job.job_id)
        queued.key, queued.reason = key, reason
        self._core.queues[run.vc].add(queued)
        if run.vc != self.vc:
            self._core.touch(run.vc)
        self._decide(
            Action.PREEMPT,
            reason,
            queued,
            nodes=run.nodes,
            gpus=run.gpus,
            blocker=blocker,
            vc=run.vc,
        )
        return queued

    def cancel(self, job_id: str) -> None:
        """Remove a job from the core for good. If the job runs, raise PolicyViolation where the
        policy has not declared that it preempts."""
        run = self.cluster.runs.get(job_id)
        if run is not None:
            self._may_stop(run)
        self._core.withdrawn(job_id, self.now)

    def _may_stop(self, run: Run) -> None:
        if not self._core.policy.capabilities.preemptive:
            self._refuse(f"stop job {run.job.job_id}", "it has not declared that it preempts")

    def again(self) -> None:
        """Mark this virtual cluster, so that it is served once more at the same time."""
        self._core.touch(self.vc)

    def predict_again(
        self, queued: QueuedJob, within: float, alike: Iterable[QueuedJob] = ()
    ) -> bool:
        """Ask the estimator for a new prediction of a waiting job, as of now. Return whether the
        prediction changed; the policy then has to set the job's key.

        Return False, and leave the job as it is, where the new prediction differs from the old one
        by less than the factor `within`. Otherwise the reason why the job waits is recorded once
        more, with the new prediction.

        Args:
            alike: other jobs that had the same prediction; they get the new one, too.
        """
        estimator, now = self._core.estimator, self.now
        before_s = queued.predicted_s
        assert before_s is not None
        estimator.changed(queued.job, now)
        answer = estimator.estimate(queued.job, now)
        answer_s = seconds_of(with_progress(answer, queued.progress).seconds)
        if 1 / within < (1 + answer_s) / (1 + before_s) < within:
            return False
        answer = estimator.enqueued_again(queued.job, now, answer)
        estimate = with_progress(answer, queued.progress)
        for one in (queued, *alike):
            if one is not queued:
                estimator.decided_with(one.job.job_id, estimate)
            one.believe(estimate)
            one.reason = None
            if self._core.keeps_receipts:
                self._predicted_again.add(one.job.job_id)
        return True

    def wait(
        self,
        queued: QueuedJob,
        why: Obstacle | Reason,
        *,
        blocker: str | None = None,
        evidence: Evidence = (),
    ) -> None:
        """Record why a job waits. A decision is recorded only when the reason differs from the last
        one, and where the core explains.

        Args:
            why: the obstacle, or the reason code itself.
            blocker: id of the job without which this job would start, if known.
        """
        pulse.beat()
        reason = why.reason if isinstance(why, Obstacle) else why
        if queued.reason is reason:
            return
        queued.waits_for(reason, obstacle_of(why))
        if not self._core.explains:
            return
        position = self.queue.position(queued)
        holding = self._held_by(queued, blocker, position)
        capacity = self.capacity(queued)
        if capacity.closed:
            evidence = (*evidence, ("closed_gpus", capacity.closed))
        if holding.gone_in_s and isfinite(holding.gone_in_s):
            evidence = (*evidence, ("gone_in_s", round(holding.gone_in_s, 1)))
        self._decide(
            Action.WAIT,
            reason,
            queued,
            blocker=blocker,
            held_by=holding.jobs,
            position=position,
            evidence=(*evidence, *_late(self._core.policy, queued, self.now)),
            free=capacity.free,
            limit=capacity.limit,
        )

    def _held_by(self, queued: QueuedJob, blocker: str | None, position: int) -> Holding:
        """Return the runs or the job that a job waits for, as far as known without a trial, and the
        seconds until these should have ended.

        Args:
            blocker: id of the job that keeps it from starting, if known.
            position: its position in the queue, from 1.
        """
        if blocker is not None:
            return Holding((blocker,))
        if queued.obstacle in (Obstacle.BEHIND, Obstacle.ROUND):
            return Holding((self.queue[position - 2].job.job_id,)) if position > 1 else NOBODY
        if queued.obstacle in (Obstacle.KEPT, Obstacle.FIRST):
            kept = self._core.policy.reservation(self.vc)
            return Holding((kept[0],)) if kept is not None else NOBODY
        return self._core.held_by(self.vc, queued.job.gpus, self.now)

    def capacity_reason(self, queued: QueuedJob) -> Reason:
        """Return the reason code why a job could not be placed, such as busy GPUs."""
        return self.obstacle(queued).reason

    def capacity(self, queued: QueuedJob) -> Capacity:
        """Return how many GPUs of this virtual cluster a waiting job may count on now."""
        return capacity_of(self._core, queued)

    def obstacle(self, queued: QueuedJob) -> Obstacle:
        """Return the obstacle because of which a job could not be placed; see
        `Capacity.obstacle`."""
        like = queued.job.gpus, queued.job.gpu_type or ""
        changes, found = self._obstacles.get(like, (-1, Obstacle.BUSY))
        if changes != self.pool.changes:
            found = self.capacity(queued).obstacle
            self._obstacles[like] = self.pool.changes, found
        return found

    def sole_blocker(self, queued: QueuedJob) -> str | None:
        """Return the id of the first job in line, if `queued` is the second and would start now
        without it. Otherwise return None."""
        second = len(self.queue) > 1 and self.queue[1] is queued
        fits = second and self.pool.place(queued.job.gpus) is not None
        return self.queue[0].job.job_id if fits else None

    def _leaves_queue(self, queued: QueuedJob, action: str) -> None:
        try:
            self.queue.remove(queued)
        except ValueError:
            self._refuse(f"{action} {_asked(queued)}", "it does not wait in this queue")

    def _refuse(self, action: str, fault: str) -> NoReturn:
        policy = self._core.policy.name or type(self._core.policy).__name__
        raise PolicyViolation(f"{policy} may not {action}: {fault}")

    def _decide(
        self,
        action: Action,
        reason: Reason,
        queued: QueuedJob,
        *,
        vc: str | None = None,
        evidence: Evidence = (),
        **more: Any,
    ) -> None:
        """Record a decision about a job, with the job's key, prediction and the numbers of free
        GPUs; `more` are further fields of `Decision`."""
        counts = {"free": self.pool.free, "limit": self.pool.gpus}
        if queued.job.job_id in self._predicted_again:
            more["receipt"] = self._core.policy.receipt(queued)
        self._core.record(
            self.now,
            action,
            reason,
            queued.job.job_id,
            vc=vc or self.vc,
            priority=queued.key,
            estimate_s=queued.predicted_s,
            score=queued.score,
            need=queued.job.gpus,
            evidence=(*queued.evidence, *evidence),
            **(counts | more),
        )

    def explain_fresh(self, watch: Callable[[QueuedJob], None] | None = None) -> None:
        """Record why jobs wait that joined since the last turn and have no reason yet. Call
        `watch`, if given, with each job that joined and does not run. Empty the list of those that
        joined."""
        runs = self._core.cluster.runs
        for queued in self.queue.fresh:
            if queued.job.job_id in runs:
                continue
            if queued.reason is None:
                self.wait(queued, Obstacle.BEHIND, blocker=self.sole_blocker(queued))
            if watch is not None:
                watch(queued)
        self.queue.fresh.clear()

    def pass_fresh(self, watch: Callable[[QueuedJob], None] | None = None) -> None:
        """Empty the list of jobs that joined since the last turn, without recording reasons. Called
        where a log is followed, which has the reasons already. Call `watch` with each job that does
        not run."""
        for queued in self.queue.fresh:
            if watch is not None and queued.job.job_id not in self._core.cluster.runs:
                watch(queued)
        self.queue.fresh.clear()


def _asked(queued: QueuedJob) -> str:
    job = queued.job
    of_type = f" of type {job.gpu_type}" if job.gpu_type else ""
    return f"job {job.job_id} ({job.gpus} GPUs{of_type})"


def _named(placement: Placement) -> str:
    parts = []
    for node, gpus in placement:
        which = [str(i) for i in range(max(gpus, 0).bit_length()) if gpus >> i & 1]
        parts.append(f"GPU{'s' * (len(which) > 1)} {', '.join(which) or 'none'} of node {node}")
    return " and ".join(parts) or "no GPUs"


def _late(policy: Declared, queued: QueuedJob, now: float) -> Evidence:
    """Return as evidence how long a job that has waited longer than the policy's bound still waits
    for reserved GPUs. Return () before the bound, or if the policy promises none."""
    promise = policy.promise(queued, now)
    return () if promise is None else promise.late(now - queued.submit_time)
