"""The amount of training that a job asks for in its command, as records.

`features.commands` reads them from a command's text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Amount(NamedTuple):
    """The amount of training that a job's command states; None where it states none. If epochs and
    steps are both stated, the job ends at whichever comes first.

    Attributes:
        patience: number of units without an improvement after which training stops early; 0: it may
            stop early, after an unknown number. None: it does not stop early.
        runs: number of runs of that amount, one after the other (folds, seeds, trials); infinite:
            several, their number unknown; None: one.
    """

    epochs: float | None = None
    steps: float | None = None
    patience: float | None = None
    runs: float | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """The amount of training that a job's command asks for, and digests by which the command is
    compared with other commands of the same user. No text of the command is kept.

    Attributes:
        unit: ``epoch`` or ``step``.
        amount: number of units.
        batch: batch size; None if the command names none.
        script: digest of the program.
        words: digest of the other arguments, with numbers left out. Those that state the amount,
            the batch size or a number of GPUs are not among them.
        rest: digest of the same arguments, their numbers included, and of the working directory.
    """

    unit: str
    amount: float
    batch: float | None
    script: str
    words: str
    rest: str


class Ran(NamedTuple):
    """A run that completed: the work of its command, its number of GPUs, and its duration in
    seconds.
    """

    work: Work
    gpus: int
    total_s: float
