"""The steps through a packing tree that a decision's record holds."""

from __future__ import annotations

import re
from dataclasses import dataclass

MISSING = "missing, taken as"  # as `models.bundle.tree` writes it
_NUMBER = r"-?\d[\d.e+-]*"
_PARTNER = "partner: "
_SCORE = re.compile(r"sharing score (\d) \(\w+\)")
_COMPARED = re.compile(rf"(\w+) ({_NUMBER}|{MISSING}) (<=|>) ({_NUMBER})")


@dataclass(frozen=True, slots=True)
class TreeStep:
    """A step on the way to the sharing score of a profile, as a decision's record has it.

    Attributes:
        of_partner: it is about the partner, and not about the job that came.
        text: the step as it was written, without whose it is.
        score: the sharing score that it led to; None before the end.
        compared: the feature, its value (None: missing), whether it is at most the cut, the cut;
            None: the step compares nothing.
    """

    of_partner: bool
    text: str
    score: int | None = None
    compared: tuple[str, float | None, bool, float] | None = None

    def __str__(self) -> str:
        return f"{_PARTNER}{self.text}" if self.of_partner else self.text

    @classmethod
    def of(cls, written: str) -> TreeStep:
        """The inverse of `str`."""
        text = written.removeprefix(_PARTNER)
        of_partner = text != written
        if found := _SCORE.fullmatch(text):
            return cls(of_partner, text, score=int(found[1]))
        if found := _COMPARED.fullmatch(text):
            name, seen, sign, cut = found.groups()
            value = None if seen == MISSING else float(seen)
            return cls(of_partner, text, compared=(name, value, sign == "<=", float(cut)))
        return cls(of_partner, text)
