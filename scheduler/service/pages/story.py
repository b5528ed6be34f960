"""The page of a job: its life, why it waits, what its estimate is made of, and which jobs share its
GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from features.progress import Progress
from scheduler.backends.events import Kind
from scheduler.core.phase import Phase
from scheduler.explain.belief import Belief, belief_words
from scheduler.explain.drawing import StoryView, view
from scheduler.explain.explanation import Standing, StartForecastRow
from scheduler.explain.headline import Headline, headline
from scheduler.explain.life import Event, Wait
from scheduler.explain.remarks import predictions
from scheduler.explain.stories import story_of, where_it_stands
from scheduler.explain.story import PRINCIPAL_REASONS
from scheduler.explain.terms import Breakdown
from scheduler.explain.whatif.changes import Change
from scheduler.explain.why import believed, crowded_out, detail_of, forecast_of
from scheduler.explain.words import act, duration, event_words, progress_words
from scheduler.service.log.store.dossiers import dossier_of
from scheduler.service.log.store.rows import JobRow, Line
from scheduler.service.log.store.short import WAITING
from scheduler.service.pages.asked import asked
from scheduler.service.pages.queries import PageQueries
from scheduler.service.pages.timeline import Timeline, timeline
from scheduler.slurm.reason import headline as slurm_headline
from scheduler.slurm.reason import rows as slurm_rows

LEAST_SHARE = 0.01  # of a wait, that its reason is shown


@dataclass(frozen=True, slots=True)
class Need:
    """The numbers behind a wait: GPUs needed, free, and the limit. `filled`: percentage of the
    limit in use.
    """

    need: int
    free: int
    limit: int

    @property
    def filled(self) -> float:
        return 100.0 * (self.limit - self.free) / self.limit if self.limit else 100.0


@dataclass(frozen=True, slots=True)
class Bar:
    """The progress of a running job, from what it printed: in percent, and in words."""

    percent: float
    text: str


@dataclass(frozen=True, slots=True)
class Entry:
    """A row of the table of decisions and events."""

    at: float
    since_s: float
    what: str
    css: str
    code: str
    text: str
    by: str


@dataclass(frozen=True)
class JobPage:
    """The content of the page of a job. Times are seconds since the epoch."""

    job: JobRow
    now: float
    line: Headline
    stands: str
    stopped_at: float | None  # nobody decides since then; 0: nobody ever did
    waits_now: bool
    why: Event | None
    need: Need | None
    standing: Standing | None
    forecast: StartForecastRow | None
    promised: StartForecastRow | None
    drawn: StoryView
    lines: list[Entry]
    timeline: Timeline | None
    slurm: list[tuple[str, str]]  # of one that waits in a followed Slurm: why
    detail: str  # what the backend, or a followed Slurm, says of it
    belief: Belief | None  # how long it should run
    predicted: str  # the same in words
    bar: Bar | None  # of a running job whose progress was read

    @property
    def crowded_out(self) -> bool:
        """Return whether the job failed while it shared GPUs with another job. It might succeed
        alone.
        """
        return crowded_out(self.job, self.drawn.story)

    @property
    def followed(self) -> bool:
        """Return whether the job is in a followed Slurm, so that decisions made here took no
        effect.
        """
        return self.job.slurm is not None

    @property
    def waits(self) -> tuple[Wait, ...]:
        """Return the principal reasons for which the job waited, without those for which it waited
        hardly at all.
        """
        waits = self.drawn.story.waits[:PRINCIPAL_REASONS]
        return tuple(wait for wait in waits if wait.share >= LEAST_SHARE)

    @property
    def asked(self) -> list[tuple[str, str]]:
        """Return what the job asks for, as (label, value)."""
        return asked(self.job)

    @property
    def end(self) -> float:
        """Return the end of the timeline, seconds since the epoch: when the job ended, or
        now."""
        return self.job.ended_at or self.now


def page_of(queries: PageQueries, job_id: str) -> JobPage:
    """Return the content of the page of a job. Raise UnknownJob where the viewer may not see it, or
    there is none.
    """
    found = dossier_of(queries, job_id, queries.now())
    stands, story = found.stands, story_of(found)
    assert stands is not None
    assert found.until is not None
    job, now, forecast = stands.row, found.until, forecast_of(stands)
    waits_now = job.phase in WAITING
    events = {event.decision.seq: event for event in story.events}
    predicted = predictions(story.events)
    why = story.events[-1] if waits_now and story.events else None
    where, lines = where_it_stands(job, story, now), queries.story(job_id)
    score = story.scores[-1] if story.scores else None
    believes = believed(stands, story, forecast)
    return JobPage(
        job=job,
        now=now,
        line=headline(job, forecast, where, now),
        stands=f"It {where}.",
        stopped_at=queries.undecided_since(),
        waits_now=waits_now,
        why=why,
        need=_need(why),
        standing=stands.standing,
        forecast=forecast,
        promised=stands.promised,
        drawn=view(story, until=now),
        lines=[_entry(line, events, predicted, job) for line in lines],
        timeline=_timeline(queries, job, now),
        slurm=_slurm(job, now),
        detail=detail_of(job, now),
        belief=believes,
        predicted=_predicted(believes, score),
        bar=_bar(job, lines, now),
    )


def _predicted(found: Belief | None, score: Breakdown | None) -> str:
    """Return how long a job should run, in words; "" where there is no prediction. `found`: the
    prediction; `score`: the score behind it.
    """
    if found is None:
        return ""
    return belief_words(found, score.values, score.thoughts()) if score else belief_words(found)


def _bar(job: JobRow, lines: Sequence[Line], now: float) -> Bar | None:
    """Return the progress of a running job in percent, with a text. The last progress report is
    continued to the present at the reported speed. Return None for a job that does not run or has
    no report.
    """
    if job.phase != Phase.RUNNING or job.started_at is None:
        return None
    read = [
        line.body["progress"]
        for line in lines
        if line.kind == Kind.PROGRESS and line.body.get("attempt", job.attempt) == job.attempt
    ]
    if not read or not read[-1]:
        return None
    progress = Progress(**read[-1])
    if progress.total_s <= 0 or progress.of <= 0:
        return None
    share = min(max((now - job.started_at) / progress.total_s, progress.done / progress.of), 1.0)
    return Bar(
        100 * share,
        f"{progress.done:g} of {progress.of:g} {progress.unit}s were done \
{duration(progress.at_s)} after its start",
    )


def _slurm(job: JobRow, now: float) -> list[tuple[str, str]]:
    """Return why a job waits according to the followed Slurm, as (label, words) lines."""
    if job.slurm is None or job.slurm.started:
        return []
    first = slurm_headline(job.slurm, job.job_id, now)
    return [("", first), *slurm_rows(job.slurm, job.job_id, now)]


def _timeline(queries: PageQueries, job: JobRow, now: float) -> Timeline | None:
    """Return the timeline of the job's virtual cluster, with the job's planned slot (its forecast
    time on GPUs) if it waits; None where the job has ended.
    """
    if job.ended_at is not None:
        return None
    waiting = [job] if job.phase in WAITING and not job.hold else []
    return timeline(queries, job.vc, now, waiting, here=job.job_id)


def _need(why: Event | None) -> Need | None:
    d = why.decision if why else None
    if d is None or d.need is None or d.free is None or d.limit is None:
        return None
    return Need(d.need, d.free, d.limit)


def _entry(
    line: Line, events: Mapping[int, Event], predicted: Mapping[int, str], job: JobRow
) -> Entry:
    since, body = line.at - job.submitted_at, line.body
    if line.kind == "decision":
        action = body["action"]
        where = events[line.seq].evidence.get("placement") if line.seq in events else None
        text = f"{line.text}. On {where}" if where else line.text
        if line.seq in predicted:
            text += f"; {predicted[line.seq]}"
        return Entry(
            at=line.at,
            since_s=since,
            what=act(action),
            css=f"a-{action}",
            code=body["reason"],
            text=text,
            by="",
        )
    what = event_words(line.kind)
    text = "" if line.kind == Kind.SUBMITTED else _particulars(body)
    if line.kind == Kind.CHANGED:
        text = Change.from_body(body).words()
    return Entry(at=line.at, since_s=since, what=what, css="", code="", text=text, by=line.actor)


def _particulars(body: Mapping[str, Any]) -> str:
    parts = []
    for name in ("state", "exit_code", "ran_s", "priority", "detail", "why_not"):
        value = body.get(name)
        if value is None or value == "":
            continue
        if name == "ran_s":
            parts.append(f"on GPUs {duration(value)}")
        elif name == "state":
            parts.append(value.replace("_", " "))
        elif name in ("detail", "why_not"):
            parts.append(str(value))
        else:
            parts.append(f"{name.replace('_', ' ')} {value}")
    if body.get("progress"):
        parts.append(progress_words(Progress(**body["progress"])))
    profile = body.get("profile")
    if profile:
        parts.append(
            f"GPU utilisation {profile['gpu_util_pct']:.0f} %, memory activity "
            f"{profile['gpu_mem_util_pct']:.0f} %, GPU memory {profile['gpu_mem_mib']:,.0f} MiB"
        )
        if profile.get("sm_active_pct") is not None:
            parts.append(f"SM activity {profile['sm_active_pct']:.0f} %")
    return "; ".join(parts)
