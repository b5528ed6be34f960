"""The table of jobs: found by ID, filtered, sorted, and the same as CSV."""

from __future__ import annotations

import csv
import io
import re
from itertools import cycle
from typing import Any
from urllib.parse import parse_qs

import pytest

from features.job import Profile
from features.schema import State
from scheduler.backends.base import Launch
from scheduler.backends.simulated import JobOutcome
from scheduler.core.capacity import Capacity
from scheduler.explain import stories
from scheduler.explain.words import percent
from scheduler.service.log.store import archive, short
from scheduler.service.log.store.short import Own
from scheduler.service.pages import listing
from scheduler.service.pages.efficiency import Efficiency, efficiency
from scheduler.service.pages.figures import fairness
from scheduler.service.pages.listing import COLUMNS, ROWS, Wanted, _plain, _waiting_since
from scheduler.service.pages.queries import PageQueries, Used
from scheduler.simulation.work import Work
from tests.scheduler.service.pages.conftest import Lived, submit_many

ROW = re.compile(r'<th scope="row"><a href="/jobs/([^"]+)">')


def ids(html: str) -> list[str]:
    """The jobs of a table, in order."""
    return ROW.findall(html)


@pytest.fixture
def queue(lived: Lived) -> Lived:
    """Five jobs of two people; on 12 GPUs they do not all start."""
    submit_many(lived, "ada.byron", [
        {"name": f"sweep-{n}", "gpus": n, "vc": "vision"} for n in (1, 4, 2)
    ])  # fmt: skip
    submit_many(lived, "grace.hopper", [
        {"name": "=cmd-i()", "gpus": 4, "vc": "vision"}, {"name": "big", "gpus": 4, "vc": "speech"},
    ])  # fmt: skip
    return lived


def table(lived: Lived, query: str, user: str = "olga") -> list[dict[str, str]]:
    answer = lived.browser(user).get(f"/list.csv?{query}")
    assert answer.headers["content-type"].startswith("text/csv")
    return list(csv.DictReader(io.StringIO(answer.text)))


def test_what_is_chosen_stands_in_the_address(queue: Lived) -> None:
    every = table(queue, "")
    assert [*every[0]] == [heading for _, heading in COLUMNS]
    assert len(every) == 5
    assert {row["user"] for row in table(queue, "owner=ada.byron")} == {"ada.byron"}
    assert [row["name"] for row in table(queue, "find=SWEEP-4")] == ["sweep-4"]
    assert {row["partition"] for row in table(queue, "partition=speech")} == {"speech"}
    assert [int(row["GPUs"]) for row in table(queue, "sort=-gpus&owner=ada.byron")] == [4, 2, 1]
    assert table(queue, "state=ended") == []
    page = queue.browser("olga").get("/list?sort=-gpus&owner=ada.byron").text
    assert ids(page) == [row["ID"] for row in table(queue, "sort=-gpus&owner=ada.byron")]
    assert 'aria-sort="descending"' in page
    assert "GPUs had of those asked for" in page


def test_a_job_is_found_by_its_id_also_when_it_is_over(queue: Lived) -> None:
    queue.settle(30_000)
    assert table(queue, "") == []
    job = queue.see("olga").jobs(limit=1).items[0].job_id
    (found,) = table(queue, f"find={job}")
    assert (found["ID"], found["state"]) == (job, "ended")
    assert table(queue, f"find={job[:-1]}") == []


def test_nobody_finds_anothers_job(queue: Lived) -> None:
    theirs = next(row["ID"] for row in table(queue, "owner=grace.hopper"))
    assert table(queue, f"find={theirs}", "ada.byron") == []
    assert table(queue, "owner=grace.hopper", "ada.byron") == []
    assert len(table(queue, "", "ada.byron")) == 3
    page = queue.browser("ada.byron").get("/list").text
    assert "grace.hopper" not in page


def test_no_cell_is_a_formula(queue: Lived) -> None:
    (row,) = table(queue, "find=cmd-i")  # of which no id has a part
    assert row["name"] == "'=cmd-i()"
    assert [_plain(text) for text in ("-1", "@x", "a=b", "")] == ["'-1", "'@x", "a=b", ""]


