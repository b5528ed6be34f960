"""Errors that stop the profiler before a command runs, each with its own exit status.

A *command* that fails is not an error of the profiler but a result (`profiler.runner.Ending`).
"""

from __future__ import annotations

from typing import ClassVar


class ProfilerError(ValueError):
    """Raised for a request that the profiler cannot carry out; the message is one line for its
    user."""

    exit_status: ClassVar[int] = 2


class BadOption(ProfilerError):
    """Raised for an option with a value that is not accepted."""


class NoSuchGpu(ProfilerError):
    """Raised for a GPU (or MIG device) that this machine does not have."""

    exit_status = 4


class GpuBusy(ProfilerError):
    """Raised if another process computes on the GPU, so that the command could not be measured
    alone."""

    exit_status = 5


class DriverMissing(ProfilerError):
    """Raised if a GPU was asked for and the NVIDIA driver or its management library is missing."""

    exit_status = 6


class DriverSilent(DriverMissing):
    """Raised if the NVIDIA driver is installed but does not answer, or no GPU answers."""


class NotSupported(ProfilerError):
    """Raised if this operating system or installation lacks something that the profiler needs."""

    exit_status = 7


class NotExecutable(ProfilerError):
    """Raised if the command exists but this user may not execute it. The exit status is 126, as in
    a shell."""

    exit_status = 126


class CommandNotFound(ProfilerError):
    """Raised if the command to profile does not exist. The exit status is 127, as in a shell."""

    exit_status = 127
