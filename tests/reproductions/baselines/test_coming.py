"""Lucid's forecast of arrivals is the model's, once a day of them is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from models.bundle import Bundle
from models.bundle.arrivals import LEADS, ArrivalModel
from models.training.arrivals import Arrivals, fit_arrivals
from pipeline.traces.synthetic.generate import default_config, generate
from pipeline.worlds import plain
from pipeline.worlds.cluster_file import read_cluster
from pipeline.worlds.playing import Playing
from reproductions.baselines.coming import Coming, Models
from reproductions.baselines.lucid import Lucid, LucidSettings
from scheduler.core.arrivals import BIN_S, RecentForecaster

ROOT = Path(__file__).resolve().parents[3]
START = 1_600_041_600.0
DAY_BINS = 144


def counts(days: int) -> np.ndarray:
    """Twenty jobs a bin by day, two by night."""
    bins = np.arange(days * DAY_BINS) % DAY_BINS
    return np.where((bins >= 48) & (bins < 120), 20.0, 2.0)


@pytest.fixture(scope="module")
def model() -> ArrivalModel:
    daily = counts(16)
    history = Arrivals(jobs=daily, gpus=2.0 * daily, first_bin_s=START)
    return fit_arrivals(history, leads=LEADS[3:], preset="fast").model


def heard(forecaster: Coming, days: int) -> float:
    """Every job is heard of; the time at which the last bin is over."""
    for place, count in enumerate(counts(days)):
        for i in range(int(count)):
            forecaster.submitted(2, START + (place + (i + 0.5) / count) * BIN_S)
    return START + days * DAY_BINS * BIN_S


def test_in_the_first_day_the_last_hour_answers_then_the_model(model: ArrivalModel) -> None:
    models = Models()
    forecaster = Coming(models, RecentForecaster())
    now = heard(forecaster, 8)
    morning = now - 16.0 * 3600.0  # just before the day's first jobs
    short = Coming(Models(model), RecentForecaster())
    assert short.jobs(now) == short.gpus(now) == 0.0
    assert forecaster.jobs(now) == pytest.approx(2.0), "no model: as the last hour"
    models.arrivals = model
    assert 1.0 < forecaster.jobs(now) < 4.0
    assert forecaster.gpus(now) == pytest.approx(2.0 * forecaster.jobs(now), rel=0.5)
    ahead = Coming(models, RecentForecaster())
    ahead.restore([one for one in forecaster.remember() if one[0] < morning])
    assert ahead.jobs(morning) > 5.0, "the hour before brought two a bin"


def test_what_is_remembered_says_the_same(model: ArrivalModel) -> None:
    forecaster = Coming(Models(model), RecentForecaster())
    now = heard(forecaster, 9)
    again = Coming(Models(model), RecentForecaster())
    again.restore(forecaster.remember())
    assert (again.jobs(now), again.gpus(now)) == (forecaster.jobs(now), forecaster.gpus(now))
    assert len(forecaster.remember()) < 9 * counts(1).sum(), "what is not looked back on is gone"


def test_the_mode_and_the_profiling_stage_share_the_model(model: ArrivalModel) -> None:
    policy = Lucid(LucidSettings(quiet_jobs=5.0))
    stage = policy.forecaster(RecentForecaster)
    assert isinstance(policy.forecast, Coming)
    assert isinstance(stage, Coming)
    now = heard(policy.forecast, 8)
    heard(stage, 8)
    assert not policy.packing_on(now)
    policy._models.arrivals = model
    assert policy.forecast.jobs(now) == stage.jobs(now) != 2.0


def test_a_simulation_by_a_bundle_has_its_model_and_the_days_before(
    model: ArrivalModel, tmp_path: Path
) -> None:
    spec = read_cluster(ROOT / "pipeline/worlds/clusters/demo.yaml")
    trace = generate(default_config())
    sent = trace.column("submit_time").cast("int64").to_numpy() / 1000
    since = float(sent[0]) + 4.5 * 86_400.0
    past = list(zip(sent[sent < since].tolist(), trace.column("gpus").to_pylist(), strict=False))
    bundle = Bundle(arrivals=model).save(tmp_path / "bundle")
    world = plain.scenario(
        trace, "demo", spec.cluster, spec.profiling, Playing(bundle=bundle, since=since)
    )
    world.pair_predictor, world.settings = None, {"lucid": {"quiet_jobs": 2.0}}
    policy = world.policy("lucid")
    assert isinstance(policy, Lucid)
    assert policy.forecast is not None
    notified = Coming(Models(model), RecentForecaster())
    for at, gpus in past:
        notified.submitted(gpus, at)
    lent = policy.forecaster(RecentForecaster)
    assert lent is not None
    assert policy.forecast.jobs(since) == lent.jobs(since) == notified.jobs(since)
    recent = RecentForecaster()
    recent.restore(past)
    assert notified.jobs(since) != recent.jobs(since)
