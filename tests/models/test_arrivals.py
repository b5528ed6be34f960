"""The arrivals model: causal rows, one way of making them, calibrated forecasts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.bundle import Bundle, BundleError
from models.bundle.arrivals import (
    BIN_S,
    DAY_BINS,
    LEADS,
    ArrivalModel,
    Calibration,
    arrival_columns,
    arrival_specs,
)
from models.training.arrivals import (
    Arrivals,
    arrivals_at,
    evaluate_arrivals,
    fit_arrivals,
)
from models.training.errors import TrainingError

START = 1_600_000_000 // BIN_S * BIN_S


def daily(days: int, seed: int) -> Arrivals:
    """Arrivals that follow the hour and burst now and then."""
    rng = np.random.default_rng(seed)
    hour = (np.arange(days * DAY_BINS) % DAY_BINS) / DAY_BINS
    rate = 1 + 8 * np.maximum(0.0, np.sin(2 * np.pi * hour))
    jobs = rng.poisson(rate * np.where(rng.random(len(rate)) < 0.01, 15, 1)).astype(float)
    return Arrivals(jobs, jobs * rng.choice([1.0, 2.0, 8.0], len(jobs)), START)


@pytest.fixture(scope="module")
def model() -> ArrivalModel:
    return fit_arrivals(daily(16, 0), leads=LEADS[:1], preset="fast").model


@settings(max_examples=30)
@given(at=st.integers(0, 9 * DAY_BINS), lead=st.sampled_from(LEADS), seed=st.integers(0, 9))
def test_a_row_knows_nothing_of_what_comes_after_it(at, lead, seed):
    history = daily(10, 3)
    rows = arrival_columns(history.counts, START, np.array([at]), lead)
    rng = np.random.default_rng(seed)
    later = {k: v.copy() for k, v in history.counts.items()}
    for counts in later.values():
        counts[at + 1 :] = rng.integers(0, 99, len(counts) - at - 1)
    again = arrival_columns(later, START, np.array([at]), lead)
    for name, column in rows.items():
        assert np.array_equal(column, again[name], equal_nan=True), name
    cut = {k: v[: at + 1] for k, v in history.counts.items()}
    short = arrival_columns(cut, START, np.array([at]), lead)
    assert all(np.array_equal(rows[n], short[n], equal_nan=True) for n in rows)
    assert set(rows) == {spec.name for spec in arrival_specs()}


def test_the_calendar_is_that_of_the_bin_forecast():
    at, lead = np.array([0]), LEADS[2]
    monday = 4 * 86_400.0 + 8 * 3600  # 1970-01-05 was a Monday
    row = arrival_columns(
        {"jobs": np.ones(1), "gpus": np.ones(1)},
        monday,
        at,
        lead,
        utc_offset_s=3600,
        holidays=("1970-01-06",),
    )
    assert (row["hour"][0], row["weekday"][0], row["holiday"][0]) == (9.0, 1.0, 1.0)


def test_forecasts_beat_naive_ones_and_their_intervals_hold():
    history = daily(24, 1)
    found = evaluate_arrivals(
        history, START + 17 * 86_400, leads=LEADS[:1], lightgbm=False, preset="fast"
    )["jobs@next"]
    mae = found["mae"]
    assert mae["ga2m"] < 0.9 * min(mae["last_value"], mae["naive_1d"], mae["constant_median"])
    assert 0.75 < found["coverage_80"] < 0.92
    assert found["coverage_50"] < found["coverage_80"] < found["coverage_95"]


def test_what_followed_is_the_mean_of_the_bins_ahead():
    history = Arrivals(np.arange(20.0), np.zeros(20), START)
    assert arrivals_at(history, "jobs", np.array([3]), LEADS[0]).tolist() == [4.0]
    assert arrivals_at(history, "jobs", np.array([3]), LEADS[3]).tolist() == [6.0]


def test_tables_of_pairs_are_small(model):
    """Each model of a bundle has several, and the demo's is in its repository."""
    tables = [term.scores for one in model.models.values() for term in one.terms]
    assert any(table.ndim == 2 for table in tables)
    assert max(max(table.shape) for table in tables) <= 22, "20 bins, missing, and one to spare"


def test_a_bundle_keeps_the_forecast(model, tmp_path):
    loaded = Bundle.load(Bundle(arrivals=model).save(tmp_path / "b"))
    counts = daily(9, 5).counts
    assert loaded.parts == ("arrivals",)
    ours, theirs = (m.forecast(counts, START, "jobs", "next") for m in (model, loaded.arrivals))
    assert ours == theirs
    levels = list(ours.quantiles.values())
    assert levels == sorted(levels)
    assert ours.quantiles[0.025] <= ours.median <= ours.quantiles[0.975]
    assert ours.median == int(ours.median)
    total = ours.terms.intercept
    for term in ours.terms.terms:
        total += term
    assert total == ours.terms.score
    with pytest.raises(BundleError, match="'jobs@24h'"):
        model.forecast(counts, START, "jobs", "24h")


@pytest.mark.parametrize(
    ("jobs", "says"),
    [(np.array([1.0, -1.0]), "bin 1 is -1"), (np.array([np.nan, 1.0]), "bin 0 is nan")],
)
def test_impossible_counts_are_refused(jobs, says):
    with pytest.raises(TrainingError, match=says):
        Arrivals(jobs, np.ones(2), START)


def test_too_little_history_and_malformed_files_are_refused(tmp_path):
    with pytest.raises(TrainingError, match="at least"):
        fit_arrivals(daily(2, 0))
    with pytest.raises(TrainingError, match="1 bins of jobs and 2"):
        Arrivals(np.ones(1), np.ones(2), START)
    path = tmp_path / "x.csv"
    for content in ("", "time,a\n1,2\n", "time,submit_gpu_job,submit_gpu_num\nx,1,1\ny,1,1\n"):
        path.write_text(content)
        with pytest.raises(TrainingError) as caught:
            Arrivals.read_csv(path)
        assert "\n" not in str(caught.value)
    with pytest.raises(BundleError, match="groups"):
        Calibration((0.0,), (0.5,), ((0.0,),), (1.0,))


@pytest.mark.parametrize(("bins", "enough"), [(14 * DAY_BINS - 1, True), (13 * DAY_BINS, False)])
def test_a_trace_whose_first_job_comes_after_midnight_has_its_days(bins, enough):
    """Bins are counted from the first job on."""
    assert daily(15, 0).until(bins).enough is enough


def test_a_quiet_end_counts_as_long_as_it_is_known():
    jobs, gpus = np.array([START + 5.0, START + 1300.0]), np.array([1, 8])
    got = Arrivals.of_jobs(jobs, gpus, until_s=START + 4 * BIN_S + 599)
    assert got.jobs.tolist() == [1.0, 0.0, 1.0, 0.0]  # the fifth bin is not over
    assert got.gpus.tolist() == [1.0, 0.0, 8.0, 0.0]


def test_counting_jobs_into_bins():
    got = Arrivals.of_jobs(np.array([START + 1300.0, START + 5, START + 10]), np.array([8, 1, 2]))
    assert got.jobs.tolist() == [2.0, 0.0, 1.0]
    assert got.gpus.tolist() == [3.0, 0.0, 8.0]
    assert got.first_bin_s == START
