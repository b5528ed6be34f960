"""The outside of the Slurm backend: a private cluster with real daemons."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from benchmarks.slurm import SlurmCluster
from benchmarks.slurm.processes import SlurmError
from scheduler.backends.slurm.attempts import Pace
from scheduler.backends.slurm.backend import SlurmBackend
from scheduler.backends.slurm.client import Slurm
from scheduler.backends.slurm.shape import Shape
from scheduler.testing.backend import Does

QUICK = Pace(soon_s=0.1, calm_s=0.3, again_s=3.0)


def client(cluster: SlurmCluster) -> Slurm:
    return Slurm(cluster.environment)


def shape_of(cluster: SlurmCluster) -> Shape:
    return Shape.of(client(cluster).nodes(), profiling="profile")


class SlurmSite:
    """A state folder, and a cluster. Commands write to `marks` when they really begin."""

    short_s, step_s = 2.0, 0.2

    def __init__(self, cluster: SlurmCluster, folder: Path) -> None:
        self.cluster, self.folder, self.marks = cluster, folder, folder / "marks"
        self.marks.touch()
        self.shape = shape_of(cluster)
        self.backend: SlurmBackend | None = None

    def open(self) -> SlurmBackend:
        if self.backend is not None:
            crash(self.backend)
        slurm = client(self.cluster)
        self.backend = SlurmBackend(self.folder / "slurm", self.shape, slurm, pace=QUICK)
        return self.backend

    def command(self, does: Does) -> tuple[str, ...]:
        if does is Does.IS_NOT:
            return ("/no/such/command",)
        grow = "import time; x = bytes(range(256)) * 800_000; time.sleep(999)"
        then = {
            Does.ENDS: "exit 0",
            Does.FAILS: "echo it went wrong >&2; exit 3",
            Does.DIES: "kill -SEGV $$",
            Does.STAYS: "exec sleep 1000",
            Does.GROWS: f"exec {sys.executable} -S -c '{grow}'",
        }[does]
        return ("/bin/sh", "-c", f'echo "$PELLUCID_JOB_ID" >> {self.marks}; {then}')

    def begins(self, job_id: str) -> int:
        return self.marks.read_text().split().count(job_id)

    def lose(self, job_id: str) -> None:
        """Its node fails. (What it ran on is a folder on this host: the node comes back.)"""
        assert self.backend is not None
        for job in client(self.cluster).jobs():
            if job.comment == f"pellucid:{self.backend.journal.site}:{job_id}/1":
                for node in job.nodes:
                    self.cluster.mark(node, "down")
                    self._resume(node)

    def _resume(self, node: str) -> None:
        for _ in range(100):  # not while it still clears up
            try:
                self.cluster.mark(node, "resume")
                return
            except SlurmError:
                time.sleep(0.1)
        raise AssertionError(f"{node} does not come back: {self.cluster.node_states()}")

    def close(self) -> None:
        if self.backend is not None:
            crash(self.backend)
            self.backend = None
        self.cluster.run("scancel", "--user=root", check=False)
        until = time.monotonic() + 20
        while self.cluster.run("squeue", "-h", "-a").stdout and time.monotonic() < until:
            time.sleep(0.1)


def crash(backend: SlurmBackend) -> None:
    """As the death of the service looks from outside: descriptors closed, nothing said."""
    had = vars(backend)
    if had:
        backend.slurm.close()
        backend.journal.close()
        had.clear()
