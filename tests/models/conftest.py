"""Synthetic frames with everything a trace throws at a model, and one model fitted on them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from features.spec import FeatureSpec
from models.bundle import Bundle
from models.training.duration import FittedDuration, fit_duration
from models.training.packing import fit_packing, fit_pair_speed
from models.training.simulated import simulated_pairs

SPECS = (
    FeatureSpec("gpus", "continuous", "size"),
    FeatureSpec("user_ewma_s", "continuous", "user", "s"),
    FeatureSpec("submit_hour", "continuous", "calendar", "h"),
    FeatureSpec("time_limit_s", "continuous", "size", "s", monotone=1),
    FeatureSpec("patience", "continuous", "user", monotone=-1),
    FeatureSpec("always_one", "continuous", "size"),
    FeatureSpec("never_known", "continuous", "profile"),
    FeatureSpec("gpu_type", "nominal", "size"),
    FeatureSpec("never_named", "nominal", "profile"),
)


def synthetic_frame(n: int, seed: int, *, novel: bool = False) -> pd.DataFrame:
    """n rows of SPECS; with `novel`, also categories and magnitudes training never saw."""
    rng = np.random.default_rng(seed)
    types = ["V100", "A100", "K80", None] + (["H200", ""] if novel else [])
    frame = pd.DataFrame(
        {
            "gpus": rng.choice([1.0, 2, 4, 8, 16], n),
            "user_ewma_s": np.exp(rng.normal(6, 2, n)),
            "submit_hour": rng.uniform(0, 24, n),
            "time_limit_s": np.exp(rng.normal(8, 1.5, n)),
            "patience": rng.normal(0, 1, n),
            "always_one": np.ones(n),
            "never_known": np.full(n, np.nan),
            "gpu_type": pd.Series(rng.choice(np.array(types, dtype=object), n), dtype=object),
            "never_named": pd.Series([None] * n, dtype=object),
        }
    )
    for name in ("user_ewma_s", "time_limit_s", "patience"):
        frame.loc[rng.random(n) < 0.15, name] = np.nan
    if novel:
        frame["never_known"] = rng.choice([np.nan, 0.0, -1e300], n)
        frame["never_named"] = pd.Series(rng.choice(np.array(["x", None], object), n), dtype=object)
        frame.loc[rng.random(n) < 0.02, "user_ewma_s"] = np.inf
        frame.loc[rng.random(n) < 0.02, "patience"] = -np.inf
    return frame


def synthetic_durations(frame: pd.DataFrame, seed: int) -> np.ndarray:
    """Durations with main effects, an interaction and a dent against each monotone promise."""
    rng = np.random.default_rng(seed)
    log = 0.5 * np.log1p(frame["user_ewma_s"].fillna(100.0)) + 0.2 * np.log2(frame["gpus"])
    log += np.where(frame["gpu_type"] == "A100", -1.0, 0.5) * (frame["submit_hour"] > 12)
    limit = np.log(frame["time_limit_s"].fillna(3000.0))
    # rising, but falling where it should not, and differently by hour
    log += 0.3 * limit - 2.0 * ((limit > 8) & (limit < 9)) * (frame["submit_hour"] > 6)
    log += 0.5 * np.sin(3 * frame["patience"].fillna(0.0)) * np.where(limit > 8, 1.5, 0.2)
    return np.expm1(np.clip(log + rng.normal(0, 0.5, len(frame)), 0, 15)).to_numpy()


@pytest.fixture(scope="session")
def specs() -> tuple[FeatureSpec, ...]:
    """The features of the synthetic frames."""
    return SPECS


@pytest.fixture(scope="session")
def make_frame() -> Callable[..., pd.DataFrame]:
    """`synthetic_frame`."""
    return synthetic_frame


@pytest.fixture(scope="session")
def training() -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """(X, duration_s, time) of 4,000 jobs."""
    X = synthetic_frame(4000, 0)
    time = np.sort(np.random.default_rng(1).uniform(1.6e9, 1.6e9 + 20 * 86_400, len(X)))
    return X, synthetic_durations(X, 2), time


@pytest.fixture(scope="session")
def fitted(training: tuple[pd.DataFrame, np.ndarray, np.ndarray]) -> FittedDuration:
    """A "fast" fit with interactions and monotone features."""
    X, duration, time = training
    return fit_duration(X, duration, time, SPECS, seed=3)


@pytest.fixture(scope="session")
def bundle(fitted: FittedDuration) -> Bundle:
    """Every kind of model."""
    pairs = simulated_pairs(0, pairs=600)
    packing, speed = fit_packing(pairs, repeats=1), fit_pair_speed(pairs)
    return Bundle(
        duration=fitted.model,
        packing=packing.model,
        pair_speed=speed.model,
        metadata={"duration": fitted.metadata, "packing": packing.metadata, "auc": np.nan},
        created_by="pellucid tests",
    )
