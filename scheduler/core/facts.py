"""Facts of one job behind the terms that an estimator adds to those of a model.

A score names the fact of each added term. What is decided, and how a term is explained, goes by
that name; the words beside it are for people. Scores that were recorded before they named their
facts have the words alone, in a form that no longer changes: `facts_in_words` reads it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum


class Fact(StrEnum):
    """What an added term rests on."""

    LIMIT = "limit"  # its time limit cuts the prediction off
    OUTLIVED = "outlived"  # it ran before, and did not end
    LAST_RUNS = "last_runs"  # what its last runs claim
    EXPECTED = "expected"  # what its owner expects
    COMMAND = "command"  # how much work its command asks for, at the speed of earlier runs
    PROGRESS = "progress"  # how far it is by its own output


_FORMER_WORDS = {
    Fact.LIMIT: r"stopped after .*",
    Fact.OUTLIVED: r"ran for .*",
    Fact.LAST_RUNS: r"last runs?\b.*",
    Fact.EXPECTED: r"expects .*",
    Fact.COMMAND: r"asks for .*",
    Fact.PROGRESS: (
        r"(-?\d+ % after -?\d+ s|-?\d+ s left by its own estimate|\S+ \w+ of \S+ s)(; .*)?"
    ),
}


def facts_in_words(inputs: Sequence[str]) -> tuple[Fact, ...]:
    """Return the facts behind the last terms of a score that was recorded before scores named
    them. `inputs` are its inputs in words: feature values first, then one text for each fact.
    """
    found: list[Fact] = []
    for text in reversed(inputs):
        fact = next((f for f, form in _FORMER_WORDS.items() if re.fullmatch(form, text)), None)
        if fact is None:
            break
        found.append(fact)
    return tuple(reversed(found))
