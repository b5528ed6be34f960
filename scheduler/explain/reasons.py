"""Reasons in words: what each reason code says in a decision, with its numbers, and what would
help.

The core records a reason as a code. Here it is put into words for all readers.
"""

from __future__ import annotations

from collections.abc import Collection
from string import Formatter

from scheduler.core.decisions import AHEAD, ANOTHER, DEPENDS, Decision, Reason
from scheduler.core.findings import NotExamined
from scheduler.core.obstacles import Obstacle
from scheduler.core.plural import are, count, were

AT_ONCE = "at_once"  # evidence: how many tasks of its array may run at once


def sentence(d: Decision, visible: Collection[str] | None = None) -> str:
    """Return a decision as a sentence. If `visible` (ids of the jobs that the reader may see) is
    given, no job outside it is named."""
    if visible is None:
        return summary(d)
    blocker = partner = ""
    if d.blocker is None or d.blocker not in visible:
        ahead = d.blocker is not None and d.reason not in DEPENDS
        blocker = AHEAD if ahead else ANOTHER
    if d.reason is Reason.BEHIND_HIGHER_PRIORITY and d.position and blocker:
        return in_line(d.position)
    if d.partner is None or d.partner not in visible:
        partner = ANOTHER
    return summary(d, blocker=blocker, partner=partner)


def fields_in_sentence(d: Decision, visible: Collection[str] | None = None) -> frozenset[str]:
    """Return the names of the values that `sentence` mentions, or puts into other words: fields of
    the decision, such as "free", and names of the template, such as "gpus"."""
    is_named = visible is None or (d.blocker is not None and d.blocker in visible)
    if d.reason is Reason.BEHIND_HIGHER_PRIORITY and d.position and not is_named:
        return frozenset(("position", "blocker"))
    parts = Formatter().parse(_template(d))
    return frozenset(name for _, name, _, _ in parts if name)


def summary(d: Decision, *, blocker: str = "", partner: str = "") -> str:
    """Return a decision as a sentence without its subject, with the numbers of the decision.

    Args:
        blocker, partner: names for these jobs in the sentence; "": their ids.
    """
    numbers = {
        name: "(not recorded)" if (value := getattr(d, name)) is None else value
        for name in ("free", "limit", "position")
    }
    return _template(d).format(
        gpus="(not recorded) GPUs" if d.need is None else count(d.need, "GPU"),
        are=are(d.need),
        were=were(d.need),
        free_are=are(d.free),
        closed=_closed(d),
        closed_are=are(_closed_gpus(d)),
        at_once=_at_once(d),
        blocker=blocker or f"job {d.blocker}",
        partner=partner or f"job {d.partner}",
        **numbers,
    )


def _template(d: Decision) -> str:
    template = _NAMELESS.get(d.reason) if d.blocker is None else None
    template = _WITHOUT_GPUS.get(d.reason, template) if d.need == 0 else template
    array = d.job_id.rpartition("_")[0]
    if (
        d.reason is Reason.DEPENDENCY_NOT_MET
        and array
        and (d.blocker or "").startswith(f"{array}_")
    ):
        template = _SUMMARY[Reason.ARRAY_LIMIT]  # as recorded before that had a reason of its own
    return template or _SUMMARY[d.reason]


def next_step(reason: Reason) -> str:
    """Return as text what would help a job that waits for this reason; "" when nothing would."""
    return _NEXT.get(reason, "")


def in_line(position: int) -> str:
    """Return as text a position in the queue and the number of jobs ahead: "number 3 in line,
    behind 2 higher-priority jobs"."""
    ahead = {1: "", 2: f", behind {AHEAD}"}
    return f"number {position} in line" + ahead.get(
        position, f", behind {position - 1} higher-priority jobs"
    )


def _closed(d: Decision) -> str:
    """Return as text how many of the GPUs counted in `limit` were closed."""
    closed = _closed_gpus(d)
    return "(not recorded)" if closed is None else f"{closed}"


def _closed_gpus(d: Decision) -> int | None:
    closed = dict(d.evidence).get("closed_gpus")
    return None if closed is None else round(float(closed))


def _at_once(d: Decision) -> str:
    """Return as text how many tasks of an array may run at once."""
    most = dict(d.evidence).get(AT_ONCE)
    return "only so many" if most is None else f"{round(float(most))}"


