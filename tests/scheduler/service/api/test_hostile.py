"""Requests that mean no good: the right 4xx, and nothing of them in the state."""

from __future__ import annotations

import errno
import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import Mock

import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import event, select
from sqlalchemy.exc import OperationalError

from scheduler.backends.events import INPUTS, Kind
from scheduler.backends.simulated import JobOutcome
from scheduler.service.api import auth, tokens
from scheduler.service.api.auth import COOKIE, service_user
from scheduler.service.api.limits import Limits
from scheduler.service.api.problems import Problem
from scheduler.service.api.session import local_path
from scheduler.service.api.tokens import TokenError
from scheduler.service.app import create_app
from scheduler.service.log.store import tables
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.visibility import Role
from scheduler.service.pages import live
from scheduler.service.settings import Settings, SettingsError
from scheduler.simulation.work import Work
from tests.scheduler.service.api.conftest import Service, address_of, bearer

JOBS = "/api/v1/jobs"
GOOD = {"command": ["train", "100", "30"], "vc": "vision"}
Made = Callable[..., TestClient]


def inputs(service: Service) -> list[object]:
    """What the state is a fold over."""
    return [event for event in service.events() if event.kind in INPUTS]


# --- tokens --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "header",
    [
        "Bearer",
        "Bearer wrong",
        "Basic YWxpY2U6YWxpY2U=",
        "bearer pellucid_" + "A" * 43,
        "Bearer pellucid_" + "A" * 9000,
        "Bearer ' OR 1=1 --",
        "Bearer \xff\xfe",
    ],
)
def test_a_wrong_token_opens_nothing(shared: Service, header: str) -> None:
    before = inputs(shared)
    headers = {b"Authorization": header.encode("latin-1")}
    for method, path in (("POST", JOBS), ("GET", "/metrics"), ("GET", "/live")):
        answer = shared.strangers.request(method, path, headers=headers, json=GOOD)
        assert answer.status_code == 401, (method, path)
        assert answer.headers["www-authenticate"] == "Bearer"
        assert answer.headers["content-type"] == "application/problem+json"
    assert inputs(shared) == before


