"""Promises of starts: how far p50 and p90 are put off is learned from how they were kept."""

from __future__ import annotations

from math import exp, inf, log
from random import Random
from typing import Any

import pytest

from scheduler.explain.whatif.forecasts import SOON_S, StartForecast
from scheduler.service.log.store.store import Store
from scheduler.slurm.follow.promises import BEGIN, LEAST, MOST, Promises
from scheduler.slurm.read.parse import SlurmJob
from tests.scheduler.slurm.follow.test_follow import EVERYTHING, Scene

NOW = 1_790_000_000.0


def job(number: int, state: str = "PENDING", start: float | None = None, **more: Any) -> SlurmJob:
    said: dict[str, Any] = {
        "user": "u",
        "name": "a",
        "partition": "p",
        "gpus": 1,
        "priority": 9,
        **more,
    }
    return SlurmJob(str(number), state, start=start, **{"submit": NOW, "eligible": NOW} | said)


def foretold(wait_s: float, at: float = NOW) -> StartForecast:
    starts = tuple(at + wait_s * (0.1 + n / 70) for n in range(64))
    return StartForecast(at, starts[32], at + wait_s, start_p10=at, starts=starts)


def promise(promises: Promises, number: int, p90: float) -> None:
    promises.first({str(number): StartForecast(NOW, NOW + 30, p90)})


@pytest.mark.parametrize("off", [0.7, 1.0, 2.5])
def test_half_and_nine_of_ten_are_kept_in_the_long_run_however_far_futures_are_off(
    off: float,
) -> None:
    """The futures' p90 is right where `off` is 1, and p50 is not: their waits are of an hour."""
    promises, draw, kept, half = Promises(), Random(1), [], []
    for number in range(4000):
        wait_s, now = 3600.0, NOW + number * 1e6
        told = promises.put_off(foretold(wait_s, now))
        promises.first({str(number): told})
        # the futures' p90 is right where `off` is 1: exp(1.28 sigma) over the median
        start = now + wait_s * off * exp(draw.gauss(0.0, 0.5) - 1.28 * 0.5)
        promises.look([job(number, "RUNNING", start)], start)
        assert told.start_p90 is not None
        assert told.start_p50 is not None
        kept.append(start <= told.start_p90)
        half.append(start <= told.start_p50)
    assert sum(kept[1000:]) / 3000 == pytest.approx(0.9, abs=0.02)
    assert promises.late[1] == pytest.approx(log(off), abs=0.25)
    within = LEAST[0] < promises.late[0] < MOST[0]
    assert (abs(sum(half[1000:]) / 3000 - 0.5) < 0.02) is within is (off == 1.0)


def test_a_promise_is_broken_once_its_time_is_over_and_not_again() -> None:
    promises = Promises()
    promises.first({"1": StartForecast(NOW, NOW + 30, NOW + 60)})
    promises.look([job(1)], NOW + 30)
    assert promises.late == BEGIN
    promises.look([job(1)], NOW + 60)
    half = promises.late
    assert (half[0] > BEGIN[0], half[1]) == (True, BEGIN[1])
    promises.look([job(1)], NOW + 61)
    broken = promises.late
    assert (broken[0], broken[1] > BEGIN[1]) == (half[0], True)
    assert promises.first({"1": foretold(60.0)}) == {}
    promises.look([job(1, "RUNNING", NOW + 90)], NOW + 91)
    assert promises.late == broken


def test_a_batch_that_is_late_together_counts_once() -> None:
    one, many = Promises(), Promises()
    for count, promises in ((1, one), (50, many)):
        for number in range(count):
            promise(promises, number, NOW + 60)
        promises.look([job(number) for number in range(count)], NOW + 61)
    assert one.late == many.late


