"""Sign-in as deploy/proxy documents it: nginx with oauth2-proxy, and Apache's module."""

from __future__ import annotations

import base64
import http.server
import json
import os
import re
import shutil
import ssl
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator
from functools import partial
from http.client import HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
import uvicorn
import yaml
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from scheduler.service.app import create_app
from scheduler.service.settings import Settings
from tests.scheduler.service.api.conftest import Service, bearer
from tests.scheduler.service.api.test_tls import NAME, NGINX, ROOT, certificate, free_port
from tests.waiting import until

PROXY = ROOT / "deploy" / "proxy"
APACHE = shutil.which("apache2") or shutil.which("apache2", path="/usr/sbin")
MODULES = Path("/usr/lib/apache2/modules")
ISSUER = "https://sso.example.org/realms/site"
WHO = "/api/v1/whoami"
HTML = {"Accept": "text/html"}

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a proxy in an account of its own")


def documented(name: str) -> dict[str, Any]:
    """The settings of Pellucid that stand in the head of an example."""
    lines = (PROXY / name).read_text().splitlines()
    return dict(yaml.safe_load("\n".join(x[4:] for x in lines if x.startswith("#   "))
                               .replace("oauth2-proxy --config", "# ")))  # fmt: skip


def replaced(text: str, *changes: tuple[str, str]) -> str:
    for was, there in changes:
        assert was in text, was
        text = text.replace(was, there)
    return text


class Answers(http.server.BaseHTTPRequestHandler):
    """A server of the test that answers by a function of the path, the body and the headers."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        status, headers, body = self.server.said(  # type: ignore[attr-defined]
            self.path, self.rfile.read(length).decode(), self.headers
        )
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    do_POST = do_GET

    def log_message(self, *_: Any) -> None: ...


class Site:
    """A service of its own process's port with the settings that an example documents."""

    def __init__(self, service: Service, folder: Path, given: dict[str, Any], said: Any):
        self.port, self.behind = free_port(), free_port()
        self.chain, self.key = certificate(folder)
        settings = Settings(
            database=service.database, backend="simulated", port=self.behind, **given
        )
        self.app = create_app(settings, store=service.store)
        config = uvicorn.Config(self.app, port=self.behind, log_config=None, proxy_headers=False)
        self.server = uvicorn.Server(config)
        self.beside = http.server.ThreadingHTTPServer(("127.0.0.1", free_port()), Answers)
        self.beside.said = said  # type: ignore[attr-defined]
        for run in (self.server.run, self.beside.serve_forever):
            threading.Thread(target=run, daemon=True).start()
        self.proxy: subprocess.Popen[bytes] | None = None

    def ask(
        self, path: str, *, body: str | None = None, cookies: str = "", **headers: str
    ) -> tuple[HTTPResponse, str]:
        context = ssl.create_default_context(cafile=str(self.chain))
        context.check_hostname = False  # it is called by its address, and by its name in TLS
        connection = HTTPSConnection("127.0.0.1", self.port, context=context, timeout=60)
        named = {"Host": NAME, **({"Cookie": cookies} if cookies else {}), **headers}
        connection.request("POST" if body is not None else "GET", path, body, named)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer, text

    def up(self) -> None:
        until(lambda: self.ask("/api/v1/nothing")[0].status > 0, "the proxy", not_yet=(OSError,))

    def close(self) -> None:
        assert self.proxy is not None
        self.proxy.terminate()
        self.proxy.wait(120)
        self.beside.shutdown()
        self.server.should_exit = True
        self.app.state.changes.close()


# --- nginx, which asks oauth2-proxy ---------------------------------------------------------------


def oauth2_proxy(path: str, _: str, headers: Any) -> tuple[int, dict[str, str], str]:
    """Answer as oauth2-proxy does with set_xauthrequest: 202 with headers, or 401."""
    if path != "/oauth2/auth":
        return 200, {}, "sign in here"
    session = dict(parse_qs(headers.get("cookie") or ""))
    if "_oauth2_proxy" not in session:
        return 401, {}, ""
    who, _, groups = session["_oauth2_proxy"][0].partition("|")
    given = {
        "X-Auth-Request-User": str(uuid.uuid5(uuid.NAMESPACE_DNS, who)),  # `sub`, as of Keycloak
        "X-Auth-Request-Email": f"{who}@example.org",
        "X-Auth-Request-Preferred-Username": who,
    }
    return 202, given | ({"X-Auth-Request-Groups": groups} if groups else {}), ""


