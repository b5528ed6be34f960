"""How a feature is described: the contract between `features`, `models` and an exported bundle."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["continuous", "nominal"]

# A row is aligned with a tuple of specs. Continuous: float, NaN when missing.
# Nominal: str, None when missing.
Value = float | str | None


@dataclass(frozen=True, slots=True)
class FeatureSpec:
    """One feature of a job.

    Attributes:
        name: column name, unique.
        kind: how the value is to be read.
        family: the group it is switched on and off with (``size``, ``user``, ``template``, ...).
        unit: unit of the value, empty when it has none.
        text: one line a waiting person understands; other words are no other feature.
        monotone: +1 or -1 when a fit lets the duration only rise or fall with it, else 0. A
            property of the fit: the feature is the same feature.
    """

    name: str
    kind: Kind
    family: str
    unit: str = ""
    text: str = field(default="", compare=False)
    monotone: int = field(default=0, compare=False)
