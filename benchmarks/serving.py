"""A `pellucid serve` on GPUs that are only declared, in a process of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import create_server
from tempfile import TemporaryDirectory

from benchmarks.pages import ROOT


def free_port() -> int:
    """One of loopback that nobody listens on now."""
    with create_server(("127.0.0.1", 0)) as held:
        return int(held.getsockname()[1])


@contextmanager
def serving(cluster: str, *more: str) -> Iterator[str]:
    """Its address.

    Args:
        cluster: a cluster file's text.
        more: options of the command.
    """
    with TemporaryDirectory() as folder:
        Path(folder, "cluster.yaml").write_text(cluster)
        words = ("serve", "--fake-gpus", "--port", "0", "--cluster", "cluster.yaml", *more)
        process = subprocess.Popen(
            [sys.executable, "-m", "pipeline.cli", *words, "--log-level", "error"],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            found = re.search(r"http://\S+:\d+", process.stdout.readline())
            if found is None:
                raise RuntimeError("the service did not start")
            yield found[0]
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)
