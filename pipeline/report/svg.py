"""Scales, axes and marks: what the charts are drawn with.

Static SVG, coloured by the page's style sheet: a chart follows the reader's light or dark scheme,
prints as it looks, and needs no script. Numbers stand in `<title>` elements for the pointer and
in tables or the chart's label for everyone else.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from scheduler.explain.words import DAY_S, HOUR_S, MINUTE_S

Point = tuple[float, float]
Tick = tuple[float, str]

SERIES = 8  # colours s0..s7 of the style sheet
APART = 0.8  # units between points of a path; closer ones nobody could tell apart
DASHES = ("", "7 3", "2 3", "9 3 2 3", "4 2", "1 2", "12 4", "6 2 1 2")

DURATION_TICKS: tuple[Tick, ...] = (
    (1.0, "1 s"),
    (10.0, "10 s"),
    (MINUTE_S, "1 min"),
    (10 * MINUTE_S, "10 min"),
    (HOUR_S, "1 h"),
    (10 * HOUR_S, "10 h"),
    (2 * DAY_S, "2 d"),
    (20 * DAY_S, "20 d"),
    (200 * DAY_S, "200 d"),
)


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps [low, high] to pixels [start, end], linearly or by logarithm; clamps outside."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, v = self.low, self.high, value
        if self.log:
            low, high, v = math.log(low), math.log(high), math.log(max(value, self.low))
        share = (v - low) / (high - low) if high > low else 0.5
        return self.start + (self.end - self.start) * min(max(share, 0.0), 1.0)

    def within(self, ticks: Iterable[Tick]) -> list[Tick]:
        """The ticks that lie on the scale."""
        return [t for t in ticks if self.low <= t[0] <= self.high]


def ticks(low: float, high: float, target: int = 5, *, unit: str = "") -> list[Tick]:
    """Round numbers between low and high, about `target` of them."""
    if not (math.isfinite(low) and math.isfinite(high)) or high <= low:
        return [(low, f"{low:g}{unit}")]
    raw = (high - low) / max(target, 1)
    magnitude = 10.0 ** math.floor(math.log10(raw))
    step = next(m * magnitude for m in (1, 2, 2.5, 5, 10) if m * magnitude >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [(i * step, f"{short(i * step)}{unit}") for i in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[Tick]:
    """Powers of ten between low and high."""
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    every = max(1, (last - first) // 5)
    return [(10.0**k, short(10.0**k)) for k in range(first, last + 1, every)]


def short(value: float) -> str:
    """A tick's number: 12k, 3M, 0.25."""
    if value == 0:
        return "0"
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.4g}{letter}"
    return f"{value:.4g}"


class Frame:
    """A drawing of a given size with margins around the plot."""

    def __init__(
        self,
        label: str,
        width: int = 460,
        height: int = 260,
        *,
        left: int = 54,
        right: int = 14,
        top: int = 12,
        bottom: int = 40,
        wide: bool = False,
    ):
        self.label = label
        self.width, self.height = width, height
        self.left, self.right = left, width - right
        self.top, self.bottom = top, height - bottom
        self.wide = wide
        self._parts: list[str] = []

    # scales over the plot

    def x(self, low: float, high: float, *, log: bool = False) -> Scale:
        return Scale(low, high, self.left, self.right, log)

    def y(self, low: float, high: float, *, log: bool = False) -> Scale:
        return Scale(low, high, self.bottom, self.top, log)

    # marks

    def add(self, markup: str) -> None:
        """Add markup that is already safe."""
        self._parts.append(markup)

    def line(self, x1: float, y1: float, x2: float, y2: float, css: str) -> None:
        self.add(f'<line class="{css}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>')

    def rect(
        self,
        x: float,
        y: float,
        w: float,
        h: float,
        css: str,
        *,
        tip: str = "",
        style: str = "",
        r: float = 0,
    ) -> None:
        more = f' style="{style}"' if style else ""
        round_ = f' rx="{r:g}"' if r else ""
        box = f'x="{x:.1f}" y="{y:.1f}" width="{max(w, 0):.1f}" height="{max(h, 0):.1f}"'
        self.add(f'<rect class="{css}" {box}{round_}{more}>{_title(tip)}</rect>')

    def path(
        self,
        points: Sequence[Point],
        css: str,
        *,
        dash: str = "",
        tip: str = "",
        close: bool = False,
    ) -> None:
        if not points:
            return
        kept = [points[0]]
        for x, y in points[1:-1]:
            if max(abs(x - kept[-1][0]), abs(y - kept[-1][1])) >= APART:
                kept.append((x, y))
        kept.append(points[-1])
        d = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in kept) + ("Z" if close else "")
        more = f' stroke-dasharray="{dash}"' if dash else ""
        self.add(f'<path class="{css}" d="{d}"{more}>{_title(tip)}</path>')

    def text(
        self, x: float, y: float, text: str, css: str = "tick", *, anchor: str = "start",
        rotate: float = 0.0,
    ) -> None:  # fmt: skip
        turn = f' transform="rotate({rotate:g} {x:.1f} {y:.1f})"' if rotate else ""
        self.add(
            f'<text class="{css}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{turn}>'
            f"{escape(text)}</text>"
        )

    def dot(self, x: float, y: float, *, tip: str = "", r: float = 4.0) -> None:
        self.add(
            f'<circle class="mark s0" cx="{x:.1f}" cy="{y:.1f}" r="{r:g}">{_title(tip)}</circle>'
        )

    # axes

    def x_axis(self, scale: Scale, at: Sequence[Tick], title: str = "") -> None:
        for value, label in at:
            x = scale(value)
            self.line(x, self.top, x, self.bottom, "grid")
            self.text(x, self.bottom + 14, label, anchor="middle")
        if title:
            middle = (self.left + self.right) / 2
            self.text(middle, self.height - 5, title, "axis", anchor="middle")

    def y_axis(self, scale: Scale, at: Sequence[Tick], title: str = "") -> None:
        for value, label in at:
            y = scale(value)
            self.line(self.left, y, self.right, y, "grid")
            self.text(self.left - 6, y + 3.5, label, anchor="end")
        if title:
            middle = (self.top + self.bottom) / 2
            self.text(12, middle, title, "axis", anchor="middle", rotate=-90)

    def svg(self) -> Markup:
        """The drawing."""
        css = "chart wide" if self.wide else "chart"
        # a wide chart is scrolled on a small screen, and not blown up on a large one
        size = f' style="max-width:{self.width * 1.2:.0f}px"' if self.wide else ""
        return Markup(
            f'<svg class="{css}"{size} viewBox="0 0 {self.width} {self.height}" role="img" '
            f'aria-label="{escape(self.label)}">{"".join(self._parts)}</svg>'
        )


def _title(tip: str) -> str:
    return f"<title>{escape(tip)}</title>" if tip else ""


def legend(names: Sequence[str], *, looks: Sequence[int] | None = None) -> Markup:
    """A legend: colour with dash, and name. `looks`: colour numbers, if not 0, 1..."""
    items = []
    for k, name in zip(looks or range(len(names)), names, strict=True):
        k %= SERIES
        dash = f' stroke-dasharray="{DASHES[k]}"' if DASHES[k] else ""
        items.append(
            '<li><svg viewBox="0 0 28 14" width="28" height="14" aria-hidden="true">'
            f'<path class="series s{k}" d="M1 7H27"{dash}/></svg>{escape(name)}</li>'
        )
    return Markup(f'<ul class="legend">{"".join(items)}</ul>')