def test_numbers_are_sorted_as_numbers_and_pages_follow_each_other(lived: Lived) -> None:
    submit_many(
        lived, "ada.byron", [{"name": f"j{n}", "gpus": 1, "vc": "vision"} for n in range(130)]
    )
    browser = lived.browser("ada.byron")
    first = browser.get("/list?sort=name").text
    (rest,) = re.findall(r'href="/list\?([^"]*first=\d+)"', first)
    assert parse_qs(rest.replace("&amp;", "&"))["first"] == [str(ROWS)]
    second = browser.get(f"/list?{rest.replace('&amp;', '&')}").text
    both = ids(first) + ids(second)
    assert len(both) == len({*both}) == 130
    assert "No job is like that" in browser.get("/list?find=nothing").text


def test_pages_by_id_go_on_after_the_last_row(lived: Lived) -> None:
    """Whatever ended meanwhile, nobody is left out or shown twice."""
    submit_many(
        lived, "ada.byron", [{"name": f"j{n}", "gpus": 1, "vc": "vision"} for n in range(130)]
    )
    for sort in ("", "-job_id"):
        every = [row["ID"] for row in table(lived, f"sort={sort}")]
        first = lived.browser("olga").get(f"/list?sort={sort}").text
        (rest,) = re.findall(r'href="/list\?([^"]*after=[^"]+)"', first)
        second = lived.browser("olga").get(f"/list?{rest.replace('&amp;', '&')}").text
        assert ids(first) + ids(second) == every
        assert "130 jobs with GPUs" in second
        assert "The first" in second
        assert "The next" not in second
        by_place = lived.browser("olga").get(f"/list?sort={sort}&first={ROWS}").text
        assert ids(by_place) == ids(second)
        both = f"/list?sort={sort}&after={every[4]}&first={ROWS}"
        assert ids(lived.browser("olga").get(both).text) == every[5 : 5 + ROWS], "a place is left"
        placed = lived.browser("olga").get(f"/list?sort={sort}&first=10").text
        assert ids(placed) == every[10 : 10 + ROWS]
        (rest,) = re.findall(r'href="/list\?([^"]*)">The next', placed)
        assert parse_qs(rest.replace("&amp;", "&"))["after"] == [every[9 + ROWS]]
        assert "first=" not in rest
    assert ids(lived.browser("olga").get(f"/list?first={2**70}").text) == []
    for other in ("sort=gpus", "find=j"):
        page = lived.browser("olga").get(f"/list?{other}").text
        assert "The next" in page
        assert lived.browser("olga").get(f"/list?{other}&after=a").text.count("The first") == 0


def test_an_address_says_no_more_than_it_must() -> None:
    wanted = Wanted(owner="ada", sort="gpus")
    assert parse_qs(wanted.address()) == {"owner": ["ada"], "sort": ["gpus"]}
    assert parse_qs(wanted.turned("gpus"))["sort"] == ["-gpus"]
    assert parse_qs(wanted.turned("name"))["sort"] == ["name"]
    assert Wanted().address() == ""
    assert Wanted(sort="command").by == "job_id"


