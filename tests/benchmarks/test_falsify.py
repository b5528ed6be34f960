"""Falsified parts say otherwise, and what gets worse is told from chance."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from benchmarks import falsify
from benchmarks.drift import BUGS, changed_groups
from benchmarks.falsify import (
    PARTS,
    Foretold,
    LevelState,
    falsified,
    forecasts_of,
    foretold,
    loss,
    verdict,
    world,
)
from benchmarks.falsify_trace import Inputs
from benchmarks.falsify_trace import falsified as falsified_of
from features.job import Job
from features.lifetimes import lifetimes
from features.replay import Lifetime
from features.state import FeatureState
from pipeline.traces.synthetic.generate import default_config, generate
from tests.features.test_watch import MONDAY, day_of

JOBS = 60


@pytest.mark.parametrize("part", ["durations", "template", "hazards"])
@pytest.mark.parametrize("how", ["constant", "shuffled"])
def test_a_falsified_part_believes_otherwise(part: str, how: str) -> None:
    true, false = (falsified(part, one, 0, JOBS) for one in ("", how))
    common = true.pinball.keys() & false.pinball.keys()
    assert common
    assert any(true.pinball[job] != false.pinball[job] for job in common)


def test_nothing_falsified_is_nothing_changed() -> None:
    once, again = (falsified("user", "", 1, JOBS) for _ in range(2))
    assert once == again


def test_a_level_that_is_not_asked_is_the_wider_one() -> None:
    states = FeatureState({"survival"}), LevelState("user", "constant")
    found = []
    for state in states:
        for i in range(6):
            job = Job(str(i), MONDAY + i, 1, user="ada", vc="a", name=f"n{i}")
            state.submit(job, job.submit_time)
        found.append(state.histories(Job("next", MONDAY + 10, 1, user="ada", vc="a"), MONDAY + 10))
    assert [one.level for one in found[0]] == ["all", "vc_gpus", "user", "template"]
    assert [one.level for one in found[1]] == ["all", "vc_gpus", "template"]


def test_worse_is_more_than_chance() -> None:
    assert verdict([1.0, 1.1, 0.9, 1.0])["verdict"] == "worse"
    assert verdict([-1.0, -1.1, -0.9])["verdict"] == "better"
    assert verdict([1.0, -1.0, 0.5])["verdict"] == "no more than chance"
    assert verdict([5.0])["verdict"] == "no more than chance"
    assert loss(0.9, 10.0, 100.0) > loss(0.9, 100.0, 10.0) > 0.0
    assert set(PARTS) >= {"durations", "user", "speeds", "scores", "arrivals"}


def test_starts_are_forecast_while_jobs_still_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the last submission nobody comes: to expect nobody would be right there for nothing."""
    for name, value in {"APART_S": 4 * 3600.0, "HORIZON_S": 12 * 3600.0, "SAMPLES": 10}.items():
        monkeypatch.setattr(falsify, name, value)
    submitted = [job.submit_time for job in world(0, 700).workload.jobs]
    found = foretold(0, 700)
    assert set(found) == {"", "constant", "shuffled", "known"}
    moments = {now for now, _ in found[""]}
    assert moments
    assert min(moments) >= submitted[0] + 86_400.0
    assert max(moments) <= submitted[-1] - 12 * 3600.0
    assert all(found[how].keys() == found[""].keys() for how in found)
    every = [one for of in found.values() for one in of.values()]
    assert all(0.0 <= at <= 12 * 3600.0 for one in every for at in (*one.waits_s, one.waited_s))
    assert found["constant"] != found[""]
    told = forecasts_of([found], "constant")
    assert told["forecasts"] == len(found[""])
    assert told["start forecasts"]["more"] != 0.0


def test_a_wait_counts_as_long_as_what_comes_is_known() -> None:
    end = falsify.HORIZON_S
    late = Foretold((60.0, 3600.0, end), end)
    assert [late.held(level) for level in range(3)] == [False, False, True]
    assert late.loss > Foretold((60.0, end, end), end).loss
    assert Foretold((7200.0,) * 3, 7200.0).loss == 0.0


def test_a_planted_bug_changes_what_it_is_named_for() -> None:
    jobs = day_of(0, Random(0))
    for bug in BUGS:
        changed = [bug.change(job, "speech", Random(1)) for job in jobs]
        groups = changed_groups(jobs, changed)
        assert groups, bug.name
        if "one VC" in bug.name:
            assert "virtual cluster speech" in groups
            assert "virtual cluster vision" not in groups


@pytest.fixture(scope="module")
def traced() -> tuple[list[Lifetime], Inputs]:
    """Two hundred jobs of the demo, and what is believed of them."""
    lives, _ = lifetimes(generate(default_config(seed=7)).slice(0, 200))
    return lives, Inputs.of(lives)


@pytest.mark.parametrize("how", ["constant", "shuffled"])
def test_a_part_of_a_trace_s_predictions_believes_otherwise(
    traced: tuple[list[Lifetime], Inputs], how: str
) -> None:
    lives, true = traced
    everything = np.ones(len(true.rows), dtype=bool)
    before = true.losses(everything)
    assert np.isfinite(before[:, 0]).all()
    assert np.isnan(before[true.rows.y <= 200.0, 1]).all(), "who has ended is not asked after"
    assert np.array_equal(before, true.losses(everything), equal_nan=True)
    for part in ("durations", "user", "template", "claims", "hazards", "ratios"):
        off = falsified_of(true, lives, part, how).losses(everything)[:, 0] - before[:, 0]
        assert (off != 0).any(), part
    assert np.nanmean(falsified_of(true, lives, "durations", how).losses(everything) - before) > 0
    some = np.arange(len(true.rows)) % 5 == 0
    few = true.losses(some)
    assert np.array_equal(few[some], before[some], equal_nan=True), "all are learned from"
    assert np.isnan(few[~some]).all()
