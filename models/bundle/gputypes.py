"""How much faster a job runs on another type of GPU, from its speed on one.

ln(rate on B / rate on A) is a sum: what the types differ by for any job, what this model family
adds to that, and how batch size and gang size move it. A family never seen adds nothing; the
interval is then that of families never seen, which is wide: no profile of one GPU says which
jobs another was made for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from features import portable
from models.bundle.additive import AdditiveModel
from models.bundle.errors import BundleError

LEVELS = (0.5, 0.8, 0.95)
UNSEEN, SEEN = "family unseen", "family seen"
TERMS = ("types", "family", "batch size", "gang size")


@dataclass(frozen=True, slots=True)
class TypeEstimate:
    """The predicted speed of a job on another type of GPU, relative to its own type.

    Attributes:
        ratio: steps per second on the other type over steps per second on the own.
        terms: contributions to ln(ratio), in the order of `TERMS`; their sum is ln(ratio).
        intervals: (low, high) of the ratio at each of `LEVELS`; () if they were not fitted.
        basis: `SEEN` or `UNSEEN`.
    """

    ratio: float
    terms: tuple[float, ...]
    intervals: tuple[tuple[float, float], ...]
    basis: str


@dataclass(frozen=True, slots=True)
class GpuTypeSpeed:
    """A model of how fast jobs run on each type of GPU, relative to other types.

    Attributes:
        base: ln of the speed of each type for a family never seen, up to a constant.
        families: what a family adds to it, by type.
        batch: mean log2 batch size of a family; the batch term is counted from it.
        batch_slope, gpus_slope: per doubling, by type.
        half_widths: half-widths of ln(ratio) at `LEVELS`, by basis.
    """

    base: Mapping[str, float]
    families: Mapping[str, Mapping[str, float]]
    batch: Mapping[str, float]
    batch_slope: Mapping[str, float]
    gpus_slope: Mapping[str, float]
    half_widths: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    @property
    def types(self) -> tuple[str, ...]:
        """Return the names of the GPU types that the model knows."""
        return tuple(self.base)

    def predict(
        self, family: str, batch: int | None, gpus: int, own: str, other: str
    ) -> TypeEstimate:
        """Return the speed on `other` relative to `own`. Raise BundleError when a type is
        unknown.
        """
        for name in (own, other):
            if name not in self.base:
                raise BundleError(f"GPU type {name!r} is unknown; known: {', '.join(self.base)}")
        known = family in self.families
        doublings = math.log2(batch) - self.batch[family] if known and batch else 0.0
        added = self.families.get(family, {})
        terms = (
            self.base[other] - self.base[own],
            added.get(other, 0.0) - added.get(own, 0.0),
            doublings * (self.batch_slope[other] - self.batch_slope[own]),
            math.log2(gpus) * (self.gpus_slope[other] - self.gpus_slope[own]),
        )
        basis = SEEN if known else UNSEEN
        centre = sum(terms)
        widths = (0.0,) * len(LEVELS) if own == other else self.half_widths.get(basis, ())
        return TypeEstimate(
            portable.exp(centre, portable.RATIO),
            terms,
            tuple(
                (portable.exp(centre - w, portable.RATIO), portable.exp(centre + w, portable.RATIO))
                for w in widths
            ),
            basis,
        )

    def parts(self) -> tuple[dict[str, Any], dict[str, AdditiveModel]]:
        """Return settings in the form in which a bundle keeps them; there are no tables."""
        settings = {name: getattr(self, name) for name in self.__slots__}
        return {**settings, "half_widths": {k: list(v) for k, v in self.half_widths.items()}}, {}

    @classmethod
    def from_parts(
        cls, settings: Mapping[str, Any], models: Mapping[str, AdditiveModel]
    ) -> GpuTypeSpeed:
        """Return the model from what `parts` returned."""
        fields = {name: settings[name] for name in cls.__slots__}
        fields["half_widths"] = {k: tuple(v) for k, v in settings["half_widths"].items()}
        return cls(**fields)
