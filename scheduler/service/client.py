"""A small client of the API.

    with Client("http://127.0.0.1:8400", token) as pellucid:
        job = pellucid.submit(["python", "train.py"], gpus=2, vc="vision")
        print(pellucid.explain(job["job_id"])["reason"])

Answers are what the API sends (its OpenAPI document says what that is), as plain dictionaries.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from socket import gaierror
from types import TracebackType
from typing import Any, Self, cast
from urllib.parse import quote

from features.codec import Json
from features.plain import plain_all
from scheduler.service.http import Answering, Asking, Http, TransportError

DEFAULT_SERVER = "http://127.0.0.1:8400"
PREFIX = "/api/v1"
ATTEMPTS = 4  # of a request that may be repeated, when the server is not there or busy
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 5.0


# headers, as `scheduler.service.log.unread` sets them
UNREAD, NO_DATABASE = "pellucid-slurm-unread-since", "pellucid-slurmdbd-unread-since"


class ServiceError(ValueError):
    """Raised when the service refused a request, or cannot be reached. The message is one line with
    the reason.

    Attributes:
        status: HTTP status of the answer; 0 when there was no answer.
        kind: last part of the problem's `type`; "" when there is none.
    """

    def __init__(self, message: str, status: int = 0, kind: str = ""):
        super().__init__(message)
        self.status = status
        self.kind = kind


def _moment(text: str) -> float | None:
    return float(text) if text.isdecimal() else None


class Connection:
    """Sends requests to one service, repeats them where that is safe, and reads the answers.

    Args:
        server: address of the service; by default $PELLUCID_SERVER, or this machine.
        token: bearer token; by default $PELLUCID_TOKEN. None is needed on loopback when the service
            runs with tokens off.
        http: object that makes the requests, such as a test client; None: an `Http` is made.
    """

    def __init__(
        self,
        server: str | None = None,
        token: str | None = None,
        *,
        timeout_s: float = 30.0,
        http: Asking | None = None,
    ):
        self.server = (server or os.environ.get("PELLUCID_SERVER") or DEFAULT_SERVER).rstrip("/")
        token = token or os.environ.get("PELLUCID_TOKEN") or ""
        if not self.server.startswith(("http://", "https://")):
            raise ServiceError(f"server is {self.server!r}; give http://HOST:PORT or https://...")
        if not token.isascii() or not token.isprintable():
            raise ServiceError("the token holds characters that no token has")
        self.unread_since: float | None = None  # of when answers are: Slurm is silent since
        self.database_since: float | None = None  # of when limits and accounts are: so is slurmdbd
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            self._http = http or Http(self.server, timeout_s)
        except ValueError as error:
            raise ServiceError(f"server is {self.server!r}: {error}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def _pages(self, path: str, limit: int | None, query: Mapping[str, Any]) -> Iterator[Json]:
        asked = {name: value for name, value in query.items() if value is not None}
        left = limit
        while left is None or left > 0:
            size = 100 if left is None else min(left, 100)
            page = self._json("GET", path, params={**asked, "limit": size})
            yield from page["items"]
            left = None if left is None else left - len(page["items"])
            if page["next"] is None:
                return
            asked["after"] = page["next"]

    def _json(self, method: str, path: str, **request: Any) -> Json:
        headers = {**self._headers, **request.pop("headers", {})}
        repeatable = method in ("GET", "PUT") or "Idempotency-Key" in headers
        pause_s = FIRST_PAUSE_S
        for attempt in range(1, ATTEMPTS + 1):
            last = attempt == ATTEMPTS or not repeatable
            try:
                answer = self._http.request(method, PREFIX + path, headers=headers, **request)
            except UnicodeError as error:
                raise ServiceError(f"what is asked for cannot be sent: {error}") from None
            except TransportError as error:
                if last:
                    raise ServiceError(f"{self.server}: {_reason(error)}") from None
            else:
                self.unread_since = _moment(answer.headers.get(UNREAD, ""))
                self.database_since = _moment(answer.headers.get(NO_DATABASE, ""))
                if answer.status_code not in (429, 503) or last:
                    return self._read(answer)
                pause_s = float(answer.headers.get("retry-after", pause_s))
            time.sleep(min(pause_s, LONGEST_PAUSE_S))
            pause_s *= 2
        raise AssertionError("the last attempt returns or raises")

    def _read(self, answer: Answering) -> Json:
        try:
            body = plain_all(answer.json())
        except ValueError:
            raise ServiceError(
                f"{self.server} answers {answer.status_code}, not in JSON: is it Pellucid?",
                answer.status_code,
            ) from None
        if 200 <= answer.status_code < 300:
            return cast(Json, body)
        problem = body if isinstance(body, dict) else {}
        detail = problem.get("detail") or f"{self.server} answers {answer.status_code}"
        if answer.status_code == 401 and not self._headers:
            detail = f"{detail}: put yours into PELLUCID_TOKEN, or give --token-file FILE"
        kind = str(problem.get("type", "")).rpartition(":")[2]
        raise ServiceError(str(detail), answer.status_code, kind)


class JobClient(Connection):
    """Makes requests about jobs: one method for each kind."""

    def submit(self, command: Sequence[str], *, key: str | None = None, **asked: Any) -> Json:
        """Submit a job; further fields are those of the API (gpus, vc, name, ...). Return the job.

        Repeating a request after a lost answer submits nothing twice, because each call has its own
        idempotency key. Give `key` to make that hold across processes.
        """
        return self._submit("/jobs", command, key, asked)

    def submit_array(
        self, command: Sequence[str], array: str, *, key: str | None = None, **asked: Any
    ) -> Json:
        """Submit jobs that differ only in a number, as in "0-9". Return their ids. Like `submit`, a
        repeated request submits nothing twice.
        """
        return self._submit("/jobs/array", command, key, {**asked, "array": array})

    def eta_of(self, command: Sequence[str], **asked: Any) -> Json:
        """Return when a job with this command would start, and how long it should run. Nothing is
        submitted.
        """
        body = {"command": list(command), **asked}
        sent = {name: value for name, value in body.items() if value is not None}
        return self._json("POST", "/jobs/eta", json=sent)

    def _submit(
        self, path: str, command: Sequence[str], key: str | None, asked: Mapping[str, Any]
    ) -> Json:
        if key is not None and not (key.isascii() and key.isprintable()):
            raise ServiceError(f"the key is {key!r}: give characters of ASCII that can be printed")
        body = {"command": list(command), **asked}
        return self._json(
            "POST",
            path,
            json={name: value for name, value in body.items() if value is not None},
            headers={"Idempotency-Key": key or str(uuid.uuid4())},
        )

    def job(self, job_id: str) -> Json:
        return self._json("GET", _path(job_id))

    def jobs(self, *, limit: int | None = None, **filters: Any) -> Iterator[Json]:
        """Yield your jobs (for operators, everybody's), latest first, at most `limit` (None: all),
        read page by page; filters: phase, over, vc, owner, array.
        """
        return self._pages("/jobs", limit, filters)

    def cancel(self, job_id: str) -> Json:
        return self._json("POST", _path(job_id, "cancel"))

    def cancel_many(self, job_ids: Sequence[str], *, preview: bool = False) -> Iterator[Json]:
        """Cancel jobs, a thousand in each request, sent as the answers are iterated. Yield one
        answer for each request: which jobs were asked to stop, which had ended, and which are
        unknown.
        """
        for i in range(0, len(job_ids), 1000):
            body = {"jobs": list(job_ids[i : i + 1000])}
            yield self._json("POST", "/jobs/cancel", json=body, params={"preview": preview})

    def change(self, job_id: str, *, preview: bool = False, **to: Any) -> Json:
        """Change what a waiting job asks for; it keeps its place in the queue. Further fields are
        those of the API's ChangeRequest (gpus, time_limit_s, ...). Return the change; with
        `preview`, it is only shown, not made.
        """
        return self._json("PATCH", _path(job_id), json=to, params={"preview": preview})

    def hold(self, job_id: str, *, preview: bool = False) -> Json:
        """Hold a waiting job, so that it does not start until it is released. Return the change;
        with `preview`, it is only shown, not made.
        """
        return self._json("PUT", _path(job_id, "hold"), params={"preview": preview})

    def release(self, job_id: str, *, preview: bool = False) -> Json:
        """Release a held job, so that it can start again. Return the change; with `preview`, it is
        only shown, not made.
        """
        return self._json("DELETE", _path(job_id, "hold"), params={"preview": preview})

    def set_priority(self, job_id: str, priority: int, *, preview: bool = False) -> Json:
        """Change a job's priority, or only preview that. Return the effect."""
        return self._json(
            "PUT",
            _path(job_id, "priority"),
            json={"priority": priority},
            params={"preview": preview},
        )

    def story(self, job_id: str) -> list[Json]:
        return cast(list[Json], self._json("GET", _path(job_id, "story")))

    def output(self, job_id: str, *, offset: int = 0, attempt: int | None = None) -> Json:
        """Return part of what your job has written, from byte `offset` on; an offset below 0 counts
        from the end.
        """
        asked = {"offset": offset} | ({} if attempt is None else {"attempt": attempt})
        return self._json("GET", _path(job_id, "output"), params=asked)

    def explain(self, job_id: str, *, analyse: bool = False) -> Json:
        """Return where a job is and why. With `analyse`, also return what blocks it and which
        changes would help, each tried on a copy of the core.
        """
        return self._json("GET", _path(job_id, "explain"), params={"analyse": analyse})

    def after(self, job_id: str, other: str) -> Json:
        """Return why another job of yours (`other`) went before this job, or goes before it."""
        return self._json("GET", _path(job_id, "after"), params={"other": other})

    def order(self, vc: str | None = None, *, limit: int = 50) -> list[Json]:
        """Return, for a virtual cluster (None: for each), your waiting jobs (for operators,
        everybody's) in the order of their queue, each with the terms that make its place.
        """
        asked = {"limit": limit} | ({"vc": vc} if vc else {})
        return cast(list[Json], self._json("GET", "/order", params=asked))

    def causes(self) -> Json:
        """Return your waiting jobs (for operators, everybody's) by cause, and the jobs whose end
        would free most of them.
        """
        return self._json("GET", "/causes")

    def share(self, user: str | None = None) -> Json:
        """Return what you used lately and what you are due; operators may name another `user`."""
        return self._json("GET", "/share", params={"user": user} if user else {})

    def claims(self) -> list[Any]:
        """Return how often claims (predictions shown to people) came true, by kind."""
        return list(self._json("GET", "/claims"))

    def beside(self) -> Json:
        """Return how the shadow and the former models compare with the models in use."""
        return self._json("GET", "/models/beside")

    def links(self) -> list[Json]:
        """Return the valid shared links to your jobs (for operators, to everybody's)."""
        return cast(list[Json], self._json("GET", "/links"))

    def revoke_link(self, link_id: str) -> None:
        """Revoke a shared link. Its address then shows nothing."""
        self._json("DELETE", f"/links/{_part(link_id)}")

    def forecast(self, job_id: str) -> Json:
        return self._json("GET", _path(job_id, "forecast"))

    def what_if(self, job_id: str, **changes: Any) -> Json:
        """Return the forecast of a waiting job as it is, and as it would be with these changes:
        fields of the API's WhatIfRequest (gpus, ...).
        """
        return self._json("POST", _path(job_id, "whatif"), json=changes)

    def eta(self, options: Sequence[str], user: str | None = None) -> Json:
        """Return when a job with these options of sbatch would start, by partition. For a service
        in front of a Slurm.
        """
        return self._json("POST", "/eta", json={"options": list(options), "user": user})

    def sooner(self, job_id: str) -> Json:
        """Return which changes would let a waiting job of a followed Slurm start sooner, each tried
        on a copy.
        """
        return self._json("GET", _path(job_id, "sooner"))

    def by_node(self, job_id: str) -> Json:
        """Return what a waiting job of a followed Slurm lacks on each node."""
        return self._json("GET", _path(job_id, "nodes"))


class Client(JobClient):
    """Makes requests to one service: about jobs, and about the cluster with its nodes, settings and
    queues.
    """

    def cluster(self) -> Json:
        return self._json("GET", "/cluster")

    def now(self) -> float:
        """Return the time on the service's clock, seconds since the epoch."""
        return float(self.cluster()["now"])

    def queue(self, vc: str, *, limit: int | None = None) -> Iterator[Json]:
        """Yield the places of a virtual cluster's queue, in order, at most `limit` (None: all). Of
        other users' jobs only the place is shown.
        """
        return self._pages("/queue", limit, {"vc": vc})

    # --- nodes and settings (operators) ------------------------------------------------------

    def nodes(self) -> list[Json]:
        """Return every node with its GPUs, and the jobs on them."""
        return cast(list[Json], self._json("GET", "/nodes"))

    def add_node(self, name: str, vc: str, *, preview: bool = False, **has: Any) -> Json:
        """Add a node, or with `preview` only show the effect. Return the change. `has`: gpus,
        gpu_type and gpu_memory_mib, each taken from a node of the virtual cluster, else from any
        node, where left out; new_vc=True where the virtual cluster is new.
        """
        body = {"name": name, "vc": vc, **{k: v for k, v in has.items() if v is not None}}
        return self._json("POST", "/nodes", json=body, params={"preview": preview})

    def set_node(
        self, node: str, is_open: bool, *, reason: str = "", preview: bool = False
    ) -> Json:
        """Drain nodes (names with commas between), or open them. Return the change. With `preview`,
        only show the effect.
        """
        body = {"open": is_open, "reason": reason}
        return self._json("PUT", _node(node), json=body, params={"preview": preview})

    def change_node(self, node: str, *, preview: bool = False, **to: Any) -> Json:
        """Move a node to another virtual cluster (`vc`), or change what it has: gpus, gpu_type,
        gpu_memory_mib. Further fields: reason, new_vc. Return the change; with `preview`, it is
        only shown, not made.
        """
        body = {name: value for name, value in to.items() if value is not None}
        return self._json("PATCH", _node(node), json=body, params={"preview": preview})

    def remove_node(self, node: str, *, reason: str = "", preview: bool = False) -> Json:
        """Remove a node once nothing runs there. Return the change. With `preview`, only show the
        effect.
        """
        asked = {"reason": reason, "preview": preview}
        return self._json("DELETE", _node(node), params=asked)

    def settings(self) -> list[Json]:
        """Return the settings of the policy, with their present values."""
        return cast(list[Json], self._json("GET", "/settings"))

    def set_settings(
        self, settings: Mapping[str, Any], *, reason: str = "", preview: bool = False
    ) -> Json:
        """Change settings of the policy, by their dotted names; the others stay. Return the change;
        with `preview`, only its effect.
        """
        body = {"settings": dict(settings), "reason": reason}
        return self._json("PUT", "/settings", json=body, params={"preview": preview})

    def whoami(self) -> Json:
        return self._json("GET", "/whoami")


def _node(node: str) -> str:
    return f"/nodes/{_part(node)}"


def _path(job_id: str, *more: str) -> str:
    return "/".join(["/jobs", _part(job_id), *more])


def _part(name: str) -> str:
    """Return a name quoted as a part of a URL's path. Raise ServiceError where it cannot be
    encoded.
    """
    try:
        return quote(name, safe="")
    except UnicodeError:
        raise ServiceError(f"{name!r} is no text") from None


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ConnectionRefusedError | gaierror):
        return "no answer from there (start it with `pellucid serve`, or give --server)"
    return str(error) or type(error).__name__
