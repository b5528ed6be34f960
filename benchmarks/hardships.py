"""What a host does to a service: a real `pellucid serve`, real processes, and one hardship after
another.

    python -m benchmarks.hardships --json
    python -m benchmarks.hardships --only pauses,flood

| hardship | what is done |
|---|---|
| flood | 1,300 connections that send half a request, `ulimit -n 1024` |
| pauses | SIGSTOP to each process of the service, for two minutes |
| clock | the time of day set by an hour back, forth and back, the service killed in between |
| full | the file system of database and state is full for a while |
| readonly | it has an error, and the kernel makes it read-only; checked and mounted again |
| postgres | PostgreSQL is killed and started again, three times |

Meanwhile a client submits jobs and repeats what was not answered, and somebody asks for `/health`
and `/ready` four times a second. Afterwards every accepted job ran once, and the audit is clean.
Needs root for `full` and `readonly`, a C compiler for `clock`, PostgreSQL for `postgres`; what
cannot be done is left out and said.
"""

from __future__ import annotations

import argparse
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any, NoReturn

from sqlalchemy.exc import DBAPIError

from benchmarks.kills import Victim
from benchmarks.postgres import found_bin, private_cluster
from benchmarks.stops import _lines
from features.folders import temporary_folder
from scheduler.service.http import Http, TransportError
from scheduler.service.log.audit import audit
from scheduler.service.log.bundles import BundleStore
from scheduler.service.log.record import Phase

LEASE_S = 10.0
PATIENCE_S = 300.0
# libfaketime has clock_nanosleep fail where only the time of day is to be set
CLOCK_C = r"""
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static volatile long *offset;
__attribute__((constructor)) static void begin(void) {
  int file = open(getenv("CLOCK_OFFSET"), O_RDONLY | O_CLOEXEC);
  offset = mmap(0, sizeof(long), PROT_READ, MAP_SHARED, file, 0);
  close(file);
}
int clock_gettime(clockid_t which, struct timespec *at) {
  int done = syscall(SYS_clock_gettime, which, at);
  if (!done && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) at->tv_sec += *offset;
  return done;
}
int gettimeofday(struct timeval *at, void *zone) {
  int done = syscall(SYS_gettimeofday, at, zone);
  if (!done) at->tv_sec += *offset;
  return done;
}
time_t time(time_t *at) {
  time_t now = syscall(SYS_time, 0) + *offset;
  if (at) *at = now;
  return now;
}
"""


class Impossible(Exception):
    """Not on this machine; one line."""


class Life:
    """A service in a folder, a client, and somebody who looks.

    Args:
        disk: where database and state are; jobs write elsewhere.
    """

    def __init__(self, folder: Path, disk: Path | None = None, **more: Any):
        self.folder, disk = folder, disk or folder
        with closing(socket.socket()) as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.out = folder / "out"
        given: dict[str, Any] = {"state_dir": disk / "state", "port": self.port}
        given["database"] = f"sqlite:///{disk / 'state' / 'pellucid.db'}"
        (disk / "state").mkdir(mode=0o700, exist_ok=True)
        given |= {"lease_s": LEASE_S, "log_level": "info"}
        self.victim = Victim(folder, whole=True, **{**given, **more})
        self.headers: dict[str, str] = {}
        self.prefix = "job"  # of the names of jobs
        self.accepted: dict[str, tuple[str, float]] = {}  # name -> job, uptime when it was taken
        self.asking = ""  # and not answered yet
        self.statuses: Counter[int] = Counter()
        self.samples: list[tuple[float, bool, bool]] = []  # when, /health and /ready
        self.beats: list[tuple[float, int]] = []  # when the lease was seen to move
        self.reading = Lock()
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
            health, ready = self._ask("/health", 2.0), self._ask("/ready", 2.0)
            with suppress(DBAPIError, OSError), self.reading:
                lease = self.victim.store.holder("decider")
                count = 0 if lease is None else lease.beats
                if not self.beats or self.beats[-1][1] != count:
                    self.beats.append((time.monotonic(), count))
            self.samples.append((time.monotonic(), health, ready))

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
                self.statuses[answer.status_code] += 1
                if answer.status_code in (200, 201):
                    self.accepted[name] = answer.json()["job_id"], uptime()
                    number += 1
            http.close()

    def pid_of(self, name: str) -> int:
        began = _lines(self.folder / "log", 0)
        found = [
            e["pid"]
            for e in began
            if e["event"] == "process_started" and e["process"].startswith(name)
        ]
        return int(found[-1])

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
            "statuses": dict(self.statuses),
            **self._seen(),
            "wrong": {name: what for name, what in wrong.items() if what},
        }

    def _seen(self) -> dict[str, Any]:
        """What was seen of health, readiness and the lease."""
        answered = [at for at, health, _ in self.samples if health]
        gaps = [later - at for at, later in pairwise(answered)]
        moved = [at for at, _ in self.beats]
        still = [later - at for at, later in pairwise(moved)]
        green = 0
        for at, _, ready in self.samples:
            last = max((m for m in moved if m <= at), default=at)
            green += ready and at > last + LEASE_S + 2.0
        return {
            "health_asked": len(self.samples),
            "health_unanswered": len(self.samples) - len(answered),
            "longest_without_health_s": round(max(gaps, default=0.0), 1),
            "longest_without_decider_s": round(max(still, default=0.0), 1),
            "ready_while_nobody_decides": green,
        }


