"""The terms of a score: what each adds to it, and its factor on the duration.

The duration model is additive in ln(1 + seconds), so a term t multiplies (1 + seconds) by exp(t),
which is shown as "×0.40". Before anything is shown, it is checked that the terms sum to the score.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from features.state import FAMILIES, features_of
from scheduler.core.decisions import Decision, Score
from scheduler.core.estimates import Description
from scheduler.core.plural import count
from scheduler.explain.belief import (
    ADDED,
    COMMAND,
    EXPECTED,
    LIMIT,
    OUTLIVED,
    OWN,
    REPEATS,
    SHOWN,
    UNRECORDED,
    made_of_words,
    own_terms,
)
from scheduler.explain.words import duration, factor, percent

if TYPE_CHECKING:
    from models.bundle import Bundle

# --- terms that say the same ---------------------------------------------------------------------
#
# Several say the same in other words (the odds of lasting over an hour, over three, over six), and
# which of them carries it differs from one fit to the next. Together they are one reason. The
# groups sum to what the terms sum to.

_LIKE, _USER = "how long jobs like this one last", "how long this user's jobs last"
_SIZE, _PROFILE = "what it asks for", "what was measured of it"
_SENT, _BUSY = "when it was submitted, and how many others with it", "how much runs and waits"
_BY_FAMILY = {
    "size": _SIZE,
    "identity": "who sent it",
    "user": _USER,
    "user_gpus": _USER,
    "template": _LIKE,
    "vc": _LIKE,
    "running": _BUSY,
    "survival": _LIKE,
    "odds": _LIKE,
    "burst": _SENT,
    "calendar": _SENT,
    "queue": _BUSY,
    "profile": _PROFILE,
}
_THOUGHTS = {spec.name: _BY_FAMILY[spec.family] for spec in features_of(FAMILIES)} | {
    OWN.name: OWN.text,
    COMMAND.name: COMMAND.text,
    OUTLIVED.name: OUTLIVED.text,
    LIMIT.name: _SIZE,
    REPEATS.name: REPEATS.text,
    UNRECORDED.name: UNRECORDED.text,
    EXPECTED.name: EXPECTED.text,
    "like_user": _USER,
    "like_limit": _SIZE,
}


@dataclass(frozen=True, slots=True)
class Thought:
    """Terms of a score with the same meaning.

    Attributes:
        text: the meaning in words; the term's name if it has none.
        contribution: sum of these terms in the score.
        terms: names of the terms.
    """

    text: str
    contribution: float
    terms: tuple[str, ...]

    @property
    def factor(self) -> float:
        """The factor by which these terms multiply the predicted duration."""
        return factor_of(self.contribution)


def thought_of(term: str) -> str:
    """Return in words what a term is about. For a term of two features joined by " & ", return what
    the first one is about."""
    return _THOUGHTS.get(term.split(" & ")[0], term)


def thoughts(terms: Iterable[tuple[str, float]]) -> list[Thought]:
    """Return terms, given as pairs (name, contribution), grouped by meaning. The group with the
    largest effect, in either direction, comes first."""
    groups: dict[str, list[tuple[str, float]]] = {}
    for name, contribution in terms:
        groups.setdefault(thought_of(name), []).append((name, contribution))
    found = [
        Thought(text, math.fsum(c for _, c in mine), tuple(name for name, _ in mine))
        for text, mine in groups.items()
    ]
    return sorted(found, key=lambda thought: (-abs(thought.contribution), thought.text))


# Each level of the histories is compared with the wider one, which a row of its own has to name.
COMPARED = {
    "like_all_log_s": "how long all jobs here last",
    "like_vc_gpus": "how long jobs of as many GPUs in this virtual cluster last, against all jobs",
    "like_user": "how long this user's jobs last, against others of as many GPUs there",
    "like_template": "how long jobs of this kind last, against this user's other jobs",
    "like_spread": "how much the durations of such jobs vary",
    "like_error": "how uncertain the durations of such jobs are, as few of them are known",
}


TOLERANCE = 1e-9
SAME = 1e-5
SHOWN_TERMS = 8
EVERY_JOB = "start of every prediction"


@dataclass(frozen=True, slots=True)
class Term:
    """One term of a score.

    Attributes:
        name: name of the term: a feature, or two features joined by " & ".
        text: the meaning of the feature, for a person.
        value: the value of the feature as text; "missing" if the job had none, "" if it was not
            kept.
        contribution: what it adds to the score.
    """

    name: str
    text: str
    value: str
    contribution: float

    @property
    def factor(self) -> float:
        """Factor by which the term multiplies the estimate."""
        return factor_of(self.contribution)


@dataclass(frozen=True, slots=True)
class Breakdown:
    """A score and its terms, the one with the largest effect, in either direction, first.

    Attributes:
        time: time of the first decision with this score, seconds since the epoch.
        seqs: numbers of the decisions with this score.
        bundle: digest of the model.
        gap: |intercept + terms - score|, where the terms are added in the recorded order.
        terms: all terms; none when `adds_up` is false.
        terms_known: whether the names of the terms were recorded.
    """

    time: float
    seqs: tuple[int, ...]
    bundle: str
    score: float
    intercept: float
    gap: float
    terms: tuple[Term, ...]
    terms_known: bool = True

    @property
    def values(self) -> dict[str, str]:
        """The values of the features behind the terms, by name."""
        return {t.name: t.value for t in self.terms}

    @property
    def adds_up(self) -> bool:
        """Whether the terms sum to the score. If they do not, they explain nothing."""
        return self.gap <= TOLERANCE

    @property
    def seconds(self) -> float:
        """The predicted duration in seconds that the score stands for."""
        return seconds_of(self.score)

    def leading(self, shown: int = SHOWN_TERMS) -> tuple[Term, ...]:
        """Return the `shown` largest terms, without terms of zero."""
        return tuple(t for t in self.terms[:shown] if t.contribution != 0.0)

    def thoughts(self) -> list[Thought]:
        """Return the terms grouped by meaning, the largest group first, without groups of zero."""
        found = thoughts((t.name, t.contribution) for t in self.terms)
        return [one for one in found if one.contribution != 0.0]

    def rest(self, shown: int = SHOWN_TERMS) -> tuple[int, float]:
        """Return how many terms are not among the `shown` largest, and their sum."""
        others = self.terms[len(self.leading(shown)) :]
        return len(others), math.fsum(t.contribution for t in others)


def reasons(breakdown: Breakdown) -> str:
    """Return in words what a predicted duration consists of; see `belief.made_of_words`."""
    own = breakdown.values.get(OWN.name, "")
    return made_of_words(seconds_of(breakdown.intercept), breakdown.thoughts(), own)


def factor_of(contribution: float) -> float:
    """Return exp of a contribution to a score, without overflow: the term's factor on the
    duration."""
    return math.exp(min(contribution, 700.0))


def seconds_of(score: float) -> float:
    """Return the duration in seconds that a score of ln(1 + seconds) stands for."""
    return max(math.expm1(min(score, 50.0)), 0.0)


def gap_of(score: Score) -> float:
    """Return the distance (0 or more) between a score and the sum of its intercept and terms; inf
    if it is not a finite number. The terms are added in the recorded order, so that rounding is the
    same."""
    total = score.intercept
    for term in score.terms:
        total += term
    gap = abs(total - score.value)
    return gap if math.isfinite(gap) else math.inf


def breakdowns(
    decisions: Sequence[Decision], bundles: Mapping[str, Description]
) -> list[Breakdown]:
    """Return the distinct scores among decisions, in order of first appearance, each with the check
    whether its terms sum to it.

    Args:
        bundles: descriptions of the models by digest: names of terms and inputs, texts and units
            (`bundles.json` of a run).
    """
    groups: dict[tuple[str, float, float, tuple[float, ...]], list[Decision]] = {}
    for d in decisions:
        if d.score is not None:
            key = d.score.bundle, d.score.value, d.score.intercept, d.score.terms
            groups.setdefault(key, []).append(d)
    return [_breakdown(same, bundles) for same in groups.values()]


def drawn(found: Sequence[Breakdown]) -> list[Breakdown]:
    """Return the scores that are shown term by term, of those whose terms add up: the first one,
    and the last one where there are several.

    A job that waits for days may be predicted again every hour, so the others are left out.
    """
    sound = [breakdown for breakdown in found if breakdown.adds_up]
    return sound if len(sound) <= 2 else [sound[0], sound[-1]]


def _breakdown(same: list[Decision], bundles: Mapping[str, Description]) -> Breakdown:
    scores = [d.score for d in same if d.score is not None]
    score = scores[0]
    inputs = next((s.inputs for s in scores if s.inputs), ())
    gap = gap_of(score)
    described = bundles.get(score.bundle, Description())
    names, kept = list(described.get("terms", ())), list(described.get("inputs", ()))
    facts = next((s for s in scores if s.facts), score)
    own = [spec.name for spec in own_terms(facts, len(names))] if names else []
    names, kept = [*names, *own], [*kept, *own]
    known = len(names) == len(score.terms)
    if not known:
        names = [f"term {i}" for i in range(1, len(score.terms) + 1)]
    values = dict(zip(kept, inputs, strict=False))
    terms = (
        _term(name, contribution, values, described)
        for name, contribution in zip(names, score.terms, strict=True)
    )
    return Breakdown(
        time=same[0].time,
        seqs=tuple(d.seq for d in same),
        bundle=score.bundle,
        score=score.value,
        intercept=score.intercept,
        gap=gap,
        terms=tuple(sorted(terms, key=lambda t: -abs(t.contribution))) if gap <= TOLERANCE else (),
        terms_known=known,
    )


def _term(
    name: str, contribution: float, values: Mapping[str, str], described: Description
) -> Term:
    texts, units = described.get("texts", {}), described.get("units", {})
    features = name.split(" & ")
    shown = []
    for feature in features:
        value = values.get(feature)
        if value is None:
            continue
        shown.append(_shown(value, units.get(feature, ""), feature))
    texts = {spec.name: spec.text for spec in ADDED} | dict(texts) | COMPARED
    text = ", combined with ".join(texts.get(feature) or feature for feature in features)
    outside = [one for feature in features if (one := _outside(feature, values, described))]
    value = " and ".join(shown) + (f" ({'; '.join(outside)})" if outside else "")
    return Term(name, text + _edited(name, described), value, contribution)


def _outside(feature: str, values: Mapping[str, str], described: Description) -> str:
    """Return a remark if the value of a feature lies outside the range of the training data, with
    that range. Return "" if it lies inside, or the range is unknown.

    For such a value the model uses the term's value at the nearest end of the range.
    """
    edges = (described.get("metadata", {}).get("seen") or {}).get(feature)
    try:
        value = float(values.get(feature, ""))
    except ValueError:
        return ""
    if not edges:
        return ""
    within = SAME * max(map(abs, edges))  # both are kept with six digits
    if edges[0] - within <= value <= edges[1] + within:
        return ""
    unit = described.get("units", {}).get(feature, "")
    which, edge = ("least", edges[0]) if value < edges[0] else ("most", edges[1])
    learned = _shown(f"{edge:.6g}", unit, feature)
    return f"the model learned from {learned} at {which}, and takes it as that"


def _edited(name: str, described: Description) -> str:
    """Return a remark that a person has changed a term of the model, with the person and the time;
    "" where no person has."""
    made = described.get("metadata", {})
    if name not in made.get("edited_terms", ()):
        return ""
    about = name.split(" & ")
    own = [
        f"by {one['by']} on {one['on']}" if one.get("by") and one.get("on") else f"by {one['by']}"
        for one in (made.get("edits") or {}).get("edits", ())
        if one.get("by") and (one.get("feature") in about or one.get("term") == about)
    ]
    return f" (edited {', '.join(dict.fromkeys(own)) or 'by a person'})"


def _shown(value: str, unit: str, feature: str) -> str:
    """Return a feature value as a person reads it, with its unit; "missing" for an empty
    one."""
    if not value:
        return "missing"
    try:
        number = float(value)
    except ValueError:
        return f"{value} {unit}".strip()
    if unit == "s":
        return duration(number)
    if unit == "ln s" and feature.endswith("_log_s"):
        return duration(seconds_of(number))
    if unit == "ln ratio":
        return factor(factor_of(number))
    if unit == "ln odds":
        return percent(1.0 / (1.0 + factor_of(-number)))
    if unit == "ln s":
        return factor(factor_of(number))
    if unit == "MiB" and number >= 1024:
        return f"{number / 1024:.4g} GiB"
    return f"{number:.4g} {unit}".strip()


def describe(bundle: Bundle) -> Description:
    """Return the description that is needed to read the terms of a bundle's duration scores; see
    `breakdowns`."""
    model, of_duration = bundle.duration, bundle.metadata.get("duration") or {}
    return {
        "terms": list(model.term_names),
        "inputs": [spec.name for spec in model.features],
        "texts": {spec.name: spec.text for spec in model.features},
        "units": {spec.name: spec.unit for spec in model.features},
        "metadata": {
            name: of_duration[name]
            for name in ("seen", "edits", "edited_terms")
            if name in of_duration
        },
    }


# --- drawn as a waterfall ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Step:
    """A row of a waterfall chart: a bar from one running total to the next, in percent of the
    plot's width."""

    text: str
    value: str
    contribution: float
    factor: float | None
    total: float
    css: str
    left: float
    width: float

    @property
    def seconds(self) -> float:
        """The duration in seconds that the running total stands for."""
        return seconds_of(self.total)


