"""Thousands of one's own jobs are groups that open, on the board; none is hidden."""

from __future__ import annotations

import re
from html import unescape

from fastapi.testclient import TestClient
from sqlalchemy import delete, insert

from scheduler.service.log.store.alike import of_name
from scheduler.service.log.store.tables import forecasts
from scheduler.service.pages.board import ROWS, board
from scheduler.service.pages.groups import in_order
from scheduler.service.pages.queries import PageQueries
from tests.scheduler.service.pages.conftest import Lived, submit_many
from tests.scheduler.service.pages.test_operations import fields


def test_groups_by_name_size_and_state(lived: Lived) -> None:
    assert of_name("sweep-lr0.01-seed12") == of_name("sweep-lr0.3-seed1") == "sweep-lr#.#-seed#"
    runs = lived.submit("ada.byron", gpus=4, vc="vision", name="a-4")
    lived.settle(1)
    asked = [("a-1", 4), ("a-2", 4), ("a-3", 3), ("b", 4)]
    ids = [lived.submit("ada.byron", gpus=n, vc="vision", name=name) for name, n in asked]
    lived.settle(1)
    with lived.store.writing() as connection:
        for job_id, start in zip(ids, (900.0, 300.0, 5.0, None), strict=True):
            connection.execute(delete(forecasts).where(forecasts.c.job_id == job_id))
            row = {"job_id": job_id, "basis": "latest", "made_at": 0.0, "start_p50": start}
            connection.execute(insert(forecasts), row)
    view = PageQueries(lived.store, lived.viewer("ada.byron"))
    found = [g for g in in_order(view.groups(vc="vision")) if g.like in ("a-#", "b")]
    seen = [(g.like, g.gpus, g.phase, g.jobs, g.next_start, g.last_start) for g in found]
    assert seen == [
        ("a-#", 4, "running", 1, None, None),
        ("a-#", 4, "queued", 2, 300.0, 900.0),
        ("a-#", 3, "queued", 1, 5.0, 5.0),
        ("b", 4, "queued", 1, None, None),
    ]
    assert view.submitted_by([g.first for g in found]) == {
        g.first: job for g, job in zip(found, (runs, ids[0], ids[2], ids[3]), strict=True)
    }


def test_ones_own_jobs_stand_on_the_board_behind_many_of_others(lived: Lived) -> None:
    submit_many(lived, "ada.byron", [{"gpus": 4, "vc": "vision"} for _ in range(30)])
    submit_many(
        lived, "grace.hopper", [{"gpus": 4, "vc": "vision", "name": "mine", "priority": -1}] * 12
    )

    def rows(user: str) -> tuple[list[tuple[int, str | None]], bool]:
        view = PageQueries(lived.store, lived.viewer(user))
        (queue,) = board(view).queues
        placed = [row for row in queue.rows if row.position is not None]
        return [(row.others, row.job and row.job.name) for row in placed], queue.more

    found, more = rows("grace.hopper")
    (before, _), *own = found
    assert before > ROWS
    assert own == [(0, "mine")] * (ROWS - 1)
    assert more, "some of hers are left for the page of the virtual cluster"
    assert len(rows("olga")[0]) == ROWS
    page = unescape(lived.browser("grace.hopper").get("/").text)
    assert "All that wait in vision" in page
    assert "None of yours" not in page


def test_hundreds_of_jobs_are_all_there(lived: Lived) -> None:
    asked = [
        {"name": f"sweep-lr{i}-seed{i % 7}", "gpus": (1, 2, 4)[i % 3], "vc": "vision"}
        for i in range(490)
    ]
    asked += [{"name": f"eval of {chr(97 + i)}", "vc": "vision"} for i in range(10)]
    submit_many(lived, "ada.byron", asked)
    alive = [job for job in _all(lived.see("ada.byron")) if job.ended_at is None]
    assert len(alive) > 400
    ada = lived.browser("ada.byron")
    page = unescape(ada.get("/").text)
    assert len(page) < 300_000
    links = re.findall(r'<a href="(/jobs\?[^"]+)">all [\d,]+</a>', page)
    counts = [int(n.replace(",", "")) for n in re.findall(r"<strong>([\d,]+)</strong> <span", page)]
    assert sum(counts) == len(alive)
    seen = {job for link in links for job in _walk(ada, link)}
    alone = set(re.findall(r'<a href="/jobs/([\w.-]+)">', page))
    assert {job.job_id for job in alive} <= seen | alone
    # nobody else can open a group of hers
    grace = lived.browser("grace.hopper")
    assert "Your jobs, by kind" not in grace.get("/").text
    assert "None of these" in grace.get(links[0]).text
    assert "sweep-lr" in unescape(lived.browser("olga").get(links[0]).text).partition("<table")[2]


def test_a_group_is_held_released_and_cancelled_after_a_preview(lived: Lived) -> None:
    hers = lived.submit("grace.hopper", gpus=4, vc="vision")
    lived.settle(1)
    for seed in range(3):
        lived.submit("ada.byron", gpus=4, vc="vision", name=f"sweep-{seed}")
    lived.settle(1)
    ada, grace = lived.browser("ada.byron"), lived.browser("grace.hopper")
    word = fields(grace.get(f"/jobs/{hers}/act?do=cancel").text)["csrf"]

    def phases() -> set[str]:
        return {job.phase for job in _all(lived.see("ada.byron")) if job.name.startswith("sweep-")}

    for deed, before, after in (
        ("hold", "queued", "held"), ("release", "held", "queued"), ("cancel", "queued", "cancelled")
    ):  # fmt: skip
        assert phases() == {before}
        group = f"/jobs?vc=vision&owner=ada.byron&like=sweep-%23&gpus=4&phase={before}"
        assert f"do={deed}" in ada.get(group).text
        asked = group.replace("/jobs?", "/group/act?") + f"&do={deed}"
        seq = lived.store.last_seq()
        preview = ada.get(asked)
        assert preview.status_code == 200
        assert "3 jobs of vision" in preview.text
        assert lived.store.last_seq() == seq, "a preview changes nothing"
        assert "nothing to do for any" in grace.get(asked).text
        odd = {**fields(preview.text), "jobs": "x" * 65 + " '--"}
        assert ada.post("/group/act", data=odd).status_code == 303, "no such jobs: nothing is done"
        assert ada.post("/group/act", data={**odd, "csrf": "x"}).status_code == 403
        grace.post("/group/act", data={**fields(preview.text), "csrf": word})
        lived.settle(1)
        assert phases() == {before}, "hers alone"
        assert ada.post("/group/act", data=fields(preview.text)).status_code == 303
        lived.settle(1)
        assert phases() == {after}
    assert ada.get("/group/act?do=dance").status_code == 422


def _walk(browser: TestClient, link: str) -> list[str]:
    """Ids of the jobs of a group, page by page."""
    found = []
    while link:
        page = unescape(browser.get(link).text)
        assert page.count('<th scope="row">') <= 100
        found += re.findall(r'<th scope="row"><a href="/jobs/([\w.-]+)">', page)
        after = re.search(r'<a href="([^"]+)">The next</a>', page)
        link = after[1] if after else ""
    return found


def _all(view):  # type: ignore[no-untyped-def]
    after = None
    while True:
        page = view.jobs(limit=500, after=after)
        yield from page.items
        after = page.next
        if after is None:
            return
