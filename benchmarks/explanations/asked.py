"""A question to a service with its answers, and functions that read numbers from their words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.explanations.log import Moment
from scheduler.core.core import Core

Told = Mapping[str, Any]
UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_TIME = re.compile(r"(\d[\d,]*\.?\d*) (s|min|h|d)\b(?: (\d+) (s|min|h)\b)?")


@dataclass(frozen=True)
class Asked:
    """A question about a job, its answers, and the data needed to judge them.

    Attributes:
        asked_at: when the question was asked, in seconds since 1970 by the service's clock.
        answered_at: when the answer came, by the same clock.
        told: the answer of the API to an operator.
        printed: what the command line printed with --json.
        lines: the text that the command line printed with --full.
        page: the text of the job's page.
        way: the text of the page on what is in the job's way.
        core: a copy of the deciding core (scheduler state and policy) at the time of the question.
        after: the answer of the API once the pages were read, if time went on meanwhile.
        begun: the answer of the API about another job, which has started; None: there is none.
    """

    job_id: str
    asked_at: float
    answered_at: float
    told: Told
    printed: Told
    lines: str
    page: str
    way: str
    moment: Moment
    core: Core
    after: Told | None = None
    begun: Told | None = None

    @property
    def analysis(self) -> Told:
        return dict(self.told["analysis"])


def times(text: str) -> list[float]:
    """Return all durations that a text states, in seconds."""
    found = []
    for first, unit, second, small in _TIME.findall(text):
        seconds = float(first.replace(",", "")) * UNITS[unit]
        found.append(seconds + (float(second) * UNITS[small] if second else 0.0))
    return found


def near(said_s: float, true_s: float) -> bool:
    """Return whether a duration in words (`said_s`) means `true_s` seconds: to two digits, or to
    half of the last unit.
    """
    return abs(said_s - true_s) <= max(0.6, 0.055 * abs(true_s))


def between(said_s: float, true_s: tuple[float, float]) -> bool:
    """Return whether a duration in words lies between the two durations `true_s`, to the precision
    of its words.
    """
    low_s, high_s = true_s
    return low_s <= said_s <= high_s or near(said_s, low_s) or near(said_s, high_s)


def ints(text: str, shape: str) -> list[int] | None:
    found = re.search(shape, text)
    return None if found is None else [int(n.replace(",", "")) for n in found.groups()]
