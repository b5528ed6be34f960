"""Decides who sends a request, and whether they may.

The sender is known by a bearer token, in the `Authorization` header or, for the pages, in a cookie.
Or the site's proxy vouches for the sender (`proxied`). On loopback, where tokens may be off, it is
the user at the other end of the connection. The cookie holds the token itself (HttpOnly,
SameSite=Strict): revoking the token ends the session, too, and there is no table of sessions to
keep.

A request that changes something, and has no token in its header, could have been made by another
site in the visitor's browser. So it must come from our own pages (Origin, Sec-Fetch-Site), and with
a cookie it must also bring a word that only our pages can know (`csrf_word`).
"""

from __future__ import annotations

import hmac
import ipaddress
import os
import pwd
from collections import OrderedDict
from collections.abc import Callable, Collection
from functools import cache
from time import monotonic, time
from typing import Annotated, TypeVar
from urllib.parse import parse_qsl, urlsplit

from fastapi import Depends, Request
from sqlalchemy import Connection
from starlette.concurrency import run_in_threadpool

from scheduler.service.api import shares, tokens, turns
from scheduler.service.api.limits import Buckets, Limits
from scheduler.service.api.peer import peer_user
from scheduler.service.api.problems import Problem
from scheduler.service.api.proxied import Vouched
from scheduler.service.api.request_guard import BODY
from scheduler.service.log.store.reads import Reads, VisibleQueries
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.visibility import Role, Viewer
from scheduler.service.settings import Settings

COOKIE = "pellucid_token"
CSRF_HEADER = "X-CSRF-Token"
KNOWN_S = 1.0  # a token is looked up again after this: a revoked one ends within it
MAX_KNOWN = 1024
DAY_S = 86_400.0
LONGEST_FIELD = 8192  # characters of a field of a form that is no list
SAYS_WHENCE = {"origin", "sec-fetch-site"}  # a browser does
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
Endpoint = TypeVar("Endpoint", bound=Callable[..., object])
_ASKING: set[object] = set()


def only_asks(endpoint: Endpoint) -> Endpoint:
    """Mark a POST endpoint as changing nothing, so that it does not count against an account's
    daily number of changes. Return the endpoint.
    """
    _ASKING.add(endpoint)
    return endpoint


@cache
def service_user() -> str:
    """Return the name of the user this process runs as."""
    uid = os.geteuid()
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


