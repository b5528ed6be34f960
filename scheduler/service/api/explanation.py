"""Why a job is where it is: one dominant reason, the principal ones, and what would help."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from scheduler.core.decisions import Action, Reason
from scheduler.explain.life import Event
from scheduler.explain.story import PRINCIPAL_REASONS, Story
from scheduler.explain.terms import factor_of, reasons
from scheduler.explain.words import SAYS, STARTED, overtaken_words
from scheduler.service.api.shapes import WhatIfAnswer
from scheduler.service.api.stories import story_of, where_it_stands
from scheduler.service.log.record import Phase
from scheduler.service.log.store.reads import JobRow, Standing, StartForecastRow, VisibleQueries


@dataclass(frozen=True, slots=True)
class Finding:
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
    """One term of the predicted duration, as a factor on it.

    Attributes:
        term: name in the model.
        text: what it is about, and `value` what it was for this job.
    """

    term: str
    text: str
    value: str
    log_seconds: float
    factor: float


@dataclass(frozen=True, slots=True)
class PredictionReason:
    """Terms of the predicted duration that say the same, together; `factor` on it."""

    text: str
    factor: float
    terms: list[str]


@dataclass(frozen=True, slots=True)
class OddsReason:
    """Terms of the predicted duration that say the same; `points`: percent points on the odds."""

    text: str
    points: float


@dataclass(frozen=True, slots=True)
class Odds:
    """How likely it runs for more than `over_s` seconds, by what decides.

    Attributes:
        share: of one; starts: where every job starts. The points of the reasons, added to it one by
            one in their order, sum to what is between them; without reasons: they are not known.
        text: the same in words.
    """

    over_s: float
    share: float
    starts: float
    reasons: list[OddsReason]
    text: str

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Odds:
        return cls(**{**told, "reasons": [OddsReason(**one) for one in told["reasons"]]})


@dataclass(frozen=True, slots=True)
class Packing:
    """Why it shares its GPUs: the tree path, and the predicted speed of both."""

    partner: str
    tree_path: list[str]
    speed: float | None
    partner_speed: float | None


@dataclass(frozen=True, slots=True)
class InTheWay:
    """One thing without which, and without the others named with it, the job starts (tried).

    Attributes:
        kind: running job, waiting job, reservation, or closed node.
        job: its id; "" where it is another's, or a node.
        closed: of a closed node: its name, who drained it and why, in words.
        ran_s, past_s: of a run: how long it has run, and how far past its prediction.
        ends_in_s: of a run: seconds until it has ended, with even odds.
    """

    kind: str
    job: str = ""
    node: int | None = None
    closed: str = ""
    ran_s: float | None = None
    past_s: float | None = None
    ends_in_s: float | None = None


@dataclass(frozen=True, slots=True)
class OrderTerm:
    """A term of a job's place in line, seconds: the smaller sum goes first."""

    what: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Analysis:
    """Why it waits at this moment, tried on a copy of the core.

    Attributes:
        at: that moment, seconds since the epoch; `need`, `free`, `limit` are GPUs at it.
        holders: the smallest set found without which it starts, of `in_all` the first 100;
            `in_the_way`: in words. `otherwise`: what would do as well, in words.
        either: others of which a single one would do as well, of `alternatives` the first 100.
        instead: sets of other runs of which each would do in the place of the runs that hold it up.
        still: with everything out of its way, why it would wait even then; "" where it starts.
        order: terms of its place; `place`: the same in words.
        bound_s: seconds until GPUs are kept for it, as things stand; None: nothing is promised.
        promise: the same in words, with its condition.
        changed: how its start has moved since it was submitted, and by what (undone on a copy); ""
            where it has not. `changed_much`: in short, where it has by ten minutes
            and a quarter of what is left.
        odds: that it runs long; None: nothing is predicted, or its time limit is short.
        sharing: why it does not share GPUs of the run that came closest; "" where none did.
        not_examined: what was left out.
        suggestions: changes that were seen to help.
        unavailable: why there is no analysis.
        seq: the last event of the log that was known then.
    """

    at: float | None = None
    dominant: str = ""
    need: int | None = None
    free: int | None = None
    limit: int | None = None
    holders: list[InTheWay] = field(default_factory=list)
    in_all: int = 0
    either: list[InTheWay] = field(default_factory=list)
    alternatives: int = 0
    instead: list[list[InTheWay]] = field(default_factory=list)
    still: str = ""
    in_the_way: str = ""
    otherwise: str = ""
    position: int | None = None
    waiting: int | None = None
    order: list[OrderTerm] = field(default_factory=list)
    place: str = ""
    bound_s: float | None = None
    promise: str = ""
    changed: str = ""
    changed_much: str = ""
    sharing: str = ""
    odds: Odds | None = None
    not_examined: list[str] = field(default_factory=list)
    suggestions: list[WhatIfAnswer] = field(default_factory=list)
    unavailable: str = ""
    seq: int | None = None

    @classmethod
    def of(cls, job_id: str, why: Mapping[str, Any], suggested: Mapping[str, Any]) -> Analysis:
        if "unavailable" in why:
            return cls(unavailable=str(why["unavailable"]))
        told = {name: why[name] for name in _TOLD}
        return cls(
            **told,
            holders=[InTheWay(**holder) for holder in why["holders"]],
            either=[InTheWay(**holder) for holder in why["either"]],
            instead=[[InTheWay(**holder) for holder in runs] for runs in why["instead"]],
            order=[OrderTerm(**term) for term in why["order"]],
            odds=Odds.of(why["odds"]) if why.get("odds") else None,
            suggestions=[
                WhatIfAnswer.of(job_id, one["change"], one)
                for one in suggested.get("suggestions", ())
            ],
        )


