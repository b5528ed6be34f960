"""Worse models are left for the former ones; a shadow predicts, and decides nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from features.spec import FeatureSpec
from models.bundle import AdditiveModel, Axis, Bundle
from models.bundle.doubts import DOUBTS_NAME, read_doubts, write_doubts
from scheduler.backends.events import Kind
from scheduler.service.log.audit import audit
from scheduler.service.log.beside import (
    Began,
    as_of,
    began_with,
    beside,
    ended_with,
    in_order,
    standing,
)
from scheduler.service.log.store.store import Store
from scheduler.service.log.watch_models import FIRST, due, look
from scheduler.service.metrics import Metrics
from tests.scheduler.service.desk import Desk, lasting
from tests.scheduler.service.pages.bundle import small_bundle

RIGHT, LONG, WRONG = 4.1, 6.4, 8.7  # ln(1 + a minute), ln(1 + ten), ln(1 + hours)


def believing(value: float) -> Bundle:
    """Durations of about exp(value) seconds."""
    small = small_bundle()
    model = AdditiveModel(small.duration.axes, small.duration.terms, value)
    return Bundle(duration=model, packing=small.packing, pair_speed=small.pair_speed)


@pytest.fixture
def desk(store: Store, tmp_path: Path) -> Desk:
    return Desk(store, tmp_path, policy="pellucid", champion=tmp_path / "champion")


def promote(desk: Desk, bundle: Bundle, doubts: Sequence[str] = ()) -> str:
    assert desk.champion is not None
    write_doubts(desk.champion, bundle.digest, doubts)
    bundle.save(desk.champion)
    desk.turn()
    assert desk.decider.state.bundle == bundle.digest
    return bundle.digest


def work(desk: Desk, jobs: int, name: str) -> None:
    """Jobs of a minute, of eight people."""
    for i in range(jobs):
        desk.submit(f"{name}-{i}", owner=f"user{i % 8}")
        if i % 8 == 7:
            desk.turn(100.0)
    desk.until_idle()


def test_worse_models_are_left_and_stay_so_after_a_restart(desk: Desk) -> None:
    right = promote(desk, believing(RIGHT))
    work(desk, 16, "before")
    assert look(desk.store, desk.bundle_store, desk.world.now()) is None, "nobody came before"
    wrong = promote(desk, believing(WRONG))
    work(desk, FIRST - 1, "few")
    assert look(desk.store, desk.bundle_store, desk.world.now()) is None
    work(desk, 1, "enough")
    found = look(desk.store, desk.bundle_store, desk.world.now())
    assert found is not None
    assert (found.verdict, found.jobs, found.users) == ("better", FIRST, 8)
    desk.turn()
    assert desk.decider.state.bundle == right
    [notice] = desk.store.read(kinds=[Kind.BUNDLE_RETURNED])
    assert (notice.body["from"], notice.body["to"]) == (wrong, right)
    assert "worse beyond chance on 100 jobs of 8 users" in notice.body["why"]
    assert look(desk.store, desk.bundle_store, desk.world.now()) is None, "it went back already"
    for _ in range(2):  # the folder holds them still
        desk.restart()
        desk.turn()
        desk.turn()
        assert desk.decider.state.bundle == right
    refused = desk.store.read(kinds=[Kind.BUNDLE_REFUSED])
    assert "was worse than the one before, which decides again" in refused[0].body["why"]
    shown = Metrics(desk.store).exposition()[0].decode()
    assert 'pellucid_events_total{kind="bundle_returned"} 1.0' in shown
    assert audit(desk.store, desk.bundle_store.find, decide_again=True).clean
    better = promote(desk, believing(RIGHT + 0.01))
    assert better not in (right, wrong), "another one is taken"


@pytest.mark.parametrize(
    ("doubts", "first", "second", "stays"),
    [
        ([], LONG, RIGHT, True),
        (["pinball of ln .5, the champion's .4"], LONG, RIGHT, True),
        (["pinball of ln .5, the champion's .4"], RIGHT, LONG, False),
        ([], RIGHT, LONG, True),
    ],
)
def test_models_judged_worse_before_are_left_once_they_are_behind(
    store: Store,
    tmp_path: Path,
    doubts: list[str],
    first: float,
    second: float,
    stays: bool,
) -> None:
    """Five people's jobs last a minute, three people's ten: no model is better beyond chance."""
    lasts = {i: lasting(60.0 if i % 8 < 5 else 600.0) for i in range(8)}
    desk = Desk(
        store, tmp_path, lambda launch: lasts[int(launch.job_id.split("-")[1]) % 8],
        policy="pellucid", champion=tmp_path / "champion",
    )  # fmt: skip
    former, present = promote(desk, believing(first)), promote(desk, believing(second), doubts)
    work(desk, FIRST + 20, "job")
    found = look(desk.store, desk.bundle_store, desk.world.now())
    assert found is not None
    assert found.verdict == "as good"
    desk.turn()
    assert desk.decider.state.bundle == (present if stays else former)
    notices = [event.body["why"] for event in desk.store.read(kinds=[Kind.BUNDLE_RETURNED])]
    assert len(notices) == (0 if stays else 1)
    for why in notices:
        assert why.startswith(f"judged worse before its promotion ({doubts[0]}), and no better on ")


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"bundle": "x"}', '{"bundle": "x", "worse": 3}', "[" * 10_000, None]
)
def test_doubts_that_cannot_be_read_are_none(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / DOUBTS_NAME).write_text(text)
    assert read_doubts(tmp_path, "x") == []


def test_doubts_are_of_one_bundle_and_short(tmp_path: Path) -> None:
    write_doubts(tmp_path, "x", ["a" * 1000] * 100)
    assert read_doubts(tmp_path, "y") == []
    assert read_doubts(tmp_path, "x") == ["a" * 300] * 20


def test_better_models_stay(desk: Desk) -> None:
    promote(desk, believing(WRONG))
    right = promote(desk, believing(RIGHT))
    work(desk, FIRST + 20, "job")
    found = look(desk.store, desk.bundle_store, desk.world.now())
    assert found is not None
    assert (found.verdict, found.jobs) == ("worse", FIRST)
    desk.turn()
    assert desk.decider.state.bundle == right
    assert desk.store.read(kinds=[Kind.BUNDLE_RETURNED]) == []


def test_one_that_nobody_watches_is_taken_again(desk: Desk) -> None:
    promote(desk, believing(RIGHT))
    wrong = promote(desk, believing(WRONG))
    work(desk, FIRST, "job")
    look(desk.store, desk.bundle_store, desk.world.now())
    desk.turn()
    desk.wall += 60.0
    desk.decider = desk.another("careless")
    desk.decider.watches = False
    assert desk.decider.take_over()
    desk.turn()
    desk.turn()
    assert desk.decider.state.bundle == wrong


def test_it_is_looked_at_each_time_there_are_half_as_many_again() -> None:
    assert [due(n) for n in (99, 100, 149, 150, 224, 225, 10_000)] == [
        None, 100, 100, 150, 150, 225, 2563,
    ]  # fmt: skip


def test_a_shadow_predicts_beside_and_decides_nothing(desk: Desk, tmp_path: Path) -> None:
    wrong = promote(desk, believing(WRONG))
    shadow = tmp_path / "shadow"
    copies = desk.bundle_store.folder
    believing(RIGHT).save(shadow)
    work(desk, 40, "few")
    with desk.store.reading() as connection:
        [few] = standing(connection, copies, shadow).beside
        assert (few.role, few.verdict, few.jobs) == ("shadow", "too few", 40)
    work(desk, 40, "more")
    with desk.store.reading() as connection:
        found = standing(connection, copies, shadow)
        [one] = found.beside
        assert (found.in_use, one.verdict, one.jobs) == (wrong, "better", 80)
        assert one.error is not None
        assert one.error_in_use is not None
        assert one.error < 0.6 < 4.0 < one.error_in_use
        ended = ended_with(connection, wrong, 0.0)
        assert {one.ran_s for one in ended} == {60.0}
        latest = [one.job_id for _, one in in_order(began_with(connection, wrong, 0.0))][-16:]
        some = began_with(connection, wrong, 0.0, 16)
        assert sorted(one.job_id for one in some) == sorted(latest), "the latest, and no more"
        assert {one.job_id for one in ended_with(connection, wrong, 0.0, 16)} == set(latest)
        assert standing(connection, copies, copies / wrong).beside == ()
        assert standing(connection, copies, None).beside == ()
    assert desk.decider.state.bundle == wrong
    assert {one.body["digest"] for one in desk.store.read(kinds=[Kind.BUNDLE])} == {wrong}


def test_one_of_other_features_says_so(desk: Desk) -> None:
    in_use, odd = believing(WRONG), Axis(FeatureSpec("shoe_size", "continuous", "size"))
    model = in_use.duration
    other = Bundle(duration=AdditiveModel((*model.axes, odd), model.terms, 1.0))
    found = beside("shadow", other, in_use, [])
    assert "wants a feature 'shoe_size' that the one in use does not" in found.words


def test_what_still_runs_counts_so_that_models_are_not_better_the_shorter_they_predict() -> None:
    """Of jobs of a minute and of hours only the short ones have ended soon."""
    small = small_bundle().duration
    inputs = ("1", "5", "V100")
    score = small.score([1.0, 5.0, "V100"]) - small.intercept

    def job(i: int, ran_s: float) -> Began:
        return Began(
            user=f"user{i // 2 % 8}", inputs=inputs, job_id=str(i),
            started=0.0, ended=ran_s, counts=True,
        )  # fmt: skip

    known = [job(i, 60.0 if i % 2 else 36_000.0) for i in range(FIRST * 2)]
    short, right = believing(RIGHT - score), believing(WRONG - score)
    known = [replace(one, ended=(60.0 if i % 2 else 36_000.0) + i) for i, one in enumerate(known)]
    early = as_of(known, FIRST)
    running = [one for one in early if one.running]
    assert (len(early) - len(running), len(running)) == (FIRST, FIRST)
    assert {one.ran_s for one in running} == {60.0 + 2 * FIRST - 1}
    found = beside("former", right, short, early)
    assert (found.jobs, found.running, found.users) == (FIRST, FIRST, 8)
    alone = beside("former", right, short, early[:FIRST])
    assert found.gain is not None
    assert alone.gain is not None
    assert alone.gain < found.gain - 1.0, "those that run speak for the longer one"
    cancelled = [one if i % 2 else replace(one, ended=10.0, counts=False)
                 for i, one in enumerate(known)]  # fmt: skip
    assert len(as_of(cancelled, FIRST)) == FIRST, "one that was cancelled by then says nothing"
