"""What a job's whole wait consisted of: as values, and in a sentence or two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from scheduler.core.decisions import AHEAD, ANOTHER, STARTS, Action, Decision, Reason
from scheduler.core.plural import count
from scheduler.explain.dossier import Recorded
from scheduler.explain.explanation import PassedBound, Waited
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


class Waits(Protocol):
    """All of a job's waiting for one reason: its seconds, its share of the wait, and its number of
    separate periods."""

    @property
    def reason(self) -> str: ...
    @property
    def seconds(self) -> float: ...
    @property
    def share(self) -> float: ...
    @property
    def spells(self) -> int: ...


def _over_time(found: Waited, waits: Sequence[Waits], overtaken: Mapping[str, int]) -> str:
    """Return as text the parts of a wait: each reason with its share, the jobs that had GPUs
    meanwhile, and the jobs that started first.
    """
    parts = [w for w in waits if w.share >= LEAST_SHARE]
    why = listed([f"{phrase(w.reason)} ({percent(w.share)} of the wait)" for w in parts])
    needed = gpu_hours(found.gpus * found.seconds)
    holders = [
        f"job {one.job_id} had {gpu_hours(one.gpu_s)}{as_predicted(one)}" for one in found.meanwhile
    ]
    if found.others:
        who, together = "other job" if holders else "job", " together" * (found.others > 1)
        others_had = gpu_hours(found.others_gpu_s)
        holders.append(f"{count(found.others, who)} had {others_had}{together}")
    text = f": {why}." if why else "."
    if found.gpus:
        one = "is" if found.gpus == 1 else "are"
        text += f" {count(found.gpus, 'GPU')} for that long {one} {needed}."
    where = ", of the GPUs there," if found.vc else ""
    text += f" Meanwhile{where} {listed(holders)}." if holders else ""
    return " ".join(filter(None, (text, overtaken_words(overtaken))))


def as_predicted(one: Held) -> str:
    """Return as text the predicted duration of a job that had GPUs meanwhile, and how long it ran
    in all, or has run so far: " (predicted to run 2 h, ran 3 h in all)". What is unknown is left
    out; "" if both are.
    """
    known = [] if one.estimate_s is None else [f"predicted to run {duration(one.estimate_s)}"]
    if one.ran_s is not None:
        ran = duration(one.ran_s)
        known.append(f"has run {ran}" if one.runs else f"ran {ran} in all")
    return f" ({', '.join(known)})" if known else ""


def gpu_hours(gpu_s: float) -> str:
    """Return GPU-seconds in words: "612 GPU hours", "29 GPU seconds"."""
    unit, size = next(((u, s) for u, s in _SIZES if gpu_s >= s), _SIZES[-1])
    amount = number(gpu_s / size if size > 1 else round(gpu_s))
    return f"{amount} GPU {unit}{'s' * (amount != '1')}"


_SIZES = (("hour", 3600.0), ("minute", 60.0), ("second", 1.0))


def waited(
    job: JobFacts,
    own: Sequence[Decision],
    spans: Sequence[Span],
    waits: Sequence[Wait],
    recorded: Recorded,
    *,
    live: bool,
) -> Waited:
    """Return as values what a job's wait consisted of, or has so far.

    Args:
        live: whether it is a present job of a service, instead of a record of a finished run.
    """
    held: dict[str, float] = {}
    for span in spans:
        if span.phase is Phase.HELD and span.seconds:
            held[span.reason] = held.get(span.reason, 0.0) + span.seconds
    named = [one for one in recorded.held if one.job_id != ANOTHER][:NAMED]
    rest = [one for one in recorded.held if one not in named]
    return Waited(
        gpus=job.gpus,
        vc=job.vc,
        seconds=sum(w.seconds for w in waits),
        still=job.end_time is None
        and bool(spans)
        and spans[-1].phase in (Phase.WAITING, Phase.HELD),
        live=live,
        came=job.start_time is None and job.end_time is None,
        refused=bool(job.refused),
        meanwhile=named,
        others=len(rest),
        others_gpu_s=sum(one.gpu_s for one in rest),
        held=held,
        bound=passed_bound(job, own),
    )


def wait_words(
    job_id: str,
    found: Waited,
    waits: Sequence[Waits],
    *,
    overtaken: Mapping[str, int],
    began: str,
) -> str:
    """Return in words what a job's wait consisted of, or has so far.

    Args:
        waits: its parts by reason, the longest first.
        overtaken: maps each reason to the number of later jobs that got GPUs first for it.
        began: the decision with which the longest part began, in words.
    """
    of_vc = f", virtual cluster {found.vc}" if found.vc else ""
    who = f"Job {job_id} ({count(found.gpus, 'GPU')}{of_vc})"
    if found.refused:
        return f"{who} was refused."
    held = _held_back(found.held)
    if all(w.reason == Reason.NOT_YET_EVALUATED and 0 < w.seconds < AT_ONCE_S for w in waits):
        says = "has not waited" if held else "was submitted a moment ago"
        came = found.live and found.came
        return f"{who} {says if came else 'did not have to wait'}. {held}".rstrip()
    long = duration(found.seconds)
    text = (
        f"{who} {'has ' if found.still else ''}waited {long}" if found.seconds else f"{who} waits"
    )
    summed = found.seconds and (found.meanwhile or found.others or found.live)
    text += _over_time(found, waits, overtaken) if summed else _began(waits, began)
    return " ".join(filter(None, (text, bound_words(found.bound, still=found.still), held)))


def passed_bound(job: JobFacts, own: Sequence[Decision]) -> PassedBound | None:
    """Return what followed when a job's wait became longer than the policy's bound on waiting; None
    where it did not, or that is not recorded."""
    late = next((found for d in reversed(own) if "bound_s" in (found := dict(d.evidence))), None)
    if late is None:
        return None
    late_kept = (d for d in own if d.action is Action.RESERVE and d.reason is not Reason.PRIORITY)
    kept = next((d.time for d in late_kept), None)
    bound_s = float(late["bound_s"])
    if kept is not None:
        on = next((d.time for d in own if d.action in STARTS and d.time >= kept), None)
        before = (e for d in own if d.time < kept and "bound_s" in (e := dict(d.evidence)))
        costs_s, times = _why_not_yet(next(before, {}))
        return PassedBound(
            bound_s=bound_s,
            kept_after_s=kept - job.submit_time,
            started_after_s=None if on is None else on - kept,
            costs_s=costs_s,
            times=times,
        )
    costs_s, times = _why_not_yet(late)
    in_force = not float(late["bound_left_s"])
    others = (d for d in reversed(own) if d.reason is Reason.RESERVED_FOR_STARVING_JOB)
    kept_for = next((d.blocker or next(iter(d.held_by), None) for d in others), None)
    return PassedBound(
        bound_s=bound_s, in_force=in_force, kept_for=kept_for, costs_s=costs_s, times=times
    )


def _why_not_yet(late: Mapping[str, float | str]) -> tuple[float | None, float | None]:
    """Return what a decision recorded of a bound that had passed and did not apply yet: the seconds
    that others would wait longer, and by how much the bound was longer. Return None for each that
    was not recorded."""
    costs_s, times = (late.get(name) for name in ("bound_costs_s", "bound_times"))
    return None if costs_s is None else float(costs_s), None if times is None else float(times)


def bound_words(found: PassedBound | None, *, still: bool) -> str:
    """Return a sentence on a wait that became longer than the policy's bound on waiting, and on
    what followed; "" without such a wait."""
    if found is None:
        return ""
    text = (
        f"It waited longer than {duration(found.bound_s)}, the bound after which a job goes first"
    )
    why = _not_yet_words(found)
    if found.kept_after_s is not None:
        after = f"{duration(found.kept_after_s)} after its submission"
        kept = f"GPUs were kept for it {f'only {after}: {why}' if why else after}"
        on = "" if found.started_after_s is None else f" {duration(found.started_after_s)} more"
        waits = f"It then {'waits' if still else 'waited'}{on} for the jobs on them to end"
        return f"{text}. {kept}. {waits}."
    if found.in_force:
        before = "so it went before all jobs that had waited less than the bound"
        return f"{text}, and {before}{_kept_for(found.kept_for)}."
    binds = f"{text}, but the bound {'does' if still else 'did'} not apply yet: "
    return f"{binds}{why or 'what going first would cost the others had not been worked out'}."


def _not_yet_words(found: PassedBound) -> str:
    """Return a clause that says why a bound that had passed did not apply at once; "" where that is
    not recorded."""
    if found.costs_s is not None:
        costs = duration(found.costs_s)
        return f"if it went first, the other jobs would wait {costs} longer, added up"
    if found.times is not None:
        asked = f"all jobs together asked for {number(found.times)} times as many GPUs"
        return f"{asked} as there are for this job, and such demand makes the bound longer"
    return ""


def _kept_for(job: str | None) -> str:
    """Return a clause that names the job for which GPUs were kept meanwhile; "" where none
    were."""
    who = "another" if job in (ANOTHER, AHEAD) else f"job {job}"
    first = f"; GPUs are kept for one such job at a time, and that was {who}"
    return "" if job is None else first


def _held_back(by: Mapping[str, float]) -> str:
    """Return a sentence on how long the job was held, by reason; "" where it was not held."""
    words: dict[str, float] = {}
    for reason, seconds in by.items():
        words[phrase(reason)] = words.get(phrase(reason), 0.0) + seconds
    held = listed([f"{duration(seconds)} ({why})" for why, seconds in words.items()])
    counts = "that does not count as waiting"
    return f"Besides, it was kept from starting for {held}; {counts}." if held else ""


def _began(waits: Sequence[Waits], sentence: str) -> str:
    """Return as text the reason of the longest part of a wait, with the numbers at its beginning.
    Used if it is unknown which jobs had GPUs since.
    """
    first = waits[0]
    share = f" ({percent(first.share)} of the wait)" if 0.0 < first.share < 0.995 else ""
    began = f"the longest of {first.spells} such waits began" if first.spells > 1 else "it began"
    return f". The {'main ' * bool(share)}reason{share}, in the numbers as {began}: {sentence}."
