"""Explains to a viewer why a job is in its present state, from the job's dossier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from features.states import MENDABLE
from scheduler.core.curves import Curve
from scheduler.core.decisions import STARTS, Action, Decision, Reason
from scheduler.core.durations import LONG_S
from scheduler.core.phase import Phase
from scheduler.core.receipts import Receipt
from scheduler.core.tree_steps import TreeStep
from scheduler.explain.belief import Belief, Runs, belief
from scheduler.explain.dossier import Dossier, Stands
from scheduler.explain.explanation import (
    Contribution,
    Explanation,
    Finding,
    GpusNow,
    Overtaken,
    Packing,
    PathStep,
    PredictionReason,
    StartForecastRow,
    Times,
    WaitedFor,
)
from scheduler.explain.job import JobRow
from scheduler.explain.life import Event
from scheduler.explain.reasons import AT_ONCE
from scheduler.explain.stories import story_of, waited_s
from scheduler.explain.story import PRINCIPAL_REASONS, Story
from scheduler.explain.terms import factor_of, seconds_of
from scheduler.explain.whatif.forecasts import FIGURES, StartForecast, WhyNot, still_waiting
from scheduler.slurm.reason import whole


def explain(of: Dossier) -> Explanation:
    """Return why a job of a service, or of Slurm, is in its present state. The dossier must have
    that state (`stands`). For a job that Slurm has started, no reasons for its wait are listed,
    since this service's decisions had no effect on it."""
    stands, story = of.stands, story_of(of)
    assert stands is not None, "a run that is over is a story"
    job, now, forecast = stands.row, stands.now, forecast_of(stands)
    if job.slurm is not None:
        job = replace(job, slurm=job.slurm.as_of(now))
    slurms = job.slurm is not None and job.slurm.started
    waits = () if slurms else story.waits
    if job.slurm is not None:  # what was so before the first look is not "no reason"
        waits = tuple(w for w in waits if w.reason is not Reason.NOT_YET_EVALUATED)
    findings = _findings(job, story, now)
    score = story.scores[-1] if story.scores else None
    first = findings[0]
    return Explanation(
        job_id=job.job_id,
        phase=job.phase,
        reason=first.reason,
        principal=findings,
        standing=stands.standing,
        forecast=forecast,
        estimate_s=job.estimate_s,
        times=Times(job.submitted_at, job.queued_at, job.started_at, job.ended_at),
        detail=detail_of(job, now),
        bundle=score.bundle if score else "",
        contributions=[
            Contribution(
                term=t.name, text=t.text, value=t.value, log_seconds=t.contribution, factor=t.factor
            )
            for t in score.terms
        ]
        if score
        else [],
        prediction=[
            PredictionReason(t.text, factor_of(t.contribution), list(t.terms))
            for t in score.thoughts()
        ]
        if score
        else [],
        belief=believed(stands, story, forecast),
        packing=_packing(story),
        waited_s=waited_s(job, story),
        waits=[
            WaitedFor(
                reason=w.reason.value,
                seconds=w.seconds,
                share=w.share,
                spells=w.spells,
                **values_of(w.last),
            )
            for w in waits
        ],
        promised=stands.promised,
        overtaken=_overtaken(story),
        hold=job.hold,
        held_by=job.held_by,
        held_at=job.held_at,
        slurm=job.slurm,
        whole_wait=None if job.slurm is not None else story.waited,
        intercept=score.intercept if score and score.adds_up else None,
        predicted_s=score.seconds if score and score.adds_up else None,
        curve=receipt_of(stands, story),
        at=now,
        gpus=job.gpus,
        state=job.state or "",
        exit_code=job.exit_code,
        busy=stands.busy,
        crowded_out=crowded_out(job, story),
    )


def believed(stands: Stands, story: Story, forecast: StartForecastRow | None) -> Belief | None:
    """Return how long a job should run, and what that rests on; None where nothing is predicted.
    For a running job with a forecast end, take into account how long it has run."""
    job, now = stands.row, stands.now
    runs = None
    if job.phase == Phase.RUNNING and job.started_at is not None:
        ends = (None, None) if forecast is None else (forecast.end_p50, forecast.end_p90)
        likely_s, latest_s = (None if at is None else at - now for at in ends)
        ran_s = max(0.0, now - job.started_at)
        receipt = stands.receipt if likely_s is not None else None
        lasts = Curve.of(receipt.durations()) if receipt is not None else None
        odds = {} if lasts is None else {name: lasts.chance(s) for name, s in LONG_S}
        runs = Runs(ran_s=ran_s, likely_s=likely_s, latest_s=latest_s, odds=odds)
    score = story.scores[-1] if story.scores else None
    return belief(
        [event.decision for event in story.events],
        job.time_limit_s,
        stands.alike,
        base_s=seconds_of(score.intercept) if score and score.terms_known else None,
        asks="" if job.expect or job.slurm is not None else asking(job.job_id),
        over=job.ended_at is not None,
        stated_s=job.estimate_s,
        runs=runs,
    )


