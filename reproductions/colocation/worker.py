"""A process that trains workloads on request (`workloads --serve`), seen from the bench.

Starting torch and a CUDA context takes longer than a measurement, so workers are reused.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from profiler.errors import DriverMissing, NotSupported, ProfilerError
from reproductions.colocation.workloads import Config, Size


class WorkerFailed(ProfilerError):
    """Raised when a worker died, or did not answer in time."""

    exit_status = 1


class DoesNotFit(ProfilerError):
    """Raised when a workload ran out of memory, which is a result and not a failure."""


class Progress(NamedTuple):
    """Steps finished, and CPU seconds used, by a moment of time.monotonic()."""

    t: float
    steps: int
    cpu_s: float = 0.0


def _progress(message: Mapping[str, Any]) -> Progress:
    return Progress(message["t"], message["steps"], message["cpu_s"])


class Worker:
    """A worker process that runs training workloads on request. It ends when its input closes, so
    it never outlives this process.
    """

    def __init__(
        self,
        device: str,
        size: Size,
        *,
        threads: int | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.size = size
        command = [
            sys.executable,
            "-m",
            "reproductions.colocation.workloads",
            "--serve",
            "--device",
            device,
        ]
        if threads:
            command += ["--threads", str(threads)]
        root = str(Path(__file__).resolve().parents[2])
        environment = {**(os.environ if env is None else env)}
        environment["PYTHONPATH"] = os.pathsep.join(
            filter(None, [root, environment.get("PYTHONPATH")])
        )
        # a session of its own, as a profiled command has: the kernel's automatic groups then do
        # not set the bench's CPU time against the workload's, and Ctrl-C reaches the bench alone
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        )
        self.pid = self._process.pid
        self._messages: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.progress: list[Progress] = []
        self.training = False

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):  # libraries print what they like
                self._messages.put(json.loads(line))
        self._messages.put(None)

    def _tell(self, **order: object) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise WorkerFailed(f"worker {self.pid} has died") from None

    def await_event(self, *events: str, timeout_s: float) -> dict[str, Any]:
        """Return the next message whose kind is one of `events`. Progress reports that come before
        it are recorded. Raises WorkerFailed if none comes within `timeout_s` seconds, and errors
        as `_take` does. If the worker has ended, raises NotSupported (it has no torch),
        DriverMissing (no GPU) or WorkerFailed.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                message = self._messages.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise WorkerFailed(f"no {' or '.join(events)} within {timeout_s:g} s") from None
            if message is None:
                code = self._process.wait()
                if code == NotSupported.exit_status:
                    raise NotSupported("reference workloads need torch, which is not installed")
                if code == DriverMissing.exit_status:
                    raise DriverMissing(f"the torch of {sys.executable} sees no GPU")
                raise WorkerFailed(f"worker {self.pid} ended with exit code {code}")
            self._take(message)
            if message["event"] in events:
                return message

    def _take(self, message: dict[str, Any]) -> None:
        """Record a progress report. For a message about an error, raise it once the worker is idle
        again.
        """
        kind = message["event"]
        if kind == "progress":
            self.progress.append(_progress(message))
        elif kind == "idle":
            self.training = False
        elif kind in ("out_of_memory", "error"):
            self.await_event("idle", timeout_s=60)
            raise (DoesNotFit if kind == "out_of_memory" else WorkerFailed)(message["text"])

    def order(self, config: Config, report_every_s: float = 0.3) -> None:
        """Send the worker the order to train a workload, and forget its earlier progress reports.
        To wait until training has begun, call `ready`.
        """
        self.progress, self.training = [], True
        self._tell(
            do="start",
            model=config.model,
            batch=config.batch,
            amp=config.amp,
            size=self.size,
            report_every_s=report_every_s,
        )

    def ready(self, timeout_s: float) -> None:
        message = self.await_event("ready", timeout_s=timeout_s)
        self.progress.append(_progress(message))

    def follow(self, until: float) -> None:
        """Take in progress reports until a moment of time.monotonic(). Raise WorkerFailed if the
        worker has died, and errors as `_take` does."""
        while (left := until - time.monotonic()) > 0:
            try:
                message = self._messages.get(timeout=left)
            except queue.Empty:
                return
            if message is None:
                self._process.wait()
                raise WorkerFailed(f"worker {self.pid} has died")
            self._take(message)

    def follow_past(self, moment: float, timeout_s: float) -> None:
        """Read progress reports until one is dated after `moment`. Raise WorkerFailed after
        `timeout_s` seconds.
        """
        deadline = time.monotonic() + timeout_s
        while not self.progress or self.progress[-1][0] < moment:
            if time.monotonic() > deadline:
                raise WorkerFailed(f"no progress within {timeout_s:g} s")
            self.follow(time.monotonic() + 0.05)

    def abandon(self, patience_s: float = 20.0) -> None:
        """Stop the training of a worker after a failure of it or its partner. If that fails, end
        the process.
        """
        if not self.training or not self.alive:
            return
        try:
            self.end(patience_s)
        except (DoesNotFit, WorkerFailed):
            if self.training:
                self.close()

    def end(self, timeout_s: float = 60.0) -> float | None:
        """Stop the training. Return torch's peak memory in MiB; None without a GPU."""
        self._tell(do="stop")
        message = self.await_event("memory", timeout_s=timeout_s)
        self.await_event("idle", timeout_s=timeout_s)
        peak: float | None = message["peak_mib"]
        return peak

    def rate(self, start: float, end: float) -> float:
        """Return the true steps per second between two moments, from the progress reported around
        them.

        The edges move inwards to reports, which the device was synchronised for; where a step is
        longer than the window's reports allow, outwards to the nearest ones.
        """
        first, last = self.between(start, end)
        return (last.steps - first.steps) / (last.t - first.t)

    def between(self, start: float, end: float) -> tuple[Progress, Progress]:
        """Return the first and the last progress report of a window. If it holds fewer than two, or
        fewer than four steps, return the nearest ones outside of it. Raise WorkerFailed where there
        are no two."""
        points = self.progress
        inside = [p for p in points if start <= p.t <= end]
        if len(inside) < 2 or inside[-1].steps - inside[0].steps < 4:
            before = [p for p in points if p.t <= start][-1:] or points[:1]
            after = [p for p in points if p.t >= end][:1] or points[-1:]
            inside = before + after
        if not inside or inside[-1].t <= inside[0].t:
            raise WorkerFailed("no progress was reported inside the measurement window")
        return inside[0], inside[-1]

    def close(self) -> None:
        """End the process. If it has ended, do nothing."""
        if self._process.poll() is None:
            try:
                assert self._process.stdin is not None
                self._process.stdin.close()
                self._process.wait(timeout=5)
            except (subprocess.TimeoutExpired, BrokenPipeError, OSError):
                self._process.kill()
                self._process.wait()
