"""Charts of the models: importance, shape functions, interactions, trees."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from pipeline.report.charts import Shading, axis_of, heatmap, shortened
from pipeline.report.models import Interaction, ModelFacts, Shape, TreeNode
from pipeline.report.svg import DURATION_TICKS, Frame, Scale, Tick
from scheduler.explain.words import duration, factor

SHOWN_TERMS = 15
# in the order they are chosen
_FACTORS = (1, 2, 0.5, 4, 0.25, 10, 0.1, 1.5, 0.7, 1.2, 0.8, 1.1, 0.9, 1.05, 0.95, 20, 0.05, 100,
            0.01)  # fmt: skip


@dataclass(frozen=True)
class Bar:
    """A row of the importance table: a term, its factor, and the bar's length in percent."""

    text: str
    factor: str
    width: float


def importance(m: ModelFacts) -> list[Bar]:
    """The terms that move predictions most, on average."""
    chosen = m.importance[:SHOWN_TERMS]
    largest = max((value for _, _, value in chosen), default=0.0) or 1.0
    return [Bar(text, factor(math.exp(v)), 100 * v / largest) for _, text, v in chosen]


def _say(value: float) -> str:
    """A contribution, as the factor it is."""
    return factor(math.exp(value))


def shape(s: Shape) -> Markup:
    """A shape function, as a factor on the prediction, above the data's density."""
    return _categories(s) if s.nominal else _curve(s)


def _curve(s: Shape) -> Markup:
    low, high = float((s.scores - s.spread).min()), float((s.scores + s.spread).max())
    low, high = min(low, -0.05), max(high, 0.05)
    pad = 0.06 * (high - low)
    f = Frame(_said(s), width=330, height=220, left=42, right=10, bottom=62)
    y = Scale(low - pad, high + pad, f.bottom, f.top)
    f.y_axis(y, _factor_ticks(y))
    edges, log, ticks = _edges(s)
    gutter = 30 if s.weights[0] > 0 else 0
    x = Scale(edges[0], edges[-1], f.left + gutter, f.right, log)
    f.line(f.left, y(0), f.right, y(0), "base")
    _density(f, s, x, edges, gutter)
    band: list[tuple[float, float]] = []
    back: list[tuple[float, float]] = []
    line: list[tuple[float, float]] = []
    for i in range(1, len(s.scores)):
        left, right = x(edges[i - 1]), x(edges[i])
        up, down = y(s.scores[i] + s.spread[i]), y(s.scores[i] - s.spread[i])
        band += [(left, up), (right, up)]
        back += [(left, down), (right, down)]
        line += [(left, y(s.scores[i])), (right, y(s.scores[i]))]
    if s.spread.any():
        f.path([*band, *reversed(back)], "band", close=True)
    f.path(line, "series s0", tip=s.text)
    free = f.left + (56.0 if gutter else 0.0)
    for value, text in x.within(ticks):
        if x(value) >= free:
            f.text(x(value), f.height - 20, text, anchor="middle")
            free = x(value) + 38
    if gutter:
        f.dot(f.left + 12, y(s.scores[0]), tip=f"missing: {_say(float(s.scores[0]))}")
        f.text(f.left + 12, f.height - 20, "missing", anchor="middle")
    unit = "" if s.unit == "s" or s.unit.startswith("ln ") else s.unit
    f.text((f.left + f.right) / 2, f.height - 4, unit, "axis", anchor="middle")
    return f.svg()


def _density(f: Frame, s: Shape, x: Scale, edges: list[float], gutter: int) -> None:
    """Where the training rows are, under the curve: area is rows. Missing ones apart."""
    base, room = f.bottom + 26, 22.0
    spots = [(x(a), max(x(b) - x(a), 1.0)) for a, b in itertools.pairwise(edges)]
    spots.insert(0, (f.left + 6.0, 12.0))
    heights = [w / width for w, (_, width) in zip(s.weights.tolist(), spots, strict=True)]
    largest = max(heights) or 1.0
    tops = [base - room * math.sqrt(height / largest) for height in heights]
    if gutter:
        (left, width), top = spots[0], tops[0]
        f.rect(left, top, width, base - top, "density")
    outline = [
        point
        for (left, width), top in zip(spots[1:], tops[1:], strict=True)
        for point in ((left, top), (left + width, top))
    ]
    f.path([(outline[0][0], base), *outline, (outline[-1][0], base)], "density", close=True)


def _edges(s: Shape) -> tuple[list[float], bool, list[Tick]]:
    """Edges of the bins; the open ones at both ends get a width of their own."""
    cuts = list(s.cuts)
    log, _ = axis_of(cuts[0], cuts[-1], s.unit)
    if log:
        first, last = cuts[0] / 2, cuts[-1] * 2
    else:
        step = (cuts[-1] - cuts[0]) / max(len(cuts), 2) if len(cuts) > 1 else abs(cuts[0]) or 1.0
        first, last = cuts[0] - step, cuts[-1] + step
        if cuts[0] >= 0:
            first = max(first, 0.0) if cuts[0] > 0 else first
    edges = [first, *cuts, last]
    if s.unit.startswith("ln "):
        return edges, log, _undone(s)
    _, ticks = axis_of(edges[0], edges[-1], s.unit)
    if s.unit == "s" and not log:
        ticks = [(v, duration(v)) for v, _ in ticks]
    return edges, log, ticks


