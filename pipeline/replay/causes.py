"""Finds out why a job waited, from the reason that Slurm recorded (sacct's column Reason).

Slurm records the last reason other than Priority and Resources. Without one, a job waited for
resources that other jobs had, or for its turn (https://slurm.schedmd.com/sacct.html).
"""

from __future__ import annotations

import re

CAPACITY, LIMIT, DEPENDENCY, HOLD, NODES = "capacity", "limit", "dependency", "hold", "nodes"

# in the order of a page; what each is called
WORDS = {
    CAPACITY: "GPUs that others had, or their turn",
    LIMIT: "a limit (of a QOS, an account, a partition, licences)",
    DEPENDENCY: "another job",
    HOLD: "a hold, a begin time, a failed launch",
    NODES: "nodes or a partition that were down or reserved",
}

# searched for, in this order
_PATTERNS = (
    (LIMIT, re.compile(r"\A(?:QOS|Assoc|MaxJobs|Licen[sc]es|Invalid(?:QOS|Account))|Limits?\b")),
    (DEPENDENCY, re.compile(r"\ADependency")),
    (
        HOLD,
        re.compile(
            r"\A(?:JobHeld|BeginTime|JobLaunchFailure|launch failed|AdminHold|UserHold|Prolog"
            r"|Cleaning)"
        ),
    ),
    (
        NODES,
        re.compile(r"\A(?:Reserv|ReqNodeNotAvail|Node|Partition|BadConstraints|Front)|Down"),
    ),
)


def cause_of(reason: str, *, eligible_later: bool = False) -> str:
    """Return the cause of a job's wait, such as CAPACITY. An unknown reason counts as HOLD,
    never as lack of capacity.

    Args:
        reason: the text in sacct's column Reason.
        eligible_later: whether its wait is counted from the time when it was eligible to start.
            Then reasons that only kept it from being eligible (dependency, hold, begin time) do not
            count.
    """
    text = reason.strip()
    if text in ("", "None", "Priority", "Resources", "Unknown"):
        return CAPACITY
    if eligible_later and re.match(r"Dependency|JobHeld|BeginTime", text):
        return CAPACITY
    return next((cause for cause, known in _PATTERNS if known.search(text)), HOLD)
