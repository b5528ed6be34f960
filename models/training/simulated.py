"""Simulated pairs of jobs on one GPU, by a formula, for when none have been measured.

For the built-in demonstration only. No hardware behaves exactly so: a bundle trained on these pairs
says "simulated", and a real cluster should first measure pairs of its own.

The formula is `models.interference.contended_speed`, with lognormal noise of 3 %.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from models.interference import contended_speed
from models.training.pairs import PAIR_SCHEMA, PairMeasurements

BATCHES = (32, 64, 128)

# family: compute share and bandwidth share at the smallest batch without mixed precision,
# growth of both per doubling of the batch, memory at the smallest batch in MiB. Invented, to
# cover the plane from idle to saturated; no row is taken from a measurement.
FAMILIES: dict[str, tuple[float, float, float, float]] = {
    "agent-small": (0.08, 0.01, 1.05, 1500.0),
    "agent-large": (0.18, 0.04, 1.10, 1900.0),
    "recommender": (0.12, 0.10, 1.15, 2600.0),
    "pointcloud": (0.15, 0.08, 1.00, 4200.0),
    "cnn-tiny": (0.25, 0.05, 1.35, 2100.0),
    "cnn-small": (0.38, 0.14, 1.35, 2300.0),
    "cnn-medium": (0.52, 0.26, 1.30, 3000.0),
    "cnn-large": (0.80, 0.55, 1.12, 5600.0),
    "generator": (0.48, 0.22, 1.32, 2500.0),
    "rnn": (0.72, 0.60, 1.05, 3900.0),
    "encoder": (0.62, 0.30, 1.25, 7800.0),
    "language-model": (0.93, 0.62, 1.04, 14500.0),
}


def simulated_pairs(seed: int, *, pairs: int = 1200) -> PairMeasurements:
    """Return simulated pairs: any two of some invented configurations, drawn at random, with speeds
    by the module's formula.

    Args:
        seed: seed of the draw and the noise.
        pairs: number of pairs; at most all that exist are returned.
    """
    rng = np.random.default_rng(seed)
    configurations = _configurations()
    first, second = np.triu_indices(len(configurations))
    chosen = np.sort(rng.choice(len(first), size=min(pairs, len(first)), replace=False))
    a = configurations.iloc[first[chosen]].reset_index(drop=True)
    b = configurations.iloc[second[chosen]].reset_index(drop=True)
    columns: dict[str, Any] = {}
    for side, own, other in (("a", a, b), ("b", b, a)):
        for name in configurations.columns:
            columns[f"{name}_{side}"] = own[name]
        noise = np.exp(rng.normal(0.0, 0.03, len(own)))
        columns[f"speed_{side}"] = _speed(own, other) * noise
    frame = pd.DataFrame(columns)[PAIR_SCHEMA.names]
    return PairMeasurements(frame, "simulated", f"models.training.simulated, seed {seed}")


def _speed(own: pd.DataFrame, other: pd.DataFrame) -> np.ndarray:
    bandwidth = own["gpu_mem_util_pct"] + other["gpu_mem_util_pct"]
    return np.asarray(
        contended_speed(
            own["gpu_util_pct"].to_numpy() / 100,
            other["gpu_util_pct"].to_numpy() / 100,
            bandwidth.to_numpy() / 100,
        )
    )


def _configurations() -> pd.DataFrame:
    rows = []
    for family, (compute, bandwidth, growth, memory) in FAMILIES.items():
        for step, batch in enumerate(BATCHES):
            for amp in (False, True):
                scale = growth**step * (0.8 if amp else 1.0)
                rows.append(
                    {
                        "model": family,
                        "dataset": None,
                        "batch": batch,
                        "amp": amp,
                        "gpu_util_pct": 100 * min(1.0, compute * scale),
                        "gpu_mem_util_pct": 100 * min(1.0, bandwidth * scale),
                        "gpu_mem_mib": memory * 1.25**step * (0.85 if amp else 1.0),
                    }
                )
    return pd.DataFrame(rows)
