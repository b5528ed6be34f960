"""The duration of a job, predicted from the amount of work in its command and the speed of its
earlier runs.

total = start-up + amount x seconds per unit. Earlier runs are those of the same user and script.
ln(seconds per unit) is modelled as a Gaussian process over the runs: a level of the script, what
its other arguments add, a slope by number of GPUs, one by batch size, a slow drift, and noise. The
sizes of the arguments' effect, of the noise and of the start-up are averaged over a grid, weighted
by how well each explains the runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from math import log
from statistics import median

from features.amounts import Ran as Ran
from features.amounts import Work
from features.job import Job
from features.progress import Progress

KEPT = 16  # runs of a script
LATEST = 3  # of them are in the text
WIDEST = 1.0  # error of ln(total) above which nothing is predicted
FAR = 0.1  # error of asking for e times as much as any run did


@dataclass(frozen=True, slots=True)
class Asked:
    """A duration estimated from a job's command and its earlier runs.

    Attributes:
        total_s: the duration, seconds.
        error: standard deviation of the logarithm of the duration (eight of ten cases lie within
            1.28 times it).
        words: the evidence for the estimate, in words.
    """

    total_s: float
    error: float
    words: str

    def text(self) -> str:
        """Return the evidence for the estimate in words: "asks for 90 epochs; its last 3 runs took
        8.0 min an epoch"."""
        return self.words


@lru_cache(maxsize=4096)
def asked(work: Work, gpus: int, runs: tuple[Ran, ...]) -> Asked | None:
    """Return the estimated duration of a job. Return None if there are no earlier runs, or if the
    estimate is too uncertain.

    Args:
        work: the amount of work that the job asks for.
        gpus: the number of its GPUs.
        runs: runs of the same script by the same user, with the same unit; oldest first.
    """
    if not runs:
        return None
    from features.posterior import posterior  # numpy, where a script ran before

    everyone = [*runs, Ran(work, gpus, 0.0)]
    gap = min(abs(log(work.amount / ran.work.amount)) for ran in runs)
    total, error = posterior(everyone)
    error = (error**2 + (FAR * gap) ** 2) ** 0.5
    if error > WIDEST:
        return None
    latest = runs[-LATEST:]
    usual = median(ran.total_s / ran.work.amount for ran in latest)
    here = total / work.amount
    some = f"its last {len(latest)} runs" if len(latest) > 1 else "its last run"
    words = f"asks for {_many(work)}; {some} took {in_words(usual)} {_each(work)}"
    if not 0.9 < here / usual < 1.1:
        words += f", this one should take {in_words(here)}"
    return Asked(total, error, words)


def _many(work: Work) -> str:
    return f"{work.amount:,g} {work.unit}" + ("" if work.amount == 1 else "s")


def _each(work: Work) -> str:
    return "an epoch" if work.unit == "epoch" else "a step"


def in_words(seconds: float) -> str:
    """Return a duration in words: "9.3 s", "12.0 min"."""
    if seconds < 100:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def shares(runs: Iterable[Ran], job: Job, progress: Progress) -> list[float]:
    """Return, for each comparable earlier run of a job's script, its duration as a share of the
    job's stated maximum at the job's present speed.

    Runs are comparable if they asked for the same amount with the same number of GPUs. Return [] if
    the command's work is unknown, or the job's progress counts another unit or amount.
    """
    work = job.work
    if work is None or work.unit != progress.unit or abs(work.amount - progress.of) > 1.0:
        return []
    alike = (ran for ran in runs if ran.gpus == job.gpus and ran.work.amount == work.amount)
    return [ran.total_s / progress.total_s for ran in alike]
