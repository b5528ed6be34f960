"""Real batch jobs in place mode, while the service and slurmctld are killed under them.

Each job writes one line when it begins, and so proves that it ran once. What Slurm says of who
holds which GPU is sampled all the while; at the end the service's log and Slurm's own record are
compared job by job.
"""

from __future__ import annotations

import json
import os
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import select

from benchmarks.slurm.cluster import SlurmCluster
from benchmarks.slurm.processes import free_ports
from scheduler.backends.slurm import parse
from scheduler.backends.slurm.client import Slurm, SlurmDown, SlurmError
from scheduler.service.audit import audit
from scheduler.service.bundles import Library
from scheduler.service.settings import Settings, read_settings
from scheduler.service.store.store import Store
from scheduler.service.store.tables import decisions, jobs

GRANTS = ("start", "pack", "profile")
DECIDER = (
    "import sys; from scheduler.service.settings import Settings;"
    "from scheduler.service.supervisor import begin, run_decider;"
    "from scheduler.service.slurm import read_shape;"
    "settings = Settings.model_validate_json(sys.argv[1]);"
    "shape, partition = read_shape(settings);"
    "begin(settings, shape.spec, partition, shape.names);"
    "run_decider(settings, lambda: False)"
)
PROFILE = {"gpu_util_pct": 20.0, "gpu_mem_util_pct": 5.0, "gpu_mem_mib": 2000.0, "amp": True}


@dataclass
class Outcome:
    """What came of a scenario.

    Attributes:
        lost: submitted, and not completed in the log or in Slurm. doubled: began more than once.
        max_per_gpu: most jobs on any GPU in any sample of what Slurm says. shared: jobs packed.
        misplaced: ran on other nodes or GPUs than decided.
        out_of_order: of pairs decided in different passes, a second or more apart, those that
            began the other way round, on the same virtual cluster.
        disagree: log and Slurm differ in state, exit code, nodes or (by over 1 s) times.
    """

    jobs: int = 0
    seconds: float = 0.0
    kills: int = 0
    restarts: int = 0
    samples: int = 0
    max_per_gpu: int = 0
    shared: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    misplaced: list[str] = field(default_factory=list)
    disagree: list[str] = field(default_factory=list)
    pairs: int = 0
    out_of_order: int = 0
    median_decision_to_running_s: float | None = None
    p90_decision_to_running_s: float | None = None
    median_undisturbed_s: float | None = None
    divergences: list[str] = field(default_factory=list)


class Victim:
    """The service, killed with SIGKILL and started again.

    Args:
        whole: all of `pellucid serve`; otherwise its decider alone, which starts faster.
    """

    def __init__(self, cluster: SlurmCluster, folder: Path, *, whole: bool, policy: str) -> None:
        profiles = folder / "profiles.json"
        profiles.write_text(json.dumps([{"command": "*", **PROFILE}]))
        self.settings = read_settings(
            database=f"sqlite:///{folder}/pellucid.db",
            state_dir=folder / "state",
            backend="slurm",
            slurm_mode="place",
            slurm_partitions="main",
            slurm_profiling="profile",
            slurm_look_s=1.0,
            fake_profiles=profiles,
            policy=policy,
            lease_s=2.0,
            export_every=0,
            port=free_ports(1)[0],
        )
        self._environment = {**os.environ, **cluster.environment, "OMP_NUM_THREADS": "1"}
        self._log = folder / "service.log"
        self._whole = whole
        self._process: subprocess.Popen[bytes] | None = None
        self.down_at: list[tuple[float, float]] = []

    def start(self) -> None:
        settings = self.settings.model_dump_json()
        command = [sys.executable, "-c", DECIDER, settings]
        if self._whole:
            file = self.settings.state_dir.parent / "service.yaml"
            plain = json.loads(settings)
            file.write_text(json.dumps({k: v for k, v in plain.items() if v is not None}))
            serve = "from pipeline.cli import main; main()"
            command = [sys.executable, "-c", serve, "serve", "--config", str(file)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, env=self._environment, stdout=log, stderr=log, start_new_session=True
            )

    def kill(self) -> None:
        """SIGKILL to every process of it."""
        assert self._process is not None
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class Sampler(threading.Thread):
    """Asks Slurm who is on which GPU, again and again."""

    def __init__(self, slurm: Slurm, every_s: float) -> None:
        super().__init__(daemon=True)
        self._slurm, self._every_s, self._over = slurm, every_s, threading.Event()
        self.samples, self.most = 0, 0
        self.places: dict[str, dict[str, tuple[int, ...]]] = {}

    def run(self) -> None:
        while not self._over.wait(self._every_s):
            with suppress(SlurmDown, SlurmError, parse.ParseError):
                self._look()

    def _look(self) -> None:
        held: Counter[tuple[str, int]] = Counter()
        for job in self._slurm.jobs():
            if job.state in ("RUNNING", "COMPLETING") and job.held_gpus:
                where = dict(zip(job.nodes, job.held_gpus, strict=True))
                self.places.setdefault(job.id, where)
                held.update((node, gpu) for node, gpus in where.items() for gpu in gpus)
        self.samples += 1
        self.most = max([self.most, *held.values()])

    def end(self) -> None:
        self._over.set()
        self.join()


