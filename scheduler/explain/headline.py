"""The first line of a job's page, and the page's title: when the job starts, until when it runs, or
how it ended.

The times `at` and `by` are left out of the text, and the page inserts them in the reader's time
zone. A time in the note is in the time zone of this process.
"""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.core.phase import WAITS, Phase
from scheduler.explain.explanation import StartForecastRow
from scheduler.explain.job import JobRow
from scheduler.explain.words import CRUDE, LIMITS, ForecastKind, stated_words


@dataclass(frozen=True, slots=True)
class Headline:
    """A line with at most two times, in seconds since the epoch.

    Attributes:
        text: the text before the time `at`; a whole sentence if there is no time.
        state: the short form for the page's title; it, too, is followed by `at`, if there is one.
        by: the time by which the job has started, or ended, nine times in ten.
        note: a remark at the end, without a full stop.
    """

    text: str
    state: str
    at: float | None = None
    by: float | None = None
    note: str = ""


def headline(job: JobRow, forecast: StartForecastRow | None, stands: str, now: float) -> Headline:
    """Return the first line about a job.

    Args:
        forecast: the latest forecast of its start and end.
        stands: its present state, as a sentence without its subject.
    """
    if job.hold:
        return Headline("It does not start until it is released", "Held")
    if job.phase in WAITS:
        return _start(forecast, now)
    if job.phase == Phase.RUNNING and forecast is not None and forecast.end_p50 is not None:
        if forecast.end_p50 > now:
            by = forecast.end_p90
            return Headline("Runs until about", "Runs until", forecast.end_p50, by)
        return Headline("Runs, and may end at any moment", "Runs", None, forecast.end_p90)
    return Headline(f"It {stands}", (job.state or job.phase).replace("_", " ").capitalize())


def _start(forecast: StartForecastRow | None, now: float) -> Headline:
    if forecast is None or forecast.start_p50 is None:
        why = forecast.why_not if forecast and forecast.why_not else "no estimate was made yet"
        if forecast and forecast.estimate == ForecastKind.IMPOSSIBLE:
            return Headline(why[:1].upper() + why[1:], "Cannot start")
        if forecast and forecast.latest is not None:
            note = "; ".join(filter(None, (f", {LIMITS}", stated_words(forecast.stated, now))))
            return Headline("Starts at the latest", "Starts", forecast.latest, note=note)
        if forecast:
            known = (why, forecast.no_latest, stated_words(forecast.stated, now))
            why = "; ".join(filter(None, known))
        return Headline("When it starts is not known", "Waits", note=f": {why}")
    at, by = forecast.start_p50, forecast.start_p90
    if forecast.estimate == ForecastKind.CRUDE:
        return Headline("Starts very roughly at", "Starts", max(at, now), note=f" ({CRUDE})")
    late = ", or much later" if by is None else ""
    if at <= now:
        text = "May start at any moment"
        return Headline(text, "Starts soon", by=by if by and by > now else None, note=late)
    return Headline("Starts about", "Starts", at, by, note=late)
