"""What must not get by: forged addresses, cursors that tell, jobs without end, root's rights."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import time
from typing import Any

import pytest
from fastapi import FastAPI
from sqlalchemy import insert, select

from scheduler.service.api import tokens
from scheduler.service.api.auth import service_user
from scheduler.service.api.changes import runs_as
from scheduler.service.api.connections import Connections
from scheduler.service.api.problems import Problem
from scheduler.service.api.questions import ANALYST, Questions
from scheduler.service.api.writer import Room, Writer
from scheduler.service.decide.processes import server_config, this_process
from scheduler.service.log.retention import DAY_S, prune
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import idempotency, jobs, questions
from scheduler.service.log.store.visibility import Role, Viewer
from tests.scheduler.service.api.conftest import Service
from tests.scheduler.service.api.test_writer import submission
from tests.waiting import until

JOBS = "/api/v1/jobs"


def test_a_header_cannot_say_whose_connection_it_is() -> None:
    """Without tokens the kernel is asked about the client's address: it must be the real one."""
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(tuple(scope["client"]))

    config = server_config(FastAPI(), Connections(1))
    config.app = app
    config.load()
    scope = {
        "type": "http", "client": ("127.0.0.1", 1111), "server": ("127.0.0.1", 8400),
        "headers": [(b"x-forwarded-for", b"127.0.0.1:2222")],
    }  # fmt: skip
    asyncio.run(config.loaded_app(scope, None, None))
    assert seen == [("127.0.0.1", 1111)]


def test_two_services_never_share_a_name() -> None:
    assert this_process() != this_process()


@pytest.mark.parametrize(("kind", "seconds"), [("why", "0.1"), ("cluster", "0.4")])
def test_who_waits_no_longer_has_asked_nothing(store: Store, kind: str, seconds: str) -> None:
    assert store.take(ANALYST, "one", 60.0) is not None
    told = asyncio.run(Questions(store, 0.1).ask(kind, {"job_id": "j"}, "ann"))
    busy = f"the process that computes forecasts is busy: no answer within {seconds} s; ask again"
    assert told == {"unavailable": busy}
    with store.reading() as connection:
        assert connection.execute(select(questions)).all() == []


def test_the_cursor_of_a_queue_tells_nothing_of_the_last_row(service: Service) -> None:
    service.submit("olga", 1000, gpus=8)
    service.turn(2)
    ids = [service.submit("bob.noyce", 100, gpus=8, priority=-7) for _ in range(3)]
    service.turn(2)
    page = service.by("alice").get("/api/v1/queue", params={"vc": "vision", "limit": 1}).json()
    after = page["next"]
    told = json.loads(base64.urlsafe_b64decode(after + "=" * (-len(after) % 4)))
    with service.store.engine.connect() as connection:
        row = connection.execute(select(jobs).where(jobs.c.job_id == ids[0])).one()
    assert told == [1, row.submitted_seq]
    # nor does a cursor hold when it names what is in no such queue
    forged = base64.urlsafe_b64encode(b"[1, 1]").decode().rstrip("=")
    query = {"vc": "vision", "after": forged}
    assert service.by("alice").get("/api/v1/queue", params=query).status_code == 422
    # the job at the cursor may leave its queue meanwhile
    assert service.by("bob.noyce").post(f"{JOBS}/{ids[0]}/cancel").status_code == 202
    service.turn(2)
    query["after"] = after
    rest = service.by("bob.noyce").get("/api/v1/queue", params=query).json()["items"]
    assert [entry["job"]["job_id"] for entry in rest] == ids[1:]


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("POST", f"{JOBS}/abc/cancel", {"Origin": "http://["}),
        ("GET", "/login?next=//[", {}),
        ("GET", f"/?vc=vision&after={'W1tb' * 4000}", {}),
        ("GET", "/history?owner=%00", {}),
    ],
)
def test_what_cannot_be_read_is_no_defect(
    shared: Service, method: str, path: str, headers: dict[str, str]
) -> None:
    client = shared.by("alice")
    if method == "POST":  # only without a header of its own does it matter where it comes from
        client = shared.strangers
        client.cookies.set("pellucid_token", shared.secrets["alice"])
    assert client.request(method, path, headers=headers).status_code < 500


