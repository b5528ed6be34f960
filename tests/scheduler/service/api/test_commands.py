"""The client and the commands, against a service that listens on a real socket."""

from __future__ import annotations

import json
import os
import pwd
import re
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict

import pytest
import uvicorn
from fastapi.testclient import TestClient
from sqlalchemy import insert
from typer.testing import CliRunner, Result

from features.codec import decode
from pipeline.app import app
from pipeline.errors import UserError
from pipeline.printed.why import lines_of
from scheduler.backends.events import Event, Kind
from scheduler.explain.explanation import Explanation, StartForecastRow
from scheduler.service.api.auth import service_user
from scheduler.service.api.peer import peer_user
from scheduler.service.app import create_app
from scheduler.service.client import Client, ServiceError
from scheduler.service.log.store.tables import forecasts
from scheduler.service.settings import Settings
from tests.scheduler.service.api.conftest import Service
from tests.waiting import until

Run = Callable[..., Result]


def listening(app: object) -> Iterator[str]:
    """Serve an app on a free port; its address."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    until(lambda: server.started, "the server to start", every_s=0.01)
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = True
    thread.join()


@pytest.fixture
def address(service: Service) -> Iterator[str]:
    yield from listening(service.app)


@pytest.fixture
def off(service: Service) -> Iterator[str]:
    """The same service with tokens off."""
    url = service.database
    yield from listening(
        create_app(Settings(database=url, backend="simulated"), store=service.store)
    )


@pytest.fixture
def run(service: Service, address: str) -> Run:
    """Runs a command as a person."""

    def command(who: str, *words: str) -> Result:
        environment = {
            "PELLUCID_SERVER": address, "PELLUCID_TOKEN": service.secrets[who], "COLUMNS": "160"
        }  # fmt: skip
        return CliRunner().invoke(app, list(words), env=environment)

    return command


def test_a_job_from_submission_to_its_end(service: Service, run: Run) -> None:
    done = run(
        "alice", "submit", "--gpus", "2", "--vc", "vision", "--name", "mine", "--env", "A=b=c",
        "--", "train", "100", "30",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    job = done.output.strip()
    service.turn(2)
    [shown] = json.loads(run("alice", "ps", "--json").output)
    assert shown["job_id"] == job
    assert "environment" not in shown
    assert shown["workdir"] == os.getcwd()
    table = run("alice", "ps").output
    assert job in table
    assert "running" in table
    assert run("bob.noyce", "ps").output.count("\n") == 1
    assert f"{job} is running" in run("alice", "why", job).output
    told, again = (run("alice", word, job).output.splitlines() for word in ("why", "explain"))
    assert told[0] == again[0]  # how long ago is another matter each time
    cancelled = run("alice", "cancel", job)
    assert cancelled.output == f"{job} is cancelled\n"
    service.turn(3)
    assert "cancelled" not in run("alice", "ps").output
    assert "cancelled" in run("alice", "ps", "--all").output


def test_a_waiting_job_is_told_why(service: Service, run: Run) -> None:
    service.submit("bob.noyce", 1000, gpus=8)
    service.turn(2)
    job = service.submit("alice", gpus=4)
    service.turn(2)
    told = run("alice", "why", job).output
    assert "needs 4 GPUs, 0 of 8 are free" in told
    assert re.search(r"^Place +Number 1 of 1\.$", told, re.MULTILINE)
    assert "Its start is unknown: no estimate was made yet" in told
    assert "GpusBusy" not in told
    assert "[GpusBusy]" in run("alice", "why", job, "--codes").output
    assert "bob.noyce" not in told
    told = run("alice", "whatif", job, "--gpus", "2").output
    assert told == "estimate unavailable: no analyst is running\n"
    top = run("alice", "top", "--once").output
    assert "8/8" in top
    assert job in top
    assert json.loads(run("alice", "top", "--json").output)["vcs"][0]["waiting"] == 1


def test_of_several_jobs_those_that_can_be_are_cancelled(service: Service, run: Run) -> None:
    first, last = service.submit("alice"), service.submit("alice")
    done = run("alice", "cancel", first, "nobody", last)
    assert done.output == f"{first} is cancelled\n{last} is cancelled\n"
    assert isinstance(done.exception, UserError)
    assert str(done.exception) == "not cancelled: nobody: there is no such job of yours"
    service.turn(3)
    assert [job["phase"] for job in json.loads(run("alice", "ps", "--all", "--json").output)] == [
        "cancelled", "cancelled"
    ]  # fmt: skip


def test_cancelling_is_previewed(service: Service, run: Run) -> None:
    first, last = service.submit("alice"), service.submit("alice")
    service.turn(2)
    for asked in ((first, last), ("--all-mine",)):
        told = run("alice", "cancel", *asked, "--preview").output.splitlines()
        assert told[0] == "2 would be cancelled"
        assert {line.strip() for line in told[1:]} == {first, last}
    assert str(run("alice", "cancel", "nobody", "--preview").exception) == (
        "there is no such job of yours: nobody"
    )
    service.turn(3)
    assert all(
        job["cancel_asked"] is False for job in json.loads(run("alice", "ps", "--json").output)
    )


def test_a_run_that_was_cancelled_is_said_to_have_run(service: Service, run: Run) -> None:
    job = service.submit("alice", 1000, gpus=1)
    service.turn(3, 10.0)
    assert "Earlier" not in run("alice", "why", job).output
    run("alice", "cancel", job)
    service.turn(3)
    assert "was cancelled after running" in run("alice", "why", job).output


def test_a_job_that_is_over_tells_what_it_waited_for(service: Service, run: Run) -> None:
    service.submit("bob.noyce", 5.0, gpus=8)
    service.turn(2)
    job = service.submit("alice", 2.0, gpus=4)
    service.turn(2)
    waiting = json.loads(run("alice", "why", job, "--json").output)
    service.turn(4, 10.0)
    assert "is over" in run("alice", "why", job).output.splitlines()[0]
    told = json.loads(run("alice", "why", job, "--json").output)
    (wait, *_) = told["waits"]
    assert wait["reason"] == waiting["reason"] == "GpusBusy"
    assert wait["text"].startswith(waiting["dominant"])
    told["promised"] = asdict(StartForecastRow(9e8 - 600.0, 9e8, None, None, None))
    text = "\n".join(lines_of(decode(Explanation, told), 9e8))
    assert "(100 % GPUs busy)" in text
    assert "are free" not in text, "nothing of now"
    assert "Foreseen      When it was submitted: starts about" in text
    told["promised"]["made_at"] = 9e8 + 1.0  # looked at first once it had started
    assert "Foreseen" not in "\n".join(lines_of(decode(Explanation, told), 9e8))
    assert "bob.noyce" not in text


def test_a_waiting_job_is_changed_held_and_released(service: Service, run: Run) -> None:
    service.submit("bob.noyce", 1000, gpus=8)
    service.turn(2)
    job = service.submit("alice", gpus=8)
    service.turn(2)
    seen = run("alice", "change", job, "--gpus", "4", "--no-share", "--preview").output.splitlines()
    assert seen == [f"{job}, if changed:", "  estimate unavailable: no analyst is running"]
    done = run("alice", "change", job, "--gpus", "4", "--no-share")
    assert done.output == f"{job} is changed, and keeps its place\n"
    service.turn(2)
    assert run("alice", "change", job, "--gpus", "4").output == f"{job} is so already\n"
    assert run("alice", "hold", job).output == f"{job} is held until it is released\n"
    service.turn(2)
    assert "held by its owner since " in run("alice", "ps").output
    told = run("alice", "why", job).output
    assert told.startswith(f"{job} is held: its owner holds it back\n")
    assert f"Release it: pellucid release {job}" in told
    [shown] = json.loads(run("alice", "hold", job, "--json").output)
    assert (shown["needed"], shown["applied"]) == (False, True)
    lower = run("alice", "priority", job, "--to=-1")
    assert lower.output == f"{job} has priority -1\n"
    higher = run("alice", "priority", job, "--to", "1")
    assert "an operator's to give" in str(higher.exception)
    assert run("alice", "release", job, "nobody").output == f"{job} is released\n"
    service.turn(2)
    assert run("alice", "why", job).output.startswith(f"{job} is queued: ")
    assert "say what is to be different" in str(run("alice", "change", job).exception)
    nothing = run("alice", "change", job, "--gpus", "9")
    assert isinstance(nothing.exception, UserError)
    assert "more than the 8 GPUs of vision" in str(nothing.exception)


def test_many_jobs_are_chosen_counted_and_cancelled(service: Service, run: Run) -> None:
    jobs = [service.submit("alice", gpus=8, name=f"sweep-{i}") for i in range(3)]
    service.turn(2)  # the first runs before the others are there, whatever the order is
    other = service.submit("alice", gpus=1, vc="vision", name="keep")
    theirs = service.submit("bob.noyce", gpus=8, name="sweep-9")
    service.turn(2)
    none = run("olga", "cancel", "--name", "sweep-*", "--yes")
    assert none.output == "no such job of yours; give --owner for another's\n"
    asked = run("alice", "cancel", "--name", "sweep-*")
    assert str(asked.exception) == "that is 3 jobs, 1 of them running: say --yes to cancel"
    assert "sweep" in run("alice", "ps").output
    done = run("alice", "cancel", "--name", "sweep-*", "--state", "waiting", "--yes", "--json")
    assert sorted(json.loads(done.output)["asked"]) == sorted(jobs[1:])
    service.turn(2)
    assert run("alice", "cancel", "--all-mine", "-y").output == "2 cancelled\n"
    service.turn(3)
    assert run("alice", "cancel", "--all-mine", "-y").output == "no such job\n"
    over = {job: service.by("olga").get(f"/api/v1/jobs/{job}").json() for job in (other, theirs)}
    assert over[other]["cancel_asked"]
    assert not over[theirs]["cancel_asked"]
    for words in (("cancel",), ("cancel", other, "--all-mine"), ("cancel", "--state", "odd")):
        assert isinstance(run("alice", *words).exception, UserError)


def test_of_a_job_that_is_over_it_is_said_how_it_ended(service: Service, run: Run) -> None:
    job = service.submit("alice", 100)
    service.turn(2)
    service.turn(3, 200.0)
    told = run("alice", "why", job).output.splitlines()
    assert told[0].startswith(f"{job} is over: completed after 100 s on GPUs; it had waited ")
    assert any(line.startswith("Last decided ") for line in told)


def test_why_tells_what_kept_a_job_from_being_started(service: Service, run: Run) -> None:
    job = service.submit("alice", 100)
    service.turn(1)
    body = {"attempt": 1, "detail": "no such folder: /nowhere"}
    service.store.append([Event(Kind.NOT_STARTED, service.world.now(), job, body=body)])
    service.turn(2)
    told = run("alice", "why", job).output
    assert "could not be started on the 1 GPU it was given (no such folder: /nowhere)" in told
    assert "mend what the detail names, and submit it again" in told


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("submit", "--gpus", "99", "--vc", "vision", "--", "x"), "gpus: 99 is more than the 8"),
        (("submit", "--vc", "mars", "--", "x"), "vc is 'mars'; you may submit to: vision"),
        (("submit", "--env", "nothing", "--", "x"), "--env nothing: give NAME=VALUE"),
        (("why", "nobody"), "there is no such job of yours"),
        (("cancel", "../../etc"), "there is nothing at this address"),
        (("whatif", "nobody"), "say what is to be different"),
        (("explain", "nobody"), "there is no such job of yours"),
    ],
)
def test_errors_are_one_line(run: Run, words: tuple[str, ...], said: str) -> None:
    done = run("alice", *words)
    assert isinstance(done.exception, UserError)
    assert said in str(done.exception)
    assert "\n" not in str(done.exception)


def test_nobody_there_is_said() -> None:
    free = socket.socket()
    free.bind(("127.0.0.1", 0))
    server = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(ServiceError, match="no answer from there"):
        Client(server).cancel("x")
    with pytest.raises(ServiceError, match="give http://HOST:PORT"):
        Client("ftp://host")


def test_a_lost_answer_submits_once(service: Service) -> None:
    """The connection breaks after the request was taken: repeating it submits nothing."""
    http = service.by("alice")
    send, broken = http.request, iter([True, False])

    def flaky(*given: object, **more: object) -> object:
        answer = send(*given, **more)  # type: ignore[arg-type]
        if next(broken):
            raise ConnectionResetError("connection reset")
        return answer

    http.request = flaky  # type: ignore[method-assign,assignment]
    client = Client(token=service.secrets["alice"], http=http)
    job = client.submit(["train", "1", "1"], vc="vision")
    events = [e for e in service.events() if e.kind is Kind.SUBMITTED]
    assert [e.job_id for e in events] == [job["job_id"]]


def test_pages_of_a_list_are_followed(service: Service) -> None:
    ids = [service.submit("alice") for _ in range(5)]
    client = Client(token=service.secrets["alice"], http=service.by("alice"))
    assert [job["job_id"] for job in client.jobs()] == ids[::-1]
    assert len(list(client.jobs(limit=2))) == 2
    assert list(client.jobs(owner="bob.noyce")) == []


def test_tokens_by_command(service: Service) -> None:
    database = service.database
    run = CliRunner()
    words = ["token", "create", "carol", "--vc", "speech", "--days", "1", "--json"]
    made = run.invoke(app, [*words, "--database", database])
    token = json.loads(made.output)
    assert token["vcs"] == ["speech"]
    listed = run.invoke(app, ["token", "list", "--json", "--database", database]).output
    assert token["secret"] not in listed
    assert "carol" in listed
    gone = run.invoke(app, ["token", "revoke", "carol", "--database", database])
    assert gone.output == f"revoked {token['id']} of carol\n"
    again = run.invoke(app, ["token", "revoke", "carol", "--database", database])
    assert "no token 'carol'" in str(again.exception)
    odd = run.invoke(app, ["token", "create", "x", "--role", "king", "--database", database])
    assert "viewer, submitter, operator" in str(odd.exception)
    service.turn()
    odd = run.invoke(app, ["token", "create", "x", "--vc", "nope", "--database", database])
    assert str(odd.exception) == "--vc nope: there are: vision, speech"
    with pytest.raises(ServiceError, match="PELLUCID_TOKEN, or give --token-file"):
        Client(http=TestClient(service.app)).whoami()


# --- tokens off ----------------------------------------------------------------------------------


def test_the_kernel_says_who_is_at_the_other_end() -> None:
    for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        with socket.socket(family) as server, socket.socket(family) as client:
            try:
                server.bind((host, 0))
            except OSError:
                continue  # no IPv6 here
            server.listen()
            client.connect(server.getsockname()[:2])
            accepted, _ = server.accept()
            ends = accepted.getpeername()[:2], accepted.getsockname()[:2]
            assert peer_user(*ends) == service_user()
            client.close()
            assert peer_user(*ends) is None  # nobody holds it any more
            accepted.close()
    assert peer_user(("192.0.2.1", 1234), ("127.0.0.1", 80)) is None
    assert peer_user(("name", 1), ("127.0.0.1", 80)) is None


def test_without_tokens_the_services_own_user_operates(off: str) -> None:
    with Client(off) as client:
        who = client.whoami()
        assert (who["name"], who["role"]) == (service_user(), "operator")
        assert client.submit(["train", "1", "1"], vc="vision")["owner"] == service_user()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as somebody else")
def test_without_tokens_others_are_themselves_or_nobody(
    service: Service, off: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    nobody, port = pwd.getpwnam("nobody"), off.rpartition(":")[2]
    talk = (
        f"exec 3<>/dev/tcp/127.0.0.1/{port}; printf 'GET /api/v1/whoami HTTP/1.1\\r\\n"
        "Host: localhost\\r\\nConnection: close\\r\\n\\r\\n' >&3; cat <&3"
    )
    command = ["bash", "-c", talk]
    told = subprocess.run(
        command, user=nobody.pw_uid, group=nobody.pw_gid, capture_output=True, text=True, cwd="/"
    )
    who = json.loads(told.stdout.partition("\n\n")[2])
    assert (who["name"], who["role"], who["os_user"]) == ("nobody", "submitter", "nobody")
    # a service that is not root can run nothing for them
    monkeypatch.setattr("os.geteuid", lambda: 1)
    told = subprocess.run(
        command, user=nobody.pw_uid, group=nobody.pw_gid, capture_output=True, text=True, cwd="/"
    )
    assert " 401 " in told.stdout.splitlines()[0]


def test_nodes_and_settings_are_changed_from_the_command_line(service: Service, run: Run) -> None:
    service.turn()
    idle = run("olga", "node", "drain", "node000", "--preview").output
    assert idle.startswith("Nothing is changed. No preview: no analyst is running")
    assert idle.endswith("Nothing runs there.\n")
    job = service.submit("alice", gpus=8, profile=False)
    service.turn(2)
    now, names = service.world.now(), ("node000", "node001", "node002")
    foreseen = insert(forecasts).values(job_id=job, basis="latest", made_at=now, end_p50=now + 9)
    with service.store.engine.begin() as connection:
        connection.execute(foreseen)
    busy = run("olga", "node", "drain", *names, "--preview").output.splitlines()
    when = r"\d{4}-\d\d-\d\d \d\d:\d\d"
    assert re.fullmatch(f"Runs there: {job} of alice, until about {when}", busy[-1])
    service.by("alice").post(f"/api/v1/jobs/{job}/cancel")
    service.turn(3)
    done = run("olga", "node", "drain", "node000", "--reason", "fan broken")
    assert done.output == "node000 is drained\n"
    service.turn()
    again = run("olga", "node", "drain", "node000", "--reason", "fan broken")
    assert again.output == "node000: nothing to do, it is so already\n"
    listed = run("olga", "node", "list").output.splitlines()
    assert re.search(r"^node000 .* drained by olga: fan broken \(since \d{4}-.*\)$", listed[0])
    assert run("olga", "node", "add", "gpu9", "--vc", "vision").output == "gpu9 is added\n"
    for more in ([], ["--preview"]):
        wrong = run("olga", "node", "move", "node001", "--vc", "speach", *more)
        assert "there are: speech, vision" in str(wrong.exception)
    made = ("node", "add", "gpu10", "--vc", "robots", "--new-vc", "--preview")
    assert run("olga", *made).output.startswith("Nothing is changed.")
    moved = run("olga", "node", "move", "node001", "--vc", "speech")
    assert moved.output == "node001 goes to speech once nothing runs there\n"
    retyped = run("olga", "node", "retype", "node002", "--gpu-memory-mib", "1e4")
    assert retyped.output == "node002 changes once nothing runs there\n"
    assert run("olga", "node", "open", "node000").output == "node000 is open\n"
    service.turn()
    removed = run("olga", "node", "remove", "node000", "--json")
    assert json.loads(removed.output)["changed"] is True
    done = run("olga", "settings", "set", "max_wait_s=1e6", "--reason", "holidays")
    assert done.output == "it is set\n"
    service.turn()
    shown = run("olga", "settings", "show").output
    assert re.search(r"^max_wait_s = 1000000.0 s \(default .*\) \(\d{4}-.* by olga\):", shown, re.M)
    assert re.search(r"^borrowing = null: ", shown, re.M)
    assert re.findall(r"^\S+ = (?:None|True|False)\b", shown, re.M) == []
    assert isinstance(run("olga", "node", "open", "none").exception, UserError)
    assert isinstance(run("olga", "settings", "set", "x").exception, UserError)


def test_what_a_job_wrote_acts_on_nobodys_terminal(service: Service, run: Run) -> None:
    """An operator's window took the title that a job's last line of output gave it."""
    job = service.submit("alice")
    service.turn(2)
    said = "\x1b]0;owned\x07 \x9b2J \u202egnp"
    body = {"attempt": 1, "detail": said}
    service.store.append([Event(Kind.LOST, service.world.now(), job, body=body)])
    service.turn(2)
    for command in (["why", job], ["why", job, "--full"], ["ps", "--all"], ["ps", "--json"]):
        output = run("olga", *command).output
        assert not [c for c in output if not c.isprintable() and c != "\n"], command
    assert r"\x1b]0;owned\x07" in run("olga", "why", job).output


@pytest.mark.parametrize("odd", ["\x9b", "\u202e", "\x1b", "\u200b"])
def test_a_word_that_acts_is_refused_in_queries(shared: Service, odd: str) -> None:
    client = shared.by("olga")
    for path in ("/api/v1/jobs", "/history"):
        assert client.get(path, params={"owner": f"a{odd}"}).status_code == 422


def test_jobs_that_are_over_take_no_place_in_the_list_of_others(service: Service, run: Run) -> None:
    waits, over = service.submit("alice", gpus=1), service.submit("alice", gpus=1)
    service.turn()
    run("alice", "cancel", over)
    service.turn(3)
    [shown] = json.loads(run("alice", "ps", "--limit", "1", "--json").output)
    assert shown["job_id"] == waits


def test_times_are_given_as_to_sbatch(service: Service, run: Run) -> None:
    service.submit("bob.noyce", 1000, gpus=8)
    service.turn(2)
    job = service.submit("alice", gpus=4)
    service.turn(2)
    assert run("alice", "change", job, "--time-limit", "1:30:00").exit_code == 0
    service.turn(2)
    assert service.by("alice").get(f"/api/v1/jobs/{job}").json()["time_limit_s"] == 5400
    for given, seconds in (("1:30:00", 5400), ("2-12", 216_000), ("90m", 5400), ("3600", 3600)):
        asked = "submit", "--vc", "vision", "--time-limit", given, "--json", "--", "train", "1", "9"
        assert json.loads(run("alice", *asked).output)["time_limit_s"] == seconds
    wrong = run("alice", "submit", "--time-limit", "soon", "--vc", "vision", "--", "train")
    assert wrong.exit_code == 2
    assert "soon is no time" in wrong.output


def test_jobs_are_listed_by_state_name_and_time(service: Service, run: Run) -> None:
    for name in ("sweep-1", "sweep-2", "other"):
        service.submit("alice", 10, name=name, gpus=8)
    service.turn(2, 1.0)

    def names(*words: str) -> list[str]:
        return [job["name"] for job in json.loads(run("alice", "ps", *words, "--json").output)]

    assert names("--name", "sweep-*") == ["sweep-2", "sweep-1"]
    assert names("--state", "running") == ["sweep-1"]
    assert names("--state", "waiting") == ["other", "sweep-2"]
    assert names("--state", "failed") == []
    assert names("--since", "1h") == ["other", "sweep-2", "sweep-1"]
    assert names("--since", "2100-01-01") == []
    assert "choose among waiting" in str(run("alice", "ps", "--state", "idle").exception)
    assert "2026-11-20T08:00" in str(run("alice", "ps", "--since", "lately").exception)
