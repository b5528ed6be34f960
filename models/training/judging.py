"""Is a candidate better than the champion, beyond chance? On the same rows, which neither saw.

Each figure is over all rows, and its interval comes from a paired bootstrap: users are drawn with
replacement, with all their jobs, and both models are scored on what was drawn. Jobs of one user
resemble each other, so rows drawn one by one would make any difference look firm. Those of one
hour are often near-copies: n of them count as sqrt(n).

The figures are those in which a week agrees with the weeks after it (`python -m
benchmarks.promotion --later`). The mean absolute error is not among them: it asks for a median
where the models fit a mean, so a small shift of all estimates decides it, to the better in one week
and to the worse in the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from features.rows import DAY_S, Rows
from models.bundle import AdditiveModel
from models.training.errors import TrainingError
from models.training.metrics import LN10

Floats = NDArray[np.float64]

RESAMPLES = 1000
# A candidate that is neither better nor worse is judged again a week later, on the jobs of all
# weeks since, this often at most: to tell two good models apart takes weeks.
LOOKS = 5
# Of the intervals of all figures together: rows and replays have six kinds of them, and among so
# many one is above chance now and then. Eleven and not six, so that a model that is as good is
# promoted by chance in fewer than 5 of 100, all figures and all looks together.
LEVEL, TOGETHER = 0.95, 11
LEAST_ROWS = 200
LEAST_USERS = 8
HOUR_S = 3600.0
WIDTH = 2048  # scores whose pairs are counted at once
# Who runs longer is asked at each of these, from jobs that fail at once to those of days.
LIMITS_S = 60.0, 300.0, 1800.0, HOUR_S, 4 * HOUR_S, 6 * HOUR_S, 24 * HOUR_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """One figure of both models on the same rows.

    Attributes:
        title: name of the figure.
        candidate, champion: its value for either model.
        gain: how much better the candidate is; below 0: how much worse.
        low, high: interval of the gain; 95 % for all figures together.
        unit: unit of all these values; "" is a plain number.
    """

    title: str
    candidate: float
    champion: float
    gain: float
    low: float
    high: float
    unit: str = ""

    @property
    def verdict(self) -> str:
        """Return "better" or "worse" if the interval of the gain excludes 0, otherwise "as
        good".
        """
        return "better" if self.low > 0 else "worse" if self.high < 0 else "as good"

    @property
    def times_more(self) -> float | None:
        """Return how many times as many jobs it takes to tell the candidate's lead from chance, if
        the lead stays; 1 where it is known already, None where there is no lead.
        """
        if self.gain <= 0:
            return None
        return max(1.0, ((self.gain - self.low) / self.gain) ** 2)

    def __str__(self) -> str:
        shape, unit = (",.0f", f" {self.unit}") if self.unit else (".4f", "")
        return (
            f"{self.title} {self.candidate:{shape}}{unit}, the champion's "
            f"{self.champion:{shape}}{unit}: {self.verdict} by {self.gain:+{shape}}{unit} "
            f"({self.low:+{shape}} to {self.high:+{shape}})"
        )

    def document(self) -> dict[str, Any]:
        """Return all but the title as plain JSON."""
        found = {
            "candidate": self.candidate, "champion": self.champion, "gain": self.gain,
            "low": self.low, "high": self.high, "verdict": self.verdict,
        }  # fmt: skip
        return found | ({"unit": self.unit} if self.unit else {})


def better_in_all(figures: Sequence[Paired]) -> bool:
    """Return whether a candidate is better in one figure, and worse in none."""
    verdicts = {figure.verdict for figure in figures}
    return "better" in verdicts and "worse" not in verdicts


def undecided(figures: Sequence[Paired]) -> bool:
    """Return whether a candidate is better in no figure, and worse in none: there is too little
    evidence either way.
    """
    return bool(figures) and {figure.verdict for figure in figures} == {"as good"}


def weeks_more(figures: Sequence[Paired], days: float) -> int | None:
    """Return how many weeks more it takes until the candidate is better in one figure, if it stays
    as far ahead; None where it is ahead in none.

    Args:
        days: how long the jobs came on which the figures are.
    """
    ahead = [figure.times_more for figure in figures if figure.times_more is not None]
    return max(1, ceil((min(ahead) - 1.0) * days / 7.0)) if ahead else None


def most_telling(figures: Sequence[Paired]) -> Paired:
    """Return the first figure that is worse; if none is, the first that is better."""
    order = {"worse": 0, "better": 1, "as good": 2}
    return min(figures, key=lambda figure: order[figure.verdict])


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The comparison of two models on the same rows.

    Attributes:
        figures: the figures that decide.
        rows, users: number of rows, and of their users.
        days: how long they came.
    """

    figures: tuple[Paired, ...]
    rows: int
    users: int
    days: float

    @property
    def better(self) -> bool:
        """Return whether the candidate is better in one figure, and worse in none."""
        return better_in_all(self.figures)

    @property
    def reason(self) -> str:
        """Return the judgement as one line. The figure with the clearest difference comes first."""
        return f"{most_telling(self.figures)}; {self.rows:,} jobs of {self.users} users"

    def document(self) -> dict[str, Any]:
        """Return the whole judgement as plain JSON."""
        figures = {one.title: one.document() for one in self.figures}
        return {
            "rows": self.rows, "users": self.users, "days": self.days, "level": LEVEL,
            "figures": figures,
        }  # fmt: skip


