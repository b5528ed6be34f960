"""What the policy `slurm` knows of Slurm: one table of settings, flags, limits, options, GRES and
reason codes, made from the manual pages of slurm.conf, sacctmgr, sbatch, gres.conf and squeue.

`pellucid slurm modelled` prints it; what names something as not modelled reads it. A word that it
lacks counts as not modelled.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum


class Known(StrEnum):
    """How the policy treats a setting."""

    MODELLED = "modelled"
    HARMLESS = "taken account of: it changes neither who starts nor when"
    NAMED = "not modelled: named, forecasts stay"
    WITHHELD = "not modelled: named, and jobs that it touches have no forecast"


def _table(**words: str) -> dict[str, Known]:
    return {word: Known[kind.upper()] for kind, some in words.items() for word in some.split()}


PARAMETERS = _table(
    modelled="""
        batch_sched_delay bf_continue bf_interval bf_max_job_test bf_resolution bf_window
        default_queue_depth defer defer_batch sched_interval
    """,
    harmless="""
        allow_zero_lic bb_array_stage_cnt bf_node_space_size bf_yield_interval
        bf_yield_rpc_cnt bf_yield_sleep build_queue_timeout disable_hetjob_steps disable_job_shrink
        enable_hetjob_steps enable_job_state_cache enable_user_top ignore_constraint_validation
        Ignore_NUMA ignore_prefer_validation max_array_tasks max_depend_depth max_rpc_cnt
        max_script_size max_submit_line_size no_backup_scheduling no_env_cache
        nohold_on_prolog_fail permit_job_expansion permit_job_shrink requeue_setup_env_fail
        salloc_wait_nodes sbatch_wait_nodes spec_cores_first step_retry_count step_retry_time
    """,
    named="""
        bf_allow_magnetic_resv bf_busy_nodes bf_hetjob_immediate bf_hetjob_prio
        bf_job_part_count_reserve bf_licenses bf_max_job_array_resv bf_max_job_assoc bf_max_job_part
        bf_max_job_start bf_max_job_user bf_max_job_user_part bf_max_time bf_min_age_reserve
        bf_min_prio_reserve bf_one_resv_per_job bf_running_job_reserve bf_topopt_enable
        bf_topopt_iterations bf_window_linear correspond_after_task_cnt delay_boot extra_constraints
        max_sched_time max_switch_wait pack_serial_at_end partition_job_depth preempt_reorder_count
        preempt_send_user_signal preempt_strict_order preempt_youngest_first reduce_completing_frag
        sched_max_job_start sched_min_interval time_min_as_soft_limit whole_hetjob
    """,
    withheld="assoc_limit_stop",
)
# of slurm.conf, what decides who starts when and can be tried with another value
REPLAYED = (
    "PriorityCalcPeriod", "PriorityDecayHalfLife", "PriorityFavorSmall", "PriorityMaxAge",
    "PriorityType", "PriorityWeightAge", "PriorityWeightAssoc", "PriorityWeightFairShare",
    "PriorityWeightJobSize", "PriorityWeightPartition", "PriorityWeightQOS", "SchedulerType",
)  # fmt: skip
QOS_FLAGS = _table(
    modelled="OverPartQOS",
    harmless="Deleted DenyOnLimit NoDecay Relative RequiresReservation",
    withheld="""
        EnforceUsageThreshold NoReserve PartitionMaxNodes PartitionMinNodes PartitionTimeLimit
        UsageFactorSafe
    """,
)
# of QOS and associations, as sacctmgr has them
LIMITS = _table(
    modelled="""
        GrpJobs GrpJobsAccrue GrpTRES MaxJobs MaxJobsAccrue MaxJobsAccruePA MaxJobsAccruePU
        MaxJobsPA MaxJobsPU MaxTRES MaxTRESMins MaxTRESPA MaxTRESPerNode MaxTRESPU MaxWall MinTRES
    """,
    harmless="GraceTime GrpSubmit MaxSubmit MaxSubmitPA MaxSubmitPU",
    named="LimitFactor MinPrioThreshold UsageThreshold",
    withheld="GrpTRESMins GrpTRESRunMins GrpWall",
)
# of sbatch, beside those that ask for a number of something
OPTIONS = _table(
    modelled="""
        --account --array --begin --constraint --cpus-per-gpu --cpus-per-task --deadline
        --dependency --exclude --exclusive --gpus --gpus-per-node --gpus-per-task --gres --licenses
        --mem --mem-per-cpu --mem-per-gpu --nice --nodelist --nodes --ntasks --ntasks-per-node
        --partition --qos --reservation --time
    """,
    withheld="--contiguous --gres-flags --hint --switches --tres-per-task",
)
# GPUs by type, and what a node has so many of; a part of a GPU takes the whole from others
GRES = _table(modelled="gpu", withheld="mps shard")
_TRES = "Cpu CPU Mem Memory Node GRES License BB Billing Energy Unknown"


def gres(name: str) -> Known:
    """Return how the policy treats a GRES. Those that are only counted are all treated alike."""
    return GRES.get(name.partition(":")[0], Known.MODELLED)


def parameter(name: str) -> Known:
    """Return how the policy treats a word of SchedulerParameters."""
    return PARAMETERS.get(name, Known.NAMED)


# --- reason codes ---------------------------------------------------------------------------------

_LIMIT = re.compile(
    r"(?P<of>QOS|Assoc)?(?P<what>Grp|Max|Min)(?P<tres>[A-Z]?[A-Za-z]+?)"
    r"(?P<minutes>RunMinutes|Minutes)?(?P<per>PerJob|PerNode|PerUser|PerAccount)?"
    r"(?P<end>Limit|NotSatisfied)?"
)
_OF_JOBS = "Jobs SubmitJobs SubmitJob Wall WallDuration"


class Family(StrEnum):
    """The kinds of things that a limit counts."""

    TOGETHER = "what all its jobs have at once"  # GrpTRES, MaxTRESPU, MaxTRESPA, numbers of jobs
    OF_A_JOB = "what one job asks for"  # MaxTRES, MinTRES, MaxTRESPerNode, MaxTRESMins, MaxWall
    MINUTES = "what its jobs have used, or would use by their time limits"  # GrpTRESMins and others
    SUBMITTED = "how many of its jobs may be in the queue"


def family(reason: str) -> Family | None:
    """Return what the limit counts that a reason code names, or None where it names none."""
    match = _LIMIT.fullmatch(reason)
    if match is None or match["tres"] not in [*_TRES.split(), *_OF_JOBS.split()]:
        return None
    of, what, tres, minutes, per, _ = match.groups()
    if of is None and (what != "Max" or per != "PerAccount"):
        return None
    if tres.startswith("Submit"):
        return Family.SUBMITTED
    if what == "Grp" and (minutes or tres == "Wall"):
        return Family.MINUTES
    if what == "Grp" or per in ("PerUser", "PerAccount") or tres == "Jobs":
        return Family.TOGETHER
    return Family.OF_A_JOB


def limit_codes() -> Iterator[str]:
    """Yield the codes of limits that this table was made for, as slurmctld of 22.05 has them."""
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


# What was found of the job explains these
_FOUND = frozenset((
    "None", "Priority", "Resources", "Licenses", "ReqNodeNotAvail", "Dependency",
    "DependencyNeverSatisfied", "BeginTime", "Reservation", "PartitionTimeLimit",
    "PartitionNodeLimit", "PartitionDown", "JobHeldUser", "JobHeldAdmin", "JobArrayTaskLimit",
    "InvalidAccount", "InvalidQOS",
))  # fmt: skip
# What other codes mean that are no limits, from squeue's manual page and slurm.h
CODES: dict[str, str] = {
    "AccountNotAllowed": "its partition does not take its account",
    "AccountingPolicy": "a rule of accounting keeps it, of which Slurm does not say more",
    "AssociationJobLimit": "its association has as many jobs as it may have",
    "AssociationResourceLimit": "its association has as much as it may have",
    "AssociationTimeLimit": "its association has used as much time as it may use",
    "BadConstraints": "no node can do what it asks for; change it or cancel it",
    "BlockFreeAction": "its nodes are being freed",
    "BlockMaxError": "its nodes could not be prepared",
    "BurstBufferOperation": "its burst buffer failed; its user can release it",
    "BurstBufferResources": "not enough of the burst buffer is free",
    "BurstBufferStageIn": "its files are being copied to the burst buffer",
    "Cleaning": "its last run is still being cleaned up: it is begun again after that",
    "DeadLine": "it cannot end by its deadline any more",
    "FedJobLock": "the clusters of its federation decide which of them runs it",
    "FrontEndDown": "no front-end node is up to start it",
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
    "PowerNotAvail": "not enough power is to be had",
    "PowerReserved": "a reservation has the power that it needs",
    "Prolog": "its prolog is running",
    "QOSJobLimit": "its QOS has as many jobs as it may have",
    "QOSNotAllowed": "its partition does not take its QOS",
    "QOSResourceLimit": "its QOS has as much as it may have",
    "QOSTimeLimit": "its QOS has used as much time as it may use",
    "QOSUsageThreshold": "its account has used so much that its QOS does not take it for now",
    "ReservationDeleted": "the reservation that it asked for is gone; it is held",
    "SchedDefer": "it starts when its turn comes, not when it is submitted (defer)",
    "SystemFailure": "Slurm, a file system or the network failed",
    "TimeLimit": "it came to its time limit",
    "WaitingForScheduling": "it was not looked at yet",
}


def lines() -> Iterator[str]:
    """Yield the table, a line each: the word, and how it is treated."""
    of = {
        "SchedulerParameters": PARAMETERS, "QOS flag": QOS_FLAGS, "Limit": LIMITS,
        "sbatch": OPTIONS, "GRES": GRES,
    }  # fmt: skip
    for what, table in of.items():
        yield from (f"{what} {word}: {table[word]}" for word in sorted(table, key=str.lower))
    yield f"GRES any other: {Known.MODELLED}, as so many on a node"
    for code in sorted({*_FOUND, *CODES, *limit_codes()}):
        kind = family(code)
        yield f"Reason {code}: {CODES.get(code) or kind or 'explained by what keeps it'}"
