"""A backend that cannot be opened now. Standard library only: whoever forks jobs imports it."""

from __future__ import annotations


class BackendBusy(RuntimeError):
    """Raised when another service holds what this one needs for itself; one line for a person."""
