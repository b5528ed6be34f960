"""The profiling stage: a job is measured for a few minutes on a small partition before it joins its
queue.

Jobs of few GPUs go first, and no job passes one that does not fit. Each runs for at most `limit_s`
seconds. One more node is lent while many jobs wait (Lucid, ASPLOS'23, section 3.2). A job's work in
the stage is lost, unless the job ended there. A job skips the stage if it is too large, if its
owner opted out, or if a similar job was profiled lately.

The simulator and the live service use the same objects. Only the live service calls them later than
at the times that they ask for.
"""

from __future__ import annotations

from bisect import insort
from collections import OrderedDict
from collections.abc import Collection, Mapping
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from math import floor
from typing import Any, Protocol

from features.job import Job, Profile
from features.names import normalise
from scheduler.core.arrivals import ArrivalForecaster
from scheduler.core.cluster import Cluster
from scheduler.core.decisions import Action, Decision, Reason
from scheduler.core.holders import soonest
from scheduler.core.queue import QueuedJob
from scheduler.core.rules import profiling_has_type, profiling_place
from scheduler.core.spared import SparedNodes
from scheduler.core.turn import Host


class Stage(Protocol):
    """A profiling stage. It profiles jobs before they join their queues or, where
    `overlaps_waiting`, while they wait there."""

    limit_s: float
    max_gpus: int
    overlaps_waiting: bool  # profiles jobs that wait in their queues, after every queue's turn

    def has_nodes(self, cluster: Cluster) -> bool:
        """Return whether the stage profiles on nodes of its own. None of them need exist now."""
        ...

    def skips(self, job: Job) -> Reason | None:
        """Return why a job goes straight to its queue, or None when it is to be profiled."""
        ...

    def known_profile(self, job: Job) -> Profile | None:
        """Return the profile that a job takes over from a similar one, or None. Called for a job
        that skips the stage."""
        ...

    def submitted(self, job: Job, now: float) -> None:
        """Called when a job arrives, whether it will be profiled or not. The stage uses it to
        forecast arrivals."""
        ...

    def learned(self, job: Job, profile: Profile, now: float) -> None:
        """Called when the profile of a job becomes known: from this stage, or from watching the job
        where it runs."""
        ...

    def cluster_changed(self, cluster: Cluster) -> None:
        """Called when nodes were added, removed or changed. The stage adapts to the nodes that it
        has now."""
        ...

    def add(self, queued: QueuedJob) -> None:
        """Add a job to those that wait to be profiled."""
        ...

    def remove(self, queued: QueuedJob) -> None:
        """Remove a job from those that wait to be profiled, if it is among them."""
        ...

    def before(self, queued: QueuedJob) -> list[str]:
        """Return the ids of the jobs that are profiled before this one. Return [] if this job does
        not wait to be profiled.
        """
        ...

    def restricted_to(self, kept: Collection[str]) -> Stage:
        """Return this stage without the waiting jobs outside `kept`; see `Core.restricted_to`."""
        ...

    def reclaim(self, core: Host, now: float) -> None:
        """Lend nodes to profiling again that the stage had given back for a while. Called before
        queues are served."""
        ...

    def reclaims(self, d: Decision) -> bool:
        """Return whether a recorded decision was made by `reclaim`."""
        ...

    def serve(self, core: Host, now: float) -> None:
        """Start to profile the jobs that fit, and lend or return nodes."""
        ...

    def follow(self, core: Host, d: Decision) -> None:
        """Carry out a recorded decision that a node is lent or returned."""
        ...

    def followed(self, core: Host, now: float) -> None:
        """Remember what `serve` would have remembered. Called in its place, once the recorded
        decisions of this time were carried out."""
        ...

    def next_wake(self, now: float) -> float | None:
        """Return the time (seconds since the epoch) at which the profiling stage must be served
        even if no event happens before; None if it need not be served."""
        ...

    def remember(self) -> StageMemory:
        """Return all that the stage knows, as a plain record."""
        ...

    def restore(self, memory: StageMemory, jobs: Mapping[str, QueuedJob]) -> None:
        """Restore what `remember` returned; `jobs` are all jobs that have not ended, by id."""
        ...


