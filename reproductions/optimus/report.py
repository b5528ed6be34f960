"""The report that a training job gives of its epochs, losses and steps. It contains nothing about
the future.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from reproductions.allocation.allocation import Batch
from reproductions.allocation.statistics import Statistic


class TrainingReport(NamedTuple):
    """What a job reports through its training framework.

    Attributes:
        epochs_done: epochs so far, with the fraction of the present one.
        epochs: epochs that its owner asked for.
        losses: loss at the end of each whole epoch, positive; smaller is better.
        steps_per_epoch: parameter updates in the first epoch, with the batch size of submission.
        split: function that returns how the job spreads that batch size over a number of GPUs.
    """

    epochs_done: float
    epochs: int
    losses: tuple[float, ...]
    steps_per_epoch: float
    split: Callable[[int], Batch]


TRAINING_REPORT: Statistic[TrainingReport] = Statistic("training reports")
