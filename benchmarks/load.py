"""Measures the service under load: 10,000 jobs queued, 1,000 running on 2,048 GPUs, 200
submissions/s.

    python -m benchmarks.load --json [--seconds 30] [--rate 200]

Starts `pellucid serve` as a person would (supervisor, decider, API, whatever else it minds; the
simulated backend at real time; tokens on), fills it through its API, then submits at a steady rate
whether or not answers come (latency counts from when a request was due). Running jobs end all the
while, so passes start jobs, too. Prints latencies of submissions, times of decision passes (commit
included, as the decider logs them; `cpu` is what the processor worked of it), and whether the
budget in `load_budget.json` holds. `memory_together_mib` is the peak of the sum of the proportional
set sizes of all processes of the service: what they share among them is counted once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from benchmarks.calibration import level, program
from benchmarks.serving import serving

BUDGET = Path(__file__).with_name("load_budget.json")
VCS = [f"vc{i}" for i in range(8)]
NODES, GPUS_PER_NODE = 32, 8  # of each virtual cluster
FILLER_GPUS, FILLER_S = 2, (300.0, 3000.0)  # of the jobs that run at first
PATIENCE_S = 60.0  # for the decider to catch up
SIZES = (1, 1, 2, 4, 8, 8, 16)  # GPUs of those that come after
CONNECTIONS = 4  # per virtual cluster
PREFILL_PER_S = 90.0  # per token, below the API's limit per token


class Connection:
    """One kept-alive HTTP/1.1 connection, with as little work per request as possible."""

    def __init__(self, port: int, token: str):
        self._port, self._token = port, token
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def request(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        """Send a request. Return status and body of the answer."""
        if self._streams is None or self._streams[0].at_eof():  # closed while it was idle
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        content = b"" if body is None else json.dumps(body).encode()
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            f"Authorization: Bearer {self._token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        )
        writer.write(head.encode() + content)
        try:
            answer = await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionResetError):
            self._streams = None  # closed for idleness just as it was used again
            return await self.request(method, path, body)
        length = next(
            int(line[15:])
            for line in answer.lower().split(b"\r\n")
            if line[:15] == b"content-length:"
        )
        return int(answer[9:12]), await reader.readexactly(length)


class Clients:
    """Kept connections of one submitter per virtual cluster. Each connection serves one request at
    a time.
    """

    def __init__(self, port: int, tokens: Sequence[str]):
        self._idle: dict[str, asyncio.Queue[Connection]] = {}
        for vc, token in zip(VCS, tokens, strict=True):
            self._idle[vc] = asyncio.Queue()
            for _ in range(CONNECTIONS):
                self._idle[vc].put_nowait(Connection(port, token))

    async def submit(self, vc: str, gpus: int, seconds: float) -> int:
        """Submit a job that sleeps for `seconds`. Return the HTTP status of the answer."""
        job = {"command": ["sleep", f"{seconds:.0f}"], "gpus": gpus, "vc": vc, "name": "load"}
        connection = await self._idle[vc].get()
        try:
            status, _ = await connection.request("POST", "/api/v1/jobs", job)
        finally:
            self._idle[vc].put_nowait(connection)
        return status

    async def get(self, path: str) -> Any:
        connection = await self._idle[VCS[0]].get()
        try:
            status, body = await connection.request("GET", path)
        finally:
            self._idle[VCS[0]].put_nowait(connection)
        return json.loads(body) if status == 200 else None


@dataclass
class Answered:
    """The answers to a load: the number of answers by HTTP status, and the latency of each in
    seconds.
    """

    statuses: Counter[int] = field(default_factory=Counter)
    latencies: list[float] = field(default_factory=list)


async def steadily(rate: float, works: Sequence[Callable[[], Any]]) -> Answered:
    """Call the functions `works` at a steady rate of `rate` per second, whether or not earlier
    calls have returned. Return the answers; a latency counts from when its call was due.
    """
    answered, loop = Answered(), asyncio.get_running_loop()
    start = loop.time()

    async def one(work: Callable[[], Any], due: float) -> None:
        answered.statuses[await work()] += 1
        answered.latencies.append(loop.time() - due)

    async with asyncio.TaskGroup() as group:
        for i, work in enumerate(works):
            due = start + i / rate
            await asyncio.sleep(max(0.0, due - loop.time()))
            group.create_task(one(work, due))
    return answered


async def drive(port: int, tokens: Sequence[str], asked: argparse.Namespace) -> dict[str, Any]:
    """Fill the service with jobs, then submit at a steady rate. Return the figures."""
    clients, draw = Clients(port, tokens), random.Random(1)
    per_s = PREFILL_PER_S * len(VCS)
    fill = [
        partial(clients.submit, VCS[i % len(VCS)], FILLER_GPUS, draw.uniform(*FILLER_S))
        for i in range(asked.running)
    ]
    await steadily(per_s, fill)
    await until(clients, lambda waiting, running: running >= asked.running)
    await steadily(per_s, later(clients, draw, asked.queued + 64))
    await until(clients, lambda waiting, running: waiting >= asked.queued)
    before, began = await standing(clients), time.time()
    answered = await steadily(asked.rate, later(clients, draw, round(asked.rate * asked.seconds)))
    ended, after = time.time(), await standing(clients)
    return {"before": before, "after": after, "answered": answered, "from": began, "to": ended}


def later(clients: Clients, draw: random.Random, count: int) -> list[Callable[[], Any]]:
    """Return `count` functions; each submits one job of a random size when it is called."""
    return [
        partial(clients.submit, draw.choice(VCS), draw.choice(SIZES), draw.uniform(60, 6000))
        for _ in range(count)
    ]


async def until(clients: Clients, reached: Callable[[int, int], bool]) -> None:
    """Wait until `reached`, called with the numbers of waiting and of running jobs, returns True.
    Raise SystemExit after `PATIENCE_S` seconds."""
    end = time.monotonic() + PATIENCE_S
    while not reached(*await standing(clients)):
        if time.monotonic() > end:
            waiting, running = await standing(clients)
            raise SystemExit(f"{waiting} wait and {running} run after {PATIENCE_S:.0f} s more")
        await asyncio.sleep(0.5)


async def standing(clients: Clients) -> tuple[int, int]:
    """Return how many jobs wait and how many run, as the service's API counts them."""
    cluster = await clients.get("/api/v1/cluster")
    vcs = cluster["vcs"] if cluster else []
    return sum(vc["waiting"] for vc in vcs), sum(vc["running"] for vc in vcs)


