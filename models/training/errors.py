"""The one error training raises."""

from __future__ import annotations


class TrainingError(ValueError):
    """Raised for data that a model cannot be fitted on. One line, for a person."""
