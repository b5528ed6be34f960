"""The answer to why a job waits, as plain values, written by the analyst. Sentences are made of
them where they are read (`explain.render`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from features.codec import decode
from scheduler.core.findings import Hold, NodesLookedAt, Promise
from scheduler.explain.effect import WhatIfAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class SilentGpu:
    """A GPU that does not answer. `since`: seconds since the epoch."""

    gpu: int
    since: float
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShutNode:
    """A node that is drained, or has GPUs on which nothing new starts.

    Attributes:
        name: by which its site knows it.
        drained: it takes nothing new; `actor` drained it, for `why`.
        gpus: on the node, of which `silent` do not answer.
    """

    name: str
    drained: bool = False
    actor: str = ""
    why: str = ""
    gpus: int = 0
    silent: tuple[SilentGpu, ...] = ()


@dataclass(frozen=True, slots=True)
class InTheWay:
    """One obstacle to a job: a run, a job or a node. The answer was tried: without all its
    obstacles, the job starts.

    Attributes:
        kind: running job, waiting job, reservation, or closed node.
        job: id of the job; "" if the viewer may not see it, or for a node.
        closed: the reason and since when, for a closed node.
        ran_s, past_s: for a run: seconds that it has run, and seconds beyond its predicted
            duration.
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
    """All obstacles of one kind.

    Attributes:
        named: how many of the `count` the viewer may see by name.
        shown: the first of these, or of the nodes.
        ends_in_s, past_s: for the run that ends last: see `InTheWay`.
    """

    kind: str
    count: int
    named: int = 0
    shown: tuple[InTheWay, ...] = ()
    ends_in_s: float | None = None
    past_s: float | None = None


@dataclass(frozen=True, slots=True)
class OrderTerm:
    """A term of a job's place in line, seconds. The smaller sum goes first."""

    what: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """GPUs kept for a starving job of its virtual cluster.

    Attributes:
        own: they are kept for this job.
        free: kept GPUs that nobody is on.
        free_in_s: seconds until the last run on them has ended, with even odds; None: none is.
        runs: runs on the kept GPUs.
    """

    own: bool
    gpus: int
    free: int
    free_in_s: float | None = None
    runs: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NotShared:
    """Why a job does not share the GPUs of the run that came closest (`core.findings.Partner`)."""

    refused: str
    speeds: tuple[float, ...] | None = None
    gain_s: float | None = None
    hold: Hold | None = None


@dataclass(frozen=True, slots=True)
class Cause:
    """Something that has happened since a start was forecast, and moves it.

    Attributes:
        kind: "ahead": later jobs stand before it; "running": later jobs run; "outlived": runs have
            outlived their predictions; "closed": nodes were closed.
        count: of those jobs, runs or nodes.
        by_s: how much earlier the job starts without, by the crude rule; above 0.
    """

    kind: str
    count: int
    by_s: float


@dataclass(frozen=True, slots=True)
class Next:
    """The duration that a history predicts for the next job, given that it lasts longer than the
    job in question has run.

    Attributes:
        p50_s, p90_s: median and 90th percentile of the total duration, seconds.
        odds: pairs (seconds, chance to last longer).
    """

    p50_s: float
    p90_s: float
    odds: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Known:
    """A history of jobs: the group it is `of`, the number of jobs that `ended` and that `reached`
    any age (older ones count less), and the duration predicted for the next job.
    """

    of: str
    ended: float
    reached: float
    next: Next


MUCH_S, MUCH = 600.0, 0.25  # a start that has moved by so much of both comes first of all


@dataclass(frozen=True, slots=True)
class MovedStart:
    """How far a start has moved since it was promised at `since`; `by_s` above 0 means later.

    `left_s`: seconds until the start that is foreseen now.
    """

    since: float
    by_s: float
    left_s: float
    causes: tuple[Cause, ...] = ()

    @property
    def considerable(self) -> bool:
        """Whether the move is at least ten minutes, and a quarter of the wait that is left."""
        return abs(self.by_s) >= max(MUCH_S, MUCH * self.left_s)


@dataclass(frozen=True, slots=True)
class Analysis:
    """Why it waits at this moment, tried on a copy of the core.

    Attributes:
        at: that moment, seconds since the epoch.
        reason: code of what the policy decided last.
        need, free, limit: GPUs at that moment; of the free ones `kept` are kept for another job;
            `lent` more are lent for profiling, `closed` are closed.
        shut: it would fit, if none were closed.
        nodes: of its virtual cluster, by what keeps it from them.
        holders: the smallest set found without which it starts, of `in_all` the first 100.
        groups: all of them by kind.
        either: others of which a single one would do as well, of `alternatives` the first 100.
        instead: sets of other runs of which each would do in the place of the runs that hold it up,
            of `ways` the first 100.
        still: code of why it would wait even with everything out of its way; "" where it starts.
        vc, position, waiting: place in the line of that virtual cluster, from 1, and how many stand
            in it; None: in no line.
        priority, order: set by an operator, and terms of its place.
        bound: from when on GPUs are kept for it, as things stand; None: nothing is promised.
        reserved: GPUs that are kept in its virtual cluster already.
        moved: how its start has moved since it was submitted; None: it has not.
        not_shared: why it does not share GPUs; None: no run was considered.
        history: that its predicted duration rests on.
        not_examined: what was left out, in words.
        unavailable: why there is no analysis.
        seq: the last event of the log that was known then.
        suggestions: changes that were seen to help.
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
        """Return the analyst's answer about a job as an `Analysis`. Suggestions keep only the
        fields that the viewer may see.
        """
        found = [WhatIfAnswer.of(job_id, one["changes"], one) for one in why.get("suggestions", ())]
        return replace(decode(cls, {**why, "suggestions": ()}), suggestions=found)
