"""Evaluates how well models fitted on pairs measured on one type of GPU predict pairs measured on
another.

A profile is relative to the GPU that it was measured on: the same job uses a smaller share of a
faster GPU. So only the relation of utilisation to slowdown can transfer. Every pair of the target
is predicted by models fitted on the source alone, without the pair's families, so that they cannot
recognise it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from features.job import Profile
from models.bundle.packing import PairSpeedModel
from models.training.errors import TrainingError
from models.training.packing import (
    WORTH_SHARING,
    configurations,
    evaluate_packing,
    evaluate_pair_speed,
    family_pairs,
    fit_packing,
    fit_pair_speed,
)
from models.training.pairs import PairMeasurements

Floats = NDArray[np.float64]
RULE_PCT = 120.0  # the one-line rule: share when both keep the GPU busy no more than this


def evaluate_transfer(source: PairMeasurements, target: PairMeasurements) -> dict[str, Any]:
    """Return the errors on the pairs `target` of models fitted on the pairs `source`, and those of
    models fitted on `target` itself.

    Each pair is predicted by a fit without either of its families.

    Returns ``{source, target, pairs, there, home}``. `there` holds, for the tree (``tree_``) and
    the mean speed of the source (``mean_``): mean absolute error of the sum of both speeds and of
    the slower member, and how often "sum > 1.8" is predicted correctly; the accuracy of the rule
    "sum of GPU utilisation <= 120 %"; and how often the tree of sharing scores gives a
    configuration the label that follows from its own pairs. `home` holds the figures of
    `evaluate_pair_speed` and `evaluate_packing` on the target; None if it has too few pairs.

    Raises TrainingError when too few pairs of the source are left.
    """
    members = target.members
    n = len(members.speed) // 2
    a, b = ([as_profile(row) for row in half] for half in np.split(members.profile, 2))
    speed = members.speed.reshape(2, n)
    worth = speed.sum(axis=0) > WORTH_SHARING
    guesses = {name: np.zeros((2, n)) for name in ("tree", "mean")}
    for names, test in family_pairs(members):
        unseen = _named(source, names)
        rows = np.flatnonzero(test)
        first, second = [a[i] for i in rows], [b[i] for i in rows]
        tree = fit_pair_speed(source, exclude_families=unseen).model
        guesses["tree"][:, test] = _speeds(tree, first, second)
        guesses["mean"][:, test] = source.members.without(unseen).speed.mean()
    there: dict[str, float] = {}
    for name, guess in guesses.items():
        there[f"{name}_mae_sum"] = float(np.abs(guess.sum(axis=0) - speed.sum(axis=0)).mean())
        there[f"{name}_mae_slower"] = float(np.abs(guess.min(axis=0) - speed.min(axis=0)).mean())
        there[f"{name}_accuracy"] = float(((guess.sum(axis=0) > WORTH_SHARING) == worth).mean())
    busy = members.profile[:n, 0] + members.partner[:n, 0]
    there["rule_accuracy"] = float(((busy <= RULE_PCT) == worth).mean())
    there["score_accuracy"] = _score_accuracy(source, target)
    return {
        "source": source.source,
        "target": target.source,
        "pairs": n,
        "there": there,
        "home": _home(target),
    }


def _score_accuracy(source: PairMeasurements, target: PairMeasurements) -> float:
    known = configurations(target.members)
    right = []
    for family in target.families:
        packing = fit_packing(source, exclude_families=_named(source, (family,))).model
        mine = known.family == family
        for row, label in zip(known.profile[mine], known.label[mine], strict=True):
            right.append(packing.classify(as_profile(row))[0] == label)
    return float(np.mean(right))


def _named(pairs: PairMeasurements, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the families of `pairs` with one of these names, ignoring case."""
    wanted = {name.casefold() for name in names}
    return tuple(name for name in pairs.families if name.casefold() in wanted)


def _home(target: PairMeasurements) -> dict[str, float] | None:
    try:
        return evaluate_pair_speed(target) | evaluate_packing(target, repeats=3)
    except TrainingError:
        return None


def _speeds(model: PairSpeedModel, a: list[Profile], b: list[Profile]) -> Floats:
    """Return the predicted speeds of both jobs of every pair, relative to running alone, an array
    (2, n): first those of the jobs `a`, then those of their partners `b`."""
    return np.array([model(one, two) for one, two in zip(a, b, strict=True)]).T


def as_profile(row: Floats) -> Profile:
    """Return the `Profile` in a row of `Members.profile`."""
    util, memory_util, memory, amp = row.tolist()
    return Profile(util, memory_util, memory, None if amp != amp else bool(amp))
