"""Both models in the same replayed weeks: what the figures are, and that lies are seen."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from sklearn.metrics import average_precision_score

from features.rows import DAY_S
from models.bundle import AdditiveModel, Bundle
from models.training.errors import TrainingError
from pipeline import replaying
from pipeline.replaying import replayed
from pipeline.traces.synthetic import generate as synthetic
from pipeline.worlds.cluster_file import read_cluster
from pipeline.worlds.venus import TrackError

ROOT = Path(__file__).resolve().parents[2]
DEMO = read_cluster(ROOT / "pipeline/worlds/clusters/demo.yaml")


@pytest.fixture(scope="module")
def trace() -> pa.Table:
    return synthetic.generate(synthetic.default_config("demo", 0))


@pytest.fixture(scope="module")
def last(trace: pa.Table) -> float:
    return max(trace.column("submit_time").cast(pa.int64()).to_pylist()) / 1000


@pytest.fixture(scope="module")
def good() -> Bundle:
    return Bundle.load(ROOT / "data/prebuilt/bundle")


@pytest.fixture(scope="module")
def upside_down(good: Bundle) -> Bundle:
    """It believes the long to be short, and the short to be long."""
    model = good.duration
    terms = tuple(
        type(term)(**{**{n: getattr(term, n) for n in term.__slots__}, "scores": -3 * term.scores})
        for term in model.terms
    )
    turned = AdditiveModel(model.axes, terms, model.intercept)
    return Bundle(duration=turned, metadata=good.metadata)


def test_a_model_is_as_good_as_itself_in_every_figure(
    trace: pa.Table, last: float, good: Bundle
) -> None:
    found = replayed(good, good, trace, DEMO, last - 2 * DAY_S, draws=2)
    titles = [figure.title for figure in found.figures]
    assert titles[0] == "mean JCT"
    assert titles[-2:] == ["long jobs found", "pinball of ln"]
    assert {title for title in titles if title.startswith("p99 wait in ")} >= {
        "p99 wait in product",
        "p99 wait in research",
    }
    assert {(figure.gain, figure.verdict) for figure in found.figures} == {(0.0, "as good")}
    assert found.draws == 2
    assert "2.0 days replayed 2 times" in found.about


def test_a_model_that_is_upside_down_is_worse_in_the_replay(
    trace: pa.Table, last: float, good: Bundle, upside_down: Bundle
) -> None:
    found = {one.title: one for one in replayed(
        upside_down, good, trace, DEMO, last - 2 * DAY_S, draws=1
    ).figures}  # fmt: skip
    assert found["pinball of ln"].verdict == "worse"
    back = {one.title: one for one in replayed(
        good, upside_down, trace, DEMO, last - 2 * DAY_S, draws=1
    ).figures}  # fmt: skip
    assert back["pinball of ln"].verdict == "better"
    assert back["mean JCT"].gain == pytest.approx(-found["mean JCT"].gain)


def test_too_few_jobs_and_another_cluster_are_refused(
    trace: pa.Table, last: float, good: Bundle
) -> None:
    with pytest.raises(TrainingError, match="to compare schedules takes 200 of 8"):
        replayed(good, good, trace, DEMO, last - 3600.0, draws=1)
    other = trace.set_column(
        trace.schema.get_field_index("vc"), "vc", pa.array(["elsewhere"] * len(trace))
    )
    with pytest.raises(TrackError, match="no virtual cluster elsewhere"):
        replayed(good, good, other, DEMO, last - DAY_S, draws=1)


def test_what_is_found_counts_gpu_time_and_ties_count_together() -> None:
    draw = np.random.default_rng(3)
    by, positive = draw.integers(0, 6, 200) / 6, draw.random(200) < 0.3
    once = np.ones((1, 200))
    plain = replaying._average_precision(by, positive, np.ones(200), once)[0]
    assert plain == pytest.approx(average_precision_score(positive, by))
    worth = np.where(by > 0.7, 10.0, 1.0)
    assert replaying._average_precision(by, positive, worth, once)[0] != pytest.approx(plain)
    twice = replaying._average_precision(by, positive, np.ones(200), 1.0 + once)[0]
    assert twice == pytest.approx(plain)


def test_the_worst_hundredth_of_weighted_waits() -> None:
    values, once = np.arange(1000.0), np.ones((1, 1000))
    assert replaying._p99(values, once)[0] == 989.0
    lower = np.where(values < 500, 1.0, 0.0)[None, :]
    assert replaying._p99(values, lower)[0] == 494.0
