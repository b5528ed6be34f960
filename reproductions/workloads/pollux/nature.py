"""The progress of measured applications: epochs of changing statistical efficiency, restarts,
rounds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Any, TypeVar

from features.job import Job
from reproductions.allocation.allocation import Allocation, Batch
from reproductions.allocation.placement import consolidated
from reproductions.allocation.policy import Evidence
from reproductions.allocation.statistics import (
    BATCH_LIMITS,
    GRADIENT_NOISE,
    MOST_GPUS,
    REMAINING_S,
    REMAINING_STEPS,
    STEP_PROFILE,
    STEP_TIMES,
    Configuration,
    GradientNoise,
    Statistic,
    StepTimes,
)
from reproductions.optimus.report import TRAINING_REPORT, TrainingReport
from reproductions.workloads.pollux.applications import Application
from scheduler.core.decisions import Reason

T = TypeVar("T")
GPUS_PER_NODE = 4  # of the cluster that was measured


@dataclass(slots=True)
class Training:
    """How far one job has progressed.

    Attributes:
        app: the measured application that the job trains.
        batch: the batch size with which the job was submitted.
        epoch: number of epochs done.
        progress: iterations so far, converted to the efficiency of the initial batch size.
        pause_s: seconds of a restart that are still left.
        since, until: begin and end of the present stretch of constant rate.
        whole: whether the epoch ends at the end of that stretch.
    """

    app: Application
    batch: int
    gpus: int
    epoch: int = 0
    progress: float = 0.0
    pause_s: float = 0.0
    since: float = 0.0
    until: float = inf
    whole: bool = False
    allocation: Allocation | None = None
    slowed: bool = False
    profile: dict[Configuration, StepTimes] = field(default_factory=dict)
    noise: GradientNoise | None = None

    @property
    def done(self) -> bool:
        return self.epoch >= self.app.epochs

    def split(self, allocation: Allocation) -> Batch:
        return allocation.batch or self.app.split(self.batch, allocation.count)


def rate(app: Application, epoch: int, gpus: tuple[int, ...], batch: Batch) -> float:
    """Return the progress per second, as `Training.progress` counts it."""
    step_s, sync_s = app.step_times(gpus, batch.per_gpu)
    total = batch.total(sum(gpus))
    scale = total / app.limits.initial
    square, variance = app.noise(epoch, total)
    gain = (variance + square) / (variance / scale + square)
    return gain / (step_s + batch.accumulation * (step_s - sync_s))


class TrainingGroundTruth:
    """A truth in which applications train for their epochs.

    Args:
        applications: by name.
        jobs: application and batch size by job id.
        restart_s: seconds without progress after a job got other GPUs.
        round_s: a job looks at its batch size after every epoch and at multiples of this;
            0 = after every epoch only.
        whole_seconds: an epoch ends after a whole number of seconds, as in the published simulator.
        interference: share of its speed that a job of several nodes loses while it shares one of
            them with another such job.
    """

    offers: frozenset[Statistic[object]] = frozenset(
        {BATCH_LIMITS, STEP_PROFILE, GRADIENT_NOISE, MOST_GPUS, REMAINING_S, REMAINING_STEPS,
         STEP_TIMES, TRAINING_REPORT}
    )  # fmt: skip

    def __init__(
        self,
        applications: Mapping[str, Application],
        jobs: Mapping[str, tuple[str, int]],
        *,
        restart_s: float = 30.0,
        round_s: float = 60.0,
        whole_seconds: bool = True,
        interference: float = 0.0,
    ):
        self._applications = applications
        self._jobs = jobs
        self._restart_s = restart_s
        self._round_s = round_s
        self._whole_seconds = whole_seconds
        self._interference = interference
        self.trainings: dict[str, Training] = {}
        self._reports: dict[Statistic[Any], Any] = {
            BATCH_LIMITS: lambda t: t.app.limits,
            STEP_PROFILE: lambda t: t.profile,
            GRADIENT_NOISE: lambda t: t.noise,
            MOST_GPUS: _most_gpus,
            REMAINING_S: _remaining_s,
            REMAINING_STEPS: _remaining_steps,
            STEP_TIMES: lambda t: Measured(t.app, t.batch),
            TRAINING_REPORT: _training_report,
        }

    def refusal(self, job: Job) -> tuple[Reason, Evidence] | None:
        name, batch = self._jobs[job.job_id]
        app = self._applications.get(name)
        if app is None:
            return Reason.NO_STATISTICS, (("application", name),)
        if not app.limits.initial <= batch <= app.limits.largest:
            limits = f"{app.limits.initial} to {app.limits.largest}"
            return Reason.INVALID_REQUEST, (("batch size", batch), ("measured", limits))
        self.trainings[job.job_id] = Training(app, batch, job.gpus)
        return None

    def report(self, statistic: Statistic[T], job_id: str, now: float) -> T:
        found: T = self._reports[statistic](self.trainings[job_id])
        return found

    def duration_s(self, job: Job) -> float:
        name, batch = self._jobs[job.job_id]
        app = self._applications.get(name)
        return 0.0 if app is None else _remaining_s(Training(app, batch, job.gpus))

    # --- the course of time -----------------------------------------------------------------

    def assigned(
        self, assignment: Mapping[str, Allocation], changed: Collection[str], now: float
    ) -> Collection[str]:
        touched = dict.fromkeys(job_id for job_id in changed if not self.trainings[job_id].done)
        slowed = self._slowed(assignment)
        touched |= {i: None for i in assignment if self.trainings[i].slowed != (i in slowed)}
        for job_id in touched:
            training = self.trainings[job_id]
            self._settle(training, now)
            given = assignment.get(job_id)
            training.slowed = job_id in slowed
            if given is not None and not given.same_gpus(training.allocation):
                training.pause_s = self._restart_s
            training.allocation = given
            self._plan(training, now)
        return touched

    def next_change(self, job_id: str) -> float:
        return self.trainings[job_id].until

    def passed(self, job_id: str, now: float) -> bool:
        training = self.trainings[job_id]
        self._settle(training, now, due=True)
        if not training.done:
            self._plan(training, now)
        return training.done

    def _plan(self, training: Training, now: float) -> None:
        """Compute the next stretch of constant rate: until the end of the epoch or of the round."""
        training.since, training.until, training.whole = now, inf, False
        allocation = training.allocation
        if allocation is None:
            return
        if self._round_s:
            training.until = (now // self._round_s + 1) * self._round_s
        working_s = training.until - now - training.pause_s
        if working_s <= 0:
            return
        speed = self._speed(training)
        target = training.app.progress[training.epoch]
        if training.progress + speed * working_s < target:
            return
        left_s = (target - training.progress) / speed
        if self._whole_seconds:
            left_s = round(float(left_s))
        training.until, training.whole = now + training.pause_s + left_s, True

    def _settle(self, training: Training, now: float, *, due: bool = False) -> None:
        """Bring progress up to `now`; the epoch ends only when its end is due."""
        if training.allocation is None:
            return
        passed_s = now - training.since
        training.since = now
        paused_s = min(passed_s, training.pause_s)
        training.pause_s -= paused_s
        if due and training.whole:
            training.progress = float(training.app.progress[training.epoch])
            training.epoch += 1
        elif passed_s > paused_s:
            training.progress += self._speed(training) * (passed_s - paused_s)

    def _speed(self, training: Training) -> float:
        """Return the job's progress per second. Record the step times and gradient noise of its
        present allocation, which its reports show from now on.
        """
        allocation = training.allocation
        assert allocation is not None
        app, gpus, batch = training.app, allocation.gpus, training.split(allocation)
        times = app.step_times(gpus, batch.per_gpu)
        training.profile[Configuration(len(gpus), sum(gpus), batch.per_gpu)] = times
        training.noise = app.noise(training.epoch, batch.total(sum(gpus)))
        lost = self._interference if training.slowed else 0.0
        return rate(app, training.epoch, gpus, batch) * (1.0 - lost)

    def _slowed(self, assignment: Mapping[str, Allocation]) -> set[str]:
        """Return the jobs on several nodes that share a node with another such job; none
        without interference.
        """
        if not self._interference:
            return set()
        spread = {i: a for i, a in assignment.items() if len(a.nodes) > 1}
        on = Counter(node for a in spread.values() for node in a.nodes)
        return {i for i, a in spread.items() if any(on[node] > 1 for node in a.nodes)}


@dataclass(frozen=True, slots=True)
class Measured:
    """A job's true step times, as measured for its application."""

    app: Application
    initial: int

    def step_times(self, gpus: tuple[int, ...], per_gpu: int) -> StepTimes:
        return self.app.step_times(gpus, per_gpu)

    def batch(self, gpus: int) -> Batch:
        return self.app.split(self.initial, gpus)


