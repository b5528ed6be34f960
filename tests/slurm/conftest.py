"""Real Slurm daemons with fake GPUs (`benchmarks/slurm`), one set for each module that asks.

Only run when asked for, by `make slurm-test`: they need root, Slurm's packages and about a minute.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from benchmarks.slurm import SlurmCluster
from benchmarks.slurm.cluster import PREFIX
from benchmarks.slurm.processes import MARK

collect_ignore_glob = [] if os.environ.get("PELLUCID_SLURM") == "1" else ["test_*.py"]


@pytest.fixture(scope="session", autouse=True)
def nothing_left() -> Iterator[None]:
    """No process and no folder of any cluster of this run is there at its end."""
    yield
    begin = f"{tempfile.gettempdir()}/{PREFIX}{os.getpid()}-"
    left = []
    for process in psutil.process_iter():
        try:
            if f"{process.environ().get(MARK, '')} {process.cwd()}".count(begin):
                left.append(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    assert not left
    assert not list(Path(tempfile.gettempdir()).glob(f"{PREFIX}{os.getpid()}-*"))


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    """Four nodes of eight GPUs, all in partition `main`."""
    with SlurmCluster() as slurm:
        yield slurm


@pytest.fixture(scope="session")
def accounted() -> Iterator[SlurmCluster]:
    """Two of them, with MariaDB and slurmdbd."""
    with SlurmCluster(nodes=2, accounting=True) as slurm:
        yield slurm