_TOLD = (
    "at", "seq", "dominant", "need", "free", "limit", "in_all", "alternatives", "still",
    "in_the_way", "otherwise", "position", "waiting", "place", "bound_s", "promise", "changed",
    "changed_much", "sharing", "not_examined",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Overtaken:
    """Jobs submitted later to the same virtual cluster that were given GPUs first.

    Attributes:
        why: how many of them, by why each could; `text`: the same in words.
    """

    jobs: int
    why: dict[str, int]
    text: str


@dataclass(frozen=True, slots=True)
class Compared:
    """Why another job went, or goes, before this one.

    Attributes:
        first: the other goes first; `why` says by what the one that does.
        started: why the other could start; "" while it waits.
        terms: of both places in line, seconds; None: that job has no such term.
        early_s: seconds the other had run when this one was submitted: no places are compared.
    """

    job_id: str
    other: str
    first: bool = False
    why: str = ""
    started: str = ""
    terms: list[dict[str, str | float | None]] = field(default_factory=list)
    early_s: float | None = None
    unavailable: str = ""


@dataclass(frozen=True, slots=True)
class OrderRow:
    """A waiting job of the asker's (an operator's: of anybody's) and the terms of its place."""

    position: int
    job_id: str
    gpus: int
    priority: int
    terms: list[OrderTerm]


@dataclass(frozen=True, slots=True)
class HeldRow:
    """A held job of the asker's, which stands in no line."""

    job_id: str
    gpus: int
    priority: int


@dataclass(frozen=True, slots=True)
class Order:
    """Who waits in a virtual cluster, in order. `waiting`: how many in all, but for the held."""

    vc: str
    waiting: int = 0
    rows: list[OrderRow] = field(default_factory=list)
    held: list[HeldRow] = field(default_factory=list)
    unavailable: str = ""

    @classmethod
    def of(cls, vc: str, told: Mapping[str, Any]) -> Order:
        if "unavailable" in told:
            return cls(vc, unavailable=str(told["unavailable"]))
        rows = [
            OrderRow(**{**row, "terms": [OrderTerm(**term) for term in row["terms"]]})
            for row in told["rows"]
        ]
        return cls(vc, told["waiting"], rows, [HeldRow(**row) for row in told["held"]])


@dataclass(frozen=True, slots=True)
class WaitedFor:
    """All the waiting for one reason: `share` of the whole, in `spells`, `text` of the longest."""

    reason: str
    text: str
    seconds: float
    share: float
    spells: int


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
        prediction: the same grouped by what they say, largest first; the factors multiply to the
            same; `prediction_text` in words, "" where there are no terms.
        headline: where it stands and when it should start, in a sentence.
        waits: what it waited for, the longest first, as it was told then; the seconds sum to its
            waiting time.
        overtaken: None: by nobody.
        forecast: None: no estimate yet. `promised`: the one made when it was submitted.
        analysis: when it was asked for, of a job that waits.
        detail: what the backend says of it.
        hold: "owner" or "operator", who may release it; held_by, held_at: by whom and since when it
            is held. "": it is not.
    """

    job_id: str
    phase: str
    reason: str
    dominant: str
    next_step: str
    principal: list[Finding]
    standing: Standing | None
    forecast: StartForecastRow | None
    estimate_s: float | None
    times: Times
    detail: str = ""
    bundle: str = ""
    contributions: list[Contribution] = field(default_factory=list)
    prediction: list[PredictionReason] = field(default_factory=list)
    prediction_text: str = ""
    packing: Packing | None = None
    headline: str = ""
    waits: list[WaitedFor] = field(default_factory=list)
    promised: StartForecastRow | None = None
    overtaken: Overtaken | None = None
    analysis: Analysis | None = None
    hold: str = ""
    held_by: str = ""
    held_at: float | None = None


def explain(view: VisibleQueries, job_id: str, now: float) -> Explanation:
    """Explain a job of the viewer's, at `now`. Raises UnknownJob."""
    job, story = story_of(view, job_id, now)
    waits = () if job.detail.startswith(STARTED) else story.waits
    findings = _findings(job, story, now)
    score = story.scores[-1] if story.scores else None
    first = findings[0]
    return Explanation(
        job.job_id,
        job.phase,
        first.reason,
        first.text,
        first.next_step,
        findings,
        view.standing(job_id),
        view.forecast(job_id),
        job.estimate_s,
        Times(job.submitted_at, job.queued_at, job.started_at, job.ended_at),
        job.detail,
        score.bundle if score else "",
        [Contribution(t.name, t.text, t.value, t.contribution, t.factor) for t in score.terms]
        if score
        else [],
        [
            PredictionReason(t.text, factor_of(t.contribution), list(t.terms))
            for t in score.thoughts()
        ]
        if score
        else [],
        reasons(score) if score and score.terms_known else "",
        _packing(story),
        f"It {where_it_stands(job, story, now)}.",
        [WaitedFor(w.reason.value, w.sentence, w.seconds, w.share, w.spells) for w in waits],
        view.forecast(job_id, "submission"),
        _overtaken(story),
        hold=job.hold,
        held_by=job.held_by,
        held_at=job.held_at,
    )


def _overtaken(story: Story) -> Overtaken | None:
    by = dict(story.overtaken)
    return Overtaken(sum(by.values()), by, overtaken_words(by)) if by else None


def _findings(job: JobRow, story: Story, now: float) -> list[Finding]:
    """What holds now first; then, by precedence, what held before while it waited.

    Of a job that is over, how it ended comes first, then the last that was decided about it.
    """
    found: dict[Reason, Event] = {}
    for event in story.events:
        found.pop(event.decision.reason, None)
        found[event.decision.reason] = event
    over = job.ended_at is not None and job.phase != Phase.REFUSED
    if job.detail.startswith(SAYS) and not over:
        return _as_slurm_says(job)
    if job.detail.startswith(STARTED) and not over:
        return [Finding(Action.START.value, job.detail, job.started_at or job.submitted_at)]
    if not found and not over:
        reason = Reason.NOT_YET_EVALUATED
        return [Finding(reason.value, job.detail or "not evaluated yet", job.submitted_at)]
    *earlier, latest = map(_finding, found.values()) if found else [None]
    if over:
        return [_end(job, story, now, latest), *([latest] if latest else [])]
    waits = {e.decision.reason for e in story.events if e.decision.action is Action.WAIT}
    order = [reason.value for reason in Reason if reason in waits]
    before = [f for f in earlier if f is not None and f.reason in order]
    assert latest is not None
    return [latest, *sorted(before, key=lambda f: order.index(f.reason))][:PRINCIPAL_REASONS]


def _as_slurm_says(job: JobRow) -> list[Finding]:
    """Of a job of a followed Slurm: its own reason, explained."""
    first = job.detail.partition("\n")[0]
    word = first.removeprefix(SAYS).partition(":")[0]
    return [Finding(word, first, job.submitted_at)]


def _finding(event: Event) -> Finding:
    d = event.decision
    return Finding(d.reason.value, event.sentence, d.time, d.need, d.free, d.limit, event.next_step)


def _end(job: JobRow, story: Story, now: float, latest: Finding | None) -> Finding:
    """How a job ended, with what the backend said of it."""
    assert job.ended_at is not None
    text, next_step = where_it_stands(job, story, now), ""
    if latest is not None and latest.reason in (Reason.NOT_STARTED, Reason.LOST):
        text, next_step = latest.text, latest.next_step  # the core says it
    if job.detail not in ("", STARTED):
        text += f" ({job.detail})"
    return Finding(job.state or job.phase, text, job.ended_at, next_step=next_step)


def _packing(story: Story) -> Packing | None:
    if not story.sharing:
        return None
    last = story.sharing[-1]
    speed, partner_speed = last.speeds or (None, None)
    return Packing(last.partner, list(last.tree_path), speed, partner_speed)
