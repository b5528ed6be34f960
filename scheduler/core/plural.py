"""Writes numbers with their nouns and verbs: "1 job is", "2 jobs are"."""

from __future__ import annotations

import re

_REST = re.compile(r" (?:of|that|on|before) ")  # what follows the noun that is counted


def count(n: int, noun: str) -> str:
    """Return a number with its noun: "1 job", "2 jobs", "2 running jobs of yours", "1,000 jobs that
    GPUs are kept for".
    """
    if n == 1:
        return f"{n:,} {noun}"
    rest = _REST.search(noun)
    end = len(noun) if rest is None else rest.start()
    return f"{n:,} {noun[:end]}s{noun[end:]}"


def are(n: float | None) -> str:
    """Return "is" for one, else "are"."""
    return "is" if n == 1 else "are"


def were(n: float | None) -> str:
    """Return "was" for one, else "were"."""
    return "was" if n == 1 else "were"
