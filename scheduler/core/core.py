"""The decision core: events and a time go in, decisions come out.

It holds no clock, no random source and no file. The simulator and a live service drive the same
object: what was simulated is what runs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from copy import copy
from itertools import chain
from typing import Any

from features.job import Job, Profile
from features.schema import State
from models.bundle import Bundle
from scheduler.core.cluster import Cluster, ClusterSpec, Node, Placement, Run
from scheduler.core.decisions import Action, Decision, Reason
from scheduler.core.estimates import Estimate, Estimator
from scheduler.core.holders import Holding, Reckonings, soonest
from scheduler.core.policy import Policy
from scheduler.core.profiling import Stage
from scheduler.core.queue import Queue, QueuedJob
from scheduler.core.turn import Oracle, Turn


class Core:
    """Cluster, queues and one policy.

    Args:
        cluster: who holds what; owned by the core from now on.
        policy: decides order, partner and placement.
        estimator: notified of every event; asked for durations by policies that use them.
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
        if cluster.spec.mixes_types and not policy.mixes_types:
            raise ValueError(f"{policy.name} needs GPUs of one type; this cluster has several")
        self.queues = {vc: Queue() for vc in cluster.pools}
        self.runs_by_vc: dict[str, dict[str, Run]] = {vc: {} for vc in cluster.pools}
        self._lent = set(cluster.profiling.nodes())  # to the profiling partition, for good
        # nodes to be others once idle: what they will be (None: they go), and whether open then
        self._changing: dict[int, tuple[Node | None, bool]] = {}
        self._capacity = {vc: pool.gpus for vc, pool in cluster.pools.items()}
        self._mixes_types = cluster.spec.mixes_types
        self._bundle: Bundle | None = None
        self._set_aside: dict[str, QueuedJob] = {}  # wait, and can never start as the cluster is
        self._recheck = False  # who can: nodes came, went, or are about to
        self._held: dict[str, bool] = {}  # wait, and are kept back: whether they were in a queue
        self._known: dict[str, QueuedJob] = {}  # every job not yet ended
        self._dirty: dict[str, None] = {}  # virtual clusters to serve, in order of first event
        self._decisions: list[Decision] = []
        self._seq = 0
        self._arrivals = 0
        self._holding = Reckonings()

    # --- events -----------------------------------------------------------------------------

    def submitted(self, job: Job, now: float, *, priority: int = 0) -> None:
        """A job arrives. It is profiled first, joins its queue, or is refused."""
        queued = QueuedJob(job, self._arrivals, priority)
        self._arrivals += 1
        if job.job_id in self._known:
            raise ValueError(f"job {job.job_id} was submitted twice")
        capacity = self._capacity.get(job.vc)
        refusal = self._refusal(job)
        if refusal is not None and self._changing:
            refusal = self._refusal_once_changed(job)
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
        self._to_stage_or_queue(queued, now)

    def _to_stage_or_queue(
        self, queued: QueuedJob, now: float, reason: Reason | None = None
    ) -> None:
        stage = self.profiling
        skips = stage.skips(queued.job) if stage is not None else Reason.SUBMITTED
        if stage is not None and skips is None:
            stage.add(queued)
            return
        queued.profile = stage.known_profile(queued.job) if stage is not None else None
        self.enqueue(queued, now, reason or skips or Reason.SUBMITTED)

    def capacity(self, vc: str) -> int:
        """GPUs of a virtual cluster without those lent for profiling or about to change or go."""
        return self._capacity[vc]

    def never_starts(self, job_id: str) -> bool:
        """Whether a job that waits asks for more GPUs than its virtual cluster has, and will have
        once the nodes are what they are to be."""
        job = self._known[job_id].job
        small = job_id in self._set_aside and job.gpus > self._capacity[job.vc]
        return small and self._refusal_once_changed(job) is Reason.INVALID_REQUEST

    def _refusal(self, job: Job) -> Reason | None:
        """Why a job can never start as the cluster is; None when it can."""
        least = 0 if self.policy.places_cpus else 1
        if not least <= job.gpus <= self._capacity.get(job.vc, -1):
            return Reason.INVALID_REQUEST
        if job.gpu_type and not self.cluster.spec.has_type(job.gpu_type):
            return Reason.NO_MATCHING_GPU_TYPE
        return self.policy.refuses(job, self.cluster.spec) if self._mixes_types else None

    def _refusal_once_changed(self, job: Job) -> Reason | None:
        """The same once the nodes are what they are to be: it waits until they are."""
        nodes = {**self.cluster.nodes, **{node: to for node, (to, _) in self._changing.items()}}
        stay = {node: has for node, has in nodes.items() if has is not None}
        vcs = self.cluster.node_vc
        lent = {n for n in self._lent & stay.keys() if stay[n].vc == vcs[n]}
        gpus = sum(has.gpus for n, has in stay.items() if has.vc == job.vc and n not in lent)
        if not 0 < job.gpus <= gpus:
            return Reason.INVALID_REQUEST
        spec = ClusterSpec.of(stay.values())
        if job.gpu_type and not spec.has_type(job.gpu_type):
            return Reason.NO_MATCHING_GPU_TYPE
        return self.policy.refuses(job, spec) if spec.mixes_types else None

    def profile_ended(self, job_id: str, profile: Profile | None, now: float) -> None:
        """A profiling run reached its limit: the job, still to be run, joins its queue."""
        self.cluster.release(job_id)
        queued = self._known[job_id]
        queued.profile, queued.reason, queued.profiled = profile, None, True
        if profile is not None:
            self._learned(queued.job, profile, now)
        if job_id in self._held:
            self.policy.set_aside(job_id, now)
            self._held[job_id], queued.held_since = True, now
            self._dirty[queued.job.vc] = None  # GPUs may have been kept for it
        else:
            self.enqueue(queued, now, Reason.PROFILE_COMPLETE)

    def observed(self, job_id: str, profile: Profile, now: float) -> None:
        """A job that runs on GPUs of its own has been watched there for as long as a profile takes.

        Watching costs it nothing: a profile is a reading of the GPU's own counters.
        """
        self._known[job_id].profile = profile
        self._learned(self._known[job_id].job, profile, now)
        self._dirty[self.cluster.runs[job_id].vc] = None

    def pair_speed_observed(self, job_id: str, speed: float, now: float) -> None:
        """A job that shares its GPUs was seen to run at `speed` of its speed alone.

        Its progress says so after a few minutes: steps per second beside a partner, against
        those while it was profiled or ran alone.
        """
        partner = self.cluster.runs[job_id].partner
        assert partner is not None
        self.policy.pair_speed_observed(self._known[job_id], self._known[partner.job.job_id], speed)

    def _learned(self, job: Job, profile: Profile, now: float) -> None:
        self.estimator.profiled(job.job_id, profile, now)
        self.policy.watched(job, profile)
        if self.profiling is not None:
            self.profiling.learned(job, profile, now)

    def ended(
        self, job_id: str, state: State, duration_s: float, now: float, *, keep_shut: bool = False
    ) -> None:
        """A job ended (in its virtual cluster or while being profiled)."""
        run = self.cluster.release(job_id, survivor_open=not keep_shut)
        del self._known[job_id]
        self._held.pop(job_id, None)
        self.runs_by_vc[run.vc].pop(job_id, None)
        if not run.profiling:
            self._freed(run)
        elif self.policy.profiles_waiting:
            self._dirty[run.vc] = None  # GPUs may have been kept for it, or others be behind it
        if self.cluster.spec.mixes_types:
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
        self._held.pop(job_id, None)
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

    def hold(self, job_id: str, now: float, reason: Reason = Reason.HELD_BY_OWNER) -> None:
        """A waiting job is not to start until it is released; nobody waits behind it meanwhile.

        One that is being profiled is held when that is over. Without effect on one that runs.
        """
        queued = self._known[job_id]
        run = self.cluster.runs.get(job_id)
        if run is not None and not run.profiling:
            return
        if job_id not in self._held:
            self._held[job_id] = run is None and self._step_aside(queued, now)
            queued.held_since = now if run is None else None
        queued.reason = reason
        self.record(now, Action.WAIT, reason, job_id, queued.job.vc, need=queued.job.gpus)

    def release(self, job_id: str, now: float) -> None:
        """A held job may start again. The time it was held counts as no waiting."""
        if job_id not in self._held:
            return
        queued, joined = self._known[job_id], self._held.pop(job_id)
        queued.reason = None
        if queued.held_since is None:
            return  # it is still being profiled
        queued.submit_time += now - queued.held_since
        queued.held_since = None
        self._wait_again(queued, now, Reason.RELEASED, joined=joined)

    def change_job(self, job: Job, now: float) -> None:
        """A waiting job asks for something else: GPUs, limits, sharing, virtual cluster.

        It keeps its id, its submission and its priority, and what it waited counts. What its
        profile showed is not of another number of GPUs. One that cannot run as the cluster is
        waits until it can.
        """
        queued = self._known[job.job_id]
        anew = job.gpus != queued.job.gpus
        joined = self._step_aside(queued, now)
        if anew:
            queued.profile, queued.profiled = None, False
        self.estimator.changed(job, now)
        queued.job = job
        if job.job_id in self._held:
            self._held[job.job_id] = (joined or self._held[job.job_id]) and not anew
        else:
            self._wait_again(queued, now, Reason.REQUEST_CHANGED, joined=joined and not anew)

    def _step_aside(self, queued: QueuedJob, now: float) -> bool:
        """A waiting job leaves where it stands, to come back. Whether that was its queue."""
        joined = queued in self.queues[queued.job.vc] or queued.job.job_id in self._set_aside
        self._forget(queued)
        if joined:
            self.policy.set_aside(queued.job.job_id, now)
        queued.reason = None
        return joined

    def _wait_again(self, queued: QueuedJob, now: float, reason: Reason, *, joined: bool) -> None:
        """A job comes back, `joined`: to its queue at once."""
        if joined:
            self.enqueue(queued, now, reason)
        else:
            self._to_stage_or_queue(queued, now, reason)
        self._recheck |= self._refusal(queued.job) is not None

    def held(self, job_id: str) -> bool:
        """Whether a job that has not ended is held."""
        return job_id in self._held

    # --- nodes and settings -----------------------------------------------------------------

    def set_node(self, node: int, is_open: bool) -> None:
        """A node is drained (nothing new starts there; what runs goes on) or opened again.

        Opening it calls off a change that waits for it to be idle.
        """
        if node in self._changing:
            to, _ = self._changing.pop(node)
            if not is_open:
                self._changing[node] = to, False
            self._reshaped(self.cluster.node_vc[node])
        self.cluster.set_open(node, is_open)
        self._touched(self.cluster.node_vc[node])

    def add_node(self, node: int, has: Node, *, lent: bool = False) -> None:
        """A node comes. `lent`: into the profiling partition."""
        self.cluster.add_node(node, has, lent=lent)
        self._open_vc(has.vc)
        if lent:
            self._lent.add(node)
        self._reshaped(has.vc)

    def _open_vc(self, vc: str) -> None:
        self.cluster.add_vc(vc)
        self.queues.setdefault(vc, Queue())
        self.runs_by_vc.setdefault(vc, {})

    def change_node(self, node: int, to: Node | None) -> None:
        """A node is to be another, of another virtual cluster too, or to go (None).

        Nothing new starts there from now on, what runs goes on; it happens when nothing runs there.
        One that was drained before stays so.
        """
        opens = self.cluster.pool_of(node).is_open(node)
        if node in self._changing:
            opens = self._changing[node][1]
        self.cluster.set_open(node, False)
        self._changing[node] = to, opens
        if to is not None:  # jobs may wait there for it
            self._open_vc(to.vc)
        self._reshaped(self.cluster.node_vc[node])

    def use_policy(self, policy: Policy, now: float) -> None:
        """Decide by a policy of the same kind with other settings from now on.

        What runs runs on; who waits is put in the order of the new one. Estimates, and what the old
        one learned, stay.
        """
        before, self.policy = self.policy, policy
        policy.cluster_changed(self.cluster)
        if self._bundle is not None:
            policy.use(self._bundle)
        runs = [run for run in self.cluster.runs.values() if not run.profiling]
        runs.sort(key=lambda run: run.order)
        waiting = {vc: list(queue) for vc, queue in self.queues.items()}
        if not policy.take_over(before, self._known.values(), runs, now):
            for run in runs:
                self._prepare_again(self._known[run.job.job_id], now)
                policy.started(run, run.start_time)
            for queued in chain.from_iterable(waiting.values()):
                self._prepare_again(queued, now)
        for vc, pool in self.cluster.pools.items():
            kept = policy.reservation(vc)
            pool.let_all_go()
            pool.hold(kept[1] if kept is not None else [])
            self.queues[vc].replace(waiting[vc])
        self._recheck = True
        self.wake(now)

    def _prepare_again(self, queued: QueuedJob, now: float) -> None:
        known = queued.estimate_s is not None
        self.policy.prepare(queued, now, _AsBefore(queued) if known else self.estimator)

    def _reshaped(self, *vcs: str) -> None:
        """Nodes of virtual clusters came, went, or are about to."""
        nodes = self.cluster.nodes.items()
        self._mixes_types = self.cluster.spec.mixes_types
        self._capacity = dict.fromkeys(self.cluster.pools, 0)
        for node, has in nodes:
            if node not in self._lent and node not in self._changing:
                self._capacity[has.vc] += has.gpus
        self.policy.cluster_changed(self.cluster)
        if self.profiling is not None:
            self.profiling.cluster_changed(self.cluster)
        self._recheck = True
        for vc in vcs:
            self._touched(vc)

    def _touched(self, vc: str) -> None:
        """GPUs of a virtual cluster may be given now that could not before, or the reverse."""
        self._dirty[vc] = None
        if self.policy.borrows:
            self._dirty.update(dict.fromkeys(self.queues))

    def _change_idle_nodes(self, now: float) -> None:
        for node, (to, opens) in list(self._changing.items()):
            if not self.cluster.pool_of(node).is_empty(node):
                continue
            was = self.cluster.node_vc[node]
            self.policy.node_leaves(self.cluster, node)
            self.cluster.remove_node(node)
            del self._changing[node]
            lent = node in self._lent and to is not None and to.vc == was
            self._lent.discard(node)
            if to is not None:
                self.add_node(node, to, lent=lent)
                self.cluster.set_open(node, opens)
            self._reshaped(was)
            self.record(now, Action.CHANGE_NODE, Reason.NODE_IDLE, "", was, nodes=(node,))

    def _part_with_the_impossible(self, now: float) -> None:
        """Jobs that can never start as the cluster is now leave their queue, so that nobody waits
        behind them; they come back when it has room for them again."""
        self._recheck = False
        for queued in [queued for queue in self.queues.values() for queued in queue]:
            job = queued.job
            reason = self._refusal(job)
            if reason is None:
                continue
            self._forget(queued)
            self.policy.withdrawn(job.job_id, now)
            self._set_aside[job.job_id] = queued
            if reason is Reason.INVALID_REQUEST:
                reason = Reason.VC_TOO_SMALL
            limit = self._capacity[job.vc]
            if queued.reason is not reason:
                queued.reason = reason
                self.record(
                    now, Action.WAIT, reason, job.job_id, job.vc, need=job.gpus, limit=limit
                )
        for job_id, queued in list(self._set_aside.items()):
            if self._refusal(queued.job) is None:
                del self._set_aside[job_id]
                queued.reason = None
                self._prepare_again(queued, now)
                self.queues[queued.job.vc].add(queued)
                self.queues[queued.job.vc].resorted = True
                self._dirty[queued.job.vc] = None

    # --- models, and other cores ------------------------------------------------------------

    def use(self, bundle: Bundle) -> None:
        """Decide with other models from now on. BundleError, and the old stay, if they cannot be.

        Jobs that are in their queue keep their place.
        """
        self.estimator.use(bundle)
        self.policy.use(bundle)
        self._bundle = bundle
        if self.profiling is not None:
            self.profiling.use(bundle)

    def resume(self, seq: int, bundle: Bundle | None = None) -> None:
        """Go on where another core was: number decisions from `seq` on, decide by the models that
        the estimator has already."""
        self._seq, self._bundle = seq, bundle
        if bundle is not None:
            self.policy.use(bundle)

    def begin_with(
        self, nodes: Mapping[int, Node], lent: Collection[int], vcs: Iterable[str] = ()
    ) -> None:
        """Have these nodes, by number, and not those it was built with; before any job is adopted.

        Args:
            lent: those of the profiling partition.
            vcs: virtual clusters to have even without a node: jobs wait there.
        """
        cluster = self.cluster
        for node, has in list(cluster.nodes.items()):
            if nodes.get(node) != has or (node in self._lent) is not (node in lent):
                cluster.remove_node(node)
        for node, has in nodes.items():
            if node not in cluster.nodes:
                cluster.add_node(node, has, lent=node in lent)
        for vc in vcs:
            cluster.add_vc(vc)
        self.queues = {vc: Queue() for vc in cluster.pools}
        self.runs_by_vc = {vc: {} for vc in cluster.pools}
        self._lent = set(lent)
        self._reshaped(*cluster.pools)

    def adopt(
        self,
        job: Job,
        now: float,
        *,
        order: int,
        priority: int = 0,
        profile: Profile | None = None,
        profiled: bool = False,
        queued_before: bool = False,
        placement: Placement | None = None,
        profiling: bool = False,
        since: float | None = None,
        partner: str | None = None,
        held_s: float = 0.0,
        held_since: float | None = None,
    ) -> None:
        """Take over a job that another core knew, as it stands; its estimator knows it already.

        Args:
            order: of arrival.
            queued_before: it has been in its queue.
            placement: the GPUs it holds; none when it waits.
            profiling, since: they are in the profiling partition; since when it holds them.
            partner: who shares them; to be adopted first.
            held_s, held_since: how long it was held, and since when it is; None: it is not.
        """
        queued = self._known[job.job_id] = QueuedJob(job, order, priority)
        self._arrivals = max(self._arrivals, order + 1)
        queued.profile, queued.profiled = profile, profiled
        queued.submit_time += held_s
        if held_since is not None:
            self._held[job.job_id] = queued_before or profiled  # nobody looks at it twice
            if not placement:
                queued.held_since = held_since
                return
        if not placement and not queued_before and self.profiling is not None:
            self.profiling.add(queued)
            return
        if queued_before:
            self.policy.prepare(queued, now, self.estimator)
        if not placement:
            self._recheck = True
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
        """Time the policy or the profiling stage asked for has come: serve every queue."""
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
        if self._changing:
            self._change_idle_nodes(now)
        if self._recheck:
            self._part_with_the_impossible(now)
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

    def runs_of(self, vc: str) -> list[Run]:
        """Runs of a virtual cluster, oldest first."""
        return list(self.runs_by_vc[vc].values())

    def reserved_for(self, vc: str) -> str | None:
        """The job that GPUs of a virtual cluster are kept for."""
        kept = self.policy.reservation(vc)
        return kept[0] if kept is not None else None

    def held_by(self, vc: str, gpus: int, now: float) -> Holding:
        """The runs that should free enough GPUs soonest, and in how many seconds."""
        known = self._holding.get(vc, gpus, self.cluster, now)
        if known is not None:
            return known
        runs = self.cluster.runs.values() if self.policy.borrows else self.runs_of(vc)
        found = soonest(
            self.cluster.pools[vc],
            gpus,
            runs,
            lambda run: self.policy.left_s(run, self._known[run.job.job_id], now),
        )
        return self._holding.put(vc, gpus, now, found)

    def waits(self, queued: QueuedJob) -> bool:
        """True when a job, seen waiting before, still does."""
        job_id = queued.job.job_id
        return self._known.get(job_id) is queued and job_id not in self.cluster.runs

    @property
    def profile_s(self) -> float:
        """How long profiling a job takes, seconds; 0 where none is profiled."""
        return self.profiling.limit_s if self.profiling is not None else 0.0

    def profile(self, queued: QueuedJob, placement: Placement, now: float) -> Run:
        """Look at a job in the profiling partition (called by a stage)."""
        job, pool = queued.job, self.cluster.profiling
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
            limit=int(self.profile_s),
        )
        return run

    def started(self, run: Run, queued: QueuedJob) -> None:
        """Bookkeeping of a start (called by a turn)."""
        self.runs_by_vc[run.vc][queued.job.job_id] = run
        self.estimator.started(queued.job.job_id, run.start_time)
        self.policy.started(run, run.start_time)

    def predict_anew(self, queued: QueuedJob, now: float, within: float) -> bool:
        """Ask the estimator again about a waiting job (called by a turn)."""
        assert queued.estimate_s is not None
        self.estimator.changed(queued.job, now)
        answer_s = self.estimator.estimate(queued.job, now).seconds
        if 1 / within < (1 + answer_s) / (1 + queued.estimate_s) < within:
            return False
        estimate = self.estimator.enqueued(queued.job, now)
        queued.estimate_s, queued.score = estimate.seconds, estimate.score
        queued.reason = None
        return True

    def stopped(self, run: Run, now: float) -> QueuedJob:
        """Bookkeeping of a preemption (called by a turn)."""
        self.estimator.stopped(run.job.job_id, now)
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

    def among(self, kept: Collection[str]) -> Core:
        """This core as if no other job waited: to be copied, not to be run, since the two share
        what they are made of. What is asked for in all still counts as it does here."""
        core = copy(self)
        core._known = {job_id: self._known[job_id] for job_id in self._known if job_id in kept}
        core._set_aside = {j: queued for j, queued in self._set_aside.items() if j in kept}
        core.queues = {vc: queue.among(kept) for vc, queue in self.queues.items()}
        core.policy = self.policy.among(kept)
        if self.profiling is not None:
            core.profiling = self.profiling.among(kept)
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
        """Append a decision; `more` are further fields of `Decision`."""
        self._decisions.append(Decision(self._seq, now, action, reason, job_id, vc, **more))
        self._seq += 1

    def forget_decisions(self) -> None:
        """Drop what was recorded since the last `decide`. For copies that were made other."""
        self._decisions = []

    def _forget(self, queued: QueuedJob) -> None:
        """A waiting job leaves its queue, or the stage in front of it."""
        queue = self.queues[queued.job.vc]
        if queued in queue:
            queue.remove(queued)
            if queued in queue.fresh:
                queue.fresh.remove(queued)
            self._dirty[queued.job.vc] = None  # whoever stood behind it may now be first
        self._set_aside.pop(queued.job.job_id, None)
        if self.profiling is not None:
            self.profiling.remove(queued)

    def enqueue(self, queued: QueuedJob, now: float, reason: Reason) -> None:
        """A job joins its queue (also called by a stage)."""
        job = queued.job
        self.policy.prepare(queued, now, self.estimator)
        self.queues[job.vc].add(queued)
        self._dirty[job.vc] = None
        # it shrank while this was profiled, or is to grow
        self._recheck |= job.gpus > self._capacity[job.vc] or bool(self._changing)
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


class _AsBefore(Estimator):
    """Says what was estimated of a job before."""

    def __init__(self, queued: QueuedJob):
        super().__init__()
        assert queued.estimate_s is not None
        self._estimate = Estimate(queued.estimate_s, queued.score)

    def estimate(self, job: Job, now: float) -> Estimate:
        return self._estimate

    def enqueued(self, job: Job, now: float) -> Estimate:
        return self._estimate
