"""The page of a job: its life, why it waits, what its estimate is made of, who is beside it.

Told from the lines of `View.story`, which hold what this viewer may know and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scheduler.backends.events import Kind
from scheduler.core.decisions import Action, Decision, Reason, Score
from scheduler.explain.terms import Breakdown, breakdowns
from scheduler.explain.waterfall import Waterfall, waterfall
from scheduler.explain.words import duration
from scheduler.service.log.ledger import Phase
from scheduler.service.log.store.reads import Forecast, JobRow, Line, Standing
from scheduler.service.log.store.visibility import as_it_stands
from scheduler.service.pages.queries import WAITING, Sight

PRINCIPAL_REASONS = 4
_OPENS = {
    Action.ENQUEUE: "waiting",
    Action.WAIT: "waiting",
    Action.PREEMPT: "waiting",
    Action.PROFILE: "profiling",
    Action.START: "running",
    Action.PACK: "running",
}
LEGEND = (
    ("waiting", "waiting"),
    ("profiling", "being profiled"),
    ("running", "on GPUs"),
    ("shared", "sharing them"),
)
SAID = {
    Kind.SUBMITTED: "submitted",
    Kind.CANCEL_ASKED: "asked to be cancelled",
    Kind.PRIORITY_SET: "priority changed",
    Kind.STARTED: "runs",
    Kind.OBSERVED: "measured while running",
    Kind.PROFILED: "profiling run over",
    Kind.ENDED: "ended",
    Kind.LOST: "lost",
    Kind.NOT_STARTED: "could not be started",
    Kind.FORECAST: "forecast made",
}


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of a job's life; `reason` is the code of the decision that opened it."""

    css: str
    reason: str
    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of the timeline, in percent of its length."""

    css: str
    left: float
    width: float
    tip: str


@dataclass(frozen=True, slots=True)
class Wait:
    """All the waiting for one reason, with the last that was said of it."""

    reason: str
    seconds: float
    share: float
    text: str
    next_step: str


@dataclass(frozen=True, slots=True)
class Sharing:
    """Who is, or was, on the same GPUs.

    Attributes:
        partner: as the viewer may see it.
        came: this job came to the partner's GPUs; else the partner came to this job's.
        speeds: predicted speed of this job and of the partner, relative to running alone.
    """

    partner: str
    came: bool
    at: float
    speeds: tuple[float, float] | None
    tree_path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Need:
    """The numbers behind a wait. `filled` percent of the GPUs are in use."""

    need: int
    free: int
    limit: int

    @property
    def filled(self) -> float:
        return 100.0 * (self.limit - self.free) / self.limit if self.limit else 100.0


@dataclass(frozen=True, slots=True)
class Told:
    """A line of the table of decisions and events."""

    at: float
    since_s: float
    what: str
    css: str
    code: str
    text: str
    by: str


@dataclass(frozen=True)
class Story:
    """Everything on the page of a job."""

    job: JobRow
    now: float
    headline: str
    waits_now: bool
    why: Line | None
    need: Need | None
    standing: Standing | None
    forecast: Forecast | None
    promised: Forecast | None
    spans: list[Span]
    timeline: list[Segment]
    waits: list[Wait]
    waterfalls: list[Waterfall]
    doubts: list[str]
    sharing: list[Sharing]
    lines: list[Told]

    @property
    def legend(self) -> list[tuple[str, str]]:
        present = {segment.css for segment in self.timeline}
        return [item for item in LEGEND if item[0] in present]

    @property
    def end(self) -> float:
        """End of the timeline."""
        return self.job.ended_at or self.now


def tell(view: Sight, job_id: str, bundles: Mapping[str, Mapping[str, Any]]) -> Story:
    """The story of a job of the viewer's. UnknownJob for another's, and for none.

    Args:
        bundles: names of the terms of scores, by bundle digest (`explain.scores.describe`).
    """
    job, lines = view.job(job_id), view.story(job_id)
    now = max(view.now(), job.submitted_at)
    said = [line for line in lines if line.kind == "decision"]
    spans = life(job, lines, now)
    joined = view.joined_by(job_id)
    scores = _scores(said, bundles)
    waits_now = job.phase in WAITING
    standing = view.standing(job_id)
    why = as_it_stands(said[-1], standing) if waits_now and said else None
    return Story(
        job,
        now,
        headline(job, spans, now),
        waits_now,
        why,
        _need(why),
        standing,
        view.forecast(job_id),
        view.forecast(job_id, "submission"),
        spans,
        timeline(job, spans, said, now),
        waits(spans, said),
        [waterfall(b) for b in scores if b.adds_up][-1:],
        [_doubt(b) for b in scores if not b.adds_up],
        list(_sharing(said, joined, job)),
        [_told(line, job) for line in lines],
    )


# --- its life ------------------------------------------------------------------------------------


def life(job: JobRow, lines: Sequence[Line], now: float) -> list[Span]:
    """Spans from submission to end, or to now, without gap or overlap."""
    end = now if job.ended_at is None else job.ended_at
    spans: list[Span] = []
    css, reason, since = "waiting", Reason.NOT_YET_EVALUATED.value, job.submitted_at

    def turn(at: float, to: str, why: str) -> None:
        nonlocal css, reason, since
        at = min(max(at, since), end)
        if at > since:
            spans.append(Span(css, reason, since, at))
        css, reason, since = to, why, at

    for line in lines:
        if line.kind == "decision":
            action = Action(line.body["action"])
            if action in _OPENS:
                turn(line.at, _OPENS[action], line.body["reason"])
        elif line.kind == Kind.PROFILED:
            turn(line.at, "waiting", Reason.NOT_YET_EVALUATED.value)
    turn(end, "", "")
    return spans


def timeline(job: JobRow, spans: Sequence[Span], said: Sequence[Line], now: float) -> list[Segment]:
    """The spans drawn from submission to end, or to now."""
    end = now if job.ended_at is None else job.ended_at
    whole = end - job.submitted_at
    if whole <= 0:
        return []

    def segment(css: str, start: float, stop: float, tip: str) -> Segment:
        left, width = (100 * s / whole for s in (start - job.submitted_at, stop - start))
        return Segment(css, left, width, f"{tip}: {duration(stop - start)}")

    drawn = []
    for span in spans:
        tip = f"waiting ({span.reason})" if span.css == "waiting" else dict(LEGEND)[span.css]
        drawn.append(segment(span.css, span.start, span.end, tip))
    packed = [line for line in said if line.body["action"] == Action.PACK]
    if packed and spans and packed[-1].at < end:
        partner = packed[-1].body.get("partner", "another job")
        drawn.append(
            segment("shared", max(packed[-1].at, job.submitted_at), end, f"packed with {partner}")
        )
    return drawn


def waits(spans: Sequence[Span], said: Sequence[Line]) -> list[Wait]:
    """Its waiting by reason, longest first."""
    mine = [span for span in spans if span.css == "waiting"]
    total = sum(span.seconds for span in mine)
    found = []
    for reason in dict.fromkeys(span.reason for span in mine):
        seconds = sum(span.seconds for span in mine if span.reason == reason)
        last = next((s for s in reversed(said) if s.body["reason"] == reason), None)
        text = last.text if last else "not yet looked at"
        found.append(
            Wait(
                reason,
                seconds,
                seconds / total if total else 0.0,
                text,
                last.next_step if last else "",
            )
        )
    return sorted(found, key=lambda wait: -wait.seconds)[:PRINCIPAL_REASONS]


_HEAD = {
    Phase.SUBMITTED: "has waited {waited} and is in no queue yet",
    Phase.QUEUED: "has waited {waited}",
    Phase.PROFILING: "is being profiled: a first look at it on a GPU",
    Phase.STARTING: "has its GPUs and is being started",
    Phase.RUNNING: "has run for {ran} after waiting {waited}",
    Phase.ENDED: "{state} after {ran} on GPUs; it had waited {waited}",
    Phase.CANCELLED: "was cancelled",
    Phase.REFUSED: "was refused: it can never run here",
    Phase.LOST: "was lost: nobody knows how it ended, and it is not run again",
}


def headline(job: JobRow, spans: Sequence[Span], now: float) -> str:
    """Where the job stands, in a sentence."""
    waited = sum(span.seconds for span in spans if span.css == "waiting")
    ran = max((job.ended_at or now) - job.started_at, 0.0) if job.started_at is not None else 0.0
    text = _HEAD[Phase(job.phase)].format(
        waited=duration(waited), ran=duration(ran), state=job.state or "ended"
    )
    return f"It {text}."


# --- why -----------------------------------------------------------------------------------------


def _need(why: Line | None) -> Need | None:
    body = why.body if why else {}
    if any(body.get(name) is None for name in ("need", "free", "limit")):
        return None
    return Need(body["need"], body["free"], body["limit"])


def _scores(said: Sequence[Line], bundles: Mapping[str, Mapping[str, Any]]) -> list[Breakdown]:
    scored = [
        Decision(
            line.seq, line.at, Action(line.body["action"]), Reason(line.body["reason"]),
            line.body["job_id"], line.body["vc"], score=_score(line.body["score"]),
        )
        for line in said if line.body.get("score")
    ]  # fmt: skip
    return breakdowns(scored, bundles)


def _score(plain: Mapping[str, Any]) -> Score:
    terms, inputs = tuple(plain.get("terms") or ()), tuple(plain.get("inputs") or ())
    return Score(plain["value"], plain["intercept"], terms, plain.get("bundle", ""), inputs)


def _doubt(b: Breakdown) -> str:
    return (
        f"The recorded terms do not add up to the score {b.score:.6g} (off by {b.gap:.3g}), so "
        "they are not shown: they explain nothing."
    )


def _sharing(said: Sequence[Line], joined: Line | None, job: JobRow) -> Sequence[Sharing]:
    found = [
        Sharing(
            line.body.get("partner", "another job"), True, line.at,
            _pair(line.body.get("speeds")), tuple(line.body.get("tree_path") or ()),
        )
        for line in said if line.body["action"] == Action.PACK
    ]  # fmt: skip
    if joined is not None:
        speeds = _pair(joined.body.get("speeds"))
        found.append(
            Sharing(
                job.partner or "another job",
                False,
                joined.at,
                (speeds[1], speeds[0]) if speeds else None,
                tuple(joined.body.get("tree_path") or ()),
            )
        )
    return found


def _pair(speeds: Sequence[float] | None) -> tuple[float, float] | None:
    return (speeds[0], speeds[1]) if speeds else None


# --- the table -----------------------------------------------------------------------------------


def _told(line: Line, job: JobRow) -> Told:
    since, body = line.at - job.submitted_at, line.body
    if line.kind == "decision":
        action = body["action"]
        text = f"{line.text}. {placement(body)}" if body.get("nodes") else line.text
        return Told(line.at, since, action, f"a-{action}", body["reason"], text, "")
    known = line.kind in SAID
    what = SAID[Kind(line.kind)] if known else line.kind
    text = "" if line.kind == Kind.SUBMITTED else _facts(body)
    return Told(line.at, since, what, "", "", text, line.actor)


def placement(body: Mapping[str, Any]) -> str:
    """Nodes and GPUs given: "On node 4: GPUs 0-3"."""
    parts = []
    for node, mask in zip(body["nodes"], body.get("gpus") or (), strict=False):
        held = [i for i in range(int(mask).bit_length()) if int(mask) >> i & 1]
        whole = len(held) > 1 and held == list(range(held[0], held[-1] + 1))
        which = f"{held[0]}-{held[-1]}" if whole else ", ".join(map(str, held))
        parts.append(f"node {node}: GPU{'s' if len(held) > 1 else ''} {which}")
    return f"On {'; '.join(parts)}" if parts else ""


def _facts(body: Mapping[str, Any]) -> str:
    said = []
    for name in ("state", "exit_code", "ran_s", "priority", "detail", "why_not"):
        value = body.get(name)
        if value is None or value == "":
            continue
        if name == "ran_s":
            said.append(f"on GPUs {duration(value)}")
        elif name in ("state", "detail", "why_not"):
            said.append(str(value))
        else:
            said.append(f"{name.replace('_', ' ')} {value}")
    profile = body.get("profile")
    if profile:
        said.append(
            f"GPU utilisation {profile['gpu_util_pct']:.0f} %, memory activity "
            f"{profile['gpu_mem_util_pct']:.0f} %, GPU memory {profile['gpu_mem_mib']:,.0f} MiB"
        )
    return "; ".join(said)
