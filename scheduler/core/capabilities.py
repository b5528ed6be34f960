"""What a policy declares that it can do. The core checks that the policy keeps to it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a policy can do, and what it needs from the core.

    Attributes:
        preemptive: the policy may stop a running job.
        restarts: a job that the policy stopped loses its work, and begins again from nothing.
        oracle: the policy reads true durations (`Turn.oracle`). It is not ranked with the others.
        twin: the policy imitates another scheduler (Slurm), with the nodes and jobs that Slurm has.
        keeps_priorities: the policy orders jobs by the priorities of the scheduler whose cluster it
            advises on.
        by_limits: the policy decides by time limits: it assumes that each job runs as long as its
            limit allows.
        profiles: the policy wants a profiling stage in front of the queues.
        profiles_waiting: the stage profiles only jobs that have to wait, instead of every job
            first.
        watches_runs: the policy learns the profile of a job while the job runs on GPUs of its own.
        watch_s: where there is no profiling stage, seconds that a job runs alone until its profile
            is taken; None: it is never taken.
        pace_s: seconds that two jobs share GPUs until `pair_speed_observed` is called; None: it is
            never called.
        packs: the policy may put two jobs on one GPU.
        packs_narrower: the policy may put a job on some of the GPUs of a run that has more.
        own_pairs: the policy judges pairs of jobs by itself, and asks no pair predictor.
        borrows: the policy starts jobs on idle GPUs of other virtual clusters.
        estimates: the policy asks the estimator for durations.
        places_cpus: the policy also starts jobs that ask for no GPU.
        mixes_types: the policy can place jobs on a cluster with several types of GPU.
        memory_margin_mib: memory of a GPU that the two jobs of a pair must leave free, MiB.
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
