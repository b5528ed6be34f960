"""What the policy `slurm` knows of Slurm: one table of settings, flags, limits, options, generic
resources (GRES) and reason codes. It is made from the manual pages of slurm.conf, sacctmgr, sbatch,
gres.conf and squeue.

`pellucid slurm modelled` prints the table, and the search for features that are not modelled uses
it. A word that is not in it counts as not modelled, except a GRES, which is counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from scheduler.slurm.codes import CODES, family, limit_codes


class Known(StrEnum):
    """How the policy `slurm` treats a setting or feature of Slurm."""

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
        bf_allow_magnetic_slot bf_busy_nodes bf_hetjob_immediate bf_hetjob_prio
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
    harmless="Deleted DenyOnLimit NoDecay RequiresReservation",
    withheld="""
        EnforceUsageThreshold NoReserve PartitionMaxNodes PartitionMinNodes PartitionTimeLimit
        Relative UsageFactorSafe
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
    withheld="GrpTRESMins GrpTRESRunMins GrpWall MaxTRESRunMinsPA MaxTRESRunMinsPU",
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


def gres(name: str) -> Known:
    """Return how the policy treats a GRES (generic resource). One that is not in the table is only
    counted, and so is modelled."""
    return GRES.get(name.partition(":")[0], Known.MODELLED)


def parameter(name: str) -> Known:
    """Return how the policy treats a word of SchedulerParameters; `NAMED` for an unknown one."""
    return PARAMETERS.get(name, Known.NAMED)


# Reason codes that what was found of the job explains
_FOUND = frozenset((
    "None", "Priority", "Resources", "Licenses", "ReqNodeNotAvail", "Dependency",
    "DependencyNeverSatisfied", "BeginTime", "Reservation", "PartitionTimeLimit",
    "PartitionNodeLimit", "PartitionDown", "JobHeldUser", "JobHeldAdmin", "JobArrayTaskLimit",
    "InvalidAccount", "InvalidQOS",
))  # fmt: skip


def lines() -> Iterator[str]:
    """Yield the table as lines: each word, and how it is treated."""
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
