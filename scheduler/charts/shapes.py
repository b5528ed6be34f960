"""Charts of an additive model's terms: shape functions (curves over one feature) and pairs of
features.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from models.bundle import AdditiveModel, Axis, Term
from scheduler.charts.chart import (
    DURATION_TICKS,
    Chart,
    ChartAxis,
    Layout,
    Stroke,
    Trace,
    line,
)
from scheduler.core.decisions import Score
from scheduler.explain.words import duration, factor, number, percent

Floats = NDArray[np.float64]

# ticks of a factor, in the order they are chosen
_FACTORS = (
    1, 2, 0.5, 10, 0.1, 100, 0.01, 1.2, 0.8, 5, 0.2, 1.1, 0.9, 1.5, 0.7, 1.05, 0.95, 1.02, 0.98,
)  # fmt: skip


# --- words ---


def feature_text(axis: Axis) -> str:
    return axis.spec.text or axis.spec.name


def factor_text(value: float) -> str:
    """Return a term's contribution to a score (a logarithm) as a factor on the duration, in
    words.
    """
    return factor(math.exp(value))


def _log_seconds(value: float) -> str:
    return duration(math.expm1(value))


def _ratio(value: float) -> str:
    return factor(math.exp(value))


def _chance(value: float) -> str:
    return percent(1 / (1 + math.exp(-value)))


_TEXTS = {"s": duration, "ln odds": _chance}


def span(axis: Axis, group: Sequence[int]) -> str:
    labels = axis.labels()
    if group[0] == 0 or axis.spec.kind == "nominal":
        return labels[group[0]]
    text_of = _TEXTS.get(axis.spec.unit, number)
    if axis.spec.name.endswith("_log_s"):
        text_of = _log_seconds
    elif axis.spec.unit in ("ln s", "ln ratio"):
        text_of = _ratio
    low = text_of(axis.cuts[group[0] - 2]) if group[0] >= 2 else ""
    high = text_of(axis.cuts[group[-1] - 1]) if group[-1] <= len(axis.cuts) else ""
    if low and high:
        return f"{low} to {high}"
    return f"≥ {low}" if low else f"< {high}" if high else "any value"


# --- shape functions -----------------------------------------------------------------------------


def shape(model: AdditiveModel, term: Term, name: str) -> Chart:
    axis = model.axes[term.features[0]]
    nominal = axis.spec.kind == "nominal"
    order = (
        [int(i) for i in np.argsort(-term.weights) if term.weights[i] > 0][:12]
        if nominal
        else list(term.seen())
    )
    labels = axis.labels()
    scores = term.scores[order]
    texts = [factor_text(float(s)) for s in scores]
    rows = [
        [labels[i], text, percent(float(term.weights[i] / (term.weights.sum() or 1.0)))]
        for i, text in zip(order, texts, strict=True)
    ]
    if not nominal and term.weights[0] > 0:
        share = percent(float(term.weights[0] / term.weights.sum()))
        rows.insert(0, ["missing", factor_text(float(term.scores[0])), share])
    draw = _bars_of if nominal else _steps_of
    data, layout = draw(axis, term, order)
    low, high = (factor_text(float(f)) for f in (scores.min(), scores.max()))
    origin = "" if term.origin == "fit" else f" ({term.origin})"
    return Chart(
        name=name,
        title=feature_text(axis) + origin,
        label=f"Shape function of {feature_text(axis)}: from {low} to {high}",
        data=data,
        layout=layout,
        head=(axis.spec.unit or "value", "multiplies the estimate", "of training rows"),
        rows=rows,
        code=axis.spec.name,
    )


def placed(model: AdditiveModel, score: Score, most: int = 12) -> list[Chart]:
    """Return charts of the terms with the largest effect on a job's score, at most `most`, each
    with the job's own value marked. Only continuous features are shown: the values of categories
    are named in the job's waterfall chart.
    """
    values = dict(zip((spec.name for spec in model.features), score.inputs, strict=False))
    pairs = list(zip(model.terms, score.terms, strict=False))
    mains = [
        (term, added)
        for term, added in pairs
        if len(term.features) == 1 and model.axes[term.features[0]].spec.kind == "continuous"
    ]
    ranked = sorted(mains, key=lambda pair: -abs(pair[1]))[:most]
    return [
        _with_place(shape(model, term, f"term-{i}"), values, added)
        for i, (term, added) in enumerate(ranked)
        if added
    ]


def _with_place(chart: Chart, values: Mapping[str, str], added: float) -> Chart:
    """Return the chart of a shape function with the job's own value marked. A value outside the
    chart is marked at its edge; for an unknown value only a note is added.

    Args:
        values: the job's features by name, as text.
        added: what the term adds to the job's score.
    """
    text = values.get(chart.code, "")
    if not text:
        note = f"It is not known of this job: {factor_text(added)}."
        return replace(chart, note=note)
    value, drawn = float(text), chart.data[2]["x"]
    at = min(max(value, float(drawn[0])), float(drawn[-1]))
    beyond = "" if at == value else " It lies beyond the data: taken as at their edge."
    place = line([at], [math.exp(added)], "this job", 2, mode="markers", hoverinfo="skip")
    place["marker"] = {"color": "--s1", "size": 11}
    note = f"This job: {factor_text(added)}.{beyond}"
    return replace(chart, data=[*chart.data, place], note=note)


def _value_axis(low: float, high: float) -> ChartAxis:
    room, ticks = math.log(high / low) / 6 if high > low else 1.0, list[float]()
    for f in _FACTORS:
        clear = all(abs(math.log(f / t)) >= room for t in ticks)
        if low * 0.98 <= f <= high * 1.02 and clear:
            ticks.append(f)
    return {"type": "log", "tickvals": ticks, "ticktext": [f"×{f:g}" for f in ticks]}


def _steps_of(axis: Axis, term: Term, order: Sequence[int]) -> tuple[list[Trace], Layout]:
    inner = axis.cuts[order[0] - 1 : order[-1] - 1]
    cuts = inner or (0.0,)
    log = len(cuts) > 1 and cuts[0] > 0 and cuts[-1] / cuts[0] > 50
    room = (cuts[-1] - cuts[0]) / max(len(cuts) - 1, 1) or 1.0
    first, last = (cuts[0] / 2, cuts[-1] * 2) if log else (cuts[0] - room, cuts[-1] + room)
    edges = [first, *inner, last]
    scores, spread = term.scores[order], term.spread[order]
    again = [*range(len(order)), len(order) - 1]
    mid, low, high = (
        [float(np.exp(s[k])) for k in again] for s in (scores, scores - spread, scores + spread)
    )
    texts = [axis.labels()[order[k]] for k in again]
    weights = [float(w) for w in term.weights[order]]
    step: Stroke = {"shape": "hv"}
    hidden: Trace = {"type": "scatter", "mode": "lines", "x": edges, "hoverinfo": "skip"}
    data: list[Trace] = [
        {**hidden, "y": low, "line": {**step, "width": 0}, "showlegend": False},
        {
            **hidden, "y": high, "line": {**step, "width": 0}, "fill": "tonexty",
            "fillcolor": "--accent-soft", "showlegend": False,
        },
        {
            "type": "scatter", "mode": "lines", "x": edges, "y": mid, "text": texts,
            "line": {**step, "color": "--s0", "width": 2}, "showlegend": False,
            "hovertemplate": "%{text}: %{y:.3g}",
        },
        {
            "type": "bar", "x": [(a + b) / 2 for a, b in pairwise(edges)],
            "width": [b - a for a, b in pairwise(edges)],
            "y": [w / (b - a) ** 0.5 for w, (a, b) in zip(weights, pairwise(edges), strict=True)],
            "yaxis": "y2", "marker": {"color": "--line"}, "hoverinfo": "skip", "showlegend": False,
        },
    ]  # fmt: skip
    tallest = max(data[-1]["y"], default=1.0) or 1.0
    x: ChartAxis = {
        **_unit_axis(axis),
        "showgrid": False,
        **({"type": "log"} if log else {}),
    }
    layout: Layout = {
        "xaxis": x,
        "yaxis": _value_axis(min(low), max(high)),
        "yaxis2": {
            "range": [0, 5 * tallest], "visible": False,
        },
    }  # fmt: skip
    return data, layout


def _unit_axis(axis: Axis) -> ChartAxis:
    """Return the chart axis of a feature. If the unit is a logarithm, ticks show chances, durations
    or factors. Otherwise the title shows the unit.
    """
    if axis.spec.unit == "ln odds":
        chances = (0.001, 0.01, 0.05, 0.2, 0.5, 0.8, 0.95, 0.99, 0.999)
        at = [math.log(c / (1 - c)) for c in chances]
        return {
            "tickvals": at,
            "ticktext": [percent(c) for c in chances],
            "title": {"text": "chance"},
        }
    if axis.spec.unit == "ln s" and axis.spec.name.endswith("_log_s"):
        return {
            "tickvals": [math.log1p(s) for s, _ in DURATION_TICKS],
            "ticktext": [text for _, text in DURATION_TICKS],
        }
    if axis.spec.unit.startswith("ln "):
        ratios = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100)
        return {
            "tickvals": [math.log(ratio) for ratio in ratios],
            "ticktext": [f"×{ratio:g}" for ratio in ratios],
        }
    return {"title": {"text": axis.spec.unit}}


def _bars_of(axis: Axis, term: Term, order: Sequence[int]) -> tuple[list[Trace], Layout]:
    labels = [axis.labels()[i] for i in order]
    scores = [float(s) for s in term.scores[list(order)]]
    data: list[Trace] = [
        {
            "type": "bar", "orientation": "h", "y": labels, "x": scores,
            "marker": {"color": "--s0"}, "text": [factor_text(s) for s in scores],
            "hovertemplate": "%{y}: %{text}",
        }
    ]  # fmt: skip
    return data, {
        "yaxis": {"type": "category", "autorange": "reversed"},
        "xaxis": {"showticklabels": False, "zeroline": True},
    }


def heat(model: AdditiveModel, term: Term, name: str) -> Chart:
    first, second = (model.axes[i] for i in term.features)
    held = [[i for i in range(a.size) if term.weights.sum(axis=1 - k)[i] > 0]
            for k, a in enumerate((first, second))]  # fmt: skip
    z: list[list[float | None]] = [
        [float(term.scores[i, j]) if term.weights[i, j] > 0 else None for j in held[1]]
        for i in held[0]
    ]
    rows, columns = (
        [span(a, [i]) for i in own] for a, own in zip((first, second), held, strict=True)
    )
    cells = [(abs(v), r, c, v) for r, line in zip(rows, z, strict=True)
             for c, v in zip(columns, line, strict=True) if v is not None]  # fmt: skip
    strongest = sorted(cells, reverse=True)[:8]
    reach = strongest[0][0] if strongest else 1.0
    title = f"{feature_text(first)} and {feature_text(second)}"
    data: list[Trace] = [
        {
            "type": "heatmap", "x": columns, "y": rows, "z": z,
            "zmax": reach,
            "text": [["" if v is None else factor_text(v) for v in line] for line in z],
            "hovertemplate": "%{y}, %{x}: %{text}",
        }
    ]  # fmt: skip
    layout: Layout = {
        "xaxis": {"type": "category", "nticks": 6, "title": {"text": feature_text(second)}},
        "yaxis": {"type": "category", "nticks": 8, "title": {"text": feature_text(first)}},
    }
    return Chart(
        name=name,
        title=title,
        label=f"Interaction of {title}: at most {factor_text(reach)}",
        data=data,
        layout=layout,
        head=(feature_text(first), feature_text(second), "contribution"),
        rows=[[r, c, factor_text(v)] for _, r, c, v in strongest],
        note="Beyond what each adds by itself; empty where training had no rows.",
        tall=True,
        code=f"{first.spec.name}, {second.spec.name}",
    )
