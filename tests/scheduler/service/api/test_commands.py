"""The client and the commands, against a service that listens on a real socket."""

from __future__ import annotations

import json
import os
import pwd
import re
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import asdict
from unittest import mock

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import insert
from typer.testing import CliRunner

from features.codec import decode
from pipeline.app import app
from pipeline.errors import UserError
from pipeline.printed.why import lines_of
from scheduler.backends.events import Event, Kind
from scheduler.explain.explanation import Explanation, StartForecastRow, WaitedFor
from scheduler.explain.render import decision_words, first_words
from scheduler.service.api import peer
from scheduler.service.api.auth import service_user
from scheduler.service.api.peer import peer_user
from scheduler.service.app import create_app
from scheduler.service.client import Client, ServiceError
from scheduler.service.log.store.tables import forecasts
from scheduler.service.settings import Settings
from tests.scheduler.service.api.conftest import Run, Service, listening


@pytest.fixture
def off(service: Service) -> Iterator[str]:
    """The address of the same service with tokens off."""
    url = service.database
    yield from listening(
        create_app(Settings(database=url, backend="simulated"), store=service.store)
    )


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
    told, again = (run("alice", word, job).output.splitlines() for word in ("why", "explain"))
    assert f"{job} is running" in told[0]
    assert told[0] == again[0]  # how long ago is another matter each time
    service.turn(1, 10.0)
    cancelled = run("alice", "cancel", job)
    assert cancelled.output == f"{job} is cancelled\n"
    service.turn(3)
    assert "cancelled" not in run("alice", "ps").output
    assert "cancelled" in run("alice", "ps", "--all").output
    assert "was cancelled after running" in run("alice", "why", job).output


def test_a_waiting_job_is_told_why(service: Service, run: Run) -> None:
    job = service.waiting(gpus=4)
    told = run("alice", "why", job).output
    assert "needs 4 GPUs, 0 of 8 are free" in told
    assert re.search(r"^Place +It is number 1 of 1 in line\.$", told, re.MULTILINE)
    assert "Its start is unknown: it has not been simulated yet; 1 job before it has no" in told
    assert "GpusBusy" not in told
    assert "[GpusBusy]" in run("alice", "why", job, "--codes").output
    assert "bob.noyce" not in told
    told = run("alice", "whatif", job, "--gpus", "2").output
    assert told == "estimate unavailable: no analyst is running\n"
    top = run("alice", "top", "--once").output
    assert "8/8" in top
    assert job in top
    assert json.loads(run("alice", "top", "--json").output)["vcs"][0]["waiting"] == 1


def test_a_job_that_is_over_tells_how_it_ended_and_what_it_waited_for(
    service: Service, run: Run
) -> None:
    service.submit("bob.noyce", 5.0, gpus=8)
    service.turn(2)
    job = service.submit("alice", 2.0, gpus=4)
    service.turn(2)
    waiting = json.loads(run("alice", "why", job, "--json").output)
    service.turn(4, 10.0)
    first, *rest = run("alice", "why", job).output.splitlines()
    assert first.startswith(f"{job} is over: completed after 2 s on GPUs; it had waited ")
    assert any(line.startswith("Last decided ") for line in rest)
    told = json.loads(run("alice", "why", job, "--json").output)
    (wait, *_) = told["waits"]
    assert wait["reason"] == waiting["reason"] == "GpusBusy"
    began = decision_words(decode(WaitedFor, wait), job)
    assert began.startswith(first_words(decode(Explanation, waiting)))
    told["promised"] = asdict(StartForecastRow(9e8 - 600.0, 9e8, None, None, None))
    text = "\n".join(lines_of(decode(Explanation, told), 9e8))
    assert "too few GPUs free (100 % of the wait)" in text
    assert "are free" not in text, "nothing of now"
    assert "Foreseen      When it was submitted: starts about" in text
    told["promised"]["made_at"] = 9e8 + 1.0  # looked at first once it had started
    assert "Foreseen" not in "\n".join(lines_of(decode(Explanation, told), 9e8))
    assert "bob.noyce" not in text


