"""`pellucid evaluate arrivals`: forecasts of arrivals per ten minutes in September, by models
trained on April to August."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd

from features.codec import Json
from features.given import opened
from models.training.arrivals import Arrivals, evaluate_arrivals

TEST_FROM = datetime(2020, 9, 1, tzinfo=UTC).timestamp()  # the file's clock, taken as it is
# Public holidays of the site's country in the months of the file.
HOLIDAYS = (
    *(f"2020-04-{day:02}" for day in (4, 5, 6)),
    *(f"2020-05-{day:02}" for day in (1, 2, 3, 4, 5)),
    *(f"2020-06-{day:02}" for day in (25, 26, 27)),
)
# What the forecast has to be at or below (MAE); for the longer leads, the seasonal naive.
TARGETS = {"jobs@next": 3.15, "gpus@next": 36.0}


def run(data: Path, *, seed: int = 0) -> Json:
    """Return the errors for every lead (time ahead), those of the baselines, and whether each
    target is met.

    Args:
        data: folder with `venus/cluster_throughput.csv` and, optionally, the published forecast.

    Raises TrainingError when the file is missing or malformed.
    """
    folder = data / "venus"
    history = Arrivals.read_csv(folder / "cluster_throughput.csv", holidays=HOLIDAYS)
    figures = evaluate_arrivals(history, TEST_FROM, seed=seed)
    peer = folder / "peer_throughput_pred.csv"
    if peer.exists():
        with opened(peer) as file:
            frame = pd.read_csv(file)
        for series, name in (("jobs", "job"), ("gpus", "num")):
            missed = frame[f"pred_gpu_{name}"] - frame[f"submit_gpu_{name}"]
            figures[f"{series}@next"]["mae"]["published"] = float(np.abs(missed).mean())
    return {"leads": figures, "targets": {k: _verdict(k, row["mae"]) for k, row in figures.items()}}


def _verdict(key: str, mae: Mapping[str, float]) -> Json:
    limit = TARGETS.get(key, min(mae["naive_1d"], mae["naive_7d"]))
    return {"mae": mae["ga2m"], "limit": limit, "met": bool(mae["ga2m"] <= limit)}
