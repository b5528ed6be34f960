"""What a request costs grows at most with its length: each field and header, whatever is in it.

Counted in steps (`tests.steps`), on the longest that is taken (beyond that it is refused by its
length) and on the 64 KB that are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from math import log
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.growth import EXPONENT
from tests.scheduler.service.api.conftest import Service, bearer
from tests.steps import steps_of

EMPTY, SHORT, TAKEN, LONG = 0, 1024, 4000, 65_536
PUMPS = ("1,", " [9-")
FEW = 30_000  # steps: about what a request takes that has next to nothing in it
HEADERS = (
    "Accept", "Accept-Language", "Authorization", "Content-Type", "Cookie", "Forwarded", "Host",
    "Idempotency-Key", "If-Match", "If-None-Match", "Last-Event-ID", "Origin", "Range", "Referer",
    "Sec-Fetch-Site", "User-Agent", "X-Forwarded-For", "X-Request-ID",
)  # fmt: skip
Make = Callable[[str], Any]  # a request with a text in it, ready to be sent


def fields(service: Service, by: TestClient) -> Iterator[tuple[str, Make]]:
    """Each field that a request may have: its name, and what makes one with a text in it."""
    document: dict[str, Any] = service.app.openapi()
    parts = document["components"]["schemas"]

    def made(method: str, path: str, given: Callable[[str], dict[str, Any]]) -> Make:
        plain = path.replace("{", "").replace("}", "")
        return lambda text: by.build_request(method.upper(), plain, **given(text))

    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            for one in operation.get("parameters", ()):
                if one["in"] in ("query", "header"):
                    given = partial(_beside, one["in"], one["name"])
                    yield f"{method} {path} {one['name']}", made(method, path, given)
            content = operation.get("requestBody", {}).get("content", {})
            for schema in (one["schema"] for one in content.values()):
                named = parts.get(schema.get("$ref", "").rpartition("/")[2], schema)
                for name, kind in named.get("properties", {}).items():
                    given = partial(_inside, name, kind.get("type", ""))
                    yield f"{method} {path} {name}", made(method, path, given)
    for name in HEADERS:
        yield f"header {name}", made("get", "/api/v1/jobs", partial(_beside, "header", name))
    for path in ("/", "/jobs", "/list", "/causes", "/history", "/forecasts", "/login"):
        yield f"query {path}", made("get", path, lambda text: {"params": {text: text}})
        yield f"form {path}", made("post", path, lambda text: {"data": {"token": text, text: "1"}})


def _beside(where: str, name: str, text: str) -> dict[str, Any]:
    return {"params": {name: text}} if where == "query" else {"headers": {name: text.encode()}}


def _inside(name: str, kind: str, text: str) -> dict[str, Any]:
    value = {"array": [text], "object": {text: text}}.get(kind, text)
    return {"json": {"command": ["train"], "vc": "vision", name: value}}


def worse(make: Make, send: Callable[[Any], object], pump: str, long: int) -> float:
    """Exponent of the growth of the steps of a request, beyond those of an empty one, up to a
    length; 0 where they are few.
    """

    def steps(length: int, times: int = 2) -> int:
        """The least of some: the first of a kind loads modules."""
        found = []
        for _ in range(times):
            request = make(pump * (length // len(pump)))  # what it costs the client doesn't matter
            found.append(steps_of(partial(send, request)))
        return min(found)

    def beyond(length: int) -> int:
        return steps(length) - empty

    if steps(long, 1) <= FEW:
        return 0.0
    empty = steps(EMPTY)
    if (much := beyond(long)) <= FEW:
        return 0.0
    return log(much / max(beyond(SHORT), FEW / 50)) / log(long / SHORT)


@pytest.mark.parametrize(("long", "pumps"), [(TAKEN, PUMPS), (LONG, PUMPS[:1])])
def test_what_a_request_costs_grows_at_most_with_each_of_its_fields(
    shared: Service, monkeypatch: pytest.MonkeyPatch, long: int, pumps: tuple[str, ...]
) -> None:
    monkeypatch.setattr("httpx2._urlparse.MAX_URL_LENGTH", 10 * LONG)  # the client's own
    by, asked, found = shared.by("olga"), 0, dict[str, float]()
    for name, make in fields(shared, by):
        for pump in pumps:
            asked += 1
            if (exponent := worse(make, by.send, pump, long)) > EXPONENT:
                found[f"{name} {pump!r}"] = round(exponent, 2)
    assert found == {}
    assert asked > 150 * len(pumps)


def _nested(text: str) -> None:
    for _ in text[::32]:
        any(one == "x" for one in text)


def _cut(text: str) -> None:
    while text:
        text = text[1:].lstrip("x")


def _replaced(text: str) -> None:
    for _ in range(text.count("1")):
        text = text.replace("1", "2", 1)


@pytest.mark.parametrize("quadratic", [_nested, _cut, _replaced])
def test_a_planted_field_is_found_among_the_others(
    shared: Service, quadratic: Callable[[str], None]
) -> None:
    async def planted(scope: Any, receive: Any, send: Any) -> None:
        quadratic(dict(scope["headers"]).get(b"x-request-id", b"").decode())
        await shared.app(scope, receive, send)

    by = TestClient(planted, headers=bearer(shared.secrets["olga"]), follow_redirects=False)
    found = {
        name
        for name, make in fields(shared, by)
        if name in ("header X-Request-ID", "header User-Agent", "query /jobs")
        if worse(make, by.send, PUMPS[0], TAKEN) > EXPONENT
    }
    assert found == {"header X-Request-ID"}


def test_what_people_send_most_is_among_the_fields(shared: Service) -> None:
    names = {name for name, _ in fields(shared, shared.strangers)}
    assert {f"post /api/v1/jobs {one}" for one in ("command", "environment", "after")} <= names
    assert {"header Cookie", "form /login", "query /jobs"} <= names


def test_most_of_what_is_counted_was_taken(shared: Service) -> None:
    """Not refused by its length: the rest would say nothing of what comes after that."""
    by = shared.by("olga")
    answers = [by.send(make("1" * TAKEN)).status_code for _, make in fields(shared, by)]
    assert not {413, 414, 431} & {*answers}
