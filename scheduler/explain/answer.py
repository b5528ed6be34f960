"""The answer to the question why a job waits, as plain values. The analyst process writes it, and
`explain.render` makes sentences of it for each reader."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from features.codec import decode
from scheduler.core.findings import Hold, NodesLookedAt, Promise
from scheduler.explain.effect import WhatIfAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class SilentGpu:
    """A GPU that does not answer. `since` is the time since when, in seconds since the epoch, and
    `why` the reason."""

    gpu: int
    since: float
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShutNode:
    """A node that is drained, or of which some GPUs are closed to new jobs.

    Attributes:
        name: the node's name in the cluster.
        drained: whether it is drained; `actor` drained it for the reason `why`.
        gpus: number of its GPUs.
        silent: those of its GPUs that do not answer.
    """

    name: str
    drained: bool = False
    actor: str = ""
    why: str = ""
    gpus: int = 0
    silent: tuple[SilentGpu, ...] = ()


@dataclass(frozen=True, slots=True)
class InTheWay:
    """One obstacle, of a set that keeps a waiting job from starting: a run, a waiting job or a
    node. On a copy of the core without the whole set, the job starts.

    Attributes:
        kind: running job, waiting job, reservation, or closed node.
        job: id of the job; "" for a node, or if the viewer may not see the job.
        closed: for a closed node: the node, with why and since when it is closed.
        ran_s, past_s: for a run: seconds that it has run, and seconds beyond its predicted
            duration (None: it has not run so long).
        ends_in_s: for a run: median seconds until its end.
    """

    kind: str
    job: str = ""
    node: int | None = None
    closed: ShutNode | None = None
    ran_s: float | None = None
    past_s: float | None = None
    ends_in_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """All obstacles of one kind that keep a waiting job from starting.

    Attributes:
        named: how many of the `count` obstacles are jobs that the viewer may see by name.
        shown: the first two of these jobs; for closed nodes, the first two nodes.
        ends_in_s, past_s: as in `InTheWay`, for the run that is expected to end last.
    """

    kind: str
    count: int
    named: int = 0
    shown: tuple[InTheWay, ...] = ()
    ends_in_s: float | None = None
    past_s: float | None = None


@dataclass(frozen=True, slots=True)
class OrderTerm:
    """One term of a job's order value, in seconds. In a queue, the job with the smaller sum of
    terms goes first."""

    what: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """GPUs that are reserved for a job which has waited beyond its bound, or is the first in line,
    in the virtual cluster of the job in question.

    Attributes:
        own: whether they are reserved for the job in question itself.
        free: reserved GPUs on which no job runs.
        free_in_s: median seconds until the last run on them has ended; None: no job runs on them.
        runs: number of runs on the reserved GPUs.
    """

    own: bool
    gpus: int
    free: int
    free_in_s: float | None = None
    runs: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NotShared:
    """Why a job does not share the GPUs of its best candidate for sharing
    (`core.findings.Partner`)."""

    refused: str
    speeds: tuple[float, ...] | None = None
    gain_s: float | None = None
    hold: Hold | None = None


@dataclass(frozen=True, slots=True)
class Cause:
    """Something that has happened since the start of a job was forecast, and that delays the start.

    Attributes:
        kind: "ahead": jobs submitted later stand before it; "running": jobs submitted later run;
            "outlived": runs have lasted longer than predicted; "closed": nodes were closed.
        count: number of those jobs, runs or nodes.
        by_s: by how many seconds the job would start earlier without them, by the crude rule (work
            ahead over GPUs); above 0.
    """

    kind: str
    count: int
    by_s: float


@dataclass(frozen=True, slots=True)
class Next:
    """The duration that a history (past durations of a group of jobs) predicts for the next job,
    given that this job lasts longer than the job in question has run already.

    Attributes:
        p50_s, p90_s: median and 90th percentile of the total duration, seconds.
        odds: pairs (seconds, chance to last longer).
    """

    p50_s: float
    p90_s: float
    odds: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Known:
    """What a history (past durations of a group of jobs) contains, and what it predicts for the
    next job.

    Attributes:
        of: the group of jobs.
        ended, reached: number of its jobs that have ended, and of all its jobs, with those that
            still run; older jobs count less than 1.
    """

    of: str
    ended: float
    reached: float
    next: Next


MUCH_S, MUCH = 600.0, 0.25  # a start that has moved by so much of both comes first of all


@dataclass(frozen=True, slots=True)
class MovedStart:
    """How far a job's forecast start has moved.

    Attributes:
        since: when the earlier start was promised, seconds since the epoch.
        by_s: seconds by which the present forecast is later; below 0: earlier.
        left_s: seconds until the start that is forecast now.
    """

    since: float
    by_s: float
    left_s: float
    causes: tuple[Cause, ...] = ()

    @property
    def considerable(self) -> bool:
        """Whether the start has moved by at least ten minutes, and by at least a quarter of the
        wait that is left."""
        return abs(self.by_s) >= max(MUCH_S, MUCH * self.left_s)


@dataclass(frozen=True, slots=True)
class Analysis:
    """Why a job waits at one moment, as tried on a copy of the core.

    Attributes:
        at: that moment, seconds since the epoch.
        reason: reason code of the policy's last decision about the job.
        need, free, limit: GPUs that the job asks for, that are free, and that it may use.
        kept: free GPUs that are reserved for another job.
        lent, closed: GPUs of the virtual cluster that are lent for profiling, and that are closed.
        shut: whether the job, if no other job were there, would fit only with the closed GPUs.
        nodes: numbers of nodes of the virtual cluster, by what keeps the job from them.
        holders: the smallest set of obstacles found without which the job starts; the first 100 of
            `in_all`.
        groups: all of these obstacles, by kind.
        either: other obstacles, each of which alone would do in place of `holders`; the first 100
            of `alternatives`.
        instead: sets of other runs, each of which would do in place of the runs among `holders`;
            the first 100 of `ways`.
        still: reason code why the job would wait even without any obstacle; "": it would start, or
            there was no time to find out.
        vc, position, waiting: virtual cluster, the job's place in its queue from 1 (None: it is in
            no queue), and the number of jobs in that queue.
        priority: priority that an operator set.
        order: terms of the job's order value.
        bound: when GPUs will be reserved for the job, if the queue stays as it is; None: the policy
            promises nothing, or too many GPUs are closed.
        reserved: GPUs that are reserved in its virtual cluster now.
        moved: how its forecast start has moved since it was submitted; None: by little, or one of
            the two forecasts is not known.
        not_shared: why the job does not share GPUs; None: no candidate was considered, or it may
            share with the best one.
        history: the history of past jobs on which its predicted duration rests.
        not_examined: what was left out of the search, in words.
        unavailable: why there is no analysis; "": there is one.
        seq: number of the last event of the log that was known.
        suggestions: changes that let the job start sooner when they were tried.
    """

    at: float | None = None
    reason: str = ""
    need: int | None = None
    free: int | None = None
    limit: int | None = None
    kept: int = 0
    lent: int = 0
    closed: int = 0
    shut: bool = False
    nodes: NodesLookedAt | None = None
    holders: tuple[InTheWay, ...] = ()
    in_all: int = 0
    groups: tuple[Group, ...] = ()
    either: tuple[InTheWay, ...] = ()
    alternatives: int = 0
    instead: tuple[tuple[InTheWay, ...], ...] = ()
    ways: int = 0
    still: str = ""
    vc: str = ""
    position: int | None = None
    waiting: int | None = None
    priority: int = 0
    order: tuple[OrderTerm, ...] = ()
    bound: Promise | None = None
    reserved: Kept | None = None
    moved: MovedStart | None = None
    history: Known | None = None
    not_shared: NotShared | None = None
    not_examined: tuple[str, ...] = ()
    unavailable: str = ""
    seq: int | None = None
    suggestions: list[WhatIfAnswer] = field(default_factory=list)

    @classmethod
    def of(cls, job_id: str, why: Mapping[str, Any]) -> Analysis:
        """Return the analyst's answer about the job `job_id`, given as plain values in `why`, as an
        `Analysis`. Values that the classes have no field for are left out."""
        found = [WhatIfAnswer.of(job_id, one["changes"], one) for one in why.get("suggestions", ())]
        return replace(decode(cls, {**why, "suggestions": ()}), suggestions=found)