@dataclass(frozen=True, slots=True)
class Scaling:
    """When the profiling partition grows and shrinks by one node, depending on how many jobs wait.

    Attributes:
        lender: the virtual cluster that lends the extra node.
        grow_above: the node is lent when more than this many jobs wait to be profiled.
        grow_every_s: how often this is checked, seconds.
        shrink_below: the node is returned when fewer than this many wait, it is idle, and no more
            than `quiet_gpus` GPUs are forecast to be asked for per bin.
        shrink_every_s: how often this is checked, seconds.
    """

    lender: str
    grow_above: int = 10
    grow_every_s: float = 10.0
    shrink_below: int = 5
    shrink_every_s: float = 100.0
    quiet_gpus: float = 40.0


@dataclass(slots=True, kw_only=True)
class KnownProfile:
    """A plain record of the last profile of one kind of job, and of when it was seen."""

    user: str
    template: str
    gpus: int
    at: float
    profile: Profile


@dataclass(slots=True, kw_only=True)
class StageMemory:
    """A plain record of what a profiling stage knows.

    Attributes:
        known: profiles, those seen longest ago first.
        queue: ids of the jobs that are to be profiled, in order.
        extra: number of the extra node that is lent to the stage; None: none.
        room: number of GPUs of the partition since its nodes changed; None: they have not changed.
        look_at: the time at which the stage asked to be served.
        arrivals: times of recent submissions, each with the job's number of GPUs.
        spared: nodes that the stage has given back for a while.
    """

    known: list[KnownProfile]
    queue: list[str]
    extra: int | None
    room: int | None
    look_at: float | None
    arrivals: list[tuple[float, int]]
    spared: list[int] = field(default_factory=list)


class KnownProfiles:
    """The last profile of each kind of job that is submitted again and again.

    Two jobs are of one kind if they have the same user, template (the name without its numbers) and
    number of GPUs. A job without a name is like no other job.

    Args:
        recent_s: a profile older than this, in seconds, is not used any more.
    """

    MOST = 10_000  # of jobs that are not alike

    def __init__(self, recent_s: float):
        self.recent_s = recent_s
        self._profiles: OrderedDict[tuple[str, str, int], tuple[float, Profile]] = OrderedDict()

    def remember(self) -> list[KnownProfile]:
        """Return the profiles, each with when it was seen, those seen longest ago first."""
        return [
            KnownProfile(user=user, template=template, gpus=gpus, at=at, profile=profile)
            for (user, template, gpus), (at, profile) in self._profiles.items()
        ]

    def restore(self, known: list[KnownProfile]) -> None:
        """Replace the known profiles by those in `known`."""
        self._profiles = OrderedDict(
            ((one.user, one.template, one.gpus), (one.at, one.profile)) for one in known
        )

    def learn(self, job: Job, profile: Profile, now: float) -> None:
        if template := normalise(job.name):
            key = job.user, template, job.gpus
            self._profiles[key] = now, profile
            self._profiles.move_to_end(key)
            if len(self._profiles) > self.MOST:
                self._profiles.popitem(last=False)

    def find(self, job: Job, now: float) -> Profile | None:
        at, profile = self._profiles.get((job.user, normalise(job.name), job.gpus), (0.0, None))
        return profile if now - at <= self.recent_s else None


