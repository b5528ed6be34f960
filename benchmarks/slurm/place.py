"""Real batch jobs in place mode, while the service and slurmctld are killed under them.

Each job writes one line when it begins, and so shows that it ran once, and where. What Slurm
says of who holds which GPU is sampled all the while; at the end the service's log and Slurm's
accounts are compared job by job.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.exc import DBAPIError

from benchmarks import decider
from benchmarks.slurm.cluster import SlurmCluster
from benchmarks.slurm.processes import SlurmError, free_ports
from benchmarks.slurm.verdict import Outcome, accounts, judge, notes
from scheduler.backends.slurm import parse
from scheduler.backends.slurm.client import Slurm, SlurmDown
from scheduler.backends.slurm.client import SlurmError as Refused
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import jobs
from scheduler.service.settings import read_settings

PROFILE = {"gpu_util_pct": 20.0, "gpu_mem_util_pct": 5.0, "gpu_mem_mib": 2000.0, "amp": True}


class Service:
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

    def start(self) -> None:
        command = decider.command(self.settings)
        if self._whole:
            file = self.settings.state_dir.parent / "service.yaml"
            file.write_text(self.settings.model_dump_json(exclude_defaults=True))
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

    def wait(self, ended: int, patience_s: float) -> None:
        """Wait until so many jobs are over, in the log."""
        _wait(lambda: self._ended() >= ended, patience_s)

    def _ended(self) -> int:
        store = Store(self.settings.database)
        try:
            with store.reading() as connection:
                over = select(jobs.c.job_id).where(jobs.c.ended_at.is_not(None))
                return len(connection.execute(over).all())
        except DBAPIError:  # the tables are not made yet
            return 0
        finally:
            store.close()


class Sampler(threading.Thread):
    """Asks Slurm who is on which GPU, again and again."""

    def __init__(self, slurm: Slurm, every_s: float) -> None:
        super().__init__(daemon=True)
        self._slurm, self._every_s, self._over = slurm, every_s, threading.Event()
        self.samples, self.most = 0, 0
        self.places: dict[str, dict[str, tuple[int, ...]]] = {}

    def run(self) -> None:
        while not self._over.wait(self._every_s):
            with suppress(SlurmDown, Refused, parse.ParseError):
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
            told = "$SLURM_JOB_ID $(date +%s.%N) $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES"
            script = f"echo {told} >> {self._marks}; sleep {seconds:.2f}"
            gpus = source.randint(1, 8)
            command = ["sbatch", "--parsable", f"--gpus={gpus}", f"--job-name=train{gpus}"]
            command += ["--output=/dev/null", "--chdir=/tmp", "--wrap", script]
            while True:  # as a person does while the controller is away
                done = self._cluster.run(*command, user="nobody", check=False)
                if done.returncode == 0:
                    break
                time.sleep(1.0)
            self.ids.append(done.stdout.strip())
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
    """Run the scenario in a cluster of its own, with accounts.

    Args:
        folder: of the service.
        kills: of the service; `restarts`: of slurmctld, each while the service is dead.
        most_s: longest duration of a job, seconds; the shortest is a third of it.
        gap_s: between two submissions, seconds.
        whole: `pellucid serve`; otherwise its decider alone, which starts faster.
        patience_s: what is not over by then is lost.
    """
    outcome = Outcome(jobs=count)
    with SlurmCluster(accounting=True) as cluster:
        marks = cluster.folder / "marks"  # where every user may come
        marks.touch()
        marks.chmod(0o666)
        service = Service(cluster, folder, whole=whole, policy=policy)
        users = Users(cluster, marks, count, seed, most_s, gap_s)
        sampler = Sampler(Slurm(cluster.environment), 0.5)
        disturbed: list[float] = []
        began = time.time()
        service.start()
        sampler.start()
        try:
            users.start()
            turns = {max(1, kills * (i + 1) // (restarts + 1)) for i in range(restarts)}
            for kill in range(1, kills + 1):
                service.wait(count * kill // (kills + 2), patience_s)
                disturbed.append(time.time())
                service.kill()
                outcome.kills += 1
                if kill in turns:
                    cluster.stop_controller()
                    cluster.start_controller()
                    outcome.restarts += 1
                service.start()
                tell(f"{outcome.kills} kills, {outcome.restarts} restarts of slurmctld")
            service.wait(count, patience_s)
            outcome.seconds = round(time.time() - began, 1)
            _wait(lambda: all(a.end for a in accounts(cluster).values()), 30.0)
            held = accounts(cluster)
        finally:
            service.kill()
            sampler.end()
        noted = notes(marks.read_text())
    outcome.samples, outcome.most_sampled = sampler.samples, sampler.most
    judge(outcome, service.settings, users.ids, held, sampler.places, noted, disturbed)
    return outcome


def _wait(holds: Callable[[], bool], patience_s: float) -> None:
    until = time.monotonic() + patience_s
    while time.monotonic() < until:
        with suppress(SlurmError):
            if holds():
                return
        time.sleep(0.2)
