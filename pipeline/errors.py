"""Errors that the user can mend."""

from __future__ import annotations


class UserError(Exception):
    """Bad input from a person: shown as one line, exit status 2."""
