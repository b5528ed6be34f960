"""A job's total running time, predicted from the progress that the job printed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log, sqrt
from statistics import median

EARLY, REPEATS, CONTRADICTED, GROWN = "early", "repeats", "contradicted", "grown"
DOUBTS = {
    EARLY: "it may stop early",
    REPEATS: "it may run again after that (folds, seeds, trials)",
    CONTRADICTED: "what it prints of the time left differs",
    GROWN: "what counts it was found by its growth",
}
USED = 0.8  # share of its maximum below which an earlier run is taken to have stopped early
CENTRED = 3  # such runs, from which on their median is believed
MARGIN = 0.9  # of the shortest of them
Z = 1.645  # standard deviations on either side of nine in ten


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress that a job reports in its output, as numbers only.

    Attributes:
        total_s: how long the job runs from start to end, seconds on GPUs of its own.
        low_s, high_s: bounds between which `total_s` lies nine times in ten.
        done, of: number of units done, and of all units of the job.
        unit: ``fold``, ``epoch``, ``step``, ``percent``, or ``eta``: seconds, by the time left that
            the job itself prints.
        unit_s: seconds per unit.
        at_s: seconds that the job had run at this report.
        source: format that this was read from (`profiler.progress.formats`).
        doubts: reasons why the bounds are wider: names in `DOUBTS`, separated by spaces.
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
        """Return the standard deviation of ln(total_s), the logarithm of the predicted total
        running time."""
        return sqrt(1e-4 + (log(max(self.high_s, 1.0) / max(self.low_s, 1.0)) / (2 * Z)) ** 2)

    def doubted(self, doubt: str) -> str:
        """Return the progress's `doubts` with the name `doubt` added, separated by spaces."""
        return " ".join(dict.fromkeys((*self.doubts.split(), doubt)))

    def text(self) -> str:
        """Return the progress in words ("90 epochs of 480 s"), followed by its doubts in words."""
        return "; ".join((self._plain(), *(DOUBTS[d] for d in self.doubts.split() if d in DOUBTS)))

    def _plain(self) -> str:
        if self.unit == "percent":
            return f"{self.done:.0f} % after {self.at_s:.0f} s"
        if self.unit == "eta":
            return f"{self.of - self.done:.0f} s left by its own estimate"
        each = f"{self.unit_s:.3g}" if self.unit_s < 1000 else f"{self.unit_s:.0f}"
        return f"{self.of:g} {self.unit}s of {each} s"


def tempered(progress: Progress, shares: Sequence[float]) -> Progress:
    """Return a progress whose predicted total allows for stopping early, as earlier runs of the
    script did. Return it unchanged if none of them stopped early, or if it allows for that already.

    If one earlier run stopped early, the bounds are widened and the prediction is moved between
    them; from `CENTRED` earlier runs on, their median becomes the prediction. Runs that this job
    has already outlasted are left out.

    Args:
        shares: for each earlier run, the share of its stated maximum that it used.
    """
    full_s = progress.total_s
    kept = [share for share in shares if share * full_s > progress.at_s]
    if not kept or min(kept) >= USED or EARLY in progress.doubts.split():
        return progress
    low_s = max(progress.at_s, min(progress.low_s, MARGIN * min(kept) * full_s))
    high_s = max(progress.high_s, full_s)
    total_s = sqrt(max(low_s, 1.0) * high_s)
    if len(kept) >= CENTRED:
        total_s = min(1.0, median(kept)) * full_s
    return replace(
        progress,
        total_s=min(high_s, max(low_s, total_s)),
        low_s=low_s,
        high_s=high_s,
        doubts=progress.doubted(EARLY),
    )
