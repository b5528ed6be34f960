"""The reference of reasons: docs/reasons.md is written from here and from the enum.

python -m scheduler.explain.reasons > docs/reasons.md
"""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.core.decisions import Action, Decision, Reason

WAIT, REFUSED, DONE = "of a job that waits", "of a job that is refused", "of what was done"
LEFT, ALLOCATED = "of a job that leaves without having ended", "of policies that hand out shares"
RETIRED = "that no policy gives any more, read from earlier logs"


@dataclass(frozen=True, slots=True)
class Entry:
    """What is to be known of a reason beside its own sentence.

    Attributes:
        kind: of which decisions.
        implies: what follows from it for the job.
        slurm, kueue: the nearest reason there; "" = there is none.
    """

    kind: str
    implies: str
    slurm: str = ""
    kueue: str = ""


R = Reason
ENTRIES: dict[Reason, Entry] = {
    R.INVALID_REQUEST: Entry(
        REFUSED, "It can never run here as it is.", "PartitionNodeLimit", "ExceedsMaxQuota"
    ),
    R.NO_MATCHING_GPU_TYPE: Entry(
        REFUSED, "It can never run here as it is.", "BadConstraints", "NoMatchingFlavor"
    ),
    R.AWAITING_PROFILE: Entry(
        WAIT, "It joins its queue when a profiling run of a few minutes is over.", "",
        "AdmissionGated",
    ),
    R.GPUS_BUSY: Entry(
        WAIT, "It starts when enough running jobs have ended.", "Resources", "WaitingForQuota"
    ),
    R.GPUS_FRAGMENTED: Entry(
        WAIT, "There are enough free GPUs, but not together: it takes as few nodes as can be.",
        "Resources", "TopologyPlacementFailed",
    ),
    R.NODE_DRAINED: Entry(
        WAIT, "It starts when an operator opens nodes again, or running jobs end on others.",
        "ReqNodeNotAvail", "WaitingForQuota",
    ),
    R.HELD_BY_OWNER: Entry(
        WAIT, "It starts when its owner or an operator has released it. Meanwhile nobody waits "
        "behind it, and the time counts as no waiting.", "JobHeldUser", "Deactivated",
    ),
    R.HELD_BY_OPERATOR: Entry(
        WAIT, "It starts when an operator has released it. Meanwhile nobody waits behind it, and "
        "the time counts as no waiting.", "JobHeldAdmin", "Deactivated",
    ),
    R.VC_TOO_SMALL: Entry(
        WAIT, "It can start when the virtual cluster has grown again, or with fewer GPUs.",
        "PartitionNodeLimit", "ExceedsMaxQuota",
    ),
    R.MEMORY_GUARD: Entry(
        WAIT, "Sharing is ruled out by memory: a rule, not a prediction. GPUs of its own are busy.",
        "Resources", "WaitingForQuota",
    ),
    R.INTERFERENCE_GUARD: Entry(
        WAIT, "It may share, and no partner is worth it now. GPUs of its own are busy.",
        "Resources", "WaitingForQuota",
    ),
    R.PRIORITY_RATIO: Entry(
        WAIT, "Policy `lucid`: sharing with that run is ruled out; GPUs of its own are busy.",
        "Resources", "WaitingForQuota",
    ),
    R.SHARING_OPTED_OUT: Entry(
        WAIT, "It waits for GPUs of its own while others run that it might share with.",
        "Resources", "WaitingForQuota",
    ),
    R.BEHIND_HIGHER_PRIORITY: Entry(
        WAIT, "Its turn has not come; placements for it were not examined.", "Priority",
        "PendingEvaluation",
    ),
    R.RESERVED_FOR_STARVING_JOB: Entry(
        WAIT, "GPUs that are free are kept for a job that has waited longer than the bound.",
        "Reservation", "WaitingForQuota",
    ),
    R.WOULD_DELAY_FIRST: Entry(
        WAIT, "By its time limit it might still run when the first in line could start.",
        "Priority", "WaitingForQuota",
    ),
    R.FASTER_GPUS_SOON: Entry(WAIT, "It could start now and would end later.", "", ""),
    R.NEXT_ROUND: Entry(WAIT, "It is looked at when the next round begins.", "None",
                        "PendingEvaluation"),
    R.NOT_YET_EVALUATED: Entry(WAIT, "The next pass looks at it, within seconds.", "None",
                               "PendingEvaluation"),
    R.EXCLUSIVE_GPUS: Entry(DONE, "It runs at full speed."),
    R.PARTNER_FOUND: Entry(DONE, "Both run more slowly than alone, as predicted beside it."),
    R.BORROWED: Entry(DONE, "It runs on GPUs of others, who may wait for them meanwhile."),
    R.WAITED_TOO_LONG: Entry(DONE, "It waits for nobody but the jobs running there already."),
    R.SHORTER_JOB_WAITING: Entry(DONE, "It goes back into its queue.", "", "Preempted"),
    R.MORE_SERVICE_ATTAINED: Entry(DONE, "It goes back into its queue.", "", "Preempted"),
    R.PROFILING_SLOT: Entry(DONE, "It runs for a few minutes and is measured."),
    R.PROFILE_COMPLETE: Entry(DONE, "It may be placed, alone or beside another."),
    R.PROFILING_SKIPPED: Entry(DONE, "It may be placed, and cannot share from its start."),
    R.PROFILING_BACKLOG: Entry(DONE, "The virtual cluster has a node less for a while."),
    R.PROFILING_IDLE: Entry(DONE, "The virtual cluster has its node again."),
    R.SUBMITTED: Entry(DONE, "It may be placed from now on.", "None", "PendingEvaluation"),
    R.REQUEST_CHANGED: Entry(DONE, "It waits as what it is now; what it waited before counts."),
    R.RELEASED: Entry(DONE, "It may be placed; the time it was held is no waiting."),
    R.PROFILING_OPTED_OUT: Entry(DONE, "It may be placed, and cannot share from its start."),
    R.PROFILE_KNOWN: Entry(DONE, "It may be placed, alone or beside another."),
    R.NODE_IDLE: Entry(DONE, "A node changed as an operator had asked."),
    R.CANCELLED: Entry(LEFT, "It is over.", "", "Deactivated"),
    R.NOT_STARTED: Entry(LEFT, "It is over and did nothing.", "JobLaunchFailure", ""),
    R.LOST: Entry(LEFT, "It is over; it may have done part of its work.", "NodeFail", ""),
    R.GAIN: Entry(ALLOCATED, "Its GPUs were given or changed."),
    R.NO_GAIN: Entry(ALLOCATED, "It waits, or keeps what it has.", "Resources", "WaitingForQuota"),
    R.FAIR_SHARE: Entry(ALLOCATED, "It was given GPUs."),
    R.SHARE_USED: Entry(
        ALLOCATED, "It waits until others have had their share.", "Priority", "WaitingForQuota"
    ),
    R.PRIORITY: Entry(ALLOCATED, "It was given GPUs."),
    R.BATCH_CHOICE: Entry(ALLOCATED, "It goes on where it is with another batch size."),
    R.INFEASIBLE: Entry(ALLOCATED, "It waits until less is asked for.", "Resources",
                        "WaitingForQuota"),
    R.NO_STATISTICS: Entry(ALLOCATED, "It is placed as it asks, and never resized."),
    R.KEPT_FREE: Entry(RETIRED, "It waited while GPUs were kept free for short jobs."),
    R.BACKFILLED: Entry(RETIRED, "It ran on GPUs that were kept for another job."),
}  # fmt: skip