def judge(
    candidate: AdditiveModel,
    champion: AdditiveModel,
    rows: Rows,
    user: Sequence[object],
    *,
    seed: int = 0,
) -> Judgement:
    """Compare both models on rows of ended jobs, and return the judgement.

    Args:
        rows: with the features of both, of jobs that neither saw.
        user: user of each row; the unit that is drawn.

    Raises TrainingError when the rows are too few to say anything.
    """
    _, who = np.unique(np.array([str(one) for one in user], dtype=object), return_inverse=True)
    users = int(who.max()) + 1 if len(who) else 0
    if len(rows) < LEAST_ROWS or users < LEAST_USERS:
        raise TrainingError(
            f"{len(rows)} jobs of {users} users that neither model saw: to compare them takes "
            f"{LEAST_ROWS} of {LEAST_USERS}"
        )
    drawn = _Drawn(who, _alone(who, rows.time), drawn_again(users, np.random.default_rng(seed)))
    scores = [model.score_batch(rows.X) for model in (candidate, champion)]
    figures = [
        paired("AUC of order", [_order(score, rows.y, drawn) for score in scores], sign=1.0),
        paired("RMSE of log10", [_rmse(score, rows.y, drawn) for score in scores], sign=-1.0),
    ]
    known = tuple(figure for figure in figures if figure is not None)
    days = float(rows.time.max() - rows.time.min()) / DAY_S
    return Judgement(figures=known, rows=len(rows), users=users, days=days)


def drawn_again(units: int, draw: np.random.Generator) -> Floats:
    """Return bootstrap weights of the units, shape (1 + resamples, units). The first row is all
    ones. Each other row counts how often a unit is drawn with replacement.
    """
    drawn = draw.multinomial(units, np.full(units, 1 / units), RESAMPLES)
    return np.concatenate([np.ones((1, units)), drawn.astype(np.float64)])


