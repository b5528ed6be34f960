"""Compares what Pellucid computes with what Slurm itself does. What Slurm contradicts is not
shown."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from math import inf

from scheduler.explain.effect import Eta, Tried
from scheduler.explain.words import clock_time
from scheduler.slurm.read.parse import SlurmJob
from scheduler.slurm.read.site import slurm_word
from scheduler.slurm.read.snapshot import ClusterSnapshot
from scheduler.slurm.twin.site import Site
from scheduler.slurm.twin.twin import twin_in

SETTLES_S = 2.0  # after a change Slurm's next look may be of before it
NOW_S = 60.0  # what starts within is "at once"
MOST_BEHIND = 512  # jobs that wait, from which on not all of them are known here
_STARTS = re.compile(r"Job \d+ to start at (\S{1,40})(?: a)? using")  # 24.11 has the "a"
_IN = re.compile(r" in partition (\S{1,200})")
_REFUSES = re.compile(r"(?:allocation failure|[Bb]atch job submission failed): (.{1,200})")


def against_slurm(snapshot: ClusterSnapshot, job_ids: Iterable[str]) -> dict[str, str]:
    """Return the jobs that Slurm's backfill did not start although the policy `slurm` (Slurm's
    twin) would. Maps each job id to a text. Something that the policy does not know keeps such a
    job."""
    twin, found = twin_in(snapshot.core.policy), dict[str, str]()
    looked = twin.site.backfilled if twin is not None else None
    if twin is None or looked is None:
        return {}
    for job_id in job_ids:
        job = snapshot.waiting.get(job_id)
        starts = job_id in twin.soon or job_id in snapshot.core.cluster.runs
        if job is None or not starts or slurm_word(job.reason) == "None":
            continue
        if looked > max(snapshot.changed, job.submit, job.eligible or 0.0) + SETTLES_S:
            plan = job.start if job.start is not None and job.start > snapshot.now else None
            when = f" before {clock_time(plan, snapshot.now)}" if plan is not None else ""
            found[job_id] = (
                f"by all that is known here it could start now, and Slurm does not start it{when}: "
                "what keeps it is not known"
            )
    return found


def put_back_s(site: Site, jobs: Iterable[SlurmJob], partition: str) -> float:
    """Return how many seconds `sbatch --test-only` may add, at most, to the start of a job in a
    partition; inf where there is no bound.

    It adds the time for which the waiting jobs of the partition would take all its CPUs, each with
    all CPUs of its nodes for its whole time limit, though they may wait for something else. With
    two nodes, a waiting job of one hour adds half an hour (`_delayed_job_start_time`).
    """
    part = site.partitions.get(partition)
    nodes = [site.nodes[name] for name in part.nodes if name in site.nodes] if part else []
    cpus = sum(node.cpus for node in nodes)
    waits = [
        job for job in jobs if job.state == "PENDING" and partition in job.partition.split(",")
    ]
    if part is None or not cpus or len(waits) >= MOST_BEHIND:
        return inf
    limits = [part.max_time_s if job.time_limit_s is None else job.time_limit_s for job in waits]
    longest = [inf if limit is None else limit for limit in limits]
    each = cpus / len(nodes)
    sizes = [max(1, job.num_nodes) * each for job in waits]
    return sum(size * limit for size, limit in zip(sizes, longest, strict=True)) / cpus


def against_trial(found: Eta, verdict: Verdict, put_back: Callable[[str], float]) -> Eta:
    """Return an answer without the forecasts that `sbatch --test-only` contradicts.

    Slurm's trial assumes that running jobs use their whole time limits. So a forecast that is
    earlier than the trial is no contradiction, unless it has the job start at once, and nor is a
    later one. A refusal contradicts every start; a start at once contradicts that there is none.
    Starts are compared only where one of the partitions asked for was tried.

    Args:
        verdict: the output of `sbatch --test-only` for a job that names the same partitions.
        put_back: function that returns how many seconds the trial may add to a start in a
            partition; see `put_back_s`.
    """
    at, where = verdict.starts, verdict.partition
    one = [t for t in found.tried if t.partition in found.asked]
    if verdict.refuses:
        why = f"sbatch --test-only refuses it: {verdict.refuses}"
        tried = [_withdrawn(t, why) if t.partition in found.asked else t for t in found.tried]
        return replace(found, tried=tried) if any(t.start_p50 is not None for t in one) else found
    if at is None or len(one) != 1 or (where and where != one[0].partition):
        return found
    at_once_there, now = at <= found.now + NOW_S, clock_time(at, found.now)
    (own,) = one
    at_once = not own.reason and own.start_p50 is not None and own.start_p50 <= found.now + NOW_S
    if at_once and at > found.now + NOW_S + put_back(own.partition):
        why = f"sbatch --test-only has it start {now} at the latest: what keeps it is not known"
    elif at_once_there and not at_once and own.start_p50 is None:
        why = "sbatch --test-only has it start at once: what was found against it is not so"
    else:
        return found
    return replace(found, tried=[_withdrawn(t, why) if t is own else t for t in found.tried])


@dataclass(frozen=True, slots=True)
class Verdict:
    """What `sbatch --test-only` printed for a job: when and in which partition it starts, or why it
    is refused. All fields are empty where it printed neither."""

    starts: float | None = None
    partition: str = ""
    refuses: str = ""

    @classmethod
    def of(cls, printed: str) -> Verdict:
        """Return the verdict that the printed text contains."""
        starts, refuses = _STARTS.search(printed), _REFUSES.search(printed)
        where = _IN.search(printed)
        return cls(
            starts=_instant(starts[1]) if starts else None,
            partition=where[1] if where else "",
            refuses=refuses[1].strip().rstrip(".") if refuses else "",
        )

    @property
    def anything(self) -> bool:
        """Whether `sbatch --test-only` gave an answer."""
        return self.starts is not None or bool(self.refuses)

    def contradicts(self, made: Tried, now: float, put_back_s: float) -> bool:
        """Return whether the verdict contradicts a forecast: Slurm refuses the job, or does not
        start it at once although the forecast does. Slurm assumes that running jobs use their whole
        time limits."""
        if self.refuses:
            return True
        at_once = not made.reason and made.start_p50 is not None
        return at_once and self.starts is not None and self.starts > now + NOW_S + put_back_s


def _withdrawn(one: Tried, why: str) -> Tried:
    return replace(one, start_p50=None, start_p90=None, futures=0, reason="", slurm=None, why=why)


def _instant(text: str) -> float | None:
    """Return a time printed by Slurm in seconds since the epoch. The text is a number of seconds or
    a local date and time. Return None for any other text.
    """
    if text.isdigit():
        return float(text)
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None
