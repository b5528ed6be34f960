"""Closed-loop replay: a submission that followed a job's end in the trace also follows it in the
replay.

People and scripts submit when something has ended: a run failed, so they try again; a step is done,
so the next one starts. In a replay with fixed submit times (an open loop), such a submission (the
answer) may come before the end that it answers, so retries wait in queues that could not exist yet.
In a closed loop, it comes no earlier than in the trace, and no earlier than the end in the replay
plus the time between the two in the trace (the think time; Zakay and Feitelson, "Preserving user
behavior characteristics in trace-based simulation of parallel job scheduling", MASCOTS 2014).

Which end a submission answers is inferred from the trace alone: a submission at most `WITHIN_S`
after an end of the same user in the same virtual cluster answers the latest such end (of several at
one instant, that of the job submitted last). An end may have several answers. A job that is
submitted later ends later, and so do the jobs that answer it. If a trace names no users, no
submission answers an end.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import isfinite

from features.job import Job
from pipeline.worlds.venus import TrackError
from scheduler.simulation.loop import After
from scheduler.simulation.work import Workload

WITHIN_S = 15.0
LOOPS = ("open", "closed")


def within(loop: str) -> float | None:
    """Return within how many seconds after an end a submission counts as its answer, as the option
    `--loop` says; None for an open loop.

    Raises TrackError if the option is neither `open` nor `closed` nor `closed:SECONDS`.
    """
    if loop in LOOPS:
        return WITHIN_S if loop == "closed" else None
    kind, _, text = loop.partition(":")
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if kind != "closed" or not (isfinite(seconds) and seconds >= 0):
        raise TrackError(f"--loop {loop}: use open, closed or closed:SECONDS")
    return seconds


def in_loop(workload: Workload, loop: str) -> Workload:
    """Return the workload for the kind of loop that the option `--loop` names."""
    within_s = within(loop)
    return workload if within_s is None else closed(workload, within_s)


def closed(workload: Workload, within_s: float = WITHIN_S) -> Workload:
    """Return the workload for a closed loop: `after` says which end each submission waits for. Call
    it on the trace as recorded, before submit times are changed."""
    after = {
        job.job_id: After(earlier[i][2], job.submit_time - earlier[i][0])
        for job, earlier in _with_earlier(workload)
        if (i := bisect_right(earlier, (job.submit_time, _LAST)) - 1) >= 0
        and earlier[i][0] >= job.submit_time - within_s
    }
    return replace(workload, after=after)


@dataclass(frozen=True, slots=True)
class Answers:
    """Counts of the submissions of a trace that look like answers to an earlier end, and how many
    would by chance.

    Attributes:
        submissions: number of submissions after an earlier one of the same user in the same virtual
            cluster.
        after: number of these that came at most `within_s` seconds after an end of such a job.
        before: number that came at most `within_s` seconds before such an end, which can only
            be chance.
    """

    within_s: float
    submissions: int
    after: int
    before: int


def answers(workload: Workload, within_s: float = WITHIN_S) -> Answers:
    """Return how many submissions come within `within_s` seconds after an end of a job of the same
    user and virtual cluster and, for comparison, how many come within as long before one."""
    submissions = after = before = 0
    for job, earlier in _with_earlier(workload):
        now = job.submit_time
        here = bisect_right(earlier, (now, _LAST))
        submissions += bool(earlier)
        after += bisect_left(earlier, (now - within_s,)) < here
        before += here < bisect_right(earlier, (now + within_s, _LAST))
    return Answers(within_s, submissions, after, before)


_End = tuple[float, float, str]  # when, place of the job among the submissions, the job
_LAST = float("inf")


def _with_earlier(workload: Workload) -> Iterator[tuple[Job, list[_End]]]:
    """Yield (job, sorted ends of earlier jobs of the same user and virtual cluster) for every job
    of a known user."""
    ends: defaultdict[tuple[str, str], list[_End]] = defaultdict(list)
    for place, job in enumerate(workload.jobs):
        if not job.user:
            continue
        mine = ends[job.user, job.vc]
        yield job, mine
        end = workload.recorded_ends.get(job.job_id)
        if end is None:
            end = job.submit_time + workload.work[job.job_id].duration_s
        insort(mine, (end, float(place), job.job_id))
