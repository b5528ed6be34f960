"""How long a job should run: the distribution that decides, cut at the job's time limit, and what
it rests on. All places that say so use these words. What is "predicted" is another figure, wherever
it is named: the one number of the model (`estimate_s`) that the distribution is made from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp, fsum, inf, isclose, log
from typing import Protocol

from features.spec import FeatureSpec
from features.survival import SUM
from scheduler.core.decisions import Decision, Fact, Score
from scheduler.core.durations import LONG_S
from scheduler.core.estimates import ENDED_HERE
from scheduler.core.plural import count
from scheduler.explain.words import MOSTLY, duration, factor, listed, roughly

LEAST_ODDS = 0.05  # of lasting long: below it, and above the rest, nothing is written
OPEN = 0.1, 0.6  # chances of lasting over one hour, or six, between which its owner is asked
DAY_S = 86_400.0
SHOWN = 4  # parts of a prediction that are named
LEAST_FACTOR = 1e-300  # whose logarithm there is
ALIKE = 12  # ended jobs that are shown: the latest with its name and owner


def _own(name: str, text: str) -> FeatureSpec:
    """Return the specification of a term that an estimator adds to those of a model."""
    return FeatureSpec(name=f"own_{name}", kind="nominal", family="progress", unit="", text=text)


OWN = _own("progress", "its own progress")
COMMAND = _own("command", "its command")
LIMIT = _own("limit", SUM[-1].text)
OUTLIVED = _own("outlived", "what it has outlived")
REPEATS = _own("repeats", "how long its last runs lasted")
EXPECTED = _own("expected", "what its owner expects")
# stands for any of these where a record does not tell them apart
UNRECORDED = _own("unrecorded", "its own facts (unrecorded)")
ADDED = OWN, COMMAND, OUTLIVED, LIMIT, REPEATS, EXPECTED, UNRECORDED
_OF_FACT = {
    Fact.LIMIT: LIMIT,
    Fact.OUTLIVED: OUTLIVED,
    Fact.LAST_RUNS: REPEATS,
    Fact.EXPECTED: EXPECTED,
    Fact.COMMAND: COMMAND,
    Fact.PROGRESS: OWN,
}


def own_terms(score: Score, names: int) -> list[FeatureSpec]:
    """Return the specifications of a score's terms that were added to those of its model:
    `UNRECORDED` for each where the record does not tell them apart. `names` is the number of the
    model's terms."""
    added = max(0, len(score.terms) - names)
    if added > len(score.facts):  # recorded without its inputs, before scores named their facts
        return [UNRECORDED] * added
    return [_OF_FACT[fact] for fact in score.facts[len(score.facts) - added :]]


@dataclass(frozen=True, slots=True)
class Alike:
    """How long the latest ended jobs of a name and an owner ran: how many they are, and the
    shortest and the longest, seconds.
    """

    jobs: int
    least_s: float
    most_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Belief:
    """How long a job should run, seconds, never beyond its time limit. `belief_words` says it.

    Attributes:
        p50_s, p90_s: half of such jobs, and nine in ten, run no longer. p90_s None: not known, as
            where its own progress says p50_s, or the policy decides by the prediction alone.
        odds: chances to run longer than an hour, six and a day, by the names of `LONG_S`; without
            those beyond its time limit.
        limit_s: its time limit.
        over: whether it has ended; then this is what was predicted of it.
        stated: whether its own progress alone says so.
        ran_s: of a job that runs, for how long it has.
        foreseen: of a job that runs, whether p50_s and p90_s are given that it has run so long.
        ended_here: number of ended jobs that the prediction rests on, where none is its owner's;
            None: at least one is, or nothing is recorded of that.
        renewed: whether `ended_here` is of an earlier prediction, and the job was predicted again
            since.
        alike: its owner's latest jobs of that name; None where none has ended.
        asks: the command by which its owner may say how long it will run; "": it is known well
            enough, or the owner has.
        base_s, model_s: the duration with which the model begins for every job, and the one that it
            predicts for this job; None: the terms of the prediction are not known.
    """

    p50_s: float
    p90_s: float | None = None
    odds: dict[str, float] = field(default_factory=dict)
    limit_s: float | None = None
    over: bool = False
    stated: bool = False
    ran_s: float | None = None
    foreseen: bool = False
    ended_here: int | None = None
    renewed: bool = False
    alike: Alike | None = None
    asks: str = ""
    base_s: float | None = None
    model_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """A job that runs now.

    Attributes:
        ran_s: seconds that it has run.
        likely_s, latest_s: seconds from now until its end, given that it has run so long: median
            and 90th percentile; None: not forecast.
        odds: chances to run longer in all than each of `LONG_S`, by name.
    """

    ran_s: float
    likely_s: float | None = None
    latest_s: float | None = None
    odds: Mapping[str, float] = field(default_factory=dict)


