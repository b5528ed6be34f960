"""The policy `slurm` against the slurmctld it stands for, on recordings of real daemons.

Terms of priorities are compared with `sprio`, look by look. Starts and reasons are those of the
twin in each pass that slurmctld made, from the state it had; going on from each look, fed what came
later and how long each job ran; and of one run from the first submission to the end, which sees
nothing of what Slurm decided. Forecasts are made at each look, of what was printed until then, as
`serve` makes them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from math import floor
from statistics import fmean, median
from typing import Any

from scipy.stats import spearmanr

from benchmarks.slurm.passes import each_pass
from benchmarks.slurm.recording import Look, Recording
from features.job import Job
from scheduler.assembly import CoreSpec, assemble
from scheduler.backends.slurm.parse import SlurmJob
from scheduler.backends.slurm.request import request
from scheduler.backends.slurm.shape import Shape
from scheduler.backends.slurm.site import asks_of, slurm_word
from scheduler.backends.slurm.snapshot import Asking, ClusterSnapshot, build_snapshot, job_of
from scheduler.core.decisions import Action, Decision
from scheduler.core.estimates import Estimator, LiveEstimator
from scheduler.explain.whatif.forecasts import Futures
from scheduler.explain.whatif.futures import Beliefs, Believed, Draw, Future
from scheduler.explain.whatif.memory import Memory
from scheduler.policies.slurm.priority import Multifactor, Terms
from scheduler.policies.slurm.site import Ask, Site
from scheduler.policies.slurm.twin import twin_in
from scheduler.service.follow.histories import Histories
from scheduler.service.follow.promises import Promises
from scheduler.simulation.engine import Engine
from scheduler.simulation.work import Work

NEVER = 1e12


@dataclass
class Count:
    """So many of so many. `wrong`: some of the others, in words."""

    right: int = 0
    of: int = 0
    wrong: list[str] = field(default_factory=list)

    def add(self, right: bool, words: str = "") -> None:
        self.right += right
        self.of += 1
        if not right and len(self.wrong) < 2000:
            self.wrong.append(words)

    def join(self, other: Count) -> None:
        """Count these, too."""
        self.right, self.of = self.right + other.right, self.of + other.of
        self.wrong += other.wrong

    def said(self) -> dict[str, float]:
        """As JSON has it."""
        return {"right": self.right, "of": self.of, "share": round(self.right / max(1, self.of), 3)}

    def most(self) -> dict[str, int]:
        """What is wrong most often."""
        return dict(Counter(self.wrong).most_common(8))


# --- terms ----------------------------------------------------------------------------------------


def terms(recording: Recording) -> Count:
    """Jobs whose terms and sum are sprio's, at every look that saw one state of them."""
    found = Count()
    for look in recording.looks:
        if look.sprio:
            wrong = _wrong_terms(look)
            found.of += len(look.sprio)
            found.right += len(look.sprio) - len(wrong)
            found.wrong += wrong
    return found


def _wrong_terms(look: Look) -> list[str]:
    """Slurm computes terms once a period, and of a new job when it comes: at which moment it does
    not say, so the one that fits most is taken."""
    asks = asks_of([job for job in look.jobs if job.state == "PENDING"], look.site)
    arrays = {ask.array: ask for ask in asks.values() if ask.array}
    assert look.sprio is not None
    weights = Multifactor(look.site)
    tries = []
    for back in range(-2, 75):
        wrong = []
        for row in look.sprio:
            ask = asks.get(row[0]) or arrays.get(row[0])
            if ask is not None:
                at = [look.at - back, *([ask.submit] if ask.submit >= look.at - back else [])]
                if all(_differs(weights, ask, look.site, row, now) for now in at):
                    wrong.append(" ".join(row))
        tries.append(wrong)
    return min(tries, key=len)


def _differs(weights: Multifactor, ask: Ask, site: Site, row: Sequence[str], now: float) -> bool:
    _, part, priority, age, fair, size, in_part, qos, tres, assoc, nice, _ = row
    own = weights.terms(ask, site.partitions[part], now)
    said = tuple(int(one) for one in (age, fair, size, in_part, qos, assoc, nice))
    by_name = dict(one.partition("=")[::2] for one in tres.split(","))
    off = any(abs(a - b) > 1 for a, b in zip(_rounded(own), said, strict=True))
    off |= any(abs(int(by_name.get(n, 0)) - x) > 1 for n, x in own.tres.items())
    return off or abs(own.total - int(priority)) > 1