_SUMMARY: dict[Reason, str] = {
    Reason.INVALID_REQUEST: "asks for {gpus}; this virtual cluster has {limit}",
    Reason.NO_MATCHING_GPU_TYPE: "no node of this virtual cluster has the GPU type asked for",
    Reason.HELD_BY_OWNER: "its owner holds it back",
    Reason.HELD_BY_OPERATOR: "an operator holds it back",
    Reason.DEPENDENCY_NEVER_MET: (
        "cannot start: {blocker}, whose success it depends on, did not end successfully"
    ),
    Reason.DEPENDENCY_NOT_MET: "starts only after {blocker} has ended, as its owner asked",
    Reason.ARRAY_LIMIT: (
        "its array lets {at_once} of its tasks run at once: starts once {blocker} has ended"
    ),
    Reason.VC_TOO_SMALL: (
        "cannot start: it needs {gpus}, and its virtual cluster, without the nodes that are taken "
        "out, has {limit}"
    ),
    Reason.AWAITING_PROFILE: (
        "waits to be profiled (measured in a short run): needs {gpus}, {free} of {limit} that are "
        "set aside for profiling {free_are} free"
    ),
    Reason.GPUS_BUSY: "needs {gpus}, {free} of {limit} {free_are} free",
    Reason.GPUS_FRAGMENTED: (
        "needs {gpus} on as few nodes as can hold it; {free} of {limit} {free_are} free, but "
        "spread over more nodes"
    ),
    Reason.RESOURCES_BUSY: "the CPUs, memory, GPUs or nodes it asks for are not free together",
    Reason.LIMIT_REACHED: "a limit that Slurm sets keeps it waiting, whatever is free",
    Reason.NODE_DRAINED: "needs {gpus}; {closed} of {limit} {closed_are} closed to new jobs",
    Reason.MEMORY_GUARD: (
        "it cannot have {gpus} of its own now, and no running job of {gpus} leaves enough GPU "
        "memory to share"
    ),
    Reason.INTERFERENCE_GUARD: (
        "it cannot have GPUs of its own now; beside every running job that it could share GPUs "
        "with, the two would slow each other too much"
    ),
    Reason.KEEPS_OTHERS_OUT: (
        "it cannot have GPUs of its own now; it could share GPUs with a running job, but the two "
        "would hold those GPUs for longer, and jobs ahead of it would wait more than sharing saves"
    ),
    Reason.PRIORITY_RATIO: (
        "it cannot have {gpus} of its own now, and its predicted GPU-time is too large beside that "
        "of every running job of {gpus}"
    ),
    Reason.SHARING_OPTED_OUT: (
        "needs {gpus} of its own, as its owner asked; {free} of {limit} {free_are} free"
    ),
    Reason.BEHIND_HIGHER_PRIORITY: "number {position} in line, behind {blocker}",
    Reason.RESERVED_FOR_STARVING_JOB: (
        "needs {gpus}; {free} of {limit} {free_are} free, but kept for {blocker}, which has "
        "waited longer than the bound on waiting"
    ),
    Reason.WOULD_DELAY_FIRST: (
        "needs {gpus}; {free} of {limit} {free_are} free, but kept for {blocker}, the first "
        "in line, which this job could delay"
    ),
    Reason.FASTER_GPUS_SOON: (
        "{gpus} {are} free, but of a type so slow for it that it is expected to end sooner by "
        "waiting for faster ones"
    ),
    Reason.NEXT_ROUND: (
        "number {position} in line; this policy decides in rounds, and the next has not begun"
    ),
    Reason.NOT_YET_EVALUATED: "not evaluated yet",
    Reason.EXCLUSIVE_GPUS: "{gpus} {were} free for it alone",
    Reason.PARTNER_FOUND: "shares the GPUs of {partner}",
    Reason.BORROWED: "{gpus} {were} idle in virtual clusters without waiting jobs",
    Reason.WAITED_TOO_LONG: (
        "has waited longer than the bound on waiting, so {gpus} {are} kept for it: no other job "
        "starts on them that is likely to keep it waiting"
    ),
    Reason.SHORTER_JOB_WAITING: "stopped in favour of {blocker}, which has less left to do",
    Reason.MORE_SERVICE_ATTAINED: (
        "stopped in favour of {blocker}: it has had more GPU-time than those that wait"
    ),
    Reason.PROFILING_SLOT: (
        "runs for at most {limit} s on a node set aside for profiling, to measure how it uses a GPU"
    ),
    Reason.PROFILE_COMPLETE: (
        "its use of a GPU has been measured (its profile); it joins the queue of its virtual "
        "cluster"
    ),
    Reason.PROFILING_SKIPPED: (
        "joins its queue without being profiled: too large for that (limit {limit} GPUs)"
    ),
    Reason.PROFILING_BACKLOG: (
        "{position} jobs wait to be profiled: a node of the virtual cluster is lent for that"
    ),
    Reason.PROFILING_IDLE: (
        "few jobs wait to be profiled: the lent node goes back to its virtual cluster"
    ),
    Reason.NODE_MISSED: (
        "the first job in line lacks {gpus} that are lent for profiling: the node goes back"
    ),
    Reason.NODE_SPARED: "its virtual cluster can spare the node again: it is lent for profiling",
    Reason.NODE_IDLE: "no job is left on the node: the change an operator asked for is made",
    Reason.SUBMITTED: "joined the queue",
    Reason.REQUEST_CHANGED: "its request was changed; what it had waited before still counts",
    Reason.RELEASED: "was released, and is back in its queue",
    Reason.DEPENDENCY_MET: "the jobs it depends on have ended; it joins its queue",
    Reason.PROFILE_KNOWN: (
        "joins its queue without being profiled: a recent profile of a job of the same name is used"
    ),
    Reason.PROFILING_OPTED_OUT: "joins its queue without being profiled, as its owner asked",
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
        "{gpus} {are} kept for a job ahead that cannot start yet; this one is likely to have ended "
        "by then"
    ),
}

