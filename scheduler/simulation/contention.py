"""How fast two jobs run on the same GPUs, by a formula, for traces without measured pairs."""

from __future__ import annotations

import numpy as np

from features.job import Profile
from features.portable import RATIO
from models.interference import contended_speed
from scheduler.core.cluster import Run
from scheduler.simulation.work import Work

REMEMBERED = 50_000  # pairs; profiles of a real cluster never repeat


class SimulatedContention:
    """Speeds of two jobs on the same GPUs, by the formula of `models.interference`, from the jobs'
    profiles.

    For traces without measured pairs. Each member of a pair with an unknown profile runs at the
    speed `unknown`.
    """

    def __init__(self, unknown: float = 0.8):
        self._unknown = unknown
        self._speeds: dict[tuple[Profile, Profile], float] = {}

    def rate(self, work: Work, run: Run, neighbour: Work | None) -> float:
        if neighbour is None:
            return 1.0
        a, b = work.profile, neighbour.profile
        if a is None or b is None:
            return self._unknown
        speed = self._speeds.get((a, b))
        if speed is None:
            if len(self._speeds) >= REMEMBERED:
                self._speeds.clear()
            found = contended_speed(
                np.float64(a.gpu_util_pct / 100),
                np.float64(b.gpu_util_pct / 100),
                np.float64((a.gpu_mem_util_pct + b.gpu_mem_util_pct) / 100),
            )
            speed = self._speeds[a, b] = round(float(found), RATIO)
        return speed
