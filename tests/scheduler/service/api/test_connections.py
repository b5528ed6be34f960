"""A crowd of connections that send nothing locks nobody out."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.sharedctypes import RawValue
from typing import Any
from urllib.request import urlopen

import pytest
import uvicorn
from uvicorn.protocols.http import httptools_impl

from scheduler.service.api.connections import BEHIND, Connections
from scheduler.service.decide.processes import server_config
from tests.scheduler.service.api.conftest import Service
from tests.waiting import PATIENCE_S, until

GRACE_S = 120.0


@contextmanager
def served(service: Any, counted: Connections) -> Iterator[tuple[str, int]]:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    server = uvicorn.Server(server_config(service.app, counted))  # type: ignore[arg-type]
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    until(lambda: server.started, "the server to start", every_s=0.01)
    try:
        yield listener.getsockname()
    finally:
        server.should_exit = True
        thread.join()


def connected(stack: ExitStack, address: tuple[str, int], said: bytes = b"") -> socket.socket:
    one = stack.enter_context(socket.create_connection(address, timeout=GRACE_S))
    one.sendall(said)
    return one


def closed(connection: socket.socket) -> bool:
    """Whether the server closes it, whatever it answers before."""
    try:
        while connection.recv(4096):
            pass
        return True
    except ConnectionResetError:
        return True


def healthy(address: tuple[str, int]) -> bool:
    with urlopen(f"http://127.0.0.1:{address[1]}/health", timeout=GRACE_S) as answer:
        return bool(answer.status == 200)


HALF = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "


@pytest.mark.parametrize("said", [b"", HALF], ids=["nothing", "half a request"])
def test_more_than_there_is_room_for(service: Service, said: bytes) -> None:
    count = RawValue("Q")
    with served(service, Connections(20, 3600.0, count)) as address, ExitStack() as stack:
        crowd = []
        for _ in range(60):
            crowd.append(connected(stack, address, said))
            if len(crowd) % 20 == 0:
                assert healthy(address)
        assert all(map(closed, crowd[:40]))  # the oldest went first
    assert count.value >= 40


@pytest.mark.parametrize(
    "said", [b"", HALF, b"POST /api/v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{"]
)
def test_one_that_takes_too_long_is_closed(service: Service, said: bytes) -> None:
    with served(service, Connections(20, 0.05)) as address, ExitStack() as stack:
        assert closed(connected(stack, address, said))
        assert healthy(address)


WHOLE = 32 * 2**20
MAY_ANSWER = threading.Event()  # /slow
PARTS = {"/large": 512, "/one": 1}


async def answer(scope: Any, receive: Any, send: Any) -> None:
    """Answers /early before it has read the body, /slow once it may, PARTS with 32 MiB."""
    if scope["type"] != "http":
        return
    if parts := PARTS.get(scope["path"]):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        body = bytes(WHOLE // parts)
        for left in reversed(range(parts)):
            await send({"type": "http.response.body", "body": body, "more_body": left > 0})
        return
    if scope["path"] == "/slow":
        assert await asyncio.to_thread(MAY_ANSWER.wait, PATIENCE_S)
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]}
    )
    await send({"type": "http.response.body", "body": b"ok"})


class Bare:
    app = staticmethod(answer)


def test_one_answered_before_its_body_came_is_closed_as_well() -> None:
    head = b"POST /early HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n"
    with served(Bare(), Connections(20, 1.0)) as address, ExitStack() as stack:
        one = connected(stack, address, head)
        assert one.recv(4096).startswith(b"HTTP/1.1 200")
        one.sendall(b"0123456789")
        assert closed(one)


def test_a_slow_answer_to_a_request_sent_behind_another_comes() -> None:
    """The time to ask does not run while an answer is being made."""
    both = b"".join(b"GET /%s HTTP/1.1\r\nHost: x\r\n\r\n" % path for path in (b"fast", b"slow"))
    with served(Bare(), Connections(20, 2.0)) as address, ExitStack() as stack:
        one = connected(stack, address, both)
        said = b""
        while said.count(b"200 OK") < 2:
            more = one.recv(4096)
            assert more, "closed before the second answer"
            said += more
            if not MAY_ANSWER.is_set():  # the first has come: once the time to ask is over
                assert closed(connected(stack, address))
                MAY_ANSWER.set()


LARGE = b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n"


def fast(address: tuple[str, int]) -> bool:
    with urlopen(f"http://127.0.0.1:{address[1]}/fast", timeout=GRACE_S) as answer:
        return bool(answer.read() == b"ok")


def filled(one: socket.socket) -> None:
    """Wait until an answer that is not read has filled what there is room for."""
    before = [0]

    def stands() -> bool:
        there = int.from_bytes(fcntl.ioctl(one, termios.FIONREAD, bytes(4)), sys.byteorder)
        was, before[0] = before[0], there
        return was == there > 0

    until(stands, "an answer that comes no further")


def test_a_crowd_that_takes_no_answer_locks_nobody_out() -> None:
    """Requests sent behind each other, for files that need no token, and nothing read."""
    with served(Bare(), Connections(20, 3600.0, answer_s=3600.0)) as address, ExitStack() as stack:
        crowd = []
        for _ in range(60):
            crowd.append(connected(stack, address, LARGE))
            if len(crowd) % 20 == 0:
                for one in crowd[-20:]:
                    filled(one)
                assert fast(address)
        assert all(map(closed, crowd[:40]))


@pytest.mark.parametrize("path", sorted(PARTS))
def test_an_answer_that_is_not_taken_is_given_up_and_a_slow_one_is_not(path: str) -> None:
    """However few its parts: a slow reader of a large body was cut as one that asks nothing."""
    count, said = RawValue("Q"), LARGE.replace(b"/large", path.encode())
    with (
        served(Bare(), Connections(20, 1.0, count, answer_s=3.0)) as address,
        ExitStack() as stack,
    ):
        slow, stuck = connected(stack, address, said), connected(stack, address, said)
        taken = 0
        while taken < WHOLE:
            more = slow.recv(2**19)
            assert more, f"closed after {taken} bytes"
            taken += len(more)
            time.sleep(0.05)
        until(lambda: count.value, "the connection to be given up")
        kept = 0
        while more := stuck.recv(2**19):
            kept += len(more)
        assert kept < WHOLE, "it had time without an end"


def test_asking_more_does_not_keep_an_answer_that_is_not_taken() -> None:
    """The time ended with the next request, and the connection was held without an end."""
    count = RawValue("Q")
    with (
        served(Bare(), Connections(20, 3600.0, count, answer_s=1.0)) as address,
        ExitStack() as stack,
    ):
        stuck = connected(stack, address, LARGE)
        filled(stuck)
        stuck.sendall(LARGE)
        until(lambda: count.value, "the connection to be given up")


def left(one: socket.socket) -> None:
    """Its client goes without a word."""
    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    one.close()


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [said.getMessage() for said in caplog.records if said.levelno >= logging.ERROR]


def test_a_client_that_goes_away_is_no_defect(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    """With requests behind each other it wrote 6.6 KB of tracebacks into the log."""
    said = b"GET /x HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 3
    with served(service, Connections(20, 3600.0)) as address, ExitStack() as stack:
        for _ in range(10):
            left(connected(stack, address, said))
            assert healthy(address)
    assert not errors(caplog)


def test_a_request_is_told_that_its_client_went_whatever_waits_behind_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A stream went on for nobody."""
    began, told = threading.Event(), threading.Event()

    async def stream(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        await receive()
        began.set()
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        told.set()

    class Streams:
        app = staticmethod(stream)

    said = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 3
    with served(Streams(), Connections(20, 3600.0)) as address, ExitStack() as stack:
        one = connected(stack, address, said)
        assert began.wait(GRACE_S)
        left(one)
        assert told.wait(GRACE_S)
    assert not errors(caplog)


HEAD = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n"
CHUNKED = b"POST /api/v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("begin", "more"),
    [
        (HEAD, b"".join(b"X-%d: %s\r\n" % (i, b"b" * 1000) for i in range(64))),
        (HEAD + b"X: ", b"a" * 65_536),
        (b"GET /", b"a" * 65_536),
        (CHUNKED + b"1\r\n{\r\n0\r\n", b"X: %s\r\n" % (b"b" * 65_000)),
    ],
    ids=["headers", "a header", "an address", "trailers"],
)
def test_what_does_not_end_before_its_body_is_closed(
    service: Service, begin: bytes, more: bytes
) -> None:
    """One connection had a process take 200 MB a second, without a token."""
    with served(service, Connections(20, 3600.0)) as address, ExitStack() as stack:
        one = connected(stack, address, begin)
        sent = 0
        with suppress(ConnectionError):
            while sent < 2**24:
                one.sendall(more)
                sent += len(more)
        assert sent < 2**24
        assert healthy(address)