def _most_gpus(training: Training) -> int:
    """Return the number of GPUs beyond which each has too little of the batch size asked for."""
    smallest, gpus = training.app.limits.per_gpu[0], training.app.limits.gpus
    return min(training.batch // smallest, gpus or training.batch)


def _epochs_left(training: Training) -> list[tuple[int, float]]:
    """Return (epoch, progress still to make in it) for each epoch not done."""
    left, reached = [], training.progress
    for epoch in range(training.epoch, training.app.epochs):
        target = float(training.app.progress[epoch])
        left.append((epoch, target - reached))
        reached = target
    return left


def _remaining_s(training: Training) -> float:
    """Return the seconds to completion on the GPUs and with the batch size asked for."""
    gpus = consolidated(training.gpus, GPUS_PER_NODE)
    batch = training.app.split(training.batch, training.gpus)
    speed = partial(rate, training.app, gpus=gpus, batch=batch)
    return float(sum(todo / speed(epoch) for epoch, todo in _epochs_left(training)))


def _remaining_steps(training: Training) -> float:
    """Return the updates recorded after the present epoch, at the batch size asked for; at
    least 1.
    """
    app, batch = training.app, training.batch
    return max(app.iterations(app.epochs - 1, batch) - app.iterations(training.epoch, batch), 1.0)


def _training_report(training: Training) -> TrainingReport:
    """Return what the job reports about itself."""
    app, epoch = training.app, training.epoch
    begun = float(app.progress[epoch - 1]) if epoch else 0.0
    part = (training.progress - begun) / (float(app.progress[epoch]) - begun)
    return TrainingReport(
        epochs_done=epoch + part,
        epochs=app.epochs,
        losses=app.losses(epoch, training.batch),
        steps_per_epoch=app.iterations(0, training.batch),
        split=partial(app.split, training.batch),
    )
