"""A job's life, read from the decisions about it: what it did between them, why it waited, and
which jobs shared its GPUs.

Nothing is guessed. Every span between two decisions belongs to the decision with which it begins,
so the spans of a job that has ended cover its life from submission to end without gap or overlap.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from math import inf

from features.codec import Json
from scheduler.core.decisions import DEPENDS, Action, Decision, Reason
from scheduler.core.tree_steps import TreeStep
from scheduler.explain.words import comparison, sentence_of, step_of


@dataclass(frozen=True, slots=True)
class JobFacts:
    """The recorded times of one job, in seconds since the epoch; None: never, or not recorded.

    Attributes:
        queue_s: seconds without GPUs between submission and end.
        ran_s: seconds on GPUs, without profiling.
        duration_s: seconds that it takes on GPUs of its own (0: not known); see
            `scheduler.simulation.results.JOB_SCHEMA`.
    """

    job_id: str
    gpus: int
    submit_time: float
    duration_s: float
    user: str | None = None
    vc: str | None = None
    name: str | None = None
    start_time: float | None = None
    end_time: float | None = None
    jct_s: float | None = None
    queue_s: float | None = None
    ran_s: float | None = None
    profile_s: float | None = None
    estimate_s: float | None = None
    pairings: int | None = None
    preemptions: int | None = None
    ended_in_profiling: bool | None = None
    refused: bool | None = None
    time_limit_s: float | None = None


class Phase(StrEnum):
    """What a job is doing between two decisions about it."""

    WAITING = "waiting"
    HELD = "held"  # by somebody, or until other jobs have ended: no waiting
    PROFILING = "profiling"
    RUNNING = "running"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of a job's life between two decisions. `end` is None if it was still going on at
    the end of the record."""

    phase: Phase
    reason: Reason
    start: float
    end: float | None

    @property
    def seconds(self) -> float:
        """Length in seconds; 0 if it has no end."""
        return 0.0 if self.end is None else self.end - self.start


@dataclass(frozen=True, slots=True)
class Event:
    """A decision as it is shown to a reader.

    Attributes:
        free_pass: whether it was taken in a free profiling pass (a round that profiles all jobs
            first, see `split_free_pass`), whose time does not count for the job.
        sentence: the decision in words.
        next_step: what would help; "" if nothing.
        remedy: the reason whose remedy `next_step` is.
        evidence: numbers behind the sentence, by name.
    """

    decision: Decision
    since_submit_s: float
    sentence: str
    next_step: str
    evidence: Json
    free_pass: bool = False
    remedy: Reason | None = None

    @property
    def void(self) -> bool:
        """Whether it is a wait in a queue that only the free profiling pass (a first round that
        profiles all jobs) saw. Such a wait never took place."""
        return (
            self.free_pass
            and self.decision.action is Action.WAIT
            and self.decision.reason is not Reason.AWAITING_PROFILE
        )


@dataclass(frozen=True, slots=True)
class Wait:
    """All of a job's waiting for one reason. `last` is the decision with which the longest period
    of it began."""

    reason: Reason
    seconds: float
    share: float
    spells: int
    sentence: str
    next_step: str
    last: Decision | None = None