def test_all_that_wait_are_counted_by_cause(service: Service, run: Run) -> None:
    service.waiting(gpus=4)
    done = run("olga", "why", "--all")
    assert done.exit_code == 0, (done.output, done.exception)
    table = done.output.splitlines()
    found = json.loads(run("olga", "why", "--all", "--json").output)
    assert table[0] == f"{found['waiting']} job waits, for {found['gpus']} GPUs in all."
    (cause,) = found["causes"]
    assert [line.split() for line in table][1:3] == [
        ["JOBS", "GPUS", "LONGEST", "OF", "JOB", "BECAUSE"],
        ["1", "4", *table[2].split()[2:-5], cause["example"], "too", "few", "GPUs", "free"],
    ]
    assert any(line.split()[2:3] == [found["waited_for"][0]["job_id"]] for line in table)
    for words in (["why"], ["why", "--all", cause["example"]]):
        assert isinstance(run("olga", *words).exception, UserError)


def test_why_tells_what_kept_a_job_from_being_started(service: Service, run: Run) -> None:
    job = service.submit("alice", 100)
    service.turn(1)
    body = {"attempt": 1, "detail": "no such folder: /nowhere"}
    service.store.append([Event(Kind.NOT_STARTED, service.world.now(), job, body=body)])
    service.turn(2)
    told = run("alice", "why", job).output
    assert "could not be started on the 1 GPU it was given (no such folder: /nowhere)" in told
    assert "mend what the detail names, and submit it again" in told


def test_jobs_are_chosen_previewed_counted_and_cancelled(service: Service, run: Run) -> None:
    first, *rest = jobs = [service.submit("alice", gpus=8, name=f"sweep-{i}") for i in range(3)]
    service.turn(2)  # the first runs before the others are there, whatever the order is
    theirs = service.submit("bob.noyce", gpus=8, name="sweep-9")
    keep = service.submit("alice", gpus=1, vc="vision", name="keep")
    service.turn(2)
    none = run("olga", "cancel", "--name", "sweep-*", "--yes")
    assert none.output == "no such job of yours; give --owner for another's\n"
    for asked in (jobs, ["--name", "sweep-*"]):
        told = run("alice", "cancel", *asked, "--preview").output.splitlines()
        assert told[0] == "3 would be cancelled"
        assert {line.split()[0] for line in told[1:]} == set(jobs)
    unknown = run("alice", "cancel", "nobody", "--preview").exception
    assert str(unknown) == "there is no such job of yours: nobody"
    asked = run("alice", "cancel", "--name", "sweep-*")
    assert str(asked.exception) == "that is 3 jobs, 1 of them running: say --yes to cancel"
    service.turn(3)
    assert not any(job["cancel_asked"] for job in json.loads(run("alice", "ps", "--json").output))
    done = run("alice", "cancel", "--name", "sweep-*", "--state", "waiting", "--yes", "--json")
    assert sorted(json.loads(done.output)["asked"]) == sorted(rest)
    service.turn(2)
    some = run("alice", "cancel", first, "nobody")
    assert some.output == f"{first} is cancelled\n"
    assert str(some.exception) == "not cancelled: there is no such job of yours: nobody"
    service.turn(2)
    assert run("alice", "cancel", "--all-mine", "-y").output == "1 cancelled\n"
    service.turn(3)
    assert run("alice", "cancel", "--all-mine", "-y").output == "no such job\n"
    over = {job: service.by("olga").get(f"/api/v1/jobs/{job}").json() for job in (keep, theirs)}
    assert over[keep]["cancel_asked"]
    assert not over[theirs]["cancel_asked"]
    for words in (("cancel",), ("cancel", keep, "--all-mine"), ("cancel", "--state", "odd")):
        assert isinstance(run("alice", *words).exception, UserError)


def test_a_waiting_job_is_changed_held_and_released(service: Service, run: Run) -> None:
    job = service.waiting(gpus=8)
    change = ("change", job, "--gpus", "4", "--no-share", "--time-limit", "1:30:00")
    seen = run("alice", *change, "--preview").output.splitlines()
    assert seen == [f"{job}, if changed:", "  estimate unavailable: no analyst is running"]
    assert run("alice", *change).output == f"{job} is changed, and keeps its place\n"
    service.turn(2)
    assert service.by("alice").get(f"/api/v1/jobs/{job}").json()["time_limit_s"] == 5400
    assert run("alice", *change).output == f"{job} is so already\n"
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


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("submit", "--gpus", "99", "--vc", "vision", "--", "x"), "gpus: 99 is more than the 8"),
        (("submit", "--env", "nothing", "--", "x"), "--env nothing: give NAME=VALUE"),
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
    service.turn()

    def token(*words: str) -> str:
        done = CliRunner().invoke(app, ["token", *words, "--database", service.database])
        return str(done.exception) if isinstance(done.exception, UserError) else done.output

    made = json.loads(token("create", "carol", "--vc", "speech", "--days", "1", "--json"))
    assert made["vcs"] == ["speech"]
    listed = token("list", "--json")
    assert made["secret"] not in listed
    assert "carol" in listed
    assert token("revoke", "carol") == f"revoked {made['id']} of carol\n"
    assert "no token 'carol'" in token("revoke", "carol")
    assert "viewer, submitter, operator" in token("create", "x", "--role", "king")
    assert token("create", "x", "--vc", "nope") == "--vc nope: there are: vision, speech"
    with pytest.raises(ServiceError, match="PELLUCID_TOKEN, or give --token-file"):
        Client(http=TestClient(service.app)).whoami()


