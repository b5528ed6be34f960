"""Predictions from repeated runs: a job that was run before lasts about as long again.

The last runs of the same command, job name or template make a claim (a range of durations): the
next run ends between the shortest and the longest of them, or a fifth beyond. So do the shares of
their time limits that the last jobs of a user ran for, whatever they were (Tsafrir, Etsion and
Feitelson 2007): who asks for thrice the time that is needed does so again. Claims are of kinds:
how many runs there were, how well they agreed, and whether another such run goes on now and has
already outlasted the claim. A claim is trusted as often as claims of its kind have held. So a few
runs that agree can count for more than a thousand jobs of other users.

The duration that an owner expects of a job is a claim, too. It is trusted as often as that owner's
earlier ones have held.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from math import exp, log, log1p
from typing import NamedTuple

from features import portable
from features.expected import NAMED_S, expected, seconds_of
from features.throughput import in_words

LAST = 3  # runs that make a claim
BEYOND = 0.2  # of ln(1 + seconds), on either side of what they lasted
# How well runs agree, ln(longest / shortest): where kinds of claims end. Beyond, none is made.
AGREES = (0.1, 0.2, 0.4, 0.8)
MEMORY = 200.0  # claims of a kind that count
PRIOR = 4.0  # claims that what is believed of a kind before any has been seen is worth
_ONE, _TWO = 0.5, 0.75  # after one run, and after two that agree
_ALL = (0.85, 0.8, 0.7, 0.6)  # after `LAST` of them, by how well they agree
# What runs are the same of; of those shares, how much is believed of each: the runs of a template
# need not be of one command, nor need those of a user that had time limits.
LIMIT = "limit"
OF = {"command": 1.0, "name": 1.0, "kind": 0.8, LIMIT: 0.5}
_OUTLASTED = 0.5  # of those, where another that runs now has outlasted the claim

STATED_KEPT = 20  # statements of an owner that count
STATED_PRIOR = 3.0  # of an owner's, that those of all owners are worth; of one kind, all kinds
STATED_SHARE = 0.5  # of all statements, before any has been seen
LONG_S = 3600.0  # what is to last longer is believed by another record than what is not


class Claim(NamedTuple):
    """A claim about a job's duration: that it lies between two bounds.

    Attributes:
        low_s, high_s: the bounds, seconds of running time.
        share: the share of such claims that hold, 0 to 1.
        text: the evidence for the claim, in words.
        by_owner: whether the job's owner makes it; otherwise its last runs do.
    """

    low_s: float
    high_s: float
    share: float
    text: str = ""
    by_owner: bool = False

    def holds(self, duration_s: float) -> bool:
        """Return whether `duration_s`, the duration of a job that has ended, lies within the
        claim's bounds."""
        return self.low_s <= duration_s <= self.high_s


class Kind(NamedTuple):
    """The kind of a claim from repeated runs. For each kind it is counted how often its claims
    hold.

    Attributes:
        of: what the runs have in common: one of `OF`.
        runs: how many runs make the claim, at most `LAST`.
        agree: how closely the runs agree, as an index in `AGREES`.
        outlasted: whether another such run goes on now and has outlasted them.
    """

    of: str
    runs: int
    agree: int
    outlasted: bool

    @property
    def prior(self) -> float:
        """Return the share of this kind's claims, 0 to 1, that is assumed to hold before any has
        been seen."""
        share = {1: _ONE, 2: _TWO}.get(self.runs, _ALL[self.agree])
        share *= OF[self.of]
        return share * _OUTLASTED if self.outlasted else share


class Made(NamedTuple):
    """A range of a job's duration (seconds) that its last runs suggest. Unlike a `Claim`, it does
    not say how often such ranges hold."""

    kind: Kind
    low_s: float
    high_s: float


def made_of(of: str, runs_s: Sequence[float], longest_now_s: float) -> Made | None:
    """Return the range of durations within which the next run should end, by up to three latest
    runs. Return None if there are no runs, or they differ too much.

    Args:
        of: what the runs have in common, a key of `OF`.
        runs_s: durations of the latest runs, seconds, oldest first.
        longest_now_s: how many seconds the longest-running similar job has run so far; NaN: none
            runs.
    """
    last = sorted(map(log1p, runs_s[-LAST:]))
    if not last or last[-1] - last[0] > AGREES[-1]:
        return None
    agree = next(place for place, most in enumerate(AGREES) if last[-1] - last[0] <= most)
    low_s, high_s = portable.expm1(last[0] - BEYOND), portable.expm1(last[-1] + BEYOND)
    kind = Kind(of, len(last), agree if len(last) > 1 else 0, longest_now_s > high_s)
    return Made(kind, low_s, high_s)


