"""Errors that are a person's to mend."""

from __future__ import annotations


class UserError(Exception):
    """Bad input from a person: shown as one line, exit status 2."""