@pytest.mark.parametrize(
    "change",
    [
        {"eligible": NOW + 86_400, "reason": "BeginTime"},
        {"dependency": "afterany:9"},
        {"nice": 10_000},
        {"time_limit_s": 864_000.0},
        {"qos": "idle"},
        {"features": "none"},
        {"deadline": NOW + 3600.0},
        {"priority": 0},
        {"state": "CANCELLED"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_of_jobs_that_are_put_off_asked_for_otherwise_or_left_nothing_is_learned(
    change: dict[str, Any],
) -> None:
    """Thirty that never ran had everybody's p90 told three times as late."""
    promises = Promises()
    for number in range(30):
        promises.look([job(number)], NOW)
        promise(promises, number, NOW + 60)
        promises.look([job(number)], NOW + 1)
        promises.look([job(number, **change)], NOW + 61)
        promises.look([job(number)], NOW + 90)
    assert promises.late == BEGIN


def test_of_one_that_another_let_go_it_is_learned_when_it_starts() -> None:
    promises = Promises()
    promises.look([job(1, dependency="afterok:9", eligible=None)], NOW)
    promise(promises, 1, NOW + 60)
    promises.look([job(1, eligible=NOW + 30)], NOW + 31)
    promises.look([job(1, eligible=NOW + 30)], NOW + 61)
    assert promises.late[1] > BEGIN[1]


def test_it_stays_between_bounds_and_no_p90_comes_before_p50() -> None:
    made = foretold(600.0)
    for stretch, bound in ((99.0, MOST), (-99.0, LEAST)):
        promises = Promises((stretch, stretch))
        assert promises.late == bound
        told = promises.put_off(made)
        assert told.start_p90 is not None
        assert told.start_p50 is not None
        assert told.start_p90 >= told.start_p50
        if stretch > 0:
            assert told.start_p90 - NOW == pytest.approx((600 + SOON_S) * exp(MOST[1]) - SOON_S)
    assert Promises().put_off(StartForecast(NOW, why_not="held")).start_p90 is None
    starts = (NOW + 10, NOW + 30, NOW + 50, inf, inf)
    never = StartForecast(NOW, NOW + 30, NOW + 60, NOW + 500, NOW + 510, starts=starts)
    later = Promises((0.8, 0.0)).put_off(never)
    assert (later.start_p50, later.end_p50, later.end_p90) == (NOW + 50, NOW + 520, NOW + 520)


def test_a_promise_that_was_kept_is_not_kept_again_after_a_restart(store: Store) -> None:
    scene = Scene(store, order=False)
    runs = scene.job(7, "RUNNING", start=scene.now, time_limit_s=36_000.0, **EVERYTHING)
    scene.look(runs, scene.job(5, reason="Resources", time_limit_s=600.0))
    began = scene.job(5, "RUNNING", start=scene.now + 1.0, **EVERYTHING)
    scene.look(began)
    kept = scene.follower._promises.late
    assert kept[0] < BEGIN[0]
    assert kept[1] < BEGIN[1]
    scene.restart()
    scene.look(began)
    assert scene.follower._promises.late == pytest.approx(kept, abs=1e-4)


def test_promises_are_written_judged_and_go_on_after_a_restart(store: Store) -> None:
    scene = Scene(store, order=False)
    runs = scene.job(7, "RUNNING", start=scene.now, time_limit_s=3600.0, **EVERYTHING)
    waits = scene.job(5, reason="Resources", time_limit_s=600.0)
    scene.look(runs, waits)
    queries = scene.pages()
    promised = queries.forecast("5", "submission")
    assert promised is not None
    assert promised.start_p90 is not None
    known = scene.follower._promises._promised
    scene.restart()
    assert scene.follower._promises._promised == known
    scene.look(runs, waits)
    assert queries.forecast("5", "submission") == promised
    scene.look(runs, waits, after_s=promised.start_p90 - scene.now + 1.0)
    late = scene.follower._promises.late
    assert late[1] > BEGIN[1]
    scene.restart()
    scene.look(runs, waits)
    assert scene.follower._promises.late == pytest.approx(late, abs=1e-4), "once, for good"
    began = scene.now
    scene.look(scene.job(5, "RUNNING", start=began, **EVERYTHING))
    found = queries.calibration()
    assert (found.jobs, found.start_p90) == (1, 0.0)
    scene.restart()
    assert scene.follower._promises.late == pytest.approx(late, abs=1e-4)
