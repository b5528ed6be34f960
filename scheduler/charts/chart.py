"""Charts as `charts.js` draws them, each with a table that says the same.

Colours are names of the style sheet ("--s0"); the browser fills them in, light or dark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

Cells = Sequence[Sequence[str]]
DURATION_TICKS = (
    (1, "1 s"), (10, "10 s"), (60, "1 min"), (600, "10 min"), (3600, "1 h"), (36_000, "10 h"),
    (172_800, "2 d"), (1_728_000, "20 d"),
)  # fmt: skip


class Stroke(TypedDict, total=False):
    """How a line is drawn: a colour, px, "dot", "dash" or "longdash"; "hv" means in steps."""

    color: str
    width: float
    dash: str
    shape: str


class Marker(TypedDict, total=False):
    """How a point or a bar is drawn; `size` in px."""

    color: str | Sequence[str]
    size: float
    opacity: float


class Trace(TypedDict, total=False):
    """A series that is drawn on the axes.

    Attributes:
        type: scatter, bar or heatmap. mode: of scatter: lines, markers or both.
        orientation: "h": bars lie.
        x, y: values, moments in UTC or categories; z: of a heat map, rows of `y`, None: nothing.
        zmax: the value with the full colour.
        text: beside each point, for `hovertemplate`, which says what is pointed at: `%{x}`,
            `%{y:.0%}`, `%{text}`, `%{name}`. hoverinfo: "skip": nothing is. textposition:
            "outside": it stands behind a lying bar.
        width: of bars, in units of `x`. yaxis: "y2": the axis over the other.
        fill: "tonexty": up from the trace before.
    """

    type: str
    mode: str
    textposition: str
    orientation: str
    name: str
    x: Sequence[Any]
    y: Sequence[Any]
    z: Sequence[Sequence[float | None]]
    zmax: float
    text: Sequence[Any]
    width: Sequence[float]
    line: Stroke
    marker: Marker
    fill: str
    fillcolor: str
    yaxis: str
    showlegend: bool
    hoverinfo: str
    hovertemplate: str


class ChartAxis(TypedDict, total=False):
    """An axis: linear, log, date or category. `range`: of a log axis in powers of ten."""

    type: str
    title: Mapping[str, str]
    range: Sequence[float]
    tickvals: Sequence[float]
    ticktext: Sequence[str]
    nticks: int
    tickformat: str
    autorange: str
    visible: bool
    showgrid: bool
    showticklabels: bool
    zeroline: bool


class Layout(TypedDict, total=False):
    """The axes; `barmode` "stack": bars stand on each other."""

    xaxis: ChartAxis
    yaxis: ChartAxis
    yaxis2: ChartAxis
    barmode: str


@dataclass(frozen=True)
class Chart:
    """A chart.

    Attributes:
        name: id on the page.
        title, note: above it.
        code: beside the title, what an edits file calls it.
        label: the text for readers who do not see it.
        data, layout: what is drawn.
        head, rows: the table behind it.
    """

    name: str
    title: str
    label: str
    data: list[Trace]
    layout: Layout = field(default_factory=Layout)
    head: Sequence[str] = ()
    rows: Cells = ()
    note: str = ""
    tall: bool = False
    code: str = ""

    @property
    def spec(self) -> Mapping[str, Any]:
        """What the browser draws, as plain values."""
        return {"data": self.data, "layout": self.layout}


def line(
    x: Sequence[Any],
    y: Sequence[Any],
    name: str,
    colour: int = 0,
    *,
    dash: str = "",
    width: float = 2,
    mode: str = "lines",
    hoverinfo: str = "",
) -> Trace:
    """Return a line through points."""
    style: Stroke = {"color": f"--s{colour}", "width": width, "dash": dash}
    how: Trace = {"type": "scatter", "mode": mode, "name": name, "line": style}
    return {**how, "x": x, "y": y, "hoverinfo": hoverinfo}


def bars(x: Sequence[Any], y: Sequence[Any], name: str, colour: int = 0) -> Trace:
    """Return upright bars."""
    return {"type": "bar", "x": x, "y": y, "name": name, "marker": {"color": f"--s{colour}"}}


def lying(
    name: str,
    title: str,
    label: str,
    items: Sequence[tuple[str, float, str]],
    *,
    colours: Sequence[str] = (),
    limit: float = 0.0,
    note: str = "",
) -> Chart:
    """Return a chart of horizontal bars with a text behind each: (name, value, text). It is cut at
    `limit`.
    """
    names, values, texts = zip(*items, strict=True) if items else ((), (), ())
    bar: Trace = {
        "type": "bar", "orientation": "h", "y": names, "x": values, "text": texts,
        "textposition": "outside", "marker": {"color": colours or "--s0"},
        "hovertemplate": "%{y}: %{text}",
    }  # fmt: skip
    layout: Layout = {
        "yaxis": {"type": "category", "autorange": "reversed"},
        "xaxis": {"range": [0, max([limit, *values, 1e-12])], "visible": False},
    }
    summary = f"{label}: " + ", ".join(f"{one} {text}" for one, _, text in items)
    rows = [[one, text] for one, _, text in items]
    return Chart(
        name=name,
        title=title,
        label=summary,
        data=[bar],
        layout=layout,
        head=("which", title),
        rows=rows,
        note=note,
    )


def duration_axis(title: str) -> ChartAxis:
    """Return an axis of seconds that reads as minutes, hours and days."""
    values, texts = zip(*DURATION_TICKS, strict=True)
    return {"title": {"text": title}, "type": "log", "tickvals": values, "ticktext": texts}
