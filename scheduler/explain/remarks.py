"""Remarks on a decision that its sentence leaves out: its numbers in words, where the job was
placed, and what would help. On request, the recorded names are added."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from scheduler.core.decisions import CHANGES_GPUS, Action, Decision
from scheduler.core.plural import count
from scheduler.explain.belief import belief
from scheduler.explain.life import Event
from scheduler.explain.words import duration, fields_worded, number, percent, signed


def remarks(
    events: Sequence[Event], limit_s: float | None = None, *, codes: bool = False
) -> Iterator[tuple[Event, list[str]]]:
    """Yield each event of a job's life with lines that its sentence does not contain: numbers, the
    prediction and the next step.

    The prediction and the expected duration are given only when they change. Waits that only the
    free profiling pass saw (`Event.void`) are skipped.

    Args:
        limit_s: the job's time limit, seconds; None: none.
        codes: also give all numbers under their recorded names.
    """
    shown, predicted = "", predictions(events)
    for event in events:
        d = event.decision
        if event.void:
            continue
        lines = [_numbers(event)]
        ordered = [predicted[d.seq]] if d.seq in predicted else []
        if (wide := spread(d, limit_s)) and wide != shown:
            ordered.append(wide)
        shown = wide
        lines.append("; ".join(ordered))
        if codes:
            lines.append(recorded(d))
        if event.next_step:
            lines.append(f"→ {event.next_step}")
        yield event, [line for line in lines if line]


def predictions(events: Sequence[Event]) -> dict[int, str]:
    """Return a text for each decision at which the predicted duration changed, by the decision's
    number: "predicted to run 2 h (last prediction: 1 h)".
    """
    before: float | None = None
    texts: dict[int, str] = {}
    for event in events:
        d = event.decision
        if event.void:
            continue
        if d.estimate_s is None or d.estimate_s == before:
            continue
        texts[d.seq] = f"predicted to run {duration(d.estimate_s)}"
        if before is not None:
            texts[d.seq] += f" (last prediction: {duration(before)})"
        before = d.estimate_s
    return texts


def recorded(d: Decision) -> str:
    """Return the order value and the evidence of a decision as text, each number under its recorded
    name.
    """
    order = [] if d.priority is None else [f"order value {number(d.priority)}"]
    return ", ".join([*order, *(f"{name} {value}" for name, value in dict(d.evidence).items())])


def _numbers(event: Event) -> str:
    """Return as text the numbers of a decision that its sentence does not contain, such as its
    placement and free GPUs. Return "" without such numbers.
    """
    given, d = event.evidence, event.decision
    parts = [given["placement"]] if "placement" in given else []
    if d.action in CHANGES_GPUS and {"free", "limit"} <= set(given):
        parts.append(f"after that {given['free']} of {given['limit']} GPUs are free")
    elif d.action is not Action.PROFILE:  # its limit is of seconds
        in_sentence = fields_worded(d)
        left = {name: given[name] for name in _FIELDS if name in given and name not in in_sentence}
        if {"free", "limit"} <= set(left):
            parts.append(f"{left.pop('free')} of {left.pop('limit')} GPUs are free")
        parts += [_FIELDS[name].format(value) for name, value in left.items()]
    if d.batch is not None:
        per_gpu, accumulation = d.batch
        passes = f", {accumulation + 1} passes for each update" if accumulation else ""
        parts.append(f"{per_gpu} samples on each GPU{passes}")
    parts += [text for name, value in dict(d.evidence).items() if (text := _evidence(name, value))]
    return "; ".join(parts)


_FIELDS = {
    "free": "{} GPUs are free",
    "limit": "it may use {} GPUs",
    "position": "number {} in line",
    "blocker": "waits behind job {}",
}


def _evidence(name: str, value: float | str) -> str:
    """Return one number of a decision's evidence, given by name and value, as text. Return "" for a
    number that is shown elsewhere."""
    if name in _IN_WORDS:
        return ""
    if name in _NAMES:
        return f"{_NAMES[name]} {value}"
    try:
        value = float(value)  # a run folder keeps text
    except ValueError:
        return f"{_plain(name)} {value}"
    if name in _FORMATS:
        return _FORMATS[name](value)
    on_type = _ON_TYPE.match(name)
    if on_type is not None:
        what, gpu_type = on_type.groups()
        text = percent(value) if what == "speed" else f"{duration(value)} with the wait for others"
        return f"on {gpu_type}: {text}" + " of full speed" * (what == "speed")
    if name.endswith("_s"):
        return f"{_plain(name.removesuffix('_s'))} {duration(value)}"
    return f"{_plain(name)} {number(value)}"


def _plain(name: str) -> str:
    return name.replace("_", " ")


def _gain(seconds: float) -> str:
    how = "shorter" if seconds > 0 else "longer"
    return f"sharing makes the sum of their times to the end {duration(abs(seconds))} {how}"


_IN_WORDS = (
    *("closed_gpus", "gone_in_s", "free_in_s", "p10_s", "p50_s", "p90_s", "mean_s"),
    *("predicted_before_s", "bound_s", "bound_left_s", "bound_times", "bound_costs_s"),
    *("over_1h", "over_6h", "over_1d", "counts_s", "counts_odds", "ended_here"),
)
_NAMES = {"best_partner": "best job to share GPUs with: job"}
_ON_TYPE = re.compile(r"(speed|cost)_on_(.+?)(?:_s)?$")
_FORMATS: dict[str, Callable[[float], str]] = {
    "partner_gpus": lambda v: f"on some of its {count(int(v), 'GPU')}",
    "pair_speed": lambda v: f"beside it this job would run at {percent(v)} of its speed alone",
    "pair_partner_speed": lambda v: f"the other job at {percent(v)} of its own",
    "left_s": lambda v: f"alone this job would run for another {duration(v)} (the mean)",
    "partner_left_s": lambda v: f"alone the other job would run for another {duration(v)}",
    "gain_s": _gain,
    "held_longer_s": lambda v: f"those GPUs would be in use {duration(v)} longer",
    "kept_out_jobs": lambda v: f"{count(int(v), 'job')} ahead in line might use those GPUs",
    "hold_costs_s": lambda v: (
        f"sharing them would make jobs ahead wait {duration(v)} longer, added up"
    ),
    "missed_nodes": lambda v: f"that job lacks {count(int(v), 'node')}",
    "waits_longer_s": lambda v: f"if the node stayed lent, jobs would wait {duration(v)} longer",
    "profiled_later_s": lambda v: f"jobs to be profiled wait {duration(v)} longer, added up",
    "asked_share": lambda v: (
        f"all jobs together ask for {number(v)} times as many GPUs as there are for this one"
    ),
    "reserved_gpus": lambda v: f"{count(int(v), 'GPU')} kept",
    "fairness_s": lambda v: f"{signed(v)} on its order value for past use of GPUs",
    "share_excess": lambda v: f"its user has used {percent(abs(v))} {_side(v)} the user's share",
}


def _side(excess: float) -> str:
    return "more than" if excess > 0 else "less than"


def expected_words(events: Sequence[Event], limit_s: float | None) -> str:
    """Return a sentence on a job's prediction as it last joined its queue, with how long such jobs
    run; "" where none is recorded.

    Args:
        limit_s: the job's time limit, seconds; None: none.
    """
    for event in reversed(events):
        made = event.decision
        if made.estimate_s is not None and made.action is Action.ENQUEUE and not event.free_pass:
            how = spread(made, limit_s)
            made_s = duration(made.estimate_s)
            return f"As it joined the queue: predicted to run {made_s}; {how}." if how else ""
    return ""


def spread(d: Decision, limit_s: float | None) -> str:
    """Return the predicted duration of a job as text, median and 90th percentile: "half of such
    jobs run at most 2 h, nine in ten at most 9 h".
    Return "" if the decision does not record them.
    """
    found = belief([d], limit_s) if "p90_s" in dict(d.evidence) else None
    if found is None:
        return ""
    half = f"half of such jobs run at most {duration(found.p50_s)}"
    if found.p90_s is None:
        return half
    cut = " (its time limit)" if limit_s is not None and found.p90_s >= limit_s else ""
    return f"{half}, nine in ten at most {duration(found.p90_s)}{cut}"
