"""Writes by slurmrestd, as its answers were seen from 22.05."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from scheduler.backends.slurm.client import Slurm, SlurmDown, SlurmError
from scheduler.backends.slurm.rest import RestSlurm, job, token_of
from scheduler.backends.slurm.script import options
from scheduler.backends.slurm.shape import Shape
from scheduler.service.settings import SettingsError, read_settings
from scheduler.service.slurm import slurm_of
from tests.scheduler.backends.test_slurm_late import NODE, OURS, a_launch

HELD = {"error_code": 2042, "error": "Job is in held state, pending scheduler release"}
Answer = Callable[[httpx2.Request], httpx2.Response]


def rest(answer: Answer, **more: Any) -> tuple[RestSlurm, list[httpx2.Request]]:
    heard: list[httpx2.Request] = []

    def told(request: httpx2.Request) -> httpx2.Response:
        heard.append(request)
        return answer(request)

    slurm = RestSlurm("http://slurm", "ada", lambda: "secret", **more)
    slurm._http = httpx2.Client(transport=httpx2.MockTransport(told), base_url="http://slurm")
    return slurm, heard


def says(status: int, **body: Any) -> Answer:
    return lambda _: httpx2.Response(status, json=body)


ASKED = options(a_launch(), Shape.of([NODE]), Path("/out"), "site")


def test_a_job_is_submitted_held() -> None:
    slurm, heard = rest(says(200, errors=[HELD], job_id=7))
    assert slurm.submit(ASKED, "#!/bin/sh\n") == "7"
    (request,) = heard
    assert (request.method, request.url.path) == ("POST", "/slurm/v0.0.38/job/submit")
    assert request.headers["X-SLURM-USER-NAME"] == "ada"
    assert request.headers["X-SLURM-USER-TOKEN"] == "secret"
    assert json.loads(request.content) == {
        "script": "#!/bin/sh\n",
        "job": {
            "hold": True,
            "requeue": False,
            "environment": {"PATH": "/usr/bin:/bin"},
            "name": f"{OURS}.1",
            "comment": f"pellucid:site:{OURS}/1",
            "partition": "main",
            "nodes": [1, 1],
            "tasks": 1,
            "current_working_directory": "/",
            "standard_output": "/out",
        },
    }


def test_an_option_it_does_not_know_is_not_left_out() -> None:
    with pytest.raises(SlurmError, match="--gpus"):
        job(["--hold", "--gpus=3"])


def test_jobs_are_released_and_cancelled() -> None:
    slurm, heard = rest(says(200, errors=[]))
    assert slurm.write(["release 7", "release 8"]) == ["", ""]
    slurm.cancel("7")
    asked = [(r.method, r.url.path.rpartition("/")[2], r.content) for r in heard]
    assert asked == [
        ("POST", "7", b'{"hold":false}'),
        ("POST", "8", b'{"hold":false}'),
        ("DELETE", "7", b""),
    ]


def test_what_it_cannot_say_goes_by_slurms_own_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def heard_by_commands(_: Slurm, what: object, *rest: object) -> list[str]:
        asked.append(what)
        return ["no"]

    for name in ("submit", "cancel", "write"):
        monkeypatch.setattr(Slurm, name, heard_by_commands)
    slurm, heard = rest(says(200, errors=[]))
    slurm.cancel("8_1")
    update = "update jobid=7 ReqNodeList=n1 Gres=slot:g1:1"
    assert slurm.write([update, "release 8_1", "release 7"]) == ["no", "no", ""]
    slurm.submit(["--hold", "--uid=ada"], "")
    assert asked == ["8_1", [update], ["release 8_1"], ["--hold", "--uid=ada"]]
    assert len(heard) == 1


def test_what_it_refuses_is_refused() -> None:
    slurm, _ = rest(says(500, errors=[{"error_number": 2017, "error": "Invalid job id specified"}]))
    assert slurm.write(["release 7"]) == ["Invalid job id specified"]
    with pytest.raises(SlurmError, match="Invalid job id"):
        slurm.cancel("7")


@pytest.mark.parametrize(
    "answer",
    [
        lambda _: httpx2.Response(401, text="Authentication failure"),
        says(500, errors=[{"error_number": 1007, "error": "Protocol authentication error"}]),
        says(500, errors=[{"error": "Unable to contact slurm controller (connect failure)"}]),
        lambda _: (_ for _ in ()).throw(httpx2.ConnectError("refused")),
        lambda _: httpx2.Response(502, text="<html>"),
    ],
)
def test_no_answer_is_no_refusal_and_is_not_asked_for_again_at_once(answer: Answer) -> None:
    slurm, heard = rest(answer)
    for _ in range(2):
        with pytest.raises(SlurmDown):
            slurm.submit(ASKED, "")
    assert len(heard) == 1


def test_a_dry_run_sends_nothing() -> None:
    shown: list[str] = []
    slurm, heard = rest(says(200), show=shown.append)
    slurm.submit(ASKED, "")
    slurm.write(["release 7"])
    slurm.cancel("7")
    assert [line.split()[0] for line in shown] == ["sbatch", "scontrol", "scancel"]
    assert heard == []


def test_a_token_is_read_from_a_file_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    monkeypatch.delenv("SLURM_JWT", raising=False)
    with pytest.raises(SettingsError, match="SLURM_JWT"):
        slurm_of(read_settings(None, slurm_rest="http://slurm"))
    with pytest.raises(SettingsError, match="token"):
        slurm_of(read_settings(None, slurm_rest="http://slurm", slurm_rest_token=file))
    file.write_text("SLURM_JWT=a.b.c\n")
    assert token_of(file) == "a.b.c"
    assert isinstance(
        slurm_of(read_settings(None, slurm_rest="http://s", slurm_rest_token=file)), RestSlurm
    )
    monkeypatch.setenv("SLURM_JWT", "d.e.f")
    assert isinstance(slurm_of(read_settings(None, slurm_rest="http://slurm")), RestSlurm)