class Part(Protocol):
    """Terms of a prediction with the same meaning: the meaning in words, their joint factor on the
    predicted duration, and their names.
    """

    @property
    def text(self) -> str: ...
    @property
    def factor(self) -> float: ...
    @property
    def terms(self) -> Sequence[str]: ...


def belief(
    decisions: Sequence[Decision],
    limit_s: float | None,
    alike: Sequence[float] = (),
    *,
    base_s: float | None = None,
    asks: str = "",
    over: bool = False,
    stated_s: float | None = None,
    runs: Runs | None = None,
) -> Belief | None:
    """Return how long a job should run: as it was last predicted or, for a running job with a
    forecast, given that it has run so long. Return None where nothing is predicted.

    Args:
        decisions: the decisions about it, in order.
        limit_s: its time limit, seconds; None: none.
        alike: seconds that the latest jobs of its name and owner ran.
        base_s: the duration with which the model begins for every job, where the prediction's terms
            are known.
        asks: the command by which its owner may say how long it will run.
        over: whether it has ended.
        stated_s: the duration that is expected of it now, seconds. If it differs from that of the
            last decision, the job's own progress states it.
        runs: times of the job, where it runs now.
    """
    last = next((d for d in reversed(decisions) if d.estimate_s is not None), None)
    if last is None or last.estimate_s is None:
        return None
    spread = next((e for d in reversed(decisions) if "p90_s" in (e := dict(d.evidence))), None)
    cut = inf if limit_s is None else limit_s
    made = Belief(
        p50_s=min(last.estimate_s, cut),
        limit_s=limit_s,
        over=over,
        ran_s=None if runs is None else runs.ran_s,
        alike=Alike(len(alike), min(alike), max(alike)) if alike else None,
    )
    if stated_s is not None and not isclose(stated_s, last.estimate_s, rel_tol=0.01, abs_tol=1.0):
        return replace(made, p50_s=min(stated_s, cut), stated=True)
    made = replace(made, base_s=base_s, model_s=None if base_s is None else last.estimate_s)
    chances: Mapping[str, object] = {}
    if spread is not None:
        p50_s, p90_s = (min(cut, max(0.0, float(spread[name]))) for name in ("p50_s", "p90_s"))
        made, chances = replace(made, p50_s=p50_s, p90_s=p90_s), spread
        first = next((e for d in decisions if ENDED_HERE in (e := dict(d.evidence))), None)
        if first is not None:
            ended, renewed = round(float(str(first[ENDED_HERE]))), ENDED_HERE not in spread
            made = replace(made, ended_here=ended, renewed=renewed)
    if runs is not None and not over:
        chances = runs.odds
        if runs.likely_s is not None:
            most_s, late_s = cut - runs.ran_s, runs.latest_s
            made = replace(
                made,
                p50_s=runs.ran_s + max(0.0, min(runs.likely_s, most_s)),
                p90_s=None if late_s is None else runs.ran_s + max(0.0, min(late_s, most_s)),
                foreseen=True,
            )
    odds = {name: float(str(chances[name])) for name, s in LONG_S if s < cut and name in chances}
    made = replace(made, odds=odds)
    return replace(made, asks=asks) if spread is not None and is_open(made) else made


