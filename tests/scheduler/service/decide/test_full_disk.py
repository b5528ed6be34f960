"""A disk that is full is a state: no process dies of it, it is said, and it passes by itself."""

from __future__ import annotations

import errno
import os
import socket
import sqlite3
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from sqlalchemy.exc import OperationalError

from scheduler.backends.events import Kind
from scheduler.service.analyst.process import Analyst
from scheduler.service.api.lives import Lives
from scheduler.service.app import create_app
from scheduler.service.log.store import disk
from scheduler.service.log.store.disk import has_room, is_full
from scheduler.service.log.store.leases import Lease
from scheduler.service.log.store.schema import prepare
from scheduler.service.log.store.store import Store
from scheduler.service.metrics import Counts
from scheduler.service.settings import Settings
from tests.scheduler.service.desk import Desk
from tests.waiting import until


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of few MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=6m,mode=700", "none", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no file system of one's own is to be had here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Leave no room at all."""
    path = folder / "large"
    with path.open("ab", buffering=0) as file:
        for size in (65536, 4096, 1):
            with suppress(OSError):
                while file.write(b"x" * size) == size:
                    pass
    return path


def test_who_decides_and_who_foresees_wait_for_room_and_go_on(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "LOOK_S", 0.02)
    url = f"sqlite:///{small / 'pellucid.db'}"
    store = Store(url)
    prepare(store)
    desk = Desk(store, tmp_path)
    desk.decider.let_go()
    counts, stop = Counts(), threading.Event()
    app = create_app(Settings(database=url, state_dir=tmp_path), store=store, counts=counts)
    failed = list[BaseException]()
    own = Store(url)
    own.clock = store.clock
    decider = desk.another("again")
    decider.store = own
    decider.clock.sleep = lambda _: stop.wait(0.02)  # type: ignore[method-assign, assignment]
    decider.full_since = counts.full_since
    analyst = Analyst(store, desk.bundle_store, holder="ahead", lease_s=10.0)

    def lives(run: object) -> threading.Thread:
        def body() -> None:
            try:
                run.run(stop.is_set, 0.02)  # type: ignore[attr-defined]
            except BaseException as error:  # what a process would have died of
                failed.append(error)

        thread = threading.Thread(target=body)
        thread.start()
        return thread

    threads = [lives(decider)]
    client = TestClient(app, base_url="http://127.0.0.1")
    try:
        until(lambda: client.get("/ready").status_code == 200, "it to decide")
        threads.append(lives(analyst))
        large = fill(small)

        def found() -> bool:
            desk.wall += 1.0  # a lease is to be renewed
            return bool(counts.full_since.value)

        until(found, "the disk to be found full")
        answer = client.get("/ready")
        assert answer.status_code == 503
        assert answer.json()["detail"].startswith("the service's disk is full since ")
        assert not failed
        large.unlink()
        until(lambda: client.get("/ready").status_code == 200, "it to go on by itself")
        assert counts.full_since.value == 0
        desk.submit("a")
        until(lambda: store.read(kinds=[Kind.STARTED]), "a job to start")
    finally:
        stop.set()
        for thread in threads:
            thread.join(30.0)
    assert not failed
    own.close()


@pytest.mark.parametrize(
    ("error", "full"),
    [
        (OSError(errno.ENOSPC, "x"), True),
        (OSError(errno.EDQUOT, "x"), True),
        (OSError(errno.EIO, "x"), False),
        (ValueError("database or disk is full"), False),
        (OperationalError("", {}, sqlite3.OperationalError("database or disk is full")), True),
        (OperationalError("", {}, sqlite3.OperationalError("database is locked")), False),
    ],
)
def test_a_full_disk_is_told_from_a_defect(error: Exception, full: bool) -> None:
    assert is_full(error) is full


def test_there_is_room_here(store: Store) -> None:
    assert has_room(store)


# --- whose lease it is ----------------------------------------------------------------------------

HOST = socket.gethostname()


def test_a_lease_of_a_life_that_is_over_makes_nothing_ready() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    ours = f"{HOST}:{os.getpid()}:aa"
    one = Lease("decider", f"{HOST}:{gone.pid}:bb", 3, 10.0, 7)
    lives = Lives()
    assert lives.is_over(one, ours)
    assert not lives.is_over(replace(one, beats=8), ours), "it is renewed: of another container"
    before = replace(one, holder=f"{HOST}:{os.getpid()}:bb")
    assert Lives().is_over(before, ours), "a container's first process has one number always"
    for holder in (ours, f"elsewhere:{gone.pid}:bb", f"{HOST}:{os.getppid()}:bb", "one", "a:b:c"):
        assert not Lives().is_over(replace(one, holder=holder), ours), holder
    assert not Lives().is_over(None, ours)


def test_ready_waits_for_the_decider_of_this_life(desk: Desk, tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    desk.decider.let_go()
    desk.decider = desk.another(f"{HOST}:{gone.pid}:bb")
    assert desk.decider.take_over()
    desk.decider.turn(0.0)
    url = desk.store.engine.url.render_as_string(hide_password=False)
    settings = Settings(database=url, backend="simulated", auth="off", state_dir=tmp_path)
    counts = replace(Counts(), holder=f"{HOST}:{os.getpid()}:aa")
    answers = TestClient(create_app(settings, store=desk.store, counts=counts))
    assert answers.get("/ready").status_code == 503
    desk.decider.let_go()
    desk.decider = desk.another(counts.holder)
    assert desk.decider.take_over()
    desk.decider.turn(0.0)
    assert answers.get("/ready").status_code == 200


@pytest.fixture
def desk(store: Store, tmp_path: Path) -> Desk:
    return Desk(store, tmp_path)
