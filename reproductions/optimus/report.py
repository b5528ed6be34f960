"""What a training job reports of itself: epochs, losses, steps. It says nothing of the future."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from reproductions.allocation.allocation import Batch
from reproductions.allocation.statistics import Statistic


class TrainingReport(NamedTuple):
    """What a job reports through its framework.

    Attributes:
        epochs_done: whole and part.
        epochs: epochs that its owner asked for.
        losses: at the end of each whole epoch, positive, the smaller the better.
        steps_per_epoch: updates of the first epoch, with the batch size it was submitted with.
        split: how it spreads that batch size over so many GPUs.
    """

    epochs_done: float
    epochs: int
    losses: tuple[float, ...]
    steps_per_epoch: float
    split: Callable[[int], Batch]


TRAINING_REPORT: Statistic[TrainingReport] = Statistic("training reports")
