"""Why a job is where it is, in lines."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pipeline.printed import aligned, between
from pipeline.printed.jobs import OVER

if TYPE_CHECKING:
    from scheduler.explain.effect import ByNode, Sooner, WhatIfAnswer
    from scheduler.explain.explanation import (
        Analysis,
        Compared,
        Explanation,
        Packing,
        StartForecastRow,
        Times,
    )

LABEL = 13  # columns of the labels
OLD_S = 3.0  # an answer of longer ago says how old it is
TOO_SMALL = "VcTooSmall"  # a job that cannot start: that comes before anything else
MOST_TRIED = 4  # changes of a job in Slurm that are listed
BRIEFLY = 1  # of the changes that would help, the best; unless asked for all


def waits_in_slurm(explained: Explanation) -> bool:
    waits = explained.phase not in (*OVER, "running")
    return waits and explained.slurm is not None


def sooner_lines(sooner: Sooner) -> list[str]:
    """What would have it start sooner, tried on a copy of the Slurm that is followed."""
    if sooner.unavailable:
        return []
    from scheduler.explain.words import record_words, starts

    found = []
    for one in sooner.tried[:MOST_TRIED]:
        at = starts(one.start_p50, one.start_p90, "", sooner.now)
        when = at if one.reason else "starts at once"
        if record := record_words(one.held, one.judged):
            when += f" ({record})"
        found.append(_row("You could", f"{one.words} it {when}: {one.command}"))
    return found


NODE_HEAD = "PARTITION", "NODE", "GPUS FREE", "BY LIMITS", "WHAT KEEPS IT"


def node_lines(answer: ByNode, now: float) -> list[str]:
    """What keeps a job from each node, a line each."""
    from scheduler.explain.words import clock_time

    if answer.unavailable:
        return [f"{answer.job_id}: {answer.unavailable}"]
    rows = [NODE_HEAD]
    for one in answer.nodes:
        gpus = f"{one.gpus_free} of {one.gpus}" if one.gpus else "-"
        until = clock_time(one.until, now) if one.until is not None else "-"
        keeps = "; ".join(filter(None, [one.shut, *one.lacks])) or "nothing"
        rows.append((one.partition, one.node, gpus, until, keeps))
    more = [f"{answer.unsuited} more could never do it."] if answer.unsuited else []
    return [*aligned(rows), *more]


def lines_of(
    explained: Explanation, now: float, *, codes: bool = False, full: bool = False
) -> list[str]:
    """An explanation in lines."""
    from scheduler.slurm.reason import rows as slurm_rows

    over, analysis = explained.phase in OVER, explained.analysis
    failed = analysis.unavailable if analysis is not None else ""
    if failed:
        analysis = None
    if analysis is not None and not full:
        return _briefly(explained, analysis, now, codes=codes)
    rows = []
    if explained.hold:
        rows.append(("Held", _held(explained, now)))
    slurm = None if over else explained.slurm
    if slurm is not None and not slurm.started:
        rows += slurm_rows(slurm, explained.job_id, now)
        analysis, failed = None, ""
        explained = replace(explained, next_step="")
    else:
        if explained.detail not in ("", explained.dominant) and not over:
            rows.append(("Detail", explained.detail))
        rows += _about_the_wait(explained, analysis, now)
    waits = explained.standing is not None or explained.hold
    for finding in explained.principal[1:] if waits or over else ():
        when = f"{between(finding.since, now)} ago"
        rows.append(("Last decided" if over else "Earlier", f"{when}: {finding.text}"))
    rows += _what_would_help(explained, analysis, now)
    left_out = analysis.not_examined if analysis is not None else ()
    rows += [("Not examined", f"{what}.") for what in left_out]
    if failed:
        rows.append(("Not examined", f"what is in its way: {failed}."))
    lines = _first_lines(explained, analysis, now, codes=codes)
    return lines + [_row(label, text) for label, text in rows if text]


def _held(explained: Explanation, now: float) -> str:
    from scheduler.explain.words import clock_time, hold_words

    since = clock_time(explained.held_at or now, now)
    held = f"{hold_words(explained.hold, explained.held_by)} since {since}"
    only = "Only an operator can release it" if explained.hold == "operator" else "Release it"
    then = "The time it is held counts as no waiting"
    return f"{held[:1].upper()}{held[1:]}. {then}. {only}: pellucid release {explained.job_id}"


def _briefly(explained: Explanation, analysis: Analysis, now: float, *, codes: bool) -> list[str]:
    """Of a job that waits: when it starts, what is in its way, and what would help."""
    from scheduler.explain.render import analysis_words

    code = f" [{explained.reason}]" if codes else ""
    place = "" if analysis.position is None else f", {analysis.position:,} of "
    place += f"{analysis.waiting:,}" * bool(place)
    never = explained.reason == TOO_SMALL
    words = analysis_words(analysis)
    says = words["dominant"] if never else _starts(explained.forecast, now)
    head = f"{explained.job_id} is {explained.phase}{place}: {says}.{code}"
    rows = [("Held", _held(explained, now))] if explained.hold else []
    if not never:
        rows.append(("In the way", _in_the_way(analysis, now)))
    if explained.overtaken:
        rows.append(("Overtaken", explained.overtaken.text))
    if words["changed_much"]:
        rows.append(("Changed", words["changed_much"]))
    rows += [("You could", _suggestion(one, now)) for one in analysis.suggestions[:BRIEFLY]]
    if never:
        rows.append(("You could", f"{explained.next_step}."))
    return [head, *(_row(label, text) for label, text in rows)]


def _starts(made: StartForecastRow | None, now: float) -> str:
    from scheduler.explain.words import starts

    if made is None:
        return starts(None, None, "", now)
    return starts(
        made.start_p50,
        made.start_p90,
        made.why_not,
        now,
        made.estimate,
        latest=made.latest,
        no_latest=made.no_latest,
        stated=made.stated,
    )


def _bound(made: StartForecastRow | None, now: float) -> str:
    """When a job starts at the latest beside when it should; "" where nothing says so."""
    from scheduler.explain.words import bound_words, stated_words

    if made is None or made.start_p50 is None:  # its first line says it
        return ""
    if made.latest is None:
        return stated_words(made.stated, now)
    return bound_words(made.latest, made.stated, now)


def _first_lines(
    explained: Explanation, analysis: Analysis | None, now: float, *, codes: bool
) -> list[str]:
    """Where it stands and why, when it should start, and when it was what."""
    from scheduler.explain.render import dominant

    stands = "over" if explained.phase in OVER else _STANDS.get(explained.phase, explained.phase)
    code = f" [{explained.reason}]" if codes else ""
    says = explained.dominant if analysis is None else dominant(analysis)
    lines = [f"{explained.job_id} is {stands}: {says}{code}"]
    if explained.standing is not None:
        made = explained.forecast
        when = _starts(made, now)
        whole = not when.startswith("starts ")  # a sentence with its subject
        lines.append(f"{when[0].upper()}{when[1:]}." if whole else f"It {when}.")
    return [*lines, f"It was {_times(explained.times, now)}."]


_STANDS = {
    "profiling": "being profiled",
    "starting": "about to start",
}  # phases that read badly after "is"


def _in_the_way(analysis: Analysis, now: float) -> str:
    """What is in its way, with the age of what is known of the cluster where that is old."""
    from scheduler.explain.render import in_the_way
    from scheduler.explain.words import roughly

    age_s = now - (now if analysis.at is None else analysis.at)
    if age_s < OLD_S:
        return in_the_way(analysis)
    lacks = "what was submitted, started or ended since is not in it"
    return f"As of {roughly(age_s)} ago ({lacks}): {in_the_way(analysis)}"


def _about_the_wait(
    explained: Explanation, analysis: Analysis | None, now: float
) -> list[tuple[str, str]]:
    from scheduler.explain.render import analysis_words

    rows, words = [], {} if analysis is None else analysis_words(analysis)
    if analysis is not None:
        rows += [("In the way", _in_the_way(analysis, now)), ("Or", words["otherwise"])]
        rows.append(("Place", words["place"]))
    elif explained.standing is not None:
        place = explained.standing
        rows.append(("Place", f"Number {place.position} of {place.waiting}."))
    rows.append(("At the latest", _bound(explained.forecast, now)))
    rows.append(("Its wait", explained.wait))
    if explained.standing is None:
        rows += _promised(explained)
    if explained.overtaken and not explained.wait:
        rows.append(("Overtaken", explained.overtaken.text))
    if analysis is not None:
        rows += [("Promise", words["promise"]), ("Its history", words["rests_on"])]
        rows += [("Changed", words["changed"]), ("Sharing", words["sharing"])]
    return rows


def _promised(explained: Explanation) -> list[tuple[str, str]]:
    """When a job that waited, and runs or is over, was foreseen to start."""
    from scheduler.explain.words import AT_ONCE_S

    made, waited = explained.promised, any(w.seconds >= AT_ONCE_S for w in explained.waits)
    if not waited or made is None or made.start_p50 is None or made.start_p50 <= made.made_at:
        return []
    return [("Foreseen", f"When it was submitted: {_starts(made, made.made_at)}.")]


def _what_would_help(
    explained: Explanation, analysis: Analysis | None, now: float
) -> list[tuple[str, str]]:
    """What its owner could do, how long it should run, and with whom it runs."""

    rows: list[tuple[str, str]] = []
    if analysis is not None:
        if explained.reason == TOO_SMALL:
            rows.append(("You could", f"{explained.next_step}."))
        for one in analysis.suggestions:
            rows.append(("You could", f"{_suggestion(one, now)}."))
    elif explained.next_step and not explained.hold:
        rows.append(("You could", f"{explained.next_step}"))
    if explained.belief is not None:
        rows.append(("Prediction", explained.belief.text))
    if explained.packing:
        rows += _sharing(explained.packing)
    return rows


def _row(label: str, text: str) -> str:
    return f"{label:<{LABEL}} {text}"


def _suggestion(one: WhatIfAnswer, now: float) -> str:
    from scheduler.explain.words import record_words

    record = record_words(one.held, one.judged)
    how = f": {one.command}" if one.command else ""
    return f"{one.words}, {one.contract(now)}{f' ({record})' if record else ''}{how}"


def _sharing(packing: Packing) -> list[tuple[str, str]]:
    text = f"With {packing.partner}"
    if packing.speed is not None:
        text += (
            f": predicted speed {packing.speed:.0%} of alone, of the other "
            f"{packing.partner_speed:.0%}"
        )
    gain = [(" because", packing.text)] if packing.text else []
    steps = [(" because", step) for step in packing.tree_path]
    return [("Shares GPUs", f"{text}."), *gain, *steps]


def _times(times: Times, now: float) -> str:
    """Submit, eligible and start, kept apart."""
    submitted, eligible, started = times.submitted_at, times.eligible_at, times.started_at
    words = [f"submitted {between(submitted, now)} ago"]
    if eligible is not None:
        words.append(f"eligible {_after(submitted, eligible, 'later')}")
    elif times.ended_at is None and started is None:
        words.append("not eligible yet")
    if started is not None:
        words.append(f"started {_after(eligible or submitted, started, 'after that')}")
    return ", ".join(words)


def _after(start: float | None, end: float, how: str) -> str:
    from scheduler.explain.words import AT_ONCE_S

    soon = start is not None and end - start < AT_ONCE_S
    return "at once" if soon else f"{between(start, end)} {how}"


def after_lines(compared: Compared) -> list[str]:
    """Two places in line side by side."""
    job, other = compared.job_id, compared.other
    if compared.unavailable:
        return [f"{job} cannot be compared with {other}: {compared.unavailable}"]
    if compared.early_s is not None:
        return [f"{other} went before {job}: {compared.why}."]
    goes = "went" if compared.started else "goes"
    before = f"{other} {goes} before {job}" if compared.first else f"{job} goes before {other}"
    lines = [f"{before}: {compared.why}."]
    if compared.started:
        lines.append(f"It could start because: {compared.started}.")
    lines.append(f"{'':<36}{other:>16}{job:>16}")
    for term in compared.terms:
        lines.append(f"{term.what:<36}{_term(term.other):>16}{_term(term.this):>16}")
    theirs = sum(term.other or 0.0 for term in compared.terms)
    own = sum(term.this or 0.0 for term in compared.terms)
    return [*lines, f"{'sum':<36}{_term(theirs):>16}{_term(own):>16}"]


def _term(seconds: float | None) -> str:
    from scheduler.explain.words import signed

    return "-" if seconds is None else signed(seconds)