# of a reason in a table or a list; without a comma or an "and", which part the items of a list
_SHORT: dict[str, str] = {
    Reason.INVALID_REQUEST: "asks for more GPUs than there are",
    Reason.NO_MATCHING_GPU_TYPE: "no GPU of the type asked for",
    Reason.HELD_BY_OWNER: "held by its owner",
    Reason.HELD_BY_OPERATOR: "held by an operator",
    Reason.DEPENDENCY_NEVER_MET: "a job that it depends on did not succeed",
    Reason.DEPENDENCY_NOT_MET: "waits for a job that it depends on",
    Reason.ARRAY_LIMIT: "array limit: its other tasks go first",
    Reason.VC_TOO_SMALL: "its virtual cluster is too small",
    Reason.AWAITING_PROFILE: "waiting to be profiled",
    Reason.GPUS_BUSY: "too few GPUs free",
    Reason.GPUS_FRAGMENTED: "free GPUs on too many nodes",
    Reason.NODE_DRAINED: "too many GPUs closed to new jobs",
    Reason.MEMORY_GUARD: "too few GPUs free (too little GPU memory to share)",
    Reason.INTERFERENCE_GUARD: "too few GPUs free (sharing would slow jobs too much)",
    Reason.KEEPS_OTHERS_OUT: "too few GPUs free (sharing would delay jobs ahead)",
    Reason.PRIORITY_RATIO: "too few GPUs free (predicted GPU time too large to share)",
    Reason.SHARING_OPTED_OUT: "too few GPUs free for it alone",
    Reason.RESOURCES_BUSY: "CPUs or memory or nodes not free together",
    Reason.LIMIT_REACHED: "a limit that Slurm sets",
    Reason.BEHIND_HIGHER_PRIORITY: "other jobs go first",
    Reason.RESERVED_FOR_STARVING_JOB: "free GPUs kept for a job that waited too long",
    Reason.WOULD_DELAY_FIRST: "free GPUs kept for the first in line",
    Reason.FASTER_GPUS_SOON: "waiting for faster GPUs ends it sooner",
    Reason.NEXT_ROUND: "next round of decisions not begun",
    Reason.EXCLUSIVE_GPUS: "has GPUs of its own",
    Reason.PARTNER_FOUND: "shares the GPUs of another job",
    Reason.BORROWED: "borrows idle GPUs of another virtual cluster",
    Reason.BACKFILLED: "uses GPUs kept for a job that cannot start yet",
    Reason.WAITED_TOO_LONG: "GPUs kept for it after a long wait",
    Reason.SHORTER_JOB_WAITING: "stopped for a job with less left to do",
    Reason.MORE_SERVICE_ATTAINED: "stopped for a job that had less GPU time",
    Reason.PROFILING_SLOT: "being profiled",
    Reason.PROFILE_COMPLETE: "was profiled",
    Reason.PROFILING_SKIPPED: "too large to be profiled",
    Reason.PROFILE_KNOWN: "profile of its name known",
    Reason.NOT_STARTED: "could not be started",
}


