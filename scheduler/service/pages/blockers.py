"""Bars that show what keeps a waiting job from starting: which runs must end first, and when they
should.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from scheduler.core.plural import count
from scheduler.explain.answer import Analysis, InTheWay
from scheduler.explain.blockers import Kind
from scheduler.explain.render import WHAT, node_words, says


@dataclass(frozen=True, slots=True)
class BlockersPage:
    """What keeps a waiting job from starting now.

    Attributes:
        analysis: the analyst's answer. says: the same in words.
        runs: jobs that must end first, the last to end first, each with the width of its bar in
            percent of the longest.
        besides: what else is in the way, in words.
    """

    analysis: Analysis
    says: dict[str, str]
    runs: list[tuple[InTheWay, float]]
    besides: list[str]


def blockers_page(analysis: Analysis) -> BlockersPage:
    """Return the bars for an analysis of a waiting job."""
    at = analysis.at or 0.0
    ends = [(one, one.ends_in_s) for one in analysis.holders if one.ends_in_s is not None]
    longest = max((seconds for _, seconds in ends), default=0.0)
    runs = [
        (one, max(1.0, 100.0 * seconds / longest) if longest else 1.0)
        for one, seconds in sorted(ends, key=lambda pair: -pair[1])
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
