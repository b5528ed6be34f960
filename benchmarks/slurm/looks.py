"""The looks that generated sites kept, looked at again without daemons: how first forecasts come
true as they are, and how they would if how long every job runs were known. What is missed then, no
better duration mends: it is of jobs yet to come, of nodes that die, of chance in who goes first."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.slurm import judge
from benchmarks.slurm.kept import MARK, Kept, marked
from benchmarks.slurm.sites import follow
from features.clock import Clock
from scheduler.backends.slurm.client import Slurm, SlurmDown
from scheduler.core.durations import Stated
from scheduler.core.queue import QueuedJob
from scheduler.explain.whatif.memory import Memory, SubmittedJob

ERROR = 0.01  # of a duration that is known
LONGER = 1.3  # than it ran by the end: one that still ran then


class _Printed(Slurm):
    """A Slurm that prints what it did at one look."""

    def __init__(self, printed: dict[tuple[str, ...], str]) -> None:
        super().__init__()
        self.printed = printed

    def _run(self, command: Sequence[str], patience_s: float) -> str:
        key, mark = marked(command)
        if key not in self.printed:
            raise SlurmDown(f"not asked then: {key}")
        return self.printed[key].replace(MARK, mark)


def promises(kept: Kept) -> list[judge.Promise]:
    """The first forecast of each job of a site, by this tree's code."""
    (began, printed), *looks = kept.looks
    slurm, at = _Printed(printed), [began]
    follower = follow(slurm, None, Clock.by(lambda: at[0]))
    follower._histories.recall(follower._accounted())  # as it does when it takes over a log
    first: dict[str, judge.Promise] = {}
    for now, printed in looks:
        slurm.printed, at[0] = printed, now
        try:
            snapshot = follower.look()
        except SlurmDown:  # another version's question
            continue
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
    """How long each job ran, in seconds, that began before the end."""
    found = {}
    for job_id, row in kept.jobs.items():
        if row["JobState"] in ("RUNNING", "COMPLETED"):
            over = row["JobState"] == "COMPLETED"
            until = float(row["EndTime"]) if over else kept.at
            found[job_id] = (until - float(row["StartTime"])) * (1.0 if over else LONGER)
    return found


def looked_again(folder: Path, tell: Callable[[str], None]) -> dict[str, Any]:
    """First forecasts of the sites kept in a folder, by horizon: as they are, and with durations
    known. FileNotFoundError: none were."""
    paths = sorted(folder.rglob("site*.pickle"))
    if not paths:
        raise FileNotFoundError(f"{folder}: no site was kept there (sites --keep)")
    believed = Memory.believed
    now: list[judge.Promise] = []
    known: list[judge.Promise] = []
    for path in paths:
        kept = pickle.loads(path.read_bytes())
        truth = ran(kept)

        def knowing(
            self: Memory, queued: QueuedJob, truth: dict[str, float] = truth
        ) -> SubmittedJob:
            past, ran_s = believed(self, queued), truth.get(queued.job.job_id)
            return past if ran_s is None else replace(past, predicted_s=Stated(ran_s, ERROR))

        now += promises(kept)
        with patch.object(Memory, "believed", knowing):
            known += promises(kept)
        tell(f"{path}: {len(now)} forecasts so far")
    return {"as_they_are": judge.promised(now), "durations_known": judge.promised(known)}