def test_a_submitter_may_have_so_many_jobs_waiting(service: Service) -> None:
    service.app.state.changes._room = Room(2)
    first = service.submit("alice")
    service.submit("alice")
    body = {"command": ["train", "1", "1"], "vc": "vision"}
    refused = service.by("alice").post(JOBS, json=body)
    assert refused.status_code == 429
    assert refused.json()["type"].endswith(":too-many-jobs")
    assert int(refused.headers["retry-after"]) > 0
    for other in ("bob.noyce", *["olga"] * 3):  # everybody for themselves; operators freely
        service.submit(other)
    assert service.by("alice").post(f"{JOBS}/{first}/cancel").status_code == 202
    service.turn(2)
    body["name"] = "again"  # once they are counted anew
    until(lambda: service.by("alice").post(JOBS, json=body).status_code == 201, "room for one")


def test_who_leaves_before_the_answer_stops_nobody(store: Store) -> None:
    writer = Writer(store)
    left = writer.append(submission("left"))
    assert not left.cancel()
    assert writer.append(submission("next")).result(120).job_id == "next"
    assert [e.job_id for e in store.read()] == ["left", "next"]
    writer.close()


def test_root_runs_nothing_as_itself_for_a_token_without_a_user(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    _, secret = tokens.create(service.store, "eve", Role.OPERATOR, vcs=("vision",), now=time.time())
    answer = service.having(secret).post(JOBS, json={"command": ["id"], "vc": "vision"})
    assert answer.status_code == 403
    assert "names no operating-system user" in answer.json()["detail"]
    with pytest.raises(Problem, match="there is no user"):
        runs_as(Viewer("eve", Role.OPERATOR, os_user="nobody-at-all"))


def test_a_service_that_is_not_root_says_whose_jobs_it_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Left open it would become root's when the service is next run by root."""
    own = service_user()
    monkeypatch.setattr("scheduler.service.api.changes.service_user", lambda: own)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert runs_as(Viewer("eve", Role.SUBMITTER)) == own


def test_what_is_old_is_forgotten_and_nothing_else(store: Store) -> None:
    now, old = 100 * DAY_S, 60 * DAY_S
    with store.writing() as connection:
        for at, name in ((old, "old"), (now, "new")):
            connection.execute(
                insert(idempotency).values(actor=name, key="k", digest="", job_id=name, at=at)
            )
            connection.execute(insert(questions).values(id=name, asked_at=at, kind="", body="{}"))
    for name, made in (("expired", old), ("lasting", now)):
        tokens.create(store, name, Role.VIEWER, now=made, lasts_s=DAY_S)
    tokens.create(store, "for good", Role.VIEWER, now=0.0)
    tokens.create(store, "revoked", Role.VIEWER, now=0.0)
    tokens.revoke(store, "revoked", old)
    assert prune(store, now, now, 30 * DAY_S) == 4
    with store.engine.connect() as connection:
        assert connection.execute(select(idempotency.c.actor)).scalars().all() == ["new"]
        assert connection.execute(select(questions.c.id)).scalars().all() == ["new"]
    assert {token.name for token in tokens.every(store)} == {"for good", "lasting"}


def test_others_on_the_machine_cannot_read_the_database(store: Store) -> None:
    if not store.is_sqlite:
        pytest.skip("a file of SQLite")
    path = store.engine.url.database
    with store.writing():
        names = [path, f"{path}-line", f"{path}-wal"]
        assert [oct(os.stat(str(name)).st_mode & 0o077) for name in names] == ["0o0"] * 3
