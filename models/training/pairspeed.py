"""The pair-speed GA2M: penalised tables, with an effect per model family that is thrown away.

Members of one family resemble each other in ways no profile shows. Least squares would bend the
shape functions until they name the family, and a new family would pay for it. So every family
gets an effect of its own while fitting (as the slowed one and as the partner), shrunk towards
zero; what is left to the shape functions is what moves within families and across them alike. For
a family never seen the effect is zero, its expectation (a mixed model; Ruppert, Wand and Carroll,
"Semiparametric Regression", 2003, ch. 4).

Both features have a smooth main effect and there is one smooth interaction, all sums of cosines
over the feature's ranks: an effect that bends q times pays q^4 (a main) or q^2 + r^2 (the
interaction). How dearly is chosen by leaving one training family out at a time. The whole fit is a
few linear systems of some 70 unknowns: milliseconds.
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

BINS = 32
WAVES, PAIR_WAVES = 8, 5  # cosines of a main, and of each side of the interaction
SMOOTHING = (0.2, 1.0, 5.0)  # price of a bend, in rows
PAIR_PRICE = 50.0  # of the interaction, times that of a main
FAMILY_ROWS = 3.0  # a family's effect is halved when it has as many rows as this
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
        touched: NDArray[np.bool_] = (self.own == family) | (self.partner == family)
        return touched


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
    shape = (*(axis.size - 1 for axis in axes), len(names), len(names))
    codes = np.ravel_multi_index((difference, total, own, partner), shape)
    code, where = np.unique(codes, return_inverse=True)
    rows = np.bincount(where).astype(np.float64)
    mean = np.bincount(where, weights=members.speed) / rows
    place = np.unravel_index(code, shape)
    return _Cells(place[0], place[1], place[2], place[3], rows, mean), len(names)


class _System:
    """Normal equations of the cells: intercept, two mains, their interaction, family effects."""

    def __init__(self, cells: _Cells, sizes: list[int], families: int) -> None:
        self.cells, self.families = cells, families
        self.waves = [_cosines(size, WAVES) for size in sizes]
        first, second = (_cosines(size, PAIR_WAVES) for size in sizes)
        self.both = np.einsum("iq,jr->ijqr", first, second).reshape(*sizes, -1)
        family = np.eye(families)
        self.design = np.column_stack(
            [
                np.ones(len(cells.rows)),
                self.waves[0][cells.difference],
                self.waves[1][cells.total],
                self.both[cells.difference, cells.total],
                family[cells.own],
                family[cells.partner],
            ]
        )
        self.shapes = len(self.design[0]) - 2 * families  # unknowns of the shape functions
        bend = np.arange(1.0, WAVES + 1) ** 4
        step = np.arange(1.0, PAIR_WAVES + 1) ** 2
        self.prices = np.concatenate(
            [[0.0], bend, bend, PAIR_PRICE * np.add.outer(step, step).ravel()]
        )
        self._without: dict[int | None, tuple[Floats, Floats]] = {
            None: self._sums(np.ones(len(cells.rows), dtype=bool))
        }

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
        price = np.concatenate([smoothing * self.prices, np.full(2 * self.families, FAMILY_ROWS)])
        solved = np.linalg.solve(gram + np.diag(price), moments)
        return np.asarray(solved[: self.shapes], dtype=np.float64)

    def choose(self) -> float:
        """The smoothing of least absolute error on the families left out, one at a time."""
        errors = []
        for smoothing in SMOOTHING:
            error = 0.0
            for family in range(self.families):
                test = self.cells.touching(family)
                guess = self.design[test, : self.shapes] @ self.solve(smoothing, family)
                error += float(self.cells.rows[test] @ np.abs(guess - self.cells.speed[test]))
            errors.append(error)
        return SMOOTHING[int(np.argmin(errors))]

    def tables(self, fits: Floats) -> tuple[Floats, dict[tuple[int, ...], Floats]]:
        """Intercepts and tables of solutions (fits, unknowns), each with its bin for missing."""
        intercept, first, second, both = np.split(fits, [1, 1 + WAVES, 1 + 2 * WAVES], axis=1)
        return intercept[:, 0], {
            (0,): np.pad(first @ self.waves[0].T, ((0, 0), (1, 0))),
            (1,): np.pad(second @ self.waves[1].T, ((0, 0), (1, 0))),
            (0, 1): np.pad(np.einsum("ijk,fk->fij", self.both, both), ((0, 0), (1, 0), (1, 0))),
        }


def _cosines(size: int, waves: int) -> Floats:
    """Cosines of 1, 2, ... half waves over `size` bins, (size, waves)."""
    middle = (np.arange(size) + 0.5) / size
    return np.asarray(np.cos(np.pi * np.outer(middle, np.arange(1, waves + 1))))


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
