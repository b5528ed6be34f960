"""Waiting jobs changed, held, released and cancelled from their page."""

from __future__ import annotations

import re
from html import unescape
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qsl

import pytest
from fastapi.testclient import TestClient

from features.clock import read_seconds
from scheduler.backends.events import Kind
from scheduler.core.request import CHANGEABLE
from scheduler.service.log.store.reads import Chosen
from scheduler.service.pages.asked import INPUTS, filled_in, wanted
from tests.scheduler.service.pages.conftest import Lived
from tests.scheduler.service.pages.test_operations import fields


@pytest.fixture
def waiting(lived: Lived) -> str:
    """A job of Ada's that waits: the other node of vision is for profiling."""
    lived.submit("grace.hopper", gpus=4, vc="vision")
    lived.settle(1)
    job = lived.submit("ada.byron", gpus=4, vc="vision", name="sweep")
    lived.settle(1)
    assert lived.see("ada.byron").job(job).phase == "queued"
    return job


def test_its_owner_changes_a_waiting_job_after_a_preview(lived: Lived, waiting: str) -> None:
    ada = lived.browser("ada.byron")
    shown = ada.get("/").text
    assert waiting in shown
    assert "0 of 4 GPUs free" in shown, "those for profiling are left out"
    assert len(re.findall(r'class="node-name".*<small class="muted">profiling</small>', shown)) == 1
    assert "for profiling: all free" in shown
    page = ada.get(f"/jobs/{waiting}").text
    assert "Preview the change" in page
    form = page[: page.index("Preview the change")].rpartition("<form")[2]
    offered = re.findall(r'<(?:input|select)[^>]* name="(\w+)"', form)
    changeable = {name[:-2] if one.ask.unit else name for name, one in CHANGEABLE.items()}
    assert set(offered) == changeable - {"vc"}, "hers is the only one she may use"
    seq = lived.store.last_seq()
    asked = f"/jobs/{waiting}/act?do=change&gpus=3&time_limit=30m&share=no&vc=&comment=table+4"
    preview = ada.get(asked)
    assert preview.status_code == 200
    assert "It keeps its place" in preview.text
    assert "4 → 3" in preview.text
    assert "no limit → 30 min" in preview.text
    assert "<dt>comment</dt><dd>none → table 4</dd>" in preview.text
    assert "No preview: no analyst is running." in preview.text
    assert lived.store.last_seq() == seq, "a preview changes nothing"
    done = ada.post(f"/jobs/{waiting}/act", data=fields(preview.text))
    assert (done.status_code, done.headers["location"]) == (303, f"/jobs/{waiting}")
    lived.settle(1)
    [event] = lived.store.read(kinds=[Kind.CHANGED])
    assert (event.actor, event.body) == (
        "ada.byron", {"gpus": 3, "time_limit_s": 1800.0, "share": False, "comment": "table 4"}
    )  # fmt: skip
    assert lived.see("ada.byron").job(waiting).gpus == 3
    page = ada.get(f"/jobs/{waiting}").text
    assert "with 3 GPUs, with a time limit of 0.5 h" in page
    assert "<dt>comment</dt><dd>table 4</dd>" in page
    assert "nothing to do" in ada.get(asked).text


def test_it_is_held_released_and_cancelled(lived: Lived, waiting: str) -> None:
    ada, olga = lived.browser("ada.byron"), lived.browser("olga")

    def does(browser: TestClient, what: str) -> None:
        preview = browser.get(f"/jobs/{waiting}/act?do={what}")
        assert preview.status_code == 200
        sent = fields(preview.text)
        assert browser.post(f"/jobs/{waiting}/act", data=sent).status_code == 303
        lived.settle(1)

    does(ada, "hold")
    page = ada.get(f"/jobs/{waiting}").text
    assert "Held by its owner since <time" in page
    assert 'value="release"' in page
    assert 'value="hold"' not in page
    assert "What would get it in sooner?" not in page
    assert "held by its owner since <time" in ada.get("/").text
    assert "held by" not in lived.browser("grace.hopper").get("/").text
    does(olga, "hold")
    page = ada.get(f"/jobs/{waiting}").text
    assert "Held by an operator since <time" in page
    assert "Only an operator can release it." in page
    assert "nothing to do" in ada.get(f"/jobs/{waiting}/act?do=hold").text
    assert 'value="release"' not in page
    assert "olga" not in page
    refused = ada.get(f"/jobs/{waiting}/act?do=release")
    assert refused.status_code == 403
    assert '<form class="filter" method="post"' not in refused.text
    does(olga, "release")
    assert 'value="hold"' in ada.get(f"/jobs/{waiting}").text
    does(ada, "cancel")
    assert lived.see("ada.byron").job(waiting).phase == "cancelled"
    assert 'value="cancel"' not in ada.get(f"/jobs/{waiting}").text
    assert "nothing to do" in ada.get(f"/jobs/{waiting}/act?do=cancel").text


