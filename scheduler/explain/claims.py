"""Claims about jobs that can turn out false, such as "it starts by 16:40", and records of how often
they held."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import exp, sqrt
from typing import Any

from scheduler.core.request import CHANGEABLE
from scheduler.explain.effect import WhatIfAnswer

SOON_S = 3.0  # what starts within so long started at once
GRACE_S = 2.0  # what it takes to start a process: no forecast promises that
SPEED = 0.1  # a speed that is nearer than this is as was stated
VALID_S = 120.0  # an offer is of its moment: who takes it later takes another
ROOM_S = 120.0  # of whom it is claimed that there is room for it starts within so long
NEVER_S = 7 * 86_400.0  # as far as futures are followed
Z = 1.96  # of intervals of nineteen in twenty


class Kind(StrEnum):
    """The kinds of claims, each with the words in which its record is shown."""

    OFFER_AT_ONCE = "offer_at_once"
    OFFER_SOONER = "offer_sooner"
    OFFER_P90 = "offer_p90"
    OFFER_BESIDE = "offer_beside"
    OFFER_SPEED = "offer_speed"
    OFFER_END = "offer_end"
    AT_ONCE = "at_once"
    BY_P90 = "by_p90"
    NEVER = "never"
    ROOM = "room"

    @property
    def words(self) -> str:
        return _WORDS[self]

    @property
    def is_offer(self) -> bool:
        """Whether the claim is about a suggested change (an offer). It is judged only once the
        job's owner has made the change."""
        return self.value.startswith("offer_")


_WORDS = {
    Kind.OFFER_AT_ONCE: f"an offer: it starts at once (within {SOON_S:g} s of the change)",
    Kind.OFFER_SOONER: "an offer: it starts sooner than it would as it is",
    Kind.OFFER_P90: "an offer: it starts by its p90",
    Kind.OFFER_BESIDE: "an offer: it shares GPUs, or has its own, as stated",
    Kind.OFFER_SPEED: f"an offer: it runs at the speed stated, within {SPEED:g}",
    Kind.OFFER_END: "an offer: it ends by its p90",
    Kind.AT_ONCE: f"it starts at once (within {SOON_S:g} s)",
    Kind.BY_P90: "it starts by the p90 of its first forecast",
    Kind.NEVER: "it never starts as it is, or in no future",
    Kind.ROOM: f"there is room for it now (it starts within {ROOM_S:g} s)",
}


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim about a job.

    Attributes:
        made_at: when it was made, seconds since the epoch.
        change: for an offer: the fields of the request that the job is to change, with their new
            values.
        due: time by which the claimed event must have happened, for an offer as if the change were
            made at `made_at`; None: the claim has no time.
        figure: the claimed speed; for `OFFER_BESIDE`, 1 beside another job and 0 alone.
    """

    kind: Kind
    job_id: str
    made_at: float
    change: Mapping[str, Any] = field(default_factory=dict)
    due: float | None = None
    figure: float | None = None


def of_offer(answer: WhatIfAnswer, now: float) -> Iterator[Claim]:
    """Yield the claims that an answer to "what if" contains: on the job's start, whether it shares
    GPUs, its speed and its end. Yield none if there is no answer, or the change is not one that the
    job's owner can make."""
    change, then = answer.changes, answer.then
    if not change or change.keys() - CHANGEABLE.keys() or answer.unavailable or then is None:
        return

    def claim(kind: Kind, due: float | None = None, figure: float | None = None) -> Claim:
        return Claim(
            kind=kind, job_id=answer.job_id, made_at=now, change=change, due=due, figure=figure
        )

    if answer.starts_now:
        yield claim(Kind.OFFER_AT_ONCE, now)
    else:
        was = answer.now.start_p50 if answer.now is not None else None
        sooner = answer.gain_s is not None and answer.gain_s > 0 and answer.futures > 0
        if sooner and was is not None:
            yield claim(Kind.OFFER_SOONER, was)
        if then.start_p90 is not None:
            yield claim(Kind.OFFER_P90, then.start_p90)
    if answer.speed is not None:
        yield claim(Kind.OFFER_BESIDE, figure=float(answer.beside))
        if not answer.guessed:
            yield claim(Kind.OFFER_SPEED, figure=answer.speed)
    if then.end_p90 is not None:
        yield claim(Kind.OFFER_END, then.end_p90)