# --- the service ---------------------------------------------------------------------------------


def _database(folder: Path) -> str:
    return f"sqlite:///{folder / 'load.db'}"


def make_tokens(folder: Path) -> list[str]:
    """Create one submitter per virtual cluster in the database in `folder`. Return their tokens."""
    from scheduler.service.api import tokens
    from scheduler.service.api.auth import service_user
    from scheduler.service.log.store.schema import prepare
    from scheduler.service.log.store.store import Store
    from scheduler.service.log.store.visibility import Role

    store = Store(_database(folder))
    prepare(store)
    made = [
        tokens.create(
            store,
            f"user-of-{vc}",
            Role.SUBMITTER,
            vcs=[vc],
            os_user=service_user(),
            now=time.time(),
        )[1]
        for vc in VCS
    ]
    store.close()
    return made


class Watch(threading.Thread):
    """Watches the memory of the service's processes. It records peaks in MiB: the resident memory
    of the largest, and of all, with shared pages counted once (PSS).
    """

    def __init__(self, pid: int):
        super().__init__(daemon=True)
        self._root = psutil.Process(pid)
        self._over = threading.Event()
        self.largest = self.together = 0.0

    def run(self) -> None:
        while not self._over.wait(1.0):
            together = 0.0
            for process in (self._root, *self._root.children(recursive=True)):
                with suppress(psutil.Error):
                    info = process.memory_full_info()
                    self.largest = max(self.largest, info.rss / 2**20)
                    together += info.pss / 2**20
            self.together = max(self.together, together)

    def stop(self) -> None:
        self._over.set()
        self.join()


