"""Closes connections whose client sends no whole request or does not read its answer: after a
while, and at once when there are too many connections.

Every connection costs a file descriptor, and a process has only so many. Without this, a client
that opens connections and sends nothing, or reads nothing, locks everybody out, without a token and
without a trace. So does one whose headers do not end, or that sends thousands of requests on one
connection without waiting for answers: the server (uvicorn) does not limit them.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from collections import OrderedDict
from time import monotonic
from typing import Any

import structlog
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

REQUEST_S = 10.0  # a request must have arrived whole so long after its connection, or the last one
ANSWER_S = 30.0  # so long may a client take none of an answer that waits for it
LOOKS = 10  # within that time, at how much of it is left
HEAD_BYTES = 65_536  # of a request without its body, at most
BEHIND = 16  # requests that may wait behind the one that is answered
RESERVED = 128  # descriptors kept for the database, files and answers
MOST_FILES = 65_536
SAY_EVERY_S = 60.0


class Connections:
    """The connections of one API process that wait for a request, by address, oldest first.

    Args:
        most: largest number of connections at once. Beyond it, the oldest waiting one of the
            address with most of them is closed.
        request_s: how long a connection may take for a whole request.
        answer_s: how long a client may read nothing of an answer that is ready.
        closed: a ctypes number, shared by processes, that counts connections closed here, for
            `/metrics`.
    """

    def __init__(
        self,
        most: int,
        request_s: float = REQUEST_S,
        closed: Any = None,
        answer_s: float = ANSWER_S,
    ):
        self.most = most
        self.request_s, self.answer_s = request_s, answer_s
        self._closed = closed
        self._idle: dict[str, OrderedDict[Guarded, None]] = {}
        self._log = structlog.get_logger("api")
        self._logged_at = -SAY_EVERY_S
        self._count = 0

    def idle(self, connection: Guarded) -> None:
        """Note that a connection now waits for a request."""
        self._idle.setdefault(connection.address, OrderedDict())[connection] = None

    def busy(self, connection: Guarded) -> None:
        """Note that a connection no longer waits for a request: it has sent one, or is closed."""
        others = self._idle.get(connection.address)
        if others is not None:
            others.pop(connection, None)
            if not others:
                del self._idle[connection.address]

    def make_room(self, new: Guarded, count: int) -> None:
        """Close one connection if there are too many (`count`): a waiting one, or, if none waits,
        the new one.
        """
        if count <= self.most:
            return
        if self._idle:
            most = max(self._idle.values(), key=len)
            self.close(next(iter(most)))
        else:
            self.close(new)

    def close(self, connection: Guarded) -> None:
        """Close a connection at once, even in the middle of a request."""
        self.busy(connection)
        connection.transport.abort()
        self._count += 1
        if self._closed is not None:
            self._closed.value += 1
        if monotonic() - self._logged_at >= SAY_EVERY_S:
            self._log.warning("connections_closed", number=self._count, address=connection.address)
            self._logged_at, self._count = monotonic(), 0


class Seldom(logging.Filter):
    """Lets each of the server's warnings into the log only once in a while. Otherwise any client
    could fill the log by sending what is no request.
    """

    def __init__(self) -> None:
        super().__init__()
        self._logged_at: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno != logging.WARNING:
            return True
        logged_at, now = self._logged_at.get(record.msg, -SAY_EVERY_S), monotonic()
        if now - logged_at < SAY_EVERY_S:
            return False
        self._logged_at[record.msg] = now
        return True


class Cycle(RequestResponseCycle):
    """A request that counts as disconnected as soon as its connection closes.

    Uvicorn notifies only the newest of several requests sent without waiting for answers, and
    later.
    """

    @property
    def disconnected(self) -> bool:
        return self.transport.is_closing()

    @disconnected.setter
    def disconnected(self, gone: bool) -> None:
        """Do nothing when uvicorn notes a disconnect: the connection itself is looked at."""


class Guarded(HttpToolsProtocol):
    """A connection that closes when no whole request arrives in time, or its client does not read
    the answer.
    """

    counted: Connections  # of this process; set on a subclass by `guarded`
    address = ""
    _deadline: asyncio.TimerHandle | None = None
    _running: RequestResponseCycle | None = None  # `cycle` is the newest: it may wait behind this
    _head = 0  # bytes of this request that are none of its body's

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        self._wait(self.counted.request_s)
        self.counted.make_room(self, len(self.connections))

    def connection_lost(self, exc: Exception | None) -> None:
        self._done_waiting()
        self.pipeline.clear()
        super().connection_lost(exc)
        if self._running is not None:
            self._running.message_event.set()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        cycle.__class__ = Cycle  # uvicorn makes its own, and asks nobody
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def data_received(self, data: bytes) -> None:
        self._head += len(data)
        super().data_received(data)
        if self._head > HEAD_BYTES and not self.transport.is_closing():
            self.counted.close(self)

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        if len(self.pipeline) > BEHIND:  # reading pauses only after all that has been read
            self.counted.close(self)
            raise ConnectionAbortedError  # so that the rest of it is not parsed

    def send_400_response(self, msg: str) -> None:
        if not self.transport.is_closing():
            super().send_400_response(msg)

    def on_body(self, body: bytes) -> None:
        self._head -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._head = 0
        super().on_message_complete()
        if self.flow.write_paused:  # what it asks next takes nothing of the answer before
            return
        if self._answering:
            self._done_waiting()
        else:  # it was answered before it had come whole
            self._wait(self.counted.request_s)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.transport.is_closing() and not self._answering and not self.flow.write_paused:
            self._wait(self.counted.request_s)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._wait_taken()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._answering:
            self._done_waiting()
        elif not self.transport.is_closing():
            self._wait(self.counted.request_s)

    @property
    def _answering(self) -> bool:
        """Return whether a request of this connection, the last or an earlier one, is still being
        answered.
        """
        return self.cycle is not None and not self.cycle.response_complete

    def _wait(self, most_s: float) -> None:
        self._done_waiting()
        self.counted.idle(self)
        self._deadline = self.loop.call_later(most_s, self.counted.close, self)

    def _wait_taken(self) -> None:
        self._done_waiting()
        self.counted.idle(self)
        self._look(self.transport.get_write_buffer_size(), LOOKS)

    def _look(self, left: int, looks: int) -> None:
        """Close the connection if its client has read nothing of the `left` buffered bytes by the
        last of `looks` checks. Otherwise schedule the next check.
        """
        now = self.transport.get_write_buffer_size()
        if now < left:
            self._wait_taken()
        elif looks == 0:
            self.counted.close(self)
        else:
            every_s = self.counted.answer_s / LOOKS
            self._deadline = self.loop.call_later(every_s, self._look, now, looks - 1)

    def _done_waiting(self) -> None:
        self.counted.busy(self)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def guarded(counted: Connections) -> type[Guarded]:
    """Return a connection class for the server, with its connections counted in `counted`."""
    return type("GuardedHere", (Guarded,), {"counted": counted})


def raise_file_limit() -> int:
    """Raise this process's limit of file descriptors as far as allowed (systemd grants 1,024 by
    default). Return how many connections fit into the new limit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return max(soft - RESERVED, soft // 2)
