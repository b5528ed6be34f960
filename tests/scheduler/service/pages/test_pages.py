"""Every page, for everybody who may and may not see it."""

from __future__ import annotations

import math
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from html import unescape
from math import inf
from pathlib import Path

import pytest
from fastapi.routing import iter_route_contexts
from fastapi.testclient import TestClient
from starlette.routing import compile_path

from features.codec import decode
from pipeline.printed.why import lines_of
from scheduler.assembly import CoreSpec
from scheduler.backends.simulated import JobOutcome
from scheduler.core.decisions import Reason
from scheduler.explain.explanation import Explanation
from scheduler.explain.render import first_words, says
from scheduler.explain.stories import _read_bundle, names_of_terms
from scheduler.service.api import tokens
from scheduler.service.api.auth import COOKIE
from scheduler.service.app import create_app
from scheduler.service.log.store.reads import Chosen
from scheduler.service.log.store.rows import JobRow
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.visibility import Role
from scheduler.service.pages.queries import PageQueries
from scheduler.service.pages.render import assets
from scheduler.service.settings import Settings
from scheduler.simulation.work import Work
from tests.browser.addresses import ELSEWHERE, addresses
from tests.scheduler.service.pages.bundle import small_bundle
from tests.scheduler.service.pages.conftest import PEOPLE, SPEC, Lived, begin, of_each_kind
from tests.scheduler.slurm.follow.test_follow import Scene

PAGES = (
    "/",
    "/?vc=vision",
    "/list",
    "/list?sort=-gpus",
    "/causes",
    "/nodes",
    "/history?period=all",
    "/fairness?period=all",
    "/models",
    "/forecasts",
)
SHOWN_AT = re.compile(r' data-seq="\d+"|<time data-short.*?</time>')
Opened = Callable[[str, str], str]
CODES = re.compile(rf"\b({'|'.join(Reason)})\b")
LOADED = re.compile(r'(?:src|href|action|hx-get)="([^"]*)"')


@pytest.fixture(scope="module")
def opened(busy: Lived) -> Opened:
    """The text of a page as somebody sees it, made once."""

    @cache
    def opens(user: str, path: str) -> str:
        answer = busy.browser(user).get(path)
        assert answer.status_code == 200, path
        assert "'unsafe-eval'" not in answer.headers["content-security-policy"]
        assert "default-src 'self'" in answer.headers["content-security-policy"]
        return answer.text

    return opens


@pytest.fixture(scope="module")
def some(busy: Lived) -> list[JobRow]:
    return of_each_kind(busy.see("olga").jobs(limit=200).items)


@pytest.mark.parametrize("user", ["olga", "ada.byron"])
def test_every_page_is_there_and_loads_nothing_from_elsewhere(
    some: list[JobRow], opened: Opened, user: str
) -> None:
    jobs = [f"/jobs/{job.job_id}" for job in some if user in ("olga", job.owner)]
    assert len(jobs) > 4
    for path in (*PAGES, *jobs):
        for address in LOADED.findall(opened(user, path)):
            assert address.startswith(("/", "#")), (path, address)
            assert not address.startswith("//"), (path, address)


def test_nobody_reads_of_anybody_else(busy: Lived, some: list[JobRow], opened: Opened) -> None:
    """Ids and names of others' jobs, which share GPUs with one's own, are on no page."""
    jobs = busy.see("olga").jobs(limit=200).items
    for me in PEOPLE:
        theirs = [job for job in jobs if job.owner != me]
        secrets = {one for job in theirs for one in (job.job_id, job.name, job.owner)}
        browser = busy.browser(me)
        for path in (*PAGES, *(f"/jobs/{job.job_id}" for job in some if job.owner == me)):
            page = opened(me, path)
            assert not [one for one in secrets if one in page], path
        unknown = browser.get("/jobs/nothing-there").text
        for job in (job for job in some if job.owner != me):
            refused = browser.get(f"/jobs/{job.job_id}")
            assert refused.status_code == 404
            assert SHOWN_AT.sub("", refused.text.replace(job.job_id, "nothing-there")) == (
                SHOWN_AT.sub("", unknown)
            )