class ProfilingStage:
    """The profiling stage of the Lucid paper.

    Args:
        limit_s: how long a job is profiled, seconds.
        max_gpus: the largest job that is profiled, in GPUs.
        scaling: when a node is lent because many jobs wait; None: the partition keeps its size.
        forecast: this stage's own forecaster of arrivals; a lent node is returned only when few
            GPUs are forecast.
        known_s: a job takes over the profile of a similar one that was profiled less than this many
            seconds ago; 0: every job is profiled.
    """

    overlaps_waiting = False

    def __init__(
        self,
        *,
        limit_s: float = 200.0,
        max_gpus: int = 8,
        scaling: Scaling | None = None,
        forecast: ArrivalForecaster | None = None,
        known_s: float = 0.0,
    ):
        self.limit_s = limit_s
        self.max_gpus = max_gpus
        self.scaling = scaling
        self.forecast = forecast
        self._known = KnownProfiles(known_s) if known_s > 0 else None
        self._queue: list[tuple[int, int, QueuedJob]] = []
        self._extra: int | None = None  # the node lent by scaling
        self._room: int | None = None  # GPUs of the partition; None: as when it began
        self._look_at: float | None = None  # when it asked to be woken

    def has_nodes(self, cluster: Cluster) -> bool:
        return cluster.profiling.gpus > 0

    def skips(self, job: Job) -> Reason | None:
        if not job.profile:
            return Reason.PROFILING_OPTED_OUT
        if job.gpus > self.max_gpus or self._never_fits(job):
            return Reason.PROFILING_SKIPPED
        return Reason.PROFILE_KNOWN if self.known_profile(job) is not None else None

    def _never_fits(self, job: Job) -> bool:
        """Return whether a job asks for more GPUs than the partition has. Return False while its
        nodes are those with which it began, and for a partition that can grow."""
        return self._room is not None and self.scaling is None and job.gpus > self._room

    def known_profile(self, job: Job) -> Profile | None:
        return None if self._known is None else self._known.find(job, job.submit_time)

    def submitted(self, job: Job, now: float) -> None:
        if self.forecast is not None:
            self.forecast.submitted(job.gpus, now)

    def learned(self, job: Job, profile: Profile, now: float) -> None:
        if self._known is not None:
            self._known.learn(job, profile, now)

    def remember(self) -> StageMemory:
        return StageMemory(
            known=[] if self._known is None else self._known.remember(),
            queue=[queued.job.job_id for *_, queued in self._queue],
            extra=self._extra,
            room=self._room,
            look_at=self._look_at,
            arrivals=[] if self.forecast is None else self.forecast.remember(),
        )

    def restore(self, memory: StageMemory, jobs: Mapping[str, QueuedJob]) -> None:
        if self._known is not None:
            self._known.restore(memory.known)
        here = [jobs[job_id] for job_id in memory.queue if job_id in jobs]
        self._queue = [(queued.job.gpus, queued.seq, queued) for queued in here]
        self._extra, self._room = memory.extra, memory.room
        self._look_at = memory.look_at
        if self.forecast is not None:
            self.forecast.restore(memory.arrivals)

    def cluster_changed(self, cluster: Cluster) -> None:
        if self._extra is not None and self._extra not in cluster.profiling:
            self._extra = None  # it left, or was lent again where it is now
        self._room = cluster.profiling.gpus

    def add(self, queued: QueuedJob) -> None:
        insort(self._queue, (queued.job.gpus, queued.seq, queued))

    def remove(self, queued: QueuedJob) -> None:
        self._queue = [entry for entry in self._queue if entry[-1] is not queued]

    def before(self, queued: QueuedJob) -> list[str]:
        line = [entry[-1] for entry in self._queue]
        return [other.job.job_id for other in line[: line.index(queued)]] if queued in line else []

    def restricted_to(self, kept: Collection[str]) -> ProfilingStage:
        stage = copy(self)
        stage._queue = [entry for entry in self._queue if entry[-1].job.job_id in kept]
        return stage

    def reclaim(self, core: Host, now: float) -> None:
        """Do nothing: this kind of stage never gives nodes back for a while."""

    def reclaims(self, d: Decision) -> bool:
        return False

    def serve(self, core: Host, now: float) -> None:
        self._place(core, now)
        if self.scaling is not None and self._scale(core, now, self.scaling):
            self._place(core, now)
        self.followed(core, now)

    def follow(self, core: Host, d: Decision) -> None:
        [node] = d.nodes
        if d.action is Action.LEND:
            core.cluster.lend(node)
            self._extra = node
        else:
            core.cluster.give_back(node)
            core.touch(d.vc)
            self._extra = None

    def followed(self, core: Host, now: float) -> None:
        if self._look_at is not None and now >= self._look_at:
            self._look_at = None

    def next_wake(self, now: float) -> float | None:
        scaling, self._look_at = self.scaling, None
        if scaling is None:
            return None
        if self._extra is not None:
            self._look_at = _next_multiple(now, scaling.shrink_every_s)
        elif len(self._queue) > scaling.grow_above:
            self._look_at = _next_multiple(now, scaling.grow_every_s)
        return self._look_at

    def _due(self, now: float, every_s: float) -> bool:
        """Return whether the stage is to check its size now: `now` is an exact multiple of
        `every_s` seconds, or has reached the time at which the stage asked to be served.

        With a live clock, only the second condition is ever met.
        """
        return now % every_s == 0 or (self._look_at is not None and now >= self._look_at)

    def _place(self, core: Host, now: float) -> None:
        pool = core.cluster.profiling
        if self._room is not None:
            for *_, queued in [entry for entry in self._queue if self._never_fits(entry[-1].job)]:
                self.remove(queued)
                core.enqueue(queued, now, Reason.PROFILING_SKIPPED)
        while self._queue:
            gpus, _, queued = self._queue[0]
            if gpus > self.max_gpus or not profiling_has_type(core.cluster, queued.job):
                self.remove(queued)
                core.enqueue(queued, now, Reason.PROFILING_SKIPPED)
                continue
            placement = profiling_place(core.cluster, queued.job, self.max_gpus)
            if placement is None:
                break
            del self._queue[0]
            core.profile(queued, placement, now)
        for position, (gpus, _, queued) in enumerate(self._queue, 1):
            if queued.reason is None:
                queued.reason = Reason.AWAITING_PROFILE
                runs = [run for run in core.cluster.runs.values() if run.profiling]
                held_by = soonest(pool, gpus, runs, lambda run, _: run.start_time).jobs
                core.record(
                    now,
                    action=Action.WAIT,
                    reason=Reason.AWAITING_PROFILE,
                    job_id=queued.job.job_id,
                    vc=queued.job.vc,
                    need=gpus,
                    free=pool.free,
                    limit=pool.gpus,
                    position=position,
                    held_by=held_by,
                )

    def _scale(self, core: Host, now: float, scaling: Scaling) -> bool:
        """Lend or return the extra node, if it is time to. Return whether a node was lent."""
        waiting = len(self._queue)
        cluster, vc = core.cluster, scaling.lender
        if self._extra is None:
            if waiting <= scaling.grow_above or not self._due(now, scaling.grow_every_s):
                return False
            node = cluster.pools[vc].idle_node()
            if node is None:
                return False
            cluster.lend(node)
            self._extra = node
            core.record(
                now,
                action=Action.LEND,
                reason=Reason.PROFILING_BACKLOG,
                job_id="",
                vc=vc,
                nodes=(node,),
                position=waiting,
            )
            return True
        quiet = self.forecast is None or self.forecast.gpus(now) <= scaling.quiet_gpus
        if (
            waiting < scaling.shrink_below
            and self._due(now, scaling.shrink_every_s)
            and cluster.profiling.is_idle(self._extra)
            and quiet
        ):
            cluster.give_back(self._extra)
            core.record(
                now,
                action=Action.RETURN,
                reason=Reason.PROFILING_IDLE,
                job_id="",
                vc=vc,
                nodes=(self._extra,),
                position=waiting,
            )
            core.touch(vc)
            self._extra = None
        return False