def uptime() -> float:
    return float(Path("/proc/uptime").read_text().split()[0])


# --- hardships ------------------------------------------------------------------------------------


def flood(folder: Path, asked: argparse.Namespace) -> dict[str, Any]:
    life = Life(folder)
    life.start(files=1024)
    life.attend()
    sockets: list[socket.socket] = []
    until, opened = time.monotonic() + asked.flood_s, 0
    while time.monotonic() < until:
        for one in sockets[: max(0, len(sockets) - 1200)]:
            one.close()
        sockets = sockets[-1200:]
        for _ in range(100):
            with suppress(OSError):
                one = socket.create_connection(("127.0.0.1", life.port), timeout=1.0)
                one.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0")
                sockets.append(one)
                opened += 1
        time.sleep(0.2)
    for one in sockets:
        one.close()
    return {"connections": opened, "open_at_once": len(sockets), **life.finish()}


def pauses(folder: Path, asked: argparse.Namespace) -> dict[str, Any]:
    life, paused = Life(folder, api_workers=2), []
    life.start()
    life.attend()
    for name in ("decider", "analyst", "maintenance", "api", "supervisor"):
        pid = life.process if name == "supervisor" else life.pid_of(name)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(asked.pause_s)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
        paused.append({"process": name, "ready_again_s": round(life.await_ready(), 1)})
        time.sleep(5.0)
    return {"paused_s": asked.pause_s, "paused": paused, **life.finish()}


def clock(folder: Path, asked: argparse.Namespace) -> dict[str, Any]:
    compiler = shutil.which("cc")
    if compiler is None:
        raise Impossible("no C compiler here")
    life, offset = Life(folder), folder / "offset"
    set_clock(offset, 0)
    python = faked_python(folder, compiler, offset)
    life.start(python=python)
    life.attend(seconds="4", every_s=2.0)
    again, forward = [], []
    for hours in (-1, 0, 1, 0):
        before = uptime()
        time.sleep(12.0)
        set_clock(offset, 3600 * hours)
        if hours == 0 or hours == 1:
            forward.append(uptime())
        time.sleep(8.0)
        life.victim.kill()  # as the host is restarted by whoever set its clock
        life.victim.start(python=python)
        again.append(round(life.await_ready(), 1))
        assert uptime() > before
    time.sleep(10.0)
    return {"ready_again_s": again, **life.finish(), **told(life, forward)}


