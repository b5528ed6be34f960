"""Which starts a change of a shape moves, in a replay of last week."""

from __future__ import annotations

import re
import sys
from dataclasses import asdict, replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest

from scheduler.assembly import CoreSpec
from scheduler.backends.base import Launch
from scheduler.backends.simulated import JobOutcome
from scheduler.core.cluster import ClusterSpec
from scheduler.service.log.store.store import Store
from scheduler.service.pages import editing, lastweek
from scheduler.service.pages.lastweek import MOVED_S, NoReplay, played_apart, read, starts
from scheduler.service.pages.workbench import Asked
from scheduler.simulation.work import Work
from scheduler.testing.builders import a_job
from tests.scheduler.service.pages.bundle import small_bundle
from tests.scheduler.service.pages.conftest import Lived, begin

SPEC = CoreSpec.of(ClusterSpec({"vision": 1, "speech": 1}, gpus_per_node=4), "pellucid")
# large gangs are believed to be short: they go first
LARGE_FIRST = Asked(feature="gpus", kind="draw", points="4.0::-5", why="a test")
NOTHING = Asked(feature="gpus", kind="clip", low="-20", high="20", why="a test")


@pytest.fixture
def contended(store: Store, tmp_path: Path) -> Lived:
    """One node, all of which is taken while small and large jobs come to wait."""
    lived = begin(store, tmp_path, SPEC)
    truth = {"first": 3000.0, "large": 900.0}
    lived.world._truth = lambda launch: JobOutcome(Work(truth.get(name_of(lived, launch), 600.0)))
    lived.settle(60)
    for name, gpus in (("first", 4), ("small", 2), ("small", 2), ("small", 2), ("large", 4)):
        lived.submit("ada.byron", name=name, gpus=gpus, vc="vision")
        lived.settle(30)
    lived.settle(20_000)
    return lived


def name_of(lived: Lived, launch: Launch) -> str:
    return lived.see("olga").job(launch.job_id).name


def test_a_change_moves_starts_both_ways(contended: Lived) -> None:
    now = contended.world.now()
    found = starts(contended.store, small_bundle(), LARGE_FIRST, now)
    assert (found.jobs, found.whole) == (5, True)
    names = {one.job_id: contended.see("olga").job(one.job_id).name for one in
             (*found.earlier, *found.later)}  # fmt: skip
    assert {names[one.job_id] for one in found.earlier} == {"large"}
    assert {names[one.job_id] for one in found.later} == {"small"}
    assert found.count_earlier == len(found.earlier)
    assert found.count_later == len(found.later)
    assert all(one.later_s <= -MOVED_S for one in found.earlier)
    assert found.wait_s != found.wait_then_s
    assert read(asdict(found)) == found


def test_no_change_moves_nothing(contended: Lived) -> None:
    found = starts(contended.store, small_bundle(), NOTHING, contended.world.now())
    assert (found.count_earlier, found.count_later) == (0, 0)
    assert found.wait_s == found.wait_then_s > 0


def test_what_was_before_the_week_holds_its_gpus_and_is_not_compared(contended: Lived) -> None:
    first = min(contended.see("olga").jobs(limit=10).items, key=lambda job: job.submitted_at)
    inside = first.submitted_at + 5.0
    found = starts(contended.store, small_bundle(), NOTHING, inside + lastweek.WEEK_S)
    assert found.jobs == 4
    assert found.wait_s > 2000, "the first still holds the node"


def test_a_week_that_is_too_long_is_cut_to_its_last_jobs(
    contended: Lived, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lastweek, "MOST", 3)
    found = starts(contended.store, small_bundle(), NOTHING, contended.world.now())
    assert not found.whole
    assert found.jobs == 3


def test_it_is_played_in_another_process_and_one_at_a_time(contended: Lived) -> None:
    store, now = contended.store, contended.world.now()
    folder = contended.settings.state_dir / "bundles" / small_bundle().digest
    apart = played_apart(store, folder, LARGE_FIRST, now)
    assert apart == starts(store, small_bundle(), LARGE_FIRST, now)
    with lastweek._ONE, pytest.raises(NoReplay, match="Another replay runs"):
        played_apart(store, folder, LARGE_FIRST, now)
    with pytest.raises(NoReplay, match=r"no bundle\.json there"):
        played_apart(store, folder.with_name("gone"), LARGE_FIRST, now)
    with pytest.raises(NoReplay, match="from:to:score"):
        played_apart(store, folder, replace(LARGE_FIRST, points="x"), now)
    with pytest.raises(NoReplay, match="No job of last week"):
        starts(store, small_bundle(), LARGE_FIRST, now + 2 * lastweek.WEEK_S)


