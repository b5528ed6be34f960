"""Another account of the host tries what SECURITY.md names, on a real service that runs as root
while a third account's job runs there, and gets nothing."""

from __future__ import annotations

import ctypes
import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmarks.life import family
from scheduler.backends.local import cgroup
from scheduler.service.api import tokens
from scheduler.service.client import Client
from scheduler.service.http import Http
from scheduler.service.log.store.schema import prepare
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.visibility import Role
from tests.scheduler.service.decide.test_serve import _lines, _wait_for, given, served
from tests.waiting import until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

NOBODY, VICTIM = 65_534, "games"
SECRET = "canary-of-the-victim"
PTRACE_SEIZE = 0x4206
JOB = ["/bin/sleep", str(98_000_000 + os.getpid())]  # no other run on this host has its like


@dataclass
class Host:
    """A host with a service, and a job of somebody's.

    Attributes:
        service, job: processes.
        secret: the victim's token.
    """

    folder: Path
    port: int
    service: list[int]
    job: list[int]
    job_id: str
    secret: str


@pytest.fixture(scope="module")
def host(open_folder: Callable[[], Path]) -> Iterator[Host]:
    """Without tokens: whoever comes is who the kernel says, and may submit."""
    folder = open_folder()  # so that others are kept out by us, not by pytest
    settings = given(folder, backend="local", fake_gpus=True, pace=1.0, port=0,
                     auth="off",
                     database=f"sqlite:///{folder / 'state' / 'pellucid.db'}")  # fmt: skip
    settings.state_dir.mkdir(mode=0o700)
    store = Store(settings.database)
    prepare(store)
    _, secret = tokens.create(
        store, "vic", Role.SUBMITTER, vcs=("vc",), os_user=VICTIM, now=time.time()
    )
    store.close()
    log = folder / "log"
    before = set(psutil.pids())
    with served(settings, log) as process:
        _wait_for(log, "decides", 1)
        [port] = {line["port"] for line in _lines(log, "listening")}
        with Client(f"http://127.0.0.1:{port}", secret) as victim:
            more = {"gpus": 1, "vc": "vc", "workdir": "/", "profile": False, "name": "private"}
            job_id = victim.submit(JOB, environment={"WANDB_API_KEY": SECRET}, **more)["job_id"]
            _wait_for(log, "started", 1)
            job = until(
                lambda: [
                    p.pid for p in psutil.process_iter() if p.pid not in before and runs_it(p)
                ],
                "the job's process",
            )
            service = [one.pid for one in family(process.pid)]
            yield Host(folder, port, service, job, job_id, secret)
            victim.cancel(job_id)
            _wait_for(log, "ended", 1)


def runs_it(process: psutil.Process) -> bool:
    try:
        return process.cmdline() == JOB
    except psutil.Error:
        return False