def _rounded(one: Terms) -> tuple[int, ...]:
    parts = (one.age, one.fairshare, one.jobsize, one.partition, one.qos, one.assoc)
    return tuple(round(part) for part in (*parts, float(one.nice)))


# --- starts and reasons ---------------------------------------------------------------------------


def _snapshot(look: Look, estimator: Estimator | None = None) -> ClusterSnapshot:
    """What `serve` makes of a look."""
    together = sorted({job.partition for job in look.jobs if "," in job.partition})
    shape = Shape.followed(look.nodes, together=together)
    core = assemble(CoreSpec.of(shape.spec, "slurm"), estimator or Estimator())
    jobs = [job for job in look.jobs if job.state in ("PENDING", "RUNNING", "COMPLETING")]
    return build_snapshot(core, shape, jobs, look.nodes, look.at, by_slurm=True, site=look.site)


# --- starts ---------------------------------------------------------------------------------------


class _Plain:
    """Jobs run at one speed."""

    def rate(self, work: object, run: object, neighbour: object) -> float:
        return 1.0


_CAME = re.compile(r"\[(\S+)\] _slurm_rpc_submit_batch_job: JobId=(\d+) ")
_BEGAN = re.compile(r"\[(\S+)\] sched\S*: (?:_start_job: Started|Allocate) JobId=(\d+(?:_\d+)?)")
_DONE = re.compile(r"\[(\S+)\] _job_complete: JobId=(\d+(?:_\d+)?)\S* done")


def lasted(recording: Recording) -> tuple[dict[str, float], dict[str, float]]:
    """How long each job ran, by slurmctld's log: its start and end have whole seconds. And how
    long after the second in which it started it ended: for jobs that are seen to run."""
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
    """When each job was submitted, by slurmctld's log."""
    moments = {one.job_id: one.at for one in recording.submitted}
    for line in recording.log.splitlines():
        if (match := _CAME.match(line)) and match[2] in moments:
            moments[match[2]] = datetime.fromisoformat(match[1]).timestamp()
    return {task: moments[one.job_id] for one in recording.submitted for task in one.tasks()}


def requested(recording: Recording) -> dict[str, SlurmJob]:
    """Every job, made of the options it was submitted with."""
    site, asked, moments = recording.looks[0].site, {}, came(recording)
    for one in recording.submitted:
        options = list(one.order.options)
        if one.order.after is not None:
            options.append(f"-d afterany:{recording.submitted[one.order.after].job_id}")
        words = " ".join(options).split()
        for task in one.tasks():
            asked[task] = request(words, site, one.order.user, task, floor(moments[task]))
    return asked


class _Noting(Engine):
    """An engine that notes the twin's reasons at given moments, and its starts."""

    moments: list[float]
    reasons: list[dict[str, str]]
    began: dict[str, float]

    def note(self, moments: Sequence[float]) -> None:
        self.moments, self.reasons, self.began = list(moments), [], {}

    def _carry_out(self, decisions: list[Decision], now: float) -> None:
        super()._carry_out(decisions, now)
        self.began |= {one.job_id: now for one in decisions if one.action is Action.START}

    def _decided(self, now: float) -> None:
        policy = twin_in(self.core.policy)
        assert policy is not None
        due = self._heap[0][0] if self._heap else NEVER
        while len(self.reasons) < len(self.moments) and self.moments[len(self.reasons)] < due:
            self.reasons.append({j: one.reason for j, one in policy.reasons.items()})
        super()._decided(now)


class _Ahead(_Noting, Future):
    """From one look on."""


def whole_run(recording: Recording) -> _Noting:
    """One run of the twin over everything that was submitted."""
    first, asked = recording.looks[0], requested(recording)
    together = sorted({job.partition for job in asked.values() if "," in job.partition})
    shape = Shape.followed(first.nodes, together=together)
    core = assemble(CoreSpec.of(shape.spec, "slurm"), Estimator())
    policy = twin_in(core.policy)
    assert policy is not None
    policy.see(first.site, shape.names, asks_of(asked.values(), first.site))
    (known, _), moments = lasted(recording), came(recording)
    engine = _Noting(
        core,
        [_job(job, shape, moments) for job in asked.values()],
        {job_id: Work(known.get(job_id, NEVER)) for job_id in asked},
        _Plain(),
    )
    engine.note([look.at for look in recording.looks])
    engine.run()
    return engine


def _job(job: SlurmJob, shape: Shape, moments: Mapping[str, float]) -> Job:
    known = job_of(job, shape.vc_of(job.partition))
    return replace(known, gpu_type=None, submit_time=moments[job.id])