@dataclass(frozen=True, slots=True)
class Sharing:
    """A time during which two jobs shared GPUs.

    Attributes:
        partner: id of the other job.
        newcomer: whether this job came to the other's GPUs; otherwise the other came to this job's.
        start, end: from the packing until one of the two ended; end is None when neither had.
        speeds: predicted relative speeds of this job and of the partner; None: not predicted.
        tree_path: the comparisons that led to the decision, in words, the newcomer's first. If this
            job was there first, they name the job that each is about.
        steps: the same comparisons, as they were recorded.
        gain_s: seconds by which the sum of the two jobs' times to the end is expected to be shorter
            than if the later one waited; None: the policy does not compute it.
        left_s, partner_left_s: inputs of `gain_s`: seconds that this job and the partner were
            expected to run on, alone.
        costs_s: total seconds of waiting that sharing costs other jobs; None: none, or the policy
            does not compute it.
    """

    partner: str
    newcomer: bool
    start: float
    end: float | None
    speeds: tuple[float, float] | None
    tree_path: tuple[str, ...]
    gain_s: float | None = None
    left_s: float | None = None
    partner_left_s: float | None = None
    costs_s: float | None = None
    steps: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Held:
    """Another job that had GPUs of a virtual cluster while the job in question waited there.

    Attributes:
        vc: virtual cluster of the other job. It differs if that job had borrowed the GPUs.
        gpus: largest number of GPUs that it had there at one time.
        seconds: seconds of the wait during which it had some.
        gpu_s: GPU-seconds that it had during the wait.
        estimate_s, ran_s: its predicted and true seconds on GPUs; None: unknown.
        runs: whether it still runs; then `ran_s` is up to now.
    """

    job_id: str
    vc: str | None
    gpus: int
    seconds: float
    gpu_s: float
    estimate_s: float | None
    ran_s: float | None
    runs: bool = False


_HELD = (Reason.HELD_BY_OWNER, Reason.HELD_BY_OPERATOR, *DEPENDS)
_OPENS = {
    Action.WAIT: Phase.WAITING,
    Action.PREEMPT: Phase.WAITING,
    Action.PROFILE: Phase.PROFILING,
    Action.START: Phase.RUNNING,
    Action.PACK: Phase.RUNNING,
    Action.REFUSE: Phase.REFUSED,
}


def split_free_pass(own: Sequence[Decision]) -> tuple[list[Decision], list[Decision]]:
    """Return a job's decisions in the free profiling pass, and those after it.

    A comparison may grant profiling for free: a first pass profiles every job, then the actual
    simulation begins at the submissions again. The decisions before the job's last plain submission
    are that pass.
    """
    last = 0
    for i, d in enumerate(own):
        if d.action is Action.ENQUEUE and d.reason is Reason.SUBMITTED:
            last = i
    return list(own[:last]), list(own[last:])


def opened_by(d: Decision) -> Phase | None:
    """Return what a job does from a decision on; None: the decision does not change that."""
    if d.action is Action.ENQUEUE:
        return Phase.WAITING
    return Phase.HELD if d.action in _OPENS and d.reason in _HELD else _OPENS.get(d.action)


def life(job: JobFacts, decisions: Sequence[Decision], until: float | None = None) -> list[Span]:
    """Return the spans of a job's life from submission to end, or until now (`until`). If both are
    None, the last span has no end.

    A job without decisions was started by another system, at its start time.
    """
    spans: list[Span] = []
    phase, reason, since = Phase.WAITING, Reason.NOT_YET_EVALUATED, job.submit_time
    end = until if job.end_time is None else job.end_time
    limit = float("inf") if end is None else end
    for d in decisions:
        opened = opened_by(d)
        if opened is None:
            continue
        why = Reason.NOT_YET_EVALUATED if d.action is Action.ENQUEUE else d.reason
        if opened is phase is Phase.WAITING and why is reason:
            continue  # recorded again, of the same wait
        at = min(max(d.time, since), limit)
        if at > since:
            spans.append(Span(phase, reason, since, at))
        phase, reason, since = opened, why, at
    if phase is Phase.REFUSED:
        return spans
    if not decisions and job.start_time is not None:
        at = min(max(job.start_time, since), limit)
        spans += [Span(phase, reason, since, at)] if at > since else []
        phase, reason, since = Phase.RUNNING, Reason.NOT_YET_EVALUATED, at
    if end is None or end > since:
        spans.append(Span(phase, reason, since, end))
    return spans


