"""The models as the report needs them: the only place of the report that reads a bundle."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.bundle import SHARING_SCORES, AdditiveModel, Axis, Bundle, Term, Tree
from pipeline.student import bound
from scheduler.explain.words import duration, factor, number

Floats = NDArray[np.float64]

MAX_SHAPES = 40
MAX_PAIRS = 10
MAX_CELLS = 12  # groups of bins along one side of an interaction


@dataclass(frozen=True)
class Shape:
    """The shape function of one feature.

    Attributes:
        name, text, unit: of the feature.
        cuts: cut points of a continuous feature, (bins - 1,); empty for a nominal one.
        labels: names of the bins, the missing one first, (1 + bins,).
        scores, weights, spread: contribution, training rows, and standard deviation over training
            bags, per bin, the missing one first, (1 + bins,).
        importance: mean absolute contribution.
        origin: "fit", "monotone" or "edited".
    """

    name: str
    text: str
    unit: str
    cuts: tuple[float, ...]
    labels: tuple[str, ...]
    scores: Floats
    weights: Floats
    spread: Floats
    importance: float
    origin: str

    @property
    def nominal(self) -> bool:
        """Whether the feature is a category."""
        return not self.cuts

    @property
    def meaning(self) -> str:
        """What the curve says of the jobs it was drawn of, one sentence."""
        held = [i for i in range(1, len(self.scores)) if self.weights[i] > 0]
        if not held:
            return "No job had it."
        top, low = (pick(held, key=self.scores.__getitem__) for pick in (max, min))
        most, least = (factor(math.exp(self.scores[i])) for i in (top, low))
        if max(abs(self.scores[top]), abs(self.scores[low])) < 0.05:
            return f"It hardly matters: {least} to {most}."
        ups = np.diff(self.scores[held])
        if not self.nominal and (ups.min(initial=0.0) >= -0.02 or ups.max(initial=0.0) <= 0.02):
            how = "longer" if top > low else "shorter"
            first, last = (factor(math.exp(self.scores[i])) for i in (held[0], held[-1]))
            return f"The higher, the {how} a job is taken to run: from {first} to {last}."
        return (
            f"Taken to run longest at {self._at(top)} ({most}), shortest at {self._at(low)} "
            f"({least})."
        )

    def _at(self, i: int) -> str:
        """Where a bin lies, for people."""
        if self.nominal:
            return self.labels[i]
        say = _saying(self.name, self.unit)
        if i == 1:
            return f"less than {say(self.cuts[0])}"
        if i > len(self.cuts):
            return f"{say(self.cuts[-1])} or more"
        return f"{say(self.cuts[i - 2])} to {say(self.cuts[i - 1])}"


@dataclass(frozen=True)
class Interaction:
    """A pair of features, averaged over training rows to at most `MAX_CELLS` groups a side.

    Attributes:
        names, texts: of the two features.
        labels: names of the groups of each.
        scores: mean contribution per cell, (groups a, groups b); None where there is no data.
    """

    names: tuple[str, str]
    texts: tuple[str, str]
    labels: tuple[tuple[str, ...], tuple[str, ...]]
    scores: tuple[tuple[float | None, ...], ...]

    @property
    def reach(self) -> str:
        """The smallest and the largest factor, in words: colours only say which is which."""
        values = [value for row in self.scores for value in row if value is not None]
        low, high = (factor(math.exp(value)) for value in (min(values), max(values)))
        return f"From {low} to {high}."


@dataclass(frozen=True)
class TreeNode:
    """A node of a decision tree, for drawing.

    Attributes:
        question: the comparison that goes left; "" in a leaf.
        answer: what the node says.
        kind: number of the answer's class (0 when there are no classes).
        rows: training rows that reached it.
    """

    question: str
    answer: str
    kind: int
    rows: int
    left: TreeNode | None = None
    right: TreeNode | None = None

    @property
    def leaves(self) -> int:
        """Leaves below, itself included."""
        if self.left is None or self.right is None:
            return 1
        return self.left.leaves + self.right.leaves


@dataclass(frozen=True)
class ModelFacts:
    """What a bundle holds."""

    digest: str
    created_by: str
    metadata: Mapping[str, Any]
    importance: tuple[tuple[str, str, float], ...]  # term, text, mean absolute contribution
    shapes: tuple[Shape, ...]
    interactions: tuple[Interaction, ...]
    undrawn: int  # terms that moved no training row, and those beyond what a page holds
    terms: int
    pairs: int
    packing: TreeNode | None
    pair_speed: TreeNode | None
    sharing: str  # how GPUs were shared where the pairs were measured; "" unknown

    def described(self, part: str) -> Mapping[str, Any]:
        """Metadata of one of the models."""
        value = self.metadata.get(part)
        return value if isinstance(value, Mapping) else {}


def read_models(folder: Path) -> ModelFacts:
    """Read an exported bundle. BundleError when there is none, or it is damaged."""
    bundle = Bundle.load(folder)
    has = set(bundle.parts)
    model = bundle.duration if "duration" in has else None
    shapes = tuple(_shapes(model)) if model else ()
    interactions = tuple(_interactions(model)) if model else ()
    return ModelFacts(
        bundle.digest,
        bundle.created_by,
        bundle.metadata,
        tuple(_importance(model)) if model else (),
        shapes,
        interactions,
        len(model.terms) - len(shapes) - len(interactions) if model else 0,
        len(model.terms) if model else 0,
        sum(len(t.features) == 2 for t in model.terms) if model else 0,
        _tree(bundle.packing.tree, classes=True) if "packing" in has else None,
        _tree(bundle.pair_speed.tree, classes=False) if "pair_speed" in has else None,
        bundle.sharing,
    )


def _importance(model: AdditiveModel) -> Iterator[tuple[str, str, float]]:
    texts = {spec.name: spec.text or spec.name for spec in model.features}
    for name, value in model.importances().items():
        yield name, " and ".join(texts[part] for part in name.split(" & ")), value


def _ranked(model: AdditiveModel, order: int, most: int) -> list[Term]:
    terms = [t for t in model.terms if len(t.features) == order and t.importance() > 0]
    return sorted(terms, key=lambda t: -t.importance())[:most]


def _shapes(model: AdditiveModel) -> Iterator[Shape]:
    for term in _ranked(model, 1, MAX_SHAPES):
        axis = model.axes[term.features[0]]
        if axis.spec.kind == "continuous":
            seen = term.seen()
            bins, cuts = [0, *seen], axis.cuts[seen[0] - 1 : seen[-1] - 1]
        else:  # the last bin is for categories training never saw
            bins, cuts = list(range(axis.size - 1)), ()
        labels = axis.labels()
        yield Shape(
            axis.spec.name,
            axis.spec.text or axis.spec.name,
            axis.spec.unit,
            cuts,
            tuple(labels[i] for i in bins),
            term.scores[bins],
            term.weights[bins],
            term.spread[bins],
            term.importance(),
            term.origin,
        )


def _interactions(model: AdditiveModel) -> Iterator[Interaction]:
    for term in _ranked(model, 2, MAX_PAIRS):
        first, second = (model.axes[i] for i in term.features)
        rows, row_labels = _groups(first, term.weights.sum(axis=1))
        columns, column_labels = _groups(second, term.weights.sum(axis=0))
        cells = tuple(tuple(_mean(term, row, column) for column in columns) for row in rows)
        yield Interaction(
            (first.spec.name, second.spec.name),
            (first.spec.text or first.spec.name, second.spec.text or second.spec.name),
            (row_labels, column_labels),
            cells,
        )


def _mean(term: Term, rows: list[int], columns: list[int]) -> float | None:
    weights = term.weights[np.ix_(rows, columns)]
    total = float(weights.sum())
    return float((term.scores[np.ix_(rows, columns)] * weights).sum()) / total if total else None


def _groups(axis: Axis, weights: Floats) -> tuple[list[list[int]], tuple[str, ...]]:
    """Neighbouring bins joined into groups of about equal data; missing stands alone."""
    labels = axis.labels()
    held = [i for i in range(1, axis.size) if weights[i] > 0]
    limit = float(weights[1:].sum()) / MAX_CELLS
    groups: list[list[int]] = [[0]] if weights[0] > 0 else []
    filled = limit
    for i in held:
        if filled >= limit or axis.spec.kind == "nominal":
            groups.append([])
            filled = 0.0
        groups[-1].append(i)
        filled += float(weights[i])
    if axis.spec.kind == "nominal":
        return groups, tuple(labels[g[0]] for g in groups)
    return groups, tuple(_group_label(axis, g) for g in groups)


def _group_label(axis: Axis, group: list[int]) -> str:
    if group[0] == 0:
        return "missing"
    say = _saying(axis.spec.name, axis.spec.unit)
    if group[0] == 1:
        return f"< {say(axis.cuts[group[-1] - 1])}" if group[-1] <= len(axis.cuts) else "any"
    return f"≥ {say(axis.cuts[group[0] - 2])}"


def _saying(name: str, unit: str) -> Callable[[float], str]:
    """How a person reads a value of the feature."""
    if unit == "s":
        return duration
    if not unit.startswith("ln "):
        return number
    if name.endswith("_log_s"):
        return lambda value: duration(math.expm1(value))
    return lambda value: factor(math.exp(value))


def _tree(tree: Tree, *, classes: bool, at: int = 0) -> TreeNode:
    node = tree.nodes[at]
    best = max(range(len(node.value)), key=node.value.__getitem__)
    answer = (
        f"{SHARING_SCORES[best]} {100 * node.value[best]:.0f} %"
        if classes
        else f"speed {node.value[0]:.2f}"
    )
    kind = best if classes else 0
    if node.feature < 0:
        return TreeNode("", answer, kind, node.rows)
    return TreeNode(
        _question(tree.features[node.feature], node.threshold),
        answer,
        kind,
        node.rows,
        _tree(tree, classes=classes, at=node.left),
        _tree(tree, classes=classes, at=node.right),
    )


_READ = {
    "gpu_util_pct": ("GPU utilisation", " %"),
    "gpu_mem_util_pct": ("memory activity", " %"),
    "gpu_mem_mib": ("GPU memory", " MiB"),
    "gpu_util_sum_pct": ("both utilisations", " %"),
    "gpu_mem_util_sum_pct": ("both mem. activities", " %"),
    "gpu_util_minus_partner_pct": ("own − partner util.", " %"),
}


def _question(feature: str, threshold: float) -> str:
    if feature == "amp":
        return "mixed precision off"
    name, unit = _READ.get(feature, (feature, ""))
    return f"{name} ≤ {threshold:.4g}{unit}"


# --- metrics -------------------------------------------------------------------------------------

METRICS: tuple[tuple[str, str, int], ...] = (
    ("auc_1h", "AUC longer than 1 h", 1),
    ("auc_6h", "AUC longer than 6 h", 1),
    ("spearman", "Spearman, duration", 1),
    ("spearman_gpu_time", "Spearman, GPU-time", 1),
    ("mae_log10", "MAE of log10", -1),
    ("rmse_log10", "RMSE of log10", -1),
)
_TITLES = {
    "ga2m": "GA2M (used)",
    "constant_median": "constant median",
    "lightgbm_l1": "LightGBM, median",
    "lightgbm_l2": "LightGBM, mean",
    "ewma_user_gpus": "moving average per user and GPUs",
}


@dataclass(frozen=True)
class ErrorRow:
    """A model's errors, in the order of the columns: text, and whether it is the best."""

    name: str
    used: bool
    cells: tuple[tuple[str, bool], ...]


