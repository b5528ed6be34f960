"""Decisions, each of which carries its reasons.

Nothing starts, packs, waits or is refused without a `Decision`. Explanations are computed from
recorded decisions, never worked out afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from features.codec import Json
from scheduler.core.receipts import Plain


class Action(StrEnum):
    """What a decision does with a job or, for loans, with a node."""

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
    """The reason code of a decision. If several reasons hold, the first member in this order is
    given.

    Reasons about the job itself come first, then capacity, order and search; last the reasons of
    actions other than a wait.
    """

    INVALID_REQUEST = "InvalidRequest"
    NO_MATCHING_GPU_TYPE = "NoMatchingGpuType"
    HELD_BY_OWNER = "HeldByOwner"
    HELD_BY_OPERATOR = "HeldByOperator"
    DEPENDENCY_NEVER_MET = "DependencyNeverMet"
    DEPENDENCY_NOT_MET = "DependencyNotMet"
    ARRAY_LIMIT = "ArrayLimit"
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


# of a job on others' ends
DEPENDS = (Reason.DEPENDENCY_NOT_MET, Reason.DEPENDENCY_NEVER_MET, Reason.ARRAY_LIMIT)

Evidence = tuple[tuple[str, float | str], ...]  # (name, value); text names other jobs


@dataclass(frozen=True, slots=True)
class PairPrediction:
    """The predicted sharing scores and speeds of a pair of jobs: the newcomer, and the partner that
    runs already.

    Attributes:
        scores: sharing scores of newcomer and partner (0 tiny, 1 medium, 2 jumbo).
        speeds: predicted speeds of newcomer and partner, each over its speed alone; None when not
            predicted.
        path: the steps through the decision tree behind the newcomer's score, then the partner's,
            root first.
        speed_path: the steps behind the speeds, likewise; () where no tree predicted them.
    """

    scores: tuple[int, int]
    speeds: tuple[float, float] | None = None
    path: tuple[str, ...] = ()
    speed_path: tuple[str, ...] = ()


class Fact(StrEnum):
    """What a term of a score rests on, if an estimator added the term to those of the model.
    Decisions and explanations depend on this; the text recorded with it is for people."""

    LIMIT = "limit"  # its time limit cuts the prediction off
    OUTLIVED = "outlived"  # it ran before, and did not end
    LAST_RUNS = "last_runs"  # what its last runs claim
    EXPECTED = "expected"  # what its owner expects
    COMMAND = "command"  # how much work its command asks for, at the speed of earlier runs
    PROGRESS = "progress"  # how far it is by its own output


@dataclass(slots=True)
class Score:
    """An additive score: ``value`` is the sum of the intercept and the terms, in that order.

    Attributes:
        value: the score (log-seconds for a duration model).
        intercept: the constant term.
        terms: one contribution for each term of the model named by `bundle`, then one for each of
            `facts`.
        bundle: digest of the exported model that the terms come from.
        inputs: the feature values behind the model's terms, then one text for each of `facts`;
            empty when they were not kept.
        facts: what the last terms rest on, in their order: those that an estimator added to the
            model's.
    """

    value: float
    intercept: float
    terms: tuple[float, ...]
    bundle: str
    inputs: tuple[str, ...] = ()
    facts: tuple[Fact, ...] = ()

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> Score:
        """Return the score from its fields as plain values, such as lists out of JSON. Where it was
        recorded without facts, these are found from its inputs."""
        found = {name: _frozen(value) for name, value in body.items()}
        given = found.get("facts")
        found["facts"] = (
            facts_in_words(found.get("inputs", ())) if given is None else tuple(map(Fact, given))
        )
        return cls(**found)

    def with_term(self, moves: float, fact: Fact, text: str) -> Score:
        """Return the score with one more term, which adds `moves` to it. `text` tells the fact
        behind it in words."""
        return Score(
            value=self.value + moves,
            intercept=self.intercept,
            terms=(*self.terms, moves),
            bundle=self.bundle,
            inputs=(*self.inputs, text),
            facts=(*self.facts, fact),
        )

    def without_last_term(self) -> Score:
        """Return the score without its last term, which has a fact."""
        terms = self.terms[:-1]
        return Score(
            value=sum(terms, self.intercept),
            intercept=self.intercept,
            terms=terms,
            bundle=self.bundle,
            inputs=self.inputs[:-1],
            facts=self.facts[:-1],
        )


@dataclass(slots=True)
class Decision:
    """One decision about one job.

    Attributes:
        seq: number of the decision, in the order in which decisions were taken, from 0.
        time: when it was taken, seconds since the epoch.
        action, reason: what is done with the job, and why.
        job_id, vc: the job, and the virtual cluster to which it belongs.
        nodes: numbers of the nodes given (or lent); empty when none.
        gpus: GPUs given on each node of `nodes`, as a bit mask per node.
        partner: the job with which this job shares GPUs.
        priority: the key by which the queue was sorted (lowest first); None before the job had one.
        estimate_s: predicted duration in seconds, where the policy uses one.
        score: the model's score with its terms, where a model gave the estimate.
        tree_path: conditions that led to the speeds or, where the policy decides by it, to the
            sharing score; root first.
        speeds: predicted relative speeds of this job and of its partner while they share.
        blocker: the job in the way: without it this job would start.
        held_by: the jobs that this job waits for, as estimated at that time and not tried: the job
            ahead, the job that GPUs are kept for, or the runs expected to free enough GPUs soonest.
        need, free, limit: GPUs that the job asks for, that are free, and that the virtual cluster
            has. The `limit` of PROFILE is the seconds that profiling may take; that of ENQUEUE, the
            GPUs of the largest job that is profiled.
        position: place in the queue, from 1.
        batch: samples per GPU and pass, and passes before each update, of an elastic job.
        evidence: further numbers behind the decision, by name (a marginal gain, a dual price).
        receipt: the inputs of the durations in `evidence`; see `scheduler.core.receipts`.
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
    receipt: Plain = ()

    def body(self) -> Json:
        """Return the decision as plain values, without fields that are None or ()."""
        found = {name: getattr(self, name) for name in Decision.__slots__}
        if self.score is not None:
            # not `asdict`, which copies every value and is most of the cost of a pass's record
            found["score"] = {name: getattr(self.score, name) for name in Score.__slots__}
        return {name: value for name, value in found.items() if value is not None and value != ()}

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> Decision:
        """Return the decision from what `body` returned, also after a round trip through JSON."""
        found = {name: _frozen(value) for name, value in body.items()}
        found["action"], found["reason"] = Action(body["action"]), Reason(body["reason"])
        if "score" in body:
            found["score"] = Score.from_body(body["score"])
        return cls(**found)


ANOTHER = "another job"
AHEAD = "a higher-priority job"


# The words of facts in records that do not name them; their form no longer changes.
_FORMER_WORDS = {
    Fact.LIMIT: re.compile(r"\Astopped after .*"),
    Fact.OUTLIVED: re.compile(r"\Aran for .*"),
    Fact.LAST_RUNS: re.compile(r"\Alast runs?\b.*"),
    Fact.EXPECTED: re.compile(r"\Aexpects .*"),
    Fact.COMMAND: re.compile(r"\Aasks for .*"),
    Fact.PROGRESS: re.compile(
        r"\A(-?\d+ % after -?\d+ s|-?\d+ s left by its own estimate|\S+ \w+ of \S+ s)(; .*)?"
    ),
}


def facts_in_words(inputs: Sequence[str]) -> tuple[Fact, ...]:
    """Return the facts behind the last terms of a score that was recorded before scores named
    them. `inputs` are its inputs in words: feature values first, then one text for each fact.
    """
    found: list[Fact] = []
    for text in reversed(inputs):
        fact = next((f for f, form in _FORMER_WORDS.items() if form.fullmatch(text)), None)
        if fact is None:
            break
        found.append(fact)
    return tuple(reversed(found))


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
