"""Prepares a story for its page: computes the places of the bars in its timeline and waterfall
chart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scheduler.core.decisions import ANOTHER
from scheduler.explain.life import Event, JobFacts, Sharing, Span
from scheduler.explain.remarks import remarks
from scheduler.explain.story import Story, held_words, sharing_words
from scheduler.explain.terms import Waterfall, drawn, waterfall
from scheduler.explain.words import duration, overtaken_words

Remarked = tuple[Event, list[str]]


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of the timeline: its position (percent of the job's life), and what the job did in
    it."""

    css: str
    left: float
    width: float
    tip: str


@dataclass(frozen=True, slots=True)
class StoryView:
    """The content that the page template draws for one job's story.

    Attributes:
        anchor: id of the section in the page.
        why: why this job was chosen as an example; "" when a person asked for it.
        first, hidden: events that are shown at once, and those that are folded away.
        codes: whether reason codes and recorded names are shown beside the words.
    """

    story: Story
    anchor: str
    why: str
    timeline: tuple[Segment, ...]
    phases: tuple[tuple[str, str], ...]
    waterfalls: tuple[Waterfall, ...]
    first: tuple[Remarked, ...]
    hidden: tuple[Remarked, ...]
    sharing: tuple[tuple[Sharing, list[str]], ...]
    held: tuple[str, ...]
    overtaken: str
    codes: bool = False


_LEGEND = (
    ("waiting", "waiting"),
    ("held", "held, or until other jobs end"),
    ("profiling", "being profiled"),
    ("running", "running alone"),
    ("shared", "sharing its GPUs"),
)


def view(
    story: Story,
    *,
    why: str = "",
    anchor: str = "story",
    events: int = 40,
    until: float | None = None,
    codes: bool = False,
) -> StoryView:
    """Return a story prepared for drawing. At most `events` decisions are shown at once; the others
    are folded away.

    Args:
        why, anchor, codes: as in `StoryView`.
        until: the present time, where the job has not ended.
    """
    timeline = _timeline(story.job, story.spans, story.sharing, until)
    present = {segment.css for segment in timeline}
    lines = tuple(remarks(story.events, story.job.time_limit_s, codes=codes))
    return StoryView(
        story=story,
        anchor=anchor,
        why=why,
        timeline=tuple(timeline),
        phases=tuple(item for item in _LEGEND if item[0] in present),
        waterfalls=tuple(waterfall(b) for b in drawn(story.scores)),
        first=lines[:events],
        hidden=lines[events:],
        sharing=tuple((pair, list(sharing_words(pair))) for pair in story.sharing),
        held=tuple(held_words(story.held, story.job.vc)),
        overtaken=overtaken_words(story.overtaken),
        codes=codes,
    )


def _timeline(
    job: JobFacts, spans: Sequence[Span], sharing: Sequence[Sharing], until: float | None
) -> list[Segment]:
    """Return the segments of a job's timeline: its spans that have an end, then its times of
    sharing. Return [] where its life lasted no time, or neither its end nor `until` is known."""
    last = until if job.end_time is None else job.end_time
    whole = 0.0 if last is None else last - job.submit_time
    if whole <= 0:
        return []

    def segment(css: str, start: float, end: float, tip: str) -> Segment:
        return Segment(
            css,
            100 * (start - job.submit_time) / whole,
            100 * (end - start) / whole,
            f"{tip}: {duration(end - start)}",
        )

    segments = []
    for s in spans:
        if s.end is None:
            continue
        text = s.phase.value
        segments.append(segment(s.phase.value, s.start, s.end, text))
    for pair in sharing:
        end = last if pair.end is None else pair.end
        if end is not None and end > pair.start:
            with_whom = f"sharing with job {pair.partner}".replace(f"job {ANOTHER}", ANOTHER)
            segments.append(segment("shared", pair.start, end, with_whom))
    return segments
