"""Vega-Lite specifications of the figures that a reader can filter.

`figures.js` gives them their rows, one for each job under each policy, and sets their parameters:
`vc` (number of a virtual cluster; -1: all), `low` and `high` (GPUs), `shown` (names of policies),
`under` (the policy of the figure of jobs) and `chosen` (number of a job).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from scheduler.charts.chart import (
    TIP,
    Spec,
    coloured,
    duration_axis,
    hovered,
    mark,
    moments,
    names,
    numbers,
    paint,
    written,
)

SHAPES = (
    "circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right",
    "triangle-left",
)  # fmt: skip
JOBS = "(vc < 0 || datum.vc === vc) && low <= datum.gpus && datum.gpus <= high"
SHOWN = {"filter": f"{JOBS} && indexof(shown, datum.name) >= 0"}
UNDER = {"filter": f"{JOBS} && datum.name === under"}
TAIL = [round(1 - 10 ** (-k / 20), 6) for k in range(101)]
Results = Sequence[Mapping[str, Any]]


def specifications(columns: Mapping[str, Any]) -> dict[str, Spec]:
    """Return the specification of each figure by its name. `columns`: from `interactive.columns`.
    The report's own policy is drawn above the others.
    """
    results = columns["results"]
    figures = {
        "average": _average(results),
        "jct": _jct(results),
        "tail": _tail(results),
        "groups": _groups(results, len(columns["vcs"][:18]) + len(columns["sizes"])),
        "jobs": _jobs(results),
    }
    every = [one["name"] for one in results]
    params = {"vc": -1, "low": 0, "high": 1e9, "shown": every, "under": every[0], "chosen": -1}
    given = [{"name": name, "value": value} for name, value in params.items()]
    return {
        name: {"data": {"name": "jobs"}, "params": given, **figure}
        for name, figure in figures.items()
    }


def _by_policy(results: Results, dashes: Sequence[str] = (), **looks: Any) -> Spec:
    colours = [paint(one["colour"]) for one in results]
    looks = coloured([one["name"] for one in results], colours, *dashes, **looks)
    for look in looks.values():
        look["scale"] |= {of: look["scale"][of][::-1] for of in ("domain", "range")}
    return looks


def _steps(*steps: tuple[str, str]) -> list[Spec]:
    """Return transforms that each write a column: (expression, column)."""
    return [{"calculate": expression, "as": column} for expression, column in steps]


def _average(results: Results) -> Spec:
    """Return a bar for each policy, outlined where it knows the future."""
    paint = _by_policy(results)["color"] | {"legend": None}
    outlined = [one["name"] for one in results if one["oracle"]]
    own = {"fill": paint, "stroke": paint, "fillOpacity": {
        "condition": {"test": {"field": "name", "oneOf": outlined}, "value": 0}, "value": 1,
    }}  # fmt: skip
    x = numbers("mean", zero=True) | {"axis": None}
    y = names("name") | {"sort": {"field": "mean", "op": "min"}}
    return {
        "transform": [
            SHOWN,
            {"aggregate": [{"op": "mean", "field": "jct", "as": "mean"}], "groupby": ["name"]},
            *_steps(
                ("duration(datum.mean)", "text"),
                ("datum.name + ': average JCT ' + datum.text", "tip"),
            ),
        ],
        "encoding": {"x": x, "y": y},
        "layer": [
            mark("bar", own, TIP, height={"band": 0.72}, strokeWidth=2),
            mark("text", written("text"), align="left", dx=6),
        ],
    }


def _curves(results: Results, x: Spec, y: Spec, transform: Sequence[Spec]) -> Spec:
    """Return a line for each policy: dashed if it knows the future, thick if it is the report's
    own.
    """
    oracles = [one["name"] for one in results if one["oracle"]]
    dashes = [
        ("dash", "dot", "longdash")[oracles.index(one["name"]) % 3] if one["oracle"] else ""
        for one in results
    ]
    widths = [1.8 if one["colour"] else 4 for one in results]
    looks = _by_policy(results, dashes, strokeWidth=widths)
    return {
        "transform": [SHOWN, *transform],
        "encoding": {"x": x, "y": y},
        "layer": [mark("line", looks), hovered()],
    }


def _jct(results: Results) -> Spec:
    y = numbers("share", ends=(0, 1.02), format=".0%")
    tip = (
        "datum.name + ': ' + format(datum.share, '.0%') + ' ended within ' + duration(datum.value)"
    )
    return _curves(
        results,
        duration_axis("at_least", "submission to end"),
        y,
        [
            {"quantile": "jct", "groupby": ["name"], "step": 0.01, "as": ["share", "value"]},
            *_steps(("max(datum.value, 1)", "at_least"), (tip, "tip")),
        ],
    )


def _tail(results: Results) -> Spec:
    ticks = [(10.0**-k, f"{100 * 10.0**-k:g} %") for k in range(6)]
    tip = "datum.name + ': ' + format(datum.share, '.2~%') + ' wait over ' + duration(datum.value)"
    x = duration_axis("at_least", "waits longer than")
    return _curves(
        results,
        x,
        numbers("share", at=ticks, log=True),
        [
            {"joinaggregate": [{"op": "count", "as": "n"}], "groupby": ["name"]},
            {"quantile": "wait", "groupby": ["name", "n"], "probs": TAIL, "as": ["prob", "value"]},
            *_steps(("1 - datum.prob", "share"), ("max(datum.value, 1)", "at_least"), (tip, "tip")),
            {"filter": "datum.share * datum.n >= 0.999"},
        ],
    )


def _groups(results: Results, rows: int) -> Spec:
    """Return a dot for each policy in each virtual cluster and each group of GPUs, a row for each
    of those.
    """
    means = [
        {"op": "mean", "field": "wait", "as": "mean"}, {"op": "count", "as": "n"},
        {"op": "min", "field": "order", "as": "order"},
    ]  # fmt: skip
    tip = (
        "datum.group + ', ' + datum.name + ': ' + duration(datum.mean) + ' (' + datum.n + ' jobs)'"
    )
    y = names("group") | {"sort": {"field": "order", "op": "min"}}
    y["axis"] |= {"grid": True}
    at = {"x": duration_axis("at_least", "average wait"), "y": y}
    sizes = [70 if one["colour"] else 140 for one in results]
    looks = _by_policy(results, shape=[SHAPES[one["colour"]] for one in results], size=sizes)
    return {
        "height": 110 + 24 * rows,
        "transform": [
            SHOWN,
            {"fold": ["of_vc", "of_size"], "as": ["by", "group"]},
            {"filter": "isValid(datum.group)"},
            *_steps(("datum.by === 'of_vc' ? datum.vc : 100 + datum.size", "order")),
            {"aggregate": means, "groupby": ["by", "group", "name"]},
            *_steps(("max(datum.mean, 1)", "at_least"), (tip, "tip")),
        ],
        **mark("point", at, looks, TIP, filled=True, opacity=1),
    }


def _jobs(results: Results) -> Spec:
    """Return a dot for each job under one policy: when it came, how long it waited."""
    is_it = "datum.i === chosen"
    looks = {
        "color": _by_policy(results)["color"] | {"legend": None},
        "size": {"condition": {"test": is_it, "value": 180}, "value": 28},
        "opacity": {"condition": {"test": is_it, "value": 1}, "value": 0.55},
    }
    tip = (
        "'job ' + datum.id + ': waited ' + duration(datum.wait) + '\\n' + datum.gpus + ' GPUs, '"
        " + datum.in_vc"
    )
    at = {"x": moments("at", "submitted (UTC)"), "y": duration_axis("at_least", "waited")}
    return {
        "transform": [UNDER, *_steps(("max(datum.wait, 1)", "at_least"), (tip, "tip"))],
        **mark("point", at, looks, TIP, filled=True, cursor="pointer"),
    }