def waits_of(spans: Sequence[Span], decisions: Sequence[Decision]) -> list[Wait]:
    """Return how long a job waited for each reason, the longest first."""
    total = sum(s.seconds for s in spans if s.phase is Phase.WAITING)
    waits = []
    for reason in {s.reason: None for s in spans if s.phase is Phase.WAITING}:
        mine = [s for s in spans if s.phase is Phase.WAITING and s.reason is reason]
        seconds = sum(s.seconds for s in mine)
        longest = max(mine, key=lambda s: s.seconds)
        last = next(
            (d for d in reversed(decisions) if d.reason is reason and d.time <= longest.start),
            None,
        )
        waits.append(
            Wait(
                reason=reason,
                seconds=seconds,
                share=seconds / total if total else 0.0,
                spells=len(mine),
                sentence=sentence_of(last) if last else "in the queue, no reason recorded yet",
                next_step=step_of(last) if last else "",
                last=last,
            )
        )
    return sorted(waits, key=lambda w: -w.seconds)


def waits_for_gpus(spans: Sequence[Span]) -> list[tuple[float, float]]:
    """Return the (start, end) times between which a job waited for GPUs. Waits to be profiled or
    released, or for other jobs to end, are left out, and so is a span without an end."""
    spells: list[tuple[float, float]] = []
    for s in spans:
        if s.phase is not Phase.WAITING or s.reason is Reason.AWAITING_PROFILE or s.end is None:
            continue
        start = spells.pop()[0] if spells and spells[-1][1] == s.start else s.start
        spells.append((start, s.end))
    return spells


def seconds_before(spells: Sequence[tuple[float, float]]) -> Callable[[float], float]:
    """Return a function that takes a time, and returns how many seconds of the given spans lie
    before it. The spans must be in order."""
    starts = [start for start, _ in spells]
    sums = [0.0, *accumulate(end - start for start, end in spells)]

    def before(time: float) -> float:
        i = bisect_right(starts, time)
        return sums[i] - max(0.0, spells[i - 1][1] - time) if i else 0.0

    return before


_Had = tuple[float, float, int]  # from when to when, and how many GPUs


def runs_of(moves: Iterable[tuple[str, float, int]]) -> dict[str, list[_Had]]:
    """Return, for each job, stretches of time as (start, end, number of GPUs that it had), also
    those with 0 GPUs. The last one has no end (inf).

    Args:
        moves: in order of time: a job, a time, and the number of GPUs that it has from then on.
    """
    runs: dict[str, list[_Had]] = {}
    for job_id, at, gpus in moves:
        mine = runs.setdefault(job_id, [])
        if mine and mine[-1][1] == inf:
            mine[-1] = (mine[-1][0], at, mine[-1][2])
        mine.append((at, inf, gpus))
    return runs


def had(
    waited: Callable[[float], float], runs: Sequence[_Had], end: float | None
) -> tuple[int, float, float] | None:
    """Return what a job had during another job's wait: the most GPUs at one time, the seconds, and
    the GPU-seconds. Return None for less than a second.

    Args:
        waited: function from a time to the seconds of the wait before it, from `seconds_before`.
        runs: what the job had and when, from `runs_of`.
        end: end of the job; None: it still runs.
    """
    last = inf if end is None else end
    parts = [
        (waited(min(until, last)) - waited(since), gpus) for since, until, gpus in runs if gpus
    ]
    seconds = sum(part_s for part_s, _ in parts)
    if seconds < 1.0:
        return None
    most = max(gpus for part_s, gpus in parts if part_s > 0.0)
    return most, seconds, sum(part_s * gpus for part_s, gpus in parts)


