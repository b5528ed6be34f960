"""Why a job is where it is: one dominant reason, the principal ones, and what would help."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scheduler.core.decisions import Action, Reason
from scheduler.explain.words import duration
from scheduler.service.api.shapes import WhatIfAnswer
from scheduler.service.log.ledger import Phase
from scheduler.service.log.store.reads import Forecast, JobRow, Line, Standing, View
from scheduler.service.log.store.visibility import as_it_stands

PRINCIPAL = 4


@dataclass(frozen=True, slots=True)
class Ground:
    """One reason with its numbers, as they were when it began to hold: `since`, seconds since the
    epoch."""

    reason: str
    text: str
    since: float
    need: int | None = None
    free: int | None = None
    limit: int | None = None
    next_step: str = ""


@dataclass(frozen=True, slots=True)
class Contribution:
    """One term of the predicted duration, as a factor on it."""

    term: int
    log_seconds: float
    factor: float


@dataclass(frozen=True, slots=True)
class Packing:
    """Why it shares its GPUs: the tree path, and the predicted speed of both."""

    partner: str
    tree_path: list[str]
    speed: float | None
    partner_speed: float | None


@dataclass(frozen=True, slots=True)
class Blocking:
    """Jobs without which it would start at once (tried); others' appear without a name."""

    jobs: list[str]
    count: int
    running: bool


@dataclass(frozen=True, slots=True)
class Analysis:
    """What the analyst found by trying on a copy of the core.

    Attributes:
        words: all of it in a few lines.
        bound_s: seconds until it goes before all others; None: the policy has no such bound.
        not_examined: what was left out.
        suggestions: changes that were seen to help.
        unavailable: why there is no analysis.
    """

    words: str = ""
    blockers: list[Blocking] = field(default_factory=list)
    bound_s: float | None = None
    not_examined: list[str] = field(default_factory=list)
    suggestions: list[WhatIfAnswer] = field(default_factory=list)
    unavailable: str = ""

    @classmethod
    def of(cls, job_id: str, why: Mapping[str, Any], suggested: Mapping[str, Any]) -> Analysis:
        if "unavailable" in why:
            return cls(unavailable=str(why["unavailable"]))
        return cls(
            why["words"],
            [Blocking(list(b["jobs"]), b["count"], b["running"]) for b in why["blockers"]],
            why["bound_s"],
            list(why["not_examined"]),
            [
                WhatIfAnswer.of(job_id, one["change"], one)
                for one in suggested.get("suggestions", ())
            ],
        )


@dataclass(frozen=True, slots=True)
class Times:
    """When, in seconds since the epoch; None: not yet.

    Attributes:
        eligible_at: it could have been given GPUs from then on: no dependency, begin time, hold or
            profiling run kept it from that.
    """

    submitted_at: float
    eligible_at: float | None
    started_at: float | None
    ended_at: float | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a job is where it is.

    Attributes:
        dominant: the reason, in a sentence; the first of `principal`.
        principal: at most four, in order of precedence; reasons that held earlier come last.
        contributions: terms behind `estimate_s`, largest first; `bundle` names the model.
        forecast: None: no estimate yet.
        analysis: when it was asked for, of a job that waits.
        detail: what the backend says of it.
    """

    job_id: str
    phase: str
    reason: str
    dominant: str
    next_step: str
    principal: list[Ground]
    standing: Standing | None
    forecast: Forecast | None
    estimate_s: float | None
    times: Times
    detail: str = ""
    bundle: str = ""
    contributions: list[Contribution] = field(default_factory=list)
    packing: Packing | None = None
    analysis: Analysis | None = None


def explain(view: View, job_id: str) -> Explanation:
    """Explain a job of the viewer's. Raises UnknownJob."""
    job = view.job(job_id)
    lines, standing = view.decisions(job_id), view.standing(job_id)
    if lines:
        lines[-1] = as_it_stands(lines[-1], standing)
    grounds = _grounds(job, lines)
    score = next((line.body["score"] for line in reversed(lines) if line.body.get("score")), None)
    first = grounds[0]
    return Explanation(
        job.job_id,
        job.phase,
        first.reason,
        first.text,
        first.next_step,
        grounds,
        standing,
        view.forecast(job_id),
        job.estimate_s,
        Times(job.submitted_at, job.queued_at, job.started_at, job.ended_at),
        job.detail,
        score["bundle"] if score else "",
        _contributions(score["terms"] if score else ()),
        _packing(lines),
    )


def _grounds(job: JobRow, lines: Sequence[Line]) -> list[Ground]:
    """What holds now first; then, by precedence, what held before while it waited.

    Of a job that is over, how it ended comes first, then the last that was decided about it.
    """
    found: dict[str, Ground] = {}
    for line in lines:
        body = line.body
        found.pop(body["reason"], None)
        found[body["reason"]] = Ground(
            body["reason"],
            line.text,
            line.at,
            body.get("need"),
            body.get("free"),
            body.get("limit"),
            line.next_step,
        )
    if not found and job.ended_at is not None:
        return [_end(job)]
    if not found:
        reason = Reason.NOT_YET_EVALUATED
        return [Ground(reason.value, job.detail or "not yet looked at", job.submitted_at)]
    *earlier, latest = found.values()
    if job.ended_at is not None and job.phase != Phase.REFUSED:
        return [_end(job, latest), latest]
    waits = {line.body["reason"] for line in lines if line.body["action"] == Action.WAIT}
    order = list(Reason)
    before = sorted(
        (ground for ground in earlier if ground.reason in waits),
        key=lambda ground: order.index(Reason(ground.reason)),
    )
    return [latest, *before][:PRINCIPAL]


def _end(job: JobRow, latest: Ground | None = None) -> Ground:
    """How a job ended, with what the backend said of it."""
    assert job.ended_at is not None
    next_step = ""
    if latest is not None and latest.reason in (Reason.NOT_STARTED, Reason.LOST):
        text, next_step = latest.text, latest.next_step  # the core says it
    elif job.started_at is None:
        waited = duration(job.ended_at - job.submitted_at)
        text = f"{job.state or job.phase} after {waited}, before it ran"
    else:
        ran = duration(job.ended_at - job.started_at)
        waited = duration(job.started_at - job.submitted_at)
        text = f"{job.state or 'ended'} after {ran} on GPUs; it had waited {waited}"
        if job.exit_code:
            text += f"; exit status {job.exit_code}"
    if job.detail:
        text += f" ({job.detail})"
    return Ground(job.state or job.phase, text, job.ended_at, next_step=next_step)


def _contributions(terms: Sequence[float]) -> list[Contribution]:
    ranked = sorted(enumerate(terms), key=lambda term: -abs(term[1]))
    return [Contribution(i, value, math.exp(min(value, 700.0))) for i, value in ranked]


def _packing(lines: Sequence[Line]) -> Packing | None:
    packed: dict[str, Any] | None = next(
        (line.body for line in reversed(lines) if line.body["action"] == Action.PACK), None
    )
    if packed is None:
        return None
    speed, partner_speed = packed.get("speeds") or (None, None)
    return Packing(packed["partner"], list(packed.get("tree_path", ())), speed, partner_speed)
