"""GPUs of this host that answer no more: their nodes are drained, and opened when they recover.

The driver may hang on a GPU that is lost: it is asked on a thread of its own.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

from features.files import write_json
from features.given import read_text
from profiler.errors import ProfilerError
from profiler.samplers.nvml import Survey, open_nvml, survey
from scheduler.backends.events import Event, Kind
from scheduler.backends.local.host import Host

EVERY_S = 30.0
PATIENCE_S = 60.0  # a driver that has not answered by then does not


class Health:
    """Which nodes have a GPU that does not answer.

    Args:
        path: keeps which nodes it has drained, and why, over a restart.
        nvml_module: stands in for `pynvml`, in tests.
    """

    def __init__(self, host: Host, path: Path, nvml_module: Any = None) -> None:
        self.host = host
        self._path, self._nvml = path, nvml_module
        self._drained: dict[int, str] = {}
        with suppress(OSError, ValueError, AttributeError):
            kept = json.loads(read_text(path))
            self._drained = {int(node): str(why) for node, why in kept.items()}
        self._due = self._asked = time.monotonic()
        self._found: Survey | str | None = None
        self.asking: Thread | None = None

    def begin(self, events: dict[int, Event], now: float) -> None:
        """Put in what the host showed when it was opened: as `look`."""
        if not self.host.fake:
            self._compare(self.host.silent, events, now)

    def look(self, events: dict[int, Event], now: float) -> None:
        """Put in the nodes to drain or to open again, by what was asked last; asks again when that
        is due.

        Args:
            events: by node; one that is there stays.
            now: the time that the events get.
        """
        if self.host.fake:
            return
        at, found = time.monotonic(), self._found
        busy = self.asking is not None and self.asking.is_alive()
        if isinstance(found, Survey):
            self._found = None
            self.host, silent = self.host.again(found)
            self._compare(silent, events, now)
        elif found is not None or (busy and at > self._asked + PATIENCE_S):
            why = found or "the NVIDIA driver does not answer"
            every = {device: why for devices in self.host.devices for device in devices}
            self._found = None
            self._compare(every, events, now)
        if at >= self._due and not busy:
            self._due, self._asked = at + EVERY_S, at
            self.asking = Thread(target=self._ask, daemon=True)
            self.asking.start()

    def _ask(self) -> None:
        try:
            nvml = open_nvml(self._nvml)
            try:
                self._found = survey(nvml)
            finally:
                with suppress(nvml.NVMLError):
                    nvml.nvmlShutdown()
        except ProfilerError as error:
            self._found = str(error)

    def _compare(self, silent: dict[str, str], events: dict[int, Event], now: float) -> None:
        """Put in the nodes to drain, and those to open that were drained here before.

        A drain is repeated at each look: the log drops what it has, and drains again a node that
        somebody opened while its GPU is still silent.
        """
        wrong = {
            node: why
            for node, devices in enumerate(self.host.devices)
            if (why := _words(devices, silent))
        }
        for node, why in wrong.items():
            body = {"node": node, "open": False, "reason": self._drained.get(node, why)}
            events.setdefault(node, Event(Kind.NODE_SET, now, body=body))
        for node in self._drained.keys() - wrong.keys():
            reason, pending = self._drained[node], events.get(node)
            if pending is None or pending.body["reason"] == reason:  # else somebody else's
                ended = {"node": node, "open": True, "reason": "", "ends": reason}
                events[node] = Event(Kind.NODE_SET, now, body=ended)
        if wrong.keys() != self._drained.keys():
            self._drained = {node: self._drained.get(node, why) for node, why in wrong.items()}
            with suppress(OSError):  # then only a restart forgets it
                write_json(self._path, {str(node): why for node, why in self._drained.items()})


def _words(devices: Sequence[str], silent: Mapping[str, str]) -> str:
    lost = [(gpu, silent[device]) for gpu, device in enumerate(devices) if device in silent]
    return "; ".join(f"GPU {gpu} does not answer: {why}" for gpu, why in lost)
