"""What a job has written: for its owner only, in bounded parts, and harmless to a terminal."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from scheduler.backends.events import Event, Kind
from scheduler.backends.local.output import MOST_BYTES
from scheduler.backends.local.spool import Spool, name_of
from scheduler.service.api import shares, tokens
from scheduler.service.app import create_app
from scheduler.service.log.store.visibility import Role
from scheduler.service.settings import Settings
from tests.scheduler.service.api.conftest import Run, Service, bearer, listening

SECRET = "zq-loss-0.25"


class Written:
    """A running job of alice's, and the file that its backend writes to."""

    def __init__(self, service: Service, folder: Path):
        self.service = service
        self.settings = Settings(
            database=service.database, auth="on", backend="local", single_tenant=True,
            state_dir=folder,
        )  # fmt: skip
        self.app = create_app(self.settings, store=service.store)
        self.job = service.submit("alice", seconds=100.0, profile=False)
        service.turn(3)
        self.path = Spool(folder / "local").log(name_of(self.job, 1))
        self.path.write_text(f"{SECRET}\n")

    def by(self, name: str, path: str) -> tuple[int, str]:
        headers = bearer(self.service.secrets[name])
        answer = TestClient(self.app, follow_redirects=False).get(path, headers=headers)
        return answer.status_code, answer.text

    def part(self, **query: int) -> dict[str, object]:
        asked = "&".join(f"{name}={value}" for name, value in query.items())
        status, text = self.by("alice", f"/api/v1/jobs/{self.job}/output?{asked}")
        assert status == 200, text
        return dict(json.loads(text))


@pytest.fixture
def written(service: Service, tmp_path: Path) -> Iterator[Written]:
    made = Written(service, tmp_path / "state")
    yield made
    made.app.state.changes.close()


@pytest.fixture
def logs(written: Written) -> Iterator[Run]:
    """Runs `pellucid logs` as alice."""
    for address in listening(written.app):
        yield partial(written.service.command, address, "alice", "logs")


def test_its_owner_reads_it_and_nobody_else(written: Written) -> None:
    api, page = f"/api/v1/jobs/{written.job}/output", f"/jobs/{written.job}"
    assert SECRET in written.by("alice", api)[1]
    assert SECRET in written.by("alice", page)[1]
    for who, status in (("bob.noyce", 404), ("vera", 404), ("olga", 403)):
        found, text = written.by(who, api)
        assert (found, SECRET in text) == (status, False), who
        assert SECRET not in written.by(who, page)[1], who
    # neither does a token for looking or a shared link show it
    service = written.service
    service.secrets["look"] = tokens.create(service.store, "alice", Role.VIEWER, now=0.0)[1]
    assert written.by("look", f"/api/v1/jobs/{written.job}")[0] == 200  # it sees the job
    assert written.by("look", f"/api/v1/jobs/{written.job}/output")[0] == 403
    assert SECRET not in written.by("look", f"/jobs/{written.job}")[1]
    with service.store.writing() as connection:
        secret = service.secrets["alice"]
        made = shares.make(connection, secret, written.job, shares.HOUR_S, time.time())
    assert made is not None
    status, text = written.by("vera", f"/shared/{written.job}/{made.mark}")
    assert (status, SECRET in text) == (200, False)


def test_parts_follow_each_other_and_no_character_is_torn(written: Written) -> None:
    assert written.part(offset=10_000)["text"] == f"{SECRET}\n", "it was emptied: anew"
    text = "épôch ✓ " * 600
    written.path.write_bytes(text.encode())
    read, offset = "", 0
    while offset < len(text.encode()):
        part = written.part(offset=offset, limit=1024)
        assert part["start"] == offset
        read, offset = read + str(part["text"]), int(str(part["next"]))
    assert read == text
    assert text.endswith(str(written.part(offset=-1025)["text"]))


