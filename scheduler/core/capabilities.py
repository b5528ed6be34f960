"""What a policy declares of itself. The core checks that it keeps to it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a policy can do and wants.

    Attributes:
        preemptive: may stop a running job.
        restarts: a job that it stopped begins again from nothing.
        oracle: reads the truth (`Turn.oracle`). It is not ranked with the others.
        twin: decides as another scheduler does, for nodes and jobs that stay as they are.
        keeps_priorities: goes by the priorities of the scheduler it stands in front of.
        by_limits: takes jobs to run for as long as their time limits allow.
        profiles: wants a profiling stage in front of the queues.
        profiles_waiting: the stage profiles jobs that have to wait, not at every job first.
        watches_runs: learns the profile of a job while it runs on GPUs of its own.
        watch_s: after so many seconds of it where there is no profiling stage; None = never.
        pace_s: `pair_speed_observed` is called after so many seconds together; None = never.
        packs: may put two jobs on one GPU.
        packs_narrower: may put a job on some of the GPUs of a run that has more.
        own_pairs: judges pairs by itself, and asks no pair predictor.
        borrows: starts jobs on idle GPUs of other virtual clusters.
        estimates: asks the estimator for durations.
        places_cpus: starts jobs that ask for no GPU, too.
        mixes_types: can place on a cluster with several types of GPU.
        memory_margin_mib: memory of a GPU, which the members of a pair must leave free, MiB.
    """

    preemptive: bool = False
    restarts: bool = False
    oracle: bool = False
    twin: bool = False
    keeps_priorities: bool = False
    by_limits: bool = False
    profiles: bool = False
    profiles_waiting: bool = False
    watches_runs: bool = False
    watch_s: float | None = None
    pace_s: float | None = None
    packs: bool = False
    packs_narrower: bool = False
    own_pairs: bool = False
    borrows: bool = False
    estimates: bool = False
    places_cpus: bool = False
    mixes_types: bool = False
    memory_margin_mib: float = 0.0
