"""Bundles of models for a running service to change to."""

from __future__ import annotations

from pathlib import Path

from features.state import FEATURES
from models.bundle import Bundle


def make_bundles(folder: Path) -> list[Path]:
    """Write three bundles of models into `folder`. Return their paths: two that a decider can use,
    and one that it cannot.
    """
    import numpy as np
    import pandas as pd

    from models.training.duration import fit_duration
    from models.training.packing import fit_packing, fit_pair_speed
    from models.training.simulated import simulated_pairs

    specs = [spec for spec in FEATURES if spec.name in ("gpus", "time_limit_s", "gpu_type")]
    rng, rows = np.random.default_rng(0), 400
    frame = pd.DataFrame(
        {
            "gpus": rng.choice([1.0, 2.0, 4.0, 8.0], rows),
            "time_limit_s": rng.choice([60.0, np.nan], rows),
            "gpu_type": pd.Series(rng.choice(np.array(["V100", None], object), rows), dtype=object),
        }
    )[[spec.name for spec in specs]]
    duration = np.expm1(np.log2(frame["gpus"]) + rng.normal(3, 1, rows)).clip(1).to_numpy()
    ends = np.linspace(1e9, 1e9 + rows, rows)
    pairs = simulated_pairs(0, pairs=300)
    packing, speed = fit_packing(pairs, repeats=1).model, fit_pair_speed(pairs).model
    made = []
    for seed in (1, 2):
        model = fit_duration(frame, duration, ends, specs, seed=seed).model
        bundle = Bundle(duration=model, packing=packing, pair_speed=speed, metadata={"seed": seed})
        made.append(bundle.save(folder / str(seed)))
    return [*made, Bundle().save(folder / "empty")]