@dataclass(frozen=True, slots=True)
class Record:
    """How often the statements of one kind that the service made about jobs came true.

    Attributes:
        what: the claim in words.
        held, judged: number of claims that held, and of those that were judged.
        low, high: the share that holds in the long run lies between these with 95 % confidence
            (Wilson 1927).
        open: number of claims that are not judged yet.
    """

    kind: str
    what: str
    held: int
    judged: int
    low: float
    high: float
    open: int = 0

    @classmethod
    def of(cls, kind: Kind, held: int, judged: int, left: int = 0) -> Record:
        low, high = interval(held, judged)
        return cls(
            kind=kind.value,
            what=kind.words,
            held=held,
            judged=judged,
            low=low,
            high=high,
            open=left,
        )


def interval(held: int, judged: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of the share of claims that hold; (0, 1) where no claim was
    judged."""
    if not judged:
        return 0.0, 1.0
    share, spread = held / judged, Z * Z / judged
    middle = (share + spread / 2) / (1 + spread)
    half = Z * sqrt(share * (1 - share) / judged + spread / (4 * judged)) / (1 + spread)
    low = 0.0 if not held else max(0.0, middle - half)
    return low, 1.0 if held == judged else min(1.0, middle + half)


# Futures know how long jobs may run, and not what else makes them late. So the p90 of an offer is
# put off by a factor of `NEAR_S` + wait that goes up when one is broken and down while they are
# kept: one in ten is broken in the long run (Gibbs and Candes, NeurIPS 2021).
BROKEN, PACE = 0.1, 0.2
BEGIN, MOST_LATE = 0.4, 1.5  # logarithms of that factor
NEAR_S = 10.0  # a few seconds more or less are no news
JUDGED = 200  # offers, the latest, that it is learned from


def late_by(held: Iterable[bool]) -> float:
    """Return the natural logarithm of the factor by which the wait until the p90 of an offer (a
    suggested change) is lengthened. It grows with offers that did not hold, and shrinks with those
    that did.

    Args:
        held: whether each offer that was taken held, in order of judgement.
    """
    late = BEGIN
    for one in held:
        late = min(MOST_LATE, max(0.0, late + PACE * ((not one) - BROKEN)))
    return late


def put_off(answer: WhatIfAnswer, now: float, late: float) -> WhatIfAnswer:
    """Return an answer in which the p90 of the start is later, by the factor exp(`late`) on
    `NEAR_S` and the wait until then, but not later than without the change. The p90 of the end
    moves by as many seconds. If the start is decided already, or its p90 is unknown, the answer is
    returned unchanged."""
    then, was = answer.then, answer.now.start_p90 if answer.now is not None else None
    if answer.starts_now or then is None or then.start_p90 is None:
        return answer
    by_s = (NEAR_S + max(0.0, then.start_p90 - now)) * (exp(late) - 1.0)
    if was is not None:
        by_s = min(by_s, max(0.0, was - then.start_p90))
    end = None if then.end_p90 is None else then.end_p90 + by_s
    return replace(answer, then=replace(then, start_p90=then.start_p90 + by_s, end_p90=end))


def start_kind(*, starts_now: bool) -> Kind:
    """Return the kind of claim about a start by which an offer (a suggested change) as a whole is
    judged."""
    return Kind.OFFER_AT_ONCE if starts_now else Kind.OFFER_SOONER


def same_change(asked: Mapping[str, object], offered: Mapping[str, object]) -> bool:
    """Return whether a change that was made equals a change that was suggested. "" and None count
    as equal.
    """
    plain = ({k: None if v == "" else v for k, v in one.items()} for one in (asked, offered))
    return next(plain) == next(plain)
