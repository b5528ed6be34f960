"""The description of a feature, shared by `features`, `models` and exported bundles of models."""

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
        kind: whether the value is a number or a category.
        family: group of features that are switched on and off together (``size``, ``user``,
            ``template``, ...).
        unit: unit of the value, empty when it has none.
        text: one line that explains the feature to a job's owner. Features that differ only in this
            text are equal.
        monotone: +1 or -1 if a fitted model lets the predicted duration only rise or only fall with
            the feature, else 0. Features that differ only in this are equal.
    """

    name: str
    kind: Kind
    family: str
    unit: str = ""
    text: str = field(default="", compare=False)
    monotone: int = field(default=0, compare=False)