def belief_words(
    found: Belief, values: Mapping[str, str] | None = None, made_of: Sequence[Part] = ()
) -> str:
    """Return how long a job should run, in sentences.

    Args:
        values: the values of the prediction's terms as text, by name. Those of the job's command,
            its progress and what its owner expects are quoted.
        made_of: the terms themselves, grouped by meaning, those of the largest effect first.
    """
    if found.stated:
        return _by_progress(found)
    values = values or {}
    if found.ran_s is None or found.over:
        verb = "It was to" if found.over else "It should"
        sentences = [f"{verb} run {words(found.p50_s, found.p90_s, found.limit_s)}."]
    elif found.foreseen:
        likely_s, latest_s = found.p50_s - found.ran_s, found.p90_s
        latest_s = None if latest_s is None else latest_s - found.ran_s
        sentences = [_ends_in(found.ran_s, likely_s, latest_s)]
    else:
        sentences = [_has_run(found.ran_s, found.p50_s, found.p90_s)]
    sentences.append(guess_words(found))
    odds = "" if found.over or found.ran_s is not None else odds_words(found.odds)
    sentences += [f"{odds}."] if odds else []
    if found.asks:
        sentences.append(f"Is it a test, or how long will it run? {found.asks}.")
    expected, command = values.get(EXPECTED.name), values.get(COMMAND.name)
    sentences += [f"Its owner {expected}."] if expected else []
    sentences += [f"{alike_words(found.alike)}."] if found.alike is not None else []
    sentences += [f"{COMMAND.text.capitalize()} {command}."] if command else []
    if found.model_s is not None and found.base_s is not None and made_of:
        who = "From that the model predicts" if command else "The model predicts"
        terms = made_of_words(found.base_s, made_of, values.get(OWN.name, ""))
        sentences.append(f"{who} {duration(found.model_s)}: {terms}.")
        if found.p90_s is not None and found.ran_s is None:
            half = duration(found.p50_s)
            sentences += [f"Half of the jobs that it predicts so run at most {half}."]
    return " ".join(filter(None, sentences))


def guessed_words(found: Belief) -> str:
    """Return as a short sentence how long a job should run, and that this is a guess. Return ""
    where it is none: `guess_words` is "", or the job's own progress states the duration.
    """
    if found.stated or not guess_words(found):
        return ""
    since = ", predicted again since" if found.renewed else ""
    who = "of its owner" if found.ended_here else "here"
    lasts = duration(found.p50_s)
    return f"It should run about {lasts}, a guess: no job {who} had ended{since}."


def guess_words(found: Belief) -> str:
    """Return as a sentence that a job's prediction rests on no ended job, or on none of its owner.
    Return "" where it rests on one, or was made again after a job of that name had ended."""
    if found.ended_here is None or (found.renewed and found.alike is not None):
        return ""
    if not found.renewed:
        return rests_on_words(found.ended_here)
    who = "of its owner" if found.ended_here else "here"
    return f"When it was submitted, no job {who} had ended; it was predicted again since."


def made_of_words(base_s: float, made_of: Sequence[Part], own: str = "") -> str:
    """Return as text the factors of a prediction: "13 min as for every job, then ×0.40 (how long
    jobs like this one last) and ...". The first `SHOWN` are named, the rest together. Return ""
    without terms.

    Args:
        own: duration that the job's own progress states, as text.
    """
    says = f" says {own}" if own else ""
    parts = [
        f"{factor(one.factor)} ({one.text}{says if OWN.name in one.terms else ''})"
        for one in made_of[:SHOWN]
    ]
    if rest := made_of[SHOWN:]:
        together = fsum(log(max(one.factor, LEAST_FACTOR)) for one in rest)
        parts.append(f"{factor(exp(min(together, 700.0)))} (all else)")
    return f"{duration(base_s)} as for every job, then {listed(parts)}" if parts else ""