def test_a_page_says_what_the_log_says(busy: Lived) -> None:
    view = busy.see("olga")
    waiting = next(j for j in view.jobs(Chosen(phase="queued")).items if j.owner == "ada.byron")
    standing = view.standing(waiting.job_id)
    assert standing is not None
    page = unescape(busy.browser("ada.byron").get(f"/jobs/{waiting.job_id}").text)
    assert waiting.name in page
    assert f"Number {standing.position} of {standing.waiting} in the queue" in page
    assert "estimate unavailable" in page  # nobody forecasts here
    # the estimate's terms are drawn, and their sum was checked
    assert "each term multiplies" in page.lower()
    assert "Contradiction" not in page
    assert "Among jobs that have ended" in busy.browser("olga").get("/fairness").text
    asked = f"/jobs/{waiting.job_id}/ask"
    part = busy.browser("ada.byron").get(asked, headers={"HX-Target": "part-answer"}).text
    assert "no analyst is running" in part
    assert "<html" not in part
    assert "There is no such job of yours" in busy.browser("grace.hopper").get(asked).text


def test_what_a_job_that_is_over_waited_for_is_of_then(some: list[JobRow], opened: Opened) -> None:
    seen = 0
    for job in some:
        page = opened("olga", f"/jobs/{job.job_id}")
        for remark in re.findall(r'<ul class="waits">.*?</ul>', page, re.DOTALL):
            if job.ended_at is not None:
                assert "as it began: " in remark
                assert "→" not in remark
                seen += 1
    assert seen


def test_page_api_and_command_line_say_the_same_of_how_long_a_job_should_run(
    busy: Lived, some: list[JobRow], opened: Opened
) -> None:
    browser, known = busy.browser("olga"), 0
    for job in some:
        told = browser.get(f"/api/v1/jobs/{job.job_id}/explain").json()
        if told["belief"] is None:
            continue
        found = told["belief"]
        begins = "It should run" if job.ended_at is None else "It was to run"
        begins = "It has run" if job.phase == "running" else begins
        read = says(decode(Explanation, told))["belief"]
        assert read.startswith(begins), job.phase
        assert read not in str(told), "the API gives values"
        assert found["p50_s"] <= (found["p90_s"] or found["p50_s"]) <= (job.time_limit_s or inf)
        page = unescape(opened("olga", f"/jobs/{job.job_id}"))
        assert f"<p>{read} <a" in page
        assert read in "\n".join(lines_of(decode(Explanation, told), 0.0, full=True))
        known += 1
    assert known > 3


def test_the_latest_ended_jobs_of_the_owner_and_name_are_what_a_belief_rests_on(
    busy: Lived,
) -> None:
    view = busy.see("ada.byron")
    own = [job for job in view.jobs(limit=100).items if job.owner == "ada.byron"]
    ended = [job for job in own if job.started_at is not None and job.ended_at is not None]
    assert ended
    for job in ended:
        other = next(one for one in own if one.name != job.name)
        named = sorted((one for one in ended if one.name == job.name), key=lambda j: -j.ended_at)
        ran_s = {one.job_id: pytest.approx(one.ended_at - one.started_at) for one in named}
        assert view.alike(replace(other, name=job.name)) == list(ran_s.values())
        del ran_s[job.job_id]  # itself does not count
        assert view.alike(job) == list(ran_s.values())
        assert busy.see("olga").alike(replace(other, name=job.name, owner="grace")) == []


def test_reason_codes_are_told_when_asked_for(
    busy: Lived, some: list[JobRow], opened: Opened
) -> None:
    for job in some:
        assert not CODES.search(opened("olga", f"/jobs/{job.job_id}"))
    waits = next(job for job in some if job.phase == "queued")
    assert CODES.search(busy.browser("olga").get(f"/jobs/{waits.job_id}?codes=1").text)


def test_who_shares_with_whom_is_drawn(busy: Lived) -> None:
    pairs = [j for j in busy.see("olga").jobs(Chosen(phase="running")).items if j.partner]
    assert pairs, "the morning should have packed somebody"
    page = unescape(busy.browser("olga").get("/").text)
    for job in pairs:
        assert re.search(
            rf'class="block (upper|lower)[^"]*"[^>]*href="/jobs/{job.job_id}"[^>]*'
            rf'shared with job {job.partner}"',
            page,
        )
        told = busy.browser("olga").get(f"/jobs/{job.job_id}").text
        assert "of its speed alone" in told
        assert "sharing score" in told


