"""Why a job waits, as of now: what is in its way, its place, what is promised; each tried or read.

Everything here is computed at the moment it is asked. Jobs of others are counted, never named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from scheduler.core.capacity import Capacity, capacity_of
from scheduler.core.core import Core
from scheduler.core.decisions import Action, Decision, Reason
from scheduler.core.findings import Findings, Partner
from scheduler.core.obstacles import Obstacle
from scheduler.core.plural import are, count, were
from scheduler.core.policy import OrderTerms, Promise
from scheduler.core.queue import QueuedJob
from scheduler.core.rules import SHARING
from scheduler.explain.answer import InTheWay, OrderTerm, WaitAnalysis
from scheduler.explain.blockers import Blockers, Holder, Kind, find_blockers
from scheduler.explain.explanation import Compared, ComparedTerm
from scheduler.explain.whatif.forecasts import Futures
from scheduler.explain.words import duration, listed, roughly, sentence_of, signed

SHOWN = 2  # jobs that are named in a sentence
LISTED = 100  # holders that are listed beside the words


@dataclass(frozen=True, slots=True)
class Kept:
    """GPUs kept for a starving job of its virtual cluster.

    Attributes:
        own: they are kept for this job.
        free: those of them nobody is on.
        free_in_s: seconds until the last run on them has ended, with even odds; None: none is.
        runs: that are on them.
    """

    own: bool
    gpus: int
    free: int
    free_in_s: float | None = None
    runs: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """Why a job waits.

    Attributes:
        at: now, seconds since the epoch.
        reason: what the policy recorded last, and `text` in words with the numbers of now.
        need, limit: GPUs asked for, and there where it may be placed.
        capacity: what there is for it now.
        nodes: 1: its GPUs have to be on one node; 2: it takes whole nodes; 0: anywhere.
        position, waiting: place in line, from 1, and how many stand in it; None: in no line.
        order: terms of its place, seconds; the smaller sum goes first.
        priority: set by an operator; higher goes before all lower.
        findings: what the policy found when it last evaluated it.
    """

    job_id: str
    vc: str
    at: float
    reason: Reason
    text: str
    need: int
    capacity: Capacity
    limit: int
    blockers: Blockers
    position: int | None
    waiting: int
    order: OrderTerms
    priority: int
    promise: Promise | None
    kept: Kept | None
    findings: Findings


def answer(futures: Futures, job_id: str) -> Answer:
    """Explain a job that waits. LookupError when it does not."""
    core, now = futures.core, futures.now
    queued = core.jobs[job_id]
    run = core.cluster.runs.get(job_id)
    if run is not None:
        raise LookupError(f"job {job_id} has its GPUs" + (", to be profiled" * run.profiling))
    vc = queued.job.vc
    queue = core.queues[vc]
    waits = queued in queue
    position = queue.position(queued) if waits else None
    reason = queued.reason or Reason.NOT_YET_EVALUATED
    profiling = reason is Reason.AWAITING_PROFILE
    capacity = capacity_of(core, queued, profiling=profiling)
    limit = core.nodes.capacity[vc] if reason is Reason.VC_TOO_SMALL else capacity.limit
    stands = Decision(
        seq=0, time=now, action=Action.WAIT, reason=reason, job_id=job_id, vc=vc,
        need=queued.job.gpus, free=capacity.free, limit=limit, position=position,
        evidence=(("closed_gpus", capacity.closed),),
    )  # fmt: skip
    return Answer(
        job_id=job_id,
        vc=vc,
        at=now,
        reason=reason,
        text=sentence_of(stands),
        need=queued.job.gpus,
        capacity=capacity,
        limit=limit,
        blockers=find_blockers(futures, job_id),
        position=position,
        waiting=len(queue),
        order=core.policy.order_terms(queued, now) if waits else (),
        priority=queued.priority,
        promise=_promise(core, queued, capacity, now) if waits else None,
        kept=_kept(futures, queued),
        findings=_found(core, queued) if waits else Findings(),
    )


def _promise(core: Core, queued: QueuedJob, there: Capacity, now: float) -> Promise | None:
    """From when on GPUs are kept for it; None: nothing is promised, as while those that would hold
    it are closed: no policy keeps such."""
    return None if there.obstacle is Obstacle.CLOSED else core.policy.promise(queued, now)


def _found(core: Core, queued: QueuedJob) -> Findings:
    """What the policy found, without a partner that has left since."""
    found = core.policy.findings(queued)
    partner = found.partner
    gone = partner is not None and partner.job_id not in core.cluster.runs
    return replace(found, partner=None) if gone else found


def _kept(futures: Futures, queued: QueuedJob) -> Kept | None:
    """Return the GPUs reserved in a job's virtual cluster; None where none are."""
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