def test_a_secret_is_never_stored_and_ends_when_it_is_revoked(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    token, secret = tokens.create(service.store, "eve", Role.SUBMITTER, now=time.time())
    with service.store.engine.connect() as connection:
        kept = repr(connection.execute(select(tables.tokens)).all())
    assert token.id in kept
    assert secret not in kept
    assert secret.removeprefix(tokens.PREFIX) not in kept
    eve = service.having(secret)
    assert eve.get("/api/v1/whoami").status_code == 200
    tokens.revoke(service.store, token.id, time.time())
    now = time.monotonic() + 1.0  # it was looked up less than a second ago
    monkeypatch.setattr(auth, "monotonic", lambda: now)
    assert eve.get("/api/v1/whoami").status_code == 401
    _, old = tokens.create(service.store, "eve", Role.SUBMITTER, now=time.time() - 100, lasts_s=50)
    assert service.having(old).get("/api/v1/whoami").status_code == 401


def test_guessing_is_slowed_and_does_not_fill_the_log(service: Service) -> None:
    statuses = [service.strangers.get(JOBS, headers=bearer(str(i))).status_code for i in range(200)]
    assert set(statuses) == {401, 429}
    refused = [e for e in service.events() if e.kind is Kind.REFUSED]
    assert 20 <= len(refused) <= 30
    assert service.app.state.refusals.counts["too-many-requests"] > 100
    # a right token from the same address still opens
    assert service.by("alice").get(JOBS).status_code == 200


def test_every_refusal_is_in_the_log_for_operators_and_holds_no_secret(service: Service) -> None:
    secret = "pellucid_" + "Z" * 43
    theirs = service.submit("bob.noyce")
    alice, vera, nobody = service.by("alice"), service.by("vera"), service.strangers
    page = {"Accept": "text/html"}
    refusals: list[tuple[Any, str, str]] = [
        (nobody.get(JOBS), "", "unauthorized"),
        (nobody.get(JOBS, headers=bearer(secret)), "", "unauthorized"),
        (nobody.get(JOBS, headers={"Authorization": "Basic YTpi"}), "", "unauthorized"),
        (nobody.get("/", headers={**page, "Cookie": f"{COOKIE}=x"}), "", "unauthorized"),
        (vera.post(JOBS, json=GOOD), "vera", "forbidden"),
        (alice.post(JOBS, json={**GOOD, "priority": 1}), "alice", "forbidden"),
        (alice.post(JOBS, json={**GOOD, "vc": "speech"}), "alice", "forbidden"),
        (alice.get("/api/v1/refusals"), "alice", "forbidden"),
        (alice.get(f"{JOBS}/{theirs}"), "alice", "not-yours"),
        (alice.get(f"/jobs/{theirs}"), "alice", "not-yours"),
        (alice.get(f"/jobs/{theirs}/ask"), "alice", "not-yours"),
        (alice.post(JOBS, content=b"x" * 300_000), "", "body-too-large"),
        (alice.get(JOBS, headers={"Host": "evil.example"}), "", "misdirected-request"),
    ]
    assert all(
        answer.status_code >= 300 or answer.url.path.endswith("/ask") for answer, *_ in refusals
    )
    # who only has no session is shown the way, and what was never there is nobody's
    assert nobody.get("/", headers=page).status_code == 303
    assert alice.get(f"{JOBS}/zzzzzzzzzzzz").status_code == 404
    expected = [(actor, why) for _, actor, why in refusals]
    told = [(e.actor, e.body["why"]) for e in service.events() if e.kind is Kind.REFUSED]
    assert told == expected
    shown = service.by("olga").get("/api/v1/refusals").json()["items"]
    assert [(r["actor"], r["body"]["why"]) for r in shown] == expected[::-1]
    assert secret not in json.dumps(shown)


# --- others' jobs --------------------------------------------------------------------------------


def test_anothers_job_is_not_there(service: Service) -> None:
    job = service.submit("bob.noyce", 1000, gpus=8)
    service.turn(2)
    before = inputs(service)
    for name in ("alice", "vera"):
        person = service.by(name)
        for path in ("", "/story", "/explain", "/forecast"):
            real, none = person.get(f"{JOBS}/{job}{path}"), person.get(f"{JOBS}/zzzzzzzzzzzz{path}")
            shown = none.text.replace("zzzzzzzzzzzz", job)  # what was asked for is echoed
            assert (real.status_code, real.text) == (none.status_code, shown)
            assert real.status_code == 404
        assert person.post(f"{JOBS}/{job}/cancel").status_code == 404
        assert person.put(f"{JOBS}/{job}/priority", json={"priority": -9}).status_code == 404
        assert person.post(f"{JOBS}/{job}/whatif", json={"gpus": 1}).status_code == 404
        assert person.patch(f"{JOBS}/{job}", json={"gpus": 1}).status_code == 404
        assert person.put(f"{JOBS}/{job}/hold").status_code == 404
        assert person.delete(f"{JOBS}/{job}/hold").status_code == 404
    assert inputs(service) == before
    refused = [(e.actor, e.body["why"]) for e in service.events() if e.kind is Kind.REFUSED]
    assert refused == [("alice", "not-yours")] * 10 + [("vera", "not-yours")] * 10
    many = service.by("alice").post(f"{JOBS}/cancel", json={"jobs": [job]})
    assert many.json() == {"asked": [], "over": [], "unknown": [job]}


def test_a_viewer_changes_nothing_even_of_their_own(service: Service) -> None:
    _, secret = tokens.create(
        service.store, "alice", Role.VIEWER, os_user=service_user(), now=time.time()
    )
    job = service.submit("alice", 1000, gpus=8)
    service.submit("alice", 1000, gpus=8)
    before = inputs(service)
    viewer = service.having(secret)
    assert viewer.get(f"{JOBS}/{job}").status_code == 200
    assert viewer.post(JOBS, json=GOOD).status_code == 403
    assert viewer.post(f"{JOBS}/{job}/cancel").status_code == 403
    assert viewer.post(f"{JOBS}/cancel", json={"jobs": [job]}).status_code == 403
    assert viewer.put(f"{JOBS}/{job}/priority", json={"priority": -1}).status_code == 403
    assert inputs(service) == before


# --- what is sent --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/jobs/..%2f..%2f..%2fetc%2fpasswd",
        "/api/v1/jobs/%2e%2e/secret",
        "/api/v1/jobs/a%00b/story",
        "/api/v1/jobs/" + "a" * 5000,
        "/api/v1/jobs/%ff%fe",
        "/api/v1/jobs/' OR '1'='1",
        "/static/../app.py",
        "/static/..%2f..%2fapi%2fauth.py",
        "/jobs/..%2f..%2fetc%2fpasswd",
    ],
)
def test_path_tricks_lead_nowhere(shared: Service, path: str) -> None:
    answer = shared.by("alice").get(path)
    assert answer.status_code in (400, 404)
    assert "root:" not in answer.text