@dataclass(frozen=True)
class ErrorTable:
    """Errors of the duration model beside its baselines, on the same jobs.

    `within`: whether their 95 % intervals are known.
    """

    headings: tuple[str, ...]
    rows: tuple[ErrorRow, ...]
    jobs: int
    within: bool = False


IN_VIEW = ("auc_6h", "spearman", "mae_log10")


def error_table(
    metrics: Mapping[str, Any], names: Sequence[str] | None = None
) -> ErrorTable | None:
    """The errors in a metrics file: the first object found that maps models to their figures."""
    found = _models(metrics)
    if not found:
        return None
    within = metrics.get("within")
    sure = within if isinstance(within, Mapping) else {}
    shown = [m for m in METRICS if names is None or m[0] in names]
    keys = [m for m in shown if any(_finite(row.get(m[0])) for row in found.values())]
    best = {
        key: (max if sign > 0 else min)(row[key] for row in found.values() if _finite(row.get(key)))
        for key, _, sign in keys
    }
    order = sorted(found, key=lambda name: (name != "ga2m", name))
    rows = tuple(
        ErrorRow(
            _TITLES.get(name, name),
            name == "ga2m",
            tuple(
                (_figure(found[name], sure.get(name, {}), key), found[name][key] == best[key])
                if _finite(found[name].get(key))
                else ("–", False)
                for key, _, _ in keys
            ),
        )
        for name in order
    )
    jobs = max((int(row["n"]) for row in found.values() if _finite(row.get("n"))), default=0)
    return ErrorTable(tuple(title for _, title, _ in keys), rows, jobs, bool(sure))


