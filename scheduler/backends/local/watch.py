"""Watching a running command, so that its profile is known.

On GPUs it is sampled with the profiler's samplers. On fake ones nothing is measured, ever: its
profile is what was declared for such a command, or unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from features.job import Profile
from profiler import procs
from profiler.session import Options, Target, judge, open_target, recorder_for
from scheduler.backends.local.host import Host

Answer = tuple[Profile | None, str]  # the profile, and one line on why there is none


class Watch(Protocol):
    """The watch of one command."""

    def end(self, after_s: float, *, ended: bool) -> Answer:
        """Stop watching. Return what the command showed in its first `after_s` seconds. `ended`
        says that it ended by itself.
        """
        ...


class Known:
    """A watch of an attempt whose profile is known beforehand, so that nothing is measured."""

    def __init__(self, profile: Profile | None, why: str) -> None:
        self._answer = profile, why

    def end(self, after_s: float, *, ended: bool) -> Answer:
        return self._answer


class Sampled:
    """A watch of a command on GPUs, sampled at 10 Hz on a thread."""

    def __init__(
        self, target: Target, shim: int, origin: float, baseline: Mapping[str, float]
    ) -> None:
        self._target, self._baseline = target, baseline
        self._recorder = recorder_for(
            target.sampler, lambda: procs.descendants(shim), origin=origin, fast_hz=0.0
        )

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
    """Begin to watch a command, and return the watch.

    Args:
        devices: its GPUs, as CUDA_VISIBLE_DEVICES calls them.
        shim: process its tree hangs below.
        origin: when it began, time.monotonic().
        baseline: `held_mib` before it began.
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
    """Return the memory in use on GPUs now, MiB by channel; empty where it cannot be read."""
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
