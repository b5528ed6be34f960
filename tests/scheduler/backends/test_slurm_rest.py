"""Writes by slurmrestd, as its answers were seen from 22.05."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from scheduler.backends.slurm.backend import SlurmBackend
from scheduler.backends.slurm.client import RestDown, Slurm, SlurmDown, SlurmError
from scheduler.backends.slurm.parse import Row, SlurmJob
from scheduler.backends.slurm.rest import RestSlurm, job, token_of, word_of
from scheduler.backends.slurm.script import options
from scheduler.backends.slurm.shape import Shape
from scheduler.service.backends import slurm_of
from scheduler.service.settings import SettingsError, read_settings
from tests.scheduler.backends.test_slurm_late import NODE, OURS, PACE, LateSlurm, a_launch

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
        return ["no"] * len(what)  # type: ignore[arg-type]

    for name in ("submit", "cancel", "write"):
        monkeypatch.setattr(Slurm, name, heard_by_commands)
    slurm, heard = rest(says(200, errors=[]))
    slurm.cancel("8_1")
    update = "update jobid=7 ReqNodeList=n1 Gres=slot:g1:1"
    assert slurm.write([update, "release 8_1", "release 7"]) == ["no", "no", ""]
    slurm.submit(["--hold", "--uid=ada"], "")
    assert asked == ["8_1", [update, "release 8_1"], ["--hold", "--uid=ada"]]
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
        lambda _: httpx2.Response(401, json="Authentication failure"),
        lambda _: httpx2.Response(200, json=[]),
        lambda _: httpx2.Response(200, json={"status": "ok"}),  # another server
        lambda _: httpx2.Response(404, json={"detail": "Not Found"}),
        says(200, errors=[]),
        says(200, errors=[], job_id=[7]),
        says(500, errors="Protocol authentication error"),
    ],
)
def test_no_answer_is_no_refusal_and_is_not_asked_for_again_at_once(answer: Answer) -> None:
    slurm, heard = rest(answer)
    for _ in range(2):
        with pytest.raises(SlurmDown):
            slurm.submit(ASKED, "")
    assert len(heard) == 1


@pytest.mark.parametrize("errors", ["x", ["x"], {"error": "x"}, [{"description": "x"}], [["x"]]])
def test_errors_of_any_shape_are_told(errors: object) -> None:
    slurm, _ = rest(says(500, errors=errors))
    with pytest.raises(SlurmError, match="x"):
        slurm.cancel("7")


@pytest.mark.parametrize("token", ["", " \n", "s\u00e9cret", "s\x00t"])
def test_a_token_that_no_header_can_hold_is_not_sent(
    token: str, capsys: pytest.CaptureFixture[str]
) -> None:
    slurm, heard = rest(says(200, errors=[]))
    slurm._token = lambda: token
    for _ in range(2):
        with pytest.raises(RestDown) as down:
            slurm.cancel("7")
        assert not token.strip() or token not in str(down.value)
    assert heard == []
    assert not token.strip() or token not in capsys.readouterr().out
    slurm, heard = rest(says(200, errors=[]))
    slurm._token = lambda: "SLURM_JWT=a.b.c\nanother"
    slurm.cancel("7")
    assert heard[0].headers["X-SLURM-USER-TOKEN"] == "a.b.c"


def test_a_name_that_json_cannot_have_ends_its_job_only() -> None:
    slurm, _ = rest(says(200, errors=[], job_id=7))
    with pytest.raises(SlurmError):
        slurm.submit(["--hold", "--job-name=\udc80"], "")
    assert slurm.submit(ASKED, "") == "7"


class TwoDoors(RestSlurm):
    """A controller that always answers, behind a slurmrestd that need not."""

    def __init__(self, token: Callable[[], str]) -> None:
        self.behind, self.requests, self.time = LateSlurm(), 0, 0.0
        super().__init__("http://slurm", "ada", token, clock=lambda: self.time)
        self._http = httpx2.Client(
            transport=httpx2.MockTransport(self._hears), base_url="http://slurm"
        )

    def _hears(self, request: httpx2.Request) -> httpx2.Response:
        self.requests += 1
        if request.headers["X-SLURM-USER-TOKEN"] != "secret":
            return httpx2.Response(401, text="Authentication failure")
        job_id = request.url.path.rpartition("/")[2]
        told: dict[str, object] = {"errors": []}
        if job_id == "submit":
            comment = json.loads(request.content)["job"]["comment"]
            told["job_id"] = int(self.behind.submit([f"--comment={comment}"], ""))
        elif request.method == "POST":
            self.behind.write([f"release {job_id}"])
        else:
            self.behind.cancel(job_id)
        return httpx2.Response(200, json=told)

    def write(self, lines: list[str]) -> list[str]:  # type: ignore[override]
        mine = [line for line in lines if line.startswith("update")]
        if mine:
            return self.behind.write(mine)
        return super().write(lines)

    def jobs(self) -> list[SlurmJob]:
        self._turns.answered()
        return self.behind.jobs()

    def rows(self) -> dict[str, Row]:
        self._turns.answered()
        return self.behind.rows()

    def record(self, job_id: str, submitted: float | None) -> None:
        return None


def test_while_slurmrestd_is_down_ends_are_seen_and_pauses_grow(tmp_path: Path) -> None:
    words = ["secret"]
    slurm = TwoDoors(lambda: words[0])
    there = slurm.behind.there
    backend = SlurmBackend(tmp_path / "slurm", Shape.of([NODE]), slurm, adopts=False, pace=PACE)
    backend.launch(a_launch())
    for _ in range(5):
        backend.acknowledge(backend.reports(0))
    assert there["100"].state == "RUNNING"
    words[0] = "ran out"
    second = "bcdefghjkmnp"
    backend.launch(replace(a_launch(second), gpus=((1,),)))
    asked, outage = slurm.requests, backend.timing.outage
    assert backend.reports(0) == []
    there["100"] = replace(there["100"], state="COMPLETED", end=float(int(time.time())))
    (end,) = backend.reports(1.0)
    assert (end.job_id, end.what.final) == (OURS, True)
    backend.acknowledge([end])
    for _ in range(100):  # a minute
        slurm.time += 0.6
        backend.timing.act_at = 0.0
        assert backend.reports(0) == []
    assert slurm.requests - asked < 16
    assert backend.timing.act_at > time.monotonic()
    assert backend.timing.outage == outage  # nothing that others hold is let go
    words[0] = "secret"
    slurm.time += 9.0
    backend.timing.act_at = 0.0
    (start,) = backend.reports(1.0)
    assert (start.job_id, sorted(there)) == (second, ["100", "101"])
    backend.close()


def test_a_release_that_slurmrestd_did_not_hear_is_repeated_and_no_other(tmp_path: Path) -> None:
    left = [3]  # requests until the token runs out

    def token() -> str:
        left[0] -= 1
        return "secret" if left[0] >= 0 else "ran out"

    slurm = TwoDoors(token)
    there = slurm.behind.there
    backend = SlurmBackend(tmp_path / "slurm", Shape.of([NODE]), slurm, adopts=False, pace=PACE)
    backend.launch(a_launch())
    backend.commands.act()
    there["100"] = replace(there["100"], state="PENDING", priority=0, start=None)  # held by hand
    second = "bcdefghjkmnp"
    backend.launch(replace(a_launch(second), gpus=((1,),)))
    assert backend.reports(0) == []
    assert (there["101"].placed, there["101"].priority) == (True, 0)
    left[0], slurm.time = 100, 9.0
    backend.timing.act_at = 0.0
    (start,) = backend.reports(1.0)
    assert start.job_id == second
    assert there["101"].state == "RUNNING"
    assert there["100"].priority == 0
    backend.close()


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
    place: dict[str, Any] = {"slurm_mode": "place", "slurm_rest": "http://slurm"}
    with pytest.raises(SettingsError, match="SLURM_JWT"):
        slurm_of(read_settings(None, **place))
    with pytest.raises(SettingsError, match="token"):
        slurm_of(read_settings(None, **place, slurm_rest_token=file))
    file.write_text("SLURM_JWT=a.b.c\n")
    assert word_of(token_of(file)) == "a.b.c"
    assert isinstance(slurm_of(read_settings(None, **place, slurm_rest_token=file)), RestSlurm)
    monkeypatch.setenv("SLURM_JWT", "d.e.f")
    assert isinstance(slurm_of(read_settings(None, **place)), RestSlurm)
    with pytest.raises(SettingsError, match="HOST:PORT"):
        slurm_of(read_settings(None, **place | {"slurm_rest": "http://HOST:PORT"}))


@pytest.mark.parametrize("mode", ["advise", "order"])
def test_slurmrestd_is_of_place_mode_only(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JWT", raising=False)
    made = slurm_of(read_settings(None, slurm_rest="http://slurm", slurm_mode=mode))
    assert not isinstance(made, RestSlurm)
