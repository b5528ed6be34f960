"""Tables of figures that a training prints a row at a time, by what their heading names.

>>> columns = heading("  epoch    train_loss    valid_acc     dur")
>>> columns
Columns(epoch=0, step=None, of=4, sure=True)
>>> columns.row("      7        0.6878       0.5750  0.0500")
[('epoch', 7.0)]
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

LONGEST, MOST = 400, 40  # characters of a heading, and columns
MISSING = (
    2  # cells of a row that may be empty: marks of a checkpoint, what is measured now and then
)
_COUNTS: dict[str, Literal["epoch", "step"]] = {
    **dict.fromkeys(("epoch", "epochs", "ep", "ep.", "e", "pass"), "epoch"),
    **dict.fromkeys(("#", "step", "steps", "iter", "iters", "iteration", "iterations"), "step"),
    **dict.fromkeys(("it", "round", "gen", "generation", "update", "updates", "batch"), "step"),
}
_COUNTED = re.compile(
    r"^[\s|]{0,20}+(?:epochs?|ep?\.?|pass|#|steps?|iter\w{0,8}|it|round|gen\w{0,8}|updates?)[\s|,]",
    re.IGNORECASE,
)
_MEASURED = re.compile(
    r"loss|acc|error|score|time|dur|elapsed|auc|f1|mse|fitness|reward|target|cost|objective|val"
    r"|perplexity|ppl|avg|mean|best",
    re.IGNORECASE,
)
_ENDS = re.compile(r"val|dev|test|dur|time|elapsed", re.IGNORECASE)  # measured once it is over
_FIGURE = re.compile(r"[-+]?(?:\d{1,12}\.\d|\d{1,12}e[-+]?\d|nan|inf)", re.IGNORECASE)


_PERCENT = re.compile(r"(?:done|complete[d]?|progress)? ?\(?%\)?|percent|pct")
_LEFT = re.compile(r"(?:time |est\.? ?)?(?:remaining|left|remain|eta)(?: time)?")
_SHARE = re.compile(r"(?:100(?:\.0{1,6})?|\d{1,2}(?:\.\d{1,6})?)%?")
_CLOCK = re.compile(r"\d{1,4}:\d\d(?::\d\d)?|\d{1,8}(?:\.\d{1,3})?s")
Unit = Literal["epoch", "step", "percent", "eta"]


class Columns(NamedTuple):
    """Where a table counts.

    Attributes:
        epoch, step: places of the columns that count epochs and steps; None: there is none.
        of: how many columns there are.
        sure: a row comes when its epoch is over.
        percent, left: places of the share of the run that is done, and of the time left.
    """

    epoch: int | None
    step: int | None
    of: int
    sure: bool
    percent: int | None = None
    left: int | None = None

    def row(self, line: str) -> list[tuple[Unit, float]]:
        """Return (unit, number) of each count in a row of the table, and of its percent and seconds
        left; none if the line is no row."""
        cells = _bare(line).replace(",", " ").split()
        if not self.of - MISSING <= len(cells) <= self.of + MISSING or len(cells) < 2:
            return []
        if not any(_FIGURE.match(cell) for cell in cells):
            return []
        found = list[tuple[Unit, float]]()
        for unit, place in (("epoch", self.epoch), ("step", self.step)):
            if place is not None:
                cell = cells[place]
                if not (cell.isascii() and cell.isdigit() and len(cell) <= 12):
                    return []
                found.append(("epoch" if unit == "epoch" else "step", float(cell)))
        if len(cells) == self.of:
            found += _of_run(self, cells)
        return found


def _of_run(columns: Columns, cells: Sequence[str]) -> Iterator[tuple[Unit, float]]:
    """Yield the percent of a row, and the seconds that are left by it."""
    if columns.percent is not None and _SHARE.fullmatch(cells[columns.percent]):
        yield "percent", float(cells[columns.percent].rstrip("%"))
    if columns.left is not None and _CLOCK.fullmatch(cells[columns.left]):
        seconds = 0.0
        for part in cells[columns.left].rstrip("s").split(":"):
            seconds = 60 * seconds + float(part)
        yield "eta", seconds


def heading(line: str) -> Columns | None:
    """Return the columns that a line names, the first of which counts epochs or steps and another
    of which measures; None if the line is no heading.
    """
    if len(line) > LONGEST or _COUNTED.match(line) is None:
        return None
    bare = _bare(line)
    names = [name.strip().lower() for name in bare.split("  ") if name.strip()]
    if bare.count(",") >= max(1, len(names) - 2):
        names = [name for part in bare.lower().split(",") for name in part.split()]
    if not 2 <= len(names) <= MOST or not any(_MEASURED.search(name) for name in names[1:]):
        return None
    if any(not name.strip("-=+ ") or name[:1].isdigit() for name in names):
        return None
    places: dict[str, int] = {}
    for place, name in enumerate(names[:2]):
        if unit := _COUNTS.get(name):
            places.setdefault(unit, place)
    if not places:
        return None
    sure = any(_ENDS.search(name) for name in names[1:])
    percent = next((at for at, name in enumerate(names) if _PERCENT.fullmatch(name)), None)
    left = next((at for at, name in enumerate(names) if _LEFT.fullmatch(name)), None)
    return Columns(
        places.get("epoch"), places.get("step"), len(names), sure, percent=percent, left=left
    )


def other(line: str) -> bool:
    """Return whether a line heads a table of something else: words apart from each other."""
    parts = [part.strip() for part in line[:LONGEST].split("  ") if part.strip()]
    return len(parts) > 2 and all(part[0].isalpha() for part in parts)


def _bare(line: str) -> str:
    """Return a line without what draws a table."""
    return line.replace("|", "  ").replace("\t", "  ").strip()
