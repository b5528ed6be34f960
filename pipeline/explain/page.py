"""A story prepared for the page: where the bars of its timeline and waterfall stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.explain.run import JobFacts
from pipeline.explain.story import Event, Phase, Sharing, Span, Story
from pipeline.explain.text import remarks, sharing_words
from pipeline.explain.words import duration
from scheduler.explain.waterfall import Waterfall, waterfall

Remarked = tuple[Event, list[str]]


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of the timeline: where it stands (percent of the job's life) and what it is."""

    css: str
    left: float
    width: float
    tip: str


@dataclass(frozen=True, slots=True)
class StoryView:
    """What the template draws.

    Attributes:
        anchor: id of the section.
        why: why this job was chosen; "" when a person asked for it.
        first, hidden: the events shown at once, and those folded away.
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


_LEGEND = (
    ("waiting", "waiting"),
    ("profiling", "being profiled"),
    ("running", "running alone"),
    ("shared", "sharing its GPUs"),
)


def view(story: Story, *, why: str = "", anchor: str = "story", events: int = 40) -> StoryView:
    """Prepare a story; at most `events` decisions are shown unfolded."""
    timeline = _timeline(story.job, story.spans, story.sharing)
    present = {segment.css for segment in timeline}
    told = tuple(remarks(story.events))
    return StoryView(
        story,
        anchor,
        why,
        tuple(timeline),
        tuple(item for item in _LEGEND if item[0] in present),
        tuple(waterfall(b) for b in story.scores if b.adds_up),
        told[:events],
        told[events:],
        tuple((pair, list(sharing_words(pair))) for pair in story.sharing),
    )


def _timeline(job: JobFacts, spans: Sequence[Span], sharing: Sequence[Sharing]) -> list[Segment]:
    """Segments of the job's life; nothing when it has not ended or lasted no time."""
    whole = (job.end_time or job.submit_time) - job.submit_time
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
        said = f"waiting ({s.reason.value})" if s.phase is Phase.WAITING else s.phase.value
        segments.append(segment(s.phase.value, s.start, s.end, said))
    for pair in sharing:
        if pair.end is not None and pair.end > pair.start:
            segments.append(
                segment("shared", pair.start, pair.end, f"sharing with job {pair.partner}")
            )
    return segments
