"""Draws shape functions and histories as pictures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from features.plain import plain
from features.survival import EDGES_S, History
from models.bundle import AdditiveModel, Axis, Term

MAX_LABELS = 12
LONGEST_LABEL, LONGEST_TICK = 60, 24  # characters


def as_written(text: str, most: int = LONGEST_LABEL) -> str:
    """Return a name from outside as a label for a chart: control characters escaped, and cut after
    `most` characters. The caller must turn off mathematics in the label (`parse_math=False`)."""
    shown = plain(text[:most]).replace("\n", " ")
    return shown if len(text) <= most else f"{shown}..."


def plot_shapes(model: AdditiveModel, path: str | Path, *, top: int = 24) -> Path:
    """Draw the `top` most important terms into one picture at `path`. Its suffix gives the format.
    Return the path.

    A term of one feature is drawn as the factor on the duration (log scale), with the spread over
    bags; its first point is for missing values. A term of two features is drawn as colours: its
    purified contribution to the score.
    """
    order = sorted(range(len(model.terms)), key=lambda k: -model.terms[k].importance())[:top]
    columns = max(1, min(4, len(order)))
    rows = max(1, math.ceil(len(order) / columns))
    figure = Figure(figsize=(4.2 * columns, 3.0 * rows), layout="constrained")
    for cell, k in enumerate(order):
        ax = figure.add_subplot(rows, columns, cell + 1)
        term = model.terms[k]
        axes = [model.axes[i] for i in term.features]
        (_draw_main if len(axes) == 1 else _draw_pair)(ax, term, axes)
        note = "" if term.origin == "fit" else f" ({term.origin})"
        ax.set_title(as_written(f"{model.term_names[k]}{note}"), fontsize=9, parse_math=False)
    path = Path(path)
    figure.savefig(path, dpi=80)
    return path


def plot_histories(histories: Sequence[History], path: str | Path) -> Path:
    """Draw histories (how long the jobs of a group lasted) into one picture at `path` and return
    the path. Bars are numbers of jobs by duration. The line is the share of the next jobs that
    lasts longer than each duration (dotted: by the wider group)."""
    columns = max(1, min(3, len(histories)))
    rows = max(1, math.ceil(len(histories) / columns))
    figure = Figure(figsize=(4.6 * columns, 2.8 * rows), layout="constrained")
    edges = (5.0, *EDGES_S, 1_209_600.0)
    for cell, history in enumerate(histories):
        ax = figure.add_subplot(rows, columns, cell + 1)
        ax.bar(
            edges[:-1], history.ended, np.diff(edges), align="edge", color="#e0ded7", edgecolor="w"
        )
        ax.set_ylabel("jobs", fontsize=8)
        ax.set_xscale("log")
        ax.set_xticks([10, 60, 600, 3600, 36_000, 345_600], _LASTED, fontsize=7)
        ax.set_title(as_written(history.of), fontsize=9, parse_math=False)
        alive = ax.twinx()
        for hazards, style in ((history.wider, ":"), (history.hazards, "-")):
            left = np.cumprod(1.0 - np.array(hazards[:-1]))
            alive.plot(EDGES_S, left, style, color="#0a6c74")
        alive.set_ylim(0.0, 1.0)
        alive.set_ylabel("outlive it", fontsize=8)
    path = Path(path)
    figure.savefig(path, dpi=80)
    return path


_LASTED = ("10 s", "1 min", "10 min", "1 h", "10 h", "4 d")


def _draw_main(ax: Axes, term: Term, axes: list[Axis]) -> None:
    x = np.arange(len(term.scores))
    seen = term.weights > 0
    middle = np.where(seen, np.exp(term.scores), np.nan)
    ax.fill_between(
        x,
        np.where(seen, np.exp(term.scores - term.spread), np.nan),
        np.where(seen, np.exp(term.scores + term.spread), np.nan),
        step="mid",
        alpha=0.25,
    )
    ax.step(x, middle, where="mid")
    ax.set_yscale("log")
    ax.axhline(1.0, color="grey", linewidth=0.6)
    ax.set_ylabel("factor", fontsize=8)
    _ticks(ax.xaxis, axes[0])


def _draw_pair(ax: Axes, term: Term, axes: list[Axis]) -> None:
    scores = np.where(term.weights > 0, term.scores, np.nan)
    limit = float(np.nanmax(np.abs(scores))) if np.isfinite(scores).any() else 1.0
    image = ax.imshow(
        scores.T, origin="lower", aspect="auto", cmap="RdBu_r", vmin=-limit, vmax=limit
    )
    ax.figure.colorbar(image, ax=ax)
    _ticks(ax.xaxis, axes[0])
    _ticks(ax.yaxis, axes[1])


def _ticks(side: Any, axis: Axis) -> None:
    labels = axis.labels()
    shown = range(0, len(labels), max(1, math.ceil(len(labels) / MAX_LABELS)))
    side.set_ticks(
        list(shown), [as_written(labels[i], LONGEST_TICK) for i in shown], parse_math=False
    )
    side.set_tick_params(labelsize=6, rotation=60 if side.axis_name == "x" else 0)
