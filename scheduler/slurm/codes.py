"""The meaning of the codes with which Slurm says why a job waits, after squeue's manual page and
slurm.h."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum

_TRES = "Cpu CPU Mem Memory Node GRES License BB Billing Energy Unknown"
_LIMIT = re.compile(
    r"(?P<of>QOS|Assoc)?(?P<what>Grp|Max|Min)(?P<tres>[A-Z]?[A-Za-z]+?)"
    r"(?P<minutes>RunMinutes|RunMins|Minutes)?(?P<per>PerJob|PerNode|PerUser|PerAccount)?"
    r"(?P<end>Limit|NotSatisfied)?"
)
_OF_JOBS = "Jobs SubmitJobs SubmitJob Wall WallDuration"


class Family(StrEnum):
    """The kinds of resources or jobs that a limit counts."""

    TOGETHER = "what all its jobs have at once"  # GrpTRES, MaxTRESPU, MaxTRESPA, numbers of jobs
    OF_A_JOB = "what one job asks for"  # MaxTRES, MinTRES, MaxTRESPerNode, MaxTRESMins, MaxWall
    # GrpTRESMins, GrpTRESRunMins, MaxTRESRunMinsPU and others
    MINUTES = "what its jobs have used, or would use by their time limits"
    SUBMITTED = "how many of its jobs may be in the queue"


def family(reason: str) -> Family | None:
    """Return what a limit counts, by a reason code that names the counted resource or jobs
    (QOSGrpCpuLimit). Return None for every other code, also for AssociationJobLimit and its like,
    which are in `CODES`."""
    match = _LIMIT.fullmatch(reason)
    if match is None or match["tres"] not in [*_TRES.split(), *_OF_JOBS.split()]:
        return None
    of, what, tres, minutes, per, _ = match.groups()
    of_user = minutes == "RunMins" and per == "PerUser"
    if of is None and (what != "Max" or not (of_user or per == "PerAccount")):
        return None
    if tres.startswith("Submit"):
        return Family.SUBMITTED
    if minutes == "RunMins" or (what == "Grp" and (minutes or tres == "Wall")):
        return Family.MINUTES
    if what == "Grp" or per in ("PerUser", "PerAccount") or tres == "Jobs":
        return Family.TOGETHER
    return Family.OF_A_JOB


def meaning(code: str) -> str:
    """Return the meaning of a reason code by Slurm's manual. Return "" for a code that the findings
    about a job explain better."""
    kind = family(code)
    whose = "a limit of its user, account or QOS on"
    return f"{whose} {kind}" if kind is not None else CODES.get(code, "")


def limit_codes() -> Iterator[str]:
    """Yield the reason codes of limits that slurmctld knows, in releases 22.05 to 26.05."""
    of_minutes = ["CPUMinutesLimit", "CPURunMinutesLimit", "NodeMinutes", "NodeRunMinutes"]
    of_minutes += ["{m}Minutes", "{m}RunMinutes"]
    plain = ["CpuLimit", "JobsLimit", "MemLimit", "NodeLimit", "SubmitJobsLimit", "WallLimit"]
    each = ["Unknown", "Energy", "GRES", "License", "BB", "Billing"]
    many = [f"{one}{end}" for one in each for end in ("", "Minutes", "RunMinutes")]
    for of, m in (("QOS", "Memory"), ("Assoc", "Mem")):
        of_all = (*plain, *of_minutes, *many)
        yield from (f"{of}Grp{one}".format(m=m) for one in of_all)
        yield from (f"{of}Max{one}{end}" for one in each for end in ("PerJob", "MinutesPerJob"))
        yield from (f"{of}Max{one}PerNode" for one in (*each, "Cpu", m) if one != "License")
        yield from (f"{of}Max{m}PerJob", f"{of}Max{m}MinutesPerJob", f"{of}MaxNodeMinutesPerJob")
        yield from (f"{of}MaxCpuPerJobLimit", f"{of}MaxCpuMinutesPerJobLimit")
        yield from (f"{of}MaxNodePerJobLimit", f"{of}MaxWallDurationPerJobLimit")
    yield from (f"QOSMax{one}PerUser" for one in (*each, "Memory"))
    yield from (f"QOSMax{one}PerUserLimit" for one in ("Cpu", "Jobs", "Node", "SubmitJob"))
    yield from (f"QOSMin{one}" for one in (*each, "Memory", "Node", "CpuNotSatisfied"))
    yield from ("AssocMaxJobsLimit", "AssocMaxSubmitJobLimit")
    ends = *each, "Cpu", "Jobs", "Memory", "Node", "SubmitJobs"
    yield from (f"Max{one}PerAccount" for one in ends)
    left = *each, "Cpu", "Memory", "Node"  # not of 22.05
    yield from (f"Max{one}RunMinsPer{of}" for one in left for of in ("User", "Account"))


# Codes of which `family` returns None
CODES: dict[str, str] = {
    "AccountNotAllowed": "its partition does not take its account",
    "AccountingPolicy": "a rule of accounting keeps it, of which Slurm does not say more",
    "AssociationJobLimit": "its association has as many jobs as it may have",
    "AssociationResourceLimit": "its association has as much as it may have",
    "AssociationTimeLimit": "its association has used as much time as it may use",
    "BadConstraints": "no node has what it asks for; change it or cancel it",
    "BlockFreeAction": "its nodes are being freed",
    "BlockMaxError": "its nodes could not be prepared",
    "BurstBufferOperation": "its burst buffer failed; its user can release it",
    "BurstBufferResources": "not enough of the burst buffer is free",
    "BurstBufferStageIn": "its files are being copied to the burst buffer",
    "Cleaning": "its last run is still being cleaned up: it is begun again after that",
    "Constraints": "what it asks for cannot be met for now",
    "DeadLine": "it cannot end by its deadline any more",
    "FedJobLock": "the clusters of its federation are deciding which of them runs it",
    "FrontEndDown": "no front-end node is up to start it",
    "InactiveLimit": "it did nothing for longer than it may",
    "JobHoldMaxRequeue": "it was begun again as often as it may be, and is held",
    "JobLaunchFailure": "it could not be launched, and is held",
    "MaxMemPerLimit": "it asks for more memory than a node or CPU may give (MaxMemPerNode, "
    "MaxMemPerCPU)",
    "NodeDown": "a node that it needs is down",
    "NonZeroExitCode": "it ended with an error",
    "OutOfMemory": "it took more memory than it had",
    "PartitionConfig": "its partition does not take what it asks for (account, QOS, nodes, time)",
    "PartitionInactive": "its partition is inactive: nothing starts in it until an administrator "
    "opens it",
    "PowerNotAvail": "not enough electric power is available",
    "PowerReserved": "a reservation has the electric power that it needs",
    "Prolog": "its prolog is running",
    "QOSJobLimit": "its QOS has as many jobs as it may have",
    "QOSNotAllowed": "its partition does not take its QOS",
    "QOSResourceLimit": "its QOS has as much as it may have",
    "QOSTimeLimit": "its QOS has used as much time as it may use",
    "QOSUsageThreshold": "its account has used so much that its QOS does not take the job for now",
    "RaisedSignal": "a signal ended it",
    "ReservationDeleted": "the reservation that it asked for is gone; it is held",
    "ReservationInvalid": "the reservation that it asked for is not valid; it is held",
    "SchedDefer": "it starts when its turn comes, not when it is submitted (defer)",
    "SystemFailure": "Slurm, a file system or the network failed",
    "TimeLimit": "it came to its time limit",
    "WaitingForScheduling": "Slurm has not considered it yet",
}
