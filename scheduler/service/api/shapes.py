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
    """The forecasts of a job: the one made at submission, and the latest. None: there is none
    yet.
    """

    at_submission: StartForecastRow | None
    latest: StartForecastRow | None


@dataclass(frozen=True, slots=True)
class JobChange:
    """The result of a request about a waiting job.

    Attributes:
        changes: the fields that change, with their new values; empty: none.
        needed: whether anything changes.
        applied: whether the change was made; False for a preview.
        effect: for a preview, what the analyst forecasts.
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
        applied: whether the priority was set; False for a preview.
        before, after: the job's place in its queue.
        overtakes: number of places that the job gains; below 0: loses.
        effect: for a preview, what the analyst forecasts, with the reason before and after.
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
    """The load of each virtual cluster, and every GPU. `now`: time on the service's clock, seconds
    since the epoch.
    """

    now: float
    vcs: list[VcLoad]
    nodes: list[Node]


@dataclass(frozen=True, slots=True)
class WhoAmI:
    """The sender of a request, as the service knows them."""

    name: str
    role: str
    vcs: list[str]
    os_user: str


@dataclass(frozen=True, slots=True)
class SubmittedArray:
    """An array of jobs. `jobs`: the ids of its tasks, each made of the array's id, "_" and the
    task's number.
    """

    array_id: str
    jobs: list[str]


@dataclass(frozen=True, slots=True)
class CancelledMany:
    """The result of a request to cancel several jobs.

    Attributes:
        asked: jobs that leave the queue or are stopped; for a preview, that would be.
        over: jobs that had ended, or were cancelled before.
        unknown: ids that are no jobs of the sender's.
    """

    asked: list[str]
    over: list[str]
    unknown: list[str]


@dataclass(frozen=True, slots=True)
class RunsThere:
    """A job that runs on a node that is to change. `ends_at`: the median of its forecast end,
    seconds since the epoch; None without a forecast, or when that time has passed.
    """

    job_id: str
    owner: str
    ends_at: float | None


@dataclass(frozen=True, slots=True)
class ClusterChange:
    """The result of a request about nodes or settings, as it is in the log; for a preview, as it
    would be.

    Attributes:
        node: number of the node; None for a node to be added, for several nodes, and for settings.
        never: waiting jobs that become too large for their virtual cluster.
        changed: whether anything changes.
        effect: for a preview, the effect on waiting jobs; None where nothing changes.
        running: for a preview, the jobs on the nodes now; None for settings and new nodes.
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
    """A valid shared link to a job, without its secret part. Times are seconds since the epoch.

    `made_by`: who made it; an operator's name is shown to operators only.
    """

    id: str
    job_id: str
    job_name: str
    made_by: str
    made_at: float
    until: float