def test_categories_of_the_model_are_for_operators(busy: Lived) -> None:
    assert "secret-type" in busy.browser("olga").get("/models").text
    assert "secret-type" not in busy.browser("ada.byron").get("/models").text


def test_odd_requests_are_turned_down(busy: Lived) -> None:
    form = busy.browser("").get("/login?next=//evil.example&wrong=1")
    assert form.status_code == 200
    assert "evil.example" not in form.text
    assert "unknown, expired or revoked" in form.text
    browser = busy.browser("olga")
    assert browser.get("/?vc=nowhere").status_code == 200
    assert browser.get("/history?period=forever&state=odd").status_code == 200
    assert browser.get("/history?after=garbage").status_code == 422
    assert browser.get("/?vc=vision&after=garbage").status_code == 422
    assert browser.get("/static/vendor/../../render.py").status_code == 404


def test_a_part_is_the_same_as_in_the_page(busy: Lived) -> None:
    browser = busy.browser("olga")
    parts = {"/": "now", "/history?period=all": "history", "/fairness": "fairness"}
    for path, part in {**parts, "/nodes": "nodes"}.items():
        page = browser.get(path).text
        fragment = browser.get(path, headers={"HX-Target": f"part-{part}"}).text
        assert fragment.strip().startswith(f'<div id="part-{part}"')
        fragment, _, beside = fragment.partition('<div id="silent"')
        assert beside.startswith(' hx-swap-oob="true"></div>')
        assert fragment.strip() in page
        assert "<html" not in fragment


def test_files_are_ours_and_kept(busy: Lived) -> None:
    browser = busy.browser("")
    names = assets()
    library = "vendor/vega.min.js"
    own = [one for name, one in names.items() if name != library]
    assert sum(len(one.content) for one in own) < 200_000  # also from a slow cluster
    assert len(names[library].zipped) < 300_000
    for path, draws in (("/", False), ("/list", False), ("/nodes", False), ("/models", True)):
        shown = busy.browser("olga").get(path).text
        assert (f"/static/{library}" in shown) is ("data-chart" in shown) is draws, path
    page = busy.browser("ada.byron").get("/models").text
    for address in re.findall(r'(?:src|href)="(/static/[^"]+)"', page):
        answer = browser.get(address)
        assert answer.headers.get("content-encoding") == "gzip"
        assert names[address.removeprefix("/static/").partition("?")[0]].mark in address
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]
        name = address.removeprefix("/static/").partition("?")[0]
        assert answer.content == names[name].content
    plain = browser.get("/static/style.css", headers={"Accept-Encoding": "identity"})
    assert plain.content == names["style.css"].content


def test_of_jobs_that_are_over_history_is_and_of_nothing_else(busy: Lived) -> None:
    over = {j.job_id for j in busy.see("olga").jobs(limit=200).items if j.ended_at}
    first = busy.browser("olga").get("/history?period=all").text
    assert over >= set(re.findall(r'href="/jobs/([^"]+)"', first)) != set()


def test_the_predicted_duration_is_the_sum_of_what_the_api_gives(busy: Lived) -> None:
    browser, seen = busy.browser("olga"), 0
    for job in PageQueries(busy.store, busy.viewer("olga")).placed():
        told = browser.get(f"/api/v1/jobs/{job.job_id}/explain").json()
        if told["intercept"] is None:
            continue
        seen += 1
        log_s = told["intercept"] + math.fsum(t["log_seconds"] for t in told["contributions"])
        assert math.expm1(log_s) == pytest.approx(told["predicted_s"], rel=1e-9)
        assert told["predicted_s"] == pytest.approx(told["estimate_s"], rel=1e-6)
    assert seen


