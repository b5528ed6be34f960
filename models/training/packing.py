"""Trains the models that decide which two jobs may share a GPU: sharing scores (a class per
training configuration) and pair speeds, learnt from measured pairs.

Labels are derived, never set by hand. The scores of two jobs are added, and the two share a GPU if
the sum is at most 2. So the score says with how many partners a configuration may share: **tiny**
(0) if it is worth sharing with at least nine in ten of the partners it was measured with; **jumbo**
(2) if with fewer than half; medium (1) in between. A pair is "worth sharing" if the sum of both
speeds, each relative to running alone and capped at 1, is above 1.8.

Lucid (ASPLOS'23, section 3.3) instead cuts a configuration's own mean speed at 0.85 and 0.95. That
leaves out how it slows its partners, and configurations with almost equal measurements get
different labels on either side of 0.95. Of Lucid's 1,388 pairs, those labels judge 83 % correctly,
these 90 %.

Every fit can leave model families out, so that a pair can be predicted by a model that has seen
neither of its families.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import config_context
from sklearn.tree import DecisionTreeRegressor

from models.bundle import PACKING_FEATURES, PAIR_FEATURES, PackingModel, PairHinge, PairSpeedModel
from models.training.errors import TrainingError
from models.training.pairs import Members, PairMeasurements
from models.training.trees import exported_tree

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]

JUMBO_BELOW, TINY_FROM = 0.5, 0.9  # share of partners worth sharing with
MAX_LEAVES = 16
LEAF_ROWS = (3, 4, 6, 8)  # fewest configurations in a leaf, tried
# the tree looks at what the GPU is kept busy with: never more worth sharing with more of it
LOOKS_AT = 2  # first of PACKING_FEATURES
FOLDS = 4
MIN_CONFIGURATIONS = 8
MIN_PAIRS = 16
WORTH_SHARING = 1.8  # sum of both speeds above which sharing is called worth it


@dataclass(frozen=True, slots=True)
class Configurations:
    """Training configurations with the sharing scores that follow from their measured pairs. Every
    array has one entry per configuration.

    Attributes:
        family: model family, (n,).
        profile: columns of `PACKING_FEATURES`, (n, 4).
        worth: share of the configuration's pairs that are worth sharing, (n,).
        label: sharing score, (n,).
        number: number of the configuration in `Members.configuration`, (n,).
    """

    family: NDArray[np.object_]
    profile: Floats
    worth: Floats
    label: Labels
    number: Labels


@dataclass(frozen=True, slots=True)
class FittedPacking:
    """A fitted tree that predicts sharing scores, with the settings and data of its fit."""

    model: PackingModel
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class FittedPairSpeed:
    """A fitted tree that predicts pair speeds, with the settings and data of its fit."""

    model: PairSpeedModel
    metadata: Mapping[str, Any]


def configurations(members: Members) -> Configurations:
    """Return every training configuration of the pairs, with the sharing score that follows from
    its measured pairs."""
    number, first, inverse, count = np.unique(
        members.configuration, return_index=True, return_inverse=True, return_counts=True
    )
    worth_it = members.speed + members.partner_speed > WORTH_SHARING
    worth = np.bincount(inverse, weights=worth_it) / count
    label = np.where(worth < JUMBO_BELOW, 2, np.where(worth < TINY_FROM, 1, 0))
    return Configurations(
        family=members.family[first],
        profile=members.profile[first],
        worth=worth,
        label=label.astype(np.int64),
        number=number,
    )


def fit_packing(
    pairs: PairMeasurements,
    *,
    exclude_families: Collection[str] = (),
    repeats: int | None = None,
    seed: int = 0,
) -> FittedPacking:
    """Fit the sharing-score tree. Return it with the settings and data of the fit.

    Args:
        pairs: the measured pairs.
        exclude_families: pairs in which one of these model families takes part are not used, not
            even for the labels of their partners.
        repeats: repetitions of the cross-validation that chooses the pruning; None: 10, or 1 with
            families left out, so that the fit is quick.
        seed: seed of the folds and of ties.

    Raises TrainingError when too few configurations are left.
    """
    if repeats is None:
        repeats = 1 if exclude_families else 10
    known = configurations(pairs.members.without(exclude_families))
    if len(known.label) < MIN_CONFIGURATIONS:
        raise TrainingError(
            f"{len(known.label)} configurations with pairs, at least {MIN_CONFIGURATIONS} needed"
        )
    # scikit-learn's checks cost more than these fits
    with config_context(skip_parameter_validation=True, assume_finite=False):
        leaf_rows = _choose_leaf_rows(known, repeats, seed)
        fitted = _grown(known, np.ones(len(known.label), dtype=bool), leaf_rows)
    leaf = fitted.apply(known.profile[:, :LOOKS_AT])
    rows = np.zeros((fitted.tree_.node_count, 3))
    np.add.at(rows, (leaf, known.label), 1.0)
    children = zip(fitted.tree_.children_left, fitted.tree_.children_right, strict=True)
    for node, (left, right) in reversed(list(enumerate(children))):  # children after parents
        if left >= 0:
            rows[node] = rows[left] + rows[right]
    shares = rows / rows.sum(axis=1, keepdims=True)
    model = PackingModel(
        exported_tree(fitted, PACKING_FEATURES, lambda node: tuple(shares[node].tolist()))
    )
    metadata = {
        **pairs.provenance(exclude_families),
        "configurations": len(known.label),
        "labels": np.bincount(known.label, minlength=3).tolist(),
        "label_rule": f"worth sharing with < {JUMBO_BELOW:.0%} of partners jumbo, "
        f"with >= {TINY_FROM:.0%} tiny, else medium",
        "leaf_rows": leaf_rows,
        "leaves": model.tree.leaves,
    }
    return FittedPacking(model, metadata)


def fit_pair_speed(
    pairs: PairMeasurements, *, exclude_families: Collection[str] = ()
) -> FittedPairSpeed:
    """Fit a tree that predicts the speed of each job of a pair from both profiles. It has at most
    16 leaves, and the speed never rises with the demand of both jobs. Return it with the settings
    and data of the fit.

    Args:
        pairs: the measured pairs.
        exclude_families: pairs in which one of these model families takes part are not used.

    Raises TrainingError when too few pairs are left.
    """
    members = pairs.members.without(exclude_families)
    if len(members.speed) < 2 * MIN_CONFIGURATIONS:
        raise TrainingError(
            f"{len(members.speed) // 2} pairs, at least {MIN_CONFIGURATIONS} needed"
        )
    with config_context(skip_parameter_validation=True, assume_finite=False):
        fitted = DecisionTreeRegressor(
            max_leaf_nodes=MAX_LEAVES,
            min_samples_leaf=max(2, round(0.015 * len(members.speed))),
            # more asked of the GPU by both together never makes either faster
            monotonic_cst=[0, -1, -1],
            random_state=0,
        ).fit(_pair_columns(members), members.speed)

    def speed(node: int) -> tuple[float, ...]:
        return (min(1.0, float(fitted.tree_.value[node][0][0])),)

    model = PairSpeedModel(exported_tree(fitted, PAIR_FEATURES, speed))
    metadata = {
        **pairs.provenance(exclude_families),
        "pairs": len(members.speed) // 2,
        "leaves": model.tree.leaves,
    }
    return FittedPairSpeed(model, metadata)


KNEES = np.arange(0.0, 200.0, 2.5)  # percent of SM activity of both, tried


@dataclass(frozen=True, slots=True)
class FittedHinge:
    """The hinge of pair speeds (constant up to a knee, then falling in a straight line), and the
    settings and data of its fit."""

    model: PairHinge
    metadata: Mapping[str, Any]


def fit_pair_hinge(
    pairs: PairMeasurements, *, exclude_families: Collection[str] = ()
) -> FittedHinge | None:
    """Fit a hinge (constant up to a knee, then falling in a straight line) that predicts the speed
    of a pair from the summed SM activity of both jobs, with the least absolute error of the sum of
    both speeds. Return None if SM activity was measured for fewer than `MIN_PAIRS` pairs.

    Args:
        pairs: the measured pairs.
        exclude_families: pairs in which one of these model families takes part are not used.
    """
    members = pairs.members.without(exclude_families)
    n = len(members.speed) // 2
    active, both = members.active[:n], (members.speed + members.partner_speed)[:n]
    counted = np.isfinite(active)
    if counted.sum() < MIN_PAIRS:
        return None
    model = _hinge(active[counted], both[counted])
    metadata = {
        **pairs.provenance(exclude_families),
        "pairs": int(counted.sum()),
        "measured": [[round(float(x), 2), round(float(y) / 2, 4)]
                     for x, y in zip(active[counted], both[counted], strict=True)],
    }  # fmt: skip
    return FittedHinge(model, metadata)


def _hinge(active: Floats, both: Floats) -> PairHinge:
    """Return the hinge (constant up to a knee, then falling in a straight line) with the least mean
    absolute error. For every knee in `KNEES` the best slope is computed.

    Args:
        active: SM activity of each pair together, percent.
        both: sum of both speeds of each pair.
    """
    least = max(0.05, round(float(both.min()) / 2, 4))
    found = list[tuple[float, float, float]]()
    for knee in KNEES.tolist():
        beyond = np.maximum(0.0, active - knee)
        above = beyond > 0
        slope = 0.0
        if above.any():  # the weighted median of what each point asks for: of the least error
            asked, weight = (2.0 - both[above]) / beyond[above], beyond[above]
            order = np.argsort(asked, kind="stable")
            middle = np.searchsorted(np.cumsum(weight[order]), weight.sum() / 2)
            slope = min(1.0, max(0.0, round(float(asked[order][middle]) / 2, 6)))
        guess = np.maximum(2 * least, 2.0 - 2 * slope * beyond)
        found.append((round(float(np.abs(guess - both).mean()), 6), knee, slope))
    _, knee, slope = min(found)
    return PairHinge(knee_pct=knee, slope=slope, least=least)


def evaluate_pair_hinge(pairs: PairMeasurements) -> dict[str, float]:
    """Return the errors of the hinge of pair speeds (see `fit_pair_hinge`) on pairs with measured
    SM activity. Each pair is predicted by a fit without either of its families.

    The figures are the mean absolute error of the sum of both (capped) speeds, and how often "sum >
    1.8" is predicted correctly, for the hinge and for the tree of utilisations (`tree_...`); how
    often the rule "sum of GPU utilisation <= 120 %" is right (`rule_accuracy`); and the number of
    `pairs`. Return {} if SM activity was measured for fewer than `MIN_PAIRS` pairs.
    """
    members, n = pairs.members, len(pairs)
    if np.isfinite(members.active[:n]).sum() < MIN_PAIRS:
        return {}
    both = (members.speed + members.partner_speed)[:n]
    guess = np.full(n, np.nan)
    for unseen, test in family_pairs(members):
        fitted = fit_pair_hinge(pairs, exclude_families=unseen)
        if fitted is not None:
            active = members.active[:n][test].tolist()
            guess[test] = [2 * fitted.model.speed(x) if x == x else np.nan for x in active]
    by_tree = unseen_speeds(pairs)[0].sum(axis=0)
    tested = np.isfinite(guess) & np.isfinite(by_tree)
    worth, rule = both > WORTH_SHARING, _pair_columns(members)[:n, 1] <= 120.0
    result = {"pairs": float(tested.sum()), "rule_accuracy": float((rule == worth)[tested].mean())}
    for prefix, sums in {"": guess, "tree_": by_tree}.items():
        result[f"{prefix}mae_sum"] = float(np.abs(sums - both)[tested].mean())
        result[f"{prefix}accuracy"] = float(((sums > WORTH_SHARING) == worth)[tested].mean())
    return result


def evaluate_packing(
    pairs: PairMeasurements, *, seed: int = 0, repeats: int = 10
) -> dict[str, float]:
    """Return how accurately the tree predicts the sharing scores (labels) of configurations.

    The figures are: accuracy in repeated 5-fold cross-validation; accuracy with a whole model
    family left out of the training pairs; the share of the largest class; and how often "scores sum
    to at most 2" agrees with "worth sharing", by true labels, and by trees that saw neither family
    of the pair.
    """
    known = configurations(pairs.members)
    n = len(known.label)
    rng = np.random.default_rng(seed)
    hits = []
    with config_context(skip_parameter_validation=True, assume_finite=False):
        for _ in range(repeats):
            fold = rng.permutation(n) % 5
            for held_out in (fold == k for k in range(5)):
                kept = _where(known, ~held_out)
                leaf_rows = _choose_leaf_rows(kept, 1, seed)
                guess = _judged(kept, np.ones(len(kept.label), bool), leaf_rows, known.profile)
                hits += (guess == known.label)[held_out].tolist()
    unseen = []
    for family in pairs.families:
        model = fit_packing(pairs, exclude_families=(family,), seed=seed).model
        mine = known.family == family
        for profile, label in zip(known.profile[mine], known.label[mine], strict=True):
            unseen.append(_score(model, profile) == label)
    by_label, by_tree = _decisions(pairs, known, seed)
    return {
        "configurations": float(n),
        "cv_accuracy": float(np.mean(hits)),
        "unseen_family_accuracy": float(np.mean(unseen)),
        "majority": float(np.bincount(known.label).max() / n),
        "label_decision_accuracy": by_label,
        "unseen_decision_accuracy": by_tree,
    }


def _decisions(pairs: PairMeasurements, known: Configurations, seed: int) -> tuple[float, float]:
    """Return how often the decision whether a pair shares is right, as two shares of pairs: by the
    true labels, and by trees fitted without either family of the pair."""
    members = pairs.members
    n = len(members.speed) // 2
    worth = (members.speed + members.partner_speed > WORTH_SHARING)[:n]
    place = {number: i for i, number in enumerate(known.number.tolist())}
    a, b = (
        np.array([place[c] for c in half.tolist()]) for half in np.split(members.configuration, 2)
    )
    allowed = known.label[a] + known.label[b] <= 2
    right = []
    for (one, two), test in family_pairs(members):
        model = fit_packing(pairs, exclude_families=(one, two), seed=seed).model
        score = {i: _score(model, known.profile[i]) for i in {*a[test], *b[test]}}
        for i, j, truth in zip(a[test], b[test], worth[test], strict=True):
            right.append((score[i] + score[j] <= 2) == truth)
    return float((allowed == worth).mean()), float(np.mean(right))


def family_pairs(
    members: Members,
) -> Iterator[tuple[tuple[str, str], NDArray[np.bool_]]]:
    """Yield ((family, family), mask of their pairs, (n,)) for every two families that were measured
    together."""
    n = len(members.speed) // 2
    own, partner = members.family[:n], members.partner_family[:n]
    for a, b in combinations_with_replacement(sorted(set(members.family)), 2):
        test = ((own == a) & (partner == b)) | ((own == b) & (partner == a))
        if test.any():
            yield (a, b), test


def _score(model: PackingModel, profile: Floats) -> int:
    shares = model.tree.leaf(profile.tolist()).value
    return shares.index(max(shares))


def evaluate_pair_speed(pairs: PairMeasurements) -> dict[str, float]:
    """Return the errors of predicted pair speeds. Each pair is predicted by a tree fitted without
    either of its families.

    The figures are the mean absolute error of the sum of both (capped) speeds and of the slower
    job's speed, and how often "sum > 1.8" is predicted correctly, for the tree; the same for the
    constant mean (`mean_...`); and the accuracy of the rule "sum of GPU utilisation <= 120 %"
    (`rule_accuracy`).
    """
    n = len(pairs)
    speed = pairs.members.speed.reshape(2, n)
    columns = _pair_columns(pairs.members)
    speeds, mean = unseen_speeds(pairs)
    guesses = {"": speeds, "mean_": mean}
    tested = np.isfinite(speeds[0])
    if not tested.any():
        raise TrainingError("no pair is left once its own families are taken out")
    worth = speed.sum(axis=0) > WORTH_SHARING
    rule = columns[:n, 1] <= 120.0
    result = {"pairs": float(tested.sum()), "rule_accuracy": float((rule == worth)[tested].mean())}
    for prefix, guess in guesses.items():
        error_sum = np.abs(guess.sum(axis=0) - speed.sum(axis=0))[tested]
        error_slower = np.abs(guess.min(axis=0) - speed.min(axis=0))[tested]
        judged = ((guess.sum(axis=0) > WORTH_SHARING) == worth)[tested]
        result[f"{prefix}mae_sum"] = float(error_sum.mean())
        result[f"{prefix}mae_slower"] = float(error_slower.mean())
        result[f"{prefix}accuracy"] = float(judged.mean())
    return result


def unseen_speeds(pairs: PairMeasurements) -> tuple[Floats, Floats]:
    """Return two arrays, both (2, n), NaN where too few pairs are left for a fit. The first holds
    the speeds of both members of every pair, predicted by trees fitted without either family; the
    second the mean speed of the pairs that these trees were fitted on."""
    members, n = pairs.members, len(pairs)
    columns = _pair_columns(members).reshape(2, n, -1)
    speeds, mean = np.full((2, n), np.nan), np.full((2, n), np.nan)
    for unseen, test in family_pairs(members):
        rest = members.without(unseen)
        if len(rest.speed) < 2 * MIN_PAIRS:
            continue
        tree = fit_pair_speed(pairs, exclude_families=unseen).model.tree
        mean[:, test] = rest.speed.mean()
        for side in (0, 1):
            speeds[side, test] = [tree.leaf(row.tolist()).value[0] for row in columns[side, test]]
    return speeds, mean


def _pair_columns(members: Members) -> Floats:
    """Return the inputs of the pair-speed tree (the columns `PAIR_FEATURES`), one row for every
    member of a pair, an array (2n, 3), as `models.bundle.packing.pair_values` computes them."""
    own, partner = members.profile, members.partner
    return np.column_stack(
        [own[:, 0] - partner[:, 0], own[:, 0] + partner[:, 0], own[:, 1] + partner[:, 1]]
    )


def _where(known: Configurations, mask: NDArray[np.bool_]) -> Configurations:
    return Configurations(*(getattr(known, name)[mask] for name in known.__slots__))


def _grown(known: Configurations, mask: NDArray[np.bool_], leaf_rows: int) -> DecisionTreeRegressor:
    """Return a tree that predicts the share of partners worth sharing with, fitted on the
    configurations in `mask`. That share says more than the labels."""
    return DecisionTreeRegressor(
        max_leaf_nodes=MAX_LEAVES,
        min_samples_leaf=leaf_rows,
        monotonic_cst=[-1] * LOOKS_AT,
        random_state=0,
    ).fit(known.profile[mask, :LOOKS_AT], known.worth[mask])


def _judged(
    known: Configurations, mask: NDArray[np.bool_], leaf_rows: int, profile: Floats
) -> Labels:
    """Return the sharing scores that are predicted for the rows `profile`: the most frequent label
    in the row's leaf of a tree fitted on the configurations in `mask`."""
    tree = _grown(known, mask, leaf_rows)
    rows = np.zeros((tree.tree_.node_count, 3))
    np.add.at(rows, (tree.apply(known.profile[mask, :LOOKS_AT]), known.label[mask]), 1.0)
    labels: Labels = rows.argmax(axis=1)[tree.apply(profile[:, :LOOKS_AT])]
    return labels


def _choose_leaf_rows(known: Configurations, repeats: int, seed: int) -> int:
    """Return the number of rows that a leaf must have at least, of `LEAF_ROWS`, with the best
    accuracy in repeated cross-validation; the largest of equal ones."""
    rng = np.random.default_rng(seed)
    hits = np.zeros(len(LEAF_ROWS))
    for _ in range(repeats):
        fold = rng.permutation(len(known.label)) % FOLDS
        for held_out in (fold == k for k in range(FOLDS)):
            for i, leaf_rows in enumerate(LEAF_ROWS):
                guess = _judged(known, ~held_out, leaf_rows, known.profile[held_out])
                hits[i] += (guess == known.label[held_out]).sum()
    return LEAF_ROWS[len(LEAF_ROWS) - 1 - int(hits[::-1].argmax())]
