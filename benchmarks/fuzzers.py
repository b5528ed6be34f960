"""Sends a live service whatever may hurt it, and asks each second whether it still answers.

    python -m benchmarks.fuzzers --json [--seconds 3600] [--seed 0] [--only output,form]

Five fuzzers at once, each in a process of its own at nice 10: heads of requests (`head`), addresses
and queries (`address`), bodies of the API (`body`), forms that the pages show (`form`), and jobs
that print and report whatever comes (`output`). Each draws its parts from the service's own
description of its API, and from texts that once hurt. What must not happen: a second in which
`/health` is silent, a 500, a traceback in the log. Exit status 1 where it did; a silent second is
told with its time and the machine's load.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import re
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from html import unescape
from http.client import HTTPException
from http.cookiejar import CookieJar
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import HTTPCookieProcessor, Request, build_opener, urlopen

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
FORMS = [  # pages that show some
    "submit", "models/edit?open=pellucid", "models/proposals", "nodes", "list", "fairness", "login",
    "nodes/change?node=fuzzed-0&open=&reason=x", "histories", "history", "models/compare",
    "jobs/{id}", "jobs/{id}/act?do=change&priority=1", "jobs/{id}/act?do=cancel",
    "jobs/{id}/act?do=hold", "jobs/{id}/share", "group/act?like={id}&do=hold",
]  # fmt: skip


class Drawn:
    """Texts and values, drawn at random."""

    def __init__(self, seed: str, address: str) -> None:
        self.draw = random.Random(seed)
        at = urlsplit(address)
        self.at, self.address = (str(at.hostname), at.port or 80), address
        with urlopen(f"{address}/api/v1/openapi.json", timeout=600) as answer:
            self.known: dict[str, Any] = json.load(answer)
        self.open = build_opener(HTTPCookieProcessor(CookieJar())).open
        words = re.findall(r'"(\w{2,30})"', json.dumps(self.known))
        self.words: list[str] = sorted(set(words))

    def text(self) -> str:
        """Return a random text: one piece repeated, or many pieces."""
        length: int = int(LONGEST ** self.draw.random())
        if self.draw.random() < 0.4:
            piece = self.draw.choice(PIECES)
            return (piece * (length // len(piece) + 1))[:length] + self.draw.choice(PIECES)
        return "".join(self.draw.choices(PIECES, k=length // 4 + 1))

    def word(self) -> str:
        """Return a name that the API knows, or a text."""
        return self.text() if self.draw.random() < 0.1 else self.draw.choice(self.words)

    def value(self, deep: int = 3) -> Any:
        """Return a random JSON value, nested at most `deep` levels."""
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
        """Send a request. Return the HTTP status of its answer. Raise OSError or HTTPException
        where none comes."""
        head = {"Content-Type": kind, "Origin": self.address}
        request = Request(f"{self.address}/{path.lstrip('/')}", data, head, method=method)
        try:
            with self.open(request, timeout=30) as answer:
                answer.read(1 << 16)
                return str(answer.status)
        except HTTPError as error:
            return str(error.code)


def head(by: Drawn) -> str:
    """Send a malformed head of a request. Return the status of its answer, or "closed"."""
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
    """Ask for a page or a part of the API with a query that was drawn. Return the status."""
    page = by.draw.choice(PAGES).format(id=quote(by.word()[:300], ""))
    path = page if by.draw.random() < 0.5 else by.route()[1]
    asked = {by.word()[:100]: by.text()[:4000] for _ in range(by.draw.randrange(5))}
    return by.ask("GET", f"{path}?{urlencode(asked, errors='replace')}", None, "text/plain")


def body(by: Drawn) -> str:
    """Send the API a body that was drawn. Return the status."""
    method, path = by.route()
    data = json.dumps(by.value()) if by.draw.random() < 0.9 else by.text()
    return by.ask(method, path, data.encode("utf-8", "surrogatepass"), "application/json")


def _a_job(by: Drawn) -> str:
    with urlopen(f"{by.address}/api/v1/jobs?limit=20", timeout=30) as answer:
        found = re.findall(rb'"job_id": ?"([^"]+)"', answer.read())
    return by.draw.choice(found).decode() if found else "none"


def form(by: Drawn) -> str:
    """Send a form that a page shows, some of its fields filled with what was drawn. Return the
    status, or why nothing was sent."""
    page = by.draw.choice(FORMS)
    path = page.format(id=quote(_a_job(by), "")) if "{id}" in page else page
    try:
        with by.open(f"{by.address}/{path}", timeout=30) as answer:
            text = answer.read().decode()
    except HTTPError as error:
        return f"shown {error.code}"
    shown = re.findall(r"<form([^>]*)>(.*?)</form>", text, re.DOTALL)
    if not shown:
        return "no form"
    head, inside = by.draw.choice(shown)
    action = re.search(r'action="([^"]*)"', head)
    fields = {
        unescape(name): unescape(value[0]) if (value := re.findall(r'value="([^"]*)"', tag)) else ""
        for tag, name in re.findall(
            r'(<(?:input|select|textarea|button)[^>]*name="([^"]*)"[^>]*)', inside
        )
    }
    for name in fields:
        if by.draw.random() < (0.05 if name == "csrf" else 0.5):
            fields[name] = by.text()
    if by.draw.random() < 0.1:
        fields[by.word()] = by.text()
    to = urlsplit(unescape(action[1]) if action else f"/{path}").path
    data = urlencode(fields, errors="replace")
    if 'method="post"' not in head:
        return by.ask("GET", f"{to}?{data[:8000]}", None, "text/plain")
    return by.ask("POST", to, data.encode(), "application/x-www-form-urlencoded")


def output(by: Drawn) -> str:
    """Submit a job that prints what was drawn, and reports it as its progress. Return the status,
    or "full" where `JOBS` jobs run already."""
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


def _fuzzing(name: str, seed: str, address: str, until: float, to: Connection) -> None:
    """Run a fuzzer on a service until the time `until` (time.monotonic()). Then send through the
    pipe `to` how often each result came; an error counts under its name."""
    os.nice(10)
    by, came = Drawn(seed, address), Counter[str]()
    while time.monotonic() < until:
        try:
            came[FUZZERS[name](by)] += 1
        except (OSError, ValueError, HTTPException) as error:
            came[type(error).__name__] += 1
    to.send(came)


def _health(address: str, until: float) -> Iterator[tuple[float, str]]:
    """Each second, ask `/health`. Yield how many seconds it took, and a text with the time, this
    and the machine's load; infinity where it did not answer with success within 30 s."""
    while (now := time.monotonic()) < until:
        try:
            with urlopen(f"{address}/health", timeout=30) as answer:
                answer.read()
            took = time.monotonic() - now
        except OSError:
            took = float("inf")
        yield took, f"{datetime.now(UTC):%H:%M:%S}, {took:.2f} s, load {os.getloadavg()[0]:.1f}"
        time.sleep(max(0.0, now + 1.0 - time.monotonic()))


