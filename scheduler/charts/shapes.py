"""Charts of an additive model's terms: shape functions (curves over one feature) and pairs of
features.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from models.bundle import AdditiveModel, Axis, Term
from scheduler.charts.chart import (
    DURATION_TICKS,
    TIP,
    Chart,
    Spec,
    drawn,
    hidden,
    hovered,
    mark,
    names,
    numbers,
    paint,
    rows_of,
    shaded,
)
from scheduler.core.decisions import Score
from scheduler.explain.terms import COMPARED
from scheduler.explain.words import duration, factor, number, percent

Floats = NDArray[np.float64]
SHADES = (-1.0, -0.5, 0.5, 1.0)  # of a pair's greatest contribution, as its legend names them

# ticks of a factor, in the order they are chosen
_FACTORS = (
    1, 2, 0.5, 10, 0.1, 100, 0.01, 1.2, 0.8, 5, 0.2, 1.1, 0.9, 1.5, 0.7, 1.05, 0.95, 1.02, 0.98,
)  # fmt: skip


# --- words ---


def feature_text(axis: Axis) -> str:
    return COMPARED.get(axis.spec.name) or axis.spec.text or axis.spec.name


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
    low, high = (factor_text(float(f)) for f in (scores.min(), scores.max()))
    origin = "" if term.origin == "fit" else f" (made {term.origin})"
    return Chart(
        name=name,
        title=feature_text(axis) + origin,
        label=f"Shape function of {feature_text(axis)}: from {low} to {high}",
        spec=draw(axis, term, order),
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
    value, parts = float(text), chart.spec["data"]["values"]
    at = min(max(value, parts[0]["from"]), parts[-1]["to"])
    beyond = "" if at == value else " It lies beyond the data: taken as at their edge."
    place = [{"name": "this job", "from": at, "factor": math.exp(added)}]
    layer = mark("point", rows=place, filled=True, opacity=1, color=paint(1), size=95)
    note = f"This job: {factor_text(added)}.{beyond}"
    steps = chart.spec["layer"][-1]
    steps = {**steps, "layer": [*steps["layer"], layer]}
    return replace(
        chart, spec={**chart.spec, "layer": [*chart.spec["layer"][:-1], steps]}, note=note
    )


def _factor_ticks(low: float, high: float) -> list[tuple[float, str]]:
    room, ticks = math.log(high / low) / 6 if high > low else 1.0, list[float]()
    for f in _FACTORS:
        clear = all(abs(math.log(f / t)) >= room for t in ticks)
        if low * 0.98 <= f <= high * 1.02 and clear:
            ticks.append(f)
    return [(f, f"×{f:g}") for f in ticks]


def _steps_of(axis: Axis, term: Term, order: Sequence[int]) -> Spec:
    """Return the drawing of a step for each bin that training rows fell into, with the spread over
    bags as a band, over bars of the number of training rows.
    """
    inner = axis.cuts[order[0] - 1 : order[-1] - 1]
    cuts = inner or (0.0,)
    log = len(cuts) > 1 and cuts[0] > 0 and cuts[-1] / cuts[0] > 50
    room = (cuts[-1] - cuts[0]) / max(len(cuts) - 1, 1) or 1.0
    first, last = (cuts[0] / 2, cuts[-1] * 2) if log else (cuts[0] - room, cuts[-1] + room)
    edges = [first, *inner, last]
    labels, parts = axis.labels(), list[Spec]()
    for i, low, high in zip(order, edges[:-1], edges[1:], strict=True):
        score, spread = float(term.scores[i]), float(term.spread[i])
        factor_ = math.exp(score)
        parts.append(
            {
                "from": low,
                "to": high,
                "factor": factor_,
                "low": math.exp(score - spread),
                "high": math.exp(score + spread),
                "rows": float(term.weights[i]) / (high - low) ** 0.5,
                "tip": f"{labels[i]}: {factor_:.3g}",
            }
        )
    ends = [*parts, {**parts[-1], "from": last}]  # the last step is as wide as its bin
    ticks = _factor_ticks(min(p["low"] for p in parts), max(p["high"] for p in parts))
    x = numbers("from", ends=(first, last), log=log, grid=False, **_unit_axis(axis))
    y = numbers("factor", at=ticks, log=True)
    across, steps = {"x2": {"field": "to"}}, "step-after"
    band = {"y": {**y, "field": "low"}, "y2": {"field": "high"}}
    tallest = max(p["rows"] for p in parts) or 1.0
    seen = {"y": hidden("rows", (0, 5 * tallest)), "y2": {"datum": 0}}
    return {
        "data": {"values": ends},
        "encoding": {"x": x},
        "layer": [
            mark("rect", across, seen, color="var(--line)"),
            {
                "encoding": {"y": y},
                "layer": [
                    mark("area", band, color="var(--accent-soft)", interpolate=steps),
                    mark("line", color=paint(0), interpolate=steps),
                    hovered(),
                ],
            },
        ],
        "resolve": {"scale": {"y": "independent"}},
    }


def _unit_axis(axis: Axis) -> Spec:
    """Return what the axis of a feature shows. If the unit is a logarithm, ticks are chances,
    durations or factors. Otherwise the title is the unit.
    """
    if axis.spec.unit == "ln odds":
        chances = (0.001, 0.01, 0.05, 0.2, 0.5, 0.8, 0.95, 0.99, 0.999)
        ticks = [(math.log(c / (1 - c)), percent(c)) for c in chances]
        return {"title": "chance", "at": ticks}
    if axis.spec.unit == "ln s" and axis.spec.name.endswith("_log_s"):
        return {"at": [(math.log1p(s), text) for s, text in DURATION_TICKS]}
    if axis.spec.unit.startswith("ln "):
        ratios = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100)
        return {"at": [(math.log(ratio), f"×{ratio:g}") for ratio in ratios]}
    return {"title": axis.spec.unit}


def _bars_of(axis: Axis, term: Term, order: Sequence[int]) -> Spec:
    labels, scores = axis.labels(), [float(s) for s in term.scores[list(order)]]
    tips = [f"{labels[i]}: {factor_text(score)}" for i, score in zip(order, scores, strict=True)]
    x = numbers("score", zero=True, labels=False, grid=False, ticks=False)
    return drawn(
        rows_of(name=[labels[i] for i in order], score=scores, tip=tips),
        x,
        names("name"),
        mark("bar", TIP, color=paint(0), height={"band": 0.72}),
        mark("rule", {"x": {"datum": 0}}, rows=[{}], color="var(--muted)"),
    )


def heat(model: AdditiveModel, term: Term, name: str) -> Chart:
    first, second = (model.axes[i] for i in term.features)
    held = [
        [i for i in range(a.size) if term.weights.sum(axis=1 - k)[i] > 0]
        for k, a in enumerate((first, second))
    ]
    rows, columns = (
        [span(a, [i]) for i in own] for a, own in zip((first, second), held, strict=True)
    )
    cells = [
        (abs(float(term.scores[i, j])), row, column, float(term.scores[i, j]))
        for i, row in zip(held[0], rows, strict=True)
        for j, column in zip(held[1], columns, strict=True)
        if term.weights[i, j] > 0
    ]
    strongest = sorted(cells, reverse=True)[:8]
    reach = strongest[0][0] if strongest else 1.0
    title = f"{feature_text(first)} and {feature_text(second)}"
    return Chart(
        name=name,
        title=title,
        label=f"Interaction of {title}: at most {factor_text(reach)}",
        spec=shaded(
            [(c, r, v / (reach or 1.0), f"{r}, {c}: {factor_text(v)}") for _, r, c, v in cells],
            names("x", feature_text(second), among=columns, most=6),
            names("y", feature_text(first), among=rows[::-1], most=8),
            [(step, factor_text(step * reach)) for step in SHADES],
        ),
        head=(feature_text(first), feature_text(second), "contribution"),
        rows=[[r, c, factor_text(v)] for _, r, c, v in strongest],
        note="Beyond what each adds by itself; empty where training had no rows.",
        tall=True,
        code=f"{first.spec.name}, {second.spec.name}",
    )
