"""Lucid for tests."""

from __future__ import annotations

from typing import Any

from reproductions.baselines.lucid import Lucid, LucidSettings
from scheduler.core.arrivals import ArrivalForecaster
from scheduler.core.cluster import ClusterSpec
from scheduler.core.pairs import PairPredictor
from scheduler.core.policy import NO_CLUSTER, Predictors


def lucid(
    pair_predictor: PairPredictor | None = None,
    arrivals: ArrivalForecaster | None = None,
    *,
    cluster: ClusterSpec = NO_CLUSTER,
    first_partner: bool = False,
    **settings: Any,
) -> Lucid:
    """Lucid with these settings; packing depends on `arrivals` where they are given."""
    if arrivals is not None:
        settings = {"quiet_jobs": 2.0, **settings}
    predictors = Predictors(pair_predictor, None if arrivals is None else lambda: arrivals)
    made = Lucid(LucidSettings(**settings), cluster, predictors)
    made.first_partner = first_partner
    return made