@dataclass(frozen=True, slots=True)
class Waterfall:
    """A waterfall chart: its rows from the intercept to the score, and the score whose terms they
    show."""

    breakdown: Breakdown
    steps: tuple[Step, ...]


def waterfall(breakdown: Breakdown, shown: int = SHOWN_TERMS) -> Waterfall:
    """Return the waterfall chart of a score: intercept, the `shown` largest terms, the rest
    together, and the score."""
    leading = breakdown.leading(shown)
    folded, together = breakdown.rest(shown)
    moves = [(t.text, t.value, t.contribution) for t in leading]
    if folded:
        moves.append((f"{count(folded, 'more term')} together", "", together))
    return _steps(breakdown, moves)


def thought_waterfall(breakdown: Breakdown, shown: int = SHOWN) -> Waterfall:
    """Return the waterfall chart of a score with its terms grouped by meaning: the `shown` largest
    groups, and the rest together."""
    found = breakdown.thoughts()
    moves = [(one.text, "", one.contribution) for one in found[:shown]]
    if found[shown:]:
        moves.append(("all else", "", math.fsum(one.contribution for one in found[shown:])))
    return _steps(breakdown, moves)


def _steps(breakdown: Breakdown, moves: Sequence[tuple[str, str, float]]) -> Waterfall:
    """Return a waterfall chart from the intercept to the score.

    Args:
        moves: its rows, each a text, a feature value and a contribution.
    """
    totals = [breakdown.intercept]
    for _, _, contribution in moves:
        totals.append(totals[-1] + contribution)
    low, high = min(totals), max(totals)
    room = (high - low) or 1.0
    low, high = low - 0.06 * room, high + 0.06 * room

    def at(value: float) -> float:
        return 100 * (value - low) / (high - low)

    steps = [_mark(EVERY_JOB, breakdown.intercept, at(breakdown.intercept))]
    for (text, value, contribution), before, after in zip(moves, totals, totals[1:], strict=False):
        left, right = sorted((at(before), at(after)))
        css = "longer" if contribution > 0 else "shorter"
        steps.append(
            Step(
                text=text,
                value=value,
                contribution=contribution,
                factor=factor_of(contribution),
                total=after,
                css=css,
                left=left,
                width=right - left,
            )
        )
    steps.append(_mark("predicted", breakdown.score, at(breakdown.score)))
    return Waterfall(breakdown, tuple(steps))


def _mark(text: str, total: float, at: float) -> Step:
    return Step(
        text=text,
        value="",
        contribution=total,
        factor=None,
        total=total,
        css="total",
        left=max(at - 0.4, 0),
        width=0.8,
    )