@pytest.mark.parametrize(
    "query",
    [
        "after=AAAA",
        "after=W10",  # []
        "after=WzFlMzA5XQ",  # [1e309]
        "after=WzE4NDQ2NzQ0MDczNzA5NTUxNjE2XQ",  # [2**64]
        "after=" + "W" * 10_000,
        "limit=0",
        "limit=99999999999999999999",
        "phase=asleep",
        "vc=%00",
        "owner=" + "x" * 129,
        "owner=a%1b",
        "owner=a%C2%9B",  # a terminal acts on it, as on the next two
        "owner=a%E2%80%AE",
        "owner=a%E2%80%8B",
    ],
)
def test_odd_queries_are_turned_down(shared: Service, query: str) -> None:
    assert shared.by("alice").get(f"{JOBS}?{query}").status_code == 422
    if query.startswith("owner"):
        assert shared.by("olga").get(f"/history?{query}").status_code == 422


def test_a_huge_body_is_refused_before_it_is_read(service: Service) -> None:
    alice = service.by("alice")
    before = inputs(service)
    for content in (b"x" * 300_000, json.dumps({**GOOD, "name": "n" * 300_000}).encode()):
        answer = alice.post(JOBS, content=content, headers={"Content-Type": "application/json"})
        assert answer.status_code == 413
        assert answer.headers["content-type"] == "application/problem+json"

    def endless() -> object:
        for _ in range(100):
            yield b"y" * 10_000

    assert alice.post(JOBS, content=endless()).status_code == 413
    deep = b"[" * 100_000 + b"]" * 100_000
    answer = alice.post(JOBS, content=deep, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422)
    assert inputs(service) == before


_SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
_JSON = st.recursive(
    _SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8
)
_FIELDS = (
    "command", "gpus", "vc", "name", "workdir", "environment", "cpus", "memory_mib", "gpu_type",
    "time_limit_s", "share", "profile", "priority",
)  # fmt: skip


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(change=st.dictionaries(st.sampled_from(_FIELDS), _JSON, min_size=1))
def test_fuzzed_bodies_are_taken_whole_or_not_at_all(
    service: Service, change: dict[str, object]
) -> None:
    service.world._truth = lambda _: JobOutcome(Work(1.0))  # whatever the command is
    before = len(inputs(service))
    body = json.dumps({**GOOD, **change})  # NaN and lone surrogates included
    answer = service.by("alice").post(
        JOBS, content=body.encode(), headers={"Content-Type": "application/json"}
    )
    assert answer.status_code in (201, 400, 403, 422), answer.text
    assert len(inputs(service)) - before == (answer.status_code == 201)
    if answer.status_code == 201:
        service.turn()  # what was taken can be decided on
        assert answer.json()["job_id"] in service.decider.state.ledger.records


# --- limits, hosts, other sites ------------------------------------------------------------------


@pytest.fixture
def made(service: Service) -> Made:
    """Another app over the same database."""

    def make(limits: Limits | None = None, base: str = "http://testserver", **asked: object):  # type: ignore[no-untyped-def]
        url = service.database
        settings = Settings(**{"database": url, "backend": "simulated", **asked})
        app = create_app(settings, store=service.store, limits=limits or Limits())
        return TestClient(app, base_url=base, follow_redirects=False)

    return make


def test_a_token_has_a_rate(service: Service, made: Made) -> None:
    client = made(Limits(rate_per_s=0.001, burst=5), auth="on")
    for name in ("alice", "bob.noyce"):  # each has a bucket of their own
        headers = bearer(service.secrets[name])
        statuses = [client.get(JOBS, headers=headers).status_code for _ in range(8)]
        assert statuses == [200] * 5 + [429] * 3
        answer = client.get(JOBS, headers=headers)
        assert int(answer.headers["retry-after"]) >= 1


