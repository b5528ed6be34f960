"""What spoke against a bundle when it was promoted all the same: a small file beside it.

Who watches the bundle in use waits less long for proof, where there was proof before.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from features.files import write_json
from features.given import SMALL, read_given
from models.bundle.store import Read

DOUBTS_NAME = "doubts.json"
MOST = 20  # sentences that are read of one file
LONG = 300  # characters that are read of one sentence


def write_doubts(folder: Path, digest: str, doubts: Sequence[str]) -> None:
    """Write to `folder`, as sentences, in which figures the bundle of that digest was judged worse;
    an empty list means none.
    """
    write_json(folder / DOUBTS_NAME, {"bundle": digest, "worse": list(doubts)})


def read_doubts(folder: Path, digest: str, read: Read = read_given) -> list[str]:
    """Return, as sentences, in which figures the bundle of that digest was judged worse: `MOST`
    sentences at most, each cut after `LONG` characters. Return [] if the file is missing, damaged
    or about another bundle.

    Args:
        read: opens the file.
    """
    try:
        known = json.loads(read(folder / DOUBTS_NAME, SMALL))
        if known["bundle"] != digest:
            return []
        return [str(text)[:LONG] for text in list(known["worse"])[:MOST]]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return []
