"""The profiling stage: a few minutes on a small partition before a job joins its queue.

Least-GPU-first, never past the first that does not fit; at most `limit_s` seconds each; one more
node while many wait (Lucid, ASPLOS'23, section 3.2). What a job did there is lost unless it ended.
A job that is too large, whose owner opted out, or whose like was profiled lately skips it.

The same objects serve the simulator and the live service; only the latter is late for its times.
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
    """The profiling stage that stands in front of the queues."""

    limit_s: float
    max_gpus: int
    overlaps_waiting: bool  # profiles jobs that wait in their queues, after every queue's turn

    def has_nodes(self, cluster: Cluster) -> bool:
        """Return whether the stage profiles on nodes of its own, even if none of these is there
        now."""
        ...

    def skips(self, job: Job) -> Reason | None:
        """Return why a job goes straight to its queue, or None when it is to be profiled."""
        ...

    def known_profile(self, job: Job) -> Profile | None:
        """Return the known profile of a job that skips the stage, or None."""
        ...

    def submitted(self, job: Job, now: float) -> None:
        """Called when a job arrives, whether it will be profiled or not."""
        ...

    def learned(self, job: Job, profile: Profile, now: float) -> None:
        """Called when a job was profiled for as long as a profile takes, here or where it runs."""
        ...

    def cluster_changed(self, cluster: Cluster) -> None:
        """Called when nodes were added, removed or changed."""
        ...

    def add(self, queued: QueuedJob) -> None:
        """Put a job into the stage."""
        ...

    def remove(self, queued: QueuedJob) -> None:
        """Remove a job from the stage, if it waits there."""
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
        """Lend nodes again that the stage had given back for a while. Called before jobs are
        served.
        """
        ...

    def reclaims(self, d: Decision) -> bool:
        """Return whether a recorded decision is one that `reclaim` made."""
        ...

    def serve(self, core: Host, now: float) -> None:
        """Start profiling the jobs that fit; lend or return nodes."""
        ...

    def follow(self, core: Host, d: Decision) -> None:
        """Carry out a recorded decision to lend or return a node."""
        ...

    def followed(self, core: Host, now: float) -> None:
        """Called in place of `serve` once the recorded decisions of this moment were carried
        out.
        """
        ...

    def next_wake(self, now: float) -> float | None:
        """Return when the stage is to be served even if nothing happens, or None."""
        ...

    def remember(self) -> StageMemory:
        """Return all that the stage knows, as a plain record."""
        ...

    def restore(self, memory: StageMemory, jobs: Mapping[str, QueuedJob]) -> None:
        """Restore what `remember` returned; `jobs` are all that have not ended, by id."""
        ...


@dataclass(frozen=True, slots=True)
class Scaling:
    """Time-aware scaling of the partition, by one node.

    Attributes:
        lender: virtual cluster the extra node comes from.
        grow_above, grow_every_s: lend when more than this many jobs wait; checked this often.
        shrink_below, shrink_every_s: return when fewer than this many wait, a node is idle, and
            no more than `quiet_gpus` GPUs are forecast per bin.
    """

    lender: str
    grow_above: int = 10
    grow_every_s: float = 10.0
    shrink_below: int = 5
    shrink_every_s: float = 100.0
    quiet_gpus: float = 40.0


@dataclass(slots=True, kw_only=True)
class KnownProfile:
    """The last profile of jobs of one kind, and when it was seen."""

    user: str
    template: str
    gpus: int
    at: float
    profile: Profile


@dataclass(slots=True, kw_only=True)
class StageMemory:
    """What a stage knows.

    Attributes:
        known: profiles, those seen longest ago first.
        queue: jobs to be profiled, in order.
        extra: the node that is lent to it. room: GPUs it has; None: as when it began.
        look_at: when it asked to be woken.
        arrivals: when jobs came lately, and their GPUs.
        spared: nodes that it spares for a while.
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

    Jobs are alike when user, template (the name without its numbers) and GPUs are; a job without
    a name is like no other.

    Args:
        recent_s: a profile older than this, in seconds, is no longer believed.
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
        """Replace the known profiles by these."""
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
    """The stage of the Lucid paper.

    Args:
        limit_s, max_gpus: how long a job is profiled, seconds, and the largest that is.
        scaling: lend a node while many wait; None: the partition keeps its size.
        forecast: of arrivals, this stage's own; a lent node goes back when it is to be quiet.
        known_s: a job like one that was profiled less than so many seconds ago takes over its
            profile; 0: every job is profiled.
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
        """Return whether the partition, since it changed, has no room for a job."""
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
        """Do nothing: this stage spares no nodes."""

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
        """Return whether the stage is to look now: `now` is an exact multiple of `every_s` seconds,
        or has reached the time at which the stage asked to be woken.

        A live clock meets the second condition alone.
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
        """Lend or return the extra node. Return whether a node was lent."""
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
    """Profiles only jobs that have to wait anyway, while they wait.

    A job that can start at once does, and is watched where it runs. One that waits is profiled
    when there is room, smallest first: its wait goes on meanwhile, and if it is short or fails
    fast it is over. The policy may have others profiled before they start.
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
        """Return what the jobs that wait to be profiled would lose if the partition had one
        node less: seconds of waiting, in sum."""
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
        """Lend or return the extra node; lend none while other nodes are spared, because they
        are lacked elsewhere. Return whether a node was lent."""
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
        """Remove the jobs that have started or been profiled meanwhile."""
        left = (entry for entry in self._queue if _waits(core, entry[-1]))
        self._queue = [entry for entry in left if not entry[-1].profiled]
        self._sweep_above = 2 * len(self._queue) + 1000

    def _knows_none(self, core: Host) -> bool:
        """Return whether this stage profiles no job: it has no nodes, so profiles come from jobs
        that run alone.
        """
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
    """Return whether a job, seen waiting before, still does."""
    job_id = queued.job.job_id
    return core.jobs.get(job_id) is queued and job_id not in core.cluster.runs


def _next_multiple(now: float, step: float) -> float:
    return (floor(now / step) + 1) * step
