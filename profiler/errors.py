"""What can go wrong before a profile begins, each with its own exit status.

A failing *command* is no error of the profiler: it is a result (`profiler.runner.Ending`).
"""

from __future__ import annotations

from typing import ClassVar


class ProfilerError(ValueError):
    """A request that cannot be carried out; the message is one line for a person."""

    exit_status: ClassVar[int] = 2


class BadOption(ProfilerError):
    """An option outside what is accepted."""


class NoSuchGpu(ProfilerError):
    """Raised for a GPU (or MIG device) that this machine does not have."""

    exit_status = 4


class GpuBusy(ProfilerError):
    """Somebody else computes on the GPU: what would be measured is not the command alone."""

    exit_status = 5


class DriverMissing(ProfilerError):
    """A GPU was asked for and the NVIDIA driver or its management library is not there."""

    exit_status = 6


class DriverSilent(DriverMissing):
    """The driver is there, and neither it nor any GPU answers: a GPU host, and none to use."""


class NotSupported(ProfilerError):
    """This operating system or installation lacks something the profiler needs."""

    exit_status = 7


class NotExecutable(ProfilerError):
    """The command exists but may not be run (126, as shells have it)."""

    exit_status = 126


class CommandNotFound(ProfilerError):
    """There is no such command (127, as shells have it)."""

    exit_status = 127
