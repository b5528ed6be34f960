"""Whatever is sent in a field, a query, a path or a header costs no more than its length."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import process_time
from urllib.parse import quote

import pytest
from fastapi.routing import APIRoute, iter_route_contexts
from fastapi.testclient import TestClient

from scheduler.service.api.request_guard import HEADER_BYTES, PATH_BYTES, QUERY_BYTES
from scheduler.service.pages import acting, asked
from tests.scheduler.service.pages.conftest import Lived

SOME, LONG = QUERY_BYTES // 4, 65_536  # as many as go into a query when they are quoted; more
PUMPS = (" ", "1", "'")
LONGEST = 20_000  # of a query, before it is quoted: the client sends no longer address
HEADERS = ("Authorization", "Cookie", "Origin", "Accept", "Last-Event-ID", "HX-Target", "X-Any")
FLOOR_S = 0.1  # seconds of CPU; where a field takes its square, SOME cost more
Send = Callable[[TestClient, str], object]


def _queries(client: TestClient, job: str) -> Iterator[tuple[str, Send]]:
    """Each query parameter of each page and request that is a GET."""
    for context in iter_route_contexts(client.app.routes):  # type: ignore[attr-defined]
        route = context.route
        if not isinstance(route, APIRoute) or context.path == "/live":
            continue
        path = str(context.path).replace("{job_id}", job)
        names = {param.alias for param in route.dependant.query_params}
        names |= set(acting.FIELDS) if path.endswith("/act") and "/group" not in path else set()
        if "GET" in route.methods and "{" not in path:
            for name in sorted(names):
                yield f"{path}?{name}", _asking(path, name)


def _asking(path: str, name: str) -> Send:
    more = "do=change&" if path.endswith("/act") else ""
    return lambda client, text: client.get(f"{path}?{more}{name}={quote(text[:LONGEST])}")


def _forms(job: str, word: str) -> Iterator[tuple[str, Send]]:
    inputs = [one.name for one in asked.INPUTS.values()]
    pages = {
        f"/jobs/{job}/act": ["do", *inputs],
        "/submit": ["command", "workdir", "array", "key", *inputs],
        "/group/act": ["do", "jobs"],
        "/nodes/change": ["node", "open", "reason"],
        "/login": ["token", "next"],
        f"/jobs/{job}/share": ["lasts"],
    }
    for path, names in pages.items():
        for name in names:
            yield f"{path} {name}", _posting(path, name, word)


def _posting(path: str, name: str, word: str) -> Send:
    others = {"csrf": word, "command": "train"} | ({"do": "change"} if name != "do" else {})
    return lambda client, text: client.post(path, data={**others, name: text})


def _cost_s(client: TestClient, send: Send, text: str) -> float:
    def once() -> float:
        begun = process_time()
        send(client, text)
        return process_time() - begun

    first = once()
    return first if first < FLOOR_S else min(first, once(), once())


def test_no_field_costs_more_than_its_length(lived: Lived) -> None:
    job = lived.submit("ada.byron", gpus=4, vc="vision")
    lived.settle(1)
    client = lived.browser("olga")
    word = client.app.state.authenticator.csrf_word(  # type: ignore[attr-defined]
        type("Request", (), {"cookies": dict(client.cookies)})()
    )
    sends = [*_queries(client, job), *_forms(job, word)]
    assert len(sends) > 60
    worse = []
    for what, send in sends:
        for pump in PUMPS:
            for size in (SOME, LONG):
                cost = _cost_s(client, send, f"1{pump * size}x:")
                if cost > FLOOR_S and cost > 8 * _cost_s(client, send, f"1{pump * 64}x:"):
                    worse.append((what, pump, size, cost))
    assert worse == []


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/nodes?find=" + "x" * QUERY_BYTES, {}, 414),
        ("/nodes?" + "a=1&" * 600, {}, 414),
        ("/jobs/" + "x" * PATH_BYTES, {}, 414),
        *(("/nodes", {name: "x" * HEADER_BYTES}, 431) for name in HEADERS),
    ],
)
def test_what_nothing_of_ours_would_send_is_refused_unread(
    lived: Lived, path: str, headers: dict[str, str], status: int
) -> None:
    answer = lived.browser("ada.byron").get(path, headers=headers)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