class WaitingStage(ProfilingStage):
    """A profiling stage for jobs that have to wait anyway; they are profiled while they wait.

    A job that can start at once does so, and is watched where it runs. A waiting job stays in its
    queue until there is room to profile it, smallest first; a job that is short, or fails fast,
    ends there. The policy may ask that other jobs are profiled before they start.
    """

    overlaps_waiting = True
    _sweep_above = 1000

    def __init__(self, **terms: Any):
        super().__init__(**terms)
        self._spared = SparedNodes([])

    def remember(self) -> StageMemory:
        memory = super().remember()
        memory.spared = list(self._spared.nodes)
        return memory

    def restore(self, memory: StageMemory, jobs: Mapping[str, QueuedJob]) -> None:
        super().restore(memory, jobs)
        self._spared = SparedNodes(list(memory.spared))

    def has_nodes(self, cluster: Cluster) -> bool:
        return super().has_nodes(cluster) or bool(self._spared.nodes)

    def cluster_changed(self, cluster: Cluster) -> None:
        super().cluster_changed(cluster)
        self._spared.changed(cluster)

    def skips(self, job: Job) -> Reason | None:
        if not job.profile:
            return Reason.PROFILING_OPTED_OUT
        return Reason.SUBMITTED if self.known_profile(job) is None else Reason.PROFILE_KNOWN

    def add(self, queued: QueuedJob) -> None:
        seen = queued.profiled or queued.profile is not None
        if not seen and queued.job.profile and queued.job.gpus <= self.max_gpus:
            super().add(queued)

    def reclaim(self, core: Host, now: float) -> None:
        if self._spared.nodes:
            self._spared.lend_again(core, now, partial(self._loses_s, core))

    def reclaims(self, d: Decision) -> bool:
        return self._spared.is_lent_again(d)

    def _loses_s(self, core: Host) -> float:
        """Return the seconds of waiting, in total, that the jobs that wait to be profiled would
        lose if the partition had one node less."""
        return self.limit_s * sum(_waits(core, entry[-1]) for entry in self._queue)

    def serve(self, core: Host, now: float) -> None:
        loses_s = partial(self._loses_s, core)
        if self._spared.spare(core, now, loses_s, self._extra):
            self.followed(core, now)  # no more are begun until it is idle
        else:
            super().serve(core, now)
            self._spared.changed(core.cluster)
            self._spared.spare(core, now, loses_s, self._extra)  # what those placed left over

    def _scale(self, core: Host, now: float, scaling: Scaling) -> bool:
        """Lend or return the extra node, if it is time to; lend none while the stage spares other
        nodes because virtual clusters need them. Return whether a node was lent."""
        if self._spared.nodes and self._extra is None:
            return False
        return super()._scale(core, now, scaling)

    def follow(self, core: Host, d: Decision) -> None:
        if not self._spared.follow(core, d):
            super().follow(core, d)
            self._spared.changed(core.cluster)

    def followed(self, core: Host, now: float) -> None:
        super().followed(core, now)
        if self._knows_none(core):
            self._queue.clear()
        if self.scaling is not None or len(self._queue) > self._sweep_above:
            self._sweep(core)

    def _sweep(self, core: Host) -> None:
        """Remove jobs from the stage's queue that have been started or profiled since they joined
        it."""
        left = (entry for entry in self._queue if _waits(core, entry[-1]))
        self._queue = [entry for entry in left if not entry[-1].profiled]
        self._sweep_above = 2 * len(self._queue) + 1000

    def _knows_none(self, core: Host) -> bool:
        """Return whether this stage profiles no job, because it has no nodes. Profiles then come
        from watching jobs that run alone."""
        return not self.has_nodes(core.cluster) and self.scaling is None

    def _place(self, core: Host, now: float) -> None:
        pool, left = core.cluster.profiling, []
        if self._knows_none(core):
            self._queue.clear()
            return
        if len(self._queue) > self._sweep_above:  # those that started stay in it till they are met
            self._queue = [entry for entry in self._queue if _waits(core, entry[-1])]
            self._sweep_above = 2 * len(self._queue) + 1000
        for at, entry in enumerate(self._queue):
            queued = entry[-1]
            if self.scaling is None and entry[0] > pool.free:  # the smallest come first
                left += self._queue[at:]
                break
            if queued.profiled or not _waits(core, queued):
                continue
            placement = profiling_place(core.cluster, queued.job, self.max_gpus)
            if placement is None:
                left.append(entry)
                continue
            core.queues[queued.job.vc].remove(queued)
            core.touch(queued.job.vc)  # whoever stood behind it may now be first
            core.profile(queued, placement, now)
        self._queue = left


def _waits(core: Host, queued: QueuedJob) -> bool:
    """Return whether a job that waited earlier still waits: it has not ended, and does not run."""
    job_id = queued.job.job_id
    return core.jobs.get(job_id) is queued and job_id not in core.cluster.runs


def _next_multiple(now: float, step: float) -> float:
    return (floor(now / step) + 1) * step
