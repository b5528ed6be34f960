"""The one error a bundle raises."""

from __future__ import annotations


class BundleError(ValueError):
    """A bundle that cannot be read, or a row it cannot score. One line, for a person."""