def sharing_of(
    job: JobFacts,
    own: Sequence[Decision],
    joined: Sequence[Decision],
    ends: Mapping[str, float | None],
) -> list[Sharing]:
    """Return the times during which a job shared GPUs, in order of their start; `ends` are the end
    times of the other jobs."""
    found = []
    for d in own:
        if d.action is Action.PACK and d.partner is not None:
            end = _first_end(job.end_time, ends.get(d.partner))
            path = tuple(comparison(TreeStep.of(step)) for step in d.tree_path)
            rests = _rests_on(d)
            found.append(
                Sharing(d.partner, True, d.time, end, d.speeds, path, *rests, steps=d.tree_path)
            )
    for d in joined:
        if d.action is Action.PACK:
            end = _first_end(job.end_time, ends.get(d.job_id))
            speeds = (d.speeds[1], d.speeds[0]) if d.speeds else None
            steps = map(TreeStep.of, d.tree_path)  # this job is the partner in it
            path = tuple(comparison(step, "newcomer: ", "this job: ") for step in steps)
            gain_s, theirs_s, mine_s, costs_s = _rests_on(d)
            found.append(
                Sharing(
                    partner=d.job_id,
                    newcomer=False,
                    start=d.time,
                    end=end,
                    speeds=speeds,
                    tree_path=path,
                    gain_s=gain_s,
                    left_s=mine_s,
                    partner_left_s=theirs_s,
                    costs_s=costs_s,
                    steps=d.tree_path,
                )
            )
    return sorted(found, key=lambda s: s.start)


def _rests_on(
    d: Decision,
) -> tuple[float | None, float | None, float | None, float | None]:
    """Return four numbers that a decision to share GPUs recorded, in seconds: the gain, the time
    that the newcomer has left, the time that its partner has left, and the cost to waiting jobs. A
    number that is not recorded is None."""
    known = dict(d.evidence)
    names = ("gain_s", "left_s", "partner_left_s", "hold_costs_s")
    gain_s, left_s, other_s, costs_s = (float(known[n]) if n in known else None for n in names)
    return gain_s, left_s, other_s, costs_s


def _first_end(a: float | None, b: float | None) -> float | None:
    return min((t for t in (a, b) if t is not None), default=None)


def life_in_free_pass(job: JobFacts, free_pass: Sequence[Decision]) -> list[Span]:
    """Return the spans of a job in a free profiling pass (a first round that profiles all jobs), up
    to its profiling run; [] without one. What the pass records after that did not count."""
    until = next((d.time for d in free_pass if d.action is Action.PROFILE), None)
    if until is None:
        return []
    before = [d for d in free_pass if d.time <= until and d.action is not Action.PROFILE]
    return [
        Span(s.phase, s.reason, s.start, until if s.end is None else min(s.end, until))
        for s in life(JobFacts(job.job_id, job.gpus, job.submit_time, 0.0), before)
    ]


def event_of(job: JobFacts, d: Decision, free_pass: bool) -> Event:
    """Return a decision as an event for readers, with its sentence, its numbers and what would
    help.

    Args:
        free_pass: whether it was taken in the free profiling pass; see `split_free_pass`.
    """
    names = ("need", "free", "limit", "position", "blocker", "partner")
    evidence: Json = {n: getattr(d, n) for n in names if getattr(d, n) is not None}
    if d.action is Action.ENQUEUE:
        evidence.pop("limit", None)  # the profiling partition's, and nothing to do with this
    if d.nodes:
        evidence["placement"] = placement_of(d)
    evidence |= dict(d.evidence)
    return Event(
        decision=d,
        since_submit_s=d.time - job.submit_time,
        sentence=sentence_of(d),
        next_step=step_of(d),
        evidence=evidence,
        free_pass=free_pass,
        remedy=d.reason if step_of(d) else None,
    )


def placement_of(d: Decision) -> str:
    """Return the nodes and GPUs given, in words: "node 42: GPU 0; node 43: GPUs 0-3"."""
    parts = []
    for node, mask in zip(d.nodes, d.gpus or (0,) * len(d.nodes), strict=False):
        held = [i for i in range(mask.bit_length()) if mask >> i & 1]
        if not held:
            parts.append(f"node {node}")
            continue
        run = len(held) > 1 and held == list(range(held[0], held[-1] + 1))
        which = f"{held[0]}-{held[-1]}" if run else ",".join(map(str, held))
        parts.append(f"node {node}: GPU{'s' if len(held) > 1 else ''} {which}")
    return "; ".join(parts)
