"""Checks every request before any route sees it, and completes every response.

- The `Host` header must name this service: otherwise a page on the web whose name was made to point
  at 127.0.0.1 could talk to a service that trusts loopback (DNS rebinding).
- The address and each header have a length: a longer one is refused before it is parsed.
- The body is read here, up to the limit: a larger one is refused before anything is parsed.
- A defect becomes a problem of status 500 without details, and a traceback in our own log.
- Headers tell browsers to load nothing from elsewhere, and to show our pages in no other site's
  frame.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from scheduler.service.api import turns
from scheduler.service.api.problems import Problem, answer, unavailable
from scheduler.service.log.unread import DATABASE, HEADER, Silent, Unread

BODY = "pellucid.body"  # in the scope: the body as bytes
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
SMALL_BODY = 4096  # bytes, which cost nothing to read
BODY_S = 30.0  # longest time a body may take to arrive
PATH_BYTES = 8192  # of an address as it was sent, without its query
QUERY_BYTES, QUERY_FIELDS = 16_384, 512  # a field for each node that is drained at once
HEADER_BYTES = 16_384  # of each header

SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; "
        "form-action 'self'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
log = logging.getLogger("pellucid.api")


def _complete(headers: MutableHeaders, silent: Silent) -> None:
    """Add the headers that every answer has. `silent`: which parts of Slurm do not answer, which
    are named in headers, too.
    """
    for name, value in SECURITY_HEADERS.items():
        headers.setdefault(name, value)
    headers.setdefault("Cache-Control", "no-store")
    for name, since in ((HEADER, silent.slurm), (DATABASE, silent.database)):
        if since is not None:
            headers.setdefault(name, f"{since:.0f}")


async def _silent(scope: Scope) -> Silent:
    """Return which parts of the followed Slurm do not answer; none where no Slurm is
    followed."""
    unread: Unread | None = getattr(scope["app"].state, "unread", None) if "app" in scope else None
    return Silent() if unread is None else await run_in_threadpool(unread.silent)


class RequestGuard:
    """ASGI middleware that checks requests. `hosts`: the accepted names of this service; None: any.
    `body_bytes`: largest body.
    """

    def __init__(self, app: ASGIApp, *, hosts: Sequence[str] | None, body_bytes: int):
        self._app = app
        self._hosts = None if hosts is None else frozenset(hosts)
        self._limit = body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, silent = False, await _silent(scope)

        async def sending(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                turns.end_of(scope)
                _complete(MutableHeaders(scope=message), silent)
            await send(message)

        try:
            try:
                _check_lengths(scope)
                self._check_host(scope)
                await _ask_for_rights(scope)
                body = await asyncio.wait_for(self._body(scope, receive), BODY_S)
            except TimeoutError:
                late = Problem(408, "request-timeout", "the body did not arrive in time")
                await answer(late)(scope, receive, sending)
                return
            except Problem as turned_down:
                if turned_down.refusal:
                    refusals = scope["app"].state.refusals
                    await run_in_threadpool(refusals.note, Request(scope), turned_down)
                await answer(turned_down)(scope, receive, sending)
                return
            scope[BODY] = body
            await self._app(scope, _replayed(body, receive), sending)
        except Exception as error:
            failed = _failed(error, scope)
            if begun:
                raise
            await answer(failed)(scope, receive, sending)
        finally:
            turns.end_of(scope)

    def _check_host(self, scope: Scope) -> None:
        if len(Headers(scope=scope).getlist("host")) > 1:
            raise Problem(400, "malformed-request", "more than one Host header")
        if self._hosts is None:
            return
        host = Headers(scope=scope).get("host", "")
        name = host[: host.index("]") + 1] if host.startswith("[") and "]" in host else host
        name = name if name.startswith("[") else name.partition(":")[0]
        server = scope.get("server") or ("", None)  # no socket: called inside this process
        if name.lower() not in self._hosts and name != server[0]:
            raise Problem(421, "misdirected-request", "this service does not go by that name")

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        declared = Headers(scope=scope).get("content-length", "0")
        if not declared.isdecimal() or len(declared) > 18:
            raise Problem(400, "malformed-request", "Content-Length is no number")
        parts, length, more = [], int(declared), True
        self._check_length(length)
        length = 0
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                break
            parts.append(message.get("body", b""))
            length += len(parts[-1])
            self._check_length(length)
            more = message.get("more_body", False)
        return b"".join(parts)

    def _check_length(self, length: int) -> None:
        if length > self._limit:
            raise Problem(413, "body-too-large", f"the body is larger than {self._limit:,} bytes")


async def _ask_for_rights(scope: Scope) -> None:
    """Raise Problem for a request with a large body, before any of it is read, where its sender may
    not send one. Do nothing for a small body.
    """
    headers = Headers(scope=scope)
    declared = headers.get("content-length", "")
    small = declared.isdecimal() and len(declared) <= 18 and int(declared) <= SMALL_BODY
    if "transfer-encoding" in headers or (declared and not small):
        authenticator = scope["app"].state.authenticator
        await run_in_threadpool(authenticator.may_send, Request(scope))


def _check_lengths(scope: Scope) -> None:
    """Raise Problem (414, 431) where the address or a header of a request is longer than any that
    our own pages and clients send.
    """
    query = scope.get("query_string", b"")
    if len(scope.get("raw_path") or scope["path"]) > PATH_BYTES:
        raise Problem(414, "address-too-long", f"the path is longer than {PATH_BYTES:,} bytes")
    if len(query) > QUERY_BYTES or query.count(b"&") >= QUERY_FIELDS:
        most = f"{QUERY_BYTES:,} bytes or has more than {QUERY_FIELDS} fields"
        raise Problem(414, "address-too-long", f"the query is longer than {most}")
    for name, value in scope["headers"]:
        if len(name) + len(value) > HEADER_BYTES:
            sentence = f"a header is longer than {HEADER_BYTES:,} bytes"
            raise Problem(431, "header-too-long", sentence)


def _failed(error: Exception, scope: Scope) -> Problem:
    """Return the problem that answers a request which failed with `error`, and log the error; an
    unexpected one is logged with its traceback.
    """
    away = unavailable(error)
    if away is not None:
        log.error("unavailable %s %s: %s", scope["method"], scope["path"], away.detail)
        return away
    log.exception("request_failed %s %s", scope["method"], scope["path"])
    return Problem(500, "internal-error", "a defect of the service; it has been logged")


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` function that first gives `body`, which was read before, and after that
    calls `receive`.
    """
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
