"""Train a reference workload and report its true progress.

Progress lines hold a monotonic time and the number of steps the device has *finished* by then
(the device is synchronised before the clock is read), so that the rate over any window can be had
by interpolation and set beside samples taken from outside on the same clock.
"""

from __future__ import annotations

import importlib
import random
import time
from collections.abc import Callable
from typing import Any

import torch

from profiler.errors import DriverMissing, NotSupported, ProfilerError
from reproductions.colocation.workloads import WORKLOADS, Config, Size
from reproductions.colocation.workloads.task import Setup, Task

Report = Callable[[dict[str, Any]], None]
READ_LOSS_EVERY = 20  # as training scripts do when they print it: a wait for the device
WARMUP_STEPS = 3


def pick_device(device: str) -> str:
    """Return the name that torch has for `auto` (a GPU if there is one, otherwise the CPU), `cpu`
    or `cuda[:N]`. Raise DriverMissing if a GPU is asked for and torch sees none.
    """
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise DriverMissing(f"--device {device}: torch {torch.__version__} sees no GPU here")
    return device


def build(config: Config, device: str, size: Size, seed: int = 0) -> Task:
    """Return the task of a configuration, with its data and model on the device."""
    module = importlib.import_module(
        f"reproductions.colocation.workloads.{WORKLOADS[config.model].module}"
    )
    with torch.device(device):  # weights drawn there: on a CPU BERT's alone take seconds
        task: Task = module.build(config.model, config.batch, Setup(device, config.amp, size, seed))
    return task


def synchronise(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def train(
    task: Task,
    device: str,
    report: Report,
    stop: Callable[[], bool],
    report_every_s: float = 1.0,
) -> None:
    """Train until `stop()`. Report ``ready`` after a warm-up, ``progress`` lines, then ``done``.

    ``steps`` counts from ``ready``. The last line also holds the mean steps per second and the
    loss. Progress
    comes at irregular moments (0.5 to 1.5 times `report_every_s`): a regular one would put a
    period of its own into the signals that a profiler looks for steps in.
    """
    jitter = random.Random(0)
    loss = torch.zeros(())
    for _ in range(WARMUP_STEPS):
        loss = task.step()
    synchronise(device)
    began = due = time.monotonic()
    report(
        {
            "event": "ready",
            "t": began,
            "steps": 0,
            "cpu_s": time.process_time(),
            "warmup_steps": WARMUP_STEPS,
        }
    )
    steps = 0
    while not stop():
        loss = task.step()
        steps += 1
        if steps % READ_LOSS_EVERY == 0:
            float(loss)
        if time.monotonic() >= due:
            synchronise(device)
            last = time.monotonic()
            due = last + report_every_s * jitter.uniform(0.5, 1.5)
            report({"event": "progress", "t": last, "steps": steps, "cpu_s": time.process_time()})
    synchronise(device)
    end = time.monotonic()
    rate = steps / (end - began) if steps else 0.0
    report({"event": "done", "t": end, "steps": steps, "steps_per_s": rate, "loss": float(loss)})


def peak_memory_mib(device: str) -> float | None:
    """Return the most memory (MiB) that torch reserved on the GPU since the last reset; None on a
    CPU.
    """
    if not device.startswith("cuda"):
        return None
    return float(torch.cuda.max_memory_reserved()) / 2**20


def release(device: str) -> None:
    """Free cached GPU memory and reset its peak, so that the next workload's own use is
    measured."""
    if device.startswith("cuda"):
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def out_of_memory(error: BaseException) -> bool:
    """Return whether torch raised this error for lack of memory."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or (
        isinstance(error, RuntimeError) and "not enough memory" in str(error)
    )


__all__ = ["NotSupported", "ProfilerError", "build", "peak_memory_mib", "pick_device", "train"]