class Authenticator:
    """Identifies the sender of a request by token or session, and checks what the sender may do.
    There is one for each app.
    """

    def __init__(self, settings: Settings, store: Store, limits: Limits):
        self._settings, self._store = settings, store
        self._user = service_user()
        self._known: OrderedDict[str, tuple[Viewer, float]] = OrderedDict()  # by digest
        self._peers: OrderedDict[int, tuple[object, str | None]] = OrderedDict()
        self._vouched = Vouched(settings, self._peer)
        self._limits = limits
        self._rate = Buckets(limits.rate_per_s, limits.burst)
        self._guesses = Buckets(limits.guesses_per_s, limits.guesses_burst)
        kept = settings.max_changes_per_day
        self._kept = Buckets(kept / DAY_S, kept) if kept else None

    def admit(self, request: Request) -> Viewer:
        """Return the viewer who sends a request, and count the request against the viewer's limits.
        Raise Problem (400, 401, 403, 429) where the request is refused.
        """
        viewer, by_header = self._identify(request)
        request.state.actor, request.state.viewer = viewer.name, viewer
        wait = self._rate.take(viewer.name, self._cost(request))
        if wait:
            raise Problem(
                429, "too-many-requests", "slow down: too many requests", retry_after_s=wait
            )
        if request.method not in SAFE:
            if not by_header:
                self.from_our_page(request)
            if request.scope.get("endpoint") not in _ASKING:
                self.spend(viewer, self._cost(request))
        return viewer

    def may_send(self, request: Request) -> None:
        """Raise Problem (401, 403; 429 after too many wrong tokens) where the sender of a request
        may not send a large body. Called before the body is read; its route checks the request
        itself later.
        """
        if self._identify(request)[0].role is Role.VIEWER:
            raise Problem(403, "forbidden", "a viewer sees, and changes nothing")

    def spend(self, viewer: Viewer, changes: float) -> None:
        """Count changes that a viewer makes against an account's limit for a day; changes by
        operators are free. Raise Problem (429) where the limit would be exceeded.
        """
        if self._kept is None or viewer.role is Role.OPERATOR:
            return
        wait = self._kept.take(viewer.name, changes)
        if wait:
            most = self._settings.max_changes_per_day
            sentence = f"too many changes: {most:,} at once, and as many a day, are an account's"
            raise Problem(429, "too-many-changes", sentence, retry_after_s=wait)

    def _cost(self, request: Request) -> float:
        """Return the cost of a request against the rate limit: 1, plus 1 for each `request_bytes`
        bytes of its body.
        """
        return 1.0 + len(request.scope.get(BODY, b"")) // self._limits.request_bytes

    def still(self, request: Request, viewer: Viewer) -> bool:
        """Return whether the sender of an admitted request would still be admitted with the same
        rights.
        """
        try:
            return self._identify(request)[0] == viewer
        except Problem:
            return False

    def enter(self, request: Request, secret: str) -> Viewer:
        """Return the viewer who owns the token with this secret. Raise Problem: 401 if the token is
        not valid, 403 if the service serves another account only, 429 after too many wrong tokens.
        """
        address = request.client.host if request.client else ""
        known = self._fresh(secret)
        if known is not None:
            return known
        with self._store.engine.connect() as connection:
            token = tokens.find(connection, secret, time())
            if token is not None and self._settings.one_account:
                self._alone(connection, token)
        if token is not None:
            self._known[tokens.digest(secret)] = token.viewer, monotonic() + KNOWN_S
            if len(self._known) > MAX_KNOWN:
                self._known.popitem(last=False)
            return token.viewer
        wait = self._guesses.take(address)
        if wait:
            raise Problem(
                429,
                "too-many-requests",
                "too many wrong tokens from this address",
                retry_after_s=wait,
            )
        raise Problem(401, "unauthorized", "this token is unknown, expired or revoked")

    @staticmethod
    def _alone(connection: Connection, token: tokens.Token) -> None:
        """Raise Problem (403) for a token of a second user, unless it is a viewer's. Called where
        all jobs run in one Unix account, which cannot keep users apart.
        """
        first = tokens.tenants(connection, time())[:1]
        if token.role is not Role.VIEWER and token.name not in first:
            raise Problem(
                403,
                "forbidden",
                "this service runs everybody's jobs in its own account, and so serves one person: "
                "it is to run as root, or with `single_tenant: true`",
            )

    def knows(self, request: Request) -> bool:
        """Return whether the token in a request's header was found valid within the last `KNOWN_S`
        seconds.
        """
        scheme, _, secret = request.headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and self._fresh(secret.strip()) is not None

    def _fresh(self, secret: str) -> Viewer | None:
        viewer, until = self._known.get(tokens.digest(secret), (None, 0.0))
        return viewer if monotonic() < until else None

    def csrf_word(self, request: Request) -> str:
        """Return the word, made from the cookie's token, that a form of our own pages sends along
        as `csrf` (or in the header X-CSRF-Token).
        """
        secret = request.cookies.get(COOKIE, "")
        return hmac.digest(secret.encode(errors="surrogatepass"), b"csrf", "sha256").hex()

    def vouched(self, request: Request) -> bool:
        """Return whether the site's proxy vouches for the sender of a request; False also where it
        does so for a person without a role here.
        """
        try:
            return self._vouched.viewer(request) is not None
        except Problem:
            return False

    def secret(self, request: Request) -> str:
        """Return the secret of the token that came with a request, in its header or cookie; ""
        where there is none.
        """
        scheme, _, secret = request.headers.get("authorization", "").partition(" ")
        return secret.strip() if scheme.lower() == "bearer" else request.cookies.get(COOKIE, "")

    def guest(self, request: Request, job_id: str, mark: str) -> tuple[Viewer, int]:
        """Return the viewer that a shared link admits, and until when, in seconds since the epoch.
        `mark`: the secret part of the link. Raise Problem: 404 for a link that is not valid, 429
        for too many requests.
        """
        with self._store.engine.connect() as connection:
            found = shares.opened(connection, job_id, mark, time())
        if found is not None:  # by job: behind a proxy all guests have one address
            wait = self._rate.take(f"link {job_id}")
        else:
            wait = self._guesses.take(request.client.host if request.client else "")
        if wait:
            raise Problem(429, "too-many-requests", "slow down", retry_after_s=wait)
        if found is not None:
            return found
        raise Problem(404, "not-found", "this link does not hold, or does no more")

    def _identify(self, request: Request) -> tuple[Viewer, bool]:
        header = request.headers.get("authorization")
        scheme, _, secret = (header or "").partition(" ")
        if not secret.strip().startswith(tokens.PREFIX):  # else it may be the proxy's own
            vouched = self._vouched.viewer(request)
            if vouched is not None:
                return vouched, False
        if header is not None:
            if scheme.lower() != "bearer":
                raise Problem(401, "unauthorized", "send `Authorization: Bearer TOKEN`")
            return self.enter(request, secret.strip()), True
        cookie = request.cookies.get(COOKIE)
        if cookie is not None:
            return self.enter(request, cookie), False
        if self._settings.needs_token:
            raise Problem(401, "unauthorized", "send `Authorization: Bearer TOKEN`")
        return self._local(request), False

    def _local(self, request: Request) -> Viewer:
        """Return the user at the other end of a loopback connection as a viewer; used where tokens
        are off. The service's own user is an operator. Any other is a submitter to all virtual
        clusters where the service runs as root, and else refused by Problem (401).
        """
        user = self._peer(request)
        if user == self._user:
            return Viewer(user, Role.OPERATOR, os_user=user)
        if user and os.geteuid() == 0:
            vcs = Reads(self._store.engine).seen_by(Viewer(user, Role.VIEWER)).vcs()
            return Viewer(user, Role.SUBMITTER, tuple(vcs), os_user=user)
        raise Problem(
            401, "unauthorized", f"without tokens only user {self._user} on this machine is served"
        )

    def _peer(self, request: Request) -> str | None:
        client, server = request.scope.get("client"), request.scope.get("server")
        if server is not None and not _is_address(server[0]):
            return self._user  # called inside this process, by no socket at all
        if client is None or server is None:
            return ""
        # The server hands out one object per connection: while it is kept here, no other
        # connection can have its id.
        known = self._peers.get(id(client))
        if known is None:
            known = self._peers[id(client)] = client, peer_user(tuple(client), tuple(server))
            if len(self._peers) > 256:
                self._peers.popitem(last=False)
        return known[1]

    def same_origin(self, request: Request) -> None:
        """Raise Problem when another site made the visitor's browser send this request."""
        site = request.headers.get("sec-fetch-site", "same-origin")
        origin = request.headers.get("origin")
        host = request.headers.get("host", "")
        foreign = origin is not None and _netloc(origin) != host.lower()
        if site not in ("same-origin", "none") or foreign:
            raise Problem(403, "cross-site-request", "this request was made by another site")

    def from_our_page(self, request: Request) -> None:
        """Raise Problem (403) for a request that another site may have had the visitor's browser
        send: one from another origin, one that came through the site's proxy and states no origin,
        or one with our cookie and without the word of our pages (`csrf_word`). Other requests pass,
        such as those of programs.
        """
        self.same_origin(request)
        if self._vouched.by_proxy(request) and not SAYS_WHENCE & set(request.headers):
            # the proxy's cookie may come along from anywhere
            raise Problem(403, "cross-site-request", "this request does not say which page made it")
        if COOKIE not in request.cookies:
            return
        word = request.headers.get(CSRF_HEADER) or _fields(request).get("csrf", "")
        ours = self.csrf_word(request).encode()
        if not hmac.compare_digest(ours, word.encode(errors="surrogatepass")):
            raise Problem(403, "cross-site-request", "this page is out of date; load it again")


