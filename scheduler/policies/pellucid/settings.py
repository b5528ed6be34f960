"""The settings of the policy `pellucid`. What each part is for is in `docs/policy.md`."""

from __future__ import annotations

from typing import ClassVar, Literal

from scheduler.core.settings import PolicySettings, Settings, SharingRules, Weight, setting

DAY_S = 86_400.0


class Borrowing(Settings):
    """Terms on which idle GPUs of other virtual clusters are used."""

    lend_s: float | None = setting(
        None,
        "a job may borrow only if it is predicted to end within this time; null: no limit",
        unit="s",
        ge=0,
    )
    quantile: float = setting(
        0.9,
        "how sure it must be that a job which borrows ends within `lend_s`; 0.9: nine in ten such "
        "jobs do",
        gt=0,
        le=1,
    )
    reserve_nodes: int = setting(
        0, "idle nodes that each virtual cluster keeps for its own jobs", unit="nodes", ge=0
    )
    scarce_below: float = setting(
        0.05,
        "while more than this share of all GPUs of the cluster is free, GPUs do not count as "
        "scarce (see `busy_above`)",
        ge=0,
        le=1,
    )


class FairShare(Settings):
    """Shares by user, and by virtual cluster where they borrow. Usage counts less the older it
    is.
    """

    weight: float = setting(
        0.0,
        "how far jobs of users who had more than their fair share go back in the order, in days of "
        "predicted duration for a user who had all of the GPU-time in place of none; 0: not at "
        "all",
        ge=0,
        le=1,
    )
    half_life_s: float = setting(
        7 * DAY_S, "time after which past use of GPUs counts half", unit="s", gt=0
    )
    users: dict[str, Weight] = setting(
        {},
        "weights of users for the fair shares within their virtual cluster; 1 for users not named",
    )
    vcs: dict[str, Weight] = setting(
        {}, "weights of virtual clusters for the fair shares among them; 1 for those not named"
    )


class GpuTypes(Settings):
    """Where a job goes on a cluster whose nodes differ."""

    speeds: dict[str, Weight] = setting(
        {},
        "speed of each GPU type, divided by that of the type for which durations are predicted; "
        "none given: all are equally fast",
    )
    counted_on: str | None = setting(
        None,
        "GPU type for which durations are predicted; if given, the models of GPU types (`pellucid "
        "train --gpu-rates`) predict how fast each job runs on other types",
    )
    wait_for_faster: bool = setting(
        True, "a job waits for faster GPUs if it is predicted to end sooner that way"
    )


class PellucidSettings(PolicySettings):
    """Settings of `pellucid`."""

    retired: ClassVar[frozenset[str]] = frozenset({"counted_s", "long_s"})

    ageing: float = setting(
        0.05,
        "seconds that are taken off a job's predicted duration in the order, for each second that "
        "it waits",
        unit="s/s",
        ge=0,
    )
    gpu_exponent: float = setting(
        0.5,
        "in the order, a job's predicted duration is multiplied by its number of GPUs to this "
        "power; 0: by 1, 1: GPU-time",
        ge=0,
        le=2,
    )
    order_by: Literal["mean", "predicted", "submitted"] = setting(
        "mean",
        "which duration counts in the order: `mean`, the average over the job's predicted "
        "distribution of durations, in which a small chance of days counts, or `predicted`, the "
        "single predicted duration; a job without a distribution, or without user, name and "
        "command, counts with the latter; `submitted`: none, jobs go in order of submission",
    )
    keeps_for_first: bool = setting(
        False,
        "GPUs are kept free for the first job in line from the start, and not only once it has "
        "waited beyond `max_wait_s`; unless `backfill` is 0, jobs that are likely to end before it "
        "can start may use them",
    )
    max_wait_s: float = setting(
        2 * DAY_S,
        "the bound on waiting: a job that has waited longer goes before all others, the oldest "
        "first, and GPUs are kept free for it, if `price` allows",
        unit="s",
        ge=0,
    )
    overload: float = setting(
        1.0,
        "while jobs ask for more than this many times the GPUs of their virtual cluster, "
        "`max_wait_s` is longer in proportion",
        ge=1,
    )
    backfill: float = setting(
        1.0,
        "for this many times `max_wait_s` after its bound, GPUs kept free for a job may be used by "
        "jobs that are likely to end before it can start; 0: never",
        ge=0,
    )
    price: float = setting(
        0.1,
        "during the time that `backfill` adds to its bound, a job goes first only if the waiting "
        "that this is predicted to cause to all other jobs is at most this many times what it has "
        "waited itself",
        ge=0,
    )
    hold_price: float = setting(
        1.0,
        "factor on the waiting that a decision is predicted to cause to other jobs (two jobs that "
        "share GPUs hold them longer; a job past its bound goes first), when it is weighed against "
        "the gain; 0: not counted",
        ge=0,
    )
    pack_first_above: float | None = setting(
        1.8,
        "when GPUs are scarce (`busy_above`), a job shares GPUs even though others are free, if "
        "the predicted speeds of both jobs (1: as fast as alone) sum to at least this; null: never",
        ge=0,
        le=2,
    )
    pack_narrower: bool = setting(
        False, "a job may share GPUs with a job that has more GPUs, on some of them"
    )
    predict_again_s: float = setting(
        3600.0,
        "time after which the durations of a virtual cluster's waiting jobs are predicted again, "
        "if these jobs are predicted to need more GPU-time than its GPUs have in that time; 0: "
        "never",
        unit="s",
        ge=0,
    )
    busy_above: float = setting(
        0.85,
        "GPUs are scarce while jobs ask for at least this share of their virtual cluster's GPUs: "
        "then jobs are packed (share GPUs) early or profiled first, though they could start",
        ge=0,
    )
    profile_above: float = setting(
        0.3,
        "when GPUs are scarce (`busy_above`), a job is profiled before it starts if it is "
        "predicted to run longer than this many times the time that profiling takes",
        ge=0,
    )
    partner_searches: int = setting(
        16,
        "largest number of waiting jobs for which a job to share GPUs with is searched in one "
        "round of decisions",
        unit="jobs",
        ge=0,
    )
    learns_speeds: bool = setting(
        True,
        "predicted speeds of jobs that share GPUs are corrected by measured ones: of jobs on this "
        "host that report their progress; not under Slurm",
    )
    sharing: SharingRules = setting(
        SharingRules(), "which jobs may share GPUs, by the settings of this section"
    )
    fairness: FairShare = setting(
        FairShare(),
        "fair shares of users, and of virtual clusters if GPUs are borrowed, by the settings of "
        "this section",
    )
    borrowing: Borrowing | None = setting(
        None,
        "jobs may borrow idle GPUs of other virtual clusters in which no job waits, by the "
        "settings of this section; null: they may not",
    )
    gpu_types: GpuTypes = setting(
        GpuTypes(),
        "which GPU type a job gets if nodes differ in it, by the settings of this section",
    )