class Users(threading.Thread):
    """An ordinary user who submits jobs of 1 to 8 GPUs, one after another.

    Jobs of the same name are alike, so that what is seen of one is known of the next.
    """

    def __init__(
        self, cluster: SlurmCluster, marks: Path, count: int, seed: int, most_s: float, gap_s: float
    ) -> None:
        super().__init__(daemon=True)
        self._cluster, self._marks, self._count = cluster, marks, count
        self._source, self._most_s, self._gap_s = random.Random(seed), most_s, gap_s
        self.ids: list[str] = []

    def run(self) -> None:
        source = self._source
        for _ in range(self._count):
            seconds = source.uniform(self._most_s / 3, self._most_s)
            script = f"echo $SLURM_JOB_ID $(date +%s.%N) >> {self._marks}; sleep {seconds:.2f}"
            gpus = source.randint(1, 8)
            command = ["sbatch", "--parsable", f"--gpus={gpus}", f"--job-name=train{gpus}"]
            command += ["--output=/dev/null", "--chdir=/tmp", "--wrap", script]
            while True:  # as a person does while the controller is away
                told = self._cluster.run(*command, user="nobody", check=False)
                if told.returncode == 0:
                    break
                time.sleep(1.0)
            self.ids.append(told.stdout.strip())
            time.sleep(self._gap_s)


