"""The kinds of chart the report is made of, each a function from numbers to SVG."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from pipeline.report.svg import DASHES, DURATION_TICKS, SERIES, Frame, Point, Tick, log_ticks, ticks

Floats = NDArray[np.float64]
Cells = Sequence[Sequence[float | None]]


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis from `low` to `high`."""

    low: float
    high: float
    ticks: Sequence[Tick]
    title: str = ""
    log: bool = False


@dataclass(frozen=True, slots=True)
class Shading:
    """How cells are shaded: by the share of the largest magnitude, raised to `power`; where
    `diverging`, cells below zero have another hue and are hatched, so that hue is not all."""

    css: str = "heat"
    power: float = 1.0
    diverging: bool = False


def lines(
    label: str,
    series: Mapping[str, Sequence[Point]],
    *,
    x: Axis,
    y: Axis,
    looks: Sequence[int] | None = None,
) -> Markup:
    """Lines over common axes; the legend is the caller's. `looks`: colours, if not 0, 1..."""
    f = Frame(label)
    sx, sy = f.x(x.low, x.high, log=x.log), f.y(y.low, y.high, log=y.log)
    f.x_axis(sx, sx.within(x.ticks), x.title)
    f.y_axis(sy, sy.within(y.ticks), y.title)
    drawn = zip(looks or range(len(series)), series.items(), strict=True)
    for k, (name, points) in sorted(drawn, key=lambda one: one[0] == 0):  # the first look on top
        k %= SERIES
        f.path([(sx(a), sy(b)) for a, b in points], f"series s{k}", dash=DASHES[k], tip=name)
    return f.svg()


def columns(
    label: str,
    values: Sequence[float],
    tips: Sequence[str],
    *,
    x_ticks: Sequence[tuple[float, str]],
    x_title: str = "",
    y_title: str = "",
    frame: Frame | None = None,
) -> Markup:
    """Vertical bars; `x_ticks` are positions in bars (0.0 is the left edge of the first)."""
    f = frame or Frame(label)
    top = max([*values, 1e-9])
    sx, sy = f.x(0, max(len(values), 1)), f.y(0, top * 1.05)
    f.y_axis(sy, sy.within(ticks(0, top, 4)), y_title)
    gap = 0.12 if len(values) < 60 else 0.0
    for i, (value, tip) in enumerate(zip(values, tips, strict=True)):
        left, right = sx(i + gap / 2), sx(i + 1 - gap / 2)
        f.rect(left, sy(value), right - left, f.bottom - sy(value), "bar", tip=tip)
    for at, text in x_ticks:
        f.text(sx(at), f.bottom + 14, text, anchor="middle")
    f.line(f.left, f.bottom, f.right, f.bottom, "base")
    if x_title:
        f.text((f.left + f.right) / 2, f.height - 5, x_title, "axis", anchor="middle")
    return f.svg()


def rows(
    label: str,
    items: Sequence[tuple[str, float, str]],
    *,
    css: Callable[[int], str] = lambda i: "bar",
    left: int = 130,
    limit: float | None = None,
    mark: float | None = None,
) -> Markup:
    """Horizontal bars: (name, value, what to write behind the bar). `mark`: a line to compare."""
    right = 14 + max((7 * len(text) for _, _, text in items), default=0)
    f = Frame(label, height=14 + 22 * len(items), left=left, right=right, top=6, bottom=8)
    scale = f.x(0, limit or max([v for _, v, _ in items] + [1e-12]))
    for i, (name, value, text) in enumerate(items):
        y = f.top + 22 * i
        f.text(left - 8, y + 13.5, shortened(name, left // 6), "name", anchor="end")
        f.rect(left, y + 3, scale(value) - left, 15, css(i), tip=f"{name}: {text}", r=2)
        f.text(scale(value) + 6, y + 14, text, "value")
    if mark is not None:
        f.line(scale(mark), f.top, scale(mark), f.bottom, "limit")
    f.line(left, f.top, left, f.bottom, "base")
    return f.svg()


def heatmap(
    label: str,
    cells: Cells,
    *,
    row_names: Sequence[str],
    column_ticks: Sequence[Tick],
    tip: Callable[[int, int, float], str],
    shading: Shading = Shading(),
    x_title: str = "",
    frame: Frame | None = None,
) -> Markup:
    """Shaded cells, (rows, columns). None leaves a cell empty."""
    n, m = len(cells), max((len(row) for row in cells), default=1)
    f = frame or Frame(
        label, height=60 + max(12, min(24, 220 // max(n, 1))) * n, left=92, bottom=40
    )
    largest = max((abs(v) for row in cells for v in row if v is not None), default=0.0) or 1.0
    w, h = (f.right - f.left) / m, (f.bottom - f.top) / max(n, 1)
    every = max(1, -(-13 // max(int(h), 1)))
    for i, row in enumerate(cells):
        y = f.top + h * i
        if i % every == 0:
            f.text(f.left - 6, y + h / 2 + 3.5, shortened(row_names[i], 15), anchor="end")
        for j, value in enumerate(row):
            if value is None:
                continue
            hue = "cold" if shading.diverging and value < 0 else shading.css
            style = f"fill-opacity:{(abs(value) / largest) ** shading.power:.2f}"
            f.rect(f.left + w * j, y, w, h, hue, tip=tip(i, j, value), style=style)
    for at, text in column_ticks:
        f.text(f.left + w * at, f.bottom + 14, text, anchor="middle")
    f.add(
        f'<rect class="outline" x="{f.left}" y="{f.top}" width="{f.right - f.left}" '
        f'height="{f.bottom - f.top}"/>'
    )
    if x_title:
        f.text((f.left + f.right) / 2, f.height - 5, x_title, "axis", anchor="middle")
    return f.svg()


def cumulative(values: Floats, points: int = 160) -> list[Point]:
    """The distribution of values as a curve of (value, share at or below it)."""
    if len(values) == 0:
        return []
    ordered = np.sort(values)
    shares = np.linspace(0, 1, min(points, len(ordered) + 1))
    at = np.clip(np.ceil(shares * len(ordered)).astype(int) - 1, 0, len(ordered) - 1)
    return [(float(v), float(s)) for v, s in zip(ordered[at], shares, strict=True)]


def log_histogram(values: Floats, bins_per_decade: int = 5) -> tuple[Floats, NDArray[np.int64]]:
    """Edges and counts of values of at least 1, in equal steps of the logarithm."""
    kept = np.clip(values, 1.0, None)
    top = max(np.log10(kept.max(initial=10.0)), 1.0)
    edges = 10 ** np.arange(0, top + 1.0 / bins_per_decade, 1.0 / bins_per_decade)
    edges[-1] = max(edges[-1], kept.max(initial=10.0) * 1.0001)
    counts, _ = np.histogram(kept, edges)
    return edges, counts.astype(np.int64)


def axis_of(low: float, high: float, unit: str) -> tuple[bool, list[Tick]]:
    """Whether an axis from low to high wants a logarithm, and its ticks."""
    log = low > 0 and high > 1 and high / low > 50
    if unit == "s" and log:
        return True, list(DURATION_TICKS)
    return (True, log_ticks(low, high)) if log else (False, ticks(low, high, 5))


def shortened(text: str, limit: int) -> str:
    """Text cut to a number of characters."""
    return text if len(text) <= limit else text[: max(limit - 1, 1)] + "…"