def crowded_out(job: JobRow, story: Story) -> bool:
    """Return whether a job failed while it shared GPUs with another job. It might succeed alone."""
    ended = job.ended_at
    beside = (pair.end for pair in story.sharing) if job.state in MENDABLE else ()
    return any(end is None or ended is None or end >= ended - 1 for end in beside)


def receipt_of(stands: Stands, story: Story) -> Receipt | None:
    """Return the inputs of a job's predicted duration and odds: those kept with the forecast of its
    end, otherwise those kept with a decision. Return None if none were kept, or only those of an
    earlier prediction.
    """
    if stands.receipt is not None:
        return stands.receipt
    taken = [event.decision for event in story.events]
    stated = next((d for d in reversed(taken) if "p90_s" in dict(d.evidence)), None)
    kept = next((d for d in reversed(taken) if d.receipt), None)
    if stated is None or kept is None or _spread(stated) != _spread(kept):
        return None
    return Receipt.read(kept.receipt)


def _spread(d: Decision) -> list[object]:
    """Return what a decision recorded of the job's predicted duration: p50 and p90 in seconds, then
    the chances named in `LONG_S`; None for each that was not recorded."""
    found = dict(d.evidence)
    return [found.get(name) for name in ("p50_s", "p90_s", *(name for name, _ in LONG_S))]


def asking(job_id: str) -> str:
    """Return the command by which an owner states how long a job will run."""
    return f"pellucid change {job_id} --expect 6h"


def forecast_of(stands: Stands) -> StartForecastRow | None:
    """Return the latest start forecast of a job. For a waiting job, it takes into account that the
    job still waits, and no quantile of the start is later than the latest start by time limits. If
    no future was simulated yet, the forecast has only that latest start, or why there is none.
    Return None where there is neither a forecast nor a bound."""
    job, now, forecast, found = stands.row, stands.now, stands.forecast, stands.bound
    if not Phase(job.phase).waits:
        return forecast
    if forecast is not None:
        shown = {name: getattr(forecast, name) for name in FIGURES}
        made = still_waiting(StartForecast(forecast.made_at, **shown), now)
        forecast = replace(forecast, **{name: getattr(made, name) for name in FIGURES})
    if found is None:
        return forecast
    forecast = replace(forecast or _not_yet(now), stated=found.stated)
    if found.latest is None:
        return replace(forecast, no_latest=found.missing)
    levels = ("start_p10", "start_p50", "start_p90")
    within = {
        name: min(at, found.latest)
        for name in levels
        if (at := getattr(forecast, name)) is not None
    }
    return replace(forecast, latest=found.latest, **within)


def _not_yet(now: float) -> StartForecastRow:
    """Return an empty start forecast, for a job of which no future was simulated yet."""
    return StartForecastRow(
        made_at=now,
        start_p50=None,
        start_p90=None,
        end_p50=None,
        end_p90=None,
        why_not=WhyNot.NOT_YET,
    )


def detail_of(job: JobRow, now: float) -> str:
    """Return the text that the backend gave for a job's state. For a job of a followed Slurm,
    return all of Slurm's reason, one line for each part."""
    return job.detail if job.slurm is None else whole(job.slurm, job.job_id, now)


def _overtaken(story: Story) -> Overtaken | None:
    by = dict(story.overtaken)
    return Overtaken(sum(by.values()), by) if by else None