# --- in words, and as it is read ---------------------------------------------------------------


def analysis(
    found: Answer,
    owner: str,
    futures: Futures,
    *,
    names: bool = False,
    closed: Mapping[int, str] = MappingProxyType({}),
    most: int | None = LISTED,
    recorded: bool = False,
) -> WaitAnalysis:
    """The answer for the owner of the job; others' jobs are not named.

    Args:
        names: name the jobs of others too (operators).
        closed: nodes that are closed, by number, in words: name, by whom and why.
        most: holders that are listed; None: all.
        recorded: the moment asked about is past.
    """

    def shown(holder: Holder) -> str:
        mine = futures.core.jobs[holder.job_id].job.user == owner
        return holder.job_id if mine or names else ""

    def plain(holder: Holder) -> InTheWay:
        return InTheWay(
            kind=holder.kind.value,
            job=shown(holder) if holder.job_id else "",
            node=holder.node,
            closed="" if holder.node is None else closed.get(holder.node, ""),
            ran_s=holder.ran_s,
            past_s=holder.past_s or None,
            ends_in_s=holder.ends_in_s,
        )

    blockers = found.blockers
    holders = tuple(map(plain, blockers.holders))
    return WaitAnalysis(
        at=found.at,
        reason=found.reason.value,
        dominant=found.text,
        need=found.need,
        free=found.capacity.free,
        limit=found.limit,
        holders=holders[:most],
        in_all=len(holders),
        either=tuple(map(plain, blockers.alternatives))[:most],
        alternatives=len(blockers.alternatives),
        instead=tuple(tuple(map(plain, runs)) for runs in blockers.instead)[:most],
        still="" if blockers.still is None else _EVEN_THEN.get(blockers.still, _OTHERWISE),
        in_the_way=blocker_words(found, holders, recorded=recorded),
        otherwise=otherwise_words(found),
        position=found.position,
        waiting=found.waiting,
        order=tuple(OrderTerm(what, seconds) for what, seconds in found.order),
        place=place_words(found),
        bound_s=found.promise.left_s if found.promise else None,
        promise=promise_words(found),
        sharing=sharing_words(found.findings.partner),
        not_examined=(*blockers.not_examined, *found.findings.not_examined),
    )


def blocker_words(found: Answer, holders: Sequence[InTheWay], *, recorded: bool = False) -> str:
    """What is in the way, in a few sentences."""
    if found.reason is Reason.VC_TOO_SMALL:
        return f"It {found.text}."
    numbers = f"It needs {count(found.need, 'GPU')}; {counts(found, recorded=recorded)}."
    if not holders:
        if found.blockers.still is None:
            return f"{numbers} What holds it up was not found."
        even_then = _EVEN_THEN.get(found.blockers.still, _OTHERWISE)
        return f"{numbers} Even with nothing in its way it would not start yet: {even_then}."
    without = listed([part for kind in Kind if (part := _group(kind, holders))])
    ended = all(one.kind == Kind.RUN for one in holders)
    when = f"if {without} ended" if ended else f"if not for {without}"
    return f"{numbers} It would start {when} (tried)."


def counts(found: Answer, *, recorded: bool = False) -> str:
    """What there is for it: "2 of 16 are free now, 2 of them kept for another job, 8 are
    closed"."""
    there = found.capacity
    verb, when = (were, "then") if recorded else (are, "now")
    text = f"{there.free} of {found.limit} {verb(there.free)} free {when}"
    if there.kept:
        which = "all" if there.kept == there.free else str(there.kept)
        text += f", {which} of them kept for another job" if there.free > 1 else ", but kept"
    if there.lent:
        text += f", {there.lent} more {verb(there.lent)} lent for profiling"
    if there.closed:
        text += f", {there.closed} {verb(there.closed)} closed"
    return text