def place(
    folder: Path,
    *,
    count: int = 200,
    kills: int = 10,
    restarts: int = 2,
    most_s: float = 9.0,
    gap_s: float = 0.3,
    seed: int = 0,
    whole: bool = True,
    policy: str = "pellucid",
    patience_s: float = 900.0,
    tell: Callable[[str], None] = lambda _: None,
) -> Outcome:
    """Run the scenario in a cluster of its own.

    Args:
        most_s: longest duration of a job, seconds; the shortest is a third of it.
        gap_s: between two submissions, seconds.
    """
    outcome = Outcome(jobs=count)
    folder.chmod(0o755)
    marks = folder / "marks"
    marks.touch()
    marks.chmod(0o666)
    with SlurmCluster() as cluster:
        slurm = Slurm(cluster.environment)
        victim = Victim(cluster, folder, whole=whole, policy=policy)
        users = Users(cluster, marks, count, seed, most_s, gap_s)
        sampler = Sampler(Slurm(cluster.environment), 0.5)
        began = time.time()
        victim.start()
        sampler.start()
        disturbed: list[float] = []
        try:
            users.start()
            thirds = {max(1, kills * (i + 1) // (restarts + 1)) for i in range(restarts)}
            for kill in range(1, kills + 1):
                _wait_for(victim.settings, count * kill // (kills + 2), patience_s)
                disturbed.append(time.time())
                victim.kill()
                if kill in thirds:
                    _restart(cluster)
                    outcome.restarts += 1
                victim.start()
                outcome.kills += 1
                tell(f"{outcome.kills} kills, {outcome.restarts} restarts")
            _wait_for(victim.settings, count, patience_s)
            outcome.seconds = time.time() - began
            _wait_until(lambda: all(r.state in _OVER for r in slurm.rows().values()), 30.0)
            records = {job.id: job for job in slurm.jobs()}
            rows = slurm.rows()
        finally:
            victim.kill()
            sampler.end()
            outcome.samples, outcome.max_per_gpu = sampler.samples, sampler.most
    _compare(outcome, victim.settings, users.ids, rows, records, sampler.places, marks, disturbed)
    return outcome


_OVER = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")


def _restart(cluster: SlurmCluster) -> None:
    cluster.stop_controller()
    cluster.start_controller()


def _ended(settings: Settings) -> int:
    store = Store(settings.database)
    try:
        with store.reading() as connection:
            over = select(jobs.c.job_id).where(jobs.c.ended_at.is_not(None))
            return len(connection.execute(over).all())
    except Exception:  # not made yet
        return 0
    finally:
        store.close()


def _wait_for(settings: Settings, ended: int, patience_s: float) -> None:
    _wait_until(lambda: _ended(settings) >= ended, patience_s)


def _wait_until(holds: Callable[[], bool], patience_s: float) -> None:
    until = time.monotonic() + patience_s
    while time.monotonic() < until:
        with suppress(SlurmDown, SlurmError):
            if holds():
                return
        time.sleep(0.2)


def _compare(
    outcome: Outcome,
    settings: Settings,
    ids: list[str],
    rows: dict[str, parse.Row],
    records: dict[str, parse.SlurmJob],
    places: dict[str, dict[str, tuple[int, ...]]],
    marks: Path,
    disturbed: list[float],
) -> None:
    store = Store(settings.database)
    with store.reading() as connection:
        logged = {r.job_id: r._mapping for r in connection.execute(select(jobs))}
        granted = [
            (r.at, r.job_id, r.event, json.loads(r.body))
            for r in connection.execute(select(decisions).order_by(decisions.c.seq))
            if r.action in GRANTS
        ]
    checked = audit(store, Library(settings.state_dir / "bundles").find)
    outcome.divergences = [d.sentence() for d in checked.divergences]
    names = dict(enumerate(_names(store)))
    store.close()
    begun: dict[str, list[float]] = {}
    for line in marks.read_text().splitlines():
        job_id, at = line.split()
        begun.setdefault(job_id, []).append(float(at))
    outcome.doubled = [j for j, times in begun.items() if len(times) > 1]
    outcome.lost = [
        j
        for j in ids
        if j not in begun
        or j not in logged
        or logged[j]["state"] != "completed"
        or j not in rows
        or rows[j].state != "COMPLETED"
    ]
    outcome.shared = sum(body["action"] == "pack" for _, _, _, body in granted)
    taken = {job_id: (at, event, body) for at, job_id, event, body in granted}
    for job_id, (_, _, body) in taken.items():
        where = {
            names[node]: parse_mask(mask)
            for node, mask in zip(body["nodes"], body["gpus"], strict=True)
        }
        if job_id in places and places[job_id] != where:
            outcome.misplaced.append(f"{job_id}: {places[job_id]} for {where}")
        if job_id in rows and job_id in logged:
            said = _difference(logged[job_id], rows[job_id], records.get(job_id))
            outcome.disagree += [f"{job_id}: {said}"] if said else []
    _times(outcome, taken, begun, disturbed)


def _difference(mine: Any, row: parse.Row, record: parse.SlurmJob | None) -> str:
    if (mine["state"] or "").upper() != row.state:
        return f"state {mine['state']} in the log, {row.state} in Slurm"
    if mine["exit_code"] != row.exit_code:
        return f"exit code {mine['exit_code']}, {row.exit_code}"
    for name, theirs in (("started_at", row.start), ("ended_at", row.end)):
        if theirs is None or mine[name] is None or not -1.0 <= mine[name] - theirs <= 1.0:
            return f"{name} {mine[name]}, {theirs}"
    return "" if record is not None else "no record in Slurm"


def _times(
    outcome: Outcome,
    taken: dict[str, tuple[float, int, dict[str, Any]]],
    begun: dict[str, list[float]],
    disturbed: list[float],
) -> None:
    both = [(at, begun[j][0], event) for j, (at, event, _) in taken.items() if j in begun]
    waits = sorted(begin - at for at, begin, _ in both)
    if not waits:
        return
    outcome.median_decision_to_running_s = round(statistics.median(waits), 3)
    outcome.p90_decision_to_running_s = round(waits[int(0.9 * (len(waits) - 1))], 3)
    calm = [b - at for at, b, _ in both if not any(-1 < at - d < 15 for d in disturbed)]
    outcome.median_undisturbed_s = round(statistics.median(calm), 3) if calm else None
    for i, (at, begin, event) in enumerate(both):
        for other_at, other_begin, other in both[i + 1 :]:
            if event != other and abs(at - other_at) >= 1.0:
                outcome.pairs += 1
                outcome.out_of_order += (at < other_at) != (begin < other_begin)


def parse_mask(mask: int) -> tuple[int, ...]:
    return tuple(i for i in range(mask.bit_length()) if mask >> i & 1)


def _names(store: Store) -> list[str]:
    return list(store.read(limit=1)[0].body["names"])
