"""Why a job is where it is, in lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.printed import aligned
from pipeline.printed.jobs import OVER

if TYPE_CHECKING:
    from scheduler.explain.effect import ByNode, Sooner
    from scheduler.explain.explanation import Compared, Explanation

LABEL = 13  # columns of the labels
MOST_TRIED = 4  # changes of a job in Slurm that are listed


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
    explained: Explanation,
    now: float,
    *,
    codes: bool = False,
    full: bool = False,
    program: bool = False,
) -> list[str]:
    """Return an explanation in lines.

    Args:
        program: a program reads them, to which what other people wrote is data.
    """
    from scheduler.explain.render import Depth, Reader, render

    reader = Reader.AGENT if program else Reader.TERMINAL
    depth = Depth.WHOLE if full else Depth.BRIEF
    rows = render(explained, depth, reader, now, codes=codes)
    return [_row(row.label, row.text) if row.label else row.text for row in rows]


def _row(label: str, text: str) -> str:
    return f"{label:<{LABEL}} {text}"


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