def otherwise_words(found: Answer) -> str:
    """What would do as well as what is in the way, in a sentence; "" where nothing was found."""
    if found.blockers.instead:
        ways = len(found.blockers.instead)
        return (
            f"{_some(found.blockers.instead)} would do instead"
            + f" ({ways} ways)" * (ways > 1)
            + "."
        )
    others = len(found.blockers.alternatives)
    if not others:
        return ""
    who = "One other" if others == 1 else f"Any of {count(others, 'other')}"
    return f"{who} would do instead."


def _some(sets: Sequence[Sequence[Holder]]) -> str:
    """How many runs: "2 others", "1-3 others"."""
    few, many = min(map(len, sets)), max(map(len, sets))
    return count(many, "other") if few == many else f"{few}-{many} others"


def _group(kind: Kind, holders: Sequence[InTheWay]) -> str:
    """Things of one kind: "2 running jobs of others, ..."."""
    mine = [h for h in holders if h.kind == kind]
    if not mine:
        return ""
    if kind is Kind.NODE:
        nodes = [node_words(h) for h in mine]
        return listed(nodes) if len(nodes) <= SHOWN else f"{len(nodes)} closed nodes"
    text = _who(WHAT[kind], mine)
    if kind is Kind.RUN:
        text += f" ({_end(mine)})"
    return text


def node_words(one: InTheWay) -> str:
    """A closed node in the way."""
    return one.closed or f"node {one.node}, which is closed"


def _who(what: str, mine: Sequence[InTheWay]) -> str:
    """Jobs by name where they are few and may be named, else how many."""
    named = [h.job for h in mine if h.job]
    hidden = len(mine) - len(named)
    if not named:
        return count(hidden, f"{what} of others")
    whats = count(len(named), what).split(" ", 1)[1]
    who = f"{whats} {listed(named)}"
    if len(named) > SHOWN and mine[0].kind == Kind.AHEAD:
        return count(len(mine), what)
    if len(named) > SHOWN:
        who = f"{len(named):,} {whats}" + " of yours" * bool(hidden)
    return who + f" and {hidden:,} of others" * bool(hidden)


WHAT = {
    Kind.RUN: "running job",
    Kind.AHEAD: "waiting job",
    Kind.KEPT: "job that GPUs are kept for",
}


def _end(runs: Sequence[InTheWay]) -> str:
    """When the last of some runs should end, and whether it has outlived its prediction."""
    last = max(runs, key=lambda run: run.ends_in_s or 0.0)
    text = f"{'the last ' * (len(runs) > 1)}should end in {roughly(last.ends_in_s or 0.0)}"
    if last.past_s:
        text += ", late"
    return text


def place_words(found: Answer) -> str:
    """Its place in line, and what puts it there."""
    if found.position is None:
        return "It is in no queue yet."
    text = f"Number {found.position:,} of {found.waiting:,} in {found.vc}"
    terms = [f"{what} {signed(seconds)}" for what, seconds in found.order if seconds]
    if found.priority:
        terms.insert(0, f"priority {found.priority}")
    return f"{text}: {', '.join(terms)}." if terms else f"{text}."