def test_a_large_body_counts_as_many_requests(service: Service, made: Made) -> None:
    """One token once wrote 25 MB a second."""
    client = made(Limits(rate_per_s=0.01, burst=20), auth="on")
    headers = bearer(service.secrets["alice"])
    large = {"command": ["x", *("y" * 30_000 for _ in range(2))], "vc": "vision"}
    statuses = [client.post(JOBS, json=large, headers=headers).status_code for _ in range(3)]
    assert statuses == [201, 429, 429]
    assert client.get(JOBS, headers=headers).status_code == 200, "what is small has room"


def test_what_stays_for_good_is_bounded_by_the_day(service: Service, made: Made) -> None:
    """One token could submit and cancel, within every other limit, 38 GB of log a day."""
    client = made(auth="on", max_changes_per_day=3)
    alice, bob, olga = (bearer(service.secrets[name]) for name in ("alice", "bob.noyce", "olga"))
    for path in ("eta", "jobs/none/whatif") * 2:  # what only asks is no change: 404, 409, 422
        answer = client.post(f"/api/v1/{path}", json={}, headers=alice)
        assert answer.status_code != 429, answer.json()
    answers = [client.post(JOBS, json=GOOD, headers=alice) for _ in range(4)]
    assert [answer.status_code for answer in answers] == [201, 201, 201, 429]
    assert answers[-1].json()["type"].endswith(":too-many-changes")
    assert int(answers[-1].headers["retry-after"]) > 3600
    assert client.get(JOBS, headers=alice).status_code == 200
    assert client.post(JOBS, json=GOOD, headers=bob).status_code == 201
    for _ in range(5):
        assert client.post(JOBS, json=GOOD, headers=olga).status_code == 201


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"host": "0.0.0.0", "auth": "off"}, "loopback only"),
        ({"server_names": "gpu.example.org", "auth": "off"}, "only a token tells them apart"),
        ({"host": "0.0.0.0"}, "pellucid token create"),  # there is none
        ({"server_names": "gpu.example.org"}, "pellucid token create"),
    ],
)
def test_it_does_not_begin_where_nobody_can_be_told_apart(
    store: Store, asked: dict[str, Any], said: str
) -> None:
    settings = Settings(database=address_of(store), **asked)
    with pytest.raises(SettingsError, match=said):
        create_app(settings, store=store)


def test_another_name_for_loopback_is_not_served(made: Made) -> None:
    client = made()
    assert client.get("/api/v1/whoami").status_code == 200
    for host in ("evil.example", "evil.example:8400", "127.0.0.1.evil.example", ""):
        answer = client.get("/api/v1/whoami", headers={"Host": host})
        assert answer.status_code == 421, host
    for host in ("localhost:8400", "127.0.0.1", "[::1]:8400"):
        assert client.get("/api/v1/whoami", headers={"Host": host}).status_code == 200
    hosts = [("Host", "localhost"), ("Host", "evil.example")]
    answer = client.get(JOBS, headers=hosts)
    assert (answer.status_code, answer.json()["detail"]) == (400, "more than one Host header")


def test_other_sites_cannot_act_for_a_visitor(service: Service, made: Made) -> None:
    client = made()  # loopback, tokens off: nothing but the browser's own word to go by
    before = inputs(service)
    for headers in (
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ):
        assert client.post(JOBS, json=GOOD, headers=headers).status_code == 403
    assert inputs(service) == before
    ours = {"Origin": "http://testserver", "Sec-Fetch-Site": "same-origin"}
    assert client.post(JOBS, json=GOOD, headers=ours).status_code == 201


