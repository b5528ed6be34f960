"""Compares the policy `slurm` (the twin) with the slurmctld that it models, on recordings of real
daemons.

Starts are compared in each pass (scheduling round) that slurmctld made, from the state that it had
(`passes`). Starts and reasons are also compared from each poll on, where the twin is given later
arrivals and how long each job ran. Terms of priorities, forecasts, and whole schedules are compared
on generated sites (`sites`, `looks`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from math import floor
from typing import Any

from benchmarks.slurm.passes import each_pass
from benchmarks.slurm.recording import Look, Recording
from features.job import Job
from scheduler.assembly import CoreSpec, assemble
from scheduler.core.decisions import Action, Decision
from scheduler.core.estimates import Estimator
from scheduler.explain.whatif.futures import Beliefs, Believed, Draw, Future
from scheduler.simulation.work import Work
from scheduler.slurm.read.parse import SlurmJob
from scheduler.slurm.read.request import request
from scheduler.slurm.read.shape import Shape
from scheduler.slurm.read.site import asks_of, slurm_word
from scheduler.slurm.read.snapshot import ClusterSnapshot, build_snapshot, job_of
from scheduler.slurm.twin.twin import twin_in

NEVER = 1e12
HORIZONS_S = (5, 15, 30, 60)


@dataclass
class Count:
    """A number of right cases among all cases. `wrong` counts the wrong cases by description."""

    right: int = 0
    of: int = 0
    wrong: Counter[str] = field(default_factory=Counter)

    def add(self, right: bool, words: str = "") -> None:
        self.right += right
        self.of += 1
        if not right:
            self.wrong[words] += 1

    def join(self, other: Count) -> None:
        """Add the counts of `other`."""
        self.right, self.of = self.right + other.right, self.of + other.of
        self.wrong += other.wrong

    def said(self) -> dict[str, float]:
        """Return the counts for JSON."""
        return {"right": self.right, "of": self.of, "share": round(self.right / max(1, self.of), 3)}


def _snapshot(look: Look) -> ClusterSnapshot:
    """Return the snapshot of the cluster that `pellucid serve` would make of a recorded poll."""
    together = sorted({job.partition for job in look.jobs if "," in job.partition})
    shape = Shape.followed(look.nodes, together=together)
    core = assemble(CoreSpec.of(shape.spec, "slurm"), Estimator())
    jobs = [job for job in look.jobs if job.state in ("PENDING", "RUNNING", "COMPLETING")]
    return build_snapshot(core, shape, jobs, look.nodes, look.at, by_slurm=True, site=look.site)


_CAME = re.compile(r"\[(\S+)\] _slurm_rpc_submit_batch_job: JobId=(\d+) ")
_BEGAN = re.compile(r"\[(\S+)\] sched\S*: (?:_start_job: Started|Allocate) JobId=(\d+(?:_\d+)?)")
_DONE = re.compile(r"\[(\S+)\] _job_complete: JobId=(\d+(?:_\d+)?)\S* done")


def lasted(recording: Recording) -> tuple[dict[str, float], dict[str, float]]:
    """Return two mappings by job id: the seconds that each job ran, by the whole seconds of
    slurmctld's log; and, for jobs that were seen running, the seconds from the whole second of the
    start to the end.
    """
    began: dict[str, float] = {}
    found = {job_id: one.end - one.start for job_id, one in recording.truth.items()}
    seen = dict(found)
    for line in recording.log.splitlines():
        if match := _BEGAN.match(line):
            began[match[2]] = datetime.fromisoformat(match[1]).timestamp()
        elif (match := _DONE.match(line)) and match[2] in found and match[2] in began:
            ended = datetime.fromisoformat(match[1]).timestamp()
            found[match[2]] = ended - began[match[2]]
            seen[match[2]] = ended - recording.truth[match[2]].start
    return found, seen


def came(recording: Recording) -> dict[str, float]:
    """Return the time at which each job was submitted, by job id, as slurmctld's log has it."""
    moments = {one.job_id: one.at for one in recording.submitted}
    for line in recording.log.splitlines():
        if (match := _CAME.match(line)) and match[2] in moments:
            moments[match[2]] = datetime.fromisoformat(match[1]).timestamp()
    return {task: moments[one.job_id] for one in recording.submitted for task in one.tasks()}


def requested(recording: Recording) -> dict[str, SlurmJob]:
    """Return every job, by job id, made from the options with which it was submitted."""
    site, asked, moments = recording.looks[0].site, {}, came(recording)
    for one in recording.submitted:
        options = list(one.order.options)
        if one.order.after is not None:
            options.append(f"-d afterany:{recording.submitted[one.order.after].job_id}")
        words = " ".join(options).split()
        for task in one.tasks():
            asked[task] = request(words, site, one.order.user, task, floor(moments[task]))
    return asked


class _Ahead(Future):
    """A simulation of the future from one poll on. It records when jobs start (`began`), and the
    twin's reasons at the time given to `note` (`reasons`).
    """

    def note(self, moment: float) -> None:
        self._moment = moment
        self.reasons: dict[str, str] | None = None
        self.began: dict[str, float] = {}

    def _carry_out(self, decisions: list[Decision], now: float) -> None:
        super()._carry_out(decisions, now)
        self.began |= {one.job_id: now for one in decisions if one.action is Action.START}

    def _decided(self, now: float) -> None:
        self._plan_wake(now)  # the policy's next moment may come before the next event
        due = self._heap[0][0] if self._heap else NEVER
        if self.reasons is None and self._moment < due:
            policy = twin_in(self.core.policy)
            assert policy is not None
            self.reasons = {job_id: one.reason for job_id, one in policy.reasons.items()}
        super()._decided(now)


