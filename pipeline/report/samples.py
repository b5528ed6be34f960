"""Jobs worth telling about, chosen by rule: the same runs give the same samples."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.explain.run import read_story
from pipeline.report.comparison import PolicyRun
from pipeline.tables import Floats, floats
from scheduler.core.decisions import Action
from scheduler.explain.drawing import StoryView, view
from scheduler.explain.words import duration, number

EVENTS = 8


def samples(run: PolicyRun) -> list[StoryView]:
    """The longest waiter, a packed job and the worst estimate, as far as there are.

    No job comes twice.
    """
    views: list[StoryView] = []
    seen: set[str] = set()
    for anchor, choice in (
        ("longest", _longest_wait(run)),
        ("packed", _packed(run)),
        ("wrong", _worst_estimate(run)),
    ):
        if choice is None or choice[0] in seen:
            continue
        seen.add(choice[0])
        story = read_story(run.folder, choice[0])
        views.append(view(story, why=choice[1], anchor=f"job-{anchor}", events=EVENTS))
    return views


Choice = tuple[str, str] | None


def _at(jobs: pa.Table, values: Floats) -> tuple[str, int]:
    """Id and position of the job with the largest value."""
    i = int(np.argmax(values))
    return jobs["job_id"][i].as_py(), i


def _longest_wait(run: PolicyRun) -> Choice:
    ended = run.ended
    if not len(ended):
        return None
    waits = floats(ended["queue_s"])
    job_id, i = _at(ended, waits)
    return job_id, f"The longest wait of all: {duration(float(waits[i]))}."


def _packed(run: PolicyRun) -> Choice:
    """The job that waited longest of those packed beside another; its evidence is richest."""
    packs = run.decisions(["seq", "time", "job_id", "partner"], [Action.PACK.value])
    chosen = run.ended.filter(pc.is_in(run.ended["job_id"], packs["job_id"]))
    if not len(chosen):
        return None
    job_id, _ = _at(chosen, floats(chosen["queue_s"]))
    return job_id, "Started on GPUs that another job was already using."


def _worst_estimate(run: PolicyRun) -> Choice:
    if run.oracle:
        return None
    ended = run.ended
    queued = pc.invert(pc.fill_null(ended["ended_in_profiling"], False))
    known = ended.filter(pc.and_(ended["estimate_s"].is_valid(), queued))
    if not len(known):
        return None
    estimates = np.maximum(floats(known["estimate_s"]), 0.0)
    off = np.log1p(floats(known["duration_s"])) - np.log1p(estimates)
    job_id, i = _at(known, np.abs(off))
    how = "too short" if off[i] > 0 else "too long"
    times = number(float(np.exp(abs(off[i]))))
    return job_id, f"The estimate that was most wrong: {times} times {how}."
