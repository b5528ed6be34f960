"""Signing in by a site's own proxy: its word is believed from it alone."""

from __future__ import annotations

import os
import socket
import subprocess
import unicodedata
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import Request
from fastapi.testclient import TestClient

from scheduler.service.api.auth import service_user
from scheduler.service.api.limits import Limits
from scheduler.service.api.problems import Problem
from scheduler.service.api.proxied import FIRST_PERSON
from scheduler.service.app import create_app
from scheduler.service.pages import live
from scheduler.service.settings import Settings, SettingsError, read_settings
from tests.scheduler.service.api.conftest import Service, bearer, listening
from tests.waiting import PATIENCE_S

WHO, JOBS = "/api/v1/whoami", "/api/v1/jobs"
PROXY, US = "192.0.2.7", "http://192.0.2.1:8400"
ROLES = {"gpu-admins": "operator", "vision-team": ["vision"], "talk": ["speech"], "staff": "viewer"}
OAUTH2 = {"X-Forwarded-User": "ann", "X-Forwarded-Groups": "vision-team,talk"}
BROWSER = {"Origin": US}


def settings(service: Service, **given: Any) -> Settings:
    asked: dict[str, Any] = {
        "database": service.database, "backend": "simulated", "host": "0.0.0.0",
        "proxy_addresses": PROXY, "proxy_roles": ROLES,
    }  # fmt: skip
    return Settings(**{**asked, **given})


class Reached:
    """The service of a test behind a proxy, by connections from one address or another."""

    def __init__(self, service: Service, **given: Any):
        limits = Limits(rate_per_s=1e6, burst=10**6, guesses_burst=10**6)
        self.app = create_app(settings(service, **given), store=service.store, limits=limits)

    def by(self, address: str = PROXY) -> TestClient:
        client = (address, 50_000)
        return TestClient(self.app, base_url=US, client=client, follow_redirects=False)


@pytest.fixture
def reached(service: Service) -> Iterator[Reached]:
    made = Reached(service)
    yield made
    made.app.state.changes.close()


@pytest.mark.parametrize(
    ("headers", "role", "vcs"),
    [
        (OAUTH2, "submitter", ["vision", "speech"]),
        ({**OAUTH2, "X-Forwarded-Groups": "vision-team, staff"}, "submitter", ["vision"]),
        ({**OAUTH2, "X-Forwarded-Groups": "staff,gpu-admins"}, "operator", []),
        ({**OAUTH2, "X-Forwarded-Groups": " staff "}, "viewer", []),
    ],
)
def test_groups_give_roles(
    reached: Reached, headers: dict[str, str], role: str, vcs: list[str]
) -> None:
    answer = reached.by().get(WHO, headers=headers)
    assert answer.status_code == 200, answer.text
    told = answer.json()
    assert (told["name"], told["role"], told["vcs"]) == ("ann", role, vcs)


def test_names_are_utf8(reached: Reached) -> None:
    name = "günter@example.org"
    for written in (name, unicodedata.normalize("NFD", name)):  # one person, however it is written
        headers = {**OAUTH2, "X-Forwarded-User": written.encode()}
        assert reached.by().get(WHO, headers=headers).json()["name"] == name
    scope = {
        "type": "http", "client": (PROXY, 1), "server": ("192.0.2.1", 8400),
        "headers": [(b"x-forwarded-user", b"g\xfcnter")],
    }  # fmt: skip
    with pytest.raises(Problem, match="is not UTF-8"):
        reached.app.state.authenticator.admit(Request(scope))


@pytest.mark.parametrize("address", ["192.0.2.8", "127.0.0.1", "10.0.0.1", "::1", "2001:db8::7"])
def test_from_elsewhere_the_headers_are_as_if_they_were_not_there(
    reached: Reached, address: str
) -> None:
    forged = {**OAUTH2, "X-Forwarded-For": PROXY, "X-Real-IP": PROXY, "Forwarded": f"for={PROXY}"}
    assert reached.by(address).get(WHO, headers=forged).status_code == 401


@pytest.mark.parametrize(
    "name", ["X_Forwarded_User", "X-Forwarded_User", "X-Forwarded-Email", "X-Auth-Request-User"]
)
def test_a_header_of_nearly_that_name_says_nothing(reached: Reached, name: str) -> None:
    headers = {name: "olga", "X-Forwarded-Groups": "gpu-admins"}
    assert reached.by().get(WHO, headers=headers).status_code == 401


@pytest.mark.parametrize("twice", ["X-Forwarded-User", "X-Forwarded-Groups"])
def test_what_is_there_twice_is_refused(reached: Reached, twice: str) -> None:
    """A proxy that adds its header to the visitor's own lets the visitor choose."""
    pairs = [*OAUTH2.items(), (twice, "gpu-admins")]
    answer = reached.by().get(WHO, headers=pairs)
    assert answer.status_code == 400
    assert "is there 2 times" in answer.json()["detail"]


