"""How long a job will have run, by what it printed itself."""

from __future__ import annotations

from dataclasses import dataclass
from math import log, sqrt

EARLY, REPEATS, CONTRADICTED = "early", "repeats", "contradicted"
DOUBTS = {
    EARLY: "it may stop early",
    REPEATS: "it may run again after that (folds, seeds, trials)",
    CONTRADICTED: "what it prints of the time left differs",
}
Z = 1.645  # standard deviations on either side of nine in ten


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a job is, by its own account. Numbers only: no line of its output is kept.

    Attributes:
        total_s: how long it runs from its start to its end, seconds on GPUs of its own.
        low_s, high_s: in nine cases of ten it is between these.
        done, of: units done, and of how many.
        unit: ``epoch``, ``step`` or ``percent``.
        unit_s: seconds a unit.
        at_s: how long it had run when it reported this.
        source: format it was read from (`profiler.progress.formats`).
        doubts: what widens it: names of `DOUBTS`, with a space between.
    """

    total_s: float
    low_s: float
    high_s: float
    done: float
    of: float
    unit: str
    unit_s: float
    at_s: float
    source: str
    doubts: str = ""

    @property
    def error(self) -> float:
        """Standard deviation of ln(total)."""
        return sqrt(1e-4 + (log(max(self.high_s, 1.0) / max(self.low_s, 1.0)) / (2 * Z)) ** 2)

    def doubted(self, doubt: str) -> str:
        """Its doubts, with this one."""
        return " ".join(dict.fromkeys((*self.doubts.split(), doubt)))

    def text(self) -> str:
        """In words: "90 epochs of 480 s", and what is in doubt."""
        return "; ".join((self._plain(), *(DOUBTS[d] for d in self.doubts.split() if d in DOUBTS)))

    def _plain(self) -> str:
        if self.unit == "percent":
            return f"{self.done:.0f} % after {self.at_s:.0f} s"
        if self.unit == "eta":
            return f"{self.of - self.done:.0f} s left by its own estimate"
        each = f"{self.unit_s:.3g}" if self.unit_s < 1000 else f"{self.unit_s:.0f}"
        return f"{self.of:g} {self.unit}s of {each} s"