def test_a_terminal_obeys_nothing_of_it(written: Written) -> None:
    written.path.write_bytes(
        b"\x1b]0;owned\x07\x1b[31mred\x1b[0m\r 10%\r 20%\x1b[2J\x9b2J\x08\xe2\x80\xaeabc\xff\n"
    )
    text = str(written.part()["text"])
    assert text.replace("\n", "").isprintable()
    assert "red\n 10%\n 20%" in text
    assert "owned" not in text
    written.path.write_text("<script>alert(1)</script>")
    page = written.by("alice", f"/jobs/{written.job}")[1]
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page


def test_a_gibibyte_is_read_a_part_at_a_time(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages, page = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    host_mib = written.app.state.changes.host_mib
    assert host_mib == pytest.approx(pages * page / 1048576, rel=0.01), "what this host has"
    with written.path.open("wb") as file:
        file.truncate(2**30)
    asked: list[int] = []
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda f, n, at: (asked.append(n), real(f, n, at))[1])
    assert written.part()["next"] == MOST_BYTES
    assert written.by("alice", f"/jobs/{written.job}")[0] == 200
    assert len(asked) == 2
    assert max(asked) <= MOST_BYTES


def test_one_that_has_not_begun_and_one_that_is_gone(written: Written) -> None:
    waiting = written.service.submit("alice", gpus=8)
    written.service.submit("alice", gpus=8)
    status, text = written.by("alice", f"/api/v1/jobs/{waiting}/output")
    assert status == 200
    assert '"attempt":0' in text
    written.path.unlink()
    assert written.part()["size"] == 0  # it runs: the file is about to be there
    written.service.by("alice").post(f"/api/v1/jobs/{written.job}/cancel")
    written.service.turn(3)
    assert written.by("alice", f"/api/v1/jobs/{written.job}/output")[0] == 404


def test_other_backends_keep_none(service: Service) -> None:
    job = service.submit("alice")
    answer = service.by("alice").get(f"/api/v1/jobs/{job}/output")
    assert answer.status_code == 409
    assert answer.json()["detail"] == "backend simulated keeps no output"


def test_of_an_array_that_of_each_task_or_of_those_named(written: Written, logs: Run) -> None:
    service = written.service
    body = {"command": ["train", "100", "30"], "vc": "vision", "profile": False, "array": "0-2"}
    made = service.by("alice").post("/api/v1/jobs/array", json=body).json()
    service.turn(3)
    for task in made["jobs"]:
        Spool(written.settings.state_dir / "local").log(name_of(task, 1)).write_text(f"by {task}\n")
    array = made["array_id"]
    parts = [f"==> {task} <==\nby {task}\n" for task in made["jobs"]]
    assert logs(array).output == "".join(parts)
    assert logs(f"{array}_[1-2]").output == "".join(parts[1:])
    assert logs(f"{array}_1").output == f"by {array}_1\n"
    assert "follow one task" in str(logs(f"{array}_[1-2]", "-f").exception)
    assert "2-1 holds no number" in str(logs(f"{array}_[2-1]").exception)


def test_the_command_prints_it_and_follows_it(written: Written, logs: Run) -> None:
    service = written.service
    written.path.write_text("".join(f"step {i}\n" for i in range(50_000)))
    waits, bad = service.submit("alice", gpus=8), service.submit("alice", profile=False)
    service.turn(1)  # it is launched
    body = {"attempt": 1, "detail": "cannot execute './run.sh': Permission denied"}
    service.store.append([Event(Kind.NOT_STARTED, service.world.now(), bad, body=body)])
    service.turn(2)
    none = logs(waits)
    assert (none.stdout, none.stderr.split()[:2]) == ("", [waits, "has"])
    never = logs(bad)
    assert (never.stdout, never.stderr) == ("", f"{bad} never ran: {body['detail']}\n")
    whole = logs(written.job)
    assert whole.output == written.path.read_text(), whole.output[-200:]
    assert logs(written.job, "--tail", "2").output == "step 49998\nstep 49999\n"
    service.by("alice").post(f"/api/v1/jobs/{written.job}/cancel")
    service.turn(3)
    assert logs(written.job, "-f", "-n", "1").output == "step 49999\n"  # over: it returns