def test_it_is_off_until_a_proxy_is_named(service: Service) -> None:
    reached = Reached(service, proxy_addresses="", proxy_roles={})
    assert reached.by().get(WHO, headers=OAUTH2).status_code == 401
    reached.app.state.changes.close()


def test_who_has_no_role_reads_why(reached: Reached) -> None:
    headers = {**OAUTH2, "X-Forwarded-Groups": "chess,choir"}
    answer = reached.by().get(WHO, headers=headers)
    assert answer.status_code == 403
    assert "none of your groups (chess, choir) has a role" in answer.json()["detail"]
    page = reached.by().get("/", headers={**headers, "Accept": "text/html"})
    assert page.status_code == 403
    assert "signed in as ann" in page.text
    assert page.headers["content-type"].startswith("text/html")
    del headers["X-Forwarded-Groups"]
    assert "(there are none) has a role" in reached.by().get(WHO, headers=headers).json()["detail"]


@pytest.mark.parametrize("roles", [{"*": "viewer"}, {"*": ["vision"]}])
def test_everybody_may_have_a_role(service: Service, roles: dict[str, Any]) -> None:
    reached = Reached(service, proxy_roles=roles)
    told = reached.by().get(WHO, headers={"X-Forwarded-User": "ann"}).json()
    assert told["role"] == ("viewer" if roles["*"] == "viewer" else "submitter")
    reached.app.state.changes.close()


def test_a_token_counts_before_the_proxys_word(service: Service, reached: Reached) -> None:
    """Programs come through the proxy, too; a proxy's own bearer or password is none of ours."""
    bob = bearer(service.secrets["bob.noyce"])
    assert reached.by().get(WHO, headers={**OAUTH2, **bob}).json()["name"] == "bob.noyce"
    for own in ("Bearer eyJhbGciOi.J9.c2ln", "Basic YW5uOnB3"):
        answer = reached.by().get(WHO, headers={**OAUTH2, "Authorization": own})
        assert answer.json()["name"] == "ann"
        answer = reached.by("192.0.2.8").get(WHO, headers={**OAUTH2, "Authorization": own})
        assert answer.status_code == 401


def test_another_site_changes_nothing_by_the_proxys_cookie(reached: Reached) -> None:
    body = {"command": ["train", "1", "1"], "vc": "vision"}
    for forged in ({}, {"Origin": "https://evil.example.org"}, {"Sec-Fetch-Site": "cross-site"}):
        answer = reached.by().post(JOBS, json=body, headers={**OAUTH2, **forged})
        assert answer.status_code == 403
        assert answer.json()["type"].endswith("cross-site-request")
    answer = reached.by().post(f"{JOBS}/none/cancel", headers={**OAUTH2, **BROWSER})
    assert answer.status_code == 404


def test_pages_name_who_is_signed_in_and_lead_to_the_proxys_way_out(service: Service) -> None:
    reached = Reached(service, proxy_sign_out="/oauth2/sign_out")
    page = reached.by().get("/", headers={**OAUTH2, "Accept": "text/html"}).text
    assert "ann · submitter" in page
    assert '<a href="/oauth2/sign_out">Log out</a>' in page
    with_token = reached.by().get("/", headers=bearer(service.secrets["alice"])).text
    assert "/oauth2/sign_out" not in with_token
    reached.app.state.changes.close()


