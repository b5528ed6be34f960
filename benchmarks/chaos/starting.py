"""Makes some shims (processes that start commands) late and snapshots frequent. The service is then
sometimes restarted while a job's shim has not begun: also when that job was told to stop, or when a
snapshot was taken with jobs held.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.chaos import system
from benchmarks.chaos.kernel import Kernel, active
from scheduler.backends.local.backend import LocalBackend
from scheduler.service.decide import processes
from scheduler.service.log.fold import Bundles
from scheduler.service.log.snapshots import EVERY, StateCheckpoints

LATE, LATE_S = 0.3, (0.2, 2.0)  # of the shims; by so long
OFTEN = (8, 15, 30)  # events between two snapshots, in most of the runs


class Starting:
    """Decides which shims (processes that start commands) are late, and how often snapshots of the
    service's state are written, in one run.

    Args:
        note: writes an event into the run's history.
        calm: no shim is late, and snapshots are as rare as in a real service.

    Attributes:
        every: number of events between two snapshots.
    """

    def __init__(self, kernel: Kernel, seed: int, note: Callable[..., Any], *, calm: bool):
        self.kernel, self.note, self.calm = kernel, note, calm
        self._late = random.Random(f"late shims {seed}")
        self.every = EVERY if calm else random.Random(f"snapshots {seed}").choice((*OFTEN, EVERY))

    def begins(self) -> None:
        """Make the calling shim wait, by chance. Called by a shim before it claims its attempt."""
        if not self.calm and self._late.random() < LATE:
            self.kernel.sleep(self._late.uniform(*LATE_S))


def install(patches: system.Patches, of_run: Callable[[], Starting]) -> None:
    """Patch the service: checkpoints are written as often as the run wants, and every stop of a job
    is recorded in the run's history.
    """
    stop = LocalBackend.stop

    def stopped(self: LocalBackend, job_id: str, attempt: int) -> None:
        stop(self, job_id, attempt)
        if active() is not None:
            of_run().note("stops", job=job_id, attempt=attempt)

    def kept(folder: Path, bundles: Bundles) -> StateCheckpoints:
        return StateCheckpoints(folder, bundles, every=of_run().every)

    patches.put(LocalBackend, "stop", stopped)
    patches.put(processes, "StateCheckpoints", kept)
