"""Measures a running command, so that its profile is known.

On GPUs the command is sampled by the profiler's samplers. On fake GPUs nothing is ever measured:
the profile is what was declared for such a command, or unknown.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from features.job import Profile
from profiler import procs
from profiler.session import Options, Target, judge, open_target, recorder_for
from scheduler.backends.local.host import Host

TREE_SHARE = 0.01  # of a core, for the list of a job's processes
Answer = tuple[Profile | None, str]  # the profile, and one line on why there is none


class Watch(Protocol):
    """A measurement of one running command."""

    def end(self, after_s: float, *, ended: bool) -> Answer:
        """Stop measuring. Return (profile, note): the profile of the command's first `after_s`
        seconds, or None and why there is none. `ended`: whether the command ended by itself.
        """
        ...


class Known:
    """A measurement with a profile (or its lack) that is known beforehand, so that nothing is
    measured.
    """

    def __init__(self, profile: Profile | None, why: str) -> None:
        self._answer = profile, why

    def end(self, after_s: float, *, ended: bool) -> Answer:
        return self._answer


class Tree:
    """The processes below one, as a function without arguments.

    A job can have thousands, and listing them takes time of a thread of the decider. So they are
    listed again only as often as `TREE_SHARE` of a core allows: 8,000 of them twice a minute.
    """

    def __init__(self, root: int) -> None:
        self._root, self._due = root, 0.0
        self._found: Sequence[int] = ()

    def __call__(self) -> Sequence[int]:
        if time.monotonic() >= self._due:
            begun = time.thread_time()
            self._found = procs.descendants(self._root)
            self._due = time.monotonic() + (time.thread_time() - begun) / TREE_SHARE
        return self._found


class Sampled:
    """A measurement of a command on GPUs, sampled ten times a second on a thread."""

    def __init__(
        self, target: Target, shim: int, origin: float, baseline: Mapping[str, float]
    ) -> None:
        self._target, self._baseline = target, baseline
        self._recorder = recorder_for(target.sampler, Tree(shim), origin=origin, fast_hz=0.0)

    def end(self, after_s: float, *, ended: bool) -> Answer:
        recorder = self._recorder
        recorder.stop()
        try:
            self._target.sampler.close()
            seen = judge(recorder, self._target, self._baseline, duration_s=after_s, ended=ended)
        except Exception as error:  # an end must be reported, whatever the driver does
            return None, f"what was seen of it cannot be read: {error!r}"
        if seen.profile is None:
            return None, recorder.error or f"no GPU memory was seen ({seen.window.reason})"
        return seen.profile, ""


def watch(
    host: Host,
    command: Sequence[str],
    devices: Sequence[str],
    shim: int,
    origin: float,
    baseline: Mapping[str, float],
    *,
    nvml_module: Any = None,
) -> Watch:
    """Begin to measure a command, and return the measurement.

    Args:
        devices: names of its GPUs in CUDA_VISIBLE_DEVICES.
        shim: id of the process from which all processes of the command descend.
        origin: when the command began, time.monotonic().
        baseline: the result of `held_mib` before the command began.
        nvml_module: stands in for `pynvml`, in tests.
    """
    if host.fake:
        profile = host.declared_profile(command)
        why = "" if profile is not None else "fake GPUs, and no profile is declared for it"
        return Known(profile, why)
    try:
        return Sampled(_open(devices, nvml_module), shim, origin, baseline)
    except Exception as error:  # a job runs whether it can be watched or not
        return Known(None, f"its GPUs cannot be watched: {error}")


def held_mib(host: Host, devices: Sequence[str], nvml_module: Any = None) -> dict[str, float]:
    """Return the memory in use on each of these GPUs now, in MiB, by the GPU's name in the
    profiler's samples; empty where it cannot be read.
    """
    if host.fake:
        return {}
    try:
        target = _open(devices, nvml_module)
        held = target.held_mib()
        target.sampler.close()
    except Exception:  # the same, and `watch` will say why
        return {}
    return held


def _open(devices: Sequence[str], nvml_module: Any) -> Target:
    return open_target(Options(device="gpu", gpus=tuple(devices), shared=True), nvml_module)
