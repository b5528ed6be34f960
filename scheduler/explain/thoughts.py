"""The terms of a score grouped by thought: the few things a prediction is made of.

Several terms say the same in other words (the odds of lasting over an hour, over three, over six),
and which of them carries it differs from one fit to the next. Together they are one reason. The
groups sum to what the terms sum to.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from features.state import FAMILIES, features_of
from scheduler.core.estimates import COMMAND, EXPECTED, LIMIT, OUTLIVED, OWN, REPEATS

SHOWN = 4  # reasons shown for a prediction

_LIKE, _USER = "how long jobs like this one last", "how long this user's jobs last"
_SIZE, _PROFILE = "what it asks for", "what was measured of it"
_SENT, _BUSY = "when, and with how many others, it was sent", "how much runs and waits"
_BY_FAMILY = {
    "size": _SIZE,
    "identity": "who sent it",
    "user": _USER,
    "user_gpus": _USER,
    "template": _LIKE,
    "vc": _LIKE,
    "running": _BUSY,
    "survival": _LIKE,
    "odds": _LIKE,
    "burst": _SENT,
    "calendar": _SENT,
    "queue": _BUSY,
    "profile": _PROFILE,
}
_THOUGHTS = {spec.name: _BY_FAMILY[spec.family] for spec in features_of(FAMILIES)} | {
    OWN.name: OWN.text,
    COMMAND.name: COMMAND.text,
    OUTLIVED.name: OUTLIVED.text,
    LIMIT.name: _SIZE,
    REPEATS.name: REPEATS.text,
    EXPECTED.name: EXPECTED.text,
    "like_user": _USER,
    "like_limit": _SIZE,
}


@dataclass(frozen=True, slots=True)
class Thought:
    """Terms that say the same.

    Attributes:
        text: what they are about; of a term that belongs to no thought, its name.
        contribution: what they add to the score together.
        terms: their names.
    """

    text: str
    contribution: float
    terms: tuple[str, ...]


def thought_of(term: str) -> str:
    """What a term is about; of two features joined by " & ", what the first is about."""
    return _THOUGHTS.get(term.split(" & ")[0], term)


def thoughts(terms: Iterable[tuple[str, float]]) -> list[Thought]:
    """Terms, by name and contribution, grouped; the largest sum in front."""
    groups: dict[str, list[tuple[str, float]]] = {}
    for name, contribution in terms:
        groups.setdefault(thought_of(name), []).append((name, contribution))
    found = [
        Thought(text, math.fsum(c for _, c in mine), tuple(name for name, _ in mine))
        for text, mine in groups.items()
    ]
    return sorted(found, key=lambda thought: (-abs(thought.contribution), thought.text))