def test_a_replay_gives_way_to_the_service_and_has_a_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = list[tuple[object, ...]]()
    monkeypatch.setattr(lastweek.os, "nice", lambda by: asked.append(("nice", by >= 5)))
    monkeypatch.setattr(lastweek.resource, "setrlimit", lambda *of: asked.append(of))
    monkeypatch.setattr(sys, "stdin", StringIO("no JSON"))
    with pytest.raises(ValueError, match="Expecting value"):
        lastweek.main()
    kinds = lastweek.resource.RLIMIT_CPU, lastweek.resource.RLIMIT_AS
    cpu, memory = int(lastweek.LIMIT_S), lastweek.LIMIT_MIB * 2**20
    assert asked == [("nice", True), (kinds[0], (cpu, cpu)), (kinds[1], (memory, memory))]


def test_the_page_lists_the_starts_that_move(contended: Lived) -> None:
    browser = contended.browser("olga")
    asked = {"feature": "gpus", "kind": "fix", "low": "4", "score": "-5", "why": "a test"}
    assert "Starts that change" not in browser.get("/models/edit", params=asked).text
    page = browser.get("/models/edit", params={**asked, "replay": "1"}).text
    assert "Of 5 jobs, replayed with the models as they are" in page
    assert re.search(r'data-label="moves by">[^<]+ earlier</td>', page)
    assert re.search(r'data-label="moves by">[^<]+ later</td>', page)


def test_no_other_site_has_it_played(contended: Lived, monkeypatch: pytest.MonkeyPatch) -> None:
    played = list[Asked]()

    def none(_: object, __: object, asked: Asked, ___: float) -> None:
        played.append(asked)
        raise NoReplay("not now")

    monkeypatch.setattr(editing, "played_apart", none)
    browser = contended.browser("olga")
    asked = {"feature": "gpus", "kind": "fix", "low": "4", "score": "-5", "why": "a test"}
    for site, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 200)):
        page = browser.get(
            "/models/edit", params={**asked, "replay": "1"}, headers={"Sec-Fetch-Site": site}
        )
        assert (page.status_code, len(played)) == (status, int(status == 200)), site
    page = browser.get("/models/edit", params=asked, headers={"Sec-Fetch-Site": "cross-site"})
    assert page.status_code == 200, "a link to the form is one like any other"


def test_how_it_failed_is_for_the_log_alone(
    contended: Lived, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho 'no postgresql://zq:secret@db' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    with pytest.raises(NoReplay) as failed:
        played_apart(contended.store, tmp_path, LARGE_FIRST, contended.world.now())
    assert str(failed.value) == "The replay failed. The service's own output says why."
    assert "zq:secret@db" in caplog.text


def test_those_that_move_most_come_first_each_way() -> None:
    job = a_job("a").job
    jobs = [replace(job, job_id=name, submit_time=0.0) for name in "abcdef"]
    moves = {"a": MOVED_S, "b": 300.0, "c": -MOVED_S, "d": -300.0, "e": 59.0, "f": -59.0}
    week = lastweek._Week(
        played=jobs, carried=frozenset(), work={}, learned=(), since=0.0, whole=True
    )
    as_is = {name: SimpleNamespace(start_time=1000.0) for name in moves}
    then = {name: SimpleNamespace(start_time=1000.0 + by) for name, by in moves.items()}
    found = lastweek._compared([as_is, then], week)  # type: ignore[list-item]
    assert [one.job_id for one in found.later] == ["b", "a"]
    assert [one.job_id for one in found.earlier] == ["d", "c"]
    assert (found.count_later, found.count_earlier, found.jobs) == (2, 2, 6)
    assert (found.wait_s, found.wait_then_s) == (1000.0, 1000.0)


def test_who_waits_for_another_job_comes_when_that_one_ends(lived: Lived) -> None:
    first = lived.submit("ada.byron", gpus=1, vc="vision")
    lived.submit("ada.byron", gpus=1, vc="vision", after=first)
    lived.settle(9000)
    with lived.store.reading() as connection:
        week = lastweek._week(connection, lived.world.now())
    assert week.played[0].job_id == first
    assert week.played[1].submit_time == lived.see("olga").job(first).ended_at
