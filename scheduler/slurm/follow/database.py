"""Checks whether slurmdbd answers. While it does not, limits, accounts and shares stay as they were
last read."""

from __future__ import annotations

from collections.abc import Mapping

from scheduler.slurm.read.client import Slurm, SlurmDown, SlurmError
from scheduler.slurm.read.site import has_accounting


class Database:
    """Checks with `sacctmgr` whether slurmdbd answers.

    Attributes:
        since: while slurmdbd does not answer: when it last did, or was first asked. None: it
            answers, or the site has none.
    """

    def __init__(self, slurm: Slurm) -> None:
        self._slurm, self._seen = slurm, 0.0
        self.since: float | None = None

    def ask(self, config: Mapping[str, str], now: float) -> bool:
        """Check once whether slurmdbd answers, and update `since`. Return whether `since`
        changed."""
        before, self._seen = self.since, self._seen or now
        if not has_accounting(config):
            self.since = None
            return before is not None
        try:
            self._slurm.ping_database()
        except SlurmDown:  # nothing is known of it
            return False
        except SlurmError:
            self.since = before if before is not None else self._seen
        else:
            self._seen, self.since = now, None
        return before != self.since