def _findings(job: JobRow, story: Story, now: float) -> list[Finding]:
    """Return the reasons for a job's state: the present one first, then earlier reasons for its
    wait, by precedence.

    For a job that is over, its end comes first, then the last decision about it, unless that was to
    wait. A job of a followed Slurm that is not over has one finding: Slurm's reason, or its start.
    """
    found: dict[Reason, Event] = {}
    for event in story.events:
        found.pop(event.decision.reason, None)
        found[event.decision.reason] = event
    over = job.ended_at is not None and job.phase != Phase.REFUSED
    if job.slurm is not None and not over:
        began = (job.started_at if job.slurm.started else None) or job.submitted_at
        code = Action.START.value if job.slurm.started else job.slurm.code
        return [Finding(reason=code, since=began)]
    if not found and not over:
        return [Finding(reason=Reason.NOT_YET_EVALUATED.value, since=job.submitted_at)]
    *earlier, latest = map(_finding, found.values()) if found else [None]
    if latest is not None and job.phase == Phase.RUNNING:
        shared_s = now - story.sharing[-1].start if story.sharing else 0.0
        given = [e.decision for e in story.events if e.decision.action in STARTS]
        latest = replace(latest, shares=shares_of(given, job.partner, shared_s))
    if over:
        waited = story.events and story.events[-1].decision.action is Action.WAIT
        return [_end(job, latest), *([latest] if latest and not waited else [])]
    waits = {e.decision.reason for e in story.events if e.decision.action is Action.WAIT}
    order = [reason.value for reason in Reason if reason in waits]
    before = [f for f in earlier if f is not None and f.reason in order]
    assert latest is not None
    return [latest, *sorted(before, key=lambda f: order.index(f.reason))][:PRINCIPAL_REASONS]


def _finding(event: Event) -> Finding:
    d = event.decision
    return Finding(
        reason=d.reason.value,
        since=d.time,
        remedy=event.remedy.value if event.remedy is not None else "",
        **values_of(d),
    )


def shares_of(given: Sequence[Decision], partner: str | None, shared_s: float) -> GpusNow | None:
    """Return with which job a running job shares its GPUs now, and whether it started on GPUs that
    another job used. Return None where no decision gave it any.

    Args:
        given: the decisions that gave it GPUs, in order.
        partner: the job with which it shares now; None: none.
        shared_s: seconds since the last sharing began.
    """
    if not given:
        return None
    came = given[-1].action is Action.PACK
    to = given[-1].partner if came else None
    return GpusNow(partner=partner, seconds=shared_s, came=came, to=to)


def _end(job: JobRow, latest: Finding | None) -> Finding:
    """Return how a job ended. If the core decided that it was not started or was lost, add the
    values of that decision."""
    assert job.ended_at is not None
    how = job.state or job.phase
    if latest is not None and latest.reason in (Reason.NOT_STARTED, Reason.LOST):
        return replace(latest, reason=how, since=job.ended_at, decided=latest.reason)
    return Finding(reason=how, since=job.ended_at)


def values_of(d: Decision | None) -> Mapping[str, Any]:
    """Return the values of a decision that its sentence mentions, without its reason, by the names
    of the fields of `DecisionValues`; empty where no decision is recorded."""
    if d is None:
        return {}
    names = {"closed": "closed_gpus", "gone_in_s": "gone_in_s", "at_once": AT_ONCE}
    evidence = dict(d.evidence)
    found = {name: evidence.get(recorded) for name, recorded in names.items()}
    return {
        "action": d.action.value,
        "need": d.need,
        "free": d.free,
        "limit": d.limit,
        "position": d.position,
        "blocker": d.blocker,
        "partner": d.partner,
        "held_by": list(d.held_by),
        **{name: None if value is None else float(value) for name, value in found.items()},
    }


def path_step(step: TreeStep) -> PathStep:
    """Return a recorded step through a decision tree (of a pair of jobs) as plain values."""
    if step.ends:
        return PathStep(
            of_partner=step.of_partner,
            score=step.score,
            speed=step.speed,
            corrected=step.corrected,
        )
    if step.compared is None:
        return PathStep(of_partner=step.of_partner, note=step.text)
    name, value, at_most, cut = step.compared
    return PathStep(
        of_partner=step.of_partner,
        feature=name,
        value=value,
        withheld=step.withheld,
        at_most=at_most,
        cut=cut,
    )


def _packing(story: Story) -> Packing | None:
    if not story.sharing:
        return None
    last = story.sharing[-1]
    speed, partner_speed = last.speeds or (None, None)
    return Packing(
        partner=last.partner,
        newcomer=last.newcomer,
        path=[path_step(TreeStep.of(step)) for step in last.steps],
        speed=speed,
        partner_speed=partner_speed,
        gain_s=last.gain_s,
        left_s=last.left_s,
        partner_left_s=last.partner_left_s,
        costs_s=last.costs_s,
    )
