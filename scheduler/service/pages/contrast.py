"""Compares two models on the same jobs, and shows which terms moved a user's estimates.

A score is a sum of terms. So the difference of two mean scores is a sum over the same terms, and
what remains is due to a change of the models in between.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection

from features.spec import Value
from models.bundle import AdditiveModel, Bundle, Term
from scheduler.charts.chart import Chart
from scheduler.charts.shapes import factor_text, feature_text, shape
from scheduler.explain.words import number
from scheduler.service.log.beside import STATES, Beside, Ended, beside, scores
from scheduler.service.log.store.tables import jobs
from scheduler.service.pages.workbench import Group, Moved, groups_of, most_moved, row_of

Floats = NDArray[np.float64]

SHAPES = 4  # that differ most
DAY_S = 86_400.0
NOW_S, THEN_S = 7 * DAY_S, 28 * DAY_S  # of a user's jobs: this week's, beside three weeks before
MOST = 500  # scores of a user that are read
LEAST = 3  # jobs of each time
SHOWN = 12  # terms


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """How two models compare on the same jobs.

    Attributes:
        found: how the second model compares with the first, beyond chance or not.
        groups: errors of the first (before) and of the second (after), by group of jobs.
        moved: predictions that differ most, by the first (before) and by the second (after).
        shapes: charts of the shape functions that differ most, as (first model's, second model's).
        only: terms that one of the models lacks, in words.
    """

    found: Beside
    groups: tuple[Group, ...] = ()
    moved: tuple[Moved, ...] = ()
    shapes: tuple[tuple[Chart, Chart], ...] = ()
    only: tuple[str, ...] = ()


def contrast(one: Bundle, other: Bundle, seen: Sequence[Ended], role: str) -> Contrast:
    """Return how two models compare on the same jobs.

    Args:
        seen: jobs with the inputs of the first model's scores. Running jobs count in the
            comparison, but are in no group.
        role: role of the second model: "former" or "shadow".
    """
    found = beside(role, other, one, seen)
    ended = [job for job in seen if not job.running]
    first, then = one.duration, other.duration
    shapes, only = _shapes(first, then)
    if found.why_not or not ended:
        return Contrast(found=found, shapes=shapes, only=only)
    names = [spec.name for spec in first.features]
    picks = [names.index(spec.name) for spec in then.features]
    rows = [row_of(first, job.inputs) for job in ended]
    scores = np.array(
        [[first.score(row), then.score([row[i] for i in picks])] for row in rows]
    ).T.reshape(2, -1)
    errors = np.abs(scores - np.log1p([job.ran_s for job in ended]))
    moved = most_moved(first, then, ended, scores)
    groups = tuple(groups_of(first, rows, errors))
    return Contrast(found=found, groups=groups, moved=moved, shapes=shapes, only=only)


def _shapes(
    first: AdditiveModel, then: AdditiveModel
) -> tuple[tuple[tuple[Chart, Chart], ...], tuple[str, ...]]:
    """Return pairs of charts (first model, other model) of the terms of one feature that differ
    most between the two models, at most `SHAPES` pairs. Also return a line for each term that only
    one of the models has.
    """
    mine, others = _named(first), _named(then)
    apart = {
        name: _apart(first, mine[name], then, others[name])
        for name in mine.keys() & others.keys()
        if len(mine[name].features) == 1
    }
    most = sorted((name for name in apart if apart[name] > 0), key=lambda n: (-apart[n], n))
    pairs = tuple(
        (
            replace(shape(first, mine[name], f"one-{i}"), note="Of the first."),
            replace(shape(then, others[name], f"other-{i}"), note="Of the other."),
        )
        for i, name in enumerate(most[:SHAPES])
    )
    only = [f"{_text(first, mine[name])}: only the first" for name in sorted(mine - others.keys())]
    only += [f"{_text(then, others[n])}: only the other" for n in sorted(others.keys() - mine)]
    return pairs, tuple(only)


def _named(model: AdditiveModel) -> dict[str, Term]:
    return dict(zip(model.term_names, model.terms, strict=True))


def _text(model: AdditiveModel, term: Term) -> str:
    return " and ".join(feature_text(model.axes[i]) for i in term.features)


def _apart(first: AdditiveModel, mine: Term, then: AdditiveModel, others: Term) -> float:
    """Return the mean distance between two shape functions of the same feature, weighted by the
    rows from which the first was learned.
    """
    axis, other = first.axes[mine.features[0]], then.axes[others.features[0]]
    values: list[Value] = list(axis.categories)
    if axis.spec.kind == "continuous" and axis.cuts:
        inner = [(a + b) / 2 for a, b in pairwise(axis.cuts)]
        values = [float(np.nextafter(axis.cuts[0], -np.inf)), *inner, axis.cuts[-1]]
    places = other.bins(np.array(values, dtype=object if axis.categories else np.float64))
    size = 1 + len(values)  # without the bin of unknown categories
    gaps = np.abs(mine.scores[1:size] - others.scores[places])
    weights = mine.weights[1:size]
    return float((gaps * weights).sum() / (weights.sum() or 1.0))


# --- what moved a user's estimates ---------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """The first score of a job, and how long the job ran.

    Attributes:
        at: when the job was submitted, seconds since the epoch.
        bundle: digest of the models that made the score.
        value: the score, ln(1 + seconds).
        inputs: values of the features, as text.
        ran_s: how long it ran, seconds; None: it has not ended by itself.
    """

    job_id: str
    at: float
    bundle: str
    value: float
    inputs: tuple[str, ...]
    ran_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mover:
    """A term of the model, and the factor by which it moved a user's estimates.

    Attributes:
        text: the term in words.
        score: the logarithm of the factor.
        then, now: the usual value of its feature at both times, in words; "" for a pair of
            features.
    """

    text: str
    score: float
    then: str = ""
    now: str = ""

    @property
    def factor(self) -> str:
        """Return the factor in words."""
        return factor_text(self.score)


@dataclass(frozen=True, slots=True, kw_only=True)
class Movement:
    """Why the predicted durations of a user's jobs differ between an earlier period and the present
    one.

    Attributes:
        then, now: number of jobs of each time.
        estimate: logarithm of the factor between the typical estimates of both times.
        lasted: the same for how long the jobs ran; None: too few ended.
        movers: the terms that moved the estimates, most first. rest: sum of all other terms.
        models: the part due to a change of the models; None: they did not change.
        enough: whether both times have enough jobs; if not, only their numbers are known.
        cut: for each time, whether there may be more jobs than the latest ones, which were read.
    """

    then: int = 0
    now: int = 0
    estimate: float = 0.0
    lasted: float | None = None
    movers: tuple[Mover, ...] = ()
    rest: float = 0.0
    models: float | None = None
    enough: bool = True
    cut: tuple[bool, bool] = (False, False)

    def factor(self, score: float) -> str:
        """Return a sum of scores as a factor, in words."""
        return factor_text(score)


def scored_of(
    connection: Connection, owner: str, since: float, until: float = math.inf
) -> list[Scored]:
    """Return the first score of each of a user's jobs that were submitted from `since` until before
    `until` (seconds since the epoch), at most `MOST`, the latest first.
    """
    found: dict[str, Scored] = {}
    submitted = jobs.c.submitted_at >= since, jobs.c.submitted_at < until
    for row, score in scores(connection, jobs.c.owner == owner, *submitted, most=MOST):
        over = row["state"] in STATES and row["started_at"] is not None
        found[row["job_id"]] = Scored(  # the first of its scores is last here
            job_id=row["job_id"],
            at=row["submitted_at"],
            bundle=score["bundle"],
            value=float(score["value"]),
            inputs=tuple(score["inputs"]),
            ran_s=max(0.0, row["ended_at"] - row["started_at"]) if over else None,
        )
    return sorted(found.values(), key=lambda one: -one.at)[:MOST]


def movement(
    scored: Iterable[Scored], bundle: Bundle, known: Mapping[str, Bundle], now: float
) -> Movement:
    """Return which terms changed a user's predictions between this week and three weeks before.

    Args:
        bundle: the models in use. Predictions of both times are decomposed with its terms.
        known: bundles by digest, with which the stored scores were made.
    """
    model = bundle.duration
    times: tuple[list[Scored], list[Scored]] = ([], [])
    rows: tuple[list[list[Value]], list[list[Value]]] = ([], [])
    read = [0, 0]
    for one in scored:
        read[one.at >= now - NOW_S] += 1
        of = known.get(one.bundle)
        row = None if of is None else _translated(of.duration, model, one.inputs)
        if row is not None and one.at >= now - THEN_S:
            late = int(one.at >= now - NOW_S)
            times[late].append(one)
            rows[late].append(row)
    if min(map(len, times)) < LEAST:
        return Movement(then=len(times[0]), now=len(times[1]), enough=False)
    parts = [np.array([model.explain(row).terms for row in of]).mean(axis=0) for of in rows]
    moves = parts[1] - parts[0]
    means = [float(np.mean([one.value for one in of])) for of in times]
    estimate = means[1] - means[0]
    models = estimate - float(moves.sum())
    order = sorted(range(len(moves)), key=lambda i: (-abs(moves[i]), i))
    shown = [i for i in order[:SHOWN] if abs(moves[i]) >= 0.005]
    return Movement(
        then=len(times[0]),
        now=len(times[1]),
        cut=(read[0] >= MOST, read[1] >= MOST),
        estimate=estimate,
        lasted=_lasted(times),
        movers=tuple(_mover(model, i, float(moves[i]), rows) for i in shown),
        rest=float(moves.sum() - moves[shown].sum()),
        models=models if {one.bundle for of in times for one in of} - {bundle.digest} else None,
    )


def _lasted(times: Sequence[Sequence[Scored]]) -> float | None:
    ran = [[math.log1p(one.ran_s) for one in of if one.ran_s is not None] for of in times]
    if min(map(len, ran)) < LEAST:
        return None
    return float(np.mean(ran[1]) - np.mean(ran[0]))


def _mover(
    model: AdditiveModel, place: int, score: float, rows: Sequence[Sequence[Sequence[Value]]]
) -> Mover:
    term = model.terms[place]
    text = _text(model, term)
    if len(term.features) != 1:
        return Mover(text=text, score=score)
    axis = model.axes[term.features[0]]
    then, now = ([row[term.features[0]] for row in of] for of in rows)
    usual = _most if axis.spec.kind == "nominal" else _middle
    return Mover(text=text, score=score, then=usual(then), now=usual(now))


def _most(values: Sequence[Value]) -> str:
    texts = [str(value) if value is not None else "none" for value in values]
    return max(sorted(set(texts)), key=texts.count)


def _middle(values: Sequence[Value]) -> str:
    known = [float(v) for v in values if v is not None and not math.isnan(float(v))]
    return number(float(np.median(known))) if known else "none"


def _translated(
    of: AdditiveModel, model: AdditiveModel, inputs: Sequence[str]
) -> list[Value] | None:
    """Return the inputs of a score by the model `of`, in the order of the features of `model`.
    Return None where `of` lacks one of these features.
    """
    held = dict(zip((spec.name for spec in of.features), row_of(of, inputs), strict=False))
    names = [spec.name for spec in model.features]
    return [held[name] for name in names] if held.keys() >= set(names) else None
