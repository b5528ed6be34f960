"""Starts learned from how those that waited fared."""

from __future__ import annotations

import random
from dataclasses import replace
from math import exp, inf, log

import numpy as np
import pytest

from scheduler.core.estimates import LiveEstimator
from scheduler.explain.whatif.forecasts import CRUDE, Futures, StartForecast, WhyNot, crude
from scheduler.explain.whatif.futures import Beliefs, Draw
from scheduler.explain.whatif.memory import Memory
from scheduler.explain.whatif.waits import PRIOR, Waits, kaplan_meier, not_before
from scheduler.policies.fifo import FifoSkip
from scheduler.testing.builders import Desk, a_job, cluster_of, pellucid


class Line:
    """One GPU, and jobs that run `slow` times as long as predicted, one after the other."""

    def __init__(self, slow: float, jobs: int, ended: int):
        self.desk = Desk(FifoSkip(), cluster_of(nodes=1, gpus=1))
        self.memory = self.desk.core.estimator = Memory(self.desk.core.estimator, asks=True)
        self.waits, self.now = Waits(), 0.0
        self.desk.submit(
            *(a_job(f"j{i}", for_=600.0 * slow, user=f"u{i}") for i in range(jobs)), now=0.0
        )
        for i in range(ended):
            self.waits.look(self.desk.core, self.memory, self.now)
            self.now += 600.0 * slow  # 600 s are predicted
            self.desk.end(f"j{i}", now=self.now)
            self.waits.started(f"j{i + 1}", self.now, self.now)

    def forecast(self, job_id: str, made: StartForecast | None = None) -> StartForecast:
        core = self.desk.core
        alone = made or StartForecast(self.now, why_not=WhyNot.NO_TIME)
        roughly = crude(core, self.memory, self.now)
        return self.waits.corrected(core, {job_id: alone}, roughly, self.now)[job_id]


@pytest.mark.parametrize("slow", [0.25, 4.0])
def test_it_learns_by_how_much_the_crude_rule_is_off(slow: float) -> None:
    line = Line(slow, jobs=200, ended=150)
    rough = crude(line.desk.core, line.memory, line.now)["j199"].start_p50
    made = line.forecast("j199")
    assert rough is not None
    assert made.start_p50 is not None
    assert made.start_p90 is not None
    said, true = made.start_p50 - line.now, (200 - 151) * 600.0 * slow
    assert (made.why_not, made.estimate) == (CRUDE, "crude")
    assert abs(log(said / true)) < min(0.7, abs(log((rough - line.now) / true)))
    assert made.start_p90 > made.start_p50
    assert made.start_p90 - line.now > 0.9 * true


def test_what_is_certain_or_unknown_stays_and_futures_are_mixed_in_between() -> None:
    line = Line(1.0, jobs=60, ended=30)
    sure = StartForecast(line.now, line.now + 5, line.now + 5, samples=9)
    assert line.forecast("j59", sure) == sure
    alone = line.forecast("j59")
    far = StartForecast(line.now, line.now + 1e6, line.now + 2e6, line.now + 3e6, line.now + 4e6, 9)
    both = line.forecast("j59", far)
    assert alone.start_p50 is not None
    assert both.start_p50 is not None
    assert alone.start_p50 < both.start_p50 < line.now + 1e6
    assert both.end_p50 is not None
    assert both.end_p50 - both.start_p50 == pytest.approx(2e6)
    assert both.why_not == ""
    held = StartForecast(line.now, why_not="it is held")
    line.desk.core.waiting.hold("j59", line.now)
    assert line.forecast("j59", held).start_p50 is None


def test_a_crude_start_is_not_before_the_end_that_it_waits_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk = Desk(pellucid(), cluster_of(nodes=8, gpus=8), LiveEstimator())
    memory = desk.core.estimator = Memory(desk.core.estimator)
    desk.submit(a_job("holds", gpus=60), now=0.0)
    desk.submit(a_job("waits", gpus=5, at=300.0), now=300.0)
    rough = crude(desk.core, memory, 300.0)
    short = {"waits": StartForecast(300.0, why_not=WhyNot.NO_TIME)}
    # those that stood there waited for a tenth to a half of what is ahead
    monkeypatch.setattr(Waits, "_levels", lambda *_: (0.1, 0.3, 0.5))
    made = Waits().corrected(desk.core, short, rough, 300.0)["waits"]
    assert made.estimate == "crude"
    assert (made.start_p10, made.start_p50) == rough["waits"].after[:2]
    assert made.start_p90 >= made.start_p50
    desk.submit(a_job("fits", gpus=4, at=300.0), now=300.0)
    desk.submit(a_job("few", gpus=4, at=300.0), now=300.0)  # waits for whichever ends first
    rough = crude(desk.core, memory, 300.0)
    assert rough["few"].after == ()
    made = Waits().corrected(desk.core, {"few": short["waits"]}, rough, 300.0)["few"]
    assert made.start_p50 == pytest.approx(300.0 + 0.3 * (rough["few"].start_p50 - 290.0) - 10.0)


@pytest.mark.parametrize(("start_p50", "p50"), [(20.0, 20.0), (400.0, 300.0)])
def test_the_median_is_that_of_the_end_only_where_nothing_else_is_waited_for(
    start_p50: float, p50: float
) -> None:
    made = StartForecast(0.0, start_p50, 5000.0, samples=9)
    assert not_before((10.0, 20.0, 4000.0), made, (5.0, 300.0, 900.0), 0.0) == (10.0, p50, 4000.0)