def test_only_our_own_form_of_its_owner_does_anything(lived: Lived, waiting: str) -> None:
    ada, grace = lived.browser("ada.byron"), lived.browser("grace.hopper")
    where = f"/jobs/{waiting}/act"
    word = fields(ada.get(f"{where}?do=hold").text)["csrf"]
    theirs = fields(grace.get("/nodes").text + '<form class="filter" method="post"')
    assert theirs == {}
    assert ada.post(where, data={"do": "hold"}).status_code == 403
    assert ada.post(where, data={"do": "hold", "csrf": "0" * 64}).status_code == 403
    headers = {"Origin": "https://evil.example"}
    assert ada.post(where, data={"do": "hold", "csrf": word}, headers=headers).status_code == 403
    assert grace.post(where, data={"do": "hold", "csrf": word}).status_code == 403
    assert grace.get(f"{where}?do=hold").status_code == 404
    assert lived.store.read(kinds=[Kind.HELD]) == []


@pytest.mark.parametrize(
    ("query", "status", "said"),
    [
        ("do=change", 422, "Say what is to be different"),
        ("do=change&gpus=x", 422, "GPUs is x; give a whole number from 1 up to 1,000,000."),
        ("do=change&time_limit=tomorrow", 422, ">Time limit is tomorrow; give a time above 0: sec"),
        ("do=change&time_limit=nan", 422, "Time limit is nan; give"),
        ("do=change&time_limit=25:99", 422, "Time limit is 25:99; give"),
        ("do=change&time_limit=0", 422, "Time limit is 0; give a time above 0"),
        ("do=change&share=maybe", 422, "May share GPUs is maybe; give yes or no."),
        ("do=change&comment=a%0Ab", 422, "give a line of 1 to 256 characters."),
        ("do=change&gpus=400", 422, "more than the 4 GPUs of vision"),
        ("do=change&vc=speech", 403, "you may submit to: vision"),
        ("do=explode", 422, "A job can be changed, held"),
        ("", 422, "A job can be changed, held"),
    ],
)
def test_what_cannot_be_is_said_on_the_page(
    busy: Lived, query: str, status: int, said: str
) -> None:
    queued = busy.see("ada.byron").jobs(Chosen(phase="queued", vc="vision")).items
    waiting = next(job.job_id for job in queued if job.owner == "ada.byron")
    answer = busy.browser("ada.byron").get(f"/jobs/{waiting}/act?{query}")
    assert (answer.status_code, said in answer.text) == (status, True), answer.text
    assert '<form class="filter" method="post"' not in answer.text


def test_what_helps_leads_to_its_preview_and_does_what_was_said(
    lived: Lived, monkeypatch: pytest.MonkeyPatch
) -> None:
    lived.submit("grace.hopper", gpus=4, vc="vision")
    lived.settle(1)
    job = lived.submit("grace.hopper", gpus=4, vc="vision", name="sweep", profile=False)
    lived.settle(1)
    lived.analysed(monkeypatch)
    grace = lived.browser("grace.hopper")
    answer = grace.get(f"/jobs/{job}/ask").text
    assert f"<code>pellucid change {job} --vc speech</code>" in answer
    [link] = [
        unescape(found)
        for found in re.findall(r'<a href="([^"]*/act[^"]*)">Do it here</a>', answer)
        if "vc=speech" in found
    ]
    preview = grace.get(link)
    assert "vision → speech" in preview.text
    assert "it starts at once" in preview.text
    assert grace.post(f"/jobs/{job}/act", data=fields(preview.text)).status_code == 303
    lived.settle(1)
    assert lived.see("grace.hopper").job(job).phase in ("starting", "running")


def test_a_change_is_filled_into_the_form_as_it_was_tried() -> None:
    tried: dict[str, Any] = {"gpus": 2, "time_limit_s": 90.0, "share": False, "comment": "a & b"}
    given = dict.fromkeys((one.name for one in INPUTS.values()), "")
    assert wanted(given | dict(parse_qsl(filled_in(tried)))).given() == tried
    assert filled_in({"first": True}) == filled_in({"gpus": 2, "gpu_type": ""}) == ""
    now = INPUTS["time_limit_s"].now(SimpleNamespace(time_limit_s=93_630.0))  # type: ignore[arg-type]
    assert now == "26:00:30"


@pytest.mark.parametrize("text", ["1:30", "1:30:00", "90", "90m", "2-12", "1.5h", "25:99", "x"])
def test_a_time_means_on_a_page_what_it_means_on_the_command_line(text: str) -> None:
    try:
        on_command_line: float | str = read_seconds(text)
    except ValueError:
        on_command_line = text
    assert INPUTS["time_limit_s"].read(text) == on_command_line


def test_who_may_not_change_a_job_has_nothing_read(
    lived: Lived, waiting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[object] = []
    monkeypatch.setattr("scheduler.service.pages.acting.wanted", read.append)
    asked = f"/jobs/{waiting}/act?do=change&time_limit=1"
    assert lived.browser("grace.hopper").get(asked).status_code == 404
    assert read == []


def test_a_time_as_long_as_a_book_is_refused(lived: Lived, waiting: str) -> None:
    asked = f"/jobs/{waiting}/act?do=change&time_limit=1{'+' * 10_000}x:"
    answer = lived.browser("ada.byron").get(asked)
    assert answer.status_code == 422
    assert "is longer than 32 characters" in answer.text
