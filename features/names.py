"""What stays of a job name when run numbers, dates and hashes are taken out of it.

Standard library only, so the cold-start predictor can share it.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

MAX_LENGTH = 120

_SEPARATORS = re.compile(r"[\W_]+")
_DIGITS = re.compile(r"\d+")
# Hashes and unique ids: eight or more hexadecimal characters with a digit among them.
_HEX = re.compile(r"(?<![a-z0-9])(?=[a-f]*\d)[a-f0-9]{8,}(?![a-z0-9])")
# A number stays glued to the word before it ("resnet#"), and a run of numbers is one number.
_NUMBERS = re.compile(r"#+(?:-#+)*")


@lru_cache(maxsize=8192)
def normalise(name: str) -> str:
    """Return what a job name has in common with its repeats: `ResNet50_lr0.1_run-17` and
    `resnet50-lr0.3-run-18` give the same text.

    Case, digits, hashes, dates and separators go; what is left is a dash-joined word list with
    `#` for a number, at most MAX_LENGTH characters. Empty when no letter is left. Idempotent.
    """
    text = unicodedata.normalize("NFKC", name[: 4 * MAX_LENGTH]).casefold()
    text = _SEPARATORS.sub("-", text.replace("#", "0"))
    text = _HEX.sub("0", text)
    text = _DIGITS.sub("#", text)
    text = _NUMBERS.sub("#", text)[:MAX_LENGTH].strip("-")
    return text if any(c.isalpha() for c in text) else ""
