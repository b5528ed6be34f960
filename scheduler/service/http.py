"""A small HTTP client that needs only the standard library, so that a command which asks one thing
starts at once.
"""

from __future__ import annotations

import http.client
import json as json_
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlencode, urlsplit

TransportError = (OSError, http.client.HTTPException)  # no answer, for whatever reason
KEPT_S = 2.0  # a connection unused for longer may have been closed by the other side


class Answering(Protocol):
    """The attributes of an answer that `service.client` reads; `Answer` has them."""

    @property
    def status_code(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    def json(self) -> Any: ...


class Asking(Protocol):
    """An object that makes requests: `Http`, or a test client of the API."""

    def request(self, method: str, url: str, **asked: Any) -> Answering: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Answer:
    """A server's answer to a request. `headers`: by their names in lower case."""

    status_code: int
    headers: Mapping[str, str]
    content: bytes

    def json(self) -> Any:
        """Return the body as JSON. Raise ValueError when it is not JSON."""
        return json_.loads(self.content)


class Http:
    """Makes requests to one server. Each thread keeps its connection open for a moment. Proxies are
    not used.

    Args:
        server: http://HOST:PORT or https://..., with the path that comes before all others.
        timeout_s: seconds for connecting, and for each part of an answer.

    Raise ValueError when `server` is not such an address.
    """

    def __init__(self, server: str, timeout_s: float):
        parts = urlsplit(server)
        if not parts.hostname:
            raise ValueError("no host")
        parts.hostname.encode("idna")  # what connecting would find
        kinds = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}
        self._kind, self._at = kinds[parts.scheme], (parts.hostname, parts.port)
        self._before, self._timeout_s = parts.path.rstrip("/"), timeout_s
        self._mine = threading.local()

    def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, Any] | None = None,
        json: Any = None,
    ) -> Answer:
        """Send a request and return the answer, whatever its status. Raise TransportError if there
        is no answer.
        """
        query = {k: str(v).lower() if isinstance(v, bool) else v for k, v in (params or {}).items()}
        path = f"{self._before}{url}" + (f"?{urlencode(query)}" if query else "")
        sent = {"Accept": "application/json", **(headers or {})}
        body = None
        if json is not None:
            body, sent["Content-Type"] = json_.dumps(json).encode(), "application/json"
        connection = self._connection()
        try:
            connection.request(method, path, body, sent)
            answer = connection.getresponse()
            content = answer.read()
        except TransportError:
            self.close()
            raise
        self._mine.used = time.monotonic()
        return Answer(answer.status, {k.lower(): v for k, v in answer.headers.items()}, content)

    def close(self) -> None:
        """Close this thread's connection."""
        kept = getattr(self._mine, "connection", None)
        if kept is not None:
            kept.close()
            self._mine.connection = None

    def _connection(self) -> http.client.HTTPConnection:
        if time.monotonic() - getattr(self._mine, "used", 0.0) > KEPT_S:
            self.close()
        if getattr(self._mine, "connection", None) is None:
            self._mine.connection = self._kind(*self._at, timeout=self._timeout_s)
        found: http.client.HTTPConnection = self._mine.connection
        return found