# --- tokens off ----------------------------------------------------------------------------------


@pytest.mark.parametrize("answers", [True, False])
def test_the_kernel_says_who_is_at_the_other_end(
    answers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if answers and not peer._answers():
        pytest.skip("this kernel is not asked for one socket")
    monkeypatch.setattr(peer, "_answers", lambda: answers)
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
            assert peer_user(*ends) == ""  # nobody holds it any more
            accepted.close()
            assert peer_user(*ends) == ""
    assert peer_user(("192.0.2.1", 1234), ("127.0.0.1", 80)) is None
    assert peer_user(("name", 1), ("127.0.0.1", 80)) == ""


def test_many_connections_make_it_no_longer_to_find_who_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not peer._answers():
        pytest.skip("this kernel is not asked for one socket")
    # the kernel's table has a row for every connection of the host, the closed ones for a minute
    monkeypatch.setattr(peer, "_looked_up", lambda *_: pytest.fail("it read the whole table"))
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname()) as client:
            ends = client.getsockname(), server.getsockname()
            assert peer_user(*ends) == service_user()
        assert peer_user(*ends) == ""


def test_that_no_file_can_be_opened_for_now_is_not_what_the_kernel_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else all of its connections would be read for each new one, until the service ends."""
    as_is = peer._answers()
    peer._answers.cache_clear()
    with monkeypatch.context() as full, socket.create_server(("127.0.0.1", 0)) as server:
        full.setattr(peer.socket, "create_server", mock.Mock(side_effect=OSError(24, "too many")))
        with socket.create_connection(server.getsockname()) as client:
            assert peer_user(client.getsockname(), server.getsockname()) == ""
    assert peer._answers() == as_is


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as somebody else")
def test_it_is_another_user_by_either_way(monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = pwd.getpwnam("nobody")
    with socket.create_server(("127.0.0.1", 0)) as server:
        host, port = server.getsockname()
        talk = f"exec 3<>/dev/tcp/{host}/{port}; cat <&3"
        other = subprocess.Popen(
            ["bash", "-c", talk], user=nobody.pw_uid, group=nobody.pw_gid, cwd="/"
        )
        try:
            accepted, client = server.accept()
            for answers in {peer._answers(), False}:
                monkeypatch.setattr(peer, "_answers", lambda answers=answers: answers)
                assert peer_user(client, (host, port)) == "nobody"
            accepted.close()
        finally:
            other.kill()
            other.wait()


def test_without_tokens_the_services_own_user_operates(off: str) -> None:
    with Client(off) as client:
        who = client.whoami()
        assert (who["name"], who["role"]) == (service_user(), "operator")
        assert client.submit(["train", "1", "1"], vc="vision")["owner"] == service_user()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as somebody else")
def test_without_tokens_others_are_themselves_or_nobody(
    off: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    nobody, port = pwd.getpwnam("nobody"), off.rpartition(":")[2]
    talk = (
        f"exec 3<>/dev/tcp/127.0.0.1/{port}; printf 'GET /api/v1/whoami HTTP/1.1\\r\\n"
        "Host: localhost\\r\\nConnection: close\\r\\n\\r\\n' >&3; cat <&3"
    )

    def answered() -> str:
        return subprocess.run(
            ["bash", "-c", talk], user=nobody.pw_uid, group=nobody.pw_gid, capture_output=True,
            text=True, cwd="/",
        ).stdout  # fmt: skip

    who = json.loads(answered().partition("\n\n")[2])
    assert (who["name"], who["role"], who["os_user"]) == ("nobody", "submitter", "nobody")
    # a service that is not root can run nothing for them
    monkeypatch.setattr("os.geteuid", lambda: 1)
    assert " 401 " in answered().splitlines()[0]


def test_what_was_claimed_is_listed(service: Service, run: Run) -> None:
    assert run("vera", "claims").output == "Nothing was claimed yet.\n"
    assert json.loads(run("vera", "claims", "--json").output) == []


# --- what operators do ---------------------------------------------------------------------------


def test_gpus_that_do_not_answer_are_told_on_the_command_line(service: Service, run: Run) -> None:
    service.turn()
    body = {"node": 1, "closed": {"1": "the GPU is lost", "3": "the GPU is lost"}}
    service.store.append([Event(Kind.GPUS_CLOSED, service.world.now(), body=body)])
    service.turn()
    listed = run("olga", "node", "list").output.splitlines()
    said = r" open; 2 of 4 GPUs answer; GPUs 1 and 3 do not since .*: the GPU is lost$"
    assert re.search(said, listed[1])
    assert listed[0].endswith(" open")
    assert "2 closed" in run("olga", "top", "--once").output


def test_nodes_are_changed_from_the_command_line(service: Service, run: Run) -> None:
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
    drain = ("node", "drain", "node000", "--reason", "fan broken")
    assert run("olga", *drain).output == "node000 is drained\n"
    service.turn()
    assert run("olga", *drain).output == "node000: nothing to do, it is so already\n"
    listed = run("olga", "node", "list").output.splitlines()
    assert re.search(r"^node000 .* drained by olga: fan broken \(since \d{4}-.*\)$", listed[0])
    for words, said in (
        (("add", "gpu9", "--vc", "vision"), "gpu9 is added\n"),
        (("move", "node001", "--vc", "speech"), "node001 goes to speech once nothing runs there\n"),
        (("retype", "node002", "--gpu-memory-mib", "1e4"),
         "node002 changes once nothing runs there\n"),
        (("open", "node000"), "node000 is open\n"),
    ):  # fmt: skip
        assert run("olga", "node", *words).output == said
    wrong = run("olga", "node", "move", "node001", "--vc", "speach", "--preview")
    assert "there are: speech, vision" in str(wrong.exception)
    made = ("node", "add", "gpu10", "--vc", "robots", "--new-vc", "--preview")
    assert run("olga", *made).output.startswith("Nothing is changed.")
    service.turn()
    removed = run("olga", "node", "remove", "node000", "--json")
    assert json.loads(removed.output)["changed"] is True
    assert isinstance(run("olga", "node", "open", "none").exception, UserError)


def test_settings_are_changed_from_the_command_line(service: Service, run: Run) -> None:
    done = run("olga", "settings", "set", "max_wait_s=1e6", "--reason", "holidays")
    assert done.output == "it is set\n"
    service.turn()
    shown = run("olga", "settings", "show").output
    assert re.search(r"^max_wait_s = 1000000.0 s \(default .*\) \(\d{4}-.* by olga\):", shown, re.M)
    assert re.search(r"^borrowing = null: ", shown, re.M)
    assert re.findall(r"^\S+ = (?:None|True|False)\b", shown, re.M) == []
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


def test_times_are_given_as_to_sbatch(run: Run) -> None:
    for given, seconds in (("1:30:00", 5400), ("2-12", 216_000), ("90m", 5400), ("3600", 3600)):
        asked = "submit", "--vc", "vision", "--time-limit", given, "--json", "--", "train", "1", "9"
        assert json.loads(run("alice", *asked).output)["time_limit_s"] == seconds
    wrong = run("alice", "submit", "--time-limit", "soon", "--vc", "vision", "--", "train")
    assert wrong.exit_code == 2
    assert "soon is no time" in wrong.output


def test_jobs_are_listed_by_state_name_and_time(service: Service, run: Run) -> None:
    for name in ("sweep-1", "sweep-2", "other"):
        service.submit("alice", 10, name=name, gpus=8)
    run("alice", "cancel", service.submit("alice", name="over"))
    service.turn(3, 1.0)

    def names(*words: str) -> list[str]:
        return [job["name"] for job in json.loads(run("alice", "ps", *words, "--json").output)]

    assert names("--name", "sweep-*") == ["sweep-2", "sweep-1"]
    assert names("--state", "running") == ["sweep-1"]
    assert names("--state", "waiting") == ["other", "sweep-2"]
    assert names("--state", "failed") == []
    assert names("--since", "1h") == ["over", "other", "sweep-2", "sweep-1"]
    assert names("--since", "2100-01-01") == []
    assert names("--limit", "1") == ["other"], "those that are over take no place"
    assert "choose among waiting" in str(run("alice", "ps", "--state", "idle").exception)
    assert "2026-11-20T08:00" in str(run("alice", "ps", "--since", "lately").exception)
