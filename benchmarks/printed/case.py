"""A log of the corpus: the trainer that prints it, its command, and the bounds it is drawn from."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from benchmarks.printed.log import Run, Shape, Sizes

FEW, SOME, MANY = (1, 3), (4, 15), (30, 300)  # epochs
BARS, LINES = (300.0, 900.0), (400.0, 30_000.0)  # seconds


@dataclass(frozen=True)
class Case:
    """A row of the corpus.

    Attributes:
        command: may hold `{epochs}`, `{last}` (number of the last epoch, from 0), `{steps}` (of an
            epoch) and `{total}` (steps).
        shape: function that lets a run print.
        epochs, seconds: least and greatest number of epochs, and length of the run.
        stops: least and greatest share of its epochs after which it stops early; None: it goes to
            the end.
        resumes: it goes on from a checkpoint.
        crashes: it fails once, and goes on from a checkpoint.
    """

    name: str
    command: str
    shape: Shape
    epochs: tuple[int, int] = SOME
    seconds: tuple[float, float] = LINES
    stops: tuple[float, float] | None = None
    resumes: bool = False
    crashes: bool = False

    def run(self, source: random.Random) -> tuple[Run, str]:
        """Draw a run and let it print everything. Return it, and its command."""
        sizes = Sizes.drawn(source, self.epochs, self.seconds)
        if self.stops is not None:
            sizes = replace(sizes, stops=max(2, round(source.uniform(*self.stops) * sizes.epochs)))
        if self.resumes and sizes.epochs > 1:
            first = round(source.uniform(0.2, 0.6) * sizes.epochs)
            sizes = replace(sizes, first=min(max(1, first), sizes.epochs - 1))
        if self.crashes:
            at = round(source.uniform(0.3, 0.7) * sizes.epochs)
            sizes = replace(sizes, crashes=max(2, at))
        run = Run(sizes, source)
        self.shape(run)
        numbers = {"epochs": sizes.epochs, "last": sizes.epochs - 1, "total": run.total}
        return run, self.command.format(**numbers, steps=sizes.steps)
