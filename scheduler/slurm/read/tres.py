"""Parses lists of trackable resources (TRES) and of GPUs, as Slurm writes them."""

from __future__ import annotations

import re
from math import inf

_IS_GPU = re.compile(r"(?:gres[:/])?gpu(?:[:=](?P<what>.*))?")


class ParseError(ValueError):
    """Raised where Slurm printed something unexpected. The message is one line."""


def gpu_types(tres: str) -> dict[str, int] | None:
    """Return the number of GPUs of each type in a list of resources, "" for no type. Return None
    where it names no GPU.

    A type may begin with a digit (``gpu:2080ti:8``); a number alone is a count, as in Slurm. A
    typed entry repeats part of the plain one (``gres/gpu=2,gres/gpu:a100=2``), so only GPUs that
    the plain entry counts beyond the typed ones are of no type.
    """
    found: dict[str, int] = {}
    for part in tres.split(","):
        match = _IS_GPU.fullmatch(part.strip())
        if match is None:
            continue
        kind, count = _kind_and_count(match["what"] or "")
        found[kind] = found.get(kind, 0) + count
    if len(found) > 1 and "" in found:
        plain = found.pop("")
        typed = sum(found.values())
        if plain > typed:
            found[""] = plain - typed
    return found or None


def _kind_and_count(what: str) -> tuple[str, int]:
    """Return the type and the count in ``a100=2``, ``2080ti:8``, ``a100`` (one) or ``8`` (type
    "")."""
    if what.isdecimal() or not what:
        return "", int(what or 1)
    kind, _, count = what.replace("=", ":").rpartition(":")
    return (kind, int(count)) if kind and count.isdecimal() else (what, 1)


_COUNT = re.compile(r"([0-9]{1,15})([KMGTP]?)", re.IGNORECASE)
_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4, "P": 1024**5}


def other_gres(tres: str) -> dict[str, int]:
    """Return the generic resources (GRES) other than GPUs in a list like
    ``gres:nvme:40,lustre:no_consume:4G``, with their numbers, by name and type. A resource that is
    not used up (``no_consume``) counts as more than any job wants."""
    found: dict[str, int] = {}
    for part in re.sub(r"\([^()]*\)", "", tres).split(","):
        name, *words = re.split("[:=]", part.strip().removeprefix("gres:").removeprefix("gres/"))
        if not name or name in ("gpu", "N/A", "null", "cpu", "mem", "node", "billing"):
            continue
        kept = "no_consume" not in words
        words = [word for word in words if word != "no_consume"]
        count = _COUNT.fullmatch(words[-1]) if words else None
        if count is not None:
            words.pop()
        many = int(count[1]) * _UNITS[count[2].upper()] if count is not None else 1
        name = ":".join([name, *words])
        found[name] = found.get(name, 0) + (many if kept else ENDLESS)
    return found


ENDLESS = 1 << 60
_UNIT_MIB = {"": 1.0, "K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}


def mib(text: str) -> float:
    """Return a memory size such as ``40G`` or ``100M`` in MiB."""
    match = re.fullmatch(r"([\d.]+)([KMGTP]?)[nc]?", text)
    if match is None:
        raise ParseError(f"an amount of memory {text[:20]!r}")
    return float(match[1]) * _UNIT_MIB[match[2]]


def counts(text: str) -> dict[str, float]:
    """Return the numbers in ``cpu=4,mem=400M,gres/gpu:a100=2`` by name; memory in MiB."""
    found: dict[str, float] = {}
    for part in text.split(","):
        name, equals, value = part.strip().partition("=")
        if equals and value not in ("N", ""):
            found[name] = mib(value) if name == "mem" else float(value)
            if not 0 <= found[name] < inf:
                raise ParseError(f"an amount {part[:40]!r}")
    return found
