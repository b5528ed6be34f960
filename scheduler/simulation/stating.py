"""Jobs that say themselves, while they run, how long they will have run: nature's side of it."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import exp

from features.job import Job
from features.progress import Progress, Z

FIRST_S = 300.0  # after which a job that was not profiled says it first; then each time it doubles


@dataclass(frozen=True, slots=True)
class Stating:
    """Which jobs say how far they are, and how wrong they are.

    Attributes:
        error: standard deviation of ln(stated / true) of what is left to them.
        off: ln(stated / true) of each of them.
    """

    error: float
    off: Mapping[str, float]

    def progress(self, job_id: str, total_s: float, ran_s: float) -> Progress | None:
        """What a job says that will run `total_s` and has run `ran_s`; None: nothing."""
        off = self.off.get(job_id)
        if off is None or not 0 < ran_s < total_s:
            return None
        left_s = (total_s - ran_s) * exp(off)
        low_s, high_s = (ran_s + left_s * exp(sign * Z * self.error) for sign in (-1, 1))
        done = ran_s / (ran_s + left_s)
        return Progress(
            ran_s + left_s,
            low_s,
            high_s,
            100 * done,
            100.0,
            "percent",
            ran_s / done / 100,
            ran_s,
            "",
        )


def stating(jobs: Iterable[Job], share: float, error: float, seed: int) -> Stating:
    """A share of the users, drawn by lot, whose jobs all say how far they are; of the jobs
    themselves where users are unknown."""
    draw, off = random.Random(f"stating {seed}"), {}
    chance: dict[str, float] = {}
    for job in jobs:
        lot, wrong = draw.random(), draw.gauss(0.0, error)
        if job.user:
            lot = chance.setdefault(job.user, lot)
        if lot < share:
            off[job.job_id] = wrong
    return Stating(error, off)