@dataclass(frozen=True, slots=True)
class Ahead:
    """A job that waited at a look: when it started, and when the twin starts it from there."""

    job_id: str
    at: float
    started: float
    twin: float

    @property
    def wait_s(self) -> float:
        return self.started - self.at

    def within(self, seconds: float) -> bool:
        """Slurm's start has whole seconds."""
        return abs(self.twin - self.started - 0.5) <= seconds + 0.5


def from_each_look(recording: Recording) -> tuple[list[Ahead], Count]:
    """Starts of who waits at a look, and the reasons at the next look, as the twin goes on from
    what was printed; what runs lasts as long as it did, and what came came when it did."""
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
        future.note([following.at] if following is not None else [])
        for job in later.values():
            future.submit(_job(job, shape, moments))
        future.look()
        starts = {d.job_id: look.at for d in snapshot.decisions if d.action is Action.START}
        starts = future.began | starts
        for job_id in waiting:
            begun = recording.truth[job_id].start
            found.append(Ahead(job_id, look.at, begun, starts.get(job_id, NEVER)))
        if following is not None and future.reasons:
            _compare(reasons, following, future.reasons[0], set(starts))
    return found, reasons


def _compare(count: Count, look: Look, own: Mapping[str, str], started: set[str]) -> None:
    for job in look.jobs:
        word = slurm_word(job.reason)
        if job.state == "PENDING" and word != "None":
            twin = "runs" if job.id not in own and job.id in started else own.get(job.id, "unknown")
            count.add(twin == word, f"Slurm {word}, twin {twin}")


# --- forecasts ------------------------------------------------------------------------------------


@dataclass
class Forecasts:
    """Of jobs that waited at looks and had a forecast.

    Attributes:
        near, slurm_near: even-odds starts within so many seconds: of the twin, with durations it
            learned from what it saw, and of `squeue --start`.
        kept: starts not after p90; raw_kept: not after that of the futures.
        first_kept: the same of the first forecast of each job.
        batches: what one user sent within a minute, which stands for an hour: kept or not.
        widths: p90 less p50, seconds. without: had no forecast.
    """

    near: Count = field(default_factory=Count)
    slurm_near: Count = field(default_factory=Count)
    kept: Count = field(default_factory=Count)
    raw_kept: Count = field(default_factory=Count)
    first_kept: Count = field(default_factory=Count)
    batches: dict[tuple[float, str, int], list[bool]] = field(default_factory=dict)
    widths: list[float] = field(default_factory=list)
    without: int = 0

    def join(self, other: Forecasts) -> None:
        """Count these, too."""
        for name in ("near", "slurm_near", "kept", "raw_kept", "first_kept"):
            getattr(self, name).join(getattr(other, name))
        self.batches |= other.batches
        self.widths += other.widths
        self.without += other.without

    def said(self) -> dict[str, Any]:
        """As JSON has it; widths in seconds of the run."""
        of_batches = [fmean(kept) for kept in self.batches.values()]
        return {
            "scale": SCALE,
            "p50_within_10_min": self.near.said(),
            "squeue_start_within_10_min": self.slurm_near.said(),
            "p90_kept": self.kept.said(),
            "p90_of_futures_kept": self.raw_kept.said(),
            "p90_kept_of_first": self.first_kept.said(),
            "p90_kept_by_batches": {"of": len(of_batches), "share": round(fmean(of_batches), 3)},
            "median_p90_less_p50_s": round(median(self.widths), 1),
            "without": self.without,
        }


