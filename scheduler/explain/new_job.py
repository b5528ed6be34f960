"""The forecast of a job that is not submitted, in words."""

from __future__ import annotations

from scheduler.core.plural import count
from scheduler.explain.belief import odds_words, rests_on_words
from scheduler.explain.effect import NewJob
from scheduler.explain.words import MOSTLY, bound_words, duration, starts

ASKS = (
    "Is it a test, or how long will it run? State it with --expect (test, full or a length, as "
    "6h): it counts as far as your statements held"
)


def sentences(answer: NewJob) -> list[str]:
    """Return the forecast of a job that is not submitted, as a list of sentences."""
    if answer.unavailable:
        return [f"estimate unavailable: {answer.unavailable}"]
    when = "starts at once"
    if not answer.starts_now:
        when = starts(
            answer.start_p50, answer.start_p90, answer.why_not, answer.now, estimate=answer.estimate
        )
    found = [f"In {answer.vc}, with {count(answer.gpus, 'GPU')}: it {when}."]
    if answer.why and not answer.starts_now and answer.estimate is None:
        found.append(f"Until then: {answer.why}.")
    if answer.latest is not None:
        found.append(f"At the latest {bound_words(answer.latest, None, answer.now)}.")
    elif answer.no_latest and not answer.starts_now:
        found.append(f"No latest start: {answer.no_latest}.")
    if answer.lasts_p50_s is not None and answer.lasts_p90_s is not None:
        most = duration(answer.lasts_p90_s)
        found.append(f"It should run {duration(answer.lasts_p50_s)}; at most {most} {MOSTLY}.")
        if odds := odds_words(answer.odds):
            found.append(f"{odds}.")
        if answer.asks:
            found.append(f"{ASKS}.")
        if answer.ended_here is not None:
            found.append(rests_on_words(answer.ended_here))
    return found
