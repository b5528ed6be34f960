"""A GA2M as a sum of tables: one score per bin of a feature, or per cell of two features.

    score = intercept + term_1 + term_2 + ...            (added in this order, in float64)

The score *is* that sum, so a row scored alone and the same row in a batch agree to the last
bit, and an explanation cannot differ from the prediction it explains. Lou et al., "Accurate
intelligible models with pairwise interactions", KDD 2013.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from features import portable
from features.spec import FeatureSpec, Value
from models.bundle.errors import BundleError

Floats = NDArray[np.float64]

MISSING = "missing"
UNKNOWN = "unknown"
LINKS = ("log1p", "logit", "identity")
ORIGINS = ("fit", "monotone", "edited")


@dataclass(frozen=True, slots=True)
class Axis:
    """How the values of one feature fall into bins.

    Bin 0 holds missing values. Continuous: bin k >= 1 holds cuts[k-2] <= x < cuts[k-1]; the first
    of these has no lower bound, the last no upper one.
    Nominal: bin k >= 1 holds categories[k-1]; the last bin holds every category not seen in
    training.

    Attributes:
        spec: the feature.
        cuts: increasing cut points, (bins - 2,); empty for a nominal feature.
        categories: known categories; empty for a continuous feature.
    """

    spec: FeatureSpec
    cuts: tuple[float, ...] = ()
    categories: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        name = self.spec.name
        if self.spec.kind not in ("continuous", "nominal"):
            raise BundleError(f"feature {name!r} is neither continuous nor nominal")
        if self.spec.kind == "continuous" and self.categories:
            raise BundleError(f"feature {name!r} is continuous but has categories")
        if self.spec.kind == "nominal" and self.cuts:
            raise BundleError(f"feature {name!r} is nominal but has cuts")
        if not all(map(math.isfinite, self.cuts)):
            raise BundleError(f"feature {name!r} has a cut that is not finite")
        if any(a >= b for a, b in zip(self.cuts, self.cuts[1:], strict=False)):
            raise BundleError(f"feature {name!r} has cuts that do not increase")
        if len(set(self.categories)) != len(self.categories):
            raise BundleError(f"feature {name!r} has a category twice")

    @property
    def size(self) -> int:
        """Return the number of bins."""
        return len(self.cuts if self.spec.kind == "continuous" else self.categories) + 2

    def labels(self) -> tuple[str, ...]:
        """Return a name for each bin, for tables and plots."""
        if self.spec.kind == "nominal":
            return (MISSING, *self.categories, UNKNOWN)
        if not self.cuts:
            return (MISSING, "any")
        first, last = f"< {self.cuts[0]:.6g}", f">= {self.cuts[-1]:.6g}"
        inner = (f"{a:.6g} to {b:.6g}" for a, b in zip(self.cuts, self.cuts[1:], strict=False))
        return (MISSING, first, *inner, last)

    def finder(self) -> Callable[[Value], int]:
        """Return a function from one value to its bin. It raises TypeError for a value of the wrong
        kind."""
        if self.spec.kind == "continuous":
            cuts = list(self.cuts)

            def place(value: Any) -> int:
                if value is None or value != value:
                    return 0
                return bisect_right(cuts, value) + 1

            return place

        index = {category: i + 1 for i, category in enumerate(self.categories)}
        unknown = self.size - 1

        def find(value: Any) -> int:
            found = index.get(value)
            if found is not None:
                return found
            if isinstance(value, str):
                return unknown
            if value is None or value != value:
                return 0
            raise TypeError

        return find

    def bins(self, values: Any) -> NDArray[np.intp]:
        """Return bins of a column, (n,). Raises BundleError on values of the wrong kind."""
        if self.spec.kind == "continuous":
            try:
                x = np.asarray(values, dtype=np.float64)
            except (TypeError, ValueError):
                raise BundleError(f"feature {self.spec.name!r} must hold numbers") from None
            bins = np.searchsorted(np.array(self.cuts), x, side="right") + 1
            bins[np.isnan(x)] = 0
            return bins
        column = np.asarray(values, dtype=object)
        index: dict[Any, int] = {name: i + 1 for i, name in enumerate(self.categories)}
        bins = np.fromiter(map(index.get, column, repeat(-1)), dtype=np.intp, count=len(column))
        others = np.flatnonzero(bins < 0)  # missing, unknown or of the wrong kind
        find = self.finder()
        try:
            bins[others] = [find(value) for value in column[others]]
        except TypeError:
            raise BundleError(f"feature {self.spec.name!r} must hold strings or None") from None
        return bins


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """A shape function of one feature, or of a pair.

    Attributes:
        features: positions of one or two axes.
        scores: contribution per bin, (bins,) or (bins of first, bins of second).
        weights: training rows per bin, same shape.
        spread: standard error of the contribution, by training bags, same shape; zero where
            there is only one bag. It says how firm the shape is, not how wide a prediction
            interval would be.
        origin: "fit"; "monotone" when flattened after fitting to keep a promise of its
            feature; "edited" when a person changed it.
    """

    features: tuple[int, ...]
    scores: Floats
    weights: Floats
    spread: Floats
    origin: str = "fit"

    def importance(self) -> float:
        """Return the importance of the term: its mean absolute contribution to the score over the
        training rows."""
        total = float(self.weights.sum())
        return float((np.abs(self.scores) * self.weights).sum() / total) if total else 0.0

    def seen(self) -> range:
        """Return the bins of a term of one continuous feature in which training rows fell, with
        one more on either side. Beyond them the curve rests on no data. If no row fell in any,
        return all but that of missing values.
        """
        held = np.flatnonzero(self.weights[1:] > 0) + 1
        last = len(self.weights) - 1
        if not len(held):
            return range(1, last + 1)
        return range(max(1, int(held[0]) - 1), min(last, int(held[-1]) + 1) + 1)


class Explanation(NamedTuple):
    """One scored row. `intercept` plus `terms`, added in order, is `score`."""

    score: float
    intercept: float
    terms: tuple[float, ...]


class AdditiveModel:
    """A GA2M ready to score. Immutable; safe to share.

    Args:
        axes: one per feature, in the order of a row.
        terms: single features first, then pairs.
        intercept: score of a row whose terms are all zero.
        link: "log1p": the score is ln(1 + seconds); "logit": the log-odds of something;
            "identity": the score is the value.

    Raises BundleError when the parts do not fit together.
    """

    def __init__(
        self,
        axes: Iterable[Axis],
        terms: Iterable[Term],
        intercept: float,
        link: str = "log1p",
    ) -> None:
        self.axes = tuple(axes)
        self.terms = tuple(terms)
        self.intercept = float(intercept)
        self.link = link
        self._check()
        self.features: tuple[FeatureSpec, ...] = tuple(axis.spec for axis in self.axes)
        names = [spec.name for spec in self.features]
        self.term_names: tuple[str, ...] = tuple(
            " & ".join(names[i] for i in term.features) for term in self.terms
        )
        # Plain lists: indexing them is several times faster than indexing arrays.
        self._finders = [axis.finder() for axis in self.axes]
        self._readers = [
            (list(axis.cuts) or None, find)
            for axis, find in zip(self.axes, self._finders, strict=True)
        ]
        self._mains = [
            (t.features[0], t.scores.tolist()) for t in self.terms if len(t.features) == 1
        ]
        self._pairs = [
            (t.features[0], t.features[1], t.scores.tolist())
            for t in self.terms
            if len(t.features) == 2
        ]

    def _check(self) -> None:
        if not math.isfinite(self.intercept):
            raise BundleError("the intercept is not finite")
        if self.link not in LINKS:
            raise BundleError(f"link {self.link!r} is not one of {', '.join(LINKS)}")
        if len({axis.spec.name for axis in self.axes}) != len(self.axes):
            raise BundleError("a feature appears twice")
        orders = [len(term.features) for term in self.terms]
        if orders != sorted(orders) or not set(orders) <= {1, 2}:
            raise BundleError("terms must be single features first, then pairs")
        if len({term.features for term in self.terms}) != len(self.terms):
            raise BundleError("a term appears twice")
        for term in self.terms:
            self._check_term(term)

    def _check_term(self, term: Term) -> None:
        if len(set(term.features)) != len(term.features) or not all(
            0 <= i < len(self.axes) for i in term.features
        ):
            raise BundleError(f"a term names features {term.features} that do not exist")
        shape = tuple(self.axes[i].size for i in term.features)
        for tensor in (term.scores, term.weights, term.spread):
            if tensor.shape != shape:
                raise BundleError(f"a term has shape {tensor.shape}, its bins {shape}")
            if not np.isfinite(tensor).all():
                raise BundleError("a term holds a number that is not finite")
        if term.origin not in ORIGINS:
            raise BundleError(f"origin {term.origin!r} is not one of {', '.join(ORIGINS)}")

    # -- one row ---------------------------------------------------------------------------

    def explain(self, row: Sequence[Value]) -> Explanation:
        """Return the score and exact terms of one row.

        Args:
            row: values aligned with `features`: float (NaN missing) or str (None missing).

        Raises BundleError when the row has another length or a value of the wrong kind.
        """
        readers = self._readers
        if len(row) != len(readers):
            raise BundleError(f"the row has {len(row)} values, the model {len(readers)} features")
        values: Sequence[Any] = row
        try:
            bins = [
                find(x) if cuts is None else bisect_right(cuts, x) + 1 if x == x else 0
                for x, (cuts, find) in zip(values, readers, strict=True)
            ]
        except TypeError:  # None for a number, or a value of the wrong kind
            bins = self._bins_slowly(row)
        terms = [scores[bins[i]] for i, scores in self._mains]
        terms += [scores[bins[i]][bins[j]] for i, j, scores in self._pairs]
        score = self.intercept
        for term in terms:
            score += term
        return Explanation(score, self.intercept, tuple(terms))

    def score(self, row: Sequence[Value]) -> float:
        """Return the model's score of one row of inputs (for durations: ln(1 + seconds)); see
        `explain`."""
        return self.explain(row).score

    def _bins_slowly(self, row: Sequence[Value]) -> list[int]:
        bins = []
        for spec, find, value in zip(self.features, self._finders, row, strict=True):
            try:
                bins.append(find(value))
            except TypeError:
                accepted = "a number" if spec.kind == "continuous" else "a string or None"
                raise BundleError(
                    f"feature {spec.name!r} is {value!r}, must be {accepted}"
                ) from None
        return bins

    # -- many rows -------------------------------------------------------------------------

    def bins_batch(self, columns: Any) -> list[NDArray[np.intp]]:
        """Return the bins of every feature, each (n,). `columns[name]` must be a column of n
        values.
        """
        bins = []
        for axis in self.axes:
            try:
                values = columns[axis.spec.name]
            except (KeyError, IndexError):
                raise BundleError(f"feature {axis.spec.name!r} is not among the columns") from None
            bins.append(axis.bins(values))
        if len({len(column) for column in bins}) > 1:
            raise BundleError("the columns differ in length")
        return bins

    def terms_batch(self, columns: Any) -> Floats:
        """Return the contribution of each term to the score of n rows, an array (n, terms).
        `columns` is a data frame or a mapping of columns."""
        bins = self.bins_batch(columns)
        n = len(bins[0]) if bins else 0
        terms = np.empty((n, len(self.terms)))
        for k, term in enumerate(self.terms):
            terms[:, k] = term.scores[tuple(bins[i] for i in term.features)]
        return terms

    def score_batch(self, columns: Any) -> Floats:
        """Return the scores of n rows, an array (n,). They equal those of `explain` bit for bit."""
        bins = self.bins_batch(columns)
        scores = np.full(len(bins[0]) if bins else 0, self.intercept)
        for term in self.terms:  # in order: float addition is not associative
            scores += term.scores[tuple(bins[i] for i in term.features)]
        return scores

    def seconds(self, score: Any) -> Any:
        """Return the value that a score stands for, float or array, alike on every processor.

        Of the link "log1p" that is seconds, never negative.
        """
        if self.link == "identity":
            return score
        if self.link == "logit":
            chance = np.round(1.0 / (1.0 + np.exp(-np.asarray(score))), portable.RATIO)
            return float(chance) if np.ndim(chance) == 0 else chance
        value = np.round(np.maximum(np.expm1(np.minimum(score, 50.0)), 0.0), portable.SECONDS)
        return float(value) if np.ndim(value) == 0 else value

    # -- the model itself ------------------------------------------------------------------

    def importances(self) -> dict[str, float]:
        """Return mean absolute contribution of each term, largest first."""
        pairs = zip(self.term_names, (term.importance() for term in self.terms), strict=True)
        return dict(sorted(pairs, key=lambda pair: -pair[1]))