def paired(
    title: str,
    values: Sequence[Floats],
    *,
    sign: float,
    unit: str = "",
    among: int = 1,
) -> Paired | None:
    """Return one figure of the candidate and the champion, with the interval of its gain. Return
    None if the figure is not defined on these rows.

    Args:
        values: the figure of the candidate and of the champion; the first entry is on all rows, the
            others on resamples.
        sign: 1 if a larger figure is better, -1 if a smaller one is.
        among: number of such figures that are judged together; the interval is wider for more.
    """
    candidate, champion = values
    gain = sign * (candidate - champion) + 0.0  # no -0
    spread = gain[1:][np.isfinite(gain[1:])]
    if not np.isfinite(gain[0]) or len(spread) < RESAMPLES / 2:
        return None
    outside = (1 - LEVEL) / TOGETHER / among / 2
    low, high = np.quantile(spread, [outside, 1 - outside], method="weibull").tolist()
    return Paired(
        title=title,
        candidate=float(candidate[0]),
        champion=float(champion[0]),
        gain=float(gain[0]),
        low=low,
        high=high,
        unit=unit,
    )


def _alone(who: NDArray[np.intp], time: Floats) -> Floats:
    """Return the weight of each row, (n,): 1 / sqrt(n) of the n jobs of its user whose rows
    were taken in the same hour.
    """
    hours = np.stack([who, time // HOUR_S])
    _, place, count = np.unique(hours, axis=1, return_inverse=True, return_counts=True)
    return np.asarray(1.0 / np.sqrt(count[place.ravel()]))


@dataclass(frozen=True, slots=True)
class _Drawn:
    """Rows, (n,), whose users are drawn again and again.

    A figure is made of sums over the rows of a user, or of two, that are made once.

    Attributes:
        who: user of each row; weight: how much the row counts.
        times: how often each user is drawn, (draws, users).
    """

    who: NDArray[np.intp]
    weight: Floats
    times: Floats

    def totals(self, values: Floats) -> Floats:
        """Return the weighted total of the values in each draw, (draws,)."""
        users = self.times.shape[1]
        return np.asarray(self.times @ np.bincount(self.who, self.weight * values, users))

    def by_user(self, place: NDArray[np.intp], of: NDArray[np.bool_], width: int) -> Floats:
        """Return the weight of each user's rows `of` at each place, (users, width)."""
        users = self.times.shape[1]
        at = self.who[of] * width + place[of]
        found = np.bincount(at, self.weight[of], users * width).astype(np.float64)
        return np.asarray(found.reshape(users, width))


def _rmse(score: Floats, duration_s: Floats, drawn: _Drawn) -> Floats:
    miss = ((score - np.log1p(duration_s)) / LN10) ** 2
    return np.asarray(np.sqrt(drawn.totals(miss) / drawn.totals(np.ones(len(miss)))))


def _order(score: Floats, duration_s: Floats, drawn: _Drawn) -> Floats:
    """Return the AUC of running longer than a limit in each draw, (draws,): the mean over the
    limits for which it is defined; NaN if it is for none.
    """
    _, place = np.unique(score, return_inverse=True)
    each = np.array([_auc(place.ravel(), duration_s > limit, drawn) for limit in LIMITS_S])
    known = np.isfinite(each)
    total = np.where(known, each, 0.0).sum(axis=0)
    with np.errstate(invalid="ignore"):
        return np.asarray(total / known.sum(axis=0))


def _auc(place: NDArray[np.intp], positive: NDArray[np.bool_], drawn: _Drawn) -> Floats:
    """Return the AUC (`metrics.auc`) in each draw, (draws,), of rows in the order of their
    places; NaN where all weight is on one class.
    """
    users = drawn.times.shape[1]
    right, below = np.zeros((users, users)), np.zeros(users)
    for first in range(0, int(place.max()) + 1, WIDTH):
        here = (place >= first) & (place < first + WIDTH)
        up = drawn.by_user(place - first, here & positive, WIDTH)
        down = drawn.by_user(place - first, here & ~positive, WIDTH)
        right += up @ (below[:, None] + np.cumsum(down, axis=1) - down / 2).T
        below += down.sum(axis=1)
    pairs = drawn.totals(positive.astype(np.float64)) * drawn.totals((~positive).astype(np.float64))
    found = ((drawn.times @ right) * drawn.times).sum(axis=1)
    return np.asarray(np.divide(found, pairs, out=np.full(len(pairs), np.nan), where=pairs > 0))