def test_the_board_counts_free_gpus_as_why_does(
    lived: Lived, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lived.world, "_truth", lambda _: JobOutcome(Work(1e4)))
    runs = [lived.submit("olga", vc="vision", gpus=2, share=False) for _ in range(2)]
    lived.settle(300)
    waits = lived.submit("olga", vc="vision", gpus=4, share=False)
    lived.settle(90)
    view = lived.see("olga")
    line = view.decisions(waits)[-1]
    assert line.body["free"] == 0
    lived.app.state.changes.cancel(lived.viewer("olga"), view.job(runs[0]))
    lived.settle(90)
    line = view.decisions(waits)[-1]
    why = first_words(
        decode(Explanation, lived.browser("olga").get(f"/api/v1/jobs/{waits}/explain").json())
    )
    page = unescape(lived.browser("olga").get("/").text)
    assert (line.body["free"], "2 of 4 are free" in why) == (0, True), "recorded earlier"
    assert why in page


def test_what_people_type_is_text(lived: Lived) -> None:
    name = "<script>alert(1)</script>\" onmouseover='x'"
    job = lived.submit("ada.byron", name=name, gpus=1, vc="vision", command=["<b>", "</script>"])
    lived.settle(30)
    for path in ("/", f"/jobs/{job}", "/history?vc=<script>&owner='\"><b>&after="):
        page = lived.browser("olga").get(path)
        assert page.status_code == 200
        assert "<script>alert" not in page.text
        assert "<b>" not in page.text


def test_a_service_that_stopped_deciding_says_so(lived: Lived) -> None:
    assert "No decider is active" not in lived.browser("ada.byron").get("/").text
    lived.decider.let_go()
    assert "No decider is active" in lived.browser("ada.byron").get("/").text


def test_every_page_is_opened_in_a_browser(lived: Lived) -> None:
    opened = [path.partition("?")[0] for _, path in addresses("waits", "runs", "ended", "array")]
    pages = {
        route.path
        for route in iter_route_contexts(lived.app.routes)
        if route.path and "GET" in (route.methods or ()) and not route.path.startswith("/api/")
    }
    assert len(pages) > 20
    assert pages >= ELSEWHERE
    for page in pages - ELSEWHERE:
        pattern, *_ = compile_path(page)
        assert any(pattern.match(path) for path in opened), f"{page}: add it to addresses.py"


def test_models_and_their_terms_are_read_from_the_copy_in_use(lived: Lived) -> None:
    lived.settle(1)
    champion = lived.settings.bundle
    assert champion is not None
    shutil.rmtree(champion)
    browser = lived.browser("olga")
    assert "No bundle of models is in use" not in browser.get("/models").text
    assert small_bundle().digest in names_of_terms(lived.see("ada.byron").bundle())
    shutil.rmtree(lived.settings.state_dir / "bundles")
    _read_bundle.cache_clear()
    assert "The copy of the bundle in use" in browser.get("/models").text


def test_in_front_of_slurm_durations_are_learned(store: Store, tmp_path: Path) -> None:
    """They were said not to be predicted."""
    Scene(store, order=False)
    settings = Settings(
        database="sqlite:///unused.db", state_dir=tmp_path, backend="slurm", slurm_mode="advise",
        auth="on",
    )  # fmt: skip
    secret = tokens.create(store, "olga", Role.OPERATOR, now=time.time())[1]
    browser = TestClient(create_app(settings, store=store))
    browser.cookies.set(COOKIE, secret)
    page = browser.get("/models").text
    assert "durations are learned from the jobs that were seen to run in Slurm" in page
    assert "not predicted" not in page


def test_a_prediction_that_moved_is_said_where_it_did(store: Store, tmp_path: Path) -> None:
    """The reason is the same one: without the prediction the lines would be alike."""
    core = CoreSpec.of(SPEC, "pellucid", {"predict_again_s": 60.0})
    service = begin(store, tmp_path, core, trained=False)
    asked = {"vc": "speech", "gpus": 4, "share": False}
    jobs = [service.submit("grace.hopper", name=f"sweep-{i}", **asked) for i in range(8)]
    service.settle(6000)
    view = service.see("grace.hopper")
    told = [line.text for line in view.story(jobs[4]) if line.kind == "decision"]
    assert told.count("needs 4 GPUs, 0 of 4 are free") > 1
    page = unescape(service.browser("grace.hopper").get(f"/jobs/{jobs[4]}").text)
    assert re.search(r"0 of 4 are free; predicted to run [^;<]+ \(last prediction: [^;<]+\)", page)
    assert "term 1" not in page  # no model is in use, and the terms have names
