"""How many fits of a search by cross-validation are over. scikit-learn says once how many there
are, and then prints a line for each.
"""

from __future__ import annotations

import re

from profiler.progress.formats import Mark

_TOTAL = re.compile(r"totalling (\d{1,9}) fits")


class Fits:
    """Counts the lines of fits that are over."""

    def __init__(self) -> None:
        self._done = self._of = 0.0

    def take(self, line: str) -> list[Mark]:
        """Take in a line of output. Return, as a mark, how many fits are over with it; [] if the
        line does not say that a fit is over.
        """
        if "totalling" in line and (found := _TOTAL.search(line)) is not None:
            self._done, self._of = 0.0, float(found[1])
        elif self._of and line.startswith("[CV") and " END " in line:
            self._done = min(self._done + 1.0, self._of)
            return [Mark("scikit-learn", "step", self._done, self._of, scope="run")]
        return []
