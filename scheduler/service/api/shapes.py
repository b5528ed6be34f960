"""Answers that are put together from more than one place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from scheduler.explain.effect import WhatIfAnswer
from scheduler.explain.explanation import Standing, StartForecastRow
from scheduler.service.log.store.reads import JobRow


@dataclass(frozen=True, slots=True)
class ForecastAnswer:
    """Forecasts of a job. None: none was made yet."""

    at_submission: StartForecastRow | None
    latest: StartForecastRow | None


@dataclass(frozen=True, slots=True)
class JobChange:
    """What was asked of a waiting job.

    Attributes:
        changes: what is different; empty: nothing.
        needed: it was not so already. applied: False for a preview.
        effect: of a preview: what the analyst foresees.
    """

    job_id: str
    changes: dict[str, Any]
    needed: bool
    applied: bool
    effect: WhatIfAnswer | None = None


@dataclass(frozen=True, slots=True)
class PriorityEffect:
    """What another priority does to a job.

    Attributes:
        overtakes: places won; below 0: lost.
        effect: what the analyst foresees, with the reason before and after; only of a preview.
    """

    job_id: str
    priority_before: int
    priority_after: int
    applied: bool
    before: Standing | None
    after: Standing | None
    overtakes: int
    effect: WhatIfAnswer | None = None

    @classmethod
    def of(
        cls,
        job: JobRow,
        priority: int,
        before: Standing | None,
        after: Standing | None,
        effect: WhatIfAnswer | None,
        *,
        applied: bool,
    ) -> PriorityEffect:
        won = before.position - after.position if before and after else 0
        return cls(job.job_id, job.priority, priority, applied, before, after, won, effect)
