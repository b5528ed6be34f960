"""Kills a real service with SIGKILL while it runs real processes, again and again.

    python -m benchmarks.kills --kills 150 --jobs 300 --json
    python -m benchmarks.kills --decider SETTINGS   # its decider alone; settings as JSON

The jobs write one line each, and so prove that each ran once and to its end. What is killed is the
whole service, or its decider; the jobs are no part of it and run on.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil
from sqlalchemy import Connection, insert, select

from features.folders import temporary_folder
from scheduler.assembly import CoreSpec
from scheduler.backends.events import Event, Kind
from scheduler.backends.submission import Submission
from scheduler.core.cluster import ClusterSpec
from scheduler.core.settings import ProfilingPartition
from scheduler.service.decide.supervisor import begin, run_decider
from scheduler.service.log.audit import audit
from scheduler.service.log.bundles import BundleStore
from scheduler.service.log.record import Phase, first_row
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import jobs
from scheduler.service.settings import Settings

PATIENCE_S = 300.0  # on a machine that has more to do
MOST_S = 30.0  # a stop that takes longer has hung
BAD = ("process_died", "process_killed", "process_failed")
CLUSTER = """name: kills
gpus_per_node: 4
vcs: {vc: 2}
"""


@dataclass
class Killed:
    """What came of it."""

    kills: int = 0
    jobs: int = 0
    seconds: float = 0.0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    divergences: list[str] = field(default_factory=list)


class Victim:
    """A service that is killed and started again.

    Args:
        whole: `pellucid serve` with all its processes; otherwise a decider alone, which is there
            sooner.
        begun: by whoever made its database.
        more: settings other than those of here.
    """

    def __init__(
        self, folder: Path, *, whole: bool, policy: str = "fifo", begun: bool = False, **more: Any
    ):
        cluster = folder / "cluster.yaml"
        cluster.write_text(CLUSTER)
        (folder / "champion").mkdir(exist_ok=True)  # nothing in it yet
        self.whole, self.folder = whole, folder
        given: dict[str, Any] = {
            "database": f"sqlite:///{folder / 'pellucid.db'}",
            "cluster": cluster,
            "policy": policy,
            "state_dir": folder / "state",
            "bundle": folder / "champion",
            "fake_gpus": True,
            "lease_s": 1.0,
            "port": 0,
            "export_every": 0,
            "log_level": "warning",
            **more,
        }
        self.settings = Settings(**given)
        self.log = (folder / "log").open("ab")
        cluster_spec = ClusterSpec({"vc": 2}, 4, name="kills")
        spec = CoreSpec.of(cluster_spec, policy, profiling=ProfilingPartition())
        if not begun:
            begin(self.settings, spec)
        self.store = Store(self.settings.database)
        self.process: subprocess.Popen[bytes] | None = None

    def start(
        self,
        python: str = sys.executable,
        files: int | None = None,
        code: Path | None = None,
        through: Sequence[str] = (),
    ) -> None:
        """Start it.

        Args:
            files: descriptors it may have.
            code: checkout whose code it is.
            through: a command that becomes the one that it is given.
        """
        given = self.settings.model_dump_json()
        command = [sys.executable, "-m", "benchmarks.kills", "--decider", given]
        if self.whole:
            command = [*through, python, "-m", "pipeline.cli", "serve"]
        names = self.settings.model_dump(mode="json", exclude_none=True)
        environment = {f"PELLUCID_{name.upper()}": str(value) for name, value in names.items()}
        self.process = subprocess.Popen(
            command,
            env={**os.environ, **environment, "OMP_NUM_THREADS": "1"},
            stdout=self.log,
            stderr=self.log,
            cwd=code,
            start_new_session=True,
        )
        if files is not None:
            resource.prlimit(self.process.pid, resource.RLIMIT_NOFILE, (files, files))

    def kill(self) -> None:
        """SIGKILL to every process of the service at once; none has a last word."""
        assert self.process is not None
        for process in family(self.process.pid):
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        self.process.wait()

    def submit(self, job_id: str, seconds: float) -> None:
        """A job that takes so long and then leaves a line."""
        line = f"sleep {seconds:.2f}; echo {job_id} >> {self.folder / 'out'}"
        now = time.time()
        asked = Submission(
            job_id=job_id, command=("/bin/sh", "-c", line), owner="ann", vc="vc", submitted_at=now
        )
        event = Event(Kind.SUBMITTED, now, job_id, "ann", body=asked.body())

        def row(connection: Connection, appended: list[Event]) -> None:
            connection.execute(insert(jobs).values(first_row(appended[0])))

        self.store.append([event], row)

    def rows(self) -> dict[str, str]:
        with self.store.engine.connect() as connection:
            return {row.job_id: row.phase for row in connection.execute(select(jobs))}


def family(pid: int) -> list[psutil.Process]:
    """The processes of a service: the one given and those forked from it. Its jobs are not."""
    found = []
    with suppress(psutil.NoSuchProcess):
        found.append(psutil.Process(pid))
        command = found[0].cmdline()
        for process in found[0].children(recursive=True):
            with suppress(psutil.Error):
                if process.cmdline() == command:
                    found.append(process)
    return found


def run(
    folder: Path, *, kills: int, number: int, whole: bool = True, seed: int = 0, most_s: float = 600
) -> Killed:
    """Submit `number` jobs in the course of `kills` kills, and see what became of them."""
    draw, victim, found = random.Random(seed), Victim(folder, whole=whole), Killed(jobs=number)
    began = time.monotonic()
    names = [f"job{i:04d}" for i in range(number)]
    for i, name in enumerate(names[: number // 2]):
        victim.submit(name, draw.uniform(0, 1.5) if i % 2 else 0.0)
    victim.start()
    rest = iter(names[number // 2 :])
    try:
        for _ in range(kills):
            _alive(victim)
            for _, name in zip(range(number // 2 // kills + 1), rest, strict=False):
                victim.submit(name, draw.uniform(0, 1.5))
            time.sleep(draw.uniform(0.0, 0.6))
            victim.kill()
            found.kills += 1
            victim.start()
        for name in rest:
            victim.submit(name, 0.0)
        while not all(Phase(phase).over for phase in victim.rows().values()):
            if time.monotonic() - began > most_s:
                break
            time.sleep(0.2)
    finally:
        victim.kill()
    found.seconds = time.monotonic() - began
    out = folder / "out"
    lines = Counter(out.read_text().split() if out.exists() else [])
    rows = victim.rows()
    found.lost = [n for n in names if lines[n] < 1 or rows.get(n) != Phase.ENDED]
    found.doubled = [n for n in names if lines[n] > 1]
    bundle_store = BundleStore(victim.settings.state_dir / "bundles")
    found.divergences = [d.sentence() for d in audit(victim.store, bundle_store.find).divergences]
    victim.store.close()
    victim.log.close()
    return found


def stops(folder: Path, times: int, seed: int = 0) -> Iterator[dict[str, Any]]:
    """Start a whole service and stop it by one SIGTERM to its process group, as init systems and
    terminals do, at a moment of its life that differs each time; what came of each stop.

    One is clean when it ends by itself with status 0, had no process to kill, saw none die, and
    leaves none behind.
    """
    victim, draw = Victim(folder, whole=True), random.Random(seed)
    victim.settings.log_level = "info"
    path = folder / "log"
    for turn in range(times):
        before = path.stat().st_size
        victim.submit(f"job{turn:04d}", 4.0)
        victim.start()
        process = victim.process
        assert process is not None
        _await(path, before, "process_started" if turn % 5 == 4 else "decides", process)
        time.sleep(draw.uniform(0.0, 1.0))
        alive = family(process.pid)
        os.killpg(process.pid, signal.SIGTERM)
        try:
            status: int | None = process.wait(MOST_S)
        except subprocess.TimeoutExpired:
            status = None
            victim.kill()
        _, left = psutil.wait_procs(alive, 5.0)
        said = [line["event"] for line in _lines(path, before)]
        bad = [event for event in said if event in BAD]
        clean = status == 0 and not bad and not left and "stopped" in said
        yield {"status": status, "bad": bad, "left": len(left), "clean": clean}
    victim.store.close()
    victim.log.close()


def _await(path: Path, offset: int, event: str, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not any(line["event"] == event for line in _lines(path, offset)):
        if process.poll() is not None or time.monotonic() > until:
            raise SystemExit(f"the service did not start:\n{path.read_text()[offset:][-2000:]}")
        time.sleep(0.05)


def _lines(path: Path, offset: int) -> list[dict[str, Any]]:
    with path.open("rb") as log:
        log.seek(offset)
        lines = log.read().decode(errors="replace").splitlines()
    return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]


def _alive(victim: Victim) -> None:
    """Wait until a decider decides again."""
    before = victim.store.last_seq()
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        kinds = [event.kind for event in victim.store.read(before)]
        if Kind.DECIDED in kinds or (Kind.LEASE in kinds and not _waiting(victim)):
            return
        time.sleep(0.02)
    said = (victim.folder / "log").read_text(errors="replace")[-2000:]
    raise AssertionError(f"no decider in {PATIENCE_S:g} s:\n{said}")


def _waiting(victim: Victim) -> bool:
    return any(not Phase(phase).over for phase in victim.rows().values())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--kills", type=int, default=150)
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--most-s", type=float, default=3600.0)
    parser.add_argument("--json", action="store_true", help="print JSON only")
    parser.add_argument("--decider", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.decider:
        return run_decider(Settings.model_validate_json(asked.decider), lambda: False)
    with temporary_folder("pellucid-kills-") as folder:
        more = {"seed": asked.seed, "most_s": asked.most_s}
        found = run(folder, kills=asked.kills, number=asked.jobs, **more)
    bad = found.lost or found.doubled or found.divergences
    if asked.json:
        print(json.dumps(asdict(found), indent=2))
    else:
        print(
            f"{found.kills} kills, {found.jobs} jobs in {found.seconds:.0f} s: {len(found.lost)} "
            f"lost, {len(found.doubled)} doubled, {len(found.divergences)} divergences"
        )
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
