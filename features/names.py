"""Job names without their run numbers, dates and hashes.

Standard library only, so that the cold-start predictor can use it, too.
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
    """Return a job name without what differs between repeated runs: `ResNet50_lr0.1_run-17` and
    `resnet50-lr0.3-run-18` give the same text.

    Letters become lower case, dates and hashes become numbers, and every number becomes `#`. The
    words are joined by dashes and cut to MAX_LENGTH characters. Return "" if no letter is left.
    Normalising twice changes nothing more.
    """
    text = unicodedata.normalize("NFKC", name[: 4 * MAX_LENGTH]).casefold()
    text = _SEPARATORS.sub("-", text.replace("#", "0"))
    text = _HEX.sub("0", text)
    text = _DIGITS.sub("#", text)
    text = _NUMBERS.sub("#", text)[:MAX_LENGTH].strip("-")
    return text if any(c.isalpha() for c in text) else ""
