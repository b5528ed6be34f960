"""What the whole of a wait consisted of, in a sentence or two."""

from __future__ import annotations

from collections.abc import Sequence

from scheduler.core.decisions import AHEAD, ANOTHER, STARTS, Action, Decision, Reason
from scheduler.core.plural import count
from scheduler.explain.dossier import Recorded
from scheduler.explain.life import Held, JobFacts, Phase, Span, Wait
from scheduler.explain.words import (
    AT_ONCE_S,
    duration,
    listed,
    number,
    overtaken_words,
    percent,
    phrase,
)

NAMED = 2  # of those that had GPUs meanwhile
LEAST_SHARE = 0.01  # of a wait, that its reason is named


def _over_time(job: JobFacts, waits: Sequence[Wait], recorded: Recorded) -> str:
    """Return as text the parts of a wait: each reason with its share, the jobs that had GPUs
    meanwhile, and the jobs that started first.
    """
    parts = [w for w in waits if w.share >= LEAST_SHARE]
    why = listed([f"{percent(w.share)} {phrase(w.reason)}" for w in parts])
    needed = gpu_hours(job.gpus * sum(w.seconds for w in waits))
    named = [one for one in recorded.held if one.job_id != ANOTHER][:NAMED]
    holders = [f"job {one.job_id} had {gpu_hours(one.gpu_s)}{as_predicted(one)}" for one in named]
    if rest := [one for one in recorded.held if one not in named]:
        had = "" if holders else "had "
        hours = gpu_hours(sum(one.gpu_s for one in rest))
        holders.append(f"{count(len(rest), 'other job' if holders else 'job')} {had}{hours}")
    text = f", {needed} of its {count(job.gpus, 'GPU')} ({why})."
    text += f" Meanwhile {listed(holders)}." if holders else ""
    return " ".join(filter(None, (text, overtaken_words(recorded.overtaken))))


def as_predicted(one: Held) -> str:
    """Return as text the predicted and the true duration of a job that had GPUs meanwhile: "
    (predicted 2 h, ran 3 h)". Return "" if both are unknown.
    """
    ran = "has run" if one.runs else "ran"
    known = [
        f"{word} {duration(seconds)}"
        for word, seconds in (("predicted", one.estimate_s), (ran, one.ran_s))
        if seconds is not None
    ]
    return f" ({', '.join(known)})" if known else ""


def gpu_hours(gpu_s: float) -> str:
    """Return GPU-seconds in words: "612 GPU hours"."""
    hours = number(gpu_s / 3600)
    return f"{hours} GPU hour{'s' * (hours != '1')}"


def wait_words(
    job: JobFacts,
    own: Sequence[Decision],
    spans: Sequence[Span],
    waits: Sequence[Wait],
    recorded: Recorded,
    *,
    live: bool,
) -> str:
    """Return what the job's wait consisted of, or has so far, in words."""
    who = f"Job {job.job_id} ({count(job.gpus, 'GPU')}{f', {job.vc}' if job.vc else ''})"
    if job.refused:
        return f"{who} was refused."
    if all(w.reason is Reason.NOT_YET_EVALUATED and 0 < w.seconds < AT_ONCE_S for w in waits):
        came = live and job.start_time is None and job.end_time is None
        held = _held_back(spans)
        says = "has not waited" if held else "was submitted a moment ago"
        return f"{who} {says if came else 'did not have to wait'}. {held}".rstrip()
    waited = sum(w.seconds for w in waits)
    still = job.end_time is None and spans[-1].phase in (Phase.WAITING, Phase.HELD)
    text = f"{who} {'has ' if still else ''}waited {duration(waited)}" if waited else f"{who} waits"
    summed = waited and (recorded.held or live)
    text += _over_time(job, waits, recorded) if summed else _began(waits)
    return " ".join(filter(None, (text, bound_words(job, own, still=still), _held_back(spans))))


def bound_words(job: JobFacts, own: Sequence[Decision], *, still: bool) -> str:
    """Return a sentence where a wait passed the policy's bound on waiting, and what followed; ""
    where that is not recorded.
    """
    late = next((found for d in reversed(own) if "bound_s" in (found := dict(d.evidence))), None)
    if late is None:
        return ""
    text = f"It passed the bound on waiting ({duration(float(late['bound_s']))})"
    kept = next((d.time for d in own if d.action is Action.RESERVE), None)
    if kept is not None:
        after = f": {duration(kept - job.submit_time)} after its submission GPUs were kept for it"
        on = next((d.time for d in own if d.action in STARTS and d.time >= kept), None)
        waited = "" if on is None else f" {duration(on - kept)}"
        waits = f"it {'waits' if still else 'waited'}{waited} for the jobs that ran on them"
        return f"{text}{after}, and {waits}."
    if not float(late["bound_left_s"]):
        return f"{text}, and went before all others that had not{_kept_for(own)}."
    binds = f"{text}, which {'has' if still else 'had'} not come into force: "
    if "bound_costs_s" in late:
        costs = duration(float(late["bound_costs_s"]))
        return f"{binds}going first was predicted to cost the others {costs} of waiting in sum."
    if "bound_times" in late:
        times = f"{number(float(late['bound_times']))} times the GPUs it may run on were asked for"
        return f"{binds}{times}, which makes it longer."
    return f"{binds}what going first would cost the others had not been worked out."


def _kept_for(own: Sequence[Decision]) -> str:
    """Return a clause that names the job for which GPUs were kept meanwhile; "" where none
    were."""
    others = (d for d in reversed(own) if d.reason is Reason.RESERVED_FOR_STARVING_JOB)
    job = next((d.blocker or next(iter(d.held_by), None) for d in others), None)
    who = "another" if job in (ANOTHER, AHEAD) else f"job {job}"
    return "" if job is None else f"; GPUs were kept for {who}, for one at a time"


def _held_back(spans: Sequence[Span]) -> str:
    """Return a sentence on how long the job was held, by reason; "" where it was not."""
    by: dict[str, float] = {}
    for span in spans:
        if span.phase is Phase.HELD and span.seconds:
            by[phrase(span.reason)] = by.get(phrase(span.reason), 0.0) + span.seconds
    held = listed([f"{duration(seconds)} {why}" for why, seconds in by.items()])
    return f"Besides, {held}: that is no waiting." if held else ""


def _began(waits: Sequence[Wait]) -> str:
    """Return as text the reason of the longest part of a wait, with the numbers at its beginning.
    Used if it is unknown which jobs had GPUs since.
    """
    first = waits[0]
    share = f", {percent(first.share)} of it" if 0.0 < first.share < 0.995 else ""
    began = f"the longest of {first.spells} such waits began" if first.spells > 1 else "it began"
    return f"{share} because, as {began}: {first.sentence}."
