"""A backend that cannot be opened now. Standard library only: whoever forks jobs imports it."""

from __future__ import annotations


class BackendBusy(RuntimeError):
    """Another service has what this one needs to itself; one line for a person."""
