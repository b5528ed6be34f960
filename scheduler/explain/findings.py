"""Why a job waits now: the obstacles, its place in its queue, and what it is promised. Each part is
tried on a copy of the core, or read from the core.

Everything is computed at the time of the question. Other users' jobs are counted and not named,
except for operators.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from scheduler.core.capacity import Capacity, capacity_of, nodes_of_job
from scheduler.core.core import Core
from scheduler.core.decisions import Reason
from scheduler.core.findings import Findings, Partner, Promise
from scheduler.core.obstacles import Obstacle
from scheduler.core.queue import QueuedJob
from scheduler.explain.answer import (
    Analysis,
    Group,
    InTheWay,
    Kept,
    NotShared,
    OrderTerm,
    ShutNode,
)
from scheduler.explain.blockers import BUDGET_S, Holder, Kind, find_blockers
from scheduler.explain.explanation import Compared, ComparedTerm
from scheduler.explain.reasons import NOT_EXAMINED
from scheduler.explain.whatif.forecasts import Futures

LISTED = 100  # holders that are listed one by one
SHOWN = 2  # jobs and nodes of a kind that are shown by name


def analysis(
    futures: Futures,
    job_id: str,
    owner: str,
    *,
    names: bool = False,
    closed: Mapping[int, ShutNode] = MappingProxyType({}),
    most: int | None = LISTED,
    budget_s: float = BUDGET_S,
) -> Analysis:
    """Return why a waiting job waits, as its owner may see it: other users' jobs are not named. The
    fields `moved`, `history` and `suggestions` are left empty. Raise LookupError if the job has
    GPUs already, or is not known.

    Args:
        names: name other users' jobs too (for operators).
        closed: the closed nodes, by number.
        most: how many obstacles are listed; None: all.
        budget_s: processor seconds for the search for obstacles.
    """
    core, now = futures.core, futures.now
    queued = core.jobs[job_id]
    run = core.cluster.runs.get(job_id)
    if run is not None:
        raise LookupError(f"job {job_id} has its GPUs" + (", to be profiled" * run.profiling))

    def plain(holder: Holder) -> InTheWay:
        mine = names or (holder.job_id and core.jobs[holder.job_id].job.user == owner)
        return InTheWay(
            kind=holder.kind.value,
            job=holder.job_id if mine else "",
            node=holder.node,
            closed=None if holder.node is None else closed.get(holder.node),
            ran_s=holder.ran_s,
            past_s=holder.past_s or None,
            ends_in_s=holder.ends_in_s,
        )

    vc = queued.job.vc
    queue = core.queues[vc]
    waits = queued in queue
    reason = queued.reason or Reason.NOT_YET_EVALUATED
    profiling = reason is Reason.AWAITING_PROFILE
    there = capacity_of(core, queued, profiling=profiling)
    blockers = find_blockers(futures, job_id, budget_s)
    holders = tuple(map(plain, blockers.holders))
    found = _found(core, queued) if waits else Findings()
    order = core.policy.order_terms(queued, now) if waits else ()
    return Analysis(
        at=now,
        reason=reason.value,
        need=queued.job.gpus,
        free=there.free,
        limit=core.nodes.capacity[vc] if reason is Reason.VC_TOO_SMALL else there.limit,
        kept=there.kept,
        lent=there.lent,
        closed=there.closed,
        shut=there.obstacle is Obstacle.CLOSED,
        nodes=nodes_of_job(core, queued, profiling=profiling),
        holders=holders[:most],
        in_all=len(holders),
        groups=tuple(_groups(holders)),
        either=tuple(map(plain, blockers.alternatives))[:most],
        alternatives=len(blockers.alternatives),
        instead=tuple(tuple(map(plain, runs)) for runs in blockers.instead)[:most],
        ways=len(blockers.instead),
        still=blockers.still.value if blockers.still else "",
        vc=vc,
        position=queue.position(queued) if waits else None,
        waiting=len(queue),
        priority=queued.priority,
        order=tuple(OrderTerm(what, seconds) for what, seconds in order),
        bound=_promise(core, queued, there, now) if waits else None,
        reserved=_kept(futures, queued),
        not_shared=_not_shared(found.partner),
        not_examined=(*blockers.not_examined, *(NOT_EXAMINED[one] for one in found.not_examined)),
    )


def _groups(holders: Sequence[InTheWay]) -> Iterator[Group]:
    """Yield the obstacles as one group per kind that occurs, each with the number of its members,
    the first of them, and the latest end.
    """
    for kind in Kind:
        mine = [one for one in holders if one.kind == kind]
        if not mine:
            continue
        last = max(mine, key=lambda one: one.ends_in_s or 0.0)
        named = [one for one in mine if one.job]
        yield Group(
            kind=kind.value,
            count=len(mine),
            named=len(named),
            shown=tuple(mine if kind is Kind.NODE else named)[:SHOWN],
            ends_in_s=last.ends_in_s,
            past_s=last.past_s,
        )


def _not_shared(partner: Partner | None) -> NotShared | None:
    """Return why a job does not share the GPUs of its best candidate for sharing. Return None if
    there was no candidate, or if sharing is allowed."""
    if partner is None or partner.refused is None:
        return None
    return NotShared(
        refused=partner.refused.value,
        speeds=partner.speeds,
        gain_s=partner.gain_s,
        hold=partner.hold,
    )


def _promise(core: Core, queued: QueuedJob, there: Capacity, now: float) -> Promise | None:
    """Return when GPUs will be reserved for a waiting job. Return None if the policy promises
    nothing, or too many GPUs are closed for the job to fit."""
    return None if there.obstacle is Obstacle.CLOSED else core.policy.promise(queued, now)


def _found(core: Core, queued: QueuedJob) -> Findings:
    """Return what the policy found out about a job when it last considered it. A candidate for
    sharing that does not run any more is left out."""
    found = core.policy.findings(queued)
    partner = found.partner
    gone = partner is not None and partner.job_id not in core.cluster.runs
    return replace(found, partner=None) if gone else found


def _kept(futures: Futures, queued: QueuedJob) -> Kept | None:
    """Return the GPUs that are reserved in a job's virtual cluster; None if there are none."""
    core = futures.core
    held = core.policy.reservation(queued.job.vc)
    if held is None:
        return None
    holder, placement = held
    pools = core.cluster.pools.values()
    free = sum(
        (mask & pool.free_on(node)).bit_count()
        for node, mask in placement
        for pool in pools
        if node in pool
    )
    gpus = sum(mask.bit_count() for _, mask in placement)
    kept = dict(placement)
    ends = [
        max(0.0, futures.ends_at(run) - futures.now)
        for run in core.cluster.runs.values()
        if any(mask & kept.get(node, 0) for node, mask in zip(run.nodes, run.gpus, strict=True))
    ]
    own = holder == queued.job.job_id
    return Kept(
        own=own, gpus=gpus, free=free, free_in_s=max(ends) if ends else None, runs=len(ends)
    )


