"""TLS by the proxy that deploy/proxy documents."""

from __future__ import annotations

import datetime
import os
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path

import pytest
import uvicorn
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from scheduler.service.app import create_app
from scheduler.service.settings import Settings
from tests.scheduler.service.api.conftest import Service
from tests.waiting import until

ROOT = Path(__file__).parents[4]
NAME = "pellucid.example.org"
NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
CADDY = shutil.which("caddy")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate of NAME that signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    now = datetime.datetime.now(datetime.UTC)
    day = datetime.timedelta(days=1)
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(1).not_valid_before(now - day).not_valid_after(now + day)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    chain, secret = folder / "fullchain.pem", folder / "key.pem"
    chain.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    pem, plain = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    secret.write_bytes(key.private_bytes(pem, plain, serialization.NoEncryption()))
    return chain, secret


class Proxied:
    """A service behind a proxy, as deploy/proxy has it."""

    def __init__(self, service: Service, folder: Path, proxy: str):
        self.port, self.plain, behind = free_port(), free_port(), free_port()
        settings = Settings(
            database=service.database, backend="simulated", server_names=NAME, port=behind
        )
        self.chain, key = certificate(folder)
        config = uvicorn.Config(
            create_app(settings, store=service.store), port=behind, log_config=None,
            proxy_headers=False,
        )  # fmt: skip
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()
        begin = self._nginx if proxy == "nginx" else self._caddy
        self.proxy = begin(folder, key, behind)

    def _caddy(self, folder: Path, key: Path, behind: int) -> subprocess.Popen[bytes]:
        site = (ROOT / "deploy" / "proxy" / "Caddyfile").read_text()
        for was, there in (
            (f"{NAME} {{", f"{NAME} {{\n\ttls {self.chain} {key}"),
            ("127.0.0.1:8400", f"127.0.0.1:{behind}"),
        ):
            assert was in site
            site = site.replace(was, there)
        own = f"{{\n\tadmin off\n\thttp_port {self.plain}\n\thttps_port {self.port}\n}}\n"
        (folder / "Caddyfile").write_text(own + site)
        assert CADDY is not None
        command = [CADDY, "run", "--config", str(folder / "Caddyfile")]
        homes = {"HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
        return subprocess.Popen(command, env={**os.environ, **homes})

    def _nginx(self, folder: Path, key: Path, behind: int) -> subprocess.Popen[bytes]:
        site = (ROOT / "deploy" / "proxy" / "nginx.conf").read_text()
        for was, there in (
            ("listen 80;", f"listen 127.0.0.1:{self.plain};"),
            ("listen 443 ssl;", f"listen 127.0.0.1:{self.port} ssl;"),
            ("/etc/ssl/pellucid/fullchain.pem", str(self.chain)),
            ("/etc/ssl/pellucid/key.pem", str(key)),
            ("127.0.0.1:8400", f"127.0.0.1:{behind}"),
        ):
            assert was in site
            site = site.replace(was, there)
        paths = "".join(
            f"{kind}_temp_path {folder / kind};"
            for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        (folder / "nginx.conf").write_text(
            f"daemon off; master_process off; pid {folder / 'pid'}; error_log {folder / 'error'};"
            f"events {{}} http {{ access_log off; {paths} {site} }}"
        )
        assert NGINX is not None
        return subprocess.Popen(
            [NGINX, "-c", str(folder / "nginx.conf"), "-p", str(folder), "-e", str(folder / "e")]
        )

    def request(self, method: str, path: str, body: str = "", **headers: str) -> tuple[int, str]:
        context = ssl.create_default_context(cafile=str(self.chain))
        with socket.create_connection(("127.0.0.1", self.port), 10) as plain:
            connection = HTTPSConnection(NAME, self.port, context=context)
            connection.sock = context.wrap_socket(plain, server_hostname=NAME)
            named = {"Host": NAME}  # as at port 443
            named |= {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body or None, named)
            answer = connection.getresponse()
            cookie = answer.headers.get("set-cookie", "")
            return answer.status, cookie + answer.read().decode()

    def close(self) -> None:
        self.proxy.terminate()
        self.proxy.wait(120)
        self.server.should_exit = True
        self.thread.join(120)


@pytest.fixture(params=["nginx", "caddy"])
def proxied(service: Service, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Proxied]:
    if {"nginx": NGINX, "caddy": CADDY}[request.param] is None:
        pytest.skip(f"{request.param} is not installed here")
    folder = tmp_path / "proxy"
    folder.mkdir()
    made = Proxied(service, folder, request.param)
    until(lambda: made.request("GET", "/health")[0] == 200, "the proxy", not_yet=(OSError,))
    yield made
    made.close()


def test_the_documented_proxy_serves_the_api_and_the_pages(
    service: Service, proxied: Proxied
) -> None:
    assert proxied.request("GET", "/api/v1/jobs")[0] == 401, (
        "loopback, and yet a token is asked for"
    )
    bearer = {"Authorization": f"Bearer {service.secrets['alice']}"}
    assert proxied.request("GET", "/api/v1/jobs", **bearer)[0] == 200
    form = {"Content_Type": "application/x-www-form-urlencoded", "Origin": f"https://{NAME}"}
    entered = f"token={service.secrets['alice']}"
    status, said = proxied.request("POST", "/login", entered, **form)
    assert status == 303
    assert "Secure" in said
    assert "HttpOnly" in said
    form["Origin"] = "https://evil.example.org"
    assert proxied.request("POST", "/login", entered, **form)[0] == 403
    # of a name that is not its own, Caddy answers an empty page and asks nobody
    status, said = proxied.request("GET", "/health", Host="evil.example.org")
    assert status == 421 or (status, said) == (200, "")
    # who comes without TLS is sent to it
    connection = HTTPConnection("127.0.0.1", proxied.plain, timeout=120)
    connection.request("GET", "/jobs/a?of=b", headers={"Host": NAME})
    answer = connection.getresponse()
    assert answer.status in (301, 308)
    assert answer.headers["location"] == f"https://{NAME}/jobs/a?of=b"
    connection.close()