def _undone(s: Shape) -> list[Tick]:
    """Ticks of a logarithm, as what it is the logarithm of."""
    if s.name.endswith("_log_s"):
        return [(math.log1p(seconds), text) for seconds, text in DURATION_TICKS]
    return sorted((math.log(f), f"×{f:g}") for f in _FACTORS)


def _factor_ticks(scale: Scale) -> list[Tick]:
    """Round factors with room between them, 1 first of all."""
    chosen: list[Tick] = []
    for f in _FACTORS:
        at = math.log(f)
        roomy = all(abs(scale(at) - scale(t)) >= 17 for t, _ in chosen)
        if scale.low <= at <= scale.high and roomy:
            chosen.append((at, f"×{f:g}"))
    return chosen


def _categories(s: Shape) -> Markup:
    order = np.argsort(-s.weights)
    chosen = [int(i) for i in order if s.weights[i] > 0][:12]
    f = Frame(
        _said(s), width=330, height=24 + 22 * len(chosen), left=100, right=56, top=6, bottom=12
    )
    reach = max(float(np.abs(s.scores[chosen]).max(initial=0.0)), 0.05)
    x = Scale(-reach, reach, f.left, f.right)
    for k, i in enumerate(chosen):
        y = f.top + 22 * k
        left, right = sorted((x(0), x(float(s.scores[i]))))
        text = _say(float(s.scores[i]))
        f.text(f.left - 8, y + 13.5, shortened(s.labels[i], 18), "name", anchor="end")
        f.rect(left, y + 3, right - left, 15, "bar", tip=f"{s.labels[i]}: {text}")
        f.text(f.right + 6, y + 14, text, "value")
    f.line(x(0), f.top, x(0), f.bottom, "base")
    return f.svg()


def _said(s: Shape) -> str:
    seen = s.scores[s.weights > 0]
    if not len(seen):
        return f"{s.text}: no data"
    low, high = _say(float(seen.min())), _say(float(seen.max()))
    return f"Shape function of {s.text}: from {low} to {high} on the prediction"


def interaction(i: Interaction) -> Markup:
    """A pair of features as a heat map of factors; cells without data stay empty."""
    values = [v for row in i.scores for v in row if v is not None]
    low, high = _say(min(values)), _say(max(values))
    label = f"Interaction of {i.texts[0]} and {i.texts[1]}: from {low} to {high}"
    rows_, columns = i.labels
    every = max(1, -(-len(columns) // 5))

    def tip(r: int, c: int, value: float) -> str:
        return f"{i.texts[0]}: {rows_[r]}; {i.texts[1]}: {columns[c]}: {_say(value)}"

    return heatmap(
        label,
        i.scores,
        row_names=rows_,
        column_ticks=[(k + 0.5, columns[k]) for k in range(0, len(columns), every)],
        tip=tip,
        shading=Shading(diverging=True),
        x_title=shortened(i.texts[1], 62),
        frame=Frame(label, height=290, left=92, bottom=44),
    )


# --- trees ---------------------------------------------------------------------------------------

_ROW, _COLUMN, _BOX = 40, 216, 180


def tree(root: TreeNode, title: str) -> Markup:
    """A decision tree from left (root) to right; up is "yes", down is "no"."""
    depth = _depth(root)
    f = Frame(
        f"{title}: {root.leaves} leaves, {depth} levels of questions",
        width=_COLUMN * (depth + 1) + 10,
        height=_ROW * root.leaves + 16,
        left=4, right=4, top=6, bottom=6, wide=True,
    )  # fmt: skip
    _place(f, root, 0, 0)
    return f.svg()


def _depth(node: TreeNode) -> int:
    if node.left is None or node.right is None:
        return 0
    return 1 + max(_depth(node.left), _depth(node.right))


def _place(f: Frame, node: TreeNode, level: int, row: int) -> float:
    """Draw the node and all below, its leaves from `row` on; returns the node's height."""
    x = f.left + _COLUMN * level
    if node.left is None or node.right is None:
        y = f.top + _ROW * row + _ROW / 2
        f.rect(x, y - 16, _BOX, 32, f"leaf k{node.kind}", r=5)
        f.text(x + _BOX / 2, y - 2, node.answer, "node strong", anchor="middle")
        f.text(x + _BOX / 2, y + 11, f"{node.rows:,} rows", "node", anchor="middle")
        return y
    upper = _place(f, node.left, level + 1, row)
    lower = _place(f, node.right, level + 1, row + node.left.leaves)
    y = (upper + lower) / 2
    for child, word in ((upper, "yes"), (lower, "no")):
        bend = x + _BOX + 10
        f.path([(x + _BOX, y), (bend, y), (bend, child), (x + _COLUMN, child)], "branch")
        f.text(bend + 3, child - 4, word, "tick")
    f.rect(x, y - 16, _BOX, 32, "question", r=5)
    f.text(x + _BOX / 2, y - 2, node.question, "node strong", anchor="middle")
    f.text(x + _BOX / 2, y + 11, f"{node.rows:,} rows", "node", anchor="middle")
    return y
