"""Bars of what is in the way of a waiting job: which runs must finish, and when they should."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from scheduler.core.plural import count
from scheduler.explain.answer import InTheWay
from scheduler.explain.blockers import Kind
from scheduler.explain.explanation import Analysis
from scheduler.explain.render import WHAT, node_words, says


@dataclass(frozen=True, slots=True)
class Run:
    """A run that must finish.

    Attributes:
        job_id: "" of another user's.
        ends_at: even odds, seconds since the epoch; left_s: from the moment of the answer.
        width: of its bar, percent of the longest.
        past_s: how long it has outlived its prediction; None: it has not.
    """

    job_id: str
    ends_at: float
    left_s: float
    width: float
    ran_s: float | None
    past_s: float | None


@dataclass(frozen=True, slots=True)
class BlockersPage:
    """The present answer, and what it `says`. `runs` has the last to finish first; `besides` is
    what else is in the way.
    """

    analysis: Analysis
    says: dict[str, str]
    runs: list[Run]
    besides: list[str]


def blockers_page(analysis: Analysis) -> BlockersPage:
    """Return the bars of an analysis."""
    at = analysis.at or 0.0
    left = [(one, one.ends_in_s) for one in analysis.holders if one.ends_in_s is not None]
    longest = max((seconds for _, seconds in left), default=0.0)
    runs = [
        Run(
            one.job,
            at + seconds,
            seconds,
            max(1.0, 100.0 * seconds / longest) if longest else 1.0,
            one.ran_s,
            one.past_s,
        )
        for one, seconds in sorted(left, key=lambda pair: -pair[1])
    ]
    others = [one for one in analysis.holders if one.ends_in_s is None]
    named = [_named(one, at) for one in others if one.job or one.kind == Kind.NODE]
    counted = Counter(one.kind for one in others if not one.job and one.kind != Kind.NODE)
    besides = named + [count(n, f"{WHAT[kind]} of others") for kind, n in counted.items()]
    hidden = analysis.in_all - len(analysis.holders)
    besides += [f"{hidden} more"] if hidden else []
    return BlockersPage(analysis, {} if analysis.unavailable else says(analysis), runs, besides)


def _named(one: InTheWay, at: float) -> str:
    return node_words(one, at) if one.kind == Kind.NODE else f"{WHAT[one.kind]} {one.job}"
