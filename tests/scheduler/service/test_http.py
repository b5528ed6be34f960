"""The client's own HTTP, against a server of the standard library."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from scheduler.service.client import Client, ServiceError
from scheduler.service.http import Http, TransportError


class Echo(BaseHTTPRequestHandler):
    """Says what it heard; /slow never answers, /odd answers no JSON."""

    protocol_version = "HTTP/1.1"
    heard: list[tuple[str, int]]
    said: dict[str, str] | None = None  # instead of what it heard

    def do_GET(self) -> None:
        self.heard.append((self.path, self.client_address[1]))
        length = int(self.headers.get("Content-Length") or 0)
        told = {"method": self.command, "path": self.path, "body": self.rfile.read(length).decode()}
        if "slow" in self.path:
            threading.Event().wait(1)
            self.close_connection = True
            return
        body = b"<html>" if "odd" in self.path else json.dumps(self.said or told).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    Echo.heard = []
    with ThreadingHTTPServer(("127.0.0.1", 0), Echo) as listening:
        listening.daemon_threads = True
        threading.Thread(target=listening.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{listening.server_address[1]}"
        listening.shutdown()


def test_what_is_asked_arrives_over_one_connection(server: str) -> None:
    http = Http(f"{server}/under/", 5)
    asked = http.request("GET", "/jobs", params={"analyse": True, "vc": "a b"}).json()
    assert asked["path"] == "/under/jobs?analyse=true&vc=a+b"
    sent = http.request("POST", "/jobs", json={"gpus": 2}, headers={"X": "y"}).json()
    assert (sent["method"], json.loads(sent["body"])) == ("POST", {"gpus": 2})
    assert len({port for _, port in Echo.heard}) == 1
    http.close()
    assert http.request("GET", "/again").status_code == 200


def test_no_answer_in_time_is_an_error_and_the_next_request_is_not_its_answer(server: str) -> None:
    http = Http(server, 0.2)
    with pytest.raises(TransportError):
        http.request("GET", "/slow")
    assert http.request("GET", "/fast").json()["path"] == "/fast"


def test_what_is_no_json_is_not_pellucid(server: str) -> None:
    with pytest.raises(ServiceError, match="is it Pellucid"):
        Client(f"{server}/odd").whoami()


@pytest.mark.parametrize(
    "wrong", ["ftp://host", "http://", "http://host:port", "https://[1", "http://h:99999"]
)
def test_a_wrong_address_is_one_line(wrong: str) -> None:
    with pytest.raises(ServiceError, match="server is"):
        Client(wrong)


def test_nobody_there_is_said() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        server = f"http://127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(ServiceError, match="no answer from there"):
            Client(server).cancel("x")


def test_nothing_of_an_answer_is_obeyed_by_a_terminal(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = {"id": "1", "name": "train\x1b]0;owned\x07", "tail": "a\n\x9b2Jb"}
    monkeypatch.setattr(Echo, "said", job)
    with Client(server) as client:
        assert client.job("1") == {
            "id": "1", "name": "train\\x1b]0;owned\\x07", "tail": "a\n\\x9b2Jb"
        }  # fmt: skip