_EVIDENCE = {
    "gpus": "GPUs asked for", "free": "GPUs free", "limit": "GPUs there (or the limit named)",
    "position": "place in line", "blocker": "the job in the way", "partner": "its partner",
}  # fmt: skip
_HEAD = """# Reasons

Every decision carries one of these codes. Commands and pages say the sentence; `--codes` and JSON
show the code. They are listed in their order of precedence: of several that hold, the first is
told. The nearest reasons of Slurm (`squeue`'s REASON) and of Kueue (KEP-10852) are a help for those
who come from there, not an equivalence.

A wait also records whom it was for (`held_by`): the job ahead, the one GPUs are kept for, or the
runs that should free enough of them soonest. What is in the way *now*, tried on a copy of the core,
is said by `pellucid why`.

This page is written by `python -m scheduler.explain.reasons`; a test compares.
"""


def markdown() -> str:
    """The page."""
    parts = [_HEAD]
    for kind in (REFUSED, WAIT, DONE, LEFT, ALLOCATED, RETIRED):
        parts.append(f"\n## Reasons {kind}\n")
        parts += [_entry(reason) for reason in Reason if ENTRIES[reason].kind == kind]
    return "".join(parts)


def _entry(reason: Reason) -> str:
    entry = ENTRIES[reason]
    lines = [f"\n### {reason.value}\n", f"\n{_sentence(reason)}\n"]
    evidence = _evidence(reason, entry)
    rows = [
        ("Evidence", ", ".join(evidence)),
        ("Implies", entry.implies),
        ("Next step", _step(reason, entry)),
        ("Slurm", f"`{entry.slurm}`" if entry.slurm else "none"),
        ("Kueue", f"`{entry.kueue}`" if entry.kueue else "none"),
    ]
    return "".join([*lines, "\n", *(f"- {name}: {text}\n" for name, text in rows if text)])


def _shape(reason: Reason) -> str:
    """Its sentence with the names of its numbers."""
    d = Decision(0, 0.0, Action.WAIT, reason, "", "", partner="PARTNER", blocker="BLOCKER",
                 need=987_651, free=987_652, limit=987_653, position=987_654)  # fmt: skip
    return reason.summary(d)


_SHOWN = (
    ("987651 GPUs", "N GPUs"), ("987652", "F"), ("987653", "L"), ("987654", "P"),
    ("job BLOCKER", "another job"), ("job PARTNER", "another job"),
)  # fmt: skip


def _sentence(reason: Reason) -> str:
    text = _shape(reason)
    for given, shown in _SHOWN:
        text = text.replace(given, shown)
    return text[0].upper() + text[1:] + "."


def _evidence(reason: Reason, entry: Entry) -> list[str]:
    """What is recorded with it: the numbers of its sentence, and whom a wait was for."""
    text = _shape(reason)
    marks = {"gpus": "987651", "free": "987652", "limit": "987653", "position": "987654",
             "blocker": "BLOCKER", "partner": "PARTNER"}  # fmt: skip
    found = [_EVIDENCE[name] for name, mark in marks.items() if mark in text]
    return [*found, "whom it waits for"] if entry.kind == WAIT else found


def _step(reason: Reason, entry: Entry) -> str:
    step = reason.next_step()
    if step:
        return f"{step[0].upper()}{step[1:]}."
    return "See what is in the way with `pellucid why`." if entry.kind == WAIT else ""


if __name__ == "__main__":
    print(markdown(), end="")
