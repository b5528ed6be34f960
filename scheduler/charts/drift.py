"""Shows whether jobs still look like those on which a model was trained, and like those of the past
weeks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from features.watch import Alarm
from models.bundle import AdditiveModel, Axis
from scheduler.charts.shapes import feature_text, span
from scheduler.explain.words import factor, percent

Floats = NDArray[np.float64]

GROUPS = 10  # of about equal training mass, in which drift is measured
FEWEST = 50  # jobs before drift is judged
STEADY, SHIFTED = 0.1, 0.25  # population stability index: the usual marks


@dataclass(frozen=True, slots=True)
class Drift:
    """How far the latest jobs are from the training rows, in one feature.

    Attributes:
        name, text: the feature, by its name and in words.
        index: population stability index, sum (q - p) ln(q / p) over groups of bins.
        noise: the index to be expected by chance alone with so few jobs.
        verdict: "steady", "watch", "shifted", or "too few jobs".
        most: the group of bins with the largest difference, in words.
    """

    name: str
    text: str
    index: float
    noise: float
    verdict: str
    most: str


def alarm_words(alarm: Alarm) -> str:
    """Return an alarm (a group of jobs unlike those of past weeks) in words: "virtual cluster vcA:
    jobs last longer, ×58 the usual".
    """
    times = f", {factor(alarm.ratio)} the usual" if alarm.ratio != 1.0 else ""
    return f"{alarm.group}: jobs {alarm.what}{times}"


def drift(model: AdditiveModel, live: Sequence[Sequence[str]], sees_names: bool) -> list[Drift]:
    n = len(model.axes)
    rows = [row[:n] for row in live if len(row) >= n]  # what is known of this job alone follows
    if not rows:
        return []
    weights = {t.features[0]: t.weights for t in model.terms if len(t.features) == 1}
    found = [
        drift_of(axis, weights[i], [row[i] for row in rows], sees_names)
        for i, axis in enumerate(model.axes)
        if i in weights and weights[i].sum() > 0
    ]
    return sorted(found, key=lambda d: -d.index)


def drift_of(axis: Axis, weights: Floats, values: Sequence[str], sees_names: bool) -> Drift:
    """Return how far live values of one feature are from the training rows.

    Args:
        axis: the feature and its bins.
        weights: number of training rows in each bin of the axis.
        values: live values as text; "" is a missing value.
        sees_names: whether names of users and jobs may be shown.
    """
    find = axis.finder()
    continuous = axis.spec.kind == "continuous"
    counts = np.zeros(axis.size)
    for value in values:
        counts[find((float(value) if value else math.nan) if continuous else value or None)] += 1
    groups = groups_of(axis, weights, counts)
    before = np.array([weights[g].sum() for g in groups]) + 0.5
    now = np.array([counts[g].sum() for g in groups]) + 0.5
    p, q = before / before.sum(), now / now.sum()
    parts = (q - p) * np.log(q / p)
    index, n = float(parts.sum()), len(values)
    noise = (len(groups) - 1) * (1.0 / n + 1.0 / max(float(weights.sum()), 1.0))
    worst = int(np.argmax(parts))
    place = span(axis, groups[worst]) if continuous or sees_names else "one category"
    verdict = (
        "too few jobs"
        if n < FEWEST
        else "steady"
        if index < STEADY or index < 3 * noise
        else "watch"
        if index < SHIFTED
        else "shifted"
    )
    now_there, before_there = (
        float(there[groups[worst]].sum() / max(there.sum(), 1.0)) for there in (counts, weights)
    )
    most = f"{place}: {percent(now_there)} of jobs, {percent(before_there)} in training"
    return Drift(
        name=axis.spec.name,
        text=feature_text(axis),
        index=index,
        noise=noise,
        verdict=verdict,
        most=most,
    )


def groups_of(axis: Axis, weights: Floats, counts: Floats) -> list[list[int]]:
    """Return the bins of an axis joined into about `GROUPS` groups with about equally many training
    rows. Missing values are a group of their own.

    Args:
        weights: number of training rows in each bin.
        counts: number of live values in each bin.
    """
    used = [i for i in range(1, axis.size) if weights[i] > 0 or counts[i] > 0]
    if axis.spec.kind == "nominal":
        ordered = sorted(used, key=lambda i: -weights[i])
        groups = [[i] for i in ordered[: GROUPS - 1]]
        if ordered[GROUPS - 1 :]:
            groups.append(ordered[GROUPS - 1 :])
    else:
        groups, limit, filled = [], float(weights[1:].sum()) / GROUPS, math.inf
        for i in used:
            if filled >= limit:
                groups.append([])
                filled = 0.0
            groups[-1].append(i)
            filled += float(weights[i])
    if weights[0] > 0 or counts[0] > 0:
        groups.append([0])
    return groups or [[0]]
