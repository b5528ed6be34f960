"""Similarity of two texts, 0 to 100. With rapidfuzz installed it is computed many times faster;
without it, as on a login node, the code here computes the same figures."""

from __future__ import annotations

from collections.abc import Sequence

try:
    from rapidfuzz import fuzz, process

    HAS_RAPIDFUZZ = True
except ModuleNotFoundError:
    HAS_RAPIDFUZZ = False


def most_alike(name: str, known: Sequence[str], at_least: float) -> str | None:
    """Return the text of `known` that is most like `name`, the first one if several are. Return
    None if no text's similarity (0 to 100) reaches `at_least`."""
    if not HAS_RAPIDFUZZ:
        return most_alike_here(name, known, at_least)
    match = process.extractOne(name, known, scorer=fuzz.ratio, score_cutoff=at_least)
    return match[0] if match else None


def most_alike_here(name: str, known: Sequence[str], at_least: float) -> str | None:
    """Return what `most_alike` returns, computed without rapidfuzz."""
    best = max(known, key=lambda one: ratio(name, one), default=None)
    return best if best is not None and ratio(name, best) >= at_least else None


def ratio(one: str, other: str) -> float:
    """Return the similarity of two texts, 0 to 100: the normalised indel similarity (2 x longest
    common subsequence / total length). Two empty texts give 100."""
    where: dict[str, int] = {}
    for place, letter in enumerate(one):
        where[letter] = where.get(letter, 0) | 1 << place
    row = all_set = (1 << len(one)) - 1
    for letter in other:  # the longest common subsequence, all of a row at once (Hyyro 2004)
        same = row & where.get(letter, 0)
        row = ((row + same) | (row - same)) & all_set
    common, total = len(one) - row.bit_count(), len(one) + len(other)
    return 200.0 * common / total if total else 100.0
