"""Words for what a change does: to a waiting job, to others, and to all jobs of a cluster."""

from __future__ import annotations

import time
from collections.abc import Iterable

from scheduler.explain.effect import Effect, ExpectedTimes, WhatIfAnswer
from scheduler.explain.words import ForecastKind, duration


def forecast_words(forecast: ExpectedTimes | None, now: float) -> str:
    """Return a forecast of a job's start and end as a sentence, with times relative to `now`."""
    if forecast is None:
        return "estimate unavailable: none was made yet"
    if forecast.estimate == ForecastKind.IMPOSSIBLE:
        return forecast.why_not
    if forecast.start_p50 is None:
        return f"estimate unavailable: {forecast.why_not or 'the service gives no reason'}"
    words = f"starts within {duration(max(0.0, forecast.start_p50 - now))} in half of such cases"
    if forecast.start_p90 is not None:
        words += f", within {duration(max(0.0, forecast.start_p90 - now))} nine times in ten"
    if forecast.end_p50 is not None:
        words += f"; ends within {duration(max(0.0, forecast.end_p50 - now))} in half of them"
    return words


def effect_lines(answer: WhatIfAnswer, now: float) -> list[str]:
    """Return lines of text about what a change would do to a waiting job and to others, by the
    service's forecast. Times are relative to `now`."""
    if answer.unavailable:
        return [f"estimate unavailable: {answer.unavailable}"]
    lines = [
        f"unchanged:  {forecast_words(answer.now, now)}",
        f"changed:    {forecast_words(answer.then, now)}",
    ]
    if answer.starts_now:
        lines.append("It would start at once.")
    gain = answer.gain_s
    if gain is not None and abs(gain) >= 1:
        word = "earlier" if gain > 0 else "later"
        by = f"Its median start is {duration(abs(gain))} {word}"
        if gain > 0 and 2 * (answer.earlier or 0) < (answer.futures or 0):
            by = "No clear change"  # the medians differ by the luck of the draw
        lines.append(f"{by} (earlier in {answer.earlier} of {answer.futures} simulated futures).")
    end = answer.then.end_p50 if answer.then is not None else None
    if answer.stopped and end is not None:
        lines.append(
            f"Its time limit would stop it {duration(max(0.0, end - now))} from now, unfinished."
        )
    for one in answer.moved:
        word = "later" if one.by_s > 0 else "earlier"
        by = duration(abs(one.by_s))
        lines.append(f"Your job {one.job_id} would start {by} {word}.")
    others = answer.others_moved
    if others and (others.later or others.earlier):
        lines.append(f"Jobs of others: {others.later} would start later, {others.earlier} earlier.")
    lines += [f"This holds if {assumed}." for assumed in answer.assumed]
    if answer.command:
        worse = gain is not None and gain <= -1
        lines.append(f"{'Do it all the same' if worse else 'Do it'}: {answer.command}")
    return lines


def change_lines(
    job_id: str, done: str, effect: WhatIfAnswer | None, now: float, *, needed: bool, applied: bool
) -> list[str]:
    """Return lines of text about a change of a waiting job.

    Args:
        done: words for the job after the change, such as "is held".
        effect: what the change would do; None: not known, as the job is being profiled.
        needed: whether it changes anything.
        applied: whether it was made, and not only previewed.
    """
    if not needed:
        return [f"{job_id} is so already"]
    if applied:
        return [f"{job_id} {done}"]
    if effect is None:
        return [f"{job_id} would be so; no estimate: it is being profiled"]
    return [f"{job_id}, if changed:", *(f"  {line}" for line in effect_lines(effect, now))]


def preview_lines(effect: Effect) -> list[str]:
    """Return lines of text about what a change of nodes or settings would do to waiting jobs."""
    if effect.why_not:
        return [f"Nothing is changed. No preview: {effect.why_not}"]
    lines = [
        f"Nothing is changed. Of {effect.waiting} waiting jobs, {effect.examined} were forecast "
        f"in {effect.futures} simulated futures. What the change would do:"
    ]
    for job_id, by_s in sorted(effect.moved.items(), key=lambda item: item[1]):
        lines.append(f"  {job_id} {duration(abs(by_s))} {'later' if by_s > 0 else 'earlier'}")
    lines += [f"  {job_id} would not start within the forecast" for job_id in effect.stuck]
    if not (effect.moved or effect.stuck):
        lines.append("  no job starts a minute or more earlier or later")
    return lines


def place_words(
    job_id: str,
    position: int | None,
    waiting: int | None,
    priority: float | None,
    terms: Iterable[tuple[str, float]],
) -> str:
    """Return as text the place in line of a job that waits in Slurm, with its priority and the
    terms of that. Where the place is not known, say so."""
    if position is None:
        return f"{job_id}: no place is known."
    made = "".join(f", {name} {points:g}" for name, points in terms)
    of = "" if priority is None else f" Priority {priority}{made}."
    return f"{job_id}: {position} of {waiting} who wait.{of}"


def runs_there_words(job_id: str, owner: str, ends_at: float | None) -> str:
    """Return which job runs on a node that is to be changed, and until when, in local time."""
    until = "until when is not known"
    if ends_at is not None:
        until = time.strftime("until about %F %R", time.localtime(ends_at))
    return f"Runs there: {job_id} of {owner}, {until}"


def task_words(job: str, task: str, parts: int, phase: str) -> str:
    """Return which job an answer is about, where another id was asked for: the first task of an
    array, or the first of the `parts` components of a heterogeneous job. Return "" otherwise.
    """
    if parts:
        return f"{job} is a heterogeneous job of {parts} components."
    does = "runs" if phase == "running" else "waits"
    return "" if task == job else f"{job} is an array; {task} is its first task that {does}."
