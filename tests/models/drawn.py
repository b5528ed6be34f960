"""Rows for fits: 20 features, a target with main effects, three interactions and noise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from features.rows import DAY_S, Rows
from features.spec import FeatureSpec

FEATURES = 20
SPECS = tuple(
    FeatureSpec(f"x{i:02d}", "nominal" if i >= 17 else "continuous", "bench")
    for i in range(FEATURES)
)


def drawn(n: int, seed: int) -> Rows:
    """Rows by a stated rule; a twentieth of the numbers is missing."""
    rng = np.random.default_rng(seed)
    numbers = rng.normal(size=(n, 17))
    labels = [rng.zipf(1.6, n).clip(max=200) for _ in range(3)]
    score = 5.0 + np.sin(2 * numbers[:, 0]) + 0.7 * np.abs(numbers[:, 1]) + 0.5 * numbers[:, 2]
    score += 0.6 * numbers[:, 3] * numbers[:, 4] + 0.5 * (numbers[:, 5] > 0) * numbers[:, 6]
    score += 0.4 * np.tanh(numbers[:, 7] * numbers[:, 8]) + 0.8 * np.sin(labels[0] % 17)
    score += 0.3 * (labels[1] % 3) + rng.normal(0, 1.0, n)
    numbers[rng.random(numbers.shape) < 0.05] = np.nan
    columns: dict[str, Any] = {f"x{i:02d}": numbers[:, i] for i in range(17)}
    columns |= {f"x{17 + i}": np.char.add("k", labels[i].astype(str)).astype(object)
                for i in range(3)}  # fmt: skip
    time = np.sort(rng.uniform(0, 60 * DAY_S, n))
    y = np.expm1(np.clip(score, 0.0, 14.0))
    return Rows(
        features=SPECS,
        X=pd.DataFrame(columns),
        y=y,
        job_id=np.arange(n).astype(str).astype(object),
        moment=np.full(n, "submit", dtype=object),
        time=time,
        submit_time=time,
        start_time=time,
        end_time=time + y,
        gpus=np.ones(n, dtype=np.int64),
        block=(time // DAY_S).astype(np.int64),
    )