def _figure(row: Mapping[str, Any], sure: Mapping[str, Any], key: str) -> str:
    off = sure.get(key)
    return f"{row[key]:.3f}" + (f" ± {off:.3f}" if _finite(off) else "")


def slice_tables(metrics: Mapping[str, Any]) -> list[tuple[str, ErrorTable]]:
    """The errors of the model by slice, one table per cut; empty when none were measured."""
    found = metrics.get("slices")
    if not isinstance(found, Mapping):
        return []
    tables = ((str(cut), error_table(rows)) for cut, rows in found.items())
    return [(cut, table) for cut, table in tables if table is not None]


@dataclass(frozen=True)
class LearningFacts:
    """What history is worth: (jobs, error in powers of ten, average JCT in s); a conclusion."""

    rows: tuple[tuple[int, float | None, float], ...]
    said: str


def learning_facts(points: Sequence[Mapping[str, Any]]) -> LearningFacts | None:
    """Errors and average JCT by jobs of history, from the least to all of it."""
    if len(points) < 2:
        return None
    rows = tuple((int(p["jobs"]), p.get("mae_log10"), float(p["avg_jct_s"])) for p in points)
    none, whole = (np.array(p.get("avg_jct_each_s", [])) for p in (points[0], points[-1]))
    if len(whole) < 2 or len(none) != len(whole):
        return LearningFacts(rows, "")
    less = none - whole
    mean = float(less.mean())
    sure = bound(0.95, len(less) - 1) * float(less.std(ddof=1)) / math.sqrt(len(less))
    how = "shorter" if mean > 0 else "longer"
    said = (
        f"With all of it jobs take {duration(abs(mean))} {how} than with none "
        f"(± {duration(sure)}, 95 %, {len(less)} draws)"
    )
    if abs(mean) <= sure:
        said += ": no more than chance. Even with none the policy learns as it goes"
    return LearningFacts(rows, f"{said}.")