def test_a_stream_ends_soon_so_that_the_proxy_is_asked_again(
    reached: Reached, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its headers never change: who lost a role would keep it for as long as the stream lasts."""
    assert live.VOUCHED_S <= live.BEAT_S
    monkeypatch.setattr(live, "BEAT_S", 0.01)
    monkeypatch.setattr(live, "VOUCHED_S", 0.0)
    with reached.by() as client, ThreadPoolExecutor(1) as thread:
        stream = thread.submit(client.get, "/live", headers=OAUTH2)
        try:
            assert "event: hello" in stream.result(PATIENCE_S).text
        finally:
            monkeypatch.setattr(live, "LIFE_S", 0.0)  # whatever is open ends


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs jobs as their users")
def test_whom_the_proxy_names_is_no_account_of_the_system(reached: Reached) -> None:
    for name in ("root", "www-data", "nobody-of-that-name"):
        told = reached.by().get(WHO, headers={**OAUTH2, "X-Forwarded-User": name}).json()
        assert told["os_user"] == ""
    body = {"command": ["id"], "vc": "vision"}
    answer = reached.by().post(
        JOBS, json=body, headers={**OAUTH2, **BROWSER, "X-Forwarded-User": "root"}
    )
    assert answer.status_code == 403


ASK = r"""
exec 3<>"/dev/tcp/127.0.0.1/$0"
printf "GET %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n%s\r\n\r\n" "$1" \
    "X-Forwarded-User: olga" "X-Forwarded-Groups: gpu-admins" >&3
read -r _ status _ <&3
echo "$status"
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_on_this_host_only_the_proxys_account_is_believed(service: Service) -> None:
    given = settings(
        service, host="127.0.0.1", server_names="gpu.example.org", proxy_addresses="127.0.0.1,::1",
        proxy_account="games",
    )  # fmt: skip
    app = create_app(given, store=service.store)
    for address in listening(app):
        answers = {
            user: subprocess.run(
                ["/bin/bash", "-c", ASK, address.rpartition(":")[2], WHO],
                user=user, group="nogroup", capture_output=True, text=True, check=True, timeout=120,
                cwd="/",
            ).stdout.strip()
            for user in ("games", "nobody", "root")
        }  # fmt: skip
    assert answers == {"games": "200", "nobody": "401", "root": "401"}
    app.state.changes.close()


@pytest.mark.parametrize("how", ["open", "half closed", "of no account"])
def test_a_proxy_on_another_host_is_nobody_on_this_one(
    service: Service, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """An address of this host's own among the proxy's lets none of its users in."""
    # stands for an address of this host's own: of one of loopback settings ask for an account
    monkeypatch.setattr("scheduler.service.settings.holds_loopback", lambda _: False)
    reached = Reached(service, proxy_addresses="126.0.0.0/7")
    forged = [(b"x-forwarded-user", b"olga"), (b"x-forwarded-groups", b"gpu-admins")]
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
        with client, accepted:
            if how == "half closed":
                client.shutdown(socket.SHUT_WR)
            if how == "of no account":
                monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
            scope = {
                "type": "http", "client": accepted.getpeername(), "server": accepted.getsockname(),
                "method": "GET", "headers": forged,
            }  # fmt: skip
            with pytest.raises(Problem) as refused:
                reached.app.state.authenticator.admit(Request(scope))
    assert refused.value.status == 401
    assert reached.by("126.0.0.7").get(WHO, headers=OAUTH2).json()["name"] == "ann"
    reached.app.state.changes.close()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"proxy_addresses": "127.0.0.1"}, "proxy_account"),
        ({"proxy_addresses": "::1, 192.0.2.7"}, "proxy_account"),
        ({"proxy_addresses": "0.0.0.0/0"}, "proxy_account"),
        ({"proxy_addresses": "126.0.0.0/7"}, "proxy_account"),
        ({"proxy_addresses": "::/0"}, "proxy_account"),
        ({"proxy_addresses": "192.0.2.7", "proxy_roles": {}}, "proxy_roles is empty"),
        ({"proxy_addresses": "192.0.2.700"}, "proxy_addresses"),
        ({"proxy_roles": {"a": "root"}}, "proxy_roles"),
        ({"proxy_sign_out": "//evil.example.org"}, "proxy_sign_out"),
        ({"proxy_user": "X-User\nX"}, "proxy_user"),
    ],
)
def test_a_setting_that_would_believe_anybody_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        read_settings(**{"proxy_roles": ROLES, **given})


def test_it_begins_for_nobody_who_could_not_be_kept_apart(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SettingsError, match="auth is 'off'"):
        create_app(settings(service, host="127.0.0.1", auth="off"), store=service.store)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(SettingsError, match="several people submit"):
        create_app(settings(service, backend="local"), store=service.store)
    assert service_user()


def test_only_who_submits_has_an_account_and_people_begin_at_1000(
    reached: Reached, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = {"ann": FIRST_PERSON, "daemon": FIRST_PERSON - 1}
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("pwd.getpwnam", lambda name: SimpleNamespace(pw_uid=ids[name]))
    accounts = {
        (name, group): reached.by().get(
            WHO, headers={"X-Forwarded-User": name, "X-Forwarded-Groups": group}
        ).json()["os_user"]
        for name, group in (("ann", "talk"), ("ann", "staff"), ("daemon", "talk"))
    }  # fmt: skip
    assert accounts == {("ann", "talk"): "ann", ("ann", "staff"): "", ("daemon", "talk"): ""}


def test_a_space_of_another_alphabet_is_part_of_a_name_and_of_a_group(reached: Reached) -> None:
    odd = {"X-Forwarded-User": "\u3000ann".encode(), "X-Forwarded-Groups": "staff"}
    assert reached.by().get(WHO, headers=odd).status_code == 400
    odd = {"X-Forwarded-User": "ann", "X-Forwarded-Groups": "gpu-admins\u00a0".encode()}
    assert reached.by().get(WHO, headers=odd).status_code == 403


def test_nobody_is_nobodys_account(reached: Reached, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("pwd.getpwnam", lambda _: SimpleNamespace(pw_uid=65_534))
    assert reached.by().get(WHO, headers=OAUTH2).json()["os_user"] == ""