def read_log(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a log of JSON lines, parsed."""
    lines = []
    for line in path.read_text().splitlines():
        try:
            lines.append(json.loads(line))
        except ValueError:
            continue
    return lines


def measure(asked: argparse.Namespace) -> dict[str, Any]:
    """Start a service, put it under load once, and return the figures."""
    with tempfile.TemporaryDirectory(prefix="pellucid-load-") as name:
        folder = Path(name)
        tokens = make_tokens(folder)
        cluster = {"name": "load", "gpus_per_node": GPUS_PER_NODE, "vcs": dict.fromkeys(VCS, NODES)}
        words = [
            "--backend", "simulated", "--pace", "1", "--log-level", "debug",
            "--database", _database(folder), "--state-dir", str(folder / "state"),
        ]  # fmt: skip
        bundle = asked.bundle.is_dir()
        words += ["--bundle", str(asked.bundle.absolute())] if bundle else []
        auth = {"PELLUCID_AUTH": "on"}
        with serving(folder, *words, cluster=json.dumps(cluster), environment=auth) as served:
            watch = Watch(served.process.pid)
            watch.start()
            port = int(served.address.rpartition(":")[2])
            run = asyncio.run(drive(port, tokens, asked))
            watch.stop()
            lines = read_log(served.log)
    memory = {"memory_largest_mib": watch.largest, "memory_together_mib": watch.together}
    return figures(asked, run, lines) | memory | {"bundle": bundle}


def figures(
    asked: argparse.Namespace, run: dict[str, Any], lines: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """Return the figures of a run, from what was measured and from the service's log. The figure
    `holds` is whether the run reached the requested load."""
    answered: Answered = run["answered"]
    lasted = run["to"] - run["from"]
    decided = [
        line
        for line in lines
        if line["event"] == "decided"
        and run["from"] <= datetime.fromisoformat(line["timestamp"]).timestamp() <= run["to"]
    ]
    passes, cpu_ms = ([line[name] for line in decided] for name in ("ms", "cpu_ms"))
    died = [line["process"] for line in lines if line["event"] == "process_died"]
    submits = [1000 * seconds for seconds in answered.latencies]
    found: dict[str, Any] = {
        "gpus": len(VCS) * NODES * GPUS_PER_NODE,
        "queued": {"before": run["before"][0], "after": run["after"][0]},
        "running": {"before": run["before"][1], "after": run["after"][1]},
        "rate_per_s": len(submits) / lasted,
        "seconds": lasted,
        "submitted": answered.statuses[201],
        "refused": sum(answered.statuses.values()) - answered.statuses[201],
        "submit_p50_ms": level(submits, 0.5),
        "submit_p99_ms": level(submits, 0.99),
        "submit_max_ms": max(submits),
        "passes": len(passes),
        "pass_p50_ms": level(passes, 0.5),
        "pass_p99_ms": level(passes, 0.99),
        "pass_max_ms": level(passes, 1.0),
        "pass_cpu_p50_ms": level(cpu_ms, 0.5),
        "pass_cpu_p99_ms": level(cpu_ms, 0.99),
        "died": died,
        "cores": os.cpu_count(),
        "load_average": os.getloadavg()[0],
    }
    found["holds"] = (
        not found["refused"]
        and not died
        and found["queued"]["before"] >= asked.queued
        and found["running"]["before"] >= asked.running
        and found["rate_per_s"] >= 0.98 * asked.rate
    )
    return found


if __name__ == "__main__":
    program(
        __doc__,
        BUDGET,
        measure,
        seconds={"type": float, "default": 30.0},
        rate={"type": float, "default": 200.0, "help": "submissions per second"},
        queued={"type": int, "default": 10_000},
        running={"type": int, "default": 1_000},
        bundle={"type": Path, "default": Path("data/bundle")},
    )
