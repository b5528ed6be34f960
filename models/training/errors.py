"""The error that training raises."""

from __future__ import annotations


class TrainingError(ValueError):
    """Raised for data that a model cannot be fitted on. The message is one line for the user."""
