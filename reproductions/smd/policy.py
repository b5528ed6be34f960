"""SMD (INFOCOM'21) on all-reduce training: which jobs to admit, and on how many GPUs.

This is a reconstruction. The paper admits jobs of workers and parameter servers by a knapsack of
their utilities (`outer`), each with the numbers of tasks that make it fastest within its limit.
Without parameter servers, that is the fastest number of GPUs up to the number asked for. The
knapsack may also be offered smaller numbers, of which it takes at most one per job. An admitted job
keeps its GPUs to its end: SMD is not elastic.
"""

from __future__ import annotations

import numpy as np

from reproductions.allocation.allocation import free_gpus, on_freest
from reproductions.allocation.placement import consolidated
from reproductions.allocation.policy import (
    ActiveJob,
    AllocationPolicy,
    Assignment,
    Capability,
    DecisionInput,
    Grant,
)
from reproductions.allocation.statistics import (
    MOST_GPUS,
    REMAINING_STEPS,
    STEP_TIMES,
    StepTimeOracle,
)
from reproductions.smd.outer import Knapsack, Selection, select
from reproductions.smd.utility import Utility
from scheduler.core.decisions import Reason
from scheduler.core.settings import PolicySettings, setting


class SmdSettings(PolicySettings):
    """Settings of `smd`. The utility is the same for every job, as the traces name none."""

    worth: float = setting(1.0, "most that completing a job can be worth (utility)", gt=0)
    urgency: float = setting(
        1.0,
        "how fast the value of a completed job falls with the time to its completion; 0: not at "
        "all, 4 to 6: like a hard deadline",
        ge=0,
    )
    due: float = setting(
        2.0,
        "time at which a job has lost half of its value, as a multiple of its duration on the GPUs "
        "that it asks for",
        gt=0,
    )
    shares: list[float] = setting(
        [],
        "smaller shares (0 to 1) of the GPUs it asks for that a job may be given; none: only all",
    )


class Smd(AllocationPolicy):
    """A policy that admits jobs by the utility of their completion. It reads the true length of a
    job, so it is only for comparison.
    """

    Settings = SmdSettings
    name = "smd"
    round_s = 60.0
    changes = frozenset({Capability.GPUS})
    needs = (STEP_TIMES, REMAINING_STEPS, MOST_GPUS)

    def __init__(self, settings: SmdSettings | None = None, *, seed: int = 0):
        super().__init__(settings, seed=seed)
        given = settings or SmdSettings()
        self.utility = Utility(given.worth, given.urgency, given.due)
        self.shares = given.shares

    def allocate(self, snapshot: DecisionInput) -> Assignment:
        running = {job.id: job.allocation for job in snapshot.jobs if job.allocation is not None}
        grants = {job_id: Grant(allocation, Reason.GAIN) for job_id, allocation in running.items()}
        waiting = [job for job in snapshot.jobs if job.id not in running]
        free = free_gpus(snapshot.nodes, running.values())
        if not waiting:
            return grants
        offers, problem = self._problem(waiting, free, snapshot)
        found = select(problem)
        worth = dict(zip(offers, problem.values.tolist(), strict=True))
        for index, gpus in sorted((offers[i] for i in found.chosen), key=lambda o: -o[1]):
            evidence = (
                ("utility", worth[index, gpus]),
                ("price of a GPU", found.prices[0]),
            )
            grants[waiting[index].id] = Grant(on_freest(free, gpus), Reason.GAIN, evidence)
        for i, job in enumerate(waiting):
            if job.id not in grants:
                grants[job.id] = self._waits(i, worth, found, sum(free))
        return grants

    def _waits(
        self, job: int, worth: dict[tuple[int, int], float], found: Selection, free: int
    ) -> Grant:
        mine = {gpus: value for (owner, gpus), value in worth.items() if owner == job}
        if not mine:
            return Grant(None, Reason.GPUS_BUSY, (("free", float(free)),))
        gpus = max(mine, key=lambda k: mine[k])
        evidence = (("utility", mine[gpus]), ("price of a GPU", found.prices[0]))
        return Grant(None, Reason.NO_GAIN, evidence)

    def _problem(
        self, waiting: list[ActiveJob], free: list[int], snapshot: DecisionInput
    ) -> tuple[list[tuple[int, int]], Knapsack]:
        """Return the choices, as (index of a job in `waiting`, GPUs), and the knapsack of these
        choices.
        """
        total = sum(free)
        node_gpus = max(node.gpus for node in snapshot.nodes)
        there = sum(node.gpus for node in snapshot.nodes)
        offers, values = [], []
        for i, job in enumerate(waiting):
            most = max(job.report(MOST_GPUS), 1)
            times, steps = job.report(STEP_TIMES), job.report(REMAINING_STEPS)
            limit = min(job.job.gpus, most, there)  # more would be waited for without end
            seconds = {k: steps * _step_s(times, k, node_gpus) for k in range(1, limit + 1)}
            usual_s = min(seconds.values())
            best = min(seconds, key=lambda k: seconds[k])
            for gpus in sorted({best, *(max(round(best * s), 1) for s in self.shares)}):
                if gpus <= total:
                    offers.append((i, gpus))
                    done_s = job.age_s(snapshot.now) + seconds[gpus]
                    values.append(self.utility(done_s / usual_s))
        weights = np.array([[float(gpus)] for _, gpus in offers]).reshape(-1, 1)
        owners = np.array([i for i, _ in offers], dtype=np.int64)
        return offers, Knapsack(np.array(values), weights, np.array([float(total)]), owners)


def _step_s(times: StepTimeOracle, gpus: int, node_gpus: int) -> float:
    """Return the seconds of a parameter update on so many GPUs, on as few nodes of `node_gpus` as
    possible.
    """
    batch = times.batch(gpus)
    step, sync = times.step_times(consolidated(gpus, node_gpus), batch.per_gpu)
    return step + batch.accumulation * (step - sync)