class Repeats:
    """A record of how often claims of each kind have held. Newer claims count more."""

    def __init__(self) -> None:
        self._held: dict[Kind, tuple[float, float]] = {}  # claims that held, and all of them

    def learn(self, made: Made, duration_s: float) -> None:
        """Record whether the claim `made` held for a job that ended after `duration_s`."""
        keep = 1.0 - 1.0 / MEMORY
        held, of = self._held.get(made.kind, (0.0, 0.0))
        holds = made.low_s <= duration_s <= made.high_s
        self._held[made.kind] = held * keep + holds, of * keep + 1.0

    def share(self, kind: Kind) -> float:
        """Return the share of this kind's claims that held, 0 to 1. While there are few, it is near
        `kind.prior`."""
        held, of = self._held.get(kind, (0.0, 0.0))
        return (held + PRIOR * kind.prior) / (of + PRIOR)

    def best(self, made: Sequence[Made | None]) -> Claim | None:
        """Return the claim of `made` with the kind that holds most often, the first of equal ones;
        None if there is none.

        Args:
            made: ranges for one job, each from other earlier runs; None where there is none.
        """
        found = [one for one in made if one is not None]
        if not found:
            return None
        one = max(found, key=lambda one: self.share(one.kind))
        share = self.share(one.kind)
        runs = f"last runs, {one.kind.runs}" if one.kind.runs > 1 else "last run"
        what = f"of this {one.kind.of}"
        if one.kind.of == LIMIT:
            what = "of its owner, by the shares of their limits"
        between = f"{in_words(one.low_s)} to {in_words(one.high_s)}"
        return Claim(one.low_s, one.high_s, share, f"{runs} {what}: {between}, {_holds(share)}")


class Word(NamedTuple):
    """How reliable an owner's expected durations have been: of `of` jobs that ended, `held` lasted
    as long as expected."""

    held: int
    of: int


class Statements:
    """A record, per owner, of which of the last `STATED_KEPT` expected durations held: of those
    above an hour, and of the others."""

    def __init__(self) -> None:
        self._of: OrderedDict[tuple[str, bool], deque[bool]] = OrderedDict()
        self._all: dict[bool, tuple[float, float]] = {}

    def learn(self, owner: str, low_s: float, high_s: float, duration_s: float) -> None:
        """Record that a job ended after `duration_s`, while its owner had expected between `low_s`
        and `high_s`."""
        long, held = _is_long(low_s, high_s), low_s <= duration_s <= high_s
        mine = self._of.setdefault((owner, long), deque(maxlen=STATED_KEPT))
        mine.append(held)
        self._of.move_to_end((owner, long))
        keep = 1.0 - 1.0 / MEMORY
        before, of = self._all.get(long, (0.0, 0.0))
        self._all[long] = before * keep + held, of * keep + 1.0

    def claim(self, owner: str, expect: str) -> Claim | None:
        """Return the claim that an owner's expected duration makes about a job. Its share is that
        of the owner's expectations that have held; while there are few, it is near that of all
        owners. Return None if `expect` gives no range."""
        between = expected(expect)
        if between is None:
            return None
        long = _is_long(*between)
        held, of = self._all.get(long, (0.0, 0.0))
        general = (held + PRIOR * STATED_SHARE) / (of + PRIOR)
        word, mine = self.word(owner), self._of.get((owner, long), ())
        share = (word.held + STATED_PRIOR * general) / (word.of + STATED_PRIOR)
        share = (sum(mine) + STATED_PRIOR * share) / (len(mine) + STATED_PRIOR)
        low_s, high_s = between
        says = f"a {expect} run" if expect in NAMED_S else in_words(seconds_of(expect))
        record = f"right in {word.held} of {word.of}" if word.of else "no statement has ended yet"
        text = f"expects {says}: {record}, {_holds(share)}"
        return Claim(low_s, high_s, share, text, by_owner=True)

    def word(self, owner: str) -> Word:
        """Return how many of an owner's latest expected durations held, and how many these are: of
        jobs that ended, the last `STATED_KEPT` above an hour and as many others."""
        mine = [held for long in (False, True) for held in self._of.get((owner, long), ())]
        return Word(sum(mine), len(mine))


def _holds(share: float) -> str:
    return f"believed in {100 * share:.0f} of 100 cases"


def _is_long(low_s: float, high_s: float) -> bool:
    return exp(0.5 * (log(max(low_s, 1.0)) + log(max(high_s, 1.0)))) > LONG_S