def test_a_session_needs_the_word_of_our_page(service: Service, made: Made) -> None:
    client = made(auth="on")
    answer = client.get("/history?period=day", headers={"Accept": "text/html"})
    shown = "/login?next=/history%3Fperiod%3Dday"
    assert (answer.status_code, answer.headers["location"]) == (303, shown)
    assert client.get(JOBS, headers={"Accept": "text/html"}).status_code == 401
    wrong = client.post("/login", data={"token": "no"})
    assert (wrong.status_code, wrong.headers["location"]) == (303, "/login?wrong=1&next=/")
    answer = client.post("/login", data={"token": service.secrets["alice"], "next": "/history"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/history")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert client.cookies[COOKIE] == service.secrets["alice"]
    assert client.get("/api/v1/whoami").json()["name"] == "alice"
    before = inputs(service)
    assert client.post(JOBS, json=GOOD).status_code == 403
    assert client.post(JOBS, json=GOOD, headers={"X-CSRF-Token": "00"}).status_code == 403
    assert inputs(service) == before
    page = client.get("/").text
    authenticator = client.app.state.authenticator  # type: ignore[attr-defined]
    request = type("Request", (), {"cookies": dict(client.cookies)})()
    word = authenticator.csrf_word(request)
    assert word in page or "csrf" not in page
    answer = client.post(JOBS, json=GOOD, headers={"X-CSRF-Token": word})
    assert answer.status_code == 201
    assert client.post("/logout").status_code == 403, "another site could have sent it"
    assert client.get("/api/v1/whoami").status_code == 200
    assert client.post("/logout", headers={"X-CSRF-Token": word}).status_code == 403, "from nowhere"
    assert client.get("/api/v1/whoami").status_code == 200
    client.post("/logout", headers={"X-CSRF-Token": word, "Origin": "http://testserver"})
    assert client.get("/api/v1/whoami").status_code == 401


@pytest.mark.parametrize(
    "asked",
    ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)", "", "x"],
)
def test_logging_in_leads_to_our_own_pages_only(asked: str) -> None:
    assert local_path(asked) == "/"


def test_every_answer_tells_browsers_to_stay(shared: Service) -> None:
    alice = shared.by("alice")
    for path in (JOBS, "/nothing", "/health", "/", f"{JOBS}/nobody"):
        headers = alice.get(path).headers
        assert "default-src 'self'" in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("method", "breaks"),
    [
        ("GET", "scheduler.service.log.store.reads.VisibleQueries.jobs"),
        ("POST", "scheduler.service.log.store.store.Store.writing"),
    ],
)
def test_a_defect_tells_nothing(
    service: Service, monkeypatch: pytest.MonkeyPatch, method: str, breaks: str
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a secret detail")

    monkeypatch.setattr(breaks, broken)
    answer = service.by("alice").request(method, JOBS, json=GOOD)
    assert answer.status_code == 500
    assert answer.headers["content-type"] == "application/problem+json"
    assert "secret" not in answer.text


class TestOneAccount:
    """A service that is not root runs everybody's jobs in its own account: one job could write
    itself an operator's token into the database, and read another tenant's environment."""

    @pytest.fixture(autouse=True)
    def _not_root(self, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("scheduler.service.settings.os.geteuid", lambda: 1000)

    def settings(self, service: Service, **more: Any) -> Settings:
        return Settings(database=service.database, auth="on", backend="local", **more)

    def test_it_does_not_begin_for_two(self, service: Service) -> None:
        with pytest.raises(SettingsError, match=r"alice, bob\.noyce, olga have tokens") as refused:
            create_app(self.settings(service), store=service.store)
        assert "\n" not in str(refused.value)
        create_app(self.settings(service, single_tenant=True), store=service.store)

    def test_a_second_one_is_not_let_in_later(self, service: Service) -> None:
        for name in ("bob.noyce", "olga"):
            tokens.revoke(service.store, name, time.time())
        app = create_app(self.settings(service), store=service.store)

        def asks(secret: str) -> int:
            return TestClient(app).get(JOBS, headers=bearer(secret)).status_code

        _, second = tokens.create(service.store, "eve", Role.SUBMITTER, now=time.time())
        assert asks(service.secrets["alice"]) == 200
        assert asks(service.secrets["vera"]) == 200, "a viewer runs nothing"
        assert asks(second) == 403
        tokens.revoke(service.store, "alice", time.time())
        assert asks(second) == 200


def test_one_who_asks_has_so_many_questions_open(service: Service) -> None:
    asking = service.app.state.questions
    asking._answer_s = 60.0
    for _ in range(32):
        asking._put("forecast", {}, "alice")
    with pytest.raises(Problem, match="32 questions of yours wait") as refused:
        asking._put("forecast", {}, "alice")
    assert refused.value.status == 429
    asking._put("forecast", {}, "bob.noyce")


# --- what may pass -------------------------------------------------------------------------------


def test_what_may_pass_is_no_defect_and_worth_another_try(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk and a locked database were answered with 500."""
    told = {
        "database is locked": "the database is locked by somebody",
        "database or disk is full": "the service's disk is full",
        "attempt to write a readonly database": "read-only",
        "disk I/O error": "the service's disk fails",
        "server closed the connection": "does not answer",
    }
    errors: list[tuple[Exception, str]] = [
        (OperationalError("INSERT", {}, sqlite3.OperationalError(error)), says)
        for error, says in told.items()
    ]
    errors.append((OSError(errno.ENOSPC, "No space left on device"), "the service's disk is full"))
    errors.append((OSError(errno.EROFS, "Read-only file system"), "disk is read-only"))
    alice = service.by("alice")
    for error, says in errors:
        with monkeypatch.context() as patch:
            patch.setattr(service.store, "writing", Mock(side_effect=error))
            answer = alice.post(JOBS, json=GOOD)
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "5"
        assert says in answer.json()["detail"]
        assert answer.json()["type"].endswith(":unavailable")
    assert alice.post(JOBS, json=GOOD).status_code == 201


# --- tokens that come and go ---------------------------------------------------------------------


def test_a_token_that_is_rotated_overlaps_and_has_the_same_rights(store: Store) -> None:
    old, first = tokens.create(
        store, "alice", Role.SUBMITTER, vcs=("vision",), now=1000.0, lasts_s=500.0
    )
    new, second = tokens.rotate(store, "alice", now=1100.0, overlap_s=60.0)
    assert (new.role, new.vcs, new.expires_at) == (old.role, old.vcs, 1600.0)
    _, reads = tokens.create(store, "alice", Role.VIEWER, now=1101.0)
    assert tokens.rotate(store, "alice", now=1102.0, overlap_s=60.0)[0].role is Role.VIEWER
    with store.engine.connect() as connection:
        for now, which in ((1159.0, [True, True]), (1161.0, [False, True])):
            found = [tokens.find(connection, secret, now) for secret in (first, second)]
            assert [one is not None for one in found] == which
        assert tokens.find(connection, reads, 1163.0) is None
        assert tokens.find(connection, second, 1163.0) is not None, "of another role"
    with pytest.raises(TokenError, match="no token of 'bob' holds"):
        tokens.rotate(store, "bob", now=1100.0, overlap_s=0.0)


def test_a_rotation_that_fails_leaves_no_new_token(store: Store) -> None:
    old, _ = tokens.create(store, "alice", Role.SUBMITTER, now=1000.0)

    def fail(connection: object, cursor: object, statement: str, *_: object) -> None:
        if statement.startswith("UPDATE tokens"):
            raise OSError("disk full")

    event.listen(store.engine, "before_cursor_execute", fail)
    with pytest.raises(OSError, match="disk full"):
        tokens.rotate(store, "alice", now=1100.0, overlap_s=0.0)
    event.remove(store.engine, "before_cursor_execute", fail)
    assert [token.id for token in tokens.every(store)] == [old.id]


def test_a_stream_ends_when_its_token_is_revoked(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It went on, for as long as ten minutes."""
    monkeypatch.setattr(live, "BEAT_S", 0.3)
    monkeypatch.setattr(auth, "KNOWN_S", 0.1)
    client, told = service.by("alice"), 0
    with client.stream("GET", "/live") as stream:
        for line in stream.iter_lines():
            told += line.startswith("data:")
            if told == 2:
                tokens.revoke(service.store, "alice", time.time())
                told += 1
    assert told < 20


# --- large bodies ---------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [JOBS, f"{JOBS}/array", f"{JOBS}/x/whatif", "/submit", "/login"])
def test_rights_are_asked_before_a_large_body_is_read(service: Service, path: str) -> None:
    """Nothing of it is taken: what is sent stands for all that would be."""
    taken = list[int]()

    def body(size: int) -> Iterator[bytes]:
        for _ in range(size // 65_536):
            taken.append(65_536)
            yield b"[" * 65_536

    declared = {"Content-Length": str(10 * 2**20), "Content-Type": "application/json"}
    for who, status in ((service.by("vera"), 403), (service.strangers, 401)):
        answer = who.post(path, content=b"[" * 200_000)
        assert answer.status_code == status, answer.text
        assert who.post(path, content=body(10 * 2**20), headers=declared).status_code == status
    for more in ({}, declared):
        answer = service.by("alice").post(path, content=body(10 * 2**20), headers=more)
        assert answer.status_code == 413
    nested = service.by("alice").post(path, content=b"[" * 200_000)
    assert nested.status_code in (400, 403, 404, 405, 422, 303)
