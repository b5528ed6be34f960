"""How fast two jobs run on the same GPUs: an additive model of what both ask of them.

    speed of a beside b = intercept + f(who asks more) + g(what both ask) + h(the two together)

Asked once for each member with the roles exchanged, so swapping the two swaps the answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from features.job import Profile
from models.bundle.additive import AdditiveModel, Explanation
from models.bundle.errors import BundleError

PAIR_GA2M_FEATURES = ("gpu_util_minus_partner_pct", "gpu_util_sum_pct")
SLOWEST = 0.05  # a sum of tables is not bounded; a speed is


def pair_row(own: Profile, partner: Profile) -> tuple[float, float]:
    """One member of a pair as the values of `PAIR_GA2M_FEATURES`."""
    return own.gpu_util_pct - partner.gpu_util_pct, own.gpu_util_pct + partner.gpu_util_pct


class PairSpeedGA2M:
    """Speed of each of two jobs on the same GPUs, relative to running there alone."""

    def __init__(self, model: AdditiveModel) -> None:
        names = tuple(spec.name for spec in model.features)
        if names != PAIR_GA2M_FEATURES:
            raise BundleError(f"the pair-speed GA2M reads {names}, not {PAIR_GA2M_FEATURES}")
        if model.link != "identity":
            raise BundleError(f"the pair-speed GA2M has link {model.link!r}, not 'identity'")
        self.model = model

    def __call__(self, a: Profile, b: Profile) -> tuple[float, float]:
        """(speed of a beside b, speed of b beside a), each in [SLOWEST, 1]."""
        return self._speed(pair_row(a, b)), self._speed(pair_row(b, a))

    def terms(self, own: Profile, partner: Profile) -> Explanation:
        """Exact terms of one member; their sum is the speed before it is held to [SLOWEST, 1]."""
        return self.model.explain(pair_row(own, partner))

    def explain(self, own: Profile, partner: Profile) -> tuple[float, tuple[str, ...]]:
        """Speed of `own` beside `partner`, and what made it, one line per term."""
        row = pair_row(own, partner)
        told = self.model.explain(row)
        lines = [f"average of all pairs {told.intercept:.3f}"]
        for name, term, found in zip(
            self.model.term_names, told.terms, self.model.terms, strict=True
        ):
            values = " & ".join(f"{row[i]:.4g}" for i in found.features)
            lines.append(f"{name} {values}: {term:+.3f}")
        return self._speed(row), tuple(lines)

    def parts(self) -> tuple[dict[str, Any], dict[str, AdditiveModel]]:
        """Settings and tables, as a bundle keeps them."""
        return {}, {"speed": self.model}

    @classmethod
    def from_parts(
        cls, settings: Mapping[str, Any], models: Mapping[str, AdditiveModel]
    ) -> PairSpeedGA2M:
        """The model that `parts` took apart."""
        return cls(models["speed"])

    def _speed(self, row: tuple[float, float]) -> float:
        return min(1.0, max(SLOWEST, self.model.score(row)))
