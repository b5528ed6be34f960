"""The one error a bundle raises."""

from __future__ import annotations


class BundleError(ValueError):
    """Raised for a bundle that cannot be read, or a row it cannot score. One line, for a
    person.
    """
