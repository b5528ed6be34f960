"""Answers as lines, whoever gave them: a service, or the one file that asks Slurm by itself."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def aligned(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """Return rows of cells as lines, column under column. Columns numbered in `right` are aligned
    to the right.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides = [">" if number in right else "<" for number in range(len(widths))]
    return [
        "  ".join(f"{c:{s}{w}}" for c, s, w in zip(row, sides, widths, strict=True)).rstrip()
        for row in rows
    ]


def between(start: float | None, end: float | None) -> str:
    """Return the time between two moments, for a person; "-" when either is not known."""
    if start is None or end is None:
        return "-"
    from scheduler.explain.words import duration

    return duration(max(0.0, end - start))