def forecasts(recording: Recording, within_s: float, samples: int = 24) -> Forecasts:
    """What `serve` would have foretold at each look."""
    found, first = Forecasts(), set[str]()
    memory = Memory(LiveEstimator(), asks=True)
    asking = Asking(memory)
    histories, promises = Histories(memory), Promises()
    for number, look in enumerate(recording.looks):
        asking.turn()
        together = sorted({job.partition for job in look.jobs if "," in job.partition})
        shape = Shape.followed(look.nodes, together=together)
        histories.vc_of = shape.vc_of
        histories.update(look.jobs, look.at)
        promises.look(look.jobs, look.at)
        snapshot = _snapshot(look, asking)
        waiting = [j for j in snapshot.waiting.values() if j.id in recording.truth]
        futures = Futures(snapshot.core, memory, look.at, seed=number)
        made = futures.forecast([job.id for job in waiting], samples=samples)
        promises.first({job_id: promises.put_off(one) for job_id, one in made.items()})
        for job in waiting:
            raw, told = made[job.id], promises.put_off(made[job.id])
            if told.start_p50 is None or told.start_p90 is None or raw.start_p90 is None:
                found.without += 1
                continue
            start, p50, p90 = recording.truth[job.id].start, told.start_p50, told.start_p90
            found.near.add(abs(p50 - start) <= within_s)
            found.slurm_near.add(job.start is not None and abs(job.start - start) <= within_s)
            found.kept.add(start <= p90)
            found.raw_kept.add(start <= raw.start_p90)
            if job.id not in first:
                found.first_kept.add(start <= p90)
            first.add(job.id)
            batch = recording.began, job.user, int(job.submit // 60)
            found.batches.setdefault(batch, []).append(start <= p90)
            found.widths.append(p90 - p50)
    return found


# --- all of it ------------------------------------------------------------------------------------

SCALE = 60.0  # a second here stands for a minute
HORIZONS_S = (5, 15, 30, 60)


def figures(recordings: Sequence[Recording], tell: Callable[[str], None]) -> dict[str, Any]:
    """Everything that is compared, over all recordings; shares from 0 to 1."""
    cycle_s = recordings[0].looks[0].site.parameter("sched_interval", 60)
    in_terms, next_reasons, run_reasons = Count(), Count(), Count()
    same, near, order = Count(), Count(), list[tuple[float, float]]()
    ahead: list[Ahead] = []
    pairs: list[tuple[float, float]] = []
    told = Forecasts()
    for one in recordings:
        tell(f"seed {one.seed}: {len(one.truth)} jobs ran, {len(one.looks)} looks")
        in_terms.join(terms(one))
        passes = each_pass(one, requested(one))
        same.join(Count(passes.same, passes.passes))
        near.join(Count(*passes.within(cycle_s)))
        order += [(at, passes.twin.get(job, NEVER)) for job, at in passes.slurm.items()]
        starts, reasons = from_each_look(one)
        ahead += starts
        next_reasons.join(reasons)
        run = whole_run(one)
        for look, own in zip(one.looks, run.reasons, strict=False):
            _compare(run_reasons, look, own, set(run.began))
        pairs += [(t.start, run.began.get(job_id, NEVER)) for job_id, t in one.truth.items()]
        told.join(forecasts(one, 600.0 / SCALE))
    within = [abs(b - a - 0.5) <= cycle_s + 0.5 for a, b in pairs]
    begins = [look.looks[0].at for look in recordings]
    of_passes = {
        "same_starts_and_nodes": same.said(),
        "starts_within_cycle": near.said(),
        "rank_correlation_of_starts": _rank(order, begins),
    }
    return {
        "jobs": sum(len(one.truth) for one in recordings),
        "seeds": [one.seed for one in recordings],
        "looks": sum(len(one.looks) for one in recordings),
        "cycle_s": cycle_s,
        "terms_equal": in_terms.said(),
        "each_pass": of_passes,
        "reason_at_next_look": next_reasons.said(),
        "reason_wrong_most": next_reasons.most(),
        "from_each_look": _horizons(ahead, cycle_s),
        "whole_run": {
            "within_cycle": round(sum(within) / len(within), 3),
            "rank_correlation": _rank(pairs, begins),
            "reason": run_reasons.said(),
        },
        "forecast": told.said(),
    }


def _horizons(ahead: Sequence[Ahead], cycle_s: float) -> dict[str, Any]:
    """Starts within a cycle by how long the job was still to wait."""
    found: dict[str, Any] = {}
    low = float("-inf")
    for high in (*HORIZONS_S, float("inf")):
        some = [one for one in ahead if low <= one.wait_s < high]
        name = f"waits_under_{high:g}_s" if high < float("inf") else f"waits_{low:g}_s_or_more"
        near = sum(one.within(cycle_s) for one in some)
        found[name] = {"of": len(some), "within_cycle": round(near / max(1, len(some)), 3)}
        low = high
    found["within_cycle"] = round(sum(o.within(cycle_s) for o in ahead) / max(1, len(ahead)), 3)
    waits = [(one.wait_s, one.twin - one.at) for one in ahead]
    found["rank_correlation_of_waits"] = round(float(spearmanr(*zip(*waits, strict=True))[0]), 3)
    return found


def _rank(pairs: Sequence[tuple[float, float]], begins: Sequence[float]) -> float:
    """Rank correlation of starts, each counted from the beginning of its own recording."""
    origins = [max(begin for begin in begins if begin <= slurm + 60) for slurm, _ in pairs]
    since = [(a - begin, b - begin) for (a, b), begin in zip(pairs, origins, strict=True)]
    return round(float(spearmanr(*zip(*since, strict=True))[0]), 3)
