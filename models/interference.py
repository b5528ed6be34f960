"""A formula for how much two jobs on one GPU slow each other down, for simulations without
measurements.

A job asks for a share u of the compute units and a share m of the memory bandwidth. Together two
jobs get at most all of each, and kernels that meet delay each other even when there is room:

    room  = min(1 / max(1, u_a + u_b), 1 / max(1, (m_a + m_b) / 0.85)) * (1 - 0.12 u_a u_b)
    speed = room ** (0.7 + 0.6 u_own / (u_a + u_b))       (who asks for less loses less)

No hardware behaves exactly so. Whatever is computed with the formula is labelled "simulated".
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64] | np.float64


def contended_speed(own: Floats, other: Floats, bandwidth: Floats) -> Floats:
    """Return a job's speed beside another job on the same GPU, relative to running alone (0 to 1).

    Args:
        own, other: GPU utilisation of the job and of the other job, shares (0 to 1).
        bandwidth: sum of the memory utilisations of both jobs (0 to 2).
    """
    together = np.maximum(own + other, 1e-9)
    room = np.minimum(1 / np.maximum(1.0, together), 1 / np.maximum(1.0, bandwidth / 0.85))
    speed: Floats = (room * (1 - 0.12 * own * other)) ** (0.7 + 0.6 * own / together)
    return speed
