"""Finds GPUs of this host that do not answer. Each is closed alone, and opened when it answers
again.

The driver may hang on a GPU that is lost, so each GPU is queried on a thread of its own.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

from features.given import read_text
from profiler.errors import ProfilerError
from profiler.samplers.nvml import Survey, count, open_nvml, survey_one
from scheduler.backends.events import Event, Kind
from scheduler.backends.local.host import Host

EVERY_S = 30.0
PATIENCE_S = 60.0  # a GPU that has not answered by then does not
DRIVER_PATIENCE_S = 1.5 * PATIENCE_S  # nor does a driver that has listed no GPU

News = dict[tuple[Kind, int], Event]  # by kind and node


class Health:
    """Watches which GPUs of which nodes do not answer.

    Args:
        drained: file in which an older release wrote which nodes it drained because of a GPU, and
            why.
        nvml_module: stands in for `pynvml`, in tests.
    """

    def __init__(self, host: Host, drained: Path, nvml_module: Any = None) -> None:
        self.host = host
        self._drained, self._nvml = drained, nvml_module
        self._reported: dict[int, dict[str, str]] = {}  # by node: why, by index
        self._due = self._asked = time.monotonic()
        self._found: Survey | str | None = None
        self._hang: dict[int, Thread] = {}  # by the index of the GPU that has not answered
        self.asking: Thread | None = None

    def begin(self, news: News, now: float) -> None:
        """Add events for the state of the GPUs at the start to `news`; also for nodes where every
        GPU answers, because the log may say otherwise. `now`: time of the events.
        """
        if self.host.fake:
            return
        kept: dict[str, str] = {}
        with suppress(OSError, ValueError):
            kept = dict(json.loads(read_text(self._drained)))
        for node, why in kept.items():
            body = {"node": int(node), "open": True, "reason": "", "ends": why}
            news.setdefault((Kind.NODE_SET, int(node)), Event(Kind.NODE_SET, now, body=body))
        self._compare(self.host.silent, news, now)

    def heard(self, event: Event) -> None:
        """Called when an event that `begin` or `look` added is in the log."""
        if "ends" in event.body:
            self._drained.unlink(missing_ok=True)

    def look(self, news: News, now: float) -> None:
        """Add events for GPUs that are to be closed or opened, by their last answers, to `news`.
        Query the GPUs again when that is due.

        Args:
            now: the time of the events, seconds since the epoch.
        """
        if self.host.fake:
            return
        at, found = time.monotonic(), self._found
        busy = self.asking is not None and self.asking.is_alive()
        if isinstance(found, Survey):
            self._found = None
            self.host, silent = self.host.again(found)
            self._compare(silent, news, now)
        elif found is not None or (busy and at > self._asked + DRIVER_PATIENCE_S):
            why = found or "the NVIDIA driver does not answer"
            every = {device: why for devices in self.host.devices for device in devices}
            self._found = None
            self._compare(every, news, now)
        if at >= self._due and not busy:
            self._due, self._asked = at + EVERY_S, at
            self.asking = Thread(target=self._ask, daemon=True)
            self.asking.start()

    def _ask(self) -> None:
        try:
            nvml = open_nvml(self._nvml)
            try:
                self._found = self._survey(nvml)
            finally:
                if not self._hang:
                    with suppress(nvml.NVMLError):
                        nvml.nvmlShutdown()
        except ProfilerError as error:
            self._found = str(error)

    def _survey(self, nvml: Any) -> Survey:
        """Query every GPU, each in a thread of its own, and return all answers. A GPU that does not
        answer within `PATIENCE_S` seconds counts as silent. It is not queried again until its
        thread ends."""
        found: dict[int, Survey] = {}

        def ask(index: int) -> None:
            found[index] = survey_one(nvml, index)

        self._hang = {index: thread for index, thread in self._hang.items() if thread.is_alive()}
        until, threads = time.monotonic() + PATIENCE_S, dict(self._hang)
        for index in range(count(nvml)):
            if index not in threads:
                threads[index] = Thread(target=ask, args=(index,), daemon=True)
                threads[index].start()
        for index, thread in threads.items():
            if index not in self._hang:
                thread.join(max(0.0, until - time.monotonic()))
        self._hang = {index: thread for index, thread in threads.items() if thread.is_alive()}
        every = Survey([], {})
        for index in sorted(threads):
            one = found.get(index)
            every.gpus.extend(one.gpus if one is not None else ())
            every.silent.update(one.silent if one is not None else {str(index): "the driver hangs"})
        return every

    def _compare(self, silent: dict[str, str], news: News, now: float) -> None:
        for node, devices in enumerate(self.host.devices):
            closed = {str(gpu): silent[d] for gpu, d in enumerate(devices) if d in silent}
            if closed != self._reported.get(node):
                self._reported[node] = closed
                body = {"node": node, "closed": closed}
                news[Kind.GPUS_CLOSED, node] = Event(Kind.GPUS_CLOSED, now, body=body)
