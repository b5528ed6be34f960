"""A real `pellucid serve` in a folder, a client that submits and repeats what was not answered, and
somebody who asks for `/ready` four times a second.

Afterwards every accepted job ran once, and the audit is clean.
"""

from __future__ import annotations

import socket
import time
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

from sqlalchemy.exc import DBAPIError

from benchmarks.kills import Victim
from scheduler.service.http import Http, TransportError
from scheduler.service.log.audit import audit
from scheduler.service.log.bundles import BundleStore
from scheduler.service.log.record import Phase

LEASE_S = 10.0
PATIENCE_S = 300.0


class Life:
    """A service in a folder, a client, and somebody who looks."""

    def __init__(self, folder: Path, **more: Any):
        self.folder = folder
        with closing(socket.socket()) as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.out = folder / "out"
        given: dict[str, Any] = {"state_dir": folder / "state", "port": self.port}
        given["database"] = f"sqlite:///{folder / 'state' / 'pellucid.db'}"
        (folder / "state").mkdir(mode=0o700, exist_ok=True)
        given |= {"lease_s": LEASE_S, "log_level": "info"}
        self.victim = Victim(folder, whole=True, **{**given, **more})
        self.headers: dict[str, str] = {}
        self.prefix = "job"  # of the names of jobs
        self.accepted: dict[str, tuple[str, float]] = {}  # name -> job, uptime when it was taken
        self.asking = ""  # and not answered yet
        self.samples: list[tuple[float, bool]] = []  # when, /ready
        self.beats: list[tuple[float, int]] = []  # when the lease was seen to move
        self.over, self.quiet = Event(), Event()  # everything ends; nothing is submitted
        self.threads: list[Thread] = []

    @property
    def process(self) -> int:
        assert self.victim.process is not None
        return self.victim.process.pid

    def start(self, **how: Any) -> None:
        self.victim.start(**how)
        self.await_ready()

    def await_ready(self) -> float:
        """Seconds until somebody decides."""
        began = time.monotonic()
        while not self._ask("/ready", 2.0):
            if time.monotonic() > began + PATIENCE_S:
                log = (self.folder / "log").read_text(errors="replace")
                raise AssertionError(f"nobody decides in {PATIENCE_S:g} s:\n{log[-2000:]}")
            time.sleep(0.2)
        return time.monotonic() - began

    def attend(self, seconds: str = "0.2", every_s: float = 1.0) -> None:
        """Begin to submit jobs, and to look."""
        for work in (lambda: self._submit(seconds, every_s), self._look):
            self.threads.append(Thread(target=work, daemon=True))
            self.threads[-1].start()

    def _ask(self, path: str, timeout_s: float) -> bool:
        http = Http(f"http://127.0.0.1:{self.port}", timeout_s)
        try:
            return http.request("GET", path).status_code == 200
        except TransportError:
            return False
        finally:
            http.close()

    def _look(self) -> None:
        while not self.over.wait(0.25):
            ready = self._ask("/ready", 2.0)
            with suppress(DBAPIError, OSError):
                lease = self.victim.store.holder("decider")
                count = 0 if lease is None else lease.beats
                if not self.beats or self.beats[-1][1] != count:
                    self.beats.append((time.monotonic(), count))
            self.samples.append((time.monotonic(), ready))

    def _submit(self, seconds: str, every_s: float) -> None:
        number = 0
        while not self.over.wait(every_s):
            if self.quiet.is_set():
                continue
            name = self.asking = f"{self.prefix}{number:04d}"
            line = (
                "read up _ < /proc/uptime; "
                f"sleep {seconds}; read end _ < /proc/uptime; echo {name} $up $end >> {self.out}"
            )
            body = {"command": ["/bin/sh", "-c", line], "gpus": 1, "vc": "vc", "workdir": "/"}
            http = Http(f"http://127.0.0.1:{self.port}", 15.0)
            with suppress(*TransportError):
                answer = http.request(
                    "POST",
                    "/api/v1/jobs",
                    json=body,
                    headers={"Idempotency-Key": name, **self.headers},
                )
                if answer.status_code in (200, 201):
                    self.accepted[name] = answer.json()["job_id"], uptime()
                    number += 1
            http.close()

    def finish(self) -> dict[str, Any]:
        """Wait for the jobs, stop everything, and say what came of it."""
        self.over.set()
        for thread in self.threads:
            thread.join()
        until = time.monotonic() + PATIENCE_S
        while not all(Phase(phase).over for phase in self.victim.rows().values()):
            if time.monotonic() > until:
                break
            time.sleep(0.5)
        self.victim.kill()
        text = self.out.read_text() if self.out.exists() else ""
        lines = Counter(line.split()[0] for line in text.splitlines())
        rows = self.victim.rows()
        find = BundleStore(self.victim.settings.state_dir / "bundles").find
        found = audit(self.victim.store, find)
        wrong = {
            "lost": [n for n, (job, _) in self.accepted.items() if rows.get(job) != Phase.ENDED],
            "unrun": [n for n in self.accepted if lines[n] < 1],
            "doubled": [name for name, times in lines.items() if times > 1],
            "unasked": [name for name in lines if name not in {*self.accepted, self.asking}],
            "divergences": [d.sentence() for d in found.divergences],
        }
        self.victim.store.close()
        self.victim.log.close()
        return {
            "jobs": len(self.accepted),
            "ready_while_nobody_decides": self._green(),
            "wrong": {name: what for name, what in wrong.items() if what},
        }

    def _green(self) -> int:
        """How often `/ready` was green while nobody decided."""
        moved, green = [at for at, _ in self.beats], 0
        for at, ready in self.samples:
            last = max((m for m in moved if m <= at), default=at)
            green += ready and at > last + LEASE_S + 2.0
        return green


def uptime() -> float:
    return float(Path("/proc/uptime").read_text().split()[0])
