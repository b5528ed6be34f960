"""What a page costs with many jobs: nothing for what is over, for what waits only the database."""

from __future__ import annotations

import re
from typing import Any

import pytest
from sqlalchemy import event, insert, select

from scheduler.service.log.store.tables import jobs
from scheduler.service.pages.queries import PageQueries
from tests.scheduler.service.pages.conftest import Lived

PAGES = ("/", "/?vc=vision", "/list", "/api/v1/jobs", "/api/v1/cluster", "/metrics")
STEPS = 100  # of SQLite's machine, counted at a time


class Cost:
    """What answers cost in steps of SQLite's machine."""

    def __init__(self, lived: Lived):
        self.steps = 0
        event.listen(lived.store.engine, "checkout", self._watch)

    def _watch(self, connection: Any, *_: object) -> None:
        connection.set_progress_handler(self._count, STEPS)

    def _count(self) -> None:
        self.steps += STEPS

    def of(self, lived: Lived, path: str) -> int:
        asked = {"Authorization": f"Bearer {lived.secrets['olga']}"}
        lived.browser("olga").get(path, headers=asked)
        self.steps = 0
        answer = lived.browser("olga").get(path, headers=asked)
        assert answer.status_code == 200, answer.text
        return self.steps


def more(lived: Lived, phase: str, count: int) -> None:
    """So many more jobs like one that is in this phase, of names that differ in their numbers."""
    with lived.store.writing() as connection:
        like = connection.execute(select(jobs).where(jobs.c.phase == phase).limit(1)).mappings()
        row = dict(like.one())
        first = connection.execute(select(jobs.c.submitted_seq).order_by(-jobs.c.submitted_seq))
        seq = first.scalars().first() or 0
        rows = [
            {**row, "job_id": f"{phase}-{seq + n}", "submitted_seq": seq + n, "name": f"sweep-{n}"}
            for n in range(1, count + 1)
        ]
        connection.execute(insert(jobs), rows)


def test_jobs_that_are_over_cost_no_page_anything(lived: Lived) -> None:
    """All of them were read for each: with half a million, seconds."""
    if not lived.store.is_sqlite:
        pytest.skip("counts steps of SQLite's machine")
    for n in range(8):
        lived.submit("ada.byron", gpus=4, vc="vision", name=f"sweep-{n}")
    lived.settle(3000)
    more(lived, "ended", 300)
    cost = Cost(lived)
    before = {path: cost.of(lived, path) for path in PAGES}
    more(lived, "ended", 6000)
    for path, steps in before.items():
        assert 0 < cost.of(lived, path) < 1.2 * steps + 2000, path


def test_of_jobs_that_wait_no_more_rows_are_read(
    lived: Lived, monkeypatch: pytest.MonkeyPatch
) -> None:
    """20,000 rows came for one page."""
    for n in range(8):
        lived.submit("ada.byron", gpus=4, vc="vision", name=f"sweep-{n}")
    lived.settle(1)
    more(lived, "queued", 200)
    read = 0
    for name in ("_all", "_tuples"):
        whole = getattr(PageQueries, name)

        def counted(self: PageQueries, query: Any, whole: Any = whole) -> Any:
            nonlocal read
            rows = whole(self, query)
            read += len(rows)
            return rows

        monkeypatch.setattr(PageQueries, name, counted)

    def rows_of(path: str) -> int:
        nonlocal read
        read = 0
        assert lived.browser("olga").get(path).status_code == 200
        return read

    group = "/jobs?vc=vision&owner=ada.byron&like=sweep-%23&gpus=4&phase=queued"
    pages = "/", "/?vc=vision", "/list", "/list?state=queued"
    before = [*map(rows_of, pages)]
    assert rows_of(group) > 100
    more(lived, "queued", 4000)
    assert [*map(rows_of, pages)] == before
    page = lived.browser("olga").get("/").text
    assert re.search(r"4,20\d</a>", page), "and all are counted"
