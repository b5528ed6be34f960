"""Records that the API answers with, and that the command line reads, too. Loads the standard
library only.
"""

from __future__ import annotations

from dataclasses import dataclass

from features.codec import Json
from scheduler.explain.effect import Effect, WhatIfAnswer
from scheduler.explain.explanation import Standing, StartForecastRow
from scheduler.service.log.store.rows import JobRow, Node, VcLoad


@dataclass(frozen=True, slots=True)
class ForecastAnswer:
    """Forecasts of a job. None: none was made yet."""

    at_submission: StartForecastRow | None
    latest: StartForecastRow | None


@dataclass(frozen=True, slots=True)
class JobChange:
    """The result of a request about a waiting job.

    Attributes:
        changes: what is different; empty: nothing.
        needed: whether anything changes. applied: False for a preview.
        effect: of a preview: what the analyst foresees.
    """

    job_id: str
    changes: Json
    needed: bool
    applied: bool
    effect: WhatIfAnswer | None = None


@dataclass(frozen=True, slots=True)
class PriorityEffect:
    """The effect of another priority on a job.

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
        return cls(
            job_id=job.job_id,
            priority_before=job.priority,
            priority_after=priority,
            applied=applied,
            before=before,
            after=after,
            overtakes=won,
            effect=effect,
        )


@dataclass(frozen=True, slots=True)
class ClusterMap:
    """The load of each virtual cluster, and every GPU. `now` is the service's clock."""

    now: float
    vcs: list[VcLoad]
    nodes: list[Node]


@dataclass(frozen=True, slots=True)
class WhoAmI:
    """The one who asks, as the service knows them."""

    name: str
    role: str
    vcs: list[str]
    os_user: str


@dataclass(frozen=True, slots=True)
class SubmittedArray:
    """An array of jobs, and the ids of its tasks: its own, "_" and the number of each."""

    array_id: str
    jobs: list[str]


@dataclass(frozen=True, slots=True)
class CancelledMany:
    """The result of a request to cancel several jobs.

    Attributes:
        asked: jobs that leave the queue, or are stopped; of a preview: would be.
        over: those that were over, or asked for before. unknown: no jobs of the asker's.
    """

    asked: list[str]
    over: list[str]
    unknown: list[str]


@dataclass(frozen=True, slots=True)
class RunsThere:
    """A job that runs on a node that is to change. `ends_at`: the median of its forecast end,
    seconds since the epoch; None without a forecast, or when that moment has passed.
    """

    job_id: str
    owner: str
    ends_at: float | None


@dataclass(frozen=True, slots=True)
class ClusterChange:
    """The result of a request about nodes or settings, as it is in the log; for a preview, as it
    would be.

    Attributes:
        node: number of the node; None for one that is to come, and for settings.
        never: waiting jobs that it makes too large for their virtual cluster.
        effect: of a preview; None where nothing is to be changed.
        running: of a preview: who is on the nodes now; None where it is about none.
    """

    kind: str
    node: int | None
    name: str
    never: list[str]
    changed: bool
    effect: Effect | None = None
    running: list[RunsThere] | None = None


@dataclass(frozen=True, slots=True)
class Link:
    """A valid link, without what opens it. Times are seconds since the epoch.

    `made_by`: an operator's name is shown to operators only.
    """

    id: str
    job_id: str
    job_name: str
    made_by: str
    made_at: float
    until: float
