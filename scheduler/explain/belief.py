"""How long a job should run: the distribution that decides, cut at the job's time limit, and what
it rests on. All places that say so use these words.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isclose

from scheduler.core.decisions import Decision
from scheduler.core.durations import LONG_S
from scheduler.core.estimates import ENDED_HERE
from scheduler.core.plural import count
from scheduler.explain.words import duration, listed, roughly

LEAST_ODDS = 0.05  # of lasting long: below it, and above the rest, nothing is written
OPEN = 0.1, 0.6  # chances of lasting over one hour, or six, between which its owner is asked
DAY_S = 86_400.0
ALIKE = 12  # ended jobs that are shown: the latest with its name and owner


@dataclass(frozen=True, slots=True)
class Belief:
    """How long a job should run, seconds, never beyond its time limit.

    Attributes:
        p50_s, p90_s: half of such jobs, and nine in ten, run no longer. p90_s None: the policy
            decides by the prediction alone.
        evidence: how long the owner's jobs of that name ran, in words; "" where none has ended.
        text: all of it in sentences.
        odds: chances to run longer than an hour, six and a day, by the names of `LONG_S`; without
            those beyond its time limit.
    """

    p50_s: float
    p90_s: float | None = None
    evidence: str = ""
    text: str = ""
    odds: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """A job that runs now.

    Attributes:
        ran_s: for how many seconds it has.
        likely_s, latest_s: in how many it should end, given that: with even odds, and nine in ten;
            None: no forecast says so.
        odds: chances to run longer in all than each of `LONG_S`, by name.
    """

    ran_s: float
    likely_s: float | None = None
    latest_s: float | None = None
    odds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnWords:
    """What a job and its owner say of its duration, as sentences; "": nothing.

    Attributes:
        command: what its command and its earlier runs say.
        expected: what its owner expects.
        asks: how its owner says what to expect, if they have not yet; no sentence.
    """

    command: str = ""
    expected: str = ""
    asks: str = ""


SILENT = OwnWords()


def belief(
    decisions: Sequence[Decision],
    limit_s: float | None,
    alike: Sequence[float] = (),
    *,
    terms: str = "",
    own: OwnWords = SILENT,
    over: bool = False,
    stated_s: float | None = None,
    runs: Runs | None = None,
) -> Belief | None:
    """Return what was predicted of a job last, or None where nothing is predicted.

    Args:
        decisions: about it, in order.
        alike: seconds that the latest jobs of its name and owner ran.
        terms: what the prediction is made of, in words.
        own: what the job and its owner say.
        over: it has ended.
        stated_s: what is expected of it now; another figure than any decision's is its own
            progress's, seconds.
        runs: times of the job, where it runs now.
    """
    last = next((d for d in reversed(decisions) if d.estimate_s is not None), None)
    if last is None or last.estimate_s is None:
        return None
    spread = next((e for d in reversed(decisions) if "p90_s" in (e := dict(d.evidence))), None)
    cut = inf if limit_s is None else limit_s
    if stated_s is not None and not isclose(stated_s, last.estimate_s, rel_tol=0.01, abs_tol=1.0):
        p50_s = min(stated_s, cut)
        how = f"It should run {words(p50_s, None, limit_s)}, by its own progress."
        if runs is not None:
            ran_s = runs.ran_s
            past = ran_s > p50_s
            stated = f"; by its own progress it should run {words(p50_s, None, limit_s)} in all"
            stated = (
                f", longer than its own progress stated ({duration(p50_s)})" if past else stated
            )
            how = f"It has run {duration(ran_s)}{stated}."
        return Belief(p50_s, None, alike_words(alike), how)
    p50_s, p90_s = min(last.estimate_s, cut), None
    if spread is not None:
        p50_s, p90_s = (min(cut, max(0.0, float(spread[name]))) for name in ("p50_s", "p90_s"))
    evidence = alike_words(alike)
    first = f"{'It was to' if over else 'It should'} run {words(p50_s, p90_s, limit_s)}."
    if runs is not None and not over:
        ran_s = runs.ran_s
        if runs.likely_s is None:
            first = _has_run(ran_s, p50_s, p90_s)
        else:
            likely_s, latest_s = min(runs.likely_s, cut - ran_s), runs.latest_s
            latest_s = None if latest_s is None else min(latest_s, cut - ran_s)
            first = _ends_in(ran_s, likely_s, latest_s)
            p50_s = ran_s + max(0.0, likely_s)
            p90_s = None if latest_s is None else ran_s + max(0.0, latest_s)
    sentences = [first]
    sentences += [rests_on_words(spread)] if spread is not None and ENDED_HERE in spread else []
    odds = "" if over or runs is not None or spread is None else odds_words(spread, cut)
    sentences += [f"{odds}."] if odds else []
    chances = (spread or {}) if runs is None or over else runs.odds
    if own.asks and spread is not None and runs is None and not over and is_open(spread, cut):
        sentences.append(f"Is it a test, or how long will it run? {own.asks}.")
    sentences += [own.expected] if own.expected else []
    sentences += [f"{evidence}."] if evidence else []
    sentences += [own.command] if own.command else []
    if terms:
        who = "With the model that is" if own.command else "The model alone would say"
        sentences.append(f"{who} {duration(last.estimate_s)}: {terms}.")
    shown = {name: float(str(chances[name])) for name, s in LONG_S if s < cut and name in chances}
    return Belief(p50_s, p90_s, evidence, text=" ".join(sentences), odds=shown)


def _ends_in(ran_s: float, likely_s: float, latest_s: float | None) -> str:
    """Return when a running job should end, as a sentence: in how many seconds from now, with even
    odds and nine in ten; None: that is not known.
    """
    soon = likely_s < 1.0
    text = "may end at any moment" if soon else f"should end in {roughly(likely_s)}"
    late = latest_s is not None and latest_s >= 1.0
    text += f", within {roughly(latest_s or 0.0)} nine in ten" if late else ""
    return f"It has run {duration(ran_s)}; it {text}."


def _has_run(ran_s: float, p50_s: float, p90_s: float | None) -> str:
    """Return how long a job has run beside what was believed before it began, where nothing newer
    is known, as a sentence.
    """
    text = f"It has run {duration(ran_s)}"
    if p90_s is not None and ran_s > p90_s:
        return f"{text}, longer than predicted of nine in ten such jobs ({duration(p90_s)})."
    if ran_s > p50_s:
        most = "" if p90_s is None else f"; nine in ten were to end by {duration(p90_s)}"
        return f"{text}, longer than predicted of half of such jobs ({duration(p50_s)}){most}."
    return f"{text}, of {words(p50_s, p90_s)}."


def words(p50_s: float, p90_s: float | None, limit_s: float | None = None) -> str:
    """Return a duration in words: "about 26 s; at most 76 s, nine in ten"."""
    text = f"about {duration(p50_s)}"
    if p90_s is not None:
        text += f"; at most {duration(p90_s)}, nine in ten"
    cut = limit_s is not None and max(p50_s, p90_s or 0.0) >= limit_s
    return f"{text} (its time limit)" if cut else text


def odds_words(spread: Mapping[str, object], cut: float) -> str:
    """Return the chances to last long: "Of a hundred like it, 31 over 6 h and 8 over a day". Return
    "" where that is nearly certain or nearly impossible.
    """
    found = [
        (seconds, float(chance))
        for name, seconds in LONG_S
        if seconds < cut and isinstance(chance := spread.get(name), int | float)
    ]
    parts = [
        f"{100 * chance:.0f} over {duration(seconds)}"
        for seconds, chance in found
        if LEAST_ODDS <= chance <= 1.0 - LEAST_ODDS
    ]
    return f"Of a hundred like it, {listed(parts)}" if parts else ""


def rests_on_words(spread: Mapping[str, object]) -> str:
    """Return how little a prediction rests on, as a sentence."""
    ended = round(float(str(spread[ENDED_HERE])))
    if not ended:
        return "That is a guess: no job has ended here yet."
    return (
        f"No job of its owner has ended here yet: it is taken to be like {count(ended, 'other')}."
    )


def is_open(spread: Mapping[str, object], cut: float) -> bool:
    """Return whether it is open that a job runs for hours, so that asking its owner is worth it."""
    low, high = OPEN
    return any(
        low <= float(str(spread[name])) <= high
        for name, seconds in LONG_S
        if seconds < min(cut, DAY_S) and name in spread
    )


def alike_words(ran_s: Iterable[float]) -> str:
    """Return how long jobs of the name ran: "Its owner's last 12 jobs of this name ran 18 s to 40
    s"; "" where there are none.
    """
    ran = sorted(ran_s)
    if not ran:
        return ""
    low, high = duration(ran[0]), duration(ran[-1])
    how_long = low if low == high else f"{low} to {high}"
    last = f"last {count(len(ran), 'job')}" if len(ran) > 1 else "last job"
    return f"Its owner's {last} of this name ran {how_long}"
