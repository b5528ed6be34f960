"""Runs the command line itself on an answer, against a server that repeats it."""

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
    """Return what `pellucid` prints, in a process of its own; "" where it fails."""
    environment = {**os.environ, "PELLUCID_SERVER": address, "PELLUCID_TOKEN": token}
    line = [sys.executable, "-m", "pipeline.cli", *words]
    done = subprocess.run(line, env=environment, capture_output=True, check=False, text=True)
    return done.stdout if done.returncode == 0 else ""


def lines(told: Mapping[str, Any], now: float, *words: str) -> str:
    """Return what `pellucid why` prints for what the API gave at a time."""
    with _repeating(told, now) as address:
        return command(address, "of-nobody", "why", str(told["job_id"]), *words)


@contextmanager
def _repeating(told: Mapping[str, Any], now: float) -> Iterator[str]:
    """Give the address of a server that always gives one answer, and the time `now`."""

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
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        serving = threading.Thread(target=server.serve_forever, daemon=True)
        serving.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
