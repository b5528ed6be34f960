"""The timeline of a virtual cluster: who is on which GPUs until when, and slots of who waits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from itertools import pairwise

import pytest
from sqlalchemy import delete

from scheduler.core.decisions import ANOTHER
from scheduler.explain.whatif.forecasts import StartForecast
from scheduler.service.log.forecasts import write
from scheduler.service.log.store.reads import Chosen
from scheduler.service.log.store.rows import JobRow
from scheduler.service.log.store.tables import forecasts
from scheduler.service.pages.queries import PageQueries
from scheduler.service.pages.timeline import Timeline, timeline
from tests.scheduler.service.pages.conftest import Lived


@pytest.fixture(scope="module")
def foreseen(busy: Lived) -> Iterator[Lived]:
    """Everybody who runs ends in 10 min (by 20), everybody who waits starts in 15 (by 30)."""
    now = busy.world.now()
    made = {}
    for job in busy.see("olga").jobs(limit=200).items:
        if job.phase in ("running", "starting"):
            made[job.job_id] = StartForecast(now, 0.0, 0.0, now + 600, now + 1200)
        elif job.phase == "queued":
            made[job.job_id] = StartForecast(now, now + 900, now + 1800, now + 2000, now + 3000)
    with busy.store.writing() as connection:
        write(connection, made, ["latest"])
    yield busy
    with busy.store.writing() as connection:
        connection.execute(delete(forecasts))


def _drawn(lived: Lived, user: str, waiting: list[JobRow]) -> Timeline:
    queries = PageQueries(lived.store, lived.viewer(user))
    found = timeline(queries, "vision", lived.world.now(), waiting)
    assert found is not None
    return found


def _waiting(lived: Lived) -> JobRow:
    return next(j for j in lived.see("ada.byron").jobs(Chosen(phase="queued", vc="vision")).items)


def test_bars_end_when_jobs_are_expected_to(foreseen: Lived) -> None:
    mine = _waiting(foreseen)
    drawn = _drawn(foreseen, "olga", [mine])
    assert drawn.until - drawn.now == pytest.approx(1.25 * 1800)  # far enough to show the slot
    placed = [j for j in foreseen.see("olga").jobs(limit=200).items if j.placement]
    on = {(node, gpu): [] for node in (0, 1) for gpu in range(4)}  # type: ignore[var-annotated]
    for job in placed:
        for node, gpus in job.placement.items():
            for gpu in gpus:
                on.get((node, gpu), []).append(job.job_id)
    assert {row.job.job_id for row in drawn.rows} == {job for jobs in on.values() for job in jobs}
    foreseen_bars = [
        bar for lane in drawn.nodes for bar in lane.bars if "unknown" not in bar.css.split()
    ]
    assert foreseen_bars
    for bar in foreseen_bars:
        assert (bar.left, bar.width) == (0.0, pytest.approx(100 * 600 / 2250))
        assert bar.left + bar.width + bar.fuzzy == pytest.approx(100 * 1200 / 2250)
    [slot] = drawn.slots
    assert slot.left == pytest.approx(100 * 900 / 2250)
    assert slot.left + slot.fuzzy == pytest.approx(100 * 1800 / 2250)
    assert "expected to start in 15 min to 30 min" in slot.tip
    assert "expected to start in 15 min to 30 min" in drawn.words
    assert drawn.slots[0].y < min(lane.y for lane in drawn.nodes)
    assert all(0 < x < 100 and at % 60 == 0 for x, at in drawn.ticks)
    for lane in drawn.nodes:  # and none covers another
        spans = sorted((bar.y, bar.y + bar.height) for bar in lane.bars)
        assert all(lane.y <= top and end <= lane.y + lane.height for top, end in spans)
        assert all(end <= top for (_, end), (top, _) in pairwise(spans))


def test_others_are_there_without_a_name(foreseen: Lived) -> None:
    everything = foreseen.see("olga")
    runs = [everything.job(row.job.job_id) for row in _drawn(foreseen, "olga", []).rows]
    other = "ada.byron" if runs[0].owner == "grace.hopper" else "grace.hopper"
    drawn, seen = (_drawn(foreseen, user, []) for user in (other, "olga"))
    hidden = [row for row in drawn.rows if not row.job.job_id]
    assert len(hidden) == sum(job.owner != other for job in runs)
    assert {row.job.who for row in hidden} == {ANOTHER}
    bars = [bar for lane in drawn.nodes for bar in lane.bars if "other" in bar.css.split()]
    assert {bar.label for bar in bars} == {""}
    assert [(row.job.end_p50, row.gpus) for row in seen.rows] == [
        (row.job.end_p50, row.gpus) for row in drawn.rows
    ]


def test_it_is_on_the_page_with_its_table(foreseen: Lived) -> None:
    job = _waiting(foreseen)
    for path in (f"/jobs/{job.job_id}", "/?vc=vision"):
        page = unescape(foreseen.browser("ada.byron").get(path).text)
        drawing = re.search(r'<svg class="runs" role="img" aria-labelledby="([^"]+)"', page)
        assert drawing is not None, path
        assert all(f'id="{name}"' in page for name in drawing[1].split())
        assert 'class="window"' in page or path.startswith("/?")
        assert page.count("nine of ten cases by") > 1
    over = next(j for j in foreseen.see("ada.byron").jobs(limit=100).items if j.ended_at)
    assert '<svg class="runs"' not in foreseen.browser("ada.byron").get(f"/jobs/{over.job_id}").text


def test_without_forecasts_it_says_so(lived: Lived) -> None:
    job = lived.submit("ada.byron", gpus=4, vc="vision")
    lived.settle(1)
    drawn = _drawn(lived, "ada.byron", [])
    [row] = drawn.rows
    assert (row.job.job_id, row.gpus, row.job.end_p50) == (job, "0-3", None)
    assert "its end is not foreseen" in drawn.nodes[0].bars[0].tip
    assert "not foreseen" in lived.browser("ada.byron").get("/?vc=vision").text
