"""Reads the models of a bundle for the report. No other part of the report reads a bundle."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from models.bundle import AdditiveModel, Axis, Bundle, Term
from models.training.metrics import TITLES
from pipeline.student import bound
from scheduler.charts.chart import Chart
from scheduler.charts.histories import of_bundle
from scheduler.charts.importance import Bar, importance, ranked
from scheduler.charts.shapes import factor_text, feature_text, heat, shape, span
from scheduler.charts.trees import Drawing, trees
from scheduler.explain.words import duration

MAX_SHAPES = 40
MAX_PAIRS = 10


@dataclass(frozen=True)
class ModelFacts:
    """The content of a bundle of models, with charts like those of the service's page about models.

    Attributes:
        texts: name of a feature of the duration model -> its text.
        shapes, pairs: charts of its terms of one feature, and of two; the most important first.
        histories: charts of the histories (durations of groups of jobs) in the bundle.
        undrawn: number of terms without a chart: they changed no prediction of a training row, or
            there are too many for a page.
        terms, of_pairs: number of all its terms, and of those of two features.
        sharing: how GPUs were shared where the pairs were measured; "" unknown.
    """

    digest: str
    created_by: str
    metadata: Mapping[str, Any]
    texts: Mapping[str, str]
    importance: Sequence[Bar]
    shapes: Sequence[Chart]
    pairs: Sequence[Chart]
    histories: Sequence[Chart]
    undrawn: int
    terms: int
    of_pairs: int
    packing: Drawing | None
    pair_speed: Drawing | None
    pair_hinge: Drawing | None
    sharing: str

    def described(self, part: str) -> Mapping[str, Any]:
        """Return the metadata of one of the models in the bundle; {} if there is none."""
        value = self.metadata.get(part)
        return value if isinstance(value, Mapping) else {}


def read_models(folder: Path) -> ModelFacts:
    """Return the parts of an exported bundle that the report shows. Raises BundleError if there is
    no bundle in the folder, or it is damaged."""
    bundle = Bundle.load(folder)
    model = bundle.duration if "duration" in bundle.parts else AdditiveModel([], [], 0.0)
    shapes = [
        replace(shape(model, term, f"shape-{i}"), note=meaning(model.axes[term.features[0]], term))
        for i, term in enumerate(ranked(model.terms, 1, MAX_SHAPES))
    ]
    pairs = [heat(model, t, f"pair-{i}") for i, t in enumerate(ranked(model.terms, 2, MAX_PAIRS))]
    return ModelFacts(
        bundle.digest,
        bundle.created_by,
        bundle.metadata,
        {axis.spec.name: feature_text(axis) for axis in model.axes},
        importance(model),
        shapes,
        pairs,
        of_bundle(bundle),
        len(model.terms) - len(shapes) - len(pairs),
        len(model.terms),
        sum(len(t.features) == 2 for t in model.terms),
        *trees(bundle),
        bundle.sharing,
    )


def meaning(axis: Axis, term: Term) -> str:
    """Return a sentence about what the curve of a term shows of the jobs that it was trained on."""
    held = [i for i in range(1, axis.size) if term.weights[i] > 0]
    if not held:
        return "No job had it."
    scores = term.scores
    top, low = (pick(held, key=scores.__getitem__) for pick in (max, min))
    if max(abs(scores[top]), abs(scores[low])) < 0.05:
        return f"It hardly matters: {factor_text(scores[low])} to {factor_text(scores[top])}."
    ups = np.diff(scores[held])
    ordered = axis.spec.kind != "nominal"
    if ordered and (ups.min(initial=0.0) >= -0.02 or ups.max(initial=0.0) <= 0.02):
        how = "longer" if top > low else "shorter"
        first, last = factor_text(scores[held[0]]), factor_text(scores[held[-1]])
        return f"More (to the right): predicted to run {how}, from {first} to {last}."
    return (
        f"Taken to run longest at {span(axis, [top])} ({factor_text(scores[top])}), shortest at "
        f"{span(axis, [low])} ({factor_text(scores[low])})."
    )


# --- metrics -------------------------------------------------------------------------------------

METRICS = {  # 1: the higher, the better
    "auc_1h": 1,
    "auc_6h": 1,
    "spearman": 1,
    "spearman_gpu_time": 1,
    "mae_log10": -1,
    "rmse_log10": -1,
}


@dataclass(frozen=True)
class ErrorRow:
    """The errors of one model: a cell is (text, whether it is the best in its column), in the order
    of the columns. `used` says whether the model is the one in use."""

    name: str
    used: bool
    cells: tuple[tuple[str, bool], ...]


@dataclass(frozen=True)
class ErrorTable:
    """Errors of the duration model and its baselines, on the same jobs.

    `within` says whether 95 % intervals of the errors are shown.
    """

    headings: tuple[str, ...]
    rows: tuple[ErrorRow, ...]
    jobs: int
    within: bool = False


IN_VIEW = ("auc_6h", "spearman", "mae_log10")
RULE = "ewma_user_gpus"


def in_view(metrics: Mapping[str, Any]) -> ErrorTable | None:
    """Return a table of errors with three kinds of models only: the model in use, the rule that
    needs no model, and those that are best in some figure. Return None if the metrics have no
    errors."""
    table = error_table(metrics, IN_VIEW)
    if table is None:
        return None
    rows = [
        row
        for row in table.rows
        if row.used or row.name == TITLES[RULE] or any(best for _, best in row.cells)
    ]
    return replace(table, rows=tuple(rows))


def error_table(
    metrics: Mapping[str, Any], names: Sequence[str] | None = None
) -> ErrorTable | None:
    """Return a table of the errors in the metrics: of their first object that maps models to
    figures; None if there is none. `names` limits the figures."""
    found = _models(metrics)
    if not found:
        return None
    within = metrics.get("within")
    sure = within if isinstance(within, Mapping) else {}
    shown = [key for key in METRICS if names is None or key in names]
    keys = [key for key in shown if any(_finite(row.get(key)) for row in found.values())]
    best = {
        key: (max if METRICS[key] > 0 else min)(
            row[key] for row in found.values() if _finite(row.get(key))
        )
        for key in keys
    }
    order = sorted(found, key=lambda name: (name != "ga2m", name))
    rows = tuple(
        ErrorRow(
            TITLES.get(name, name) + " (used)" * (name == "ga2m"),
            name == "ga2m",
            tuple(
                (_figure(found[name], sure.get(name, {}), key), found[name][key] == best[key])
                if _finite(found[name].get(key))
                else ("–", False)
                for key in keys
            ),
        )
        for name in order
    )
    jobs = max((int(row["n"]) for row in found.values() if _finite(row.get("n"))), default=0)
    return ErrorTable(tuple(TITLES[key] for key in keys), rows, jobs, bool(sure))


def _figure(row: Mapping[str, Any], sure: Mapping[str, Any], key: str) -> str:
    off = sure.get(key)
    return f"{row[key]:.3f}" + (f" ± {off:.3f}" if _finite(off) else "")


def slice_tables(metrics: Mapping[str, Any]) -> list[tuple[str, ErrorTable]]:
    """Return (property, table) for each property of jobs by which the model's errors were measured,
    with one row per value; [] if none were."""
    found = metrics.get("slices")
    if not isinstance(found, Mapping):
        return []
    tables = ((str(cut), error_table(rows)) for cut, rows in found.items())
    return [(cut, table) for cut, table in tables if table is not None]


@dataclass(frozen=True)
class LearningFacts:
    """How much history helps: rows of (jobs of history, error in powers of ten, average JCT in
    seconds), and a conclusion in words."""

    rows: tuple[tuple[int, float | None, float], ...]
    conclusion: str


def learning_facts(points: Sequence[Mapping[str, Any]]) -> LearningFacts | None:
    """Return the errors and average JCTs by number of jobs of history, from the least to the most;
    None with fewer than two points."""
    if len(points) < 2:
        return None
    rows = tuple((int(p["jobs"]), p.get("mae_log10"), float(p["avg_jct_s"])) for p in points)
    none, whole = (np.array(p.get("avg_jct_each_s", [])) for p in (points[0], points[-1]))
    if len(whole) < 2 or len(none) != len(whole):
        return LearningFacts(rows, "")
    less = none - whole
    mean = float(less.mean())
    sure = bound(0.95, len(less) - 1) * float(less.std(ddof=1)) / math.sqrt(len(less))
    within = f"± {duration(sure)}, 95 %, paired over {len(less)} draws"
    if abs(mean) <= sure:
        conclusion = f"level: with all of it jobs take as long as with none ({within}); the policy \
learns as it goes"
    else:
        how = "shorter" if mean > 0 else "longer"
        conclusion = (
            f"with all of it jobs take {duration(abs(mean))} {how} than with none ({within})"
        )
    return LearningFacts(rows, f"{conclusion}.")


STEADY, SHIFTED = 0.1, 0.25  # population stability index: the usual marks


@dataclass(frozen=True)
class DriftFacts:
    """How far jobs have changed since training: (feature, stability index, verdict) for the
    features that changed most, and warnings."""

    rows: int
    features: tuple[tuple[str, float, str], ...]
    warnings: tuple[str, ...]


def drift_facts(
    metrics: Mapping[str, Any], models: ModelFacts | None, most: int = 6
) -> DriftFacts | None:
    """Return the drift in the metrics, with the features' texts of the models; None if it was not
    measured. `most` limits the number of features."""
    found = metrics.get("drift")
    if not isinstance(found, Mapping) or not isinstance(found.get("features"), Mapping):
        return None
    texts = models.texts if models else {}
    ranked = sorted(found["features"].items(), key=lambda item: -float(item[1]))[:most]
    return DriftFacts(
        int(found.get("rows", 0)),
        tuple(
            (texts.get(str(name), str(name).replace("_", " ")), float(value), _moved(float(value)))
            for name, value in ranked
        ),
        (
            *(line for line in map(str, found.get("warnings", ())) if "stability" not in line),
            *(f"Unlike the weeks before: {line}" for line in map(str, metrics.get("unlike", ()))),
        ),
    )


def _moved(index: float) -> str:
    return "steady" if index < STEADY else "moving" if index < SHIFTED else "another population"


def _models(value: Any) -> dict[str, Mapping[str, Any]]:
    if not isinstance(value, Mapping):
        return {}
    rows = {
        str(name): row
        for name, row in value.items()
        if isinstance(row, Mapping) and METRICS.keys() & row.keys()
    }
    if rows:
        return rows
    for inner in value.values():
        if found := _models(inner):
            return found
    return {}


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
