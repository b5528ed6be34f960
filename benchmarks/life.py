"""Runs a real `pellucid serve` in a folder, a client that submits and repeats what was not
answered, and one that asks for `/ready` four times a second.

`Life.finish` then checks that every accepted job ran once, that the audit of the log is clean, and
that the service ends by itself when its process group gets SIGTERM, as from init systems.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

import psutil
from sqlalchemy import select
from sqlalchemy.exc import DBAPIError

from benchmarks.serving import free_port
from scheduler.assembly import CoreSpec
from scheduler.core.cluster import ClusterSpec
from scheduler.core.settings import ProfilingPartition
from scheduler.service.decide.begin import begin
from scheduler.service.http import Http, TransportError
from scheduler.service.log.audit import audit
from scheduler.service.log.bundles import BundleStore
from scheduler.service.log.record import Phase
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import jobs
from scheduler.service.settings import Settings

LEASE_S = 10.0
PATIENCE_S = 300.0  # on a machine that has more to do
MOST_S = 30.0  # a stop that takes longer has hung
BAD = ("process_died", "process_killed", "process_failed")
CLUSTER = """name: life
gpus_per_node: 4
vcs: {vc: 2}
"""


def family(pid: int) -> list[psutil.Process]:
    """Return the processes of a service: the given one, and those forked from it with the same
    command line. Processes of jobs are left out.
    """
    found = []
    with suppress(psutil.NoSuchProcess):
        found.append(psutil.Process(pid))
        command = found[0].cmdline()
        for process in found[0].children(recursive=True):
            with suppress(psutil.Error):
                if process.cmdline() == command:
                    found.append(process)
    return found


class Life:
    """A service that runs in a folder, with a client that submits jobs to it and an observer that
    asks for `/ready`.

    Args:
        begun: the service's database exists and has its log already; otherwise it is made here.
        more: settings of the service that replace those chosen here.
    """

    def __init__(self, folder: Path, *, begun: bool = False, **more: Any):
        self.folder = folder
        self.port = free_port()
        cluster = folder / "cluster.yaml"
        cluster.write_text(CLUSTER)
        (folder / "champion").mkdir(exist_ok=True)  # nothing in it yet
        (folder / "state").mkdir(mode=0o700, exist_ok=True)
        given: dict[str, Any] = {
            "database": f"sqlite:///{folder / 'state' / 'pellucid.db'}",
            "cluster": cluster,
            "policy": "fifo",
            "state_dir": folder / "state",
            "bundle": folder / "champion",
            "fake_gpus": True,
            "lease_s": LEASE_S,
            "port": self.port,
            "export_every": 0,
            "log_level": "info",
            **more,
        }
        self.settings = Settings(**given)
        self.out, self.log = folder / "out", (folder / "log").open("ab")
        if not begun:
            spec = ClusterSpec({"vc": 2}, 4, name="life")
            begin(self.settings, CoreSpec.of(spec, "fifo", profiling=ProfilingPartition()))
        self.store = Store(self.settings.database)
        self.service: subprocess.Popen[bytes] | None = None
        self.headers: dict[str, str] = {}
        self.prefix = "job"  # of the names of jobs
        self.accepted: dict[str, tuple[str, float]] = {}  # name -> job, uptime when it was taken
        self.asking = ""  # and not answered yet
        self.samples: list[tuple[float, bool]] = []  # when, /ready
        self.beats: list[tuple[float, int]] = []  # when the lease was seen to move
        self.over, self.quiet = Event(), Event()  # everything ends; nothing is submitted
        self.threads: list[Thread] = []

    def start(
        self, python: str = sys.executable, code: Path | None = None, through: Sequence[str] = ()
    ) -> None:
        """Start the service, and wait until its decider has begun to decide.

        Args:
            python: the interpreter that runs the service.
            code: folder of the checkout that the service runs from; None: this one.
            through: words of a command that runs the command given behind them (as `nice` does).
        """
        names = self.settings.model_dump(mode="json", exclude_none=True)
        environment = {f"PELLUCID_{name.upper()}": str(value) for name, value in names.items()}
        self.service = subprocess.Popen(
            [*through, python, "-m", "pipeline.cli", "serve"],
            env={**os.environ, **environment, "OMP_NUM_THREADS": "1"},
            stdout=self.log,
            stderr=self.log,
            cwd=code,
            start_new_session=True,
        )
        self.await_ready()

    def kill(self) -> None:
        """Kill every process of the service at once (SIGKILL), so that none can clean up."""
        assert self.service is not None
        for process in family(self.service.pid):
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        self.service.wait()

    def stop(self) -> list[str]:
        """Send one SIGTERM to the service's process group. Return a list of what went wrong: the
        service had to be killed, ended with a status other than 0, lost a process, or left one
        behind.
        """
        assert self.service is not None
        alive, before = family(self.service.pid), (self.folder / "log").stat().st_size
        os.killpg(self.service.pid, signal.SIGTERM)
        try:
            wrong = [f"status {status}" for status in [self.service.wait(MOST_S)] if status]
        except subprocess.TimeoutExpired:
            self.kill()
            wrong = [f"no end in {MOST_S:g} s"]
        _, left = psutil.wait_procs(alive, 5.0)
        lines = (self.folder / "log").read_bytes()[before:].decode(errors="replace").splitlines()
        events = [json.loads(line)["event"] for line in lines if line[:1] + line[-1:] == "{}"]
        wrong += [event for event in events if event in BAD] + [f"left {one.pid}" for one in left]
        return wrong if "stopped" in events else [*wrong, "did not report that it stopped"]

    def rows(self) -> dict[str, str]:
        """Return the phase of each of the service's jobs, by job id."""
        with self.store.engine.connect() as connection:
            return {row.job_id: row.phase for row in connection.execute(select(jobs))}

    def await_ready(self) -> float:
        """Wait until `/ready` answers yes, which means that a decider is at work. Return the
        seconds that this took. Raise AssertionError after `PATIENCE_S` seconds.
        """
        began = time.monotonic()
        while not self._ask("/ready", 2.0):
            if time.monotonic() > began + PATIENCE_S:
                log = (self.folder / "log").read_text(errors="replace")
                raise AssertionError(f"nobody decides in {PATIENCE_S:g} s:\n{log[-2000:]}")
            time.sleep(0.2)
        return time.monotonic() - began

    def attend(self, seconds: str = "0.2", every_s: float = 1.0) -> None:
        """Start the client and the observer as threads.

        Args:
            seconds: how long each submitted job sleeps.
            every_s: seconds between two submissions.
        """
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
                lease = self.store.holder("decider")
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
        """Stop the client, wait at most `PATIENCE_S` for the jobs to end, stop the service, audit
        its log. Return the number of accepted jobs, how often `/ready` was wrong, and everything
        that went wrong.
        """
        self.over.set()
        for thread in self.threads:
            thread.join()
        until = time.monotonic() + PATIENCE_S
        while not all(Phase(phase).over for phase in self.rows().values()):
            if time.monotonic() > until:
                break
            time.sleep(0.5)
        stopped = self.stop()
        text = self.out.read_text() if self.out.exists() else ""
        lines = Counter(line.split()[0] for line in text.splitlines())
        rows = self.rows()
        find = BundleStore(self.settings.state_dir / "bundles").find
        found = audit(self.store, find, decide_again=True)
        wrong = {
            "lost": [n for n, (job, _) in self.accepted.items() if rows.get(job) != Phase.ENDED],
            "unrun": [n for n in self.accepted if lines[n] < 1],
            "doubled": [name for name, times in lines.items() if times > 1],
            "unasked": [name for name in lines if name not in {*self.accepted, self.asking}],
            "divergences": [d.sentence() for d in found.divergences],
            "stop": stopped,
        }
        self.store.close()
        self.log.close()
        return {
            "jobs": len(self.accepted),
            "ready_while_nobody_decides": self._green(),
            "wrong": {name: what for name, what in wrong.items() if what},
        }

    def _green(self) -> int:
        """Return how often `/ready` answered yes although the decider's lease had run out
        unrenewed.
        """
        moved, green = [at for at, _ in self.beats], 0
        for at, ready in self.samples:
            last = max((m for m in moved if m <= at), default=at)
            green += ready and at > last + LEASE_S + 2.0
        return green


def uptime() -> float:
    return float(Path("/proc/uptime").read_text().split()[0])