def _by_progress(found: Belief) -> str:
    """Return how long a job should run by its own progress, as a sentence."""
    verb = "was to" if found.over else "should"
    should = f"{verb} run {words(found.p50_s, None, found.limit_s)}"
    if found.ran_s is None:
        return f"It {should}, by its own progress."
    if found.ran_s > found.p50_s:
        more = f", longer than its own progress stated ({duration(found.p50_s)})"
    else:
        more = f"; by its own progress it {should} in all"
    return f"It has run {duration(found.ran_s)}{more}."


def _ends_in(ran_s: float, likely_s: float, latest_s: float | None) -> str:
    """Return a sentence on how long a job has run, and when it should end: the median and, if
    known, the 90th percentile.
    """
    soon = likely_s < 1.0
    text = "may end at any moment" if soon else f"should end in {roughly(likely_s)}"
    late = latest_s is not None and latest_s >= 1.0
    text += f", within {roughly(latest_s or 0.0)} {MOSTLY}" if late else ""
    return f"It has run {duration(ran_s)}; it {text}."


def _has_run(ran_s: float, p50_s: float, p90_s: float | None) -> str:
    """Return a sentence on how long a job has run, compared with the duration predicted before it
    began.
    """
    text = f"It has run {duration(ran_s)}"
    if p90_s is not None and ran_s > p90_s:
        return f"{text}, longer than nine of ten such jobs should ({duration(p90_s)})."
    if ran_s > p50_s:
        most = "" if p90_s is None else f"; nine of ten should end within {duration(p90_s)}"
        return f"{text}, longer than half of such jobs should ({duration(p50_s)}){most}."
    return f"{text}; it should run {words(p50_s, p90_s)} in all."


def words(p50_s: float, p90_s: float | None, limit_s: float | None = None) -> str:
    """Return a duration in words: "about 26 s; at most 76 s nine times in ten". Add that it is the
    time limit, where it reaches that."""
    text = f"about {duration(p50_s)}"
    if p90_s is not None:
        text += f"; at most {duration(p90_s)} {MOSTLY}"
    cut = limit_s is not None and max(p50_s, p90_s or 0.0) >= limit_s
    return f"{text} (its time limit)" if cut else text


def odds_words(odds: Mapping[str, float]) -> str:
    """Return the chances to last long: "Of a hundred jobs like it, 31 run over 6 h and 8 run over 1
    d". Chances below 5 % or above 95 % are left out. Return "" if none is left.
    """
    parts = [
        f"{100 * odds[name]:.0f} run over {duration(seconds)}"
        for name, seconds in LONG_S
        if name in odds and LEAST_ODDS <= odds[name] <= 1.0 - LEAST_ODDS
    ]
    return f"Of a hundred jobs like it, {listed(parts)}" if parts else ""


def rests_on_words(ended_here: int) -> str:
    """Return a sentence that says how few ended jobs a prediction rests on: none, or `ended_here`
    jobs of other users."""
    if not ended_here:
        return "That is a guess: when it was made, no job had ended here."
    others = count(ended_here, "job")
    return f"No job of its owner had ended when that was predicted: it rests on {others} of others."


def is_open(found: Belief) -> bool:
    """Return whether a waiting job may well run for hours, but may also be short, so that it is
    worth asking its owner. Return False for a job that runs or has ended.
    """
    if found.over or found.ran_s is not None:
        return False
    return are_open(found.odds)


def are_open(odds: Mapping[str, float]) -> bool:
    """Return whether chances to last long, by the names of `LONG_S`, leave open whether a job runs
    for an hour, or for six.
    """
    low, high = OPEN
    return any(low <= odds.get(name, 0.0) <= high for name, s in LONG_S if s < DAY_S)


def alike_words(found: Alike) -> str:
    """Return how long jobs of the name ran: "Its owner's last 12 jobs of this name ran 18 s to 40
    s".
    """
    low, high = duration(found.least_s), duration(found.most_s)
    how_long = low if low == high else f"{low} to {high}"
    last = f"last {count(found.jobs, 'job')}" if found.jobs > 1 else "last job"
    return f"Its owner's {last} of this name ran {how_long}"
