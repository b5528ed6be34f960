"""Runs the real command line against a small server that repeats one given answer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


def command(address: str, token: str, *words: str) -> str:
    """Run `pellucid` with these words in a process of its own, against the server at `address`.
    Return what it prints; "" where it fails.
    """
    environment = {**os.environ, "PELLUCID_SERVER": address, "PELLUCID_TOKEN": token}
    line = [sys.executable, "-m", "pipeline.cli", *words]
    done = subprocess.run(line, env=environment, capture_output=True, check=False, text=True)
    return done.stdout if done.returncode == 0 else ""


def lines(told: Mapping[str, Any], now: float, *words: str) -> str:
    """Return what `pellucid why` prints when the API answers `told` at time `now`."""
    with _repeating(told, now) as address:
        return command(address, "of-nobody", "why", str(told["job_id"]), *words)


@contextmanager
def _repeating(told: Mapping[str, Any], now: float) -> Iterator[str]:
    """Run a server that gives the same answer to every request, and the time `now`. Yield its
    address.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = dict(told) if "/explain" in self.path else {"now": now}
            body = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Do nothing, so that requests are not printed."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        serving = threading.Thread(target=server.serve_forever, daemon=True)
        serving.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
