"""Shows which terms of a model move its predictions most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from models.bundle import AdditiveModel, Term
from scheduler.charts.shapes import factor_text, feature_text

BARS = 15


@dataclass(frozen=True, slots=True)
class Bar:
    """A row of the table of important terms. `width`: width of its bar, percent."""

    text: str
    factor: str
    width: float


def ranked(terms: Sequence[Term], order: int, most: int) -> list[Term]:
    """Return at most `most` terms over `order` features (1: one feature, 2: pairs), the most
    important first. Terms without importance are left out.
    """
    found = [t for t in terms if len(t.features) == order and t.importance() > 0]
    return sorted(found, key=lambda t: -t.importance())[:most]


def importance(model: AdditiveModel) -> list[Bar]:
    """Return the terms of a model that move its predictions most, on average, as rows of a
    table.
    """
    texts = {axis.spec.name: feature_text(axis) for axis in model.axes}
    chosen = list(model.importances().items())[:BARS]
    largest = max((value for _, value in chosen), default=0.0) or 1.0
    return [
        Bar(
            " and ".join(texts[part] for part in name.split(" & ")),
            factor_text(value),
            100 * value / largest,
        )
        for name, value in chosen
        if value > 0
    ]