@pytest.fixture
def nginx(service: Service, tmp_path: Path) -> Iterator[Site]:
    if NGINX is None:
        pytest.skip("nginx is not installed here")
    account = documented("oauth2-proxy.cfg")
    site = Site(service, tmp_path, account, oauth2_proxy)
    text = replaced(
        (PROXY / "nginx-oauth2-proxy.conf").read_text(),
        ("listen 443 ssl;", f"listen 127.0.0.1:{site.port} ssl;"),
        ("/etc/ssl/pellucid/fullchain.pem", str(site.chain)),
        ("/etc/ssl/pellucid/key.pem", str(site.key)),
        ("127.0.0.1:8400", f"127.0.0.1:{site.behind}"),
        ("127.0.0.1:4180", f"127.0.0.1:{site.beside.server_port}"),
    )
    paths = "".join(
        f"{kind}_temp_path {tmp_path / kind};"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (tmp_path / "nginx.conf").write_text(
        f"user {account['proxy_account']} nogroup; daemon off; pid {tmp_path / 'pid'};"
        f"error_log stderr; events {{}} http {{ access_log off; {paths} {text} }}"
    )
    site.proxy = subprocess.Popen(
        [NGINX, "-c", str(tmp_path / "nginx.conf"), "-p", str(tmp_path), "-e", "stderr"]
    )
    site.up()
    yield site
    site.close()


def test_nginx_and_oauth2_proxy_name_who_is_signed_in(service: Service, nginx: Site) -> None:
    sign_in, _ = nginx.ask("/list", **HTML)
    assert sign_in.status == 302
    assert sign_in.headers["location"].endswith("/oauth2/start?rd=/list")
    ann = partial(nginx.ask, cookies="_oauth2_proxy=ann|vision-team,staff")
    answer, page = ann("/", **HTML)
    assert answer.status == 200
    assert "ann · submitter" in page
    forged = {"X-Forwarded-User": "olga", "X-Forwarded-Groups": "gpu-admins"}
    assert "ann · submitter" in ann("/", **HTML, **forged)[1]
    plain = partial(nginx.ask, cookies="_oauth2_proxy=eve")  # in no group: the header is left out
    assert "eve · viewer" in plain("/", **HTML, **forged)[1]
    assert "olga · operator" in nginx.ask("/", cookies="_oauth2_proxy=olga|gpu-admins")[1]
    # programs bring a token, and are nobody without one
    assert nginx.ask(WHO, **forged)[0].status == 401
    alice = bearer(service.secrets["alice"])
    assert json.loads(nginx.ask(WHO, **forged, **alice)[1])["name"] == "alice"
    # another site's form is refused, our own is taken
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    for origin, allowed in (("https://evil.example.org", False), (f"https://{NAME}", True)):
        body = urlencode({"csrf": "x"})
        answer, _ = ann("/jobs/none/act", body=body, Origin=origin, **form)
        assert (answer.status != 403) is allowed


# --- Apache, whose module speaks OIDC itself ------------------------------------------------------


def _b64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


class Provider:
    """An OpenID provider, small: it signs in whoever it is set to, and asks for no password."""

    def __init__(self) -> None:
        self.key = rsa.generate_private_key(65_537, 2048)
        self.who, self.nonce = {"preferred_username": "ann", "groups": ["vision-team"]}, ""

    def __call__(self, path: str, body: str, _: Any) -> tuple[int, dict[str, str], str]:
        asked = urlsplit(path)
        kind = {"Content-Type": "application/json"}
        if asked.path.endswith("/openid-configuration"):
            ends = {"authorization_endpoint": "auth", "token_endpoint": "token", "jwks_uri": "keys"}
            return 200, kind, json.dumps({
                "issuer": self.at, **{name: f"{self.at}/{end}" for name, end in ends.items()},
                "response_types_supported": ["code"], "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": ["RS256"],
                "token_endpoint_auth_methods_supported": ["client_secret_post"],
            })  # fmt: skip
        if asked.path.endswith("/auth"):
            given = {name: values[0] for name, values in parse_qs(asked.query).items()}
            self.nonce = given["nonce"]
            back = urlencode({"code": "c0de", "state": given["state"]})
            return 302, {"Location": f"{given['redirect_uri']}?{back}"}, ""
        if asked.path.endswith("/keys"):
            numbers = self.key.public_key().public_numbers()
            n, e = numbers.n.to_bytes(256, "big"), numbers.e.to_bytes(3, "big")
            key = {"kty": "RSA", "use": "sig", "alg": "RS256", "kid": "1", "n": _b64(n)}
            return 200, kind, json.dumps({"keys": [{**key, "e": _b64(e)}]})
        assert parse_qs(body)["code"] == ["c0de"]
        token = {"access_token": "a", "token_type": "Bearer", "id_token": self._signed()}
        return 200, kind, json.dumps(token)

    def _signed(self) -> str:
        now = int(time.time())
        claims = {
            "iss": self.at, "aud": "pellucid", "sub": "1", "iat": now, "exp": now + 600,
            "nonce": self.nonce, **self.who,
        }  # fmt: skip
        head = {"alg": "RS256", "typ": "JWT", "kid": "1"}
        text = ".".join(_b64(json.dumps(part).encode()) for part in (head, claims))
        signature = self.key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{text}.{_b64(signature)}"

    at = ""


@pytest.fixture
def provider() -> Provider:
    return Provider()


@pytest.fixture
def apache(service: Service, provider: Provider, tmp_path: Path) -> Iterator[Site]:
    if APACHE is None or not (MODULES / "mod_auth_openidc.so").exists():
        pytest.skip("Apache with mod_auth_openidc is not installed here")
    account = documented("apache-openidc.conf")
    site = Site(service, tmp_path, account, provider)
    provider.at = f"http://127.0.0.1:{site.beside.server_port}/realms/site"
    text = replaced(
        (PROXY / "apache-openidc.conf").read_text(),
        ("<VirtualHost *:443>", f"Listen 127.0.0.1:{site.port}\n<VirtualHost *:{site.port}>"),
        ("/etc/ssl/pellucid/fullchain.pem", str(site.chain)),
        ("/etc/ssl/pellucid/key.pem", str(site.key)),
        ("127.0.0.1:8400", f"127.0.0.1:{site.behind}"),
        (ISSUER, provider.at),
        ("/bin/cat /etc/pellucid/oidc-secret", "/bin/echo secret"),
        ("/bin/cat /etc/pellucid/oidc-passphrase", "/bin/echo phrase"),
    )
    loaded = (
        "mpm_event authn_core authz_core authz_user socache_shmcb ssl headers proxy proxy_http "
        "auth_openidc"
    )
    lines = [f"LoadModule {name}_module {MODULES}/mod_{name}.so" for name in loaded.split()]
    (tmp_path / "apache.conf").write_text(
        "\n".join([
            f"ServerRoot {tmp_path}", f"PidFile {tmp_path / 'pid'}", "ErrorLog /dev/stderr",
            f"ServerName {NAME}", f"User {account['proxy_account']}", "Group nogroup",
            f"DefaultRuntimeDir {tmp_path}", f"Mutex file:{tmp_path}", *lines, text,
        ])
    )  # fmt: skip
    site.proxy = subprocess.Popen([APACHE, "-f", str(tmp_path / "apache.conf"), "-D", "FOREGROUND"])
    site.up()
    yield site
    site.close()


def signed_in(site: Site, provider: Provider) -> str:
    """Go the way of a browser through the provider; the cookies that it then has."""
    cookies: dict[str, str] = {}

    def keep(answer: HTTPResponse) -> None:
        for line in answer.headers.get_all("set-cookie") or []:
            name, _, value = line.partition(";")[0].partition("=")
            cookies[name] = value

    def held() -> str:
        return "; ".join(f"{name}={value}" for name, value in cookies.items())

    answer, _ = site.ask("/list", **HTML)
    keep(answer)
    assert answer.status == 302
    assert answer.headers["location"].startswith(f"{provider.at}/auth?")
    status, headers, _ = provider(answer.headers["location"], "", {})
    assert status == 302
    assert headers["Location"].startswith(f"https://{NAME}/oidc/back?")
    back = urlsplit(headers["Location"])
    answer, text = site.ask(f"{back.path}?{back.query}", cookies=held(), **HTML)
    keep(answer)
    assert answer.status == 302, text
    assert urlsplit(answer.headers["location"]).path == "/list"
    return held()


def test_apache_signs_in_at_the_provider_and_names_who_it_was(
    service: Service, provider: Provider, apache: Site
) -> None:
    forged = {"OIDC_CLAIM_preferred_username": "olga", "OIDC_CLAIM_groups": "gpu-admins"}
    assert apache.ask("/", **HTML, **forged)[0].status == 302
    assert apache.ask("/", **forged)[0].status == 401, "who asks for no page is not sent around"
    ann = signed_in(apache, provider)
    page = apache.ask("/", cookies=ann, **HTML)[1]
    assert "ann · submitter" in page
    way_out = re.search(r'<a href="([^"]+)">Log out</a>', page)
    assert way_out is not None
    assert "ann · submitter" in apache.ask("/", cookies=ann, **HTML, **forged)[1]
    provider.who = {"preferred_username": "olga", "groups": ["staff", "gpu-admins"]}
    assert "olga · operator" in apache.ask("/", cookies=signed_in(apache, provider), **HTML)[1]
    # programs bring a token; neither a cookie nor a header of theirs vouches for anybody
    assert apache.ask(WHO, cookies=ann, **forged)[0].status == 401
    alice = bearer(service.secrets["alice"])
    assert json.loads(apache.ask(WHO, **forged, **alice)[1])["name"] == "alice"
    # the way out ends the session at the proxy
    answer, _ = apache.ask(way_out[1].replace("&amp;", "&"), cookies=ann, **HTML)
    assert answer.status == 302
    assert apache.ask("/", cookies=ann, **HTML)[0].status == 302
