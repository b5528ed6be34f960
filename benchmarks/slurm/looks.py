"""Repeats the recorded polls of generated sites without daemons. It measures how well first
forecasts of starts come true: as they are, with every job's duration known, and with later arrivals
known as well.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.slurm import judge
from benchmarks.slurm.kept import MARK, Kept, marked
from benchmarks.slurm.sites import follow
from features.clock import Clock
from features.job import Job
from scheduler.core.core import Core
from scheduler.core.durations import Stated
from scheduler.core.queue import QueuedJob
from scheduler.explain.whatif.futures import Arrival, Beliefs, Piece
from scheduler.explain.whatif.memory import DAY_S, Memory, SubmittedJob
from scheduler.slurm.follow.follower import Follower
from scheduler.slurm.read.client import Slurm, SlurmDown
from scheduler.slurm.read.snapshot import ClusterSnapshot
from scheduler.slurm.twin.site import Ask
from scheduler.slurm.twin.twin import twin_in

ERROR = 0.01  # of a duration that is known
LONGER = 1.3  # than it ran by the end: one that still ran then


class _Printed(Slurm):
    """Stands in for the client of Slurm's commands; it answers with the recorded output of one
    poll.
    """

    def __init__(self, printed: dict[tuple[str, ...], str]) -> None:
        super().__init__()
        self.printed = printed

    def _run(self, command: Sequence[str], patience_s: float) -> str:
        key, mark = marked(command)
        if key not in self.printed:
            raise SlurmDown(f"not asked then: {key}")
        return self.printed[key].replace(MARK, mark)


def looked(kept: Kept) -> Iterator[tuple[Follower, ClusterSnapshot]]:
    """Repeat each recorded poll of a site with this checkout's code. Yield the follower, which
    reads Slurm, and what it read.
    """
    (began, printed), *looks = kept.looks
    slurm, at = _Printed(printed), [began]
    follower = follow(slurm, None, Clock.by(lambda: at[0]))
    follower._histories.recall(follower._accounted())  # as it does when it takes over a log
    for now, printed in looks:
        slurm.printed, at[0] = printed, now
        with suppress(SlurmDown):  # another version's question
            yield follower, follower.look()


def promises(kept: Kept) -> list[judge.Promise]:
    """Return the first forecast of each job of a site, with the job's true start."""
    first: dict[str, judge.Promise] = {}
    for follower, snapshot in looked(kept):
        waiting = snapshot.waiting.keys() | snapshot.aside.keys()
        for job_id in (waiting & kept.jobs.keys()) - follower._withheld.keys():
            row, made = kept.jobs[job_id], follower._forecasts.get(job_id)
            if made is None or made.start_p50 is None or row["JobState"] == "CANCELLED":
                continue
            start = None if row["JobState"] == "PENDING" else float(row["StartTime"])
            one = judge.Promise(snapshot.now, made.start_p50, made.start_p90, start, kept.at)
            first.setdefault(job_id, one)
    return list(first.values())


def ran(kept: Kept) -> dict[str, float]:
    """Return how many seconds each started job ran, by job id. For a job that still runs, that is
    its time so far times `LONGER`.
    """
    found = {}
    for job_id, row in kept.jobs.items():
        if row["JobState"] in ("RUNNING", "COMPLETED"):
            over = row["JobState"] == "COMPLETED"
            until = float(row["EndTime"]) if over else kept.at
            found[job_id] = (until - float(row["StartTime"])) * (1.0 if over else LONGER)
    return found


def came(kept: Kept) -> dict[str, tuple[Job, Ask]]:
    """Return, by job id, each job of a site and its request, as they were when a poll first showed
    them.
    """
    found: dict[str, tuple[Job, Ask]] = {}
    for _, snapshot in looked(kept):
        twin = twin_in(snapshot.core.policy)
        assert twin is not None
        for job_id, queued in snapshot.core.jobs.items():
            ask = twin.asked(job_id)
            if ask is not None:
                found.setdefault(job_id, (queued.job, replace(ask, shares=(), after=())))
    return found


def durations_known(truth: Mapping[str, float]) -> AbstractContextManager[object]:
    """Return a context in which the follower knows how long each job runs, to 1 %."""
    believed = Memory.believed

    def knowing(self: Memory, queued: QueuedJob) -> SubmittedJob:
        past, ran_s = believed(self, queued), truth.get(queued.job.job_id)
        return past if ran_s is None else replace(past, predicted_s=Stated(ran_s, ERROR))

    return patch.object(Memory, "believed", knowing)


def arrivals_known(
    truth: Mapping[str, float], jobs: Mapping[str, tuple[Job, Ask]]
) -> AbstractContextManager[object]:
    """Return a context in which the follower knows which jobs come later, when, and how long
    they run.
    """
    made_of = Beliefs.of

    def coming(memory: Memory, core: Core, now: float, **more: Any) -> Beliefs:
        piece: Piece = {}
        later = {j for j, (job, _) in jobs.items() if job.submit_time > now and j in truth}
        for job_id in later - core.jobs.keys():
            job, ran_s = jobs[job_id][0], truth[job_id]
            if job.vc in core.queues:
                one = Arrival(job.submit_time - now, job, ran_s, None, ran_s)
                piece.setdefault(job.vc, []).append(one)
        if (twin := twin_in(core.policy)) is not None:
            twin.expect({job_id: jobs[job_id][1] for job_id in later - core.jobs.keys()})
        pieces = [piece] if piece else []
        return replace(made_of(memory, core, now, **more), pieces=pieces, piece_s=14 * DAY_S)

    return patch.object(Beliefs, "of", coming)


def looked_again(folder: Path, tell: Callable[[str], None]) -> dict[str, Any]:
    """Return how well first forecasts came true, in groups by how far ahead they looked, over the
    sites recorded in a folder: as they are, with durations known, and with arrivals known as well.
    Raise FileNotFoundError where no site was recorded.
    """
    paths = sorted(folder.rglob("site*.pickle"))
    if not paths:
        raise FileNotFoundError(f"{folder}: no site was kept there (sites --keep)")
    found: dict[str, list[judge.Promise]] = {
        "as_they_are": [], "durations_known": [], "arrivals_too": [],
    }  # fmt: skip
    for path in paths:
        kept = pickle.loads(path.read_bytes())
        truth, jobs = ran(kept), came(kept)
        found["as_they_are"] += promises(kept)
        with durations_known(truth):
            found["durations_known"] += promises(kept)
            with arrivals_known(truth, jobs):
                found["arrivals_too"] += promises(kept)
        tell(f"{path}: {len(found['as_they_are'])} forecasts so far")
    return {name: judge.promised(made) for name, made in found.items()}
