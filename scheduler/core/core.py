"""The decision core: events and a time go in, decisions come out.

It holds no clock, no random source and no file. The simulator and a live service drive the same
object: what was simulated is what runs.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

from features.job import Job, Profile
from features.schema import State
from scheduler.core.cluster import Cluster, Placement, Pool, Run
from scheduler.core.decisions import Action, Decision, Evidence, Reason, Score
from scheduler.core.estimates import Estimator

if TYPE_CHECKING:
    from models.bundle import Bundle
    from scheduler.core.pairs import Verdict
    from scheduler.core.policy import Policy
    from scheduler.core.profiling import Stage


class Oracle(Protocol):
    """The truth, for policies that declare `oracle = True` (yardsticks only)."""

    def remaining_s(self, job_id: str, now: float) -> float:
        """Work left, seconds at exclusive speed."""
        ...


class QueuedJob:
    """A job waiting in the queue of its virtual cluster.

    Attributes:
        priority: higher goes first, whatever the policy's key; 0 unless an operator said so.
        key: the queue is sorted by it, smallest first; ties by `seq` (order of arrival).
        estimate_s, score: predicted duration and its terms, when the policy uses them.
        profile: what profiling saw; None when the job was not profiled.
        looked_at: it has been in the profiling partition.
        verdict: the judgement on the pair it was packed in; None when it was not.
        reason: why it waited when last looked at.
        evidence: further numbers behind its place in line, by name.
    """

    __slots__ = (
        "estimate_s",
        "evidence",
        "job",
        "key",
        "looked_at",
        "priority",
        "profile",
        "reason",
        "score",
        "seq",
        "submit_time",
        "verdict",
    )

    def __init__(self, job: Job, seq: int, priority: int = 0):
        self.job = job
        self.seq = seq
        self.priority = priority
        self.key = 0.0
        self.estimate_s: float | None = None
        self.score: Score | None = None
        self.profile: Profile | None = None
        self.looked_at = False
        self.verdict: Verdict | None = None
        self.reason: Reason | None = None
        self.evidence: Evidence = ()
        self.submit_time = job.submit_time

    def __lt__(self, other: QueuedJob) -> bool:
        if self.priority != other.priority:
            return self.priority > other.priority
        return (self.key, self.seq) < (other.key, other.seq)


class Queue:
    """Jobs waiting in one virtual cluster, sorted."""

    def __init__(self) -> None:
        self._jobs: list[QueuedJob] = []
        self.fresh: list[QueuedJob] = []  # joined since the last turn
        self.resorted = False  # keys changed since the last `Core.rekeyed`

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[QueuedJob]:
        return iter(self._jobs)

    def __getitem__(self, index: int) -> QueuedJob:
        return self._jobs[index]

    def add(self, queued: QueuedJob) -> None:
        insort(self._jobs, queued)
        self.fresh.append(queued)

    def insert(self, queued: QueuedJob) -> None:
        """Put a job that was there before in its place."""
        insort(self._jobs, queued)

    def __contains__(self, queued: object) -> bool:
        if not isinstance(queued, QueuedJob):
            return False
        index = bisect_left(self._jobs, queued)
        return index < len(self._jobs) and self._jobs[index] is queued

    def remove(self, queued: QueuedJob) -> None:
        index = bisect_left(self._jobs, queued)
        if index >= len(self._jobs) or self._jobs[index] is not queued:
            raise ValueError(f"job {queued.job.job_id} is not in this queue")
        del self._jobs[index]

    def replace(self, jobs: list[QueuedJob]) -> None:
        """Take a new content, sorted anew. For policies that change keys."""
        self._jobs = sorted(jobs)
        self.resorted = True

    def position(self, queued: QueuedJob) -> int:
        """Place in line, from 1."""
        return bisect_left(self._jobs, queued) + 1


class Turn:
    """One look at one virtual cluster: what a policy sees, and how it acts.

    Every action is applied to the cluster at once and recorded as a decision.
    """

    def __init__(self, core: Core, vc: str, now: float):
        self._core = core
        self.vc = vc
        self.now = now
        self.queue = core.queues[vc]
        self.cluster = core.cluster
        self.pool: Pool = core.cluster.pools[vc]

    @property
    def oracle(self) -> Oracle:
        if self._core.oracle is None:
            raise LookupError("this policy needs the truth about remaining work")
        return self._core.oracle

    @property
    def lenders(self) -> list[Pool]:
        """Other virtual clusters in which nobody waits, in the order of the cluster."""
        queues = self._core.queues
        return [pool for vc, pool in self.cluster.pools.items() if vc != self.vc and not queues[vc]]

    def runs(self) -> list[Run]:
        """Runs of this virtual cluster, oldest first."""
        return list(self._core.runs_by_vc[self.vc].values())

    def alone(self, gpus: int) -> list[Run]:
        """Runs of exactly `gpus` GPUs that hold them alone, oldest first.

        Where virtual clusters borrow, borrowed GPUs are never shared: an owner would wait longer.
        """
        found = self.cluster.open_to_partners(self.vc, gpus)
        if not self._core.policy.borrows:
            return found
        return [run for run in found if all(self.cluster.node_vc[n] == run.vc for n in run.nodes)]

    def is_held(self, run: Run) -> bool:
        """True when GPUs of a run are kept for a waiting job."""
        return self.cluster.is_held(run)

    def known(self, run: Run) -> QueuedJob:
        """What is known of the job of a run."""
        return self._core.known(run.job.job_id)

    def start(
        self,
        queued: QueuedJob,
        placement: Placement,
        reason: Reason = Reason.EXCLUSIVE_GPUS,
        *,
        evidence: Evidence = (),
    ) -> Run:
        """Start a job on GPUs of its own."""
        self.queue.remove(queued)
        run = self.cluster.start(queued.job, self.vc, placement, self.now)
        self._core.started(run, queued)
        self._decide(
            Action.START, reason, queued, nodes=run.nodes, gpus=run.gpus, evidence=evidence
        )
        return run

    def look(self, queued: QueuedJob) -> bool:
        """Look at a job in the profiling partition now. False when there is no room for it."""
        placement = self.cluster.profiling.place(queued.job.gpus)
        if placement is None:
            return False
        self.queue.remove(queued)
        self._core.profile(queued, placement, self.now)
        return True

    def reserve(self, queued: QueuedJob, held: Placement, replacing: Placement) -> None:
        """Keep GPUs, busy or free, for a waiting job, instead of those it had before."""
        self.pool.let_go(replacing)
        self.pool.hold(held)
        if held != replacing:
            self._decide(
                Action.RESERVE,
                Reason.WAITED_TOO_LONG,
                queued,
                nodes=tuple(node for node, _ in held),
                gpus=tuple(mask for _, mask in held),
            )

    def pack(self, queued: QueuedJob, partner: Run, *, evidence: Evidence = ()) -> Run:
        """Start a job on the GPUs of a run that is alone on them."""
        self.queue.remove(queued)
        run = self.cluster.pack(queued.job, partner, self.now)
        self._core.started(run, queued)
        self._decide(
            Action.PACK,
            Reason.PARTNER_FOUND,
            queued,
            nodes=run.nodes,
            gpus=run.gpus,
            partner=partner.job.job_id,
            tree_path=queued.verdict.path if queued.verdict else (),
            speeds=queued.verdict.speeds if queued.verdict else None,
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
        """Stop a run and put its job back in its queue under `key`."""
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

    def again(self) -> None:
        """Look at this virtual cluster once more before the time moves on."""
        self._core.touch(self.vc)

    def wait(
        self,
        queued: QueuedJob,
        reason: Reason,
        *,
        blocker: str | None = None,
        evidence: Evidence = (),
    ) -> None:
        """Say why a job waits. Recorded only when the reason changes."""
        if queued.reason is reason:
            return
        queued.reason = reason
        self._decide(
            Action.WAIT,
            reason,
            queued,
            blocker=blocker,
            position=self.queue.position(queued),
            evidence=evidence,
        )

    def capacity_reason(self, queued: QueuedJob) -> Reason:
        """Why a job that could not be placed was not."""
        enough = queued.job.gpus <= self.pool.free
        return Reason.GPUS_FRAGMENTED if enough else Reason.GPUS_BUSY

    def sole_blocker(self, queued: QueuedJob) -> str | None:
        """The one waiting job without which a job behind it would start now, if it is one."""
        second = len(self.queue) > 1 and self.queue[1] is queued
        fits = second and self.pool.place(queued.job.gpus) is not None
        return self.queue[0].job.job_id if fits else None

    def _decide(
        self,
        action: Action,
        reason: Reason,
        queued: QueuedJob,
        *,
        nodes: tuple[int, ...] = (),
        gpus: tuple[int, ...] = (),
        partner: str | None = None,
        tree_path: tuple[str, ...] = (),
        speeds: tuple[float, float] | None = None,
        blocker: str | None = None,
        position: int | None = None,
        vc: str | None = None,
        evidence: Evidence = (),
    ) -> None:
        self._core.record(
            self.now,
            action,
            reason,
            queued.job.job_id,
            vc or self.vc,
            nodes=nodes,
            gpus=gpus,
            partner=partner,
            priority=queued.key,
            estimate_s=queued.estimate_s,
            score=queued.score,
            tree_path=tree_path,
            speeds=speeds,
            blocker=blocker,
            need=queued.job.gpus,
            free=self.pool.free,
            limit=self.pool.gpus,
            position=position,
            evidence=(*queued.evidence, *evidence),
        )


class Core:
    """Cluster, queues and one policy.

    Args:
        cluster: who holds what; owned by the core from now on.
        policy: decides order, partner and placement.
        estimator: told of every event; asked for durations by policies that use them.
        profiling: the stage in front of the queues, for policies that profile.
        oracle: the truth, for policies that declare it.

    Use: call the event methods, then `decide(now)`, which returns the decisions taken since the
    last call. Two cores given the same events decide the same, bit for bit.
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
        if cluster.spec.groups and not policy.mixes_types:
            raise ValueError(f"{policy.name} needs GPUs of one type; this cluster has several")
        self.queues = {vc: Queue() for vc in cluster.pools}
        self.runs_by_vc: dict[str, dict[str, Run]] = {vc: {} for vc in cluster.pools}
        self._capacity = {vc: pool.gpus for vc, pool in cluster.pools.items()}
        self._known: dict[str, QueuedJob] = {}  # every job not yet ended
        self._dirty: dict[str, None] = {}  # virtual clusters to look at, in order of first event
        self._decisions: list[Decision] = []
        self._seq = 0
        self._arrivals = 0

    # --- events -----------------------------------------------------------------------------

    def submitted(self, job: Job, now: float, *, priority: int = 0) -> None:
        """A job arrives. It is profiled first, joins its queue, or is refused."""
        queued = QueuedJob(job, self._arrivals, priority)
        self._arrivals += 1
        if job.job_id in self._known:
            raise ValueError(f"job {job.job_id} was submitted twice")
        capacity = self._capacity.get(job.vc)
        refusal = None
        if capacity is None or not 0 < job.gpus <= capacity:
            refusal = Reason.INVALID_REQUEST
        elif job.gpu_type and not self.cluster.spec.has_type(job.gpu_type):
            refusal = Reason.NO_MATCHING_GPU_TYPE
        elif self.cluster.spec.groups:
            refusal = self.policy.refuses(job, self.cluster.spec)
        if refusal is not None:
            self.record(
                now,
                Action.REFUSE,
                refusal,
                job.job_id,
                job.vc,
                need=job.gpus,
                limit=capacity or 0,
            )
            return
        self._known[job.job_id] = queued
        self.estimator.submitted(job, now)
        stage = self.profiling
        if stage is not None:
            stage.submitted(job, now)
        if stage is None:
            self._enqueue(queued, now, Reason.SUBMITTED)
        elif reason := stage.skips(job):
            queued.profile = stage.known_profile(job)
            self._enqueue(queued, now, reason)
        else:
            stage.add(queued)

    def profile_ended(self, job_id: str, profile: Profile | None, now: float) -> None:
        """A profiling run reached its limit: the job, still to be run, joins its queue."""
        self.cluster.release(job_id)
        queued = self._known[job_id]
        queued.profile, queued.reason, queued.looked_at = profile, None, True
        if profile is not None:
            self._learned(queued.job, profile, now)
        self._enqueue(queued, now, Reason.PROFILE_COMPLETE)

    def observed(self, job_id: str, profile: Profile, now: float) -> None:
        """A job that runs on GPUs of its own has been watched there for as long as a profile takes.

        Watching costs it nothing: a profile is a reading of the GPU's own counters.
        """
        self._known[job_id].profile = profile
        self._learned(self._known[job_id].job, profile, now)
        self._dirty[self.cluster.runs[job_id].vc] = None

    def paced(self, job_id: str, speed: float, now: float) -> None:
        """A job that shares its GPUs was seen to run at `speed` of its speed alone.

        Its progress says so after a few minutes: steps per second beside a partner, against
        those while it was profiled or ran alone.
        """
        partner = self.cluster.runs[job_id].partner
        assert partner is not None
        self.policy.paced(self._known[job_id], self._known[partner.job.job_id], speed)

    def _learned(self, job: Job, profile: Profile, now: float) -> None:
        self.estimator.profiled(job.job_id, profile, now)
        if self.profiling is not None:
            self.profiling.learned(job, profile, now)

    def ended(
        self, job_id: str, state: State, duration_s: float, now: float, *, keep_shut: bool = False
    ) -> None:
        """A job ended (in its virtual cluster or while being profiled)."""
        run = self.cluster.release(job_id, survivor_open=not keep_shut)
        del self._known[job_id]
        self.runs_by_vc[run.vc].pop(job_id, None)
        if not run.profiling:
            self._freed(run)
        elif self.policy.profiles_waiting:
            self._dirty[run.vc] = None  # GPUs may have been kept for it, or others be behind it
        if self.cluster.spec.groups:
            duration_s *= self.policy.type_speed(run)
        self.estimator.ended(job_id, state, duration_s, now)
        self.policy.ended(run, now)

    def withdrawn(self, job_id: str, now: float, reason: Reason = Reason.CANCELLED) -> None:
        """A job leaves, and nothing is learned from it.

        It was cancelled while it waited, or given GPUs and never begun, or lost.
        """
        queued = self._known.pop(job_id)
        job = queued.job
        if job_id in self.cluster.runs:
            run = self.cluster.release(job_id)
            self.runs_by_vc[run.vc].pop(job_id, None)
            if not run.profiling:
                self._freed(run)
        else:
            self._forget(queued)
        self.estimator.withdrawn(job_id, now)
        self.policy.withdrawn(job_id, now)
        self.record(now, Action.CANCEL, reason, job_id, job.vc, need=job.gpus)

    def set_priority(self, job_id: str, priority: int) -> None:
        """An operator changes what goes first. Without effect on a job that has its GPUs."""
        queued = self._known[job_id]
        queue = self.queues[queued.job.vc]
        waits = queued in queue
        if waits:
            queue.remove(queued)
        queued.priority = priority
        if waits:
            queue.insert(queued)
            self._dirty[queued.job.vc] = None

    def set_node(self, node: int, is_open: bool) -> None:
        """A node is drained (nothing new starts there; what runs goes on) or opened again."""
        self.cluster.set_open(node, is_open)
        self._dirty[self.cluster.node_vc[node]] = None
        if self.policy.borrows:
            self._dirty.update(dict.fromkeys(self.queues))

    def use(self, bundle: Bundle) -> None:
        """Decide with other models from now on. BundleError, and the old stay, if they cannot be.

        Jobs that are in their queue keep their place.
        """
        self.estimator.use(bundle)
        self.policy.use(bundle)
        if self.profiling is not None:
            self.profiling.use(bundle)

    def resume(self, seq: int) -> None:
        """Number decisions from `seq` on: others were taken before this core was built."""
        self._seq = seq

    def adopt(
        self,
        job: Job,
        now: float,
        *,
        order: int,
        priority: int = 0,
        profile: Profile | None = None,
        looked_at: bool = False,
        queued_before: bool = False,
        placement: Placement | None = None,
        profiling: bool = False,
        since: float | None = None,
        partner: str | None = None,
    ) -> None:
        """Take over a job that another core knew, as it stands; its estimator knows it already.

        Args:
            order: of arrival.
            queued_before: it has been in its queue.
            placement: the GPUs it holds; none when it waits.
            profiling, since: they are in the profiling partition; since when it holds them.
            partner: who shares them; to be adopted first.
        """
        queued = self._known[job.job_id] = QueuedJob(job, order, priority)
        self._arrivals = max(self._arrivals, order + 1)
        queued.profile, queued.looked_at = profile, looked_at
        if not placement and not queued_before and self.profiling is not None:
            self.profiling.add(queued)
            return
        if queued_before:
            self.policy.prepare(queued, now, self.estimator)
        if not placement:
            self.queues[job.vc].add(queued)
            self._dirty[job.vc] = None
            return
        start = now if since is None else since
        other = self.cluster.runs.get(partner or "")
        if other is not None:
            run = self.cluster.pack(job, other, start)
        else:
            run = self.cluster.start(job, job.vc, placement, start, profiling=profiling)
        if not profiling:
            self.runs_by_vc[run.vc][job.job_id] = run
            self.policy.started(run, start)

    def rekeyed(self) -> list[QueuedJob]:
        """Waiting jobs of queues whose keys a policy changed since the last call."""
        found: list[QueuedJob] = []
        for queue in self.queues.values():
            if queue.resorted:
                queue.resorted = False
                found += queue
        return found

    def wake(self, now: float) -> None:
        """Time the policy or the profiling stage asked for has come: look at every queue."""
        for vc, queue in self.queues.items():
            if len(queue):
                self._dirty[vc] = None

    def next_wake(self, now: float) -> float | None:
        """When to call `wake` next even if nothing happens; None when there is no need."""
        times = [self.policy.next_wake(now)]
        if self.profiling is not None:
            times.append(self.profiling.next_wake(now))
        return min((t for t in times if t is not None), default=None)

    def last_wake(self, now: float) -> float | None:
        """The wake that may still help jobs waiting while nothing runs or is to come."""
        waiting = any(len(queue) for queue in self.queues.values())
        return self.next_wake(now) if waiting else None

    def decide(self, now: float) -> list[Decision]:
        """Look at every virtual cluster something happened in. Returns the new decisions."""
        stage = self.profiling
        if stage is not None and not stage.overlaps_waiting:
            stage.serve(self, now)
        self._take_turns(now)
        if stage is not None and stage.overlaps_waiting:
            stage.serve(self, now)
            self._take_turns(now)
        decisions, self._decisions = self._decisions, []
        return decisions

    def _take_turns(self, now: float) -> None:
        while self._dirty:
            vc = self.policy.first(self._dirty, now)
            del self._dirty[vc]
            queue = self.queues[vc]
            if not len(queue):
                continue
            turn = Turn(self, vc, now)
            self.policy.serve(turn)
            self._explain_fresh(turn)

    # --- used by turns and stages -----------------------------------------------------------

    def touch(self, vc: str) -> None:
        """Look at this virtual cluster in the next `decide`."""
        self._dirty[vc] = None

    def _freed(self, run: Run) -> None:
        """GPUs were given up: their owners look first, then whoever may borrow."""
        if self.policy.borrows:
            for node in run.nodes:
                self._dirty[self.cluster.node_vc[node]] = None
            for vc, queue in self.queues.items():
                if len(queue):
                    self._dirty[vc] = None
        self._dirty[run.vc] = None

    def waits(self, queued: QueuedJob) -> bool:
        """True when a job, seen waiting before, still does."""
        job_id = queued.job.job_id
        return self._known.get(job_id) is queued and job_id not in self.cluster.runs

    def profile(self, queued: QueuedJob, placement: Placement, now: float) -> Run:
        """Look at a job in the profiling partition (called by a stage)."""
        job = queued.job
        pool, limit = self.cluster.profiling, self.profiling.limit_s if self.profiling else 0.0
        run = self.cluster.start(job, job.vc, placement, now, profiling=True)
        self.record(
            now,
            Action.PROFILE,
            Reason.PROFILING_SLOT,
            job.job_id,
            job.vc,
            nodes=run.nodes,
            gpus=run.gpus,
            need=job.gpus,
            free=pool.free,
            limit=int(limit),
        )
        return run

    def started(self, run: Run, queued: QueuedJob) -> None:
        """Bookkeeping of a start (called by a turn)."""
        self.runs_by_vc[run.vc][queued.job.job_id] = run
        self.estimator.started(queued.job.job_id, run.start_time)
        self.policy.started(run, run.start_time)

    def stopped(self, run: Run, now: float) -> QueuedJob:
        """Bookkeeping of a preemption (called by a turn)."""
        self.estimator.stopped(run.job.job_id, now)
        self.policy.stopped(run, now)
        del self.runs_by_vc[run.vc][run.job.job_id]
        return self._known[run.job.job_id]

    def knows(self, job_id: str) -> bool:
        """Whether a job is here and has not ended."""
        return job_id in self._known

    def known(self, job_id: str) -> QueuedJob:
        """What the core knows of a job that has not ended."""
        return self._known[job_id]

    def jobs(self) -> list[str]:
        """Every job that has not ended, in order of submission."""
        return list(self._known)

    def record(
        self,
        now: float,
        action: Action,
        reason: Reason,
        job_id: str,
        vc: str,
        **more: Any,
    ) -> None:
        """Append a decision; `more` are further fields of `Decision`."""
        self._decisions.append(Decision(self._seq, now, action, reason, job_id, vc, **more))
        self._seq += 1

    def _forget(self, queued: QueuedJob) -> None:
        """A waiting job leaves its queue, or the stage in front of it."""
        queue = self.queues[queued.job.vc]
        if queued in queue:
            queue.remove(queued)
            if queued in queue.fresh:
                queue.fresh.remove(queued)
            self._dirty[queued.job.vc] = None  # whoever stood behind it may now be first
        if self.profiling is not None:
            self.profiling.remove(queued)

    def _enqueue(self, queued: QueuedJob, now: float, reason: Reason) -> None:
        job = queued.job
        self.policy.prepare(queued, now, self.estimator)
        self.queues[job.vc].add(queued)
        self._dirty[job.vc] = None
        self.record(
            now,
            Action.ENQUEUE,
            reason,
            job.job_id,
            job.vc,
            priority=queued.key,
            estimate_s=queued.estimate_s,
            score=queued.score,
            evidence=queued.evidence,
            need=job.gpus,
            limit=self.profiling.max_gpus if self.profiling is not None else None,
        )

    def _explain_fresh(self, turn: Turn) -> None:
        """Jobs that joined since the last turn and were not reached get a reason too."""
        queue, stage = turn.queue, self.profiling
        for queued in queue.fresh:
            if queued.job.job_id in self.cluster.runs:
                continue
            if queued.reason is None:
                turn.wait(queued, Reason.BEHIND_HIGHER_PRIORITY, blocker=turn.sole_blocker(queued))
            if stage is not None and stage.overlaps_waiting:
                stage.add(queued)
        queue.fresh.clear()
