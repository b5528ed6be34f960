"""NVIDIA's Multi-Process Service, started for the length of a measurement where that is possible.

It runs in the foreground under a guardian (`profiler.runner`), so it is gone when the bench is,
killed or not, and in directories of its own, so it meets no other daemon. No setting of the GPU is
touched (no exclusive compute mode).
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from profiler import runner
from profiler.ends import last_lines
from profiler.errors import NotSupported

CONTROL = "nvidia-cuda-mps-control"


def available() -> str:
    """Return "" when MPS can be started, else why not."""
    return "" if shutil.which(CONTROL) else f"{CONTROL} is not installed"


@contextmanager
def daemon(folder: Path, visible: str, patience_s: float = 10.0) -> Iterator[Mapping[str, str]]:
    """Run the control daemon inside the block. Yield the environment variables that its clients
    need.

    Raises:
        NotSupported: it is not installed or does not come up; the message says why.
    """
    missing = available()
    if missing:
        raise NotSupported(missing)
    pipes, logs = folder / "mps-pipe", folder / "mps-log"
    for place in (pipes, logs):
        place.mkdir(parents=True, exist_ok=True)
    clients = {
        "CUDA_MPS_PIPE_DIRECTORY": str(pipes.absolute()),
        "CUDA_MPS_LOG_DIRECTORY": str(logs.absolute()),
    }
    env = {**os.environ, **clients, "CUDA_VISIBLE_DEVICES": visible}
    limits = runner.Limits(seconds=86400.0, grace_s=10.0)
    with runner.start([CONTROL, "-f"], folder / "mps", env=env, limits=limits) as run:
        deadline = time.monotonic() + patience_s
        while not (pipes / "control").exists():
            if run.poll() is not None or time.monotonic() > deadline:
                said = "; ".join(last_lines(run.output, 2)) or "no word from it"
                raise NotSupported(f"{CONTROL} did not start: {said}")
            time.sleep(0.05)
        yield clients
    shutil.rmtree(pipes, ignore_errors=True)
