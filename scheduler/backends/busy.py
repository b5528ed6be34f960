"""The error for a backend that cannot be opened now. Standard library only, because the process
that forks jobs imports it.
"""

from __future__ import annotations


class BackendBusy(RuntimeError):
    """Raised when another service holds what this one needs for itself. The message is one line for
    a person.
    """