STEADY, SHIFTED = 0.1, 0.25  # population stability index: the usual marks


@dataclass(frozen=True)
class DriftFacts:
    """What moved since training: (feature, stability index, verdict), largest first; warnings."""

    rows: int
    features: tuple[tuple[str, float, str], ...]
    warnings: tuple[str, ...]


def drift_facts(
    metrics: Mapping[str, Any], models: ModelFacts | None, most: int = 6
) -> DriftFacts | None:
    """The drift in a metrics file, in words of the models; None when it was not measured."""
    found = metrics.get("drift")
    if not isinstance(found, Mapping) or not isinstance(found.get("features"), Mapping):
        return None
    texts = {name: text for name, text, _ in models.importance} if models else {}
    ranked = sorted(found["features"].items(), key=lambda item: -float(item[1]))[:most]
    return DriftFacts(
        int(found.get("rows", 0)),
        tuple(
            (texts.get(str(name), str(name).replace("_", " ")), float(value), _moved(float(value)))
            for name, value in ranked
        ),
        tuple(line for line in map(str, found.get("warnings", ())) if "stability" not in line),
    )


def _moved(index: float) -> str:
    return "steady" if index < STEADY else "moving" if index < SHIFTED else "another population"


def _models(value: Any) -> dict[str, Mapping[str, Any]]:
    if not isinstance(value, Mapping):
        return {}
    names = {key for key, _, _ in METRICS}
    rows = {
        str(name): row
        for name, row in value.items()
        if isinstance(row, Mapping) and names & set(row)
    }
    if rows:
        return rows
    for inner in value.values():
        if found := _models(inner):
            return found
    return {}


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