def _job(job: SlurmJob, shape: Shape, moments: Mapping[str, float]) -> Job:
    known = job_of(job, shape.vc_of(job.partition))
    return replace(known, gpu_type=None, submit_time=moments[job.id])


@dataclass(frozen=True, slots=True)
class Ahead:
    """A job that waited at a poll.

    Attributes:
        started: time at which Slurm started the job.
        twin: time at which the twin starts the job, simulated from the state at that poll.
    """

    job_id: str
    at: float
    started: float
    twin: float

    @property
    def wait_s(self) -> float:
        return self.started - self.at

    def within(self, seconds: float) -> bool:
        """Return whether both starts are at most `seconds` apart. Slurm's start is known to a whole
        second only.
        """
        return abs(self.twin - self.started - 0.5) <= seconds + 0.5


def from_each_look(recording: Recording) -> tuple[list[Ahead], Count]:
    """Simulate the twin onward from each recorded poll. Return the predicted and true starts of the
    jobs that waited, and how many reasons at the next poll were right. Running times and later
    submissions are the recorded ones.
    """
    found: list[Ahead] = []
    reasons = Count()
    asked, moments = requested(recording), came(recording)
    known, seen = lasted(recording)
    looks = recording.looks
    for look, following in zip(looks, [*looks[1:], None], strict=True):
        snapshot = _snapshot(look)
        core, shape = snapshot.core, snapshot.shape
        there = {job.id for job in look.jobs}
        later = {j: one for j, one in asked.items() if j not in there and moments[j] > look.at}
        policy = twin_in(core.policy)
        assert policy is not None
        policy.expect(asks_of(later.values(), look.site))
        core.estimator = Believed({})
        beliefs = Beliefs(look.at, {}, {}, [], 0.0, [])
        draw = Draw(beliefs, 0, 0)
        draw |= {job_id: Work(known.get(job_id, NEVER)) for job_id in asked}
        draw |= {job_id: Work(seen.get(job_id, NEVER)) for job_id in snapshot.running}
        pending = [job.id for job in look.jobs if job.state == "PENDING"]
        waiting = [job_id for job_id in pending if job_id in recording.truth]
        future = _Ahead(core, beliefs, draw, [*waiting, "none"], horizon_s=7200.0)
        future.note(NEVER if following is None else following.at)
        for job in later.values():
            future.submit(_job(job, shape, moments))
        future.look()
        starts = {d.job_id: look.at for d in snapshot.decisions if d.action is Action.START}
        starts = future.began | starts
        for job_id in waiting:
            begun = recording.truth[job_id].start
            found.append(Ahead(job_id, look.at, begun, starts.get(job_id, NEVER)))
        if following is not None and future.reasons is not None:
            _compare(reasons, following, future.reasons, set(starts))
    return found, reasons


def _compare(count: Count, look: Look, own: Mapping[str, str], started: set[str]) -> None:
    for job in look.jobs:
        word = slurm_word(job.reason)
        if job.state == "PENDING" and word != "None":
            twin = "runs" if job.id not in own and job.id in started else own.get(job.id, "unknown")
            count.add(twin == word, f"Slurm {word}, twin {twin}")


def figures(recordings: Sequence[Recording], tell: Callable[[str], None]) -> dict[str, Any]:
    """Compare the twin with slurmctld over all recordings. Return all figures; shares are from 0 to
    1.
    """
    cycle_s = recordings[0].looks[0].site.parameter("sched_interval", 60)
    same, near, next_reasons = Count(), Count(), Count()
    ahead: list[Ahead] = []
    for one in recordings:
        tell(f"seed {one.seed}: {len(one.truth)} jobs ran, {len(one.looks)} looks")
        passes = each_pass(one, requested(one))
        same.join(Count(passes.same, passes.passes))
        near.join(Count(*passes.within(cycle_s)))
        starts, reasons = from_each_look(one)
        ahead += starts
        next_reasons.join(reasons)
    return {
        "jobs": sum(len(one.truth) for one in recordings),
        "seeds": [one.seed for one in recordings],
        "looks": sum(len(one.looks) for one in recordings),
        "cycle_s": cycle_s,
        "each_pass": {"same_starts_and_nodes": same.said(), "starts_within_cycle": near.said()},
        "reason_at_next_look": next_reasons.said(),
        "reason_wrong_most": dict(next_reasons.wrong.most_common(8)),
        "from_each_look": _horizons(ahead, cycle_s),
    }


def _horizons(ahead: Sequence[Ahead], cycle_s: float) -> dict[str, Any]:
    """Return the share of starts that were foreseen to within `cycle_s` seconds, for all jobs and
    for ranges of how long the job still had to wait.
    """
    found: dict[str, Any] = {}
    low = float("-inf")
    for high in (*HORIZONS_S, float("inf")):
        some = [one for one in ahead if low <= one.wait_s < high]
        name = f"waits_under_{high:g}_s" if high < float("inf") else f"waits_{low:g}_s_or_more"
        near = sum(one.within(cycle_s) for one in some)
        found[name] = {"of": len(some), "within_cycle": round(near / max(1, len(some)), 3)}
        low = high
    found["within_cycle"] = round(sum(o.within(cycle_s) for o in ahead) / max(1, len(ahead)), 3)
    return found
