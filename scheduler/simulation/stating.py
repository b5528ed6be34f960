"""Simulated jobs that report their progress while they run, and whose commands state how much they
are to do.

Their reports are about the whole of their work. A job that fails or is cancelled was stopped before
its work was done. As the trace does not say where, the share that it had done is random.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import exp, log

from features.amounts import Work as Command
from features.job import Job
from features.progress import Progress, Z
from features.states import State
from scheduler.simulation.work import Work

LEAST_DONE = 0.05  # share of what it was to do, of a job that was stopped
# scripts differ in seconds an epoch on one GPU (median, deviation of the logarithm), and in how it
# falls with GPUs (exponent, deviation): from hardly at all to linearly
EPOCH_S, EPOCH_DEVIATION = 120.0, 1.0
BY_GPUS, BY_GPUS_DEVIATION = -0.7, 0.3


@dataclass(frozen=True, slots=True)
class Stating:
    """Which jobs report their progress, and how wrong the reports are.

    Attributes:
        error: standard deviation of ln(stated / true) of the time left.
        off: by job id, ln(stated / true) of the time left, for each job that reports.
        whole_s: by job id, the seconds that a reporting job which fails or is cancelled would run
            to the end of its work.
    """

    error: float
    off: Mapping[str, float]
    whole_s: Mapping[str, float] = field(default_factory=dict)

    def progress(self, job_id: str, total_s: float, ran_s: float) -> Progress | None:
        """Return what a job reports after `ran_s` of its `total_s` seconds, or None where it
        reports nothing, as at its start and its end."""
        off = self.off.get(job_id)
        if off is None or not 0 < ran_s < total_s:
            return None
        left_s = (self.whole_s.get(job_id, total_s) - ran_s) * exp(off)
        low_s, high_s = (ran_s + left_s * exp(sign * Z * self.error) for sign in (-1, 1))
        done = ran_s / (ran_s + left_s)
        return Progress(
            total_s=ran_s + left_s,
            low_s=low_s,
            high_s=high_s,
            done=100 * done,
            of=100.0,
            unit="percent",
            unit_s=ran_s / done / 100,
            at_s=ran_s,
            source="",
        )


def stating(
    jobs: Iterable[Job], work: Mapping[str, Work], share: float, error: float, seed: int
) -> Stating:
    """Return which jobs report their progress. Users are chosen at random with the probability
    `share`, and all of a chosen user's jobs report; jobs without a user are chosen one by one.

    Args:
        error: standard deviation of ln(stated / true) of the time left.
        seed: seed of the random choice.
    """
    draw, off = random.Random(f"stating {seed}"), {}
    chance: dict[str, float] = {}
    whole_s: dict[str, float] = {}
    for job in jobs:
        lot, wrong, done = draw.random(), draw.gauss(0.0, error), draw.uniform(LEAST_DONE, 1.0)
        if job.user:
            lot = chance.setdefault(job.user, lot)
        if lot >= share:
            continue
        off[job.job_id] = wrong
        if work[job.job_id].state is not State.COMPLETED:
            whole_s[job.job_id] = work[job.job_id].duration_s / done
    return Stating(error, off, whole_s)


def with_commands(
    jobs: Iterable[Job], work: Mapping[str, Work], states: Stating, seed: int
) -> Iterator[Job]:
    """Yield the jobs; those that report progress get a command that states their number of epochs.

    A script is all that a user trains with one model (all of a user's jobs, where the trace names
    no model). Each script has its own seconds per epoch, and its runs differ by the error of the
    reports.
    """
    for job in jobs:
        if job.job_id not in states.off:
            yield job
            continue
        trains = work[job.job_id].configuration
        script = f"{job.user} {trains.model if trains else ''}"
        of_script, of_run = (random.Random(f"{seed} {key}") for key in (script, job.job_id))
        epoch = log(EPOCH_S) + of_script.gauss(0.0, EPOCH_DEVIATION)
        epoch += of_script.gauss(BY_GPUS, BY_GPUS_DEVIATION) * log(job.gpus)
        epoch += of_run.gauss(0.0, states.error)
        whole_s = states.whole_s.get(job.job_id, work[job.job_id].duration_s)
        asks = Command(
            unit="epoch", amount=whole_s / exp(epoch), batch=None, script=script, words="", rest=""
        )
        yield replace(job, work=asks)
