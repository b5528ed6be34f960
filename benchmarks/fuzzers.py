"""Sends a live service whatever may hurt it, and asks each second whether it still answers.

    python -m benchmarks.fuzzers --json [--seconds 3600] [--seed 0] [--only output,form]

Five fuzzers at once, each in a thread of its own: heads of requests (`head`), addresses and queries
(`address`), bodies of the API (`body`), forms of the pages (`form`), and jobs that print and report
whatever comes (`output`). Each draws its parts from the service's own description of its API, and
from texts that once hurt. What must not happen: a second in which `/health` is silent, a 500, a
traceback in the log. Exit status 1 where it did.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import Request, urlopen

from benchmarks.calibration import program
from benchmarks.serving import serving
from profiler.progress.names import VARIABLE

LONGEST = 20_000  # characters of a text that is drawn
JOBS = 20  # that run at once
PIECES: list[str] = [
    *" \t\r\n\0+-_:;.,|/\\=%[](){}<>'\"#@!019eaZé\x1b", "--a=", "1e1", "[1-9]", '{"a":', "Epoch 1/",
    "step 5/10 loss: 2", "\x1b]0;x\x07", "50%|##", "ETA 1:0", "CUDA out of memory", "2**9", "-1",
    "null", "NaN", "1e999", "../", "%2e%2e", "${x}", "\u202e", "\ud7ff", "true", "[[", "]]", "0x7f",
]  # fmt: skip
PAGES = [
    "", "jobs", "list", "list.csv", "causes", "history", "histories", "fairness", "models", "login",
    "forecasts", "nodes", "settings", "static/x", "jobs/{id}", "jobs/{id}/ask",
    "jobs/{id}/tail", "jobs/{id}/blockers",
]  # fmt: skip
Send = Callable[[], str]  # what came of it


class Drawn:
    """Texts and values, drawn at random."""

    def __init__(self, seed: str, address: str) -> None:
        self.draw = random.Random(seed)
        at = urlsplit(address)
        self.at, self.address = (str(at.hostname), at.port or 80), address
        with urlopen(f"{address}/api/v1/openapi.json", timeout=600) as answer:
            self.known: dict[str, Any] = json.load(answer)
        words = re.findall(r'"(\w{2,30})"', json.dumps(self.known))
        self.words: list[str] = sorted(set(words))

    def text(self) -> str:
        """Return a text: one piece again and again, or many that were drawn."""
        length: int = int(LONGEST ** self.draw.random())
        if self.draw.random() < 0.4:
            piece = self.draw.choice(PIECES)
            return (piece * (length // len(piece) + 1))[:length] + self.draw.choice(PIECES)
        return "".join(self.draw.choices(PIECES, k=length // 4 + 1))

    def word(self) -> str:
        """Return a name that the API knows, or a text."""
        return self.text() if self.draw.random() < 0.1 else self.draw.choice(self.words)

    def value(self, deep: int = 3) -> Any:
        """Return a value of JSON."""
        kind = self.draw.randrange(8 if deep else 6)
        if kind == 6:
            return [self.value(deep - 1) for _ in range(self.draw.randrange(6))]
        if kind == 7:
            return {self.word(): self.value(deep - 1) for _ in range(self.draw.randrange(6))}
        return [
            None,
            True,
            self.text(),
            self.word(),
            self.draw.choice([0, -1, 2**70, 1e308, 4]),
            1,
        ][kind]

    def route(self) -> tuple[str, str]:
        """Return a random method and path of the API, the path's parameters filled with random
        text."""
        path = self.draw.choice(sorted(self.known["paths"]))
        method = self.draw.choice(sorted(self.known["paths"][path]))
        return method.upper(), re.sub(r"\{\w+\}", lambda _: quote(self.word()[:300], ""), path)

    def ask(self, method: str, path: str, data: bytes | None, kind: str) -> str:
        """Send a request. Return the status of its answer, or the name of the error."""
        head = {"Content-Type": kind, "Origin": self.address}
        request = Request(f"{self.address}/{path.lstrip('/')}", data, head, method=method)
        try:
            with urlopen(request, timeout=30) as answer:
                answer.read(1 << 16)
                return str(answer.status)
        except HTTPError as error:
            return str(error.code)


def head(by: Drawn) -> str:
    """Send a head of a request that is hardly one."""
    lines = [f"{by.word()}: {by.text()}" for _ in range(by.draw.randrange(8))]
    first = by.draw.choice(["GET /health HTTP/1.1", f"{by.word()} /{by.text()[:200]} HTTP/1.1"])
    named = by.draw.choice(["Host: localhost", "Content-Length: 5", "Transfer-Encoding: chunked"])
    data = "\r\n".join([first, "Host: localhost", named, *lines, "", by.text()])
    with socket.create_connection(by.at, timeout=30) as line:
        line.sendall(data.encode("utf-8", "surrogatepass"))
        line.shutdown(socket.SHUT_WR)
        answer = line.recv(100)
    return answer[9:12].decode("latin-1") if answer else "closed"


def address(by: Drawn) -> str:
    """Ask for a page or a part of the API with a query that was drawn."""
    page = by.draw.choice(PAGES).format(id=quote(by.word()[:300], ""))
    path = page if by.draw.random() < 0.5 else by.route()[1]
    asked = {by.word()[:100]: by.text()[:4000] for _ in range(by.draw.randrange(5))}
    return by.ask("GET", f"{path}?{urlencode(asked, errors='replace')}", None, "text/plain")


def body(by: Drawn) -> str:
    """Send the API a body that was drawn."""
    method, path = by.route()
    data = json.dumps(by.value()) if by.draw.random() < 0.9 else by.text()
    return by.ask(method, path, data.encode("utf-8", "surrogatepass"), "application/json")


def form(by: Drawn) -> str:
    """Send a page a form that was drawn."""
    page = by.draw.choice(PAGES).format(id=quote(by.word()[:300], ""))
    fields = {by.word(): by.text() for _ in range(by.draw.randrange(8))}
    data = urlencode(fields, errors="replace").encode()
    return by.ask("POST", page, data, "application/x-www-form-urlencoded")


def output(by: Drawn) -> str:
    """Submit a job that prints what was drawn, and reports it as its progress."""
    time.sleep(0.2)
    with urlopen(f"{by.address}/api/v1/jobs?phase=running", timeout=30) as answer:
        if answer.read().count(b'"job_id"') >= JOBS:
            return "full"
    code = "import sys,time\nfor _ in range(40): print(sys.argv[1]); sys.stdout.flush(); "
    code += "open('own','w').write(sys.argv[1]); time.sleep(0.5)"
    printed = by.text().replace("\0", "")[:8000]
    asked = {"command": ["python3", "-c", code, printed], "gpus": 1, "workdir": "/tmp"}
    asked |= {"environment": {VARIABLE: "own"}, "vc": "fuzzed"}
    return by.ask("POST", "api/v1/jobs", json.dumps(asked).encode(), "application/json")


FUZZERS: dict[str, Callable[[Drawn], str]] = {
    one.__name__: one for one in (head, address, body, form, output)
}


def _fuzzing(by: Drawn, fuzz: Callable[[Drawn], str], until: float, came: Counter[str]) -> None:
    while time.monotonic() < until:
        try:
            came[fuzz(by)] += 1
        except (OSError, ValueError) as error:
            came[type(error).__name__] += 1


def _health(address: str, until: float) -> Iterator[float]:
    """Yield how long `/health` took, each second; infinity where it gave no answer in 30 s."""
    while (now := time.monotonic()) < until:
        try:
            with urlopen(f"{address}/health", timeout=30) as answer:
                answer.read()
            yield time.monotonic() - now
        except OSError:
            yield float("inf")
        time.sleep(max(0.0, now + 1.0 - time.monotonic()))


def measure(asked: argparse.Namespace) -> dict[str, Any]:
    """Run the fuzzers. Return what came of their requests, and how long `/health` was silent."""
    wanted = [name for name in FUZZERS if not asked.only or name in asked.only.split(",")]
    came = {name: Counter[str]() for name in wanted}
    cluster = "name: fuzzed\ngpus_per_node: 8\nvcs: {fuzzed: 4}\n"
    with TemporaryDirectory() as folder:
        with serving(Path(folder), "--fake-gpus", cluster=cluster) as served:
            until = time.monotonic() + asked.seconds
            threads = [
                Thread(
                    target=_fuzzing,
                    args=(Drawn(f"{asked.seed} {n}", served.address), FUZZERS[n], until, came[n]),
                    daemon=True,  # who is told to end does not wait for them
                )
                for n in wanted
            ]
            for thread in threads:
                thread.start()
            waits = list(_health(served.address, until))
            for thread in threads:
                thread.join()
        log = served.log.read_text(errors="replace")
    tracebacks = log.count("Traceback (most recent call last)")
    defects = sum(one["500"] for one in came.values())
    silent = sum(wait > 1.0 for wait in waits)
    return {
        "seconds": asked.seconds,
        "sent": {name: one.total() for name, one in came.items()},
        "came": {name: dict(one.most_common()) for name, one in came.items()},
        "asked_health": len(waits),
        "silent_seconds": silent,
        "longest_s": round(max(waits, default=0.0), 3),
        "tracebacks": tracebacks,
        "defects": defects,
        "holds": not (silent or tracebacks or defects) and bool(waits),
    }


if __name__ == "__main__":
    program(
        __doc__,
        None,
        measure,
        seconds={"type": float, "default": 3600.0},
        seed={"type": int, "default": 0},
        only={"default": "", "help": "some of: " + ", ".join(FUZZERS)},
    )