def _sums_to_key(
    mine: Mapping[str, float], queued: QueuedJob, theirs: Mapping[str, float], other: QueuedJob
) -> bool:
    """Return whether the sums of two jobs' order terms differ by as much as the keys by which the
    queue sorts the jobs, but for rounding."""
    off = sum(mine.values()) - queued.key - (sum(theirs.values()) - other.key)
    return abs(off) <= 1e-6 * max(abs(queued.key), abs(other.key), 1.0)


def compared(core: Core, job_id: str, other: QueuedJob, now: float) -> Compared:
    """Return a comparison of the order values of two jobs: which goes first, and why. The terms of
    a job that has left the core are left out where they do not agree with its key.

    Args:
        job_id: the job in question.
        other: the other job, in its present state or as it was when it got its GPUs.
    """
    queued = core.jobs[job_id]
    mine, theirs = (dict(core.policy.order_terms(q, now)) for q in (queued, other))
    if other.job.job_id not in core.jobs and not _sums_to_key(mine, queued, theirs, other):
        theirs = {}  # its curve was not kept
    terms = [
        ComparedTerm(what, theirs.get(what), mine.get(what))
        for what in dict.fromkeys([*theirs, *mine])
    ]
    first = other < queued
    winner, loser = (other, queued) if first else (queued, other)
    if winner.priority != loser.priority:
        why = f"its priority is {winner.priority}, that of the other {loser.priority}"
    elif winner.key != loser.key:
        why = "the sum of its terms is smaller, and the smallest goes first"
    else:
        why = "the sums of their terms are equal, and it was submitted first"
    return Compared(job_id, other.job.job_id, first, why, terms=terms)
