"""Errors that the user can correct."""

from __future__ import annotations


class UserError(Exception):
    """Raised for bad input by the user. It is shown as one line, with exit status 2."""