@pytest.mark.parametrize("ran_s", [10.0, 300.0, 1200.0])
def test_a_start_that_waits_for_one_end_has_its_median(ran_s: float) -> None:
    """The other holds all GPUs: what is said of its end, of its duration and of the start agree."""
    desk = Desk(pellucid(), cluster_of(nodes=8, gpus=8), LiveEstimator())
    memory = desk.core.estimator = Memory(desk.core.estimator)
    desk.submit(a_job("holds", gpus=64), now=0.0)
    desk.submit(a_job("waits", gpus=64, at=ran_s), now=ran_s)
    futures = Futures(desk.core, memory, ran_s, seed=1)
    rough = crude(desk.core, memory, ran_s)
    end = futures.ends_at(desk.core.cluster.runs["holds"])
    raw = futures.forecast(["waits"])
    made = Waits().corrected(desk.core, raw, rough, ran_s)["waits"]
    assert made.start_p50 == pytest.approx(end)
    assert made.start_p90 is not None
    assert made.start_p90 >= (futures.end_of("holds").end_p90 or 0.0)
    estimate, believed = desk.core.jobs["waits"].estimate_s, desk.core.policy.distribution
    early = replace(raw["waits"], start_p50=ran_s + 0.3 * (end - ran_s))  # by the luck of the draw
    floored = Waits().corrected(desk.core, {"waits": early}, rough, ran_s)["waits"]
    assert (floored.start_p50 or 0.0) >= end - 1e-6
    beside = Waits().corrected(desk.core, {"waits": replace(early, aside=1.0)}, rough, ran_s)
    assert (beside["waits"].start_p50 or inf) < end  # who shares its GPUs waits for no end
    assert estimate is not None
    assert believed is not None
    p50_s = believed.quantile_s(estimate, 0.5)
    described_s = dict(believed.described(estimate))["p50_s"]
    assert described_s == pytest.approx(p50_s, rel=0.06)  # read off fewer points
    if ran_s == 10.0:
        assert end == pytest.approx(p50_s, rel=0.1)  # who runs has outlived a little


def test_before_anything_was_seen_the_crude_rule_is_as_far_off_as_is_believed() -> None:
    p10, p50, p90 = Waits()._levels((0.0, 0.0, 0.0), 0.0)
    assert (p10, p50, p90) == pytest.approx([exp(PRIOR[i]) for i in (0, 4, 8)])


def test_the_same_calls_give_the_same_forecasts_and_who_left_is_no_start() -> None:
    one, other = Line(2.0, jobs=60, ended=40), Line(2.0, jobs=60, ended=40)
    assert one.forecast("j59") == other.forecast("j59")
    learned = one.waits.learned
    one.waits.left("j50", one.now)
    assert one.waits.learned == learned


def test_kaplan_meier_against_quantiles_and_lower_bounds() -> None:
    rng = random.Random(0)
    true = [rng.lognormvariate(0.0, 1.0) for _ in range(4000)]
    ones = np.ones(len(true))
    whole = kaplan_meier(map(log, true), [True] * len(true), ones, (0.5, 0.9))
    assert whole[0] == pytest.approx(0.0, abs=0.06)
    assert whole[1] == pytest.approx(1.0364 + log(0.15 / 0.1), abs=0.06)  # on from the 85 %
    seen = [min(t, rng.lognormvariate(0.5, 1.0)) for t in true]
    over = [s == t for s, t in zip(seen, true, strict=True)]
    assert sum(over) < 3000
    (p50,) = kaplan_meier(map(log, seen), over, ones, (0.5,))
    assert p50 == pytest.approx(0.0, abs=0.1)


@pytest.mark.filterwarnings("error")
def test_what_weighs_nothing_any_more_counts_for_nothing() -> None:
    logs, over = [1.0, 2.0, 3.0], [True, True, True]
    (p50,) = kaplan_meier(logs, over, np.array([1.0, 1.0, 0.0]), (0.5,))
    assert p50 == 1.0


def test_a_few_futures_have_the_quantiles_of_a_duration() -> None:
    beliefs = Beliefs(0.0, {}, {}, (), 0.0, (), user_correlation=0.0)
    even = [float(i) for i in range(1001)]
    jobs = [a_job(f"j{i}").job for i in range(200)]
    drawn = np.array([[Draw(beliefs, 3, n).seconds(job, even) for n in range(16)] for job in jobs])
    own = np.sort(drawn, axis=1)
    # one on either side of the median in each eighth of its distance
    assert (np.abs(own - 500.0).astype(int)[:, 8:] // 62.5 == np.arange(8)).mean() > 0.99
    assert (np.median(drawn, axis=1) == pytest.approx(500.0)) is True
    mutual = np.corrcoef(np.abs(drawn[:, ::2] - 500.0))[np.triu_indices(200, 1)]
    assert mutual.std() == pytest.approx(1 / 7**0.5, abs=0.02)  # as of any two orders of eight
    assert abs(mutual.mean()) < 0.02
    assert np.abs(drawn.mean(axis=0) - 500.0).max() < 80.0
    kin = Beliefs(0.0, {}, {}, (), 0.0, ())  # jobs of one user are alike, and as spread as any
    alike = np.array([[Draw(kin, 3, n).seconds(job, even) for n in range(16)] for job in jobs])
    assert alike.std() == pytest.approx(drawn.std(), rel=0.03)
    # of two futures one is as far below the median as the other above
    assert alike[:, ::2] + alike[:, 1::2] == pytest.approx(np.full((200, 8), 1000.0))
    assert np.corrcoef(alike[:, ::2])[np.triu_indices(200, 1)].mean() > 0.1
