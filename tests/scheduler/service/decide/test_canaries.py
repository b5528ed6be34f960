"""Secrets given to a real service: in a command, an environment, a token, the database's URL. While
a job runs only its owner sees its command; once it is over they are nowhere."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import psutil
from sqlalchemy.engine import make_url

from benchmarks.life import family
from scheduler.service.api import tokens
from scheduler.service.client import Client
from scheduler.service.http import Http
from scheduler.service.log.record import Phase
from scheduler.service.log.store.schema import prepare
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.visibility import Role
from tests.scheduler.service.conftest import rows_of
from tests.scheduler.service.decide.test_serve import (
    _lines,
    _wait_for,
    as_environment,
    given,
    served,
)
from tests.waiting import until

COMMAND, VARIABLE, PASSWORD = "canary-command", "canary-variable", "canary-password"
PAGES = (
    "/", "/history", "/nodes", "/settings", "/models", "/forecasts", "/fairness", "/metrics",
    "/api/v1/jobs", "/api/v1/queue", "/api/v1/nodes", "/api/v1/settings", "/openapi.json",
)  # fmt: skip


def pages_of(job: str) -> list[str]:
    below = ("", "/events", "/decisions", "/explanation", "/forecast")
    return [*PAGES, f"/jobs/{job}", *(f"/api/v1/jobs/{job}{more}" for more in below)]


def answers(port: int, secret: str, addresses: Iterable[str]) -> str:
    """What addresses answer to who has a token; the token is not told here."""
    http = Http(f"http://127.0.0.1:{port}", 30.0)
    header = {"Authorization": f"Bearer {secret}"}
    told = [http.request("GET", address, headers=header) for address in addresses]
    http.close()
    assert sum(answer.status_code == 200 for answer in told) >= 10
    return "".join(f"{dict(answer.headers)} {answer.content!r}" for answer in told)


def process_list(but: Iterable[int] = ()) -> str:
    left_out = set(but)
    lines = []
    for process in psutil.process_iter():
        try:
            if process.pid not in left_out:
                lines.append(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    return "\n".join(lines)


def environments(pid: int) -> str:
    """Of the processes of a service: where a leak of a job's would be."""
    return "".join(Path(f"/proc/{one.pid}/environ").read_text() for one in family(pid))


def files_below(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_they_are_nowhere_once_the_job_is_over(tmp_path: Path, database: str) -> None:
    url = make_url(database)
    if url.get_backend_name() == "postgresql":
        url = url.set(password=PASSWORD)
    shown = url.render_as_string(hide_password=False)
    settings = given(
        tmp_path, database=shown, backend="local", fake_gpus=True, pace=1.0, port=0, auth="on",
        log_level="debug",
    )  # fmt: skip
    store = Store(shown)
    prepare(store)
    me = pwd.getpwuid(os.geteuid()).pw_name
    secrets = {
        name: tokens.create(store, name, role, vcs=("vc",), os_user=me, now=time.time())[1]
        for name, role in (("alice", Role.SUBMITTER), ("olga", Role.OPERATOR))
    }
    log = tmp_path / "log"
    with served(settings, log) as process:
        _wait_for(log, "decides", 1)
        [port] = {line["port"] for line in _lines(log, "listening")}
        with Client(f"http://127.0.0.1:{port}", secrets["alice"]) as alice:
            command = ["/bin/sh", "-c", "exec sleep 3", COMMAND]
            more = {"gpus": 1, "vc": "vc", "workdir": "/", "profile": False}
            job = alice.submit(command, environment={"WANDB_API_KEY": VARIABLE}, **more)["job_id"]
            _wait_for(log, "started", 1)
            assert VARIABLE not in process_list()
            assert VARIABLE not in environments(process.pid)
            assert COMMAND not in answers(port, secrets["olga"], PAGES)
            for who in secrets.values():
                assert VARIABLE not in answers(port, who, pages_of(job))
            until(lambda: Phase(alice.job(job)["phase"]).over, "the job to end")
        told = "".join(answers(port, who, pages_of(job)) for who in secrets.values())
        listed = process_list() + environments(process.pid).replace(shown, "")
    if store.is_sqlite:
        with store.engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    store_rows, kept = rows_of(store), files_below(tmp_path)
    store.close()
    assert len(kept) > 5_000
    for canary in (COMMAND, VARIABLE, *secrets.values(), PASSWORD):
        assert canary not in told, "an answer or a page"
        assert canary not in listed, "the process list"
        assert canary not in store_rows, "a row"
        assert canary.encode() not in kept, "a log or a file of the service"


def test_a_database_that_does_not_answer_is_named_without_its_password(tmp_path: Path) -> None:
    url = f"postgresql://ann:{PASSWORD}@127.0.0.1:9/none"
    settings = given(tmp_path, backend="local", fake_gpus=True, pace=1.0, port=0)
    done = subprocess.run(
        [sys.executable, "-m", "pipeline.cli", "serve"],
        env={**os.environ, **as_environment(settings), "PELLUCID_DATABASE": url},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "127.0.0.1" in done.stderr
    assert PASSWORD not in done.stdout + done.stderr
