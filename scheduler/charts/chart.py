"""Charts as Vega-Lite specifications, each with a table that says the same.

A specification has its data within, as rows; `tip` in a row is the text shown when it is pointed
at. Colours are those of the style sheet, in its light or dark theme. `charts.js` adds the width,
the height and the look that all charts share.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Cells = Sequence[Sequence[str]]
Spec = dict[str, Any]
Ticks = Iterable[tuple[float, str]]  # places on an axis, with their texts
DURATION_TICKS = (
    (1, "1 s"), (10, "10 s"), (60, "1 min"), (600, "10 min"), (3600, "1 h"), (36_000, "10 h"),
    (172_800, "2 d"), (1_728_000, "20 d"),
)  # fmt: skip
DASHES = {"": [1, 0], "dash": [8, 4], "dot": [2, 4], "longdash": [14, 5]}
DOT: Spec = {"filled": True, "opacity": 1, "size": 40}
TIP: Spec = {"tooltip": {"field": "tip", "type": "nominal"}}
SHORT = "abs(datum.value) < 1000 ? datum.label : format(datum.value, '.3~s')"


@dataclass(frozen=True)
class Chart:
    """A chart.

    Attributes:
        name: id of the chart on its page.
        title, note: texts above it.
        code: name of the feature in an edits file, shown beside the title.
        label: the text for readers who do not see the chart.
        spec: what is drawn.
        head, rows: the table with the same figures.
    """

    name: str
    title: str
    label: str
    spec: Spec
    head: Sequence[str] = ()
    rows: Cells = ()
    note: str = ""
    tall: bool = False
    code: str = ""


# --- data and marks ------------------------------------------------------------------------------


def rows_of(**columns: Iterable[Any]) -> list[Spec]:
    """Return columns of the same length as rows."""
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def drawn(rows: Sequence[Mapping[str, Any]], x: Spec, y: Spec, *layers: Spec) -> Spec:
    """Return a specification that draws rows on two axes, by one mark or by several over each
    other.
    """
    return {"data": {"values": rows}, "encoding": {"x": x, "y": y}, "layer": layers}


def mark(
    kind: str, *channels: Spec, rows: Sequence[Mapping[str, Any]] | None = None, **look: Any
) -> Spec:
    """Return a mark, such as a line.

    Args:
        channels: what its rows say beside x and y, such as `coloured` or `TIP`.
        rows: its own data, where it does not draw the chart's.
        look: properties of the mark that are the same for all rows.
    """
    data = {} if rows is None else {"data": {"values": rows}}
    encoding = {name: value for channel in channels for name, value in channel.items()}
    return {**data, "mark": {"type": kind, **look}, "encoding": encoding}


def hovered() -> Spec:
    """Return unseen points that show the text of a row, for marks too thin to point at."""
    return mark("point", TIP, filled=True, opacity=0, size=400)


def paint(number: int) -> str:
    """Return a colour of the style sheet (0 to 7) as CSS."""
    return f"var(--s{number})"


def coloured(names: Sequence[str], colours: Sequence[str], *dashes: str, **looks: Any) -> Spec:
    """Return channels that tell rows apart by their `name`, with a legend.

    Args:
        dashes: a dash of `DASHES` for each name.
        looks: further channels, with a value for each name.
    """
    values = {"color": colours, **looks}
    if dashes:
        values["strokeDash"] = [DASHES[dash] for dash in dashes]
    return {
        channel: {
            "field": "name",
            "type": "nominal" if channel in ("color", "shape") else "ordinal",
            "scale": {"type": "ordinal", "domain": names, "range": of},
        }
        for channel, of in values.items()
    }


def painted(name: str) -> Spec:
    """Return the channel of a column that holds colours."""
    return {"color": {"field": name, "type": "nominal", "scale": None}}


def written(name: str) -> Spec:
    """Return the channel of a mark of text."""
    return {"text": {"field": name, "type": "nominal"}}


# --- axes ----------------------------------------------------------------------------------------


def numbers(
    name: str,
    title: str = "",
    *,
    ends: Sequence[float] = (),
    at: Ticks = (),
    log: bool = False,
    zero: bool = False,
    **axis: Any,
) -> Spec:
    """Return the channel of an axis of numbers.

    Args:
        name: the column that it places.
        ends: where the axis begins and ends; (): with its values.
        at: its ticks; (): as the library chooses.
        zero: whether it begins at 0.
        axis: further properties of Vega-Lite's axis, such as a format.
    """
    scale: Spec = {"type": "log"} if log else {"zero": zero}
    scale |= {"domain": ends} if ends else {"nice": True} if zero else {"nice": False, "padding": 8}
    if at:
        places, texts = zip(*at, strict=True)
        shown = [float(f"{place:.10g}") for place in places]  # as pages write them
        words = (
            f"{json.dumps(texts, ensure_ascii=False)}[indexof({json.dumps(shown)}, datum.value)]"
        )
        axis |= {"values": shown, "labelExpr": words}
    else:
        axis = {"tickCount": 5, **({} if "format" in axis else {"labelExpr": SHORT}), **axis}
    return {
        "field": name, "type": "quantitative", "title": title or None, "scale": scale,
        "axis": axis,
    }  # fmt: skip


def duration_axis(name: str, title: str = "") -> Spec:
    """Return the channel of a logarithmic axis of seconds, with ticks in minutes, hours and
    days.
    """
    return numbers(name, title, at=DURATION_TICKS, log=True)


def hidden(name: str, ends: Sequence[float]) -> Spec:
    """Return the channel of an axis that is not shown."""
    scale = {"domain": ends, "nice": False}
    return {"field": name, "type": "quantitative", "axis": None, "scale": scale}


def moments(name: str, title: str = "") -> Spec:
    """Return the channel of an axis of time (UTC). The column is in milliseconds since the epoch,
    or in texts of ISO 8601 with their zone.
    """
    axis = {"tickCount": 5, "format": {"hours": "%H:%M", "minutes": "%H:%M"}}
    return {
        "field": name, "type": "temporal", "title": title or None, "scale": {"type": "utc"},
        "axis": axis,
    }  # fmt: skip


def names(name: str, title: str = "", *, among: Sequence[str] = (), most: int = 0) -> Spec:
    """Return the channel of an axis of names. `among`: the names in their order; (): as they come
    in the rows. About `most` of them are written; 0: all.
    """
    axis: Spec = {"grid": False, "ticks": False, "domain": False, "labelAngle": 0}
    if most and len(among) > most:
        axis["values"] = list(among)[:: -(-len(among) // most)]
    return {
        "field": name, "type": "nominal", "title": title or None, "sort": None, "axis": axis,
        **({"scale": {"domain": among}} if among else {}),
    }  # fmt: skip


def shaded(cells: Iterable[tuple[str, str, float, str]], x: Spec, y: Spec, shades: Ticks) -> Spec:
    """Return a specification of a heat map with its scale of colours.

    Args:
        cells: (x, y, shade from -1 to 1, text) of each.
        shades: the shades of the scale, with their texts.
    """
    rows = [
        {"x": a, "y": b, "shade": round(v, 3), "strength": round(abs(v), 3), "tip": tip}
        for a, b, v, tip in cells
    ]
    warm = {"test": "datum.shade > 0", "value": "var(--heat)"}
    shade = {
        "fill": {"condition": warm, "value": "var(--cold)"},
        "fillOpacity": {"field": "strength", "type": "quantitative", "scale": None},
    }
    steps = {text: value for value, text in shades}
    colours = ["var(--heat)" if value > 0 else "var(--cold)" for value in steps.values()]
    scale = coloured([*steps], colours, opacity=[abs(value) for value in steps.values()])
    for channel in scale.values():
        channel["legend"] = {"symbolType": "square", "symbolStrokeWidth": 0}
    return drawn(rows, x, y, mark("rect", shade, TIP), mark("square", scale, rows=[], filled=True))


def against(rows: Sequence[Mapping[str, Any]], x: Spec, y: Spec) -> Spec:
    """Return a specification of dots, each of a predicted and a true value (`x` and `y`), with the
    line on which the two are the same.
    """
    every = [row[side] for row in rows for side in "xy"]
    same = rows_of(x=(min(every), max(every)), y=(min(every), max(every)))
    return drawn(
        rows,
        x,
        y,
        mark("line", rows=same, color="var(--muted)", strokeDash=DASHES["dot"], strokeWidth=1),
        mark("point", TIP, color=paint(0), filled=True, opacity=0.55, size=20),
    )


# --- whole charts --------------------------------------------------------------------------------


def lying(
    name: str,
    title: str,
    label: str,
    items: Sequence[tuple[str, float, str]],
    *,
    limit: float = 0.0,
    note: str = "",
) -> Chart:
    """Return a chart of horizontal bars with a text behind each. `items`: (name, value, text) of
    each bar; `limit`: the axis reaches at least to this value.
    """
    rows = [
        {"name": one, "value": value, "text": text, "tip": f"{one}: {text}"}
        for one, value, text in items
    ]
    most = max([limit, *(value for _, value, _ in items), 1e-12])
    spec = drawn(
        rows,
        hidden("value", (0, most)),
        names("name"),
        mark("bar", TIP, color=paint(0), height={"band": 0.72}),
        mark("text", written("text"), align="left", dx=6),
    )
    return Chart(
        name=name,
        title=title,
        label=f"{label}: " + ", ".join(f"{one} {text}" for one, _, text in items),
        spec=spec,
        head=("which", title),
        rows=[[one, text] for one, _, text in items],
        note=note,
    )