def told(life: Life, forward: list[float]) -> dict[str, Any]:
    """By how much what is told of waits and runs is off, of jobs during which no clock was set
    forward (a clock that is set forward is followed)."""
    with life.victim.store.engine.connect() as connection:
        from scheduler.service.log.store.tables import jobs

        rows = {row.job_id: row for row in connection.execute(jobs.select())}
    off: list[tuple[float, float]] = []
    spanned = 0
    for line in life.out.read_text().splitlines():
        name, up, end = line.split()
        job, taken = life.accepted[name]
        row = rows[job]
        if any(taken - 2 <= at <= float(end) + 2 for at in forward):
            spanned += 1
            continue
        waited, ran = float(up) - taken, float(end) - float(up)
        off.append(
            (
                abs(row.started_at - row.submitted_at - waited),
                abs(row.ended_at - row.started_at - ran),
            )
        )
    return {
        "jobs_over_a_step_forward": spanned,
        "told_wait_off_s": round(max((wait for wait, _ in off), default=0.0), 1),
        "told_run_off_s": round(max((run for _, run in off), default=0.0), 1),
    }


def set_clock(file: Path, seconds: int) -> None:
    """In place: whoever runs has it mapped."""
    number = os.open(file, os.O_WRONLY | os.O_CREAT, 0o600)
    os.pwrite(number, seconds.to_bytes(8, sys.byteorder, signed=True), 0)
    os.close(number)


def faked_python(folder: Path, compiler: str, offset: Path) -> str:
    """An interpreter whose time of day is off by a file; what it starts as itself has it, too."""
    home = folder / "python"
    (home / "bin").mkdir(parents=True)
    (home / "clock.c").write_text(CLOCK_C)
    library = home / "clock.so"
    build = [compiler, "-shared", "-fPIC", "-O2", "-o", str(library), str(home / "clock.c")]
    subprocess.run(build, check=True)
    real = Path(sys.prefix)
    shutil.copy(real / "pyvenv.cfg", home / "pyvenv.cfg")
    (home / "lib").symlink_to(real / "lib")
    python = home / "bin" / "python"
    python.write_text(
        f"#!/bin/bash\nexport LD_PRELOAD={library} CLOCK_OFFSET={offset}\n"
        f'exec -a "$0" {os.path.realpath(sys.executable)} "$@"\n'
    )
    python.chmod(0o755)
    return str(python)


@contextmanager
def mounted(folder: Path, *command: str) -> Iterator[Path]:
    if os.geteuid() != 0:
        raise Impossible("needs root to mount")
    there = folder / "disk"
    there.mkdir(exist_ok=True)
    done = subprocess.run(["mount", *command, str(there)], capture_output=True, text=True)
    if done.returncode:
        raise Impossible(f"mount: {done.stderr.strip()}")
    try:
        there.chmod(0o700)
        yield there
    finally:
        subprocess.run(["umount", "-l", str(there)], check=False)


def full(folder: Path, asked: argparse.Namespace) -> dict[str, Any]:
    with mounted(folder, "-t", "tmpfs", "-o", "size=48m", "tmpfs") as disk:
        life = Life(folder, disk)
        life.start()
        life.attend()
        time.sleep(10.0)
        filler = disk / "filler"
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(65536))
        time.sleep(asked.full_s)
        filler.unlink()
        again = round(life.await_ready(), 1)
        time.sleep(10.0)
        return {"full_s": asked.full_s, "ready_again_s": again, **life.finish()}