def measure(asked: argparse.Namespace) -> dict[str, Any]:
    """Run the fuzzers. Return what came of their requests, and how long `/health` was silent."""
    wanted = [name for name in FUZZERS if not asked.only or name in asked.only.split(",")]
    came = dict[str, Counter[str]]()
    cluster = "name: fuzzed\ngpus_per_node: 8\nvcs: {fuzzed: 4}\n"
    fresh = multiprocessing.get_context("spawn")
    with TemporaryDirectory() as folder:
        with serving(Path(folder), "--fake-gpus", cluster=cluster) as served:
            with urlopen(f"{served.address}/health", timeout=600) as answer:
                answer.read()  # it has started
            until = time.monotonic() + asked.seconds
            begun = list[tuple[str, Any, Any]]()
            for name in wanted:
                here, there = fresh.Pipe(duplex=False)
                of = (name, f"{asked.seed} {name}", served.address, until, there)
                process = fresh.Process(target=_fuzzing, args=of, daemon=True)
                process.start()
                there.close()
                begun.append((name, process, here))
            looks = list(_health(served.address, until))
            for name, process, here in begun:
                came[name] = here.recv()
                process.join()
        log = served.log.read_text(errors="replace")
    waits = [took for took, _ in looks]
    tracebacks = log.count("Traceback (most recent call last)")
    defects = sum(one["500"] for one in came.values())
    silent = sum(wait > 1.0 for wait in waits)
    return {
        "seconds": asked.seconds,
        "sent": {name: one.total() for name, one in came.items()},
        "came": {name: dict(one.most_common()) for name, one in came.items()},
        "asked_health": len(waits),
        "silent_seconds": silent,
        "silent": [told for took, told in looks if took > 1.0],
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
