"""Whatever is sent in a field, a query, a path or a header costs no more than its length."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from time import process_time
from urllib.parse import quote

import pytest
from fastapi.routing import APIRoute, iter_route_contexts
from fastapi.testclient import TestClient

from scheduler.service.api.request_guard import HEADER_BYTES, PATH_BYTES, QUERY_BYTES
from scheduler.service.app import PREFIX
from scheduler.service.pages import acting, asked
from tests.scheduler.service.pages.conftest import Lived

SOME, LONG = QUERY_BYTES // 4, 65_536  # as many as go into a query when they are quoted; more
PUMPS = (" ", "1", "'")
LONGEST = 20_000  # of a query, before it is quoted: the client sends no longer address
HEADERS = ("Authorization", "Cookie", "Origin", "Accept", "Last-Event-ID", "HX-Target", "X-Any")
FLOOR_S = 0.1  # seconds of CPU; where a field takes its square, SOME cost more
Send = Callable[[TestClient, str], object]


def _routes(client: TestClient) -> Iterator[tuple[str, APIRoute]]:
    """Each route of pages and API, with its path."""
    for context in iter_route_contexts(client.app.routes):  # type: ignore[attr-defined]
        if isinstance(context.route, APIRoute):
            yield str(context.path), context.route


def _queries(client: TestClient, job: str) -> Iterator[tuple[str, Send]]:
    """Each parameter of each page and request that is a GET: those of the path, of the query, and
    the fields that its form asks with."""
    for path, route in _routes(client):
        if "GET" not in route.methods:
            continue
        here = re.sub(r"\{[^}]+\}", "x", path.replace("{job_id}", job))
        names = {param.alias for param in route.dependant.query_params}
        names |= set(acting.FIELDS) if path.endswith("/act") and "/group" not in path else set()
        if path == "/live":
            names = {"after"}  # a stream: what it does not refuse does not end
        for name in sorted(names):
            yield f"{here}?{name}", _asking(here, name)
        for part in re.findall(r"\{[^}]+\}", path):
            yield f"{path} {part}", _going(path, part, job)


def _going(path: str, part: str, job: str) -> Send:
    before, _, after = path.partition(part)
    clean = [re.sub(r"\{[^}]+\}", job, one) for one in (before, after)]
    return lambda client, text: client.get(f"{clean[0]}{quote(text[:LONGEST], safe='')}{clean[1]}")


def _asking(path: str, name: str) -> Send:
    more = "do=change&" if path.endswith("/act") else ""
    return lambda client, text: client.get(f"{path}?{more}{name}={quote(text[:LONGEST])}")


class _Fields(HTMLParser):
    """Names of the fields of a page's forms, by the address that each is sent to."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, set[str]] = defaultdict(set)
        self._to = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "form":
            posts = (given.get("method") or "get").lower() == "post"
            self._to = (given.get("action") or "") if posts else ""
        elif tag in ("input", "select", "textarea", "button") and self._to and given.get("name"):
            self.found[self._to].add(str(given["name"]))


SHOWS_FORMS = (
    "/", "/login", "/submit", "/nodes", "/jobs/{job}", "/jobs/{job}/share", "/links",
    "/jobs/{job}/act?do=change", "/jobs/{job}/act?do=hold", "/jobs/{job}/act?do=cancel",
    "/group/act?do=hold&jobs={job}", "/nodes/change?node=0&open=false",
)  # fmt: skip


def _forms(client: TestClient, job: str, word: str) -> Iterator[tuple[str, Send]]:
    """Each field of each form that the pages show, and those that a page's route reads besides."""
    fields = _Fields()
    for page in SHOWS_FORMS:
        fields.feed(client.get(page.format(job=job)).text)
    inputs = [one.name for one in asked.INPUTS.values()]
    posts = {
        path.replace("{job_id}", job)
        for path, route in _routes(client)
        if "POST" in route.methods and not path.startswith(PREFIX)
    }
    for path in sorted(posts):
        names = set().union(*(n for to, n in fields.found.items() if to.startswith(path)))
        for name in sorted((names | {"do", "jobs", "csrf", *inputs}) - {"csrf"}):
            yield f"{path} {name}", _posting(re.sub(r"\{[^}]+\}", "x", path), name, word)


def _bodies(client: TestClient, job: str) -> Iterator[tuple[str, Send]]:
    """Each field of each JSON body that a request of the API takes."""
    api = client.get(f"{PREFIX}/openapi.json").json()
    for path, methods in api["paths"].items():
        for method, operation in methods.items():
            content = operation.get("requestBody", {}).get("content", {})
            reference = content.get("application/json", {}).get("schema", {}).get("$ref", "")
            schema = api["components"]["schemas"].get(reference.rpartition("/")[2], {})
            here = re.sub(r"\{[^}]+\}", "x", path.replace("{job_id}", job))
            for name in sorted(schema.get("properties", {})):
                yield f"{method} {path} {name}", _sending(method, here, name)


def _sending(method: str, path: str, name: str) -> Send:
    return lambda client, text: client.request(method, path, json={name: text})


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
    sends = [*_queries(client, job), *_forms(client, job, word), *_bodies(client, job)]
    posted = {what.split()[0] for what, _ in _forms(client, job, word)}
    assert {"/submit", "/login", "/group/act", f"/jobs/{job}/share"} <= posted
    assert len(sends) > 200
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
