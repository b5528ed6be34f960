"""What can go wrong before a profile begins, each with its own exit status.

A failing *command* is no error of the profiler: it is a result (`profiler.runner.Ending`).
"""

from __future__ import annotations

from typing import ClassVar


class ProfilerError(ValueError):
    """Raised for a request that cannot be carried out; the message is one line for a person."""

    exit_status: ClassVar[int] = 2


class BadOption(ProfilerError):
    """Raised for an option outside what is accepted."""


class NoSuchGpu(ProfilerError):
    """Raised for a GPU (or MIG device) that this machine does not have."""

    exit_status = 4


class GpuBusy(ProfilerError):
    """Raised where another process computes on the GPU: the command alone could not be
    measured.
    """

    exit_status = 5


class DriverMissing(ProfilerError):
    """Raised where a GPU was asked for and the NVIDIA driver or its management library is
    missing.
    """

    exit_status = 6


class DriverSilent(DriverMissing):
    """Raised if the NVIDIA driver is installed but does not answer, or no GPU answers."""


class NotSupported(ProfilerError):
    """Raised where this operating system or installation lacks something the profiler needs."""

    exit_status = 7


class NotExecutable(ProfilerError):
    """Raised for a command that exists but may not be run (126, as shells have it)."""

    exit_status = 126


class CommandNotFound(ProfilerError):
    """Raised if the command to profile does not exist. The exit status is 127, as in a shell."""

    exit_status = 127
