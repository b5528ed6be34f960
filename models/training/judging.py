"""Tests whether a candidate model is better than the champion (the model in use), beyond chance, on
rows that neither was trained on.

Each figure is over all rows, and its interval comes from a paired bootstrap: users are drawn with
replacement, with all their jobs, and both models are scored on the drawn jobs. Jobs of one user
resemble each other, so if single rows were drawn, any difference would look certain. A user's jobs
of one hour are often near-copies: n of them count as sqrt(n).

The figures compared are those in which the better model of a week is also the better one in the
weeks after (`python -m benchmarks.promotion --later`). The mean absolute error is not among them:
it rewards a median while the models fit a mean, so a small shift of all estimates decides it, and
in other weeks the other way.
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
        candidate, champion: the value of the figure for either model.
        gain: how much better the candidate is; below 0: how much worse.
        low, high: bounds of the gain's interval; the intervals of all figures hold together with 95
            % probability.
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
        """Return by which factor the number of jobs must grow until the candidate's gain is beyond
        chance, if the gain stays the same; 1 if it is already, None if there is no gain."""
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
        """Return all fields but the title, and the verdict, as plain JSON. An empty unit is left
        out."""
        found = {
            "candidate": self.candidate, "champion": self.champion, "gain": self.gain,
            "low": self.low, "high": self.high, "verdict": self.verdict,
        }  # fmt: skip
        return found | ({"unit": self.unit} if self.unit else {})


def better_in_all(figures: Sequence[Paired]) -> bool:
    """Return whether the candidate is better in at least one figure and worse in none."""
    verdicts = {figure.verdict for figure in figures}
    return "better" in verdicts and "worse" not in verdicts


def undecided(figures: Sequence[Paired]) -> bool:
    """Return whether the candidate is neither better nor worse in any figure: there is too little
    evidence."""
    return bool(figures) and {figure.verdict for figure in figures} == {"as good"}


def weeks_more(figures: Sequence[Paired], days: float) -> int | None:
    """Return in how many more weeks the candidate will be better in one figure, if its gain stays
    the same. Return None if it has no gain in any figure.

    Args:
        days: number of days in which the jobs came that the figures are computed on.
    """
    ahead = [figure.times_more for figure in figures if figure.times_more is not None]
    return max(1, ceil((min(ahead) - 1.0) * days / 7.0)) if ahead else None


def most_telling(figures: Sequence[Paired]) -> Paired:
    """Return the figure to name first: the first one in which the candidate is worse; if there is
    none, the first in which it is better."""
    order = {"worse": 0, "better": 1, "as good": 2}
    return min(figures, key=lambda figure: order[figure.verdict])


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The comparison of two models on the same rows.

    Attributes:
        figures: the figures that decide which model is better.
        rows, users: number of rows (jobs), and of their users.
        days: number of days in which the jobs came.
    """

    figures: tuple[Paired, ...]
    rows: int
    users: int
    days: float

    @property
    def better(self) -> bool:
        """Return whether the candidate is better in at least one figure and worse in none."""
        return better_in_all(self.figures)

    @property
    def reason(self) -> str:
        """Return the outcome of the comparison as one line: the figure of `most_telling`, and the
        numbers of jobs and users."""
        return f"{most_telling(self.figures)}; {self.rows:,} jobs of {self.users} users"

    def document(self) -> dict[str, Any]:
        """Return the comparison with all figures as plain JSON."""
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
        rows: rows of jobs that neither model was trained on, with the features of both.
        user: user of each row. The bootstrap draws users.

    Raises TrainingError if there are too few rows or users.
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
    """Return bootstrap weights of the units (users), shape (1 + resamples, units). The first row is
    all ones. Each other row counts how often a unit is drawn with replacement."""
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
    """Return the weight of each row, (n,): 1 / sqrt(n), where n is the number of rows that its user
    has in the same hour.

    Args:
        who: number of each row's user.
        time: time of each row, seconds.
    """
    hours = np.stack([who, time // HOUR_S])
    _, place, count = np.unique(hours, axis=1, return_inverse=True, return_counts=True)
    return np.asarray(1.0 / np.sqrt(count[place.ravel()]))


@dataclass(frozen=True, slots=True)
class _Drawn:
    """Rows, (n,), with a bootstrap over their users.

    To compute a figure in all resamples, sums over the rows of each user (or pair of users) are
    computed once, and then weighted.

    Attributes:
        who: number of the user of each row; weight: how much the row counts.
        times: how often each user is drawn, (draws, users).
    """

    who: NDArray[np.intp]
    weight: Floats
    times: Floats

    def totals(self, values: Floats) -> Floats:
        """Return the weighted sum of `values` in each resample of the rows, an array (draws,)."""
        users = self.times.shape[1]
        return np.asarray(self.times @ np.bincount(self.who, self.weight * values, users))

    def by_user(self, place: NDArray[np.intp], of: NDArray[np.bool_], width: int) -> Floats:
        """Return the summed weight of each user's rows at each place, (users, width).

        Args:
            place: place of each row, 0 to width - 1.
            of: mask of the rows that count.
        """
        users = self.times.shape[1]
        at = self.who[of] * width + place[of]
        found = np.bincount(at, self.weight[of], users * width).astype(np.float64)
        return np.asarray(found.reshape(users, width))


def _rmse(score: Floats, duration_s: Floats, drawn: _Drawn) -> Floats:
    miss = ((score - np.log1p(duration_s)) / LN10) ** 2
    return np.asarray(np.sqrt(drawn.totals(miss) / drawn.totals(np.ones(len(miss)))))


def _order(score: Floats, duration_s: Floats, drawn: _Drawn) -> Floats:
    """Return how well a score orders jobs by duration, in each resample of the rows, an array
    (draws,): the mean AUC of "runs longer than a limit" over the limits for which it is defined;
    NaN if it is defined for none."""
    _, place = np.unique(score, return_inverse=True)
    each = np.array([_auc(place.ravel(), duration_s > limit, drawn) for limit in LIMITS_S])
    known = np.isfinite(each)
    total = np.where(known, each, 0.0).sum(axis=0)
    with np.errstate(invalid="ignore"):
        return np.asarray(total / known.sum(axis=0))


def _auc(place: NDArray[np.intp], positive: NDArray[np.bool_], drawn: _Drawn) -> Floats:
    """Return the area under the ROC curve (see `metrics.auc`) in each resample of the rows, an
    array (draws,); NaN where only one class has weight.

    Args:
        place: rank of each row's score; equal scores have equal ranks.
        positive: whether the row is of the positive class.
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
