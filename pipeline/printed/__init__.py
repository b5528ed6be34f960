"""Turns answers (of a service, or of the one file `pellucid.pyz`, which asks Slurm itself) into
lines of text."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def aligned(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """Return rows of cells as lines with aligned columns. Columns with a number in `right` are
    aligned to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides = [">" if number in right else "<" for number in range(len(widths))]
    return [
        "  ".join(f"{c:{s}{w}}" for c, s, w in zip(row, sides, widths, strict=True)).rstrip()
        for row in rows
    ]


def between(start: float | None, end: float | None) -> str:
    """Return the time between two moments, given in seconds, in words; "-" if either is unknown."""
    if start is None or end is None:
        return "-"
    from scheduler.explain.words import duration

    return duration(max(0.0, end - start))