def test_nodes_are_counted_once_for_jobs_that_ask_for_the_same(
    lived: Lived, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit_many(lived, "ada.byron", [{"name": "w", "gpus": 4, "vc": "vision"} for _ in range(9)])
    lived.settle(120)
    asked, count = list[tuple[str, int]](), stories.counted

    def counted(nodes: Any, vc: str, gpus: int, *rest: Any, **more: Any) -> Capacity:
        asked.append((vc, gpus))
        return count(nodes, vc, gpus, *rest, **more)

    monkeypatch.setattr(stories, "counted", counted)
    waits = [row for row in table(lived, "") if " free" in row["reason"]]
    assert len(waits) > 2
    assert asked == [("vision", 4)]


def test_all_that_wait_are_counted_by_cause(lived: Lived) -> None:
    submit_many(lived, "ada.byron", [{"name": "w", "gpus": 4, "vc": "vision"} for _ in range(6)])
    lived.settle(120)
    waits = [row for row in table(lived, "") if row["state"] in ("queued", "submitted", "held")]
    page = lived.browser("olga").get("/causes").text
    assert f"{len(waits)} jobs wait, for {sum(int(row['GPUs']) for row in waits)} GPUs" in page
    counted = re.findall(r'data-label="jobs">(\d+)<', page)
    assert sum(map(int, counted)) == len(waits)
    view = lived.see("olga")
    found = view.causes(0.0)
    assert [str(one.jobs) for one in found.causes] == counted
    assert (found.waiting, sum(one.gpus for one in found.causes)) == (len(waits), found.gpus)
    assert {one.phase for one in found.waited_for} <= {"running", "queued"}
    assert found.waited_for
    assert lived.see("grace.hopper").causes(0.0).waiting == 0
    lived.settle(60_000)
    assert "No job waits." in lived.browser("olga").get("/causes").text


@pytest.mark.parametrize("more", [0, 60])
def test_what_is_read_to_count_causes_does_not_grow_with_who_waits(
    lived: Lived, monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    monkeypatch.setattr(short, "FIGURES", 5)
    asked = [{"name": "w", "gpus": 4, "vc": "vision"} for _ in range(12 + more)]
    submit_many(lived, "ada.byron", asked)
    lived.settle(1)
    view, rows = lived.see("olga"), list[int]()
    every = view._all

    def counted(query: Any) -> Any:
        found = every(query)
        rows.append(len(found))
        return found

    monkeypatch.setattr(view, "_all", counted)
    found = view.causes(0.0)
    running = sum(job.phase == "running" for job in lived.see("olga").jobs(limit=200).items)
    assert found.waiting == 12 + more - running
    assert sum(one.jobs for one in found.causes) == found.waiting
    assert sum(rows) <= 12, rows
    assert len(rows) <= 4


def test_every_job_is_on_some_page_however_many_there_are(
    lived: Lived, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(short, "FIGURES", 20)
    monkeypatch.setattr(listing, "AT_ONCE", 8)
    submit_many(
        lived, "ada.byron", [{"name": f"j-{n}", "gpus": 1, "vc": "vision"} for n in range(30)]
    )
    assert len(table(lived, "")) == 30
    assert len(ids(lived.browser("olga").get("/list").text)) == 30
    (last,) = table(lived, "find=j-29")  # no id has a hyphen
    assert table(lived, "owner=ada.byron&sort=-name")[0] == table(lived, "sort=-name")[0]
    assert last["name"] == "j-29"


def test_a_job_found_by_its_id_is_one_that_is_chosen(queue: Lived) -> None:
    queue.settle(30_000)
    job = next(job for job in queue.see("olga").jobs().items if job.owner == "ada.byron")
    of = f"find={job.job_id}"
    for chosen in ("owner=ada.byron", "partition=vision", "state=ended", "without=1"):
        assert [row["ID"] for row in table(queue, f"{of}&{chosen}")] == [job.job_id]
    for other in ("owner=grace.hopper", "partition=speech", "state=running", "account=lab"):
        assert table(queue, f"{of}&{other}") == []


def test_what_people_used_of_what_they_asked_for_stands_beside_their_waits(lived: Lived) -> None:
    util = cycle((15.0, 40.0, 90.0))

    def measured(_: Launch) -> JobOutcome:
        profile = Profile(
            gpu_util_pct=next(util), gpu_mem_util_pct=20.0, gpu_mem_mib=5000.0, amp=False
        )
        return JobOutcome(Work(500.0, State.COMPLETED, None, profile))

    lived.world._truth = measured
    asked = [{"name": f"j{n}", "gpus": 1, "vc": "vision", "time_limit_s": 8000} for n in range(6)]
    submit_many(lived, "ada.byron", asked)
    submit_many(lived, "grace.hopper", [{"name": "one", "gpus": 1, "vc": "vision"}])
    lived.settle(30_000)
    used = PageQueries(lived.store, lived.viewer("olga")).used()
    ada = [one for one in used if one.owner == "ada.byron"]
    assert len(ada) == 6
    assert all(one.util_pct is not None and one.mem_mib is not None for one in ada)
    gpu_s = sum(one.gpu_s for one in ada)
    use = sum((one.util_pct or 0.0) * one.gpu_s for one in ada) / gpu_s / 100
    found = efficiency(ada)
    assert found.util == pytest.approx(use)
    assert found.measured == 1.0
    assert found.time == pytest.approx(sum(one.ran_s for one in ada) / (6 * 8000))
    page = lived.browser("olga").get("/list?owner=ada.byron").text
    for text in (percent(use), "GPU use (7 days)", "of limits used"):
        assert text in page
    fair = lived.browser("olga").get("/fairness?period=all").text
    assert f'data-label="of GPUs used">{percent(use)}<' in fair
    assert 'href="/list?owner=ada.byron"' in fair
    grace = efficiency(one for one in used if one.owner == "grace.hopper")
    assert grace.time is None
    assert grace.util is not None
    least = sorted({use: "ada.byron", grace.util: "grace.hopper"}.items())
    for asked_for, first in (("util", least[0][1]), ("time", "ada.byron"), ("", "ada.byron")):
        fair = lived.browser("olga").get(f"/fairness?period=all&least={asked_for}").text
        assert re.findall(r'/list\?owner=([a-z.]+)"', fair)[0] == first
        assert ('aria-sort="ascending"' in fair) is bool(asked_for)
    mine = PageQueries(lived.store, lived.viewer("grace.hopper")).used()
    assert {one.owner for one in mine} == {"grace.hopper"}
    assert "ada.byron" not in lived.browser("grace.hopper").get("/fairness?period=all").text
    submit_many(lived, "grace.hopper", [{"name": "two", "gpus": 1, "vc": "speech"}])
    lived.settle(30_000)
    view = PageQueries(lived.store, lived.viewer("olga"))
    for row in fairness(view, 0.0).users:
        own = (one for one in view.used() if (one.owner, one.vc) == (row.user, row.vc))
        assert row.used == efficiency(own), "of that virtual cluster alone"


def test_what_was_measured_is_read_from_the_archive_too(
    lived: Lived, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit_many(lived, "ada.byron", [{"name": "one", "gpus": 1, "vc": "vision"}] * 6)
    lived.settle(30_000)
    before = PageQueries(lived.store, lived.viewer("olga")).used()
    monkeypatch.setattr(archive, "BATCH", 2)
    monkeypatch.setattr(archive, "APART_S", 0.0)
    assert archive.move(lived.store, 1e12) > 0
    assert PageQueries(lived.store, lived.viewer("olga")).used() == before
    assert any(one.util_pct for one in before)


@pytest.mark.parametrize(
    ("ago", "words"),
    [
        ([], ""),
        ([None], ""),  # since when is not known
        ([300.0], "submitted or held 5 min ago"),
        ([None, 300.0], "submitted or held 5 min ago"),
        (
            [300.0, 7200.0, None, 3600.0],
            "submitted or held: half over 1 h ago, one 2 h ago",
        ),
    ],
)
def test_how_long_ago_those_who_wait_were_submitted_is_said(
    ago: list[float | None], words: str
) -> None:
    now = 10_000.0
    waits = [Own(1, "queued", None if s is None else now - s) for s in ago]
    assert _waiting_since(now, waits) == words


def test_nobody_measured_is_no_use_of_nothing() -> None:
    one = Used(
        "ada", "vision", "", gpu_s=100.0, ran_s=50.0, limit_s=None, util_pct=None, mem_mib=None
    )
    assert efficiency([one]) == Efficiency(util=None, measured=0.0, mem_mib=None, time=None)
    half = Used(
        "ada", "vision", "", gpu_s=300.0, ran_s=50.0, limit_s=100.0, util_pct=40.0, mem_mib=9.0
    )
    assert efficiency([one, half]) == Efficiency(util=0.4, measured=0.75, mem_mib=9.0, time=0.5)
