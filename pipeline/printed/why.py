"""Turns an explanation of a job (why it waits, runs or has ended) into lines of text."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pipeline.printed import aligned
from pipeline.printed.jobs import OVER

if TYPE_CHECKING:
    from scheduler.explain.effect import ByNode, Sooner
    from scheduler.explain.explanation import Compared, Explanation
    from scheduler.explain.tree import Finding

LABEL = 13  # columns of the labels
MOST_TRIED = 4  # changes of a job in Slurm that are listed


def waits_in_slurm(explained: Explanation) -> bool:
    waits = explained.phase not in (*OVER, "running")
    return waits and explained.slurm is not None


def sooner_lines(sooner: Sooner) -> list[str]:
    """Return lines of text about the changes that would let the job start sooner, as tried on a
    copy of Slurm's queue: at most `MOST_TRIED`, and [] if none could be tried."""
    if sooner.unavailable:
        return []
    from scheduler.explain.render import tried_by
    from scheduler.explain.words import record_words, starts

    found = []
    for one in sooner.tried[:MOST_TRIED]:
        at = starts(one.start_p50, one.start_p90, "", sooner.now)
        when = at if one.reason else "starts at once"
        if record := record_words(one.held, one.judged):
            when += f" ({record})"
        price = "; ".join(filter(None, [one.costs, one.assumed and f"if {one.assumed}"]))
        price = f" ({price})" if price else ""
        found.append(_row("You could", f"{one.words} it {when}{price}: {one.command}"))
    if by := tried_by(sooner.tried[:MOST_TRIED]):
        found.append(_row("", by))
    return found


NODE_HEAD = "PARTITION", "NODE", "GPUS FREE", "READY AT THE LATEST", "WHAT KEEPS THE JOB FROM IT"


def node_lines(answer: ByNode, now: float) -> list[str]:
    """Return lines of text about what keeps a job from each node: a heading, one line per node,
    and remarks. If that is not known, return one line that says why."""
    from scheduler.explain.render import of_nodes
    from scheduler.explain.words import clock_time

    if answer.unavailable:
        return [f"{answer.job_id}: {answer.unavailable}"]
    rows = [NODE_HEAD]
    for one in answer.nodes:
        gpus = f"{one.gpus_free} of {one.gpus}" if one.gpus else "-"
        until = clock_time(one.until, now) if one.until is not None else "-"
        keeps = "; ".join(filter(None, [one.shut, *one.lacks])) or "nothing"
        rows.append((one.partition, one.node, gpus, until, keeps))
    return [*aligned(rows), *of_nodes(answer)]


def lines_of(
    explained: Explanation,
    now: float,
    *,
    codes: bool = False,
    full: bool = False,
    program: bool = False,
) -> list[str]:
    """Return an explanation as lines of text.

    Args:
        program: whether a program reads the lines. Then texts that other people wrote, such as
            names of jobs, are not repeated.
        codes: also show codes of reasons.
        full: show everything, not only what matters most.
    """
    from scheduler.explain.render import Depth, Reader, render

    reader = Reader.AGENT if program else Reader.TERMINAL
    depth = Depth.WHOLE if full else Depth.BRIEF
    rows = render(explained, depth, reader, now, codes=codes)
    return [_row(row.label, row.text) if row.label else row.text for row in rows]


def _row(label: str, text: str) -> str:
    return f"{label:<{LABEL}} {text}"


def tree_lines(found: Finding, depth: int = 0) -> list[str]:
    """Return findings as lines of text, each indented below the finding that it is part of. Empty
    values are left out."""
    given = {name: value for name, value in found.values.items() if value not in _SAYS_NOTHING}
    values = [f"{name}={json.dumps(value)}" for name, value in given.items()]
    first = " ".join([f"{'  ' * depth}{found.kind}", *values])
    return [first, *(line for child in found.children for line in tree_lines(child, depth + 1))]


_SAYS_NOTHING: tuple[object, ...] = (None, "", (), [], {})


def after_lines(compared: Compared) -> list[str]:
    """Return a comparison of two jobs' places in line as lines of text."""
    from scheduler.explain.render import of_places

    lines = of_places(compared)
    if compared.unavailable or compared.early_s is not None:
        return lines
    job, other = compared.job_id, compared.other
    lines.append(f"{'':<36}{other:>16}{job:>16}")
    for term in compared.terms:
        lines.append(f"{term.what:<36}{_term(term.other):>16}{_term(term.this):>16}")
    theirs = sum(term.other or 0.0 for term in compared.terms)
    own = sum(term.this or 0.0 for term in compared.terms)
    return [*lines, f"{'sum':<36}{_term(theirs):>16}{_term(own):>16}"]


def _term(seconds: float | None) -> str:
    from scheduler.explain.words import signed

    return "-" if seconds is None else signed(seconds)
