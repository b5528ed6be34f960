"""The page of the models in use: what they learned, and whether jobs still look like training.

Categories of a nominal feature may be users' or jobs' names: only an operator sees those features
drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.bundle import SHARING_SCORES, AdditiveModel, Bundle, BundleError, Term, Tree
from scheduler.explain.words import factor, number, percent
from scheduler.service.pages.charts import Chart, duration_axis
from scheduler.service.pages.drift import Drift, drift
from scheduler.service.pages.queries import Outcome
from scheduler.service.pages.shapes import feature_text, heat, say, shape

Floats = NDArray[np.float64]

SHAPES, PAIRS, BARS = 8, 4, 15


@dataclass(frozen=True, slots=True)
class Bar:
    """A row of the importance table; `width` in percent."""

    text: str
    factor: str
    width: float


@dataclass(frozen=True, slots=True)
class Branch:
    """A node of a tree: a question with what follows yes and no, or an answer."""

    text: str
    rows: int
    yes: Branch | None = None
    no: Branch | None = None


@dataclass(frozen=True)
class Models:
    """Everything on the page. `missing` says why there is nothing."""

    missing: str = ""
    digest: str = ""
    facts: Sequence[tuple[str, str]] = ()
    importance: Sequence[Bar] = ()
    shapes: Sequence[Chart] = ()
    pairs: Sequence[Chart] = ()
    pair_speed: Sequence[Chart] = ()
    packing: Branch | None = None
    hidden: int = 0
    drift: Sequence[Drift] = ()
    drift_jobs: int = 0
    accuracy: Chart | None = None


def read_bundle(path: str | Path) -> Bundle | None:
    """The bundle in a folder; None when it cannot be read."""
    try:
        return Bundle.load(Path(path)) if str(path) else None
    except (BundleError, OSError):
        return None


def models(
    bundle: Bundle | None,
    live: Sequence[Sequence[str]],
    ended: Sequence[Outcome],
    *,
    sees_names: bool,
) -> Models:
    """The page.

    Args:
        live: feature values of the latest jobs, as text, aligned with the bundle's features.
        ended: jobs that ended, for predicted against true durations.
    """
    if bundle is None:
        return Models("No bundle of models is in use: durations are not predicted.")
    has = set(bundle.parts)
    accuracy = _accuracy(ended)
    if "duration" not in has:
        return Models("The bundle in use predicts no durations.", accuracy=accuracy)
    model = bundle.duration
    drawn = [t for t in model.terms if sees_names or not _nominal(model, t)]
    drifted = drift(model, live, sees_names)
    pair_model = bundle.pair_ga2m.model if "pair_ga2m" in has else None
    return Models(
        "",
        bundle.digest,
        _facts(bundle),
        _importance(model),
        [shape(model, t, f"shape-{i}") for i, t in enumerate(_ranked(drawn, 1, SHAPES))],
        [heat(model, t, f"pair-{i}") for i, t in enumerate(_ranked(drawn, 2, PAIRS))],
        list(_both(pair_model)) if pair_model else [],
        _branch(bundle.packing.tree) if "packing" in has else None,
        len(model.terms) - len(drawn),
        drifted,
        len(live),
        accuracy,
    )


def _both(model: AdditiveModel) -> Iterator[Chart]:
    for i, term in enumerate(_ranked(model.terms, 1, SHAPES)):
        yield shape(model, term, f"speed-{i}")
    for i, term in enumerate(_ranked(model.terms, 2, PAIRS)):
        yield heat(model, term, f"speed-pair-{i}")


def _ranked(terms: Sequence[Term], order: int, most: int) -> list[Term]:
    found = [t for t in terms if len(t.features) == order and t.importance() > 0]
    return sorted(found, key=lambda t: -t.importance())[:most]


def _nominal(model: AdditiveModel, term: Term) -> bool:
    return any(model.axes[i].spec.kind == "nominal" for i in term.features)


# --- what it is ----------------------------------------------------------------------------------


def _facts(bundle: Bundle) -> list[tuple[str, str]]:
    trained: Mapping[str, Any] = bundle.metadata.get("duration") or {}
    facts = [("digest", bundle.digest), ("made by", bundle.created_by)]
    for label, name in (
        ("training rows", "rows"),
        ("from", "window_from"),
        ("to", "window_to"),
        ("training data", "data_digest"),
    ):
        if trained.get(name) is not None:
            value = trained[name]
            facts.append((label, number(value) if isinstance(value, int) else str(value)[:25]))
    origin = (bundle.metadata.get("packing") or {}).get("origin")
    if origin:
        facts.append(("pairs", str(origin)))
    return facts


def _importance(model: AdditiveModel) -> list[Bar]:
    texts = {axis.spec.name: feature_text(axis) for axis in model.axes}
    chosen = list(model.importances().items())[:BARS]
    largest = max((value for _, value in chosen), default=0.0) or 1.0
    return [
        Bar(
            " and ".join(texts[part] for part in name.split(" & ")),
            say(model, value),
            100 * value / largest,
        )
        for name, value in chosen
        if value > 0
    ]


# --- trees ---------------------------------------------------------------------------------------


def _branch(tree: Tree, at: int = 0) -> Branch:
    node = tree.nodes[at]
    if node.feature < 0:
        best = max(range(len(node.value)), key=node.value.__getitem__)
        return Branch(f"{SHARING_SCORES[best]} ({percent(node.value[best])})", node.rows)
    name = tree.features[node.feature]
    question = "mixed precision off" if name == "amp" else f"{name} ≤ {node.threshold:.4g}"
    return Branch(question, node.rows, _branch(tree, node.left), _branch(tree, node.right))


def _accuracy(ended: Sequence[Outcome]) -> Chart | None:
    """Predicted against true durations of jobs that ended by themselves."""
    seen = [
        (max(o.estimate_s, 0.1), max(o.ran_s, 0.1))
        for o in ended
        if o.estimate_s is not None and o.state in ("completed", "failed")
    ][:1000]
    if len(seen) < 5:
        return None
    ratios = np.array([ran / told for told, ran in seen])
    low, mid, high = (float(v) for v in np.quantile(ratios, (0.1, 0.5, 0.9)))
    ends = [min(min(a, b) for a, b in seen), max(max(a, b) for a, b in seen)]
    return Chart(
        "accuracy",
        "Predicted and true durations",
        f"Predicted against true durations of {len(seen)} jobs: the true one is {factor(mid)} of "
        f"the predicted in the middle, {factor(low)} to {factor(high)} for 8 of 10",
        [
            {
                "type": "scatter", "mode": "lines", "x": ends, "y": ends, "hoverinfo": "skip",
                "line": {"color": "--muted", "dash": "dot", "width": 1}, "showlegend": False,
            },
            {
                "type": "scatter", "mode": "markers", "x": [a for a, _ in seen],
                "y": [b for _, b in seen], "showlegend": False,
                "marker": {"color": "--s0", "size": 5, "opacity": 0.55},
                "hovertemplate": "predicted %{x:.3g} s, took %{y:.3g} s<extra></extra>",
            },
        ],
        {
            "xaxis": duration_axis("predicted"),
            "yaxis": duration_axis("on GPUs"),
        },
        ("jobs", "true / predicted: 10 %", "50 %", "90 %"),
        [[str(len(seen)), factor(low), factor(mid), factor(high)]],
        f"The last {len(seen)} jobs that ended by themselves. A slowdown by sharing is in the true "
        "one.",
    )  # fmt: skip