def form(request: Request, lists: Collection[str] = ()) -> dict[str, str]:
    """Return the fields of an HTML form, from the body that the request guard has read; {} for a
    body of another type. Raise Problem (400) where the form cannot be read, and (422) where a field
    is too long.

    Args:
        lists: fields that hold many names each, and so may be longer than a person writes.
    """
    given = _fields(request)
    for name, value in given.items():
        if len(value) > LONGEST_FIELD and name not in lists:
            what = f"{name[:64]} is longer than the {LONGEST_FIELD:,} characters a form takes"
            raise Problem(422, "invalid-request", what)
    return given


def _fields(request: Request) -> dict[str, str]:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        return {}
    try:
        fields = parse_qsl(request.scope[BODY].decode(), keep_blank_values=True, max_num_fields=64)
    except ValueError:
        raise Problem(400, "malformed-request", "the form cannot be read") from None
    return dict(fields)


def scheme(request: Request) -> str:
    """Return `https` where the visitor speaks TLS, to this service or to a proxy that states so in
    a header; else the request's own scheme.

    A visitor who sends that header without a proxy changes only the answer to that visitor.
    """
    forwarded = request.headers.get("x-forwarded-proto", "")
    return "https" if forwarded == "https" else request.url.scheme


def _netloc(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


async def admitted(request: Request) -> Viewer:
    """Return the viewer who sends the request, as a FastAPI dependency. A request that only reads
    first waits for its turn. Raise Problem (400, 401, 403, 429) where the request is refused.
    """
    authenticator: Authenticator = request.app.state.authenticator
    if authenticator.knows(request):  # nothing to wait for: no need of a thread
        viewer = authenticator.admit(request)
    else:
        viewer = await run_in_threadpool(authenticator.admit, request)
    if request.method in SAFE and turns.KEY not in request.scope:
        request.scope[turns.KEY] = await request.app.state.turns.take(viewer.name)
    return viewer


async def seen(request: Request, viewer: Asking) -> VisibleQueries:
    """Return the queries with which the viewer reads the database, as a FastAPI dependency."""
    reads: Reads = request.app.state.reads
    return reads.seen_by(viewer)


async def operating(viewer: Asking) -> Viewer:
    """Return the viewer if they are an operator, as a FastAPI dependency. Raise Problem (403) for
    others.
    """
    if viewer.role is not Role.OPERATOR:
        raise Problem(403, "forbidden", "only an operator may do this")
    return viewer


Asking = Annotated[Viewer, Depends(admitted)]
Seen = Annotated[VisibleQueries, Depends(seen)]
Operator = Annotated[Viewer, Depends(operating)]