def short_reason(code: str) -> str:
    """Return a reason code in a few words, for a table or a list: "too few GPUs free". Return ""
    for a code that says the same as its name, or that is Slurm's own."""
    return _SHORT.get(code, "")


# used when no single job is to blame
_NAMELESS: dict[Reason, str] = {
    Reason.BEHIND_HIGHER_PRIORITY: "number {position} in line, behind jobs that go first",
    Reason.RESERVED_FOR_STARVING_JOB: (
        "needs {gpus}; {free} of {limit} {free_are} free, but kept for a job that has waited "
        "longer than the bound on waiting"
    ),
    Reason.WOULD_DELAY_FIRST: (
        "needs {gpus}; {free} of {limit} {free_are} free, but kept for the first in line, which "
        "this job could delay"
    ),
}

# used of a job that asks for none
_WITHOUT_GPUS: dict[Reason, str] = {
    Reason.EXCLUSIVE_GPUS: "the CPUs and memory it asks for were free",
}

_NEXT: dict[Reason, str] = {
    Reason.HELD_BY_OWNER: "release it: what it had waited before still counts",
    Reason.HELD_BY_OPERATOR: "ask an operator to release it: only they can",
    Reason.DEPENDENCY_NEVER_MET: (
        'cancel it, or let it start without that job (pellucid change --after "")'
    ),
    Reason.INVALID_REQUEST: "ask for fewer GPUs, or submit to a larger virtual cluster",
    Reason.VC_TOO_SMALL: (
        "ask for fewer GPUs or for another virtual cluster (pellucid change), or ask an operator "
        "to add nodes"
    ),
    Reason.NODE_DRAINED: "it can start when those GPUs are open to jobs again",
    Reason.MEMORY_GUARD: "a smaller batch would let it share a GPU",
    Reason.WOULD_DELAY_FIRST: "a shorter time limit may let it start before that job",
    Reason.SHARING_OPTED_OUT: "allow it to share GPUs: jobs run that it might fit beside",
    Reason.NO_MATCHING_GPU_TYPE: "leave the GPU type out, or submit where there is one",
    Reason.LOST: "see whether it left results behind; submit it again if not",
    Reason.NOT_STARTED: "mend what the detail names, and submit it again",
}


SHARING: dict[Obstacle, str] = {
    Obstacle.PROFILE: "that run is being profiled, or the memory of one of the two is not known",
    Obstacle.BUSY: "GPUs of that run are not for this job to share",
    Obstacle.OWN: "the owner of one of the two does not want it",
    Obstacle.CLOSED: "a node of that run is drained, or a GPU of it is closed",
    Obstacle.KEPT: "GPUs of that run are kept for a waiting job",
    Obstacle.TYPE: "GPUs of that run are not of the type asked for",
    Obstacle.MEMORY: "the memory of GPUs there does not hold both",
}  # every answer of `rules.may_share`, in words

NOT_EXAMINED: dict[NotExamined, str] = {
    NotExamined.NO_PAIR_PREDICTOR: "sharing GPUs: nothing predicts how two jobs would run together",
    NotExamined.EXCLUSIVE: "sharing GPUs: this cluster does not do that",
    NotExamined.UNMEASURED: (
        "sharing GPUs: nobody measured jobs that share them as this cluster does"
    ),
    NotExamined.PACKING_OFF: "sharing GPUs: none are shared while few jobs are expected",
    NotExamined.TOO_LARGE: "sharing GPUs: jobs as large as this one never do",
    NotExamined.NO_PROFILE: "sharing GPUs: it has not been profiled (measured in a short run)",
    NotExamined.SEARCHES_SPENT: (
        "sharing GPUs: in its last round the scheduler had time for other jobs only"
    ),
}
