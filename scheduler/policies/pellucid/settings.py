"""The settings of the policy `pellucid`. What each part is for is in `docs/policy.md`."""

from __future__ import annotations

from typing import ClassVar, Literal

from scheduler.core.settings import PolicySettings, Settings, SharingRules, Weight, setting

DAY_S = 86_400.0


class Borrowing(Settings):
    """Terms on which idle GPUs of other virtual clusters are used."""

    lend_s: float | None = setting(
        None, "a borrower must be predicted to be gone within so long; null: no limit",
        unit="s", ge=0,
    )  # fmt: skip
    quantile: float = setting(
        0.9, "quantile of its predicted duration that must be within `lend_s`", gt=0, le=1
    )
    reserve_nodes: int = setting(0, "wholly idle nodes that every lender keeps", unit="nodes", ge=0)
    scarce_below: float = setting(
        0.05, "share of all GPUs: while more are free, no job is packed or profiled first",
        ge=0, le=1,
    )  # fmt: skip


class FairShare(Settings):
    """Shares by user, and by virtual cluster where they borrow. Usage counts less the older it
    is.
    """

    weight: float = setting(
        0.0, "how far a user who has had more than its due is put back; 0: off", ge=0, le=1
    )
    half_life_s: float = setting(7 * DAY_S, "usage counts half after so long", unit="s", gt=0)
    users: dict[str, Weight] = setting(
        {}, "weight of a user within its virtual cluster; 1 for those not named"
    )
    vcs: dict[str, Weight] = setting({}, "weight of a virtual cluster; 1 for those not named")


class GpuTypes(Settings):
    """Where a job goes on a cluster whose nodes differ."""

    speeds: dict[str, Weight] = setting(
        {}, "speed of each GPU type over that which durations are counted on; none: all alike"
    )
    counted_on: str | None = setting(
        None,
        "GPU type that durations are counted on; with it, a bundle that holds a model of GPU"
        " types says how fast each job runs on the types it knows",
    )
    wait_for_faster: bool = setting(
        True, "a job waits for better GPUs where that is predicted to end it sooner"
    )


class PellucidSettings(PolicySettings):
    """Settings of `pellucid`."""

    retired: ClassVar[frozenset[str]] = frozenset({"counted_s", "long_s"})

    ageing: float = setting(
        0.05, "predicted duration that a job is forgiven per second it waits", unit="s/s", ge=0
    )
    gpu_exponent: float = setting(
        0.5,
        "in the order a predicted duration counts times GPUs to this power: 0: GPUs do not matter,"
        " 1: GPU-time",
        ge=0,
        le=2,
    )
    order_by: Literal["mean", "predicted"] = setting(
        "mean",
        "which duration counts in the order: the `mean` of the job's own curve, where it has one, "
        "or the one number `predicted`",
    )
    max_wait_s: float = setting(
        2 * DAY_S,
        "a job that has waited longer goes before all others, oldest first, and GPUs are reserved "
        "for it, if `price` allows",
        unit="s",
        ge=0,
    )
    overload: float = setting(
        1.0,
        "where demand exceeds so many times the capacity, `max_wait_s` is longer in proportion",
        ge=1,
    )
    backfill: float = setting(
        1.0,
        "for so many times its bound more, GPUs that are reserved for a job go to others that are"
        " likely to be gone before it can start; 0: never",
        ge=0,
    )
    price: float = setting(
        0.1,
        "for `backfill` times its bound more, a job past it goes first only if the waiting that "
        "this is predicted to cause the others, in sum, is at most so many times what it has "
        "waited",
        ge=0,
    )
    hold_price: float = setting(
        1.0,
        "what GPUs held by a pair, or by a job past its bound, cost those who wait counts so many"
        " times; 0: nobody counts it",
        ge=0,
    )
    pack_first_above: float | None = setting(
        1.8,
        "a pair whose predicted speeds sum to this is made even when the newcomer could have GPUs "
        "of its own; null: only when it could not",
        ge=0,
        le=2,
    )
    pack_narrower: bool = setting(False, "a job may share some of the GPUs of a run that has more")
    predict_again_s: float = setting(
        3600.0,
        "how often the waiting jobs of a virtual cluster are predicted again, all at once, while "
        "they hold more predicted work than it does in that time; 0: never",
        unit="s",
        ge=0,
    )
    busy_above: float = setting(
        0.85,
        "share of the GPUs that is asked for, from which on jobs that could start are packed, or "
        "profiled first",
        ge=0,
    )
    profile_above: float = setting(
        0.3,
        "a job predicted to run longer than so many times what profiling takes is profiled before "
        "it starts",
        ge=0,
    )
    partner_searches: int = setting(
        16, "waiting jobs that are matched with partners in one turn", unit="jobs", ge=0
    )
    learns_speeds: bool = setting(
        True,
        "predicted pair speeds are corrected by those of pairs that ran: on GPUs of this host of"
        " jobs that report their progress; without effect under Slurm",
    )
    sharing: SharingRules = setting(SharingRules(), "which jobs may share GPUs")
    fairness: FairShare = setting(FairShare(), "shares by user and virtual cluster")
    borrowing: Borrowing | None = setting(
        None, "use idle GPUs of virtual clusters without waiting jobs; null: each keeps its own"
    )
    gpu_types: GpuTypes = setting(GpuTypes(), "placement where GPU types differ")
