"""Charts as plotly reads them, each with the table that says the same without a drawing.

Colours are names of the style sheet ("--s0"); the browser fills them in, light or dark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Cells = Sequence[Sequence[str]]
DURATION_TICKS = (
    (1, "1 s"), (10, "10 s"), (60, "1 min"), (600, "10 min"), (3600, "1 h"), (36_000, "10 h"),
    (172_800, "2 d"), (1_728_000, "20 d"),
)  # fmt: skip


@dataclass(frozen=True)
class Chart:
    """A chart.

    Attributes:
        name: id on the page.
        title, note: above it.
        label: the text for readers who do not see it.
        data, layout: plotly's.
        head, rows: the table behind it.
    """

    name: str
    title: str
    label: str
    data: list[dict[str, Any]]
    layout: dict[str, Any] = field(default_factory=dict)
    head: Sequence[str] = ()
    rows: Cells = ()
    note: str = ""
    tall: bool = False

    @property
    def spec(self) -> Mapping[str, Any]:
        """What the browser draws."""
        return {"data": self.data, "layout": self.layout}


def line(
    x: Sequence[Any], y: Sequence[Any], name: str, colour: int = 0, **more: Any
) -> dict[str, Any]:
    """A line through points."""
    style = {"color": f"--s{colour}", "width": 2, **more.pop("line", {})}
    return {"type": "scatter", "mode": "lines", "x": x, "y": y, "name": name, "line": style, **more}


def bars(
    x: Sequence[Any], y: Sequence[Any], name: str, colour: int = 0, **more: Any
) -> dict[str, Any]:
    """Upright bars."""
    marker = {"color": f"--s{colour}", **more.pop("marker", {})}
    return {"type": "bar", "x": x, "y": y, "name": name, "marker": marker, **more}


def duration_axis(title: str, log: bool = True) -> dict[str, Any]:
    """An axis of seconds that reads as minutes, hours and days."""
    ticks = {"tickvals": [v for v, _ in DURATION_TICKS], "ticktext": [t for _, t in DURATION_TICKS]}
    return {"title": {"text": title}, **({"type": "log"} if log else {}), **ticks}
