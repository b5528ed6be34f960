"""What is offered says what starts, at which speed and when it ends; what costs comes last."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from scheduler.core.curves import Predicted
from scheduler.core.durations import DurationDistribution
from scheduler.core.profiling import WaitingStage
from scheduler.core.tree_steps import assumed_step
from scheduler.explain.claims import Kind, of_offer
from scheduler.explain.effect import ExpectedTimes, WhatIfAnswer
from scheduler.explain.render import offer_words
from scheduler.explain.whatif.changes import Change
from scheduler.explain.whatif.counterfactuals import (
    Outcome,
    WhatIf,
    _at_most,
    _company,
    _guessed,
    _stopped_at,
    answer_of,
)
from scheduler.explain.whatif.forecasts import Futures, StartForecast
from scheduler.explain.whatif.memory import Memory
from scheduler.testing.builders import Desk, Likes, Sample, a_job, cluster_of, pellucid
from tests.scheduler.explain.test_forecast import Sure


def test_a_start_beside_another_names_its_speed_and_when_it_ends() -> None:
    desk = Desk(pellucid(Likes(speeds={("b", "a"): (0.6, 0.9)})), cluster_of())
    memory = desk.core.estimator = Memory(desk.estimator, durations=Sure())
    desk.submit(a_job("a", gpus=8))
    desk.core.jobs["a"].profile = a_job().work.profile
    sample = a_job("b", gpus=8, at=1.0)
    desk.submit(replace(sample, job=replace(sample.job, share=False)), now=1.0)
    desk.core.jobs["b"].profile = sample.work.profile
    asking = WhatIf(Futures(desk.core, memory, 10.0), samples=9)
    (offer, *_) = asking.suggestions("b")
    assert offer.change == Change({"share": True})
    assert (offer.starts_now, offer.beside, offer.speed) == (True, True, 0.6)
    assert offer.then.end_p50 == pytest.approx(10.0 + 600.0 / 0.6, abs=1.0)
    told = answer_of(offer, "b", "user")
    assert "at once beside another job, at 60% of its speed alone; ends about" in told.contract(
        10.0
    )
    start = asking.start("b", offer.change)
    assert start is not None
    assert not _guessed(start)
    for of_owner in (True, False):
        assumed = assumed_step(of_owner=of_owner)
        assert _guessed(replace(start, tree_path=("x", f"partner: {assumed}")))


def test_what_ends_later_is_offered_last_and_with_its_price() -> None:
    desk = Desk(pellucid(), cluster_of(nodes={"vc": 1, "other": 1}))
    memory = desk.core.estimator = Memory(desk.estimator, durations=Sure())
    desk.submit(a_job("a", gpus=6), a_job("b", gpus=8, at=1.0))

    def shown(job_id: str, made: StartForecast) -> StartForecast:
        return StartForecast(made.made_at, 600.0, 600.0, 1200.0, 1200.0)

    asking = WhatIf(Futures(desk.core, memory, 10.0), samples=9, as_shown=shown)
    free, dear = asking.suggestions("b", ["other"])
    assert (free.change, free.costs) == (Change({"vc": "other"}), False)
    assert free.costs_s == pytest.approx(-590.0, abs=1.0)
    assert (dear.change, dear.costs) == (Change({"gpus": 2}), True)
    assert dear.costs_s == pytest.approx(10.0 + 4 * 600.0 - 1200.0, abs=2.0)
    assert dear.assumed == ("its work is the same: it takes 4 times as long",)


@pytest.mark.parametrize(("gpus", "profiled"), [(2, True), (4, False)])
def test_nobody_is_offered_a_profile_who_does_not_fit_the_partition(
    gpus: int, profiled: bool
) -> None:
    cluster = cluster_of(nodes=2, profiling=1)
    stage = WaitingStage(limit_s=200.0, max_gpus=2)
    desk = Desk(pellucid(), cluster, stage=stage)
    memory = desk.core.estimator = Memory(desk.estimator, durations=Sure())
    desk.submit(a_job("a", gpus=8))
    sample = a_job("b", gpus=gpus)
    desk.submit(replace(sample, job=replace(sample.job, profile=False)), now=1.0)
    asking = WhatIf(Futures(desk.core, memory, 10.0), samples=9)
    assert asking._is_profiled(sample.job) is profiled


def taken(offer: WhatIfAnswer) -> WhatIfAnswer:
    return replace(offer, changes={"share": True})


def test_the_words_of_an_offer_name_what_is_known_of_it() -> None:
    then = ExpectedTimes(start_p50=0.0, end_p50=7200.0)
    offer = WhatIfAnswer("j", {}, then=then, words="with 2 GPUs", starts_now=True, speed=1.0)
    assert offer.contract(0.0).startswith("at once on GPUs of its own; ends about")
    assert (
        replace(offer, costs_s=3600.0).contract(0.0).endswith(", 1 h later than without the change")
    )
    later = replace(offer, starts_now=False, speed=None, gain_s=600.0, then=None)
    assert later.contract(0.0) == "10 min earlier; when it ends is not known"
    when = ExpectedTimes(start_p50=60.0, start_p90=120.0, end_p50=7200.0)
    alone = replace(later, speed=1.0, then=when, costs_s=-3600.0, assumed=["it does as much"])
    words = alone.contract(0.0)
    assert words.startswith("10 min earlier, about ")
    assert "nine times in ten), on GPUs of its own; ends about " in words
    assert words.endswith(", 1 h sooner than without the change (if it does as much)")
    beside = replace(later, beside=True, speed=0.58).contract(0.0)
    assert beside.startswith("10 min earlier beside another job, at 58% of its speed alone")
    unknown = replace(offer, beside=True, speed=None, then=None).contract(0.0)
    assert unknown.startswith("at once beside another job, at an unknown speed")
    for dear in (replace(offer, changes={"gpus": 2}), replace(offer, beside=True)):
        assert dear.contract(0.0).endswith("; its end without the change is not known yet")
        assert "not known" not in replace(dear, costs_s=0.0).contract(0.0)
    assert "not known" not in offer.contract(0.0)
    usual = replace(offer, beside=True, speed=0.7, guessed=True)
    assert "at 70% of its speed alone if both run as such jobs usually do;" in usual.contract(0.0)
    assert Kind.OFFER_SPEED not in {one.kind for one in of_offer(taken(usual), 0.0)}
    known = {one.kind for one in of_offer(taken(replace(usual, guessed=False)), 0.0)}
    assert Kind.OFFER_SPEED in known
    late = replace(then, end_p90=9000.0)
    assert " nine times in ten)" in replace(offer, then=late).contract(0.0)
    recorded = offer_words(replace(offer, held=31, judged=33), 0.0)
    assert "(31 of 33 such suggestions came true)" in recorded


def test_an_offer_for_later_names_the_speed_that_its_futures_have() -> None:
    desk = Desk(pellucid(Likes(speeds={("b", "a"): (0.6, 0.9)})), cluster_of())
    memory = desk.core.estimator = Memory(desk.estimator, durations=Sure())
    desk.submit(a_job("a", gpus=8))
    desk.core.jobs["a"].profile = a_job().work.profile
    sample = a_job("b", gpus=8, at=1.0)
    desk.submit(replace(sample, job=replace(sample.job, share=False)), now=1.0)
    desk.core.jobs["b"].profile = sample.work.profile
    asking = WhatIf(Futures(desk.core, memory, 10.0), samples=9)
    alone = asking.ask("b", Change({"time_limit_s": 3600.0}))
    assert (alone.starts_now, alone.beside, alone.speed) == (False, False, 1.0)
    worlds = [{"c": (20.0, 90.0, True, 0.6)}] * 5 + [{"c": (50.0, 90.0, False, None)}] * 4
    assert _company(None, worlds, "c") == (True, 0.6)
    assert _company(None, worlds[:1] + worlds[5:], "c") == (False, 1.0)
    assert _company(None, [{"c": (inf, inf, False, None)}], "c") == (False, None)


def limited(job_id: str, gpus: int, limit_s: float | None) -> Sample:
    sample = a_job(job_id, gpus=gpus, at=1.0)
    return replace(sample, job=replace(sample.job, time_limit_s=limit_s, share=False))


def waiting(limit_s: float | None, durations: DurationDistribution | None = None) -> WhatIf:
    """Return the questions of a desk where b, of 8 GPUs, waits: a shares at 60 % of its speed,
    2 GPUs are free, and so is all of another virtual cluster. Each job is to last 600 s."""
    likes = Likes(speeds={("b", "a"): (0.6, 0.9)})
    desk = Desk(pellucid(likes), cluster_of(nodes={"vc": 2, "other": 1}))
    durations = Sure() if durations is None else durations
    memory = desk.core.estimator = Memory(desk.estimator, durations=durations)
    if isinstance(durations, Lifted):
        desk.core.policy.distribution = durations
    desk.submit(a_job("a", gpus=8), a_job("c", gpus=6))
    desk.core.jobs["a"].profile = a_job().work.profile
    desk.submit(limited("b", 8, limit_s), now=1.0)
    desk.core.jobs["b"].profile = a_job().work.profile
    return WhatIf(Futures(desk.core, memory, 10.0), samples=9)


@pytest.mark.parametrize(
    ("to", "limit_s", "stopped"),
    [
        ({"gpus": 2}, 2000.0, True),  # it takes 2,400 s there
        ({"gpus": 2}, 2500.0, False),
        ({"gpus": 2}, None, False),
        ({"share": True}, 900.0, True),  # 1,000 s at 60 % of its speed
        ({"share": True}, 1100.0, False),
        ({"share": True}, 500.0, False),  # as it is, on GPUs of its own, too
        ({"time_limit_s": 300.0}, 3600.0, True),
        ({"time_limit_s": 300.0}, None, True),
        ({"time_limit_s": 900.0}, 3600.0, False),
        ({"vc": "other"}, 700.0, False),
        ({"vc": "other"}, 300.0, False),  # as it is, too
    ],
)
def test_what_the_time_limit_would_stop_is_no_offer_and_has_no_end(
    to: dict[str, object], limit_s: float | None, stopped: bool
) -> None:
    asking, change = waiting(limit_s), Change(to)
    found = asking.ask("b", change)
    assert found.stopped is stopped
    offers = [one.change for one in asking.suggestions("b", ["other"], most=9)]
    if stopped:
        assert change not in offers
        assert not found.helps
        assert found.costs_s is None
    elif found.starts_now:
        assert change in offers
    told = answer_of(found, "b", "user").contract(10.0)
    assert ("its time limit would stop it about" in told) is stopped
    assert ("; ends about" in told) is not stopped


def test_what_its_time_limit_would_stop_ends_so_long_after_its_start() -> None:
    """It ends with that limit, and not when its work would be done."""
    found = waiting(None).ask("b", Change({"time_limit_s": 300.0}))
    assert found.stopped
    assert found.then.start_p50 is not None
    assert found.then.start_p90 is not None
    assert found.then.end_p50 == found.then.start_p50 + 300.0
    assert found.then.end_p90 == found.then.start_p90 + 300.0
    untold = StartForecast(0.0)  # nobody knows when it starts, nor when it ends
    assert _stopped_at(untold, 300.0) == untold
    assert _stopped_at(replace(untold, start_p50=60.0), None).end_p50 is None, "without a limit"
    late = _stopped_at(replace(untold, start_p50=60.0), 300.0)
    assert (late.end_p50, late.end_p90) == (360.0, None), "its late start is not known"


class Lifted(Sure):
    """Durations of which few long ones lift the mean: the median is a twelfth of it."""

    def quantiles(
        self,
        predicted_s: float | None,
        elapsed_s: float = 0.0,
        limit_s: float | None = None,
        points: int | None = None,
    ) -> list[float]:
        assert predicted_s is not None
        return [min(max(predicted_s / 12, elapsed_s), limit_s or inf)]


@pytest.mark.parametrize(  # at even odds its work takes 200 s, from 10 s on
    ("limit_s", "stopped", "end"), [(600.0, False, 210.0), (180.0, True, 190.0)]
)
def test_a_limit_stops_what_its_forecast_end_says_it_stops(
    limit_s: float, stopped: bool, end: float
) -> None:
    asking = waiting(limit_s, Lifted())
    found = asking.ask("b", Change({"gpus": 2}))
    assert found.starts_now
    assert found.then.end_p50 == pytest.approx(end, rel=0.1 if not stopped else 1e-9)
    assert found.stopped is stopped


def test_a_share_whose_end_is_not_known_is_no_offer_for_nothing() -> None:
    nothing = StartForecast(0.0)
    offer = Outcome(Change({"share": True}), nothing, nothing, True, None, 0, 0, beside=True)
    assert offer.costs
    assert not replace(offer, beside=False).costs
    assert not replace(offer, costs_s=-5.0).costs


def test_a_curve_ends_at_a_limit_that_is_asked_for() -> None:
    believed = Predicted(seconds=600.0, ended=(0.0, 1.0), most_s=7200.0)
    for limit_s, seconds in ((60.0, 60.0), (3600.0, 600.0)):
        found = _at_most(believed, limit_s)
        assert isinstance(found, Predicted)
        assert (found.seconds, found.most_s) == (seconds, limit_s)
    assert _at_most(believed, 9000.0) is believed
    assert _at_most(600.0, 60.0) == 60.0