def as_nobody(attempt: Callable[[], Any]) -> Any:
    """What comes of it in a process of that account."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            os.write(write, json.dumps(attempt()).encode())
        except BaseException as error:
            os.write(write, json.dumps(f"failed: {error!r}").encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as answer:
        told = json.loads(answer.read())
    os.waitpid(child, 0)
    assert not str(told).startswith("failed: "), told
    return told


def refused(attempt: Callable[[], Any]) -> bool:
    try:
        attempt()
    except OSError:
        return True
    return False


def done(attempts: dict[str, Callable[[], Any]]) -> list[str]:
    """Names of the attempts that came to something."""
    return [name for name, attempt in attempts.items() if not refused(attempt)]


def opened(path: str | Path, flags: int) -> None:
    os.close(os.open(path, flags | os.O_NONBLOCK))


def test_no_file_of_the_service_can_be_read_written_or_put_in_its_way(host: Host) -> None:
    state = host.folder / "state"
    there = [state, *state.rglob("*")]
    assert {"pellucid.db", "bell", "lock", "claim", "site"} <= {path.name for path in there}

    def tries() -> list[str]:
        attempts: dict[str, Callable[[], Any]] = {"replace it": lambda: state.rename("/tmp/x")}
        for path in there:
            attempts |= {
                f"read {path}": lambda path=path: opened(path, os.O_RDONLY),
                f"write {path}": lambda path=path: opened(path, os.O_WRONLY),
                f"remove {path}": lambda path=path: os.unlink(path),
                f"plant at {path}": lambda path=path: os.symlink("/etc/passwd", path / "planted"),
            }
        return done(attempts)

    assert as_nobody(tries) == []


def test_nothing_that_the_service_holds_open_can_be_written(host: Host) -> None:
    held = set()
    for pid in (*host.service, *host.job):
        for file in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                held.add(os.readlink(file))
        maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
        held |= {line.split(None, 5)[5] for line in maps if line.count("/")}
    paths = sorted(path for path in held if Path(path).is_file())
    assert len(paths) > 20
    tries = {path: lambda path=path: opened(path, os.O_RDWR) for path in paths}
    assert as_nobody(lambda: done(tries)) == []


def test_no_process_can_be_looked_into_signalled_or_moved(host: Host) -> None:
    libc = ctypes.CDLL(None, use_errno=True)

    def seizes(pid: int) -> None:
        if libc.ptrace(PTRACE_SEIZE, pid, None, None):
            raise OSError(ctypes.get_errno(), "ptrace")

    groups = []
    for pid in host.job:
        group = cgroup.own(Path(f"/proc/{pid}"))
        groups += [group] if group is not None and group.name.startswith(cgroup.PREFIX) else []

    def tries() -> list[str]:
        attempts: dict[str, Callable[[], Any]] = {}
        for pid in (*host.service, *host.job):
            attempts |= {
                f"signal {pid}": lambda pid=pid: os.kill(pid, 0),
                f"trace {pid}": lambda pid=pid: seizes(pid),
                f"fds {pid}": lambda pid=pid: os.listdir(f"/proc/{pid}/fd"),
                f"renice {pid}": lambda pid=pid: os.setpriority(os.PRIO_PROCESS, pid, 19),
            }
            for name in ("environ", "mem", "maps", "root", "cwd"):
                attempts[f"{name} {pid}"] = lambda path=f"/proc/{pid}/{name}": opened(
                    path, os.O_RDONLY
                )
        for group in groups:
            for name in ("cgroup.procs", "cgroup.kill", "pids.max"):
                attempts[f"{group}/{name}"] = lambda path=group / name: opened(path, os.O_WRONLY)
        return done(attempts)

    assert as_nobody(tries) == []


def test_the_process_list_holds_no_secret(host: Host) -> None:
    def lists() -> str:
        found = []
        for pid in psutil.pids():
            for name in ("cmdline", "comm", "status"):
                with suppress(OSError):
                    found.append(Path(f"/proc/{pid}/{name}").read_text(errors="replace"))
        return "".join(found)

    listed = as_nobody(lists)
    assert "pipeline.cli" in listed
    assert SECRET not in listed
    assert host.secret not in listed


def test_the_service_listens_at_its_address_alone(host: Host) -> None:
    for pid in host.service:
        for found in psutil.Process(pid).net_connections("all"):
            if found.family == socket.AF_UNIX:
                assert not found.laddr, "a socket that others could connect to"
            elif found.status == psutil.CONN_LISTEN:
                assert tuple(found.laddr) == ("127.0.0.1", host.port)

    def takes() -> bool:
        with socket.socket() as own:
            own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            return refused(lambda: own.bind(("127.0.0.1", host.port)))

    assert as_nobody(takes)


def test_the_api_shows_and_does_nothing_of_anothers(host: Host) -> None:
    """It is who the kernel says it is, whatever it says itself."""
    job = f"/api/v1/jobs/{host.job_id}"
    below = ("", "/story", "/explain", "/forecast", "/events", "/decisions")
    asks: list[tuple[str, str, Any]] = [("GET", f"{job}{more}", None) for more in below]
    asks += [("GET", path, None) for path in (
        "/api/v1/jobs", "/api/v1/queue", "/api/v1/refusals", "/api/v1/links", "/metrics", "/",
        "/history", "/settings", f"/jobs/{host.job_id}", f"/jobs/{host.job_id}/share",
    )]  # fmt: skip
    acts: list[tuple[str, str, Any]] = [
        ("POST", f"{job}/cancel", None),
        ("PUT", f"{job}/priority", {"priority": -1}),
        ("PUT", f"{job}/hold", None),
        ("PATCH", job, {"gpus": 2}),
        ("POST", "/api/v1/jobs/cancel", {"jobs": [host.job_id]}),
        ("POST", "/api/v1/nodes/node000/drain", {"reason": "x"}),
        ("PATCH", "/api/v1/settings", {"settings": {}}),
        ("DELETE", "/api/v1/links/0123456789abcdef", None),
    ]
    lies = [
        {},
        {"Authorization": "Bearer pellucid_" + "A" * 43},
        {"X-Forwarded-For": "127.0.0.1", "Forwarded": "for=127.0.0.1", "X-Real-IP": "127.0.0.1"},
        {"X-Remote-User": "root", "Remote-User": "root", "X-Forwarded-User": VICTIM},
    ]

    def tries() -> list[tuple[str, int, str]]:
        told = []
        for headers in lies:
            http = Http(f"http://127.0.0.1:{host.port}", 30.0)
            for method, path, body in (*asks, *acts):
                answer = http.request(method, path, json=body, headers=headers)
                told.append((f"{method} {path}", answer.status_code, answer.content.decode()))
            http.close()
        return told

    seen = as_nobody(tries)
    assert len(seen) == len(lies) * (len(asks) + len(acts))
    for what, status, text in seen:
        assert status < 500, what
        for hidden in ("private", SECRET, '"vic"', ">vic<", VICTIM):
            assert hidden not in text, (what, hidden)
        if host.job_id in what:
            assert status in (401, 403, 404, 405, 422, 429), what
    assert all(psutil.pid_exists(pid) for pid in host.job)


def test_its_own_job_runs_as_itself_and_finds_nothing(host: Host) -> None:
    """Its job has its account and no more."""
    out = host.folder / "out"
    out.touch()
    os.chown(out, NOBODY, NOBODY)
    looks = (
        f"exec >{out} 2>&1; id -u; id -G; grep CapEff /proc/self/status; ls -l /proc/self/fd; "
        f"env; cat {host.folder}/state/pellucid.db; ls {host.folder}/state"
    )

    def tries() -> int:
        http = Http(f"http://127.0.0.1:{host.port}", 30.0)
        body = {"command": ["/bin/sh", "-c", looks], "vc": "vc", "workdir": "/"}
        status = http.request("POST", "/api/v1/jobs", json=body).status_code
        for user in ("root", VICTIM):
            more = {**body, "os_user": user, "user": user, "owner": user}
            assert http.request("POST", "/api/v1/jobs", json=more).status_code == 422
        return status

    assert as_nobody(tries) == 201
    _wait_for(host.folder / "log", "started", 2)
    until(lambda: "state'" in out.read_text(), "all that it looks at")
    text = out.read_text()
    assert text.splitlines()[0] == str(NOBODY)
    assert "0000000000000000" in text
    assert "PELLUCID_DATABASE" not in text
    assert SECRET not in text
    assert str(host.folder / "state" / "lock") not in text
    assert text.count("Permission denied") == 2
