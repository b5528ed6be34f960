"""A decision is a value, and carries its reasons.

Nothing starts, packs, waits or is refused without a `Decision`. Explanations are computed from
decisions, never worked out afterwards.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from string import Formatter
from typing import Any

from features.codec import Json
from scheduler.core.plural import are, count, were


class Action(StrEnum):
    """What is done with a job (or, for loans, with a node)."""

    PROFILE = "profile"
    ENQUEUE = "enqueue"  # enters the queue of its virtual cluster
    START = "start"
    PACK = "pack"
    WAIT = "wait"
    PREEMPT = "preempt"
    RESIZE = "resize"  # restarts on other GPUs
    RETUNE = "retune"  # goes on where it is with another batch size
    RESERVE = "reserve"  # GPUs, busy or free, are kept for it from now on
    REFUSE = "refuse"
    CANCEL = "cancel"  # leaves without having ended
    LEND = "lend"
    RETURN = "return"
    CHANGE_NODE = "change_node"  # what an operator asked for: it leaves, moves, is of another type


STARTS = (Action.START, Action.PACK)  # a job begins to run until it has ended
GIVES_GPUS = (*STARTS, Action.PROFILE)
CHANGES_GPUS = (*STARTS, Action.RESIZE, Action.PREEMPT)  # what a job has, outside of profiling


class Reason(StrEnum):
    """Why. The order is the order of precedence when several reasons hold.

    About the job itself, then capacity, then order, then the search; last the reasons of
    actions that are not a wait.
    """

    INVALID_REQUEST = "InvalidRequest"
    NO_MATCHING_GPU_TYPE = "NoMatchingGpuType"
    HELD_BY_OWNER = "HeldByOwner"
    HELD_BY_OPERATOR = "HeldByOperator"
    DEPENDENCY_NEVER_MET = "DependencyNeverMet"
    DEPENDENCY_NOT_MET = "DependencyNotMet"
    VC_TOO_SMALL = "VcTooSmall"
    AWAITING_PROFILE = "AwaitingProfile"
    GPUS_BUSY = "GpusBusy"
    GPUS_FRAGMENTED = "GpusFragmented"
    NODE_DRAINED = "NodeDrained"
    MEMORY_GUARD = "MemoryGuard"
    INTERFERENCE_GUARD = "InterferenceGuard"
    KEEPS_OTHERS_OUT = "KeepsOthersOut"
    PRIORITY_RATIO = "PriorityRatio"
    SHARING_OPTED_OUT = "SharingOptedOut"
    RESOURCES_BUSY = "ResourcesBusy"
    LIMIT_REACHED = "LimitReached"
    BEHIND_HIGHER_PRIORITY = "BehindHigherPriority"
    RESERVED_FOR_STARVING_JOB = "ReservedForStarvingJob"
    WOULD_DELAY_FIRST = "WouldDelayFirst"
    FASTER_GPUS_SOON = "FasterGpusSoon"
    NEXT_ROUND = "NextRound"
    NOT_YET_EVALUATED = "NotYetEvaluated"
    # of a start, a packing, a preemption, a profiling run, a loan
    EXCLUSIVE_GPUS = "ExclusiveGpus"
    PARTNER_FOUND = "PartnerFound"
    BORROWED = "Borrowed"
    BACKFILLED = "Backfilled"
    WAITED_TOO_LONG = "WaitedTooLong"
    SHORTER_JOB_WAITING = "ShorterJobWaiting"
    MORE_SERVICE_ATTAINED = "MoreServiceAttained"
    PROFILING_SLOT = "ProfilingSlot"
    PROFILE_COMPLETE = "ProfileComplete"
    PROFILING_SKIPPED = "ProfilingSkipped"
    PROFILING_BACKLOG = "ProfilingBacklog"
    PROFILING_IDLE = "ProfilingIdle"
    NODE_MISSED = "NodeMissed"
    NODE_SPARED = "NodeSpared"
    SUBMITTED = "Submitted"
    REQUEST_CHANGED = "RequestChanged"
    RELEASED = "Released"
    DEPENDENCY_MET = "DependencyMet"
    PROFILING_OPTED_OUT = "ProfilingOptedOut"
    PROFILE_KNOWN = "ProfileKnown"
    NODE_IDLE = "NodeIdle"
    # of a job that leaves without having ended
    CANCELLED = "Cancelled"
    NOT_STARTED = "NotStarted"
    LOST = "Lost"
    # of a policy that hands out allocations; the numbers are in the decision's evidence
    GAIN = "Gain"
    NO_GAIN = "NoGain"
    FAIR_SHARE = "FairShare"
    SHARE_USED = "ShareUsed"
    PRIORITY = "Priority"
    BATCH_CHOICE = "BatchChoice"
    INFEASIBLE = "Infeasible"
    NO_STATISTICS = "NoStatistics"

    def summary(self, d: Decision, *, blocker: str = "", partner: str = "") -> str:
        """One sentence for a waiting person, with the numbers of the decision.

        Args:
            blocker, partner: what to call these jobs; "": by their ids.
        """
        numbers = {
            name: "(not recorded)" if (value := getattr(d, name)) is None else value
            for name in ("free", "limit", "position")
        }
        return self._template(d, is_named=not blocker).format(
            gpus="(not recorded) GPUs" if d.need is None else count(d.need, "GPU"),
            are=are(d.need),
            were=were(d.need),
            free_are=are(d.free),
            closed=_closed(d),
            closed_are=are(_closed_gpus(d)),
            blocker=blocker or f"job {d.blocker}",
            partner=partner or f"job {d.partner}",
            **numbers,
        )

    def fields(self, d: Decision, *, is_named: bool = True) -> frozenset[str]:
        """Return the names of the fields whose values `summary` puts into its sentence.

        Args:
            is_named: the sentence names the blocker by its id.
        """
        parts = Formatter().parse(self._template(d, is_named=is_named))
        return frozenset(name for _, name, _, _ in parts if name)

    def _template(self, d: Decision, *, is_named: bool) -> str:
        template = _NAMELESS.get(self) if d.blocker is None else None
        template = _WITHOUT_GPUS.get(self, template) if d.need == 0 else template
        if self is Reason.DEPENDENCY_NOT_MET and is_named and _in_one_array(d):
            template = _BEHIND_ITS_ARRAY
        return template or _SUMMARY[self]

    def next_step(self) -> str:
        """What would help; empty when nothing can be done."""
        return _NEXT.get(self, "")


_SUMMARY: dict[Reason, str] = {
    Reason.INVALID_REQUEST: "asks for {gpus}; this virtual cluster has {limit}",
    Reason.NO_MATCHING_GPU_TYPE: "no node of this virtual cluster has the GPU type asked for",
    Reason.HELD_BY_OWNER: "its owner holds it back",
    Reason.HELD_BY_OPERATOR: "an operator holds it back",
    Reason.DEPENDENCY_NEVER_MET: (
        "cannot start: {blocker}, whose success it depends on, did not end successfully"
    ),
    Reason.DEPENDENCY_NOT_MET: "starts only after {blocker} has ended, as its owner asked",
    Reason.VC_TOO_SMALL: (
        "cannot start: it needs {gpus}, and its virtual cluster, without the nodes that are taken "
        "out, has {limit}"
    ),
    Reason.AWAITING_PROFILE: (
        "waits for a profiling slot: needs {gpus}, {free} of {limit} {free_are} free there"
    ),
    Reason.GPUS_BUSY: "needs {gpus}, {free} of {limit} {free_are} free",
    Reason.GPUS_FRAGMENTED: (
        "needs {gpus} on the fewest nodes; {free} of {limit} {free_are} free but scattered"
    ),
    Reason.RESOURCES_BUSY: "the CPUs, memory, GPUs or nodes it asks for are not free together",
    Reason.LIMIT_REACHED: "a limit that Slurm sets keeps it waiting, whatever is free",
    Reason.NODE_DRAINED: "needs {gpus}; {closed} of {limit} {closed_are} closed to new jobs",
    Reason.MEMORY_GUARD: "no running job of {gpus} leaves enough GPU memory to share",
    Reason.INTERFERENCE_GUARD: "every possible partner would be slowed too much",
    Reason.KEEPS_OTHERS_OUT: (
        "sharing GPUs would hold them for longer, and cost the jobs before it more waiting than "
        "it saves"
    ),
    Reason.PRIORITY_RATIO: (
        "its predicted GPU-time is too large beside that of every running job of {gpus}"
    ),
    Reason.SHARING_OPTED_OUT: (
        "needs {gpus} of its own, as its owner asked; {free} of {limit} {free_are} free"
    ),
    Reason.BEHIND_HIGHER_PRIORITY: "number {position} in line, behind {blocker}",
    Reason.RESERVED_FOR_STARVING_JOB: (
        "needs {gpus}; {free} of {limit} {free_are} free, but kept for {blocker}, which has "
        "waited longer than the bound"
    ),
    Reason.WOULD_DELAY_FIRST: (
        "needs {gpus}; {free} of {limit} {free_are} free, but kept for {blocker}, the first "
        "in line, which this job could delay"
    ),
    Reason.FASTER_GPUS_SOON: (
        "{gpus} {are} free, but of a type so slow for it that it is expected to end sooner by "
        "waiting for faster ones"
    ),
    Reason.NEXT_ROUND: "number {position} in line; this policy decides in rounds",
    Reason.NOT_YET_EVALUATED: "not evaluated yet",
    Reason.EXCLUSIVE_GPUS: "{gpus} of its own {were} free",
    Reason.PARTNER_FOUND: "shares the GPUs of {partner}",
    Reason.BORROWED: "{gpus} {were} idle in virtual clusters without waiting jobs",
    Reason.WAITED_TOO_LONG: (
        "has waited longer than the bound: {gpus} {are} kept for it, no other job starts there "
        "that is likely to keep it waiting"
    ),
    Reason.SHORTER_JOB_WAITING: "stopped in favour of {blocker}, which has less left to do",
    Reason.MORE_SERVICE_ATTAINED: (
        "stopped in favour of {blocker}: it has had more GPU-time than those that wait"
    ),
    Reason.PROFILING_SLOT: "profiled for at most {limit} s on the profiling partition",
    Reason.PROFILE_COMPLETE: "its profile is known; it joins the queue of its virtual cluster",
    Reason.PROFILING_SKIPPED: "too large for the profiling partition (limit {limit} GPUs)",
    Reason.PROFILING_BACKLOG: "{position} jobs wait to be profiled: a node is lent",
    Reason.PROFILING_IDLE: "few jobs wait to be profiled: the node goes back",
    Reason.NODE_MISSED: "lacks {gpus} lent for profiling",
    Reason.NODE_SPARED: "no longer lacked",
    Reason.NODE_IDLE: "no job is left on the node: the change an operator asked for is made",
    Reason.SUBMITTED: "joined the queue",
    Reason.REQUEST_CHANGED: "asks for something else, and keeps its place in time",
    Reason.RELEASED: "was released, and is back in its queue",
    Reason.DEPENDENCY_MET: "the jobs it depends on have ended; it joins its queue",
    Reason.PROFILE_KNOWN: (
        "queued without profiling: a recent profile of the same job name is reused"
    ),
    Reason.PROFILING_OPTED_OUT: "joined the queue without profiling, as its owner asked",
    Reason.CANCELLED: "cancelled before it ran",
    Reason.NOT_STARTED: "could not be started on the {gpus} it was given",
    Reason.LOST: "was started; how it ended is unknown, and it is not run again",
    Reason.GAIN: "the cluster gains more by this than by giving its GPUs to others",
    Reason.NO_GAIN: "the cluster gains more by giving its GPUs to others",
    Reason.FAIR_SHARE: "within its fair share",
    Reason.SHARE_USED: (
        "others are further behind their share of the cluster; {blocker} is the last that "
        "got GPUs before it"
    ),
    Reason.PRIORITY: "it comes before the others that want these GPUs",
    Reason.BATCH_CHOICE: "another batch size trains faster, statistical efficiency counted in",
    Reason.INFEASIBLE: "no allocation meets what is asked of this policy",
    Reason.NO_STATISTICS: "asks for {gpus}; nothing is known of how it trains",
    Reason.BACKFILLED: (
        "{gpus} kept for a job that has waited longer than the bound {are} of no use to it yet, "
        "and this one is likely to be gone by then"
    ),
}

# used when no single job is to blame
_NAMELESS: dict[Reason, str] = {
    Reason.BEHIND_HIGHER_PRIORITY: "number {position} in line, behind jobs that go first",
    Reason.RESERVED_FOR_STARVING_JOB: (
        "needs {gpus}; {free} of {limit} {free_are} free, but kept for a job that has waited "
        "longer than the bound"
    ),
}

# of a task of an array that may have so many running (--array 0-9%2)
_BEHIND_ITS_ARRAY = "its array lets only so many tasks run at once: starts once {blocker} has ended"

# used of a job that asks for none
_WITHOUT_GPUS: dict[Reason, str] = {
    Reason.EXCLUSIVE_GPUS: "the CPUs and memory it asks for were free",
}

_NEXT: dict[Reason, str] = {
    Reason.HELD_BY_OWNER: "release it: it goes on from what it had waited",
    Reason.HELD_BY_OPERATOR: "ask an operator to release it: only they can",
    Reason.DEPENDENCY_NEVER_MET: (
        'cancel it, or let it start without that job (pellucid change --after "")'
    ),
    Reason.INVALID_REQUEST: "ask for fewer GPUs, or submit to a larger virtual cluster",
    Reason.VC_TOO_SMALL: (
        "ask for fewer GPUs or for another virtual cluster (pellucid change), or ask an operator "
        "to add nodes"
    ),
    Reason.NODE_DRAINED: "it can start when they are open again",
    Reason.MEMORY_GUARD: "a smaller batch would let it share a GPU",
    Reason.WOULD_DELAY_FIRST: "a shorter time limit would let it pass",
    Reason.SHARING_OPTED_OUT: "allow it to share GPUs: others run there that it might fit beside",
    Reason.NO_MATCHING_GPU_TYPE: "leave the GPU type out, or submit where there is one",
    Reason.LOST: "see whether it left results behind; submit it again if not",
    Reason.NOT_STARTED: "mend what the detail names, and submit it again",
}


DEPENDS = (Reason.DEPENDENCY_NOT_MET, Reason.DEPENDENCY_NEVER_MET)  # of a job on others' ends

Evidence = tuple[tuple[str, float | str], ...]  # (name, value); text names other jobs


@dataclass(frozen=True, slots=True)
class PairPrediction:
    """The judgement on a pair.

    Attributes:
        scores: sharing score of newcomer and partner (0 tiny, 1 medium, 2 jumbo).
        speeds: predicted relative speed of newcomer and partner; None when not predicted.
        path: the tree path behind the newcomer's score, then the partner's, root first.
        speed_path: likewise behind the speeds; () where they are not of a tree.
    """

    scores: tuple[int, int]
    speeds: tuple[float, float] | None = None
    path: tuple[str, ...] = ()
    speed_path: tuple[str, ...] = ()


@dataclass(slots=True)
class Score:
    """An additive score: ``value`` is the sum of the intercept and the terms, in that order.

    Attributes:
        value: the score (log-seconds for a duration model).
        intercept: the constant term.
        terms: one contribution per term of the model named by `bundle`.
        bundle: digest of the exported model the terms come from.
        inputs: the feature values behind the terms, as text; empty when not kept.
    """

    value: float
    intercept: float
    terms: tuple[float, ...]
    bundle: str
    inputs: tuple[str, ...] = ()


@dataclass(slots=True)
class Decision:
    """One decision about one job.

    Attributes:
        seq: order in which decisions were taken, from 0.
        time: when, seconds since the epoch.
        action, reason: what and why.
        job_id, vc: the job, and the virtual cluster it belongs to.
        nodes: node indices given (or lent); empty when none.
        gpus: GPU indices within each node of `nodes`, as a bit mask per node.
        partner: the job it shares GPUs with.
        priority: the value the queue was ordered by (lower goes first); None before ordering.
        estimate_s: predicted duration in seconds, where the policy uses one.
        score: the model's score with its terms, where a model gave the estimate.
        tree_path: conditions that led to the speeds, or to the sharing score where the policy goes
            by that, root first.
        speeds: predicted relative speed of this job and of its partner while they share.
        blocker: the job in the way: without it this one starts.
        held_by: whom it waits for as estimated then: the job ahead, the one GPUs are kept for, or
            the runs that should free enough of them soonest; not tried.
        need, free, limit: GPUs asked for, free, and in the virtual cluster.
        position: place in the queue, from 1.
        batch: samples per GPU and pass, and passes before each update, of an elastic job.
        evidence: further numbers behind the decision, by name (a marginal gain, a dual price).
    """

    seq: int
    time: float
    action: Action
    reason: Reason
    job_id: str
    vc: str
    nodes: tuple[int, ...] = ()
    gpus: tuple[int, ...] = ()
    partner: str | None = None
    priority: float | None = None
    estimate_s: float | None = None
    score: Score | None = None
    tree_path: tuple[str, ...] = ()
    speeds: tuple[float, float] | None = None
    blocker: str | None = None
    held_by: tuple[str, ...] = ()
    need: int | None = None
    free: int | None = None
    limit: int | None = None
    position: int | None = None
    batch: tuple[int, int] | None = None
    evidence: Evidence = ()

    def sentence(self, visible: Collection[str] | None = None) -> str:
        """Return the decision in words. Where `visible` is given, no other job is named."""
        if visible is None:
            return self.reason.summary(self)
        blocker = partner = ""
        if self.blocker is None or self.blocker not in visible:
            ahead = self.blocker is not None and self.reason not in DEPENDS
            blocker = AHEAD if ahead else ANOTHER
        if self.reason is Reason.BEHIND_HIGHER_PRIORITY and self.position and blocker:
            return in_line(self.position)
        if self.partner is None or self.partner not in visible:
            partner = ANOTHER
        return self.reason.summary(self, blocker=blocker, partner=partner)

    def fields_in_sentence(self, visible: Collection[str] | None = None) -> frozenset[str]:
        """Return the names of the fields whose values `sentence` holds, or stands for."""
        is_named = visible is None or (self.blocker is not None and self.blocker in visible)
        if self.reason is Reason.BEHIND_HIGHER_PRIORITY and self.position and not is_named:
            return frozenset(("position", "blocker"))
        return self.reason.fields(self, is_named=is_named)

    def body(self) -> Json:
        """As plain values; fields that say nothing are left out."""
        found = {name: getattr(self, name) for name in Decision.__slots__}
        if self.score is not None:
            # not `asdict`, which copies every value and is most of the cost of a pass's record
            found["score"] = {name: getattr(self.score, name) for name in Score.__slots__}
        return {name: value for name, value in found.items() if value is not None and value != ()}

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> Decision:
        """The inverse of `body`, through JSON as well."""
        found = {name: _frozen(value) for name, value in body.items()}
        found["action"], found["reason"] = Action(body["action"]), Reason(body["reason"])
        if "score" in body:
            score = {name: _frozen(value) for name, value in body["score"].items()}
            found["score"] = Score(**score)
        return cls(**found)


ANOTHER = "another job"
AHEAD = "a higher-priority job"


def in_line(position: int) -> str:
    """A place in line, from 1, with how many go first."""
    ahead = {1: "", 2: f", behind {AHEAD}"}
    return f"number {position} in line" + ahead.get(
        position, f", behind {position - 1} higher-priority jobs"
    )


def _closed(d: Decision) -> str:
    """How many of the GPUs counted in `limit` were closed."""
    closed = _closed_gpus(d)
    return "(not recorded)" if closed is None else f"{closed}"


def _closed_gpus(d: Decision) -> int | None:
    closed = dict(d.evidence).get("closed_gpus")
    return None if closed is None else round(float(closed))


def _in_one_array(d: Decision) -> bool:
    """Whether a job and its blocker are tasks of one array."""
    array = d.job_id.rpartition("_")[0]
    return bool(array) and (d.blocker or "").startswith(f"{array}_")


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
