"""The odds that a job runs long: of the distribution that decides, and what each reason moves.

The odds are the share of the points above a time, by which the policy itself judges expected times
(`DurationDistribution`). Reasons are added to where every job starts one by one, the largest in
front, as in the waterfall of the same terms: their points sum to the whole. In another order one
alone may move more, or less.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from scheduler.core.decisions import Score
from scheduler.core.durations import DurationDistribution
from scheduler.core.plural import count
from scheduler.explain import thoughts
from scheduler.explain.answer import Odds, OddsReason
from scheduler.explain.terms import TOLERANCE, gap_of, seconds_of
from scheduler.explain.words import duration, listed, percent

TIMES_S = (3600.0, 21_600.0, 86_400.0)  # of which the odds nearest to even ones are shown

RARE = 0.005  # odds, hardly any


def odds(
    believed: DurationDistribution,
    predicted_s: float,
    limit_s: float | None,
    score: Score | None,
    names: Sequence[str],
) -> Odds | None:
    """The odds; None where the job may not run for the shortest of the times.

    Args:
        predicted_s: duration that is believed of the job; limit_s: its time limit.
        score: behind the prediction.
        names: of its terms; not as many as there are terms: unknown, and no reason is given.
    """
    times = [over_s for over_s in TIMES_S if limit_s is None or over_s < limit_s]
    if not times:
        return None
    over_s = min(times, key=lambda at: abs(believed.exceeds(predicted_s, at) - 0.5))
    share = believed.exceeds(predicted_s, over_s)
    starts, reasons = share, list[OddsReason]()
    if score is not None and _explains(score, predicted_s, names):
        total = score.intercept
        starts = before = believed.exceeds(seconds_of(total), over_s)
        found = thoughts.thoughts(zip(names, score.terms, strict=True))
        for last, one in enumerate(found, 1 - len(found)):
            total += one.contribution
            after = share if last == 0 else believed.exceeds(seconds_of(total), over_s)
            reasons.append(OddsReason(one.text, 100 * (after - before)))
            before = after
    return Odds(over_s, share, starts, tuple(reasons), _words(over_s, share, starts, reasons))


def _explains(score: Score, predicted_s: float, names: Sequence[str]) -> bool:
    """Whether the terms are known, and are what is believed."""
    known = len(names) == len(score.terms) > 0 and gap_of(score) <= TOLERANCE
    return known and math.isclose(seconds_of(score.value), predicted_s, abs_tol=1e-6)


def _words(over_s: float, share: float, starts: float, reasons: Sequence[OddsReason]) -> str:
    """ "35 % over 1 h: every job starts at 20 %; 12 points more for how long ..."."""
    rare = "unlikely to run so long: " if share < RARE else ""
    head = f"{rare}{percent(share)} over {duration(over_s)}"
    shown = [one for one in reasons if round(one.points)]
    if not shown:
        return f"{head}."
    shown.sort(key=lambda one: -abs(one.points))
    terms = [f"{_points(one.points)} for {one.text}" for one in shown[: thoughts.SHOWN]]
    rest = 100 * (share - starts) - sum(one.points for one in shown[: thoughts.SHOWN])
    if round(rest):
        terms.append(f"{_points(rest)} for all else")
    return f"{head}: every job starts at {percent(starts)}; {listed(terms)}."


def _points(points: float) -> str:
    return f"{count(round(abs(points)), 'point')} {'more' if points > 0 else 'less'}"
