"""The pair-speed GA2M: penalised tables, with an effect per model family that is thrown away.

Members of one family resemble each other in ways no profile shows. Least squares would bend the
shape functions until they name the family, and a new family would pay for it. So every family
gets an effect of its own while fitting (as the slowed one and as the partner), shrunk towards
zero; what is left to the shape functions is what moves within families and across them alike. For
a family never seen the effect is zero, its expectation (a mixed model; Ruppert, Wand and Carroll,
"Semiparametric Regression", 2003, ch. 4).

Both features have smooth mains (second differences penalised) and one interaction (first
differences penalised). How much is chosen by leaving one training family out at a time. The whole
fit is a few linear systems of some 150 unknowns: milliseconds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from features.spec import FeatureSpec
from models.bundle import AdditiveModel, Axis, PairSpeedGA2M, Term
from models.bundle.pairs import PAIR_GA2M_FEATURES
from models.training.errors import TrainingError
from models.training.export import purified
from models.training.monotone import monotonise
from models.training.pairs import Members, PairMeasurements

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

BINS = 12
SMOOTHING = (10.0, 100.0, 1000.0)  # of the mains' second differences, in rows
PAIR_SHARE = 0.1  # of it, on the first differences of the interaction
FAMILY_ROWS = 3.0  # a family's effect is halved when it has as many rows as this
RIDGE = 0.01  # makes empty cells zero
MIN_PAIRS = 16

SPECS = (
    FeatureSpec(
        PAIR_GA2M_FEATURES[0],
        "continuous",
        "pair",
        "%",
        "how much more of the GPU this job keeps busy than its partner",
    ),
    FeatureSpec(
        PAIR_GA2M_FEATURES[1],
        "continuous",
        "pair",
        "%",
        "how much of the GPU both jobs keep busy together",
        monotone=-1,
    ),
)


@dataclass(frozen=True, slots=True)
class FittedPairGA2M:
    """The pair-speed GA2M and how it came about."""

    model: PairSpeedGA2M
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Cells:
    """Rows that share both bins and both families, one entry each."""

    difference: Ints
    total: Ints
    own: Ints
    partner: Ints
    rows: Floats
    speed: Floats

    def touching(self, family: int) -> NDArray[np.bool_]:
        return (self.own == family) | (self.partner == family)


def fit_pair_ga2m(
    pairs: PairMeasurements,
    *,
    exclude_families: Collection[str] = (),
    spread: bool | None = None,
) -> FittedPairGA2M:
    """Fits each member's speed on what both ask of the GPU; never rising with what both ask.

    Args:
        pairs: what was measured.
        exclude_families: pairs with one of these are not looked at.
        spread: also keep the spread over fits that each leave one family out; by default only
            when no family is excluded, where the fit need not be quick.

    Raises TrainingError when too few pairs are left.
    """
    members = pairs.members.without(exclude_families)
    if len(members.speed) < 2 * MIN_PAIRS:
        raise TrainingError(f"{len(members.speed) // 2} pairs, at least {MIN_PAIRS} needed")
    columns = pair_columns(members)
    axes = [_axis(spec, column) for spec, column in zip(SPECS, columns.T, strict=True)]
    cells, families = _cells(members, columns, axes)
    system = _System(cells, [axis.size - 1 for axis in axes], families)
    smoothing = system.choose() if families > 2 else SMOOTHING[-1]
    fits = [system.solve(smoothing)]
    if spread if spread is not None else not exclude_families:
        fits += [system.solve(smoothing, without=family) for family in range(families)]
    model = _additive(axes, cells, np.stack(fits), system)
    metadata = {
        **pairs.provenance(exclude_families),
        "pairs": len(members.speed) // 2,
        "smoothing": smoothing,
        "spread": f"{len(fits) - 1} fits, each without one family",
    }
    return FittedPairGA2M(PairSpeedGA2M(model), metadata)


def pair_columns(members: Members) -> Floats:
    """Columns of `PAIR_GA2M_FEATURES`, (2n, 2); as `models.bundle.pairs.pair_row`."""
    own, partner = members.profile[:, 0], members.partner[:, 0]
    return np.column_stack([own - partner, own + partner])


def _axis(spec: FeatureSpec, values: Floats) -> Axis:
    cuts = np.unique(np.quantile(values, np.linspace(0, 1, BINS + 1)[1:-1]))
    return Axis(spec, cuts=tuple(cuts[cuts > values.min()].tolist()))


def _cells(members: Members, columns: Floats, axes: list[Axis]) -> tuple[_Cells, int]:
    names, family = np.unique(
        np.concatenate([members.family, members.partner_family]).astype(str), return_inverse=True
    )
    own, partner = family.reshape(2, -1)
    difference, total = (axis.bins(c) - 1 for axis, c in zip(axes, columns.T, strict=True))
    codes = np.ravel_multi_index(
        (difference, total, own, partner), (BINS, BINS, len(names), len(names))
    )
    code, where = np.unique(codes, return_inverse=True)
    rows = np.bincount(where).astype(np.float64)
    mean = np.bincount(where, weights=members.speed) / rows
    return _Cells(*np.unravel_index(code, (BINS, BINS, len(names), len(names))), rows, mean), len(
        names
    )


class _System:
    """Normal equations of the cells: intercept, two mains, their interaction, family effects."""

    def __init__(self, cells: _Cells, sizes: list[int], families: int) -> None:
        self.cells, self.sizes, self.families = cells, sizes, families
        first, second = sizes
        self.at = np.cumsum([1, first, second, first * second])  # where each block begins
        n = np.arange(len(cells.rows))
        design = np.zeros((len(n), int(self.at[-1]) + 2 * families))
        design[:, 0] = 1.0
        for block, column in enumerate(
            (cells.difference, cells.total, cells.difference * second + cells.total, cells.own)
        ):
            design[n, self.at[block] + column] = 1.0
        design[n, self.at[-1] + families + cells.partner] = 1.0
        self.design = design
        self._without: dict[int | None, tuple[Floats, Floats]] = {None: self._sums(n >= 0)}

    def _sums(self, kept: NDArray[np.bool_]) -> tuple[Floats, Floats]:
        design = self.design[kept]
        weighted = design * self.cells.rows[kept, None]
        return weighted.T @ design, weighted.T @ self.cells.speed[kept]

    def solve(self, smoothing: float, without: int | None = None) -> Floats:
        """Coefficients without the family effects; all rows of the family `without` left out."""
        if without not in self._without:
            whole, touched = self._without[None], self._sums(self.cells.touching(without or 0))
            self._without[without] = whole[0] - touched[0], whole[1] - touched[1]
        gram, moments = self._without[without]
        solved = np.linalg.solve(gram + self._penalty(smoothing), moments)
        return np.asarray(solved[: self.at[-1]], dtype=np.float64)

    def choose(self) -> float:
        """The smoothing of least absolute error on the families left out, one at a time."""
        errors = []
        for smoothing in SMOOTHING:
            error = 0.0
            for family in range(self.families):
                test = self.cells.touching(family)
                guess = self.design[test, : self.at[-1]] @ self.solve(smoothing, family)
                error += float(self.cells.rows[test] @ np.abs(guess - self.cells.speed[test]))
            errors.append(error)
        return SMOOTHING[int(np.argmin(errors))]

    def _penalty(self, smoothing: float) -> Floats:
        first, second = self.sizes
        penalty = np.eye(len(self.design[0])) * RIDGE
        penalty[0, 0] = 0.0
        for at, size in zip(self.at, self.sizes, strict=False):
            bend = np.diff(np.eye(size), 2, axis=0)
            penalty[at : at + size, at : at + size] += smoothing * bend.T @ bend
        steps = [np.diff(np.eye(size), axis=0) for size in self.sizes]
        rough = np.kron(steps[0].T @ steps[0], np.eye(second)) + np.kron(
            np.eye(first), steps[1].T @ steps[1]
        )
        at, end = self.at[2], self.at[3]
        penalty[at:end, at:end] += smoothing * PAIR_SHARE * rough
        penalty[end:, end:] = np.eye(2 * self.families) * FAMILY_ROWS
        return penalty

    def tables(self, fits: Floats) -> tuple[Floats, dict[tuple[int, ...], Floats]]:
        """Intercepts and tables of solutions (fits, unknowns), each with its bin for missing."""
        first, second = self.sizes
        blocks = np.split(fits, self.at[:-1], axis=1)
        pair = blocks[3].reshape(-1, first, second)
        return blocks[0][:, 0], {
            (0,): np.pad(blocks[1], ((0, 0), (1, 0))),
            (1,): np.pad(blocks[2], ((0, 0), (1, 0))),
            (0, 1): np.pad(pair, ((0, 0), (1, 0), (1, 0))),
        }


def _additive(axes: list[Axis], cells: _Cells, fits: Floats, system: _System) -> AdditiveModel:
    intercepts, stacks = system.tables(fits)
    weights = {key: np.zeros(stack.shape[1:]) for key, stack in stacks.items()}
    np.add.at(weights[(0, 1)], (cells.difference + 1, cells.total + 1), cells.rows)
    weights[(0,)], weights[(1,)] = weights[(0, 1)].sum(axis=1), weights[(0, 1)].sum(axis=0)
    directions = {i: axis.spec.monotone for i, axis in enumerate(axes) if axis.spec.monotone}
    flat, changed = monotonise(
        {key: stack[0] for key, stack in stacks.items()}, weights, directions
    )
    for key, table in flat.items():
        stacks[key][0] = table
    shift = purified(stacks, weights)
    terms = [
        Term(
            features=key,
            scores=stack[0].copy(),
            weights=weights[key],
            spread=stack[1:].std(axis=0) if len(stack) > 1 else np.zeros(stack.shape[1:]),
            origin="monotone" if key in changed else "fit",
        )
        for key, stack in stacks.items()
    ]
    return AdditiveModel(axes, terms, float(intercepts[0]) + shift, "identity")
