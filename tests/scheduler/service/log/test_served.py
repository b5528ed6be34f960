"""Which models decided how many jobs, week by week, and how that turned out."""

from __future__ import annotations

from math import exp, inf, log1p
from pathlib import Path

import pytest

from scheduler.service.log.served import (
    FOLDER,
    KEPT,
    SETTLED_S,
    WARNED,
    WEEK_S,
    Served,
    _scores,
    count,
    counted,
    weeks,
)
from scheduler.service.log.store.store import Store
from tests.scheduler.service.desk import Desk, lasting
from tests.scheduler.service.log.test_watch_models import RIGHT, WRONG, believing, promote, work


@pytest.fixture
def desk(store: Store, tmp_path: Path) -> Desk:
    return Desk(store, tmp_path, policy="pellucid", champion=tmp_path / "champion")


def numbers(week: list[Served]) -> list[tuple[str, int, int, int]]:
    return [(one.digest, one.decided, one.ended, one.users) for one in week]


def test_each_week_says_who_decided_and_how_it_turned_out(desk: Desk, tmp_path: Path) -> None:
    count(desk.store, tmp_path, desk.world.now())
    assert [week.bundles for week in weeks(tmp_path)] == [()], "nothing was decided with models yet"
    wrong = promote(desk, believing(WRONG))
    work(desk, 8, "before")
    first = int(desk.world.now() // WEEK_S)
    right = promote(desk, believing(RIGHT))
    work(desk, 16, "then")
    assert int(desk.world.now() // WEEK_S) == first
    count(desk.store, tmp_path, desk.world.now())
    [week] = weeks(tmp_path)
    assert (week.number, week.words) == (first, "until now")
    assert numbers(list(week.bundles)) == [(right, 16, 16, 8), (wrong, 8, 8, 8)]
    better, worse = week.bundles
    assert better.error is not None
    assert worse.error is not None
    assert better.error < 0.6 < 4.0 < worse.error
    assert (better.twice, worse.twice) == (1.0, 0.0)
    assert worse.ratio is not None
    assert worse.ratio < exp(log1p(60.0) - WRONG) * 2.0
    desk.turn((first + 1) * WEEK_S - desk.world.now() + 10.0)
    work(desk, 8, "later")
    count(desk.store, tmp_path, desk.world.now())
    assert [week.words for week in weeks(tmp_path)] == ["until now", "not settled yet"]
    assert not any(week.whole for week in weeks(tmp_path)), "ends may come late"
    count(desk.store, tmp_path, (first + 1) * WEEK_S + SETTLED_S)
    now, before = weeks(tmp_path)
    assert (now.number, now.whole, before.number, before.whole) == (first + 1, False, first, True)
    assert numbers(list(now.bundles)) == [(right, 8, 8, 8)]
    assert before.bundles == week.bundles
    assert (now.words, before.words) == ("until now", "")


def test_a_job_that_ends_in_another_week_counts_there(desk: Desk, tmp_path: Path) -> None:
    digest = promote(desk, believing(RIGHT))
    week = int(desk.world.now() // WEEK_S)
    desk.turn((week + 1) * WEEK_S - desk.world.now() - 20.0)
    desk.submit("late", owner="ann")
    desk.turn(1.0)
    desk.until_idle()
    assert int(desk.world.now() // WEEK_S) == week + 1
    with desk.store.reading() as connection:
        [came] = counted(connection, week, now=inf).bundles
        [over] = counted(connection, week + 1, now=0.0).bundles
    assert (came.digest, came.decided, came.ended, came.error) == (digest, 1, 0, None)
    assert (over.digest, over.decided, over.ended, over.users) == (digest, 0, 1, 1)


def test_two_months_are_counted_and_what_cannot_be_read_is_counted_again(
    desk: Desk, tmp_path: Path
) -> None:
    promote(desk, believing(RIGHT))
    work(desk, 8, "job")
    week = int(desk.world.now() // WEEK_S)
    late = desk.world.now() + 30 * WEEK_S
    count(desk.store, tmp_path, late)
    assert [one.number for one in weeks(tmp_path)] == list(range(week + 30, week + 30 - KEPT, -1))
    (tmp_path / FOLDER / f"{week + 29}.json").write_text("{")
    assert len(weeks(tmp_path)) == KEPT - 1
    another = (tmp_path / FOLDER / f"{week + 28}.json").read_text()
    (tmp_path / FOLDER / f"{week + 29}.json").write_text(another)
    assert len(weeks(tmp_path)) == KEPT - 1, "a week is in the file of its number alone"
    count(desk.store, tmp_path, late)
    assert len(weeks(tmp_path)) == KEPT


def test_jobs_over_six_hours_are_counted_by_whether_they_were_announced(
    store: Store, tmp_path: Path
) -> None:
    """Of who always runs so long the next is announced, and wrongly once it is short; of somebody
    new it is not."""
    names = [f"long{i}" for i in range(4)]
    outcomes = {name: lasting(30_000.0) for name in names}
    desk = Desk(store, tmp_path, outcomes, policy="pellucid")
    for name in (*names, "short"):
        desk.submit(name, owner="ann")
        desk.turn(1.0)
        desk.until_idle()
    week = int(desk.world.now() // WEEK_S)
    with store.reading() as connection:
        found = [one for n in (week - 1, week) for one in counted(connection, n, now=inf).bundles]
        scores = _scores(connection, [*names, "short"])
    announced = [name for name in names if (scores[name].chance or 0.0) >= WARNED]
    assert 0 < len(announced) < len(names)
    assert sum(one.long for one in found) == len(names)
    assert sum(one.found for one in found) == len(announced)
    assert sum(one.warned for one in found) == len(announced) + 1
    assert Served(digest="", long=4, warned=4, found=3).announced == "3 of 4, 1 wrongly"
    assert Served(digest="").announced == ""
