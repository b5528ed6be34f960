"""The event-driven engine, which runs the decision core on a simulated clock, against simulated
jobs.

The truth about each job is its `Work`; a `SpeedModel` says how fast it is done. The engine keeps
how much work of every running job is left and at what rate it is done, tells the core which jobs
ended, and carries out what the core decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import ceil
from typing import TYPE_CHECKING, Any

from features.job import Job
from scheduler.core.core import Core
from scheduler.core.decisions import STARTS, Action, Decision
from scheduler.core.policy import preemption_cost_s
from scheduler.simulation.loop import (
    END,
    OBSERVE,
    PACE,
    STATE,
    After,
    EventLoop,
    JobResult,
    Outcome,
)
from scheduler.simulation.quirks import NONE, Quirks
from scheduler.simulation.work import SpeedModel, Work

if TYPE_CHECKING:
    from scheduler.simulation.stating import Stating

__all__ = ["Engine", "JobResult", "Outcome"]

# A job that was not watched first reports its progress after so long, then after each doubling.
FIRST_S = 300.0


class Progress:
    """The progress of one run. `remaining`: work left at the time `since`, in seconds at the speed
    of a job alone.
    """

    __slots__ = ("job_id", "profiling", "rate", "remaining", "since", "started", "version", "work")

    def __init__(self, job_id: str, work: Work, remaining: float, now: float):
        self.job_id = job_id
        self.work = work
        self.remaining = remaining
        self.rate = 1.0
        self.since = self.started = now
        self.version = 0
        self.profiling = False

    def left(self, now: float) -> float:
        return self.remaining - (now - self.since) * self.rate

    def settle(self, now: float) -> None:
        self.remaining = self.left(now)
        self.since = now


class Engine(EventLoop):
    """Runs jobs through a core. Each job gets all its GPUs at once, and keeps them while it runs.

    Args:
        core: the decision core, built by the caller with policy, estimator and stages.
        jobs: the jobs, in order of submission.
        work: the truth about each job, by job id.
        speed: the rule for the rate at which jobs do their work.
        after: by job id, the end for which a submission waits, in a closed loop.
        sink: called with each batch of decisions as they are taken (by a recorder, say).
        quirks: departures from correct behaviour, for fidelity to a published simulator.
        progress: called now and then with the number of jobs ended so far.
    """

    def __init__(
        self,
        core: Core,
        jobs: Iterable[Job],
        work: dict[str, Work],
        speed: SpeedModel,
        *,
        after: Mapping[str, After] | None = None,
        sink: Callable[[list[Decision]], None] | None = None,
        quirks: Quirks = NONE,
        progress: Callable[[int], None] | None = None,
    ):
        super().__init__(
            core,
            ((job, work[job.job_id].duration_s) for job in jobs),
            after=after,
            sink=sink,
            progress=progress,
        )
        self.core = core
        self.work = work
        self.speed = speed
        self.quirks = quirks
        self.states: Stating | None = None  # who says how far it is; None: nobody
        self._mixed = core.cluster.spec.mixes_types
        self._running: dict[str, Progress] = {}
        self._remaining: dict[str, float] = {}  # of preempted jobs
        self._lag = quirks.end_lag_s if core.policy.name in quirks.counting_policies else 0.0
        stage = core.profiling
        # seconds after which a run is known as well as if it had been profiled
        watch_s = stage.limit_s if stage is not None else core.policy.capabilities.watch_s
        self._watch_s = watch_s if core.policy.capabilities.watches_runs else None
        self._pace_s = core.policy.capabilities.pace_s
        if core.policy.capabilities.oracle:
            core.oracle = self

    def remaining_s(self, job_id: str, now: float) -> float:
        """Return the work left of a running job, in seconds at the speed of a job alone, for oracle
        policies.
        """
        return self._running[job_id].left(now)

    # --- nature -----------------------------------------------------------------------------

    def _anything_running(self) -> bool:
        return bool(self._running)

    def _happened(self, kind: int, what: Any, version: int, now: float) -> None:
        assert isinstance(what, Progress)
        if kind == OBSERVE:
            self._observe(what, now)
        elif kind == STATE:
            self._report_progress(what, now)
        elif what.version == version:
            if kind == END:
                self._end(what, now)
            else:
                self._pace(what, now)

    def _schedule_end(self, run: Progress) -> None:
        run.version += 1
        end = run.since + run.remaining / run.rate
        if self.quirks.tick_s:
            # ticks are counted from the epoch; the small term keeps 5.0000001 from becoming 6
            end = ceil(end / self.quirks.tick_s - 1e-7) * self.quirks.tick_s + self._lag
        self._push(end, END, run, run.version)

    def _observe(self, run: Progress, now: float) -> None:
        """Report the profile of a run to the core, if it still runs and never shared its GPUs: what
        two jobs do on one GPU cannot be separated.
        """
        if self._running.get(run.job_id) is not run or self.results[run.job_id].packed:
            return
        if run.work.profile is not None:
            self.core.observed(run.job_id, run.work.profile, now)

    def _report_progress(self, run: Progress, now: float) -> None:
        """Report the progress of a run to the core, if it is alone on its GPUs. Schedule the next
        report for when it has run twice as long."""
        if self._running.get(run.job_id) is not run:
            return
        if self._partner(run) is None:
            self._state(run, now)
        self._push(2 * now - run.started, STATE, run)

    def _state(self, run: Progress, now: float) -> None:
        if self.states is None:
            return
        total_s = run.work.duration_s
        ran_s = now - run.started if run.profiling else total_s - run.left(now)
        progress = self.states.progress(run.job_id, total_s, ran_s)
        if progress is not None:
            self.core.progressed(run.job_id, progress, now)

    def _pace(self, run: Progress, now: float) -> None:
        """Report the measured speed of both members of a pair to the core, if both still share
        their GPUs.
        """
        partner = self._partner(run) if self._running.get(run.job_id) is run else None
        if partner is not None:
            for one in (run, partner):
                self.core.pair_speed_observed(one.job_id, one.rate / self._alone(one), now)

    def _end(self, run: Progress, now: float) -> None:
        del self._running[run.job_id]
        result = self.results[run.job_id]
        if run.profiling:
            result.profile_s += now - run.started
            if run.work.duration_s > run.remaining:  # what its time there allowed
                self._part(run, now)
                self._state(run, now)
                self.core.profile_ended(run.job_id, run.work.profile, now)
                return
            result.ended_in_profiling = True
            result.start_time = run.started
        else:
            result.ran_s += now - run.started
        result.end_time = now
        self._part(run, now)
        ran = result.ran_s if not run.profiling else result.profile_s
        self.core.ended(
            run.job_id,
            run.work.state,
            ran,
            now,
            keep_shut=self.quirks.survivor_stays_slow and self._is_older(run),
        )
        self._ended(run.job_id, now)

    def _partner(self, run: Progress) -> Progress | None:
        partner = self.core.cluster.runs[run.job_id].partner
        return self._running[partner.job.job_id] if partner is not None else None

    def _alone(self, run: Progress) -> float:
        """Return the rate of a run that has its GPUs to itself, in seconds of work per second: 1 on
        the type of GPU for which durations are stated.
        """
        if not self._mixed:
            return 1.0
        return self.speed.rate(run.work, self.core.cluster.runs[run.job_id], None)

    def _is_older(self, run: Progress) -> bool:
        mine = self.core.cluster.runs[run.job_id]
        return mine.partner is not None and mine.order < mine.partner.order

    def _part(self, run: Progress, now: float) -> None:
        """Add the GPU-time of an ended run to the busy time, and let its partner return to full
        speed.
        """
        partner = self._partner(run)
        gpus = self.results[run.job_id].job.gpus
        if partner is None:
            self._busy_gpu_s += gpus * (now - run.started)
            return
        # a shared GPU is busy once: the pair's time is counted with the member that stays
        shared = min(gpus, self.results[partner.job_id].job.gpus)
        partner_gpu_s = shared * (now - max(run.started, partner.started))
        self._busy_gpu_s += gpus * (now - run.started) - partner_gpu_s
        if not (self.quirks.survivor_stays_slow and self._is_older(run)):
            partner.settle(now)
            partner.rate = self._alone(partner)
            self._schedule_end(partner)

    # --- decisions --------------------------------------------------------------------------

    def _carry_out(self, decisions: list[Decision], now: float) -> None:
        for d in decisions:
            action = d.action
            if action in STARTS:
                self._start(d, now)
            elif action is Action.PROFILE:
                self._profile(d, now)
            elif action is Action.PREEMPT:
                self._preempt(d.job_id, now)
            elif action is Action.CANCEL:
                self._cancel(d.job_id, now)
            elif action is Action.REFUSE:
                self._refused(d.job_id, now)

    def _start(self, d: Decision, now: float) -> None:
        work = self.work[d.job_id]
        run = Progress(d.job_id, work, self._remaining.pop(d.job_id, work.duration_s), now)
        self._running[d.job_id] = run
        result = self.results[d.job_id]
        result.estimate_s = d.estimate_s
        if result.start_time is None:
            result.start_time = now
        placed = self.core.cluster.runs
        if self._mixed:
            run.rate = self._alone(run)
        if d.action is Action.PACK:
            assert d.partner is not None
            partner = self._running[d.partner]
            run.rate = self.speed.rate(work, placed[d.job_id], partner.work)
            partner.settle(now)
            partner.rate = self.speed.rate(partner.work, placed[d.partner], work)
            self._schedule_end(partner)
            self._counts["packings"] += 1
            self._counts["over_memory"] += self._over_memory(d.job_id, partner.work)
            result.packed += 1
            self.results[d.partner].packed += 1
        elif self._watch_s is not None and self.core.jobs[d.job_id].profile is None:
            self._push(now + self._watch_s, OBSERVE, run)
        self._schedule_end(run)
        if self.states is not None and d.job_id in self.states.off:
            self._push(now + (self._watch_s or FIRST_S), STATE, run)
        if d.action is Action.PACK and self._pace_s is not None:
            self._push(now + self._pace_s, PACE, run, run.version)

    def _over_memory(self, job_id: str, other: Work) -> bool:
        """Return whether a job and its partner (with the truth `other`) take more memory than their
        GPUs have.
        """
        own, cluster = self.work[job_id].profile, self.core.cluster
        if own is None or other.profile is None:
            return False
        taken_mib = own.gpu_mem_mib + other.profile.gpu_mem_mib
        return taken_mib > cluster.gpu_memory_mib(cluster.runs[job_id])

    def _profile(self, d: Decision, now: float) -> None:
        work, stage = self.work[d.job_id], self.core.profiling
        assert stage is not None
        run = Progress(d.job_id, work, min(work.duration_s, stage.limit_s), now)
        run.profiling = True
        self._running[d.job_id] = run
        run.version += 1
        self._push(now + run.remaining, END, run, run.version)

    def _preempt(self, job_id: str, now: float) -> None:
        run = self._stop(job_id, now)
        if not self.core.policy.capabilities.restarts:
            gpus = self.results[job_id].job.gpus
            self._remaining[job_id] = run.left(now) + preemption_cost_s(gpus)

    def _cancel(self, job_id: str, now: float) -> None:
        if job_id not in self._running:
            self._refused(job_id, now)
            return
        self._stop(job_id, now)
        self.results[job_id].end_time = now
        self._ended(job_id, now)

    def _stop(self, job_id: str, now: float) -> Progress:
        run = self._running.pop(job_id)
        run.version += 1  # its end will not come
        result = self.results[job_id]
        result.ran_s += now - run.started
        result.preemptions += 1
        self._counts["preemptions"] += 1
        self._busy_gpu_s += result.job.gpus * (now - run.started)
        return run