def test_a_body_is_no_head_nor_are_requests_behind_each_other(service: Service) -> None:
    body = b"x" * 200_000
    head = b"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n" % len(body)
    whole = HEAD + b"X: %s\r\n\r\n" % (b"a" * 5000)
    number = BEHIND + 1
    with served(service, Connections(3, 3600.0)) as address, ExitStack() as stack:
        one = connected(stack, address, head + body)
        assert one.recv(4096).startswith(b"HTTP/1.1 ")
        other, said = connected(stack, address, whole * number), b""
        while said.count(b"HTTP/1.1 200") < number:
            more = other.recv(65_536)
            assert more
            said += more


def test_thousands_of_requests_behind_each_other_are_not_even_read(
    service: Service, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Sixty such connections, 15 MB in all, kept everybody from being answered for 26 s."""
    made = []

    class Told(httptools_impl.RequestResponseCycle):
        def __init__(self, *args: Any, **kwargs: Any):
            made.append(1)
            super().__init__(*args, **kwargs)

    monkeypatch.setattr(httptools_impl, "RequestResponseCycle", Told)
    count = RawValue("Q")
    with served(service, Connections(20, 3600.0, count)) as address, ExitStack() as stack:
        for _ in range(5):
            one = stack.enter_context(socket.create_connection(address, timeout=GRACE_S))
            with suppress(ConnectionError):
                one.sendall((HEAD + b"\r\n") * 7000)
            assert closed(one)
            assert healthy(address)
    assert count.value == 5
    assert len(made) < 500
    assert not errors(caplog)


def test_what_is_no_request_is_in_the_log_once_however_often_it_comes(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    """Any client without a token wrote a line, or two, for each."""
    upgrade = HEAD + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    with served(service, Connections(20, 3600.0)) as address, ExitStack() as stack:
        for _ in range(8):
            assert closed(connected(stack, address, b"no request at all\r\n\r\n"))
            connected(stack, address, upgrade)
        assert healthy(address)
    said = [record.message for record in caplog.records if record.name == "uvicorn.error"]
    warned = [line for line in said if "Invalid" in line or "upgrade" in line]
    assert sorted(warned) == ["Invalid HTTP request received.", "Unsupported upgrade request."]


def test_as_many_descriptors_as_may_be_had() -> None:
    code = (
        "import resource as r; from scheduler.service.api.connections import raise_file_limit; "
        "r.setrlimit(r.RLIMIT_NOFILE, (256, 1024)); room = raise_file_limit(); "
        "print(room, r.getrlimit(r.RLIMIT_NOFILE)[0])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["896", "1024"]
