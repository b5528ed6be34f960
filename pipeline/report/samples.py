"""Jobs worth telling about, chosen by rule: the same runs give the same samples."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pipeline.explain.run import tell
from pipeline.report.comparison import PolicyRun
from scheduler.core.decisions import Action
from scheduler.explain.drawing import StoryView, view
from scheduler.explain.words import duration, number

Floats = NDArray[np.float64]

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
        story = tell(run.folder, choice[0])
        views.append(view(story, why=choice[1], anchor=f"job-{anchor}", events=EVENTS))
    return views


Choice = tuple[str, str] | None


def _numbers(frame: pd.DataFrame, column: str) -> Floats:
    return frame[column].to_numpy(dtype=np.float64, na_value=np.nan)


def _flags(frame: pd.DataFrame, column: str) -> NDArray[np.bool_]:
    """A column of booleans, missing as false."""
    return np.nan_to_num(_numbers(frame, column)) > 0


def _at(frame: pd.DataFrame, values: Floats) -> tuple[str, int]:
    """Id and position of the job with the largest value."""
    i = int(np.argmax(values))
    return str(frame["job_id"].iloc[i]), i


def _longest_wait(run: PolicyRun) -> Choice:
    ended = run.ended
    if ended.empty:
        return None
    waits = _numbers(ended, "queue_s")
    job_id, i = _at(ended, waits)
    return job_id, f"The longest wait of all: {duration(float(waits[i]))}."


def _packed(run: PolicyRun) -> Choice:
    """The job that waited longest of those packed beside another; its evidence is richest."""
    packs = run.decisions(["seq", "time", "job_id", "partner"], [Action.PACK.value])
    chosen = run.ended[run.ended["job_id"].isin(packs["job_id"])]
    if chosen.empty:
        return None
    job_id, _ = _at(chosen, _numbers(chosen, "queue_s"))
    return job_id, "Started on GPUs that another job was already using."


def _worst_estimate(run: PolicyRun) -> Choice:
    if run.oracle:
        return None
    ended = run.ended
    known = ended[ended["estimate_s"].notna() & ~_flags(ended, "ended_in_profiling")]
    if known.empty:
        return None
    estimates = np.maximum(_numbers(known, "estimate_s"), 0.0)
    off = np.log1p(_numbers(known, "duration_s")) - np.log1p(estimates)
    job_id, i = _at(known, np.abs(off))
    how = "too short" if off[i] > 0 else "too long"
    times = number(float(np.exp(abs(off[i]))))
    return job_id, f"The estimate that was most wrong: {times} times {how}."
