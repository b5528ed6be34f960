"""Samples the GPUs of running jobs on this host, and keeps the samples (`usage`)."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

from features.files import write_whole
from profiler.errors import ProfilerError
from profiler.samplers.nvml import glance, open_nvml, survey
from scheduler.backends.local import usage
from scheduler.backends.local.attempt import LocalAttempt
from scheduler.backends.local.usage import Series, kept_usage

SAVE_S = 60.0

Sample = dict[str, dict[str, float]]  # by GPU, as CUDA_VISIBLE_DEVICES calls it


class Usage:
    """Samples the GPUs of running attempts, and keeps the samples in files.

    The driver may hang, so it is queried on a thread of its own, and by one such thread at a time.

    Args:
        folder: folder of the attempts' outputs, where the files go.
        nvml_module: stands in for `pynvml`, in tests.
    """

    def __init__(self, folder: Path, nvml_module: Any = None) -> None:
        self._folder, self._nvml = folder, nvml_module
        self._series: dict[str, Series] = {}
        self._due = self._save_at = 0.0
        self._found: Sample | None = None
        self.asking: Thread | None = None

    def look(self, attempts: Iterable[LocalAttempt], now: float) -> None:
        """Store the last samples of the running attempts, and sample again where that is due.

        Args:
            now: seconds since the epoch.
        """
        at = time.monotonic()
        running = {one.name: one for one in attempts if one.started and not one.over}
        found, self._found = self._found, None
        for name, attempt in running.items() if found else ():
            devices = attempt.claim.get("devices", ())
            seen = [found[device] for device in devices if found and device in found]
            if seen:
                kept = self._series.get(name) or kept_usage(self._path(name))
                series = self._series[name] = kept or Series(now, len(devices))
                series.add(now, seen)
        ended = [name for name in self._series if name not in running]
        if ended or (at >= self._save_at and self._series):
            for name in ended if at < self._save_at else list(self._series):
                with suppress(OSError):  # what cannot be kept is not shown, and ends nothing
                    write_whole(self._path(name), json.dumps(self._series[name].record()))
            self._save_at = at + SAVE_S if at >= self._save_at else self._save_at
            for name in ended:
                del self._series[name]
        if running and at >= self._due and (self.asking is None or not self.asking.is_alive()):
            self._due = at + usage.EVERY_S
            self.asking = Thread(target=self._ask, daemon=True)
            self.asking.start()

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}{usage.SUFFIX}"

    def _ask(self) -> None:
        with suppress(ProfilerError):
            nvml = open_nvml(self._nvml)
            try:
                self._found = {gpu.uuid: glance(nvml, gpu) for gpu in survey(nvml).gpus}
            finally:
                with suppress(nvml.NVMLError):
                    nvml.nvmlShutdown()
