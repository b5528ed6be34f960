"""Charts as `charts.js` draws them, each with a table that says the same.

Colours are names from the style sheet ("--s0"); the browser replaces them by those of its light or
dark theme.
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
    """How a line is drawn. `dash`: "dot", "dash" or "longdash"; `width`: pixels; `shape`: "hv"
    draws it in steps.
    """

    color: str
    width: float
    dash: str
    shape: str


class Marker(TypedDict, total=False):
    """How a point or a bar is drawn. `size`: pixels."""

    color: str | Sequence[str]
    size: float
    opacity: float


class Trace(TypedDict, total=False):
    """A series that is drawn in a chart.

    Attributes:
        type: scatter, bar or heatmap.
        mode: of scatter: lines, markers or both.
        orientation: "h": bars are horizontal.
        x, y: values, times in UTC or categories.
        z: values of a heat map, one list for each row of `y`; None: an empty cell.
        zmax: the value of `z` that gets the full colour.
        text: a text for each point.
        hovertemplate: the text shown when a point is pointed at, with `%{x}`, `%{y:.0%}`,
            `%{text}`, `%{name}`.
        hoverinfo: "skip": no text is shown then.
        textposition: "outside": `text` stands behind a horizontal bar.
        width: width of bars, in units of `x`.
        yaxis: "y2": use the second y axis, which lies over the first.
        fill: "tonexty": fill the area down to the trace before.
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
    """An axis: linear, log, date or category. `range` is in powers of ten for a log axis."""

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
    """The axes of a chart. `barmode` "stack": bars stand on each other."""

    xaxis: ChartAxis
    yaxis: ChartAxis
    yaxis2: ChartAxis
    barmode: str


@dataclass(frozen=True)
class Chart:
    """A chart.

    Attributes:
        name: id of the chart on its page.
        title, note: texts above it.
        code: name of the feature in an edits file, shown beside the title.
        label: the text for readers who do not see the chart.
        data, layout: what is drawn.
        head, rows: the table with the same figures.
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
        """Return what the browser draws, as plain values."""
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
    """Return a series drawn as a line through points. `colour`: number of a colour of the style
    sheet.
    """
    style: Stroke = {"color": f"--s{colour}", "width": width, "dash": dash}
    how: Trace = {"type": "scatter", "mode": mode, "name": name, "line": style}
    return {**how, "x": x, "y": y, "hoverinfo": hoverinfo}


def bars(x: Sequence[Any], y: Sequence[Any], name: str, colour: int = 0) -> Trace:
    """Return a series of upright bars. `colour`: number of a colour of the style sheet."""
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
    """Return a chart of horizontal bars with a text behind each. `items`: (name, value, text) of
    each bar; `limit`: the axis reaches at least to this value.
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
    """Return a logarithmic axis of seconds, with ticks in minutes, hours and days."""
    values, texts = zip(*DURATION_TICKS, strict=True)
    return {"title": {"text": title}, "type": "log", "tickvals": values, "ticktext": texts}