def readonly(folder: Path, asked: argparse.Namespace) -> dict[str, Any]:
    if shutil.which("mkfs.ext4") is None:
        raise Impossible("no mkfs.ext4 here")
    image = folder / "image"
    with image.open("wb") as file:
        file.truncate(128 * 2**20)
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
    mount = "-o", "loop,errors=remount-ro", str(image)
    with mounted(folder, *mount) as disk:
        device = subprocess.run(
            ["findmnt", "-no", "SOURCE", str(disk)], capture_output=True, text=True, check=True
        ).stdout.strip()
        life = Life(folder, disk)
        life.start()
        life.attend()
        time.sleep(10.0)
        life.quiet.set()  # who runs cannot write down how it ended, and keeps the disk busy
        until = time.monotonic() + PATIENCE_S
        while not all(Phase(phase).over for phase in life.victim.rows().values()):
            assert time.monotonic() < until
            time.sleep(0.2)
        error = Path("/sys/fs/ext4") / Path(device).name / "trigger_fs_error"
        error.write_text("of a benchmark")
        life.quiet.clear()
        time.sleep(asked.full_s)
        life.quiet.set()
        stopped = time.monotonic()
        life.victim.kill()
        life.reading.acquire()  # we, too, would keep it busy
        life.victim.store.engine.dispose()
        while subprocess.run(["umount", str(disk)], capture_output=True).returncode:
            assert time.monotonic() < stopped + 60.0, "somebody is there yet"
            time.sleep(0.5)
        subprocess.run(["fsck.ext4", "-fy", str(image)], check=False, capture_output=True)
        subprocess.run(["mount", *mount, str(disk)], check=True)
        life.reading.release()
        life.start()
        life.quiet.clear()
        again = round(time.monotonic() - stopped, 1)
        time.sleep(10.0)
        return {"readonly_s": asked.full_s, "mended_and_ready_s": again, **life.finish()}


def postgres(folder: Path, asked: argparse.Namespace) -> dict[str, Any]:
    binaries = found_bin()
    if binaries is None:
        raise Impossible("PostgreSQL is not installed here")
    again = []
    with private_cluster(binaries) as url:
        life = Life(folder, database=url)
        life.start()
        life.attend()
        data = Path(url.partition("host=")[2])
        for _ in range(3):
            time.sleep(10.0)
            restart(binaries, data)
            again.append(round(life.await_ready(), 1))
        time.sleep(10.0)
        return {"ready_again_s": again, **life.finish()}


def restart(binaries: Path, folder: Path) -> None:
    """Kill the servers at once and start again: what was not committed is gone."""
    owner = pwd.getpwuid(folder.stat().st_uid).pw_name
    become = ["setpriv", f"--reuid={owner}", "--regid=nogroup", "--clear-groups"]
    become = become if os.geteuid() == 0 else []
    options = f"-c listen_addresses='' -c unix_socket_directories={folder}"
    command = [*become, str(binaries / "pg_ctl"), "-D", str(folder / "data"), "-w"]
    command += ["-l", str(folder / "log"), "-m", "immediate", "-o", options, "restart"]
    subprocess.run(command, check=True, capture_output=True, cwd=folder)


ALL: dict[str, Callable[[Path, argparse.Namespace], dict[str, Any]]] = {
    "flood": flood,
    "full": full,
    "readonly": readonly,
    "postgres": postgres,
    "clock": clock,
    "pauses": pauses,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--pause-s", type=float, default=120.0)
    parser.add_argument("--flood-s", type=float, default=30.0)
    parser.add_argument("--full-s", type=float, default=20.0)
    carry_out(ALL, parser)


def carry_out(
    all_of_them: Mapping[str, Callable[[Path, argparse.Namespace], dict[str, Any]]],
    parser: argparse.ArgumentParser,
) -> NoReturn:
    """Those that are asked for, one after the other. Exit status 1: something is wrong, or
    `/ready` was green while nobody decided."""
    parser.add_argument("--only", default=",".join(all_of_them), help="some, comma-separated")
    parser.add_argument("--json", action="store_true", help="print JSON only")
    asked = parser.parse_args()
    found: dict[str, Any] = {}
    for name in asked.only.split(","):
        with temporary_folder(f"pellucid-{name}-") as folder:
            try:
                found[name] = all_of_them[name](folder, asked)
            except Impossible as why:
                found[name] = {"left_out": str(why)}
        if not asked.json:
            print(name, json.dumps(found[name]), flush=True)
    if asked.json:
        print(json.dumps(found, indent=2))
    sys.exit(
        any(one.get("wrong") or one.get("ready_while_nobody_decides") for one in found.values())
    )


if __name__ == "__main__":
    main()