def promise_words(found: Answer) -> str:
    """From when on GPUs are kept for it, with what that depends on; "" when nothing is."""
    if found.kept is not None and found.kept.own:
        held = found.kept.gpus - found.kept.free
        busy = f"{held} of them still busy" if held else "all of them free"
        if held and found.kept.free_in_s is not None:
            whose = count(found.kept.runs, "running job")
            last = "the last " * (found.kept.runs > 1)
            busy += f" with {whose} ({last}should end in {roughly(found.kept.free_in_s)})"
        return (
            f"{count(found.kept.gpus, 'GPU')} {are(found.kept.gpus)} kept for it, {busy}; "
            "no other job starts there that is likely to keep it waiting."
        )
    promise = found.promise
    if promise is None and found.capacity.obstacle is Obstacle.CLOSED:
        return "No GPUs are kept for it while those that would hold it are closed."
    if promise is None:
        return ""
    text = f"{duration(promise.bound_s)} after its submission"
    if promise.demand > 1:
        times = f"{promise.demand:.1f} times the GPUs it may run on are asked for"
        text = f"not {text} but longer: {times}"
    if promise.left_s <= 0:
        when = "as the next of those"
    elif promise.left_s <= promise.soonest_s:
        when = f"in {duration(promise.left_s)}"
    else:
        when = f"in {duration(promise.left_s)} at the latest"
    answer = (
        f"As things stand GPUs are kept for it {when} ({text}; later if more is asked for "
        "meanwhile). A start then still waits for the jobs that run on them."
    )
    if promise.priced_s is None or when.startswith("as ") or promise.left_s <= promise.soonest_s:
        return answer
    if promise.costs_s is not None:
        return answer + (
            f" Not yet, though it has waited longer than {duration(promise.priced_s)}: that is "
            f"predicted to cost the others {duration(promise.costs_s)} of waiting in sum. Asked "
            f"again in {duration(promise.soonest_s)}."
        )
    return answer + (
        f" Sooner, in {duration(promise.soonest_s)}, if that costs the others little waiting."
    )


def sharing_words(partner: Partner | None) -> str:
    """Why it does not share the GPUs of the run that came closest; "" when none was considered."""
    if partner is None or partner.refused is None:
        return ""
    text = "Of the running jobs whose GPUs it might share, "
    if partner.refused is Reason.KEEPS_OTHERS_OUT and partner.hold and partner.gain_s:
        hold = partner.hold
        return (
            text + f"the best would save {duration(partner.gain_s)}. It would also hold "
            f"{count(hold.gpus, 'GPU')} for {duration(hold.longer_s)} longer, and cost the "
            f"{count(hold.kept_out, 'job')} before it {duration(hold.costs_s)} of waiting in sum."
        )
    if partner.refused is not Reason.INTERFERENCE_GUARD:
        return text + f"the closest is out of the question: {_REFUSED[partner.refused]}."
    if partner.speeds is None:
        return text + "the closest is predicted to interfere too much."
    own, other = partner.speeds
    text += f"beside the best it would run at {own:.0%} and the other at {other:.0%} of full speed"
    costs = partner.gain_s is not None and partner.gain_s <= 0
    return text + (": that would cost more time than it saves." if costs else ": too little.")


_REFUSED = {rule.reason: text for rule, text in SHARING.items()} | {
    Reason.PRIORITY_RATIO: "this job's predicted GPU-time is too large beside the other's",
}  # every reason of `rules.may_share`, and of a policy's own

# Why a job does not start although it would fit and nothing is in its way; a reason that is not
# here reads as `_OTHERWISE`.
_EVEN_THEN = {
    Reason.NEXT_ROUND: "this policy decides in rounds",
    Reason.FASTER_GPUS_SOON: "it is expected to end sooner by waiting for faster GPUs",
    Reason.NO_MATCHING_GPU_TYPE: "no node has the GPU type it asks for",
    Reason.INVALID_REQUEST: "it asks for more than there is",
    Reason.VC_TOO_SMALL: "its virtual cluster has fewer GPUs than it asks for",
    Reason.INFEASIBLE: "no allocation meets what is asked of this policy",
}


_OTHERWISE = "the policy would keep it waiting"


def compared(core: Core, job_id: str, other: QueuedJob, now: float) -> Compared:
    """Why one of two jobs went, or goes, before the other: the terms of both.

    Args:
        other: as it stands, or stood when it was given its GPUs.
    """
    queued = core.jobs[job_id]
    mine, theirs = (dict(core.policy.order_terms(q, now)) for q in (queued, other))
    terms = [
        ComparedTerm(what, theirs.get(what), mine.get(what))
        for what in dict.fromkeys([*theirs, *mine])
    ]
    first = other < queued
    winner, loser = (other, queued) if first else (queued, other)
    if winner.priority != loser.priority:
        why = f"its priority is {winner.priority}, that of the other {loser.priority}"
    elif winner.key != loser.key:
        why = "its terms sum to less"
    else:
        why = "both count the same and it came first"
    return Compared(job_id, other.job.job_id, first, why, terms=terms)
