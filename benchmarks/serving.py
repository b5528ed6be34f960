"""Runs `pellucid serve` in a folder, in a process of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from socket import create_server

from benchmarks.ending import taken_down
from benchmarks.pages import ROOT


def free_port() -> int:
    """Return a port of the loopback interface that is free now."""
    with create_server(("127.0.0.1", 0)) as held:
        return int(held.getsockname()[1])


@dataclass(frozen=True, slots=True)
class Served:
    """A running service: the address on which it listens, and the path of its log of JSON lines."""

    address: str
    process: subprocess.Popen[str]
    log: Path


@contextmanager
def serving(
    folder: Path, *more: str, cluster: str = "", environment: Mapping[str, str] | None = None
) -> Iterator[Served]:
    """Run a service in a folder until the block ends, also by SIGTERM or SIGHUP. Yield it.

    Args:
        more: further options of `pellucid serve`.
        cluster: text of the cluster file; "": none is written.
        environment: variables that replace those of this process; None: all stay as they are.
    """
    with taken_down():
        yield from _running(folder, more, cluster, environment)


def _running(
    folder: Path, more: Sequence[str], cluster: str, environment: Mapping[str, str] | None
) -> Iterator[Served]:
    (folder / "cluster.yaml").write_text(cluster)
    of = ["--cluster", "cluster.yaml"] if cluster else []
    own = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **(environment or {})}
    log = folder / "log"
    with log.open("wb") as to:
        process = subprocess.Popen(
            [sys.executable, "-m", "pipeline.cli", "serve", "--port", "0", *of, *more],
            cwd=folder,
            env={**os.environ, **own},
            stdout=subprocess.PIPE,
            stderr=to,
            text=True,
        )
    try:
        assert process.stdout is not None
        found = re.search(r"http://\S+:\d+", process.stdout.readline())
        if found is None:
            raise RuntimeError(f"the service did not start:\n{log.read_text()[-2000:]}")
        yield Served(found[0], process, log)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
