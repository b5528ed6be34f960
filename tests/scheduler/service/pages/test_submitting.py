"""A job submitted from a page."""

from __future__ import annotations

import re
from html import unescape

from sqlalchemy import update

from scheduler.core.request import FIELDS
from scheduler.service.log.store.tables import jobs
from tests.scheduler.service.pages.conftest import Lived
from tests.scheduler.service.pages.test_operations import fields


def test_the_form_has_every_declared_field_and_submits(lived: Lived) -> None:
    ada = lived.browser("ada.byron")
    assert 'href="/submit"' in ada.get("/").text
    page = ada.get("/submit").text
    offered = set(re.findall(r'<(?:input|select)[^>]* name="(\w+)"', page))
    names = {n[:-2] if one.ask.unit == "s" else n for n, one in FIELDS.items()}
    assert offered == (names - {"priority"}) | {"csrf", "key", "command", "workdir", "array"}
    lived.app.state.changes.mails = False
    assert 'name="notify"' not in ada.get("/submit").text, "nobody would send them"
    asks = {"gpus": "2", "time_limit": "1:30:00", "share": "no", "name": "from a page"}
    sent = fields(page) | {"command": "python3 -c 'print(1)'", **asks}
    done = ada.post("/submit", data=sent)
    assert done.status_code == 303, unescape(done.text)
    job = lived.see("ada.byron").job(done.headers["location"].removeprefix("/jobs/"))
    assert (job.gpus, job.time_limit_s, job.share) == (2, 5400.0, False)
    assert (job.name, job.owner, job.vc) == ("from a page", "ada.byron", "vision")
    again = ada.post("/submit", data=sent)  # a click too many
    assert again.headers["location"] == done.headers["location"]


def test_what_is_wrong_is_said_and_nothing_that_was_filled_in_is_lost(busy: Lived) -> None:
    ada = busy.browser("ada.byron")
    page = ada.get("/submit").text
    before = busy.store.last_seq()
    for wrong, says in (
        ({"command": ""}, "say what is to run"),
        ({"command": "echo 'x"}, "Command: No closing quotation"),
        ({"gpus": "many"}, "GPUs is many; give a whole number from 1"),
        ({"vc": "speech"}, "speech"),
        ({"array": "3-1"}, "Array is 3-1; give 0-9"),
        ({"workdir": "here"}, "give an absolute path"),
    ):
        sent = fields(page) | {"command": "true", "comment": '"><b>kept</b>', **wrong}
        refused = ada.post("/submit", data=sent)
        assert refused.status_code in (403, 422), wrong
        assert says in unescape(refused.text)
        assert 'value="&#34;&gt;&lt;b&gt;kept' in refused.text
    assert busy.store.last_seq() == before
    assert ada.post("/submit", data={"command": "true"}).status_code == 403, "without our word"


def test_the_form_says_when_a_job_would_start_and_keeps_what_was_filled_in(busy: Lived) -> None:
    ada = busy.browser("ada.byron")
    page, before = ada.get("/submit").text, busy.store.last_seq()
    assert 'formaction="/submit/eta"' in page
    sent = fields(page) | {"command": "train 5", "gpus": "2", "array": "0-3"}
    shown = ada.post("/submit/eta", data=sent)
    assert shown.status_code == 200
    assert "estimate unavailable: no analyst is running" in unescape(shown.text)
    assert 'value="train 5"' in shown.text
    wrong = ada.post("/submit/eta", data=sent | {"gpus": "many"})
    assert "GPUs is many" in unescape(wrong.text)
    assert busy.store.last_seq() == before


def test_an_array_is_submitted_and_its_id_shows_a_task(lived: Lived) -> None:
    ada = lived.browser("ada.byron")
    sent = fields(ada.get("/submit").text) | {"command": "train", "array": "0-4%2"}
    where = ada.post("/submit", data=sent).headers["location"]
    array = where.removeprefix("/arrays/")
    assert [job.job_id for job in lived.see("ada.byron").tasks(array)] == [
        f"{array}_{number}" for number in range(5)
    ]
    assert ada.post("/submit", data=sent).headers["location"] == where
    assert f"{array}_" in ada.get(f"/jobs/{array}").text
    assert ada.get(f"/jobs/{array}x").status_code == 404


def test_a_job_is_submitted_again_and_alone(lived: Lived) -> None:
    ada = lived.browser("ada.byron")
    job = lived.submit("ada.byron", name="first", gpus=2, vc="vision", time_limit_s=5400.0)
    theirs = lived.submit("grace.hopper", name="secret", gpus=1, vc="speech")
    page = ada.get(f"/submit?again={job}&alone=1").text
    assert f'As job <a href="/jobs/{job}">' in page
    shown = dict(re.findall(r'<input[^>]* name="(\w+)"[^>]* value="([^"]*)"', page))
    assert (shown["command"], shown["gpus"], shown["name"]) == ("train", "2", "first")
    sent = {name: text for name, text in shown.items() if text} | fields(page)
    assert re.search(r'name="share">.*?<option selected>no</option>', page, re.DOTALL)
    done = ada.post("/submit", data=sent | {"share": "no"})
    again = lived.see("ada.byron").job(done.headers["location"].removeprefix("/jobs/"))
    assert (again.gpus, again.time_limit_s, again.share) == (2, 5400.0, False)
    assert again.job_id != job
    refused = ada.get(f"/submit?again={theirs}")
    assert refused.status_code == 404
    assert "secret" not in refused.text


def test_what_ran_out_of_memory_is_run_again_with_more_or_alone(lived: Lived) -> None:
    ada = lived.browser("ada.byron")
    job = lived.submit("ada.byron", gpus=1, vc="vision", memory_mib=600.0)
    lived.settle(30_000)
    with lived.store.writing() as connection:
        ended = update(jobs).where(jobs.c.job_id == job)
        connection.execute(ended.values(state="out_of_memory", detail="held more than its 600 MiB"))
    page = ada.get(f"/jobs/{job}").text
    assert "Held more than its 600 MiB." in page
    offers = [unescape(one) for one in re.findall(r'href="(/submit\?again=[^"]*)"', page)]
    assert offers == [f"/submit?again={job}{more}" for more in ("&memory=1200", "&alone=1", "")]
    assert "with 1,200 MiB of host memory" in page
    form = ada.get(offers[0]).text
    assert re.search(r'name="memory_mib"[^>]* value="1200"', form)
    assert "<details open>" in form, "what is filled in is seen"
