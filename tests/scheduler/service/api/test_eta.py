"""When a job would start that is not submitted: asked of a service that decides itself."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from pipeline.errors import UserError
from scheduler.backends.events import Kind
from scheduler.explain.effect import NewJob
from scheduler.explain.new_job import sentences
from scheduler.service.api.auth import COOKIE
from scheduler.service.log.store.store import Store
from scheduler.slurm.read.request import RequestError, plainly
from tests.scheduler.service.api.conftest import Service, listening
from tests.scheduler.service.api.test_analyst import analysed
from tests.scheduler.service.pages.test_operations import fields

ETA = "/api/v1/jobs/eta"
COMMAND = ["train", "100", "30"]


@pytest.fixture
def answered(store: Store, tmp_path: Path) -> Iterator[Service]:
    with analysed(store, tmp_path) as service:
        yield service


def asked(service: Service, who: str = "alice", **more: Any) -> dict[str, Any]:
    answer = service.by(who).post(ETA, json={"command": COMMAND, "gpus": 4, "vc": "vision", **more})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def test_a_job_that_would_wait_is_given_its_start_and_how_long_it_runs(answered: Service) -> None:
    before = answered.store.read(kinds=[Kind.SUBMITTED])
    found = asked(answered)
    assert (found["unavailable"], found["starts_now"], found["reason"]) == ("", False, "GpusBusy")
    assert found["now"] < found["start_p50"] <= found["start_p90"]
    assert 0 < found["lasts_p50_s"] <= found["lasts_p90_s"]
    assert found["odds"].keys() == {"over_1h", "over_6h", "over_1d"}
    assert found["futures"] > 0
    assert found["latest"] is None
    assert "no time limit" in found["no_latest"]
    assert "bob" not in str(found)
    answered.turn(2)
    assert answered.by("alice").get("/api/v1/jobs").json()["items"] == []
    assert answered.store.read(kinds=[Kind.SUBMITTED]) == before, "nothing is submitted"
    # submitted after all, it waits for the same, and about as long
    job = answered.submit("alice", 100, gpus=4)
    answered.turn(2)
    told = answered.by("alice").get(f"/api/v1/jobs/{job}/explain", params={"analyse": True}).json()
    assert told["reason"] == found["reason"]


def test_a_job_that_would_start_at_once_is_told_so_and_one_that_never_could_is_refused(
    answered: Service,
) -> None:
    free = asked(answered, "bob.noyce", vc="speech", gpus=2)
    assert free["starts_now"]
    assert free["start_p50"] == free["now"]
    assert sentences(NewJob(**free))[0] == "In speech, with 2 GPUs: it starts at once."
    body = {"command": COMMAND, "gpus": 400, "vc": "vision"}
    never = answered.by("alice").post(ETA, json=body)
    assert (never.status_code, "more than the 8 GPUs" in never.text) == (422, True)


def test_the_form_says_of_a_job_what_the_interface_says(answered: Service) -> None:
    browser = TestClient(answered.app, follow_redirects=False)
    browser.cookies.set(COOKIE, answered.secrets["alice"])
    sent = fields(browser.get("/submit").text)
    sent |= {"command": " ".join(COMMAND), "gpus": "4", "vc": "vision"}
    page = browser.post("/submit/eta", data=sent)
    assert page.status_code == 200
    text = unescape(page.text)
    assert "In vision, with 4 GPUs: it starts about " in text
    assert "unavailable" not in text
    runs = next(line for line in sentences(NewJob(**asked(answered))) if "should run" in line)
    assert runs in text


def test_who_may_not_submit_may_not_ask_and_without_an_analyst_it_says_so(
    service: Service,
) -> None:
    body = {"command": COMMAND, "gpus": 1, "vc": "speech"}
    assert service.by("alice").post(ETA, json=body).status_code == 403
    found = service.by("alice").post(ETA, json=body | {"vc": "vision"}).json()
    assert found["unavailable"] == "no analyst is running"
    assert sentences(NewJob(**found)) == ["estimate unavailable: no analyst is running"]


def test_options_of_sbatch_are_asked_of_a_service_that_decides_itself(
    answered: Service, tmp_path: Path
) -> None:
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\n#SBATCH --gres=gpu:4 -t 60\ntrain\n")
    starts = "In vision, with 4 GPUs: it starts about "
    for address in listening(answered.app):
        run = partial(answered.command, address, "alice")
        done = run("eta", "--", "--mem=4G", "-p", "vision", str(script))
        assert done.exit_code == 0, done.exception
        lines = [line for line in done.output.splitlines() if "[info" not in line]
        assert lines[0].startswith(starts)
        assert lines[-1] == "Not counted, there is no Slurm here: --mem."
        tried = run("submit", "--preview", "--gpus", "4", "--vc", "vision", "--", "train", "60")
        assert starts in tried.output
        assert run("ps").output.count("\n") == 1, "nothing is submitted"
        assert isinstance(run("eta", "--", "--gpus=a100:2,v100:1").exception, UserError)


def test_what_options_ask_for_without_a_slurm() -> None:
    found = plainly(["-N2", "--gres=gpu:a100:4", "-t", "1:30:00", "a.sh", "7"])
    assert (found.command, found.left) == (["a.sh", "7"], [])
    assert (found.gpus, found.gpu_type, found.time_limit_s) == (8, "a100", 5400.0)
    more = plainly(["--gpus=2", "-J", "x", "-p", "vision", "--exclusive", "--qos=high"])
    assert (more.gpus, more.vc, more.name, more.share) == (2, "vision", "x", False)
    assert (more.command, more.left) == ([], ["--qos"])
    assert plainly(["--cpus-per-task=4"]).gpus == 0


def test_gpus_of_several_types_are_refused() -> None:
    with pytest.raises(RequestError, match="several types"):
        plainly(["--gpus=a100:2,v100:1"])


def test_what_one_has_had_is_shown_to_them_and_of_others_to_operators(answered: Service) -> None:
    mine = answered.by("bob.noyce").get("/api/v1/share").json()
    assert mine["user"] == "bob.noyce"
    asked = answered.by("olga").get("/api/v1/share", params={"user": "bob.noyce"}).json()
    assert [one["of"] for one in asked["shares"]] == [one["of"] for one in mine["shares"]]
    other = answered.by("alice").get("/api/v1/share", params={"user": "bob.noyce"})
    assert other.status_code == 403
    assert [one["of"] for one in mine["shares"]] == ["virtual cluster vision"]


def test_an_owner_is_asked_how_long_it_runs_only_where_that_is_open(answered: Service) -> None:
    new = asked(answered, "alice")
    assert 0.1 <= new["odds"]["over_1h"] <= 0.6, "nobody knows yet"
    assert new["asks"]
    lines = sentences(NewJob(**new))
    assert any("--expect" in line for line in lines)
    assert any("run over 1 h" in line for line in lines)
    stated = asked(answered, "alice", expect="1d")
    assert stated["odds"]["over_6h"] > new["odds"]["over_6h"] + 0.2
    assert not stated["asks"]
    assert not any("--expect" in line for line in sentences(NewJob(**stated)))
    sure = NewJob(**{**new, "odds": {"over_1h": 0.02, "over_6h": 0.0}, "asks": False})
    assert not any("of a hundred" in line.lower() for line in sentences(sure))
