"""Gavel's policies, one class each; each computes the jobs' shares of time in its own way."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reproductions.allocation.policy import ActiveJob, Capability
from reproductions.allocation.statistics import REMAINING_STEPS
from reproductions.allocation.throughputs import TERMS, THROUGHPUTS
from reproductions.gavel import goals, heuristics
from reproductions.gavel.goals import Entity, Within
from reproductions.gavel.policy import GavelPolicy, GavelSettings, Plan, View
from reproductions.gavel.sharing import merged, optimum
from scheduler.core.decisions import Reason
from scheduler.core.settings import Weight, setting

SHARING = frozenset({Capability.TYPE, Capability.PREEMPT, Capability.SHARE})


class LeastAttainedService(GavelPolicy):
    """Max-min fairness of throughputs relative to proportional shares, with GPU types
    distinguished.

    Identical jobs are merged before the program is solved.
    """

    name = "gavel-las"

    def plan(self, view: View) -> Plan:
        small, row = merged(view.problem)
        best = goals.refined(small, goals.least_attained_service(small))
        return Plan.of_program(view, best, row)


class PackedLeastAttainedService(LeastAttainedService):
    """Max-min fairness of throughputs relative to proportional shares, where two jobs may share
    GPUs.
    """

    name = "gavel-las-packed"
    changes = SHARING


class BlindLeastAttainedService(GavelPolicy):
    """Max-min fairness of a policy that treats all GPU types as equal.

    Each job's time is then spread over the types in proportion to their numbers of GPUs, which this
    policy cannot tell from any other optimum.
    """

    name = "gavel-las-agnostic"
    blind = True

    def plan(self, view: View) -> Plan:
        best = goals.refined(view.problem, goals.least_attained_service(view.problem))
        spread = view.problem.capacity / view.problem.capacity.sum()
        return Plan.of(view, ((i, -1, x * spread) for i, x in enumerate(best.throughput)))


class Makespan(GavelPolicy):
    """A policy that minimises the time until all jobs are done. With `as_published`, it takes the
    first optimum that the solver finds; otherwise the one that `goals.refined` returns.
    """

    name = "gavel-makespan"
    needs = (THROUGHPUTS, TERMS, REMAINING_STEPS)
    reason = Reason.GAIN

    def plan(self, view: View) -> Plan:
        goal = goals.makespan(view.problem, view.remaining())
        solved = optimum if self.as_published else goals.refined
        best = solved(view.problem, goal)
        plan = Plan.of_program(view, best)
        makespan = ("all done after s", 1 / best.level)
        plan.evidence = {job: (*told, makespan) for job, told in plan.evidence.items()}
        return plan


class PackedMakespan(Makespan):
    """A policy that minimises the time until all jobs are done, where two jobs may share GPUs."""

    name = "gavel-makespan-packed"
    changes = SHARING


class FinishTimeFairness(GavelPolicy):
    """A policy that minimises the largest ratio of a job's completion time to its completion time
    on an n-th of the cluster.
    """

    name = "gavel-ftf"
    needs = (THROUGHPUTS, TERMS, REMAINING_STEPS)

    def __init__(self, settings: GavelSettings | None = None, *, seed: int = 0):
        super().__init__(settings, seed=seed)
        # by job: seconds that what is done would have taken on its n-th of the cluster; what was
        # left, and the rate of its n-th, at the last call
        self._behind: dict[str, tuple[float, float, float]] = {}

    def ended(self, job: ActiveJob, now: float) -> None:
        super().ended(job, now)
        self._behind.pop(job.id, None)

    def plan(self, view: View) -> Plan:
        left, isolated = view.remaining(), view.problem.isolated
        expected = left / isolated
        for i, job in enumerate(view.ids):
            spent, before, rate = self._behind.get(job, (0.0, left[i], isolated[i]))
            spent += (before - left[i]) / rate
            self._behind[job] = spent, float(left[i]), float(isolated[i])
            expected[i] += spent
        rho, best = goals.finish_time_fairness(view.problem, left, view.age(), expected)
        plan = Plan.of_program(view, best)
        fairness = ("worst finish-time fairness", rho)
        plan.evidence = {job: (*told, fairness) for job, told in plan.evidence.items()}
        return plan


class WaterFilling(GavelPolicy):
    """Max-min fairness in steps: when one job's throughput can rise no further, the others keep
    rising.
    """

    name = "gavel-water-filling"

    def plan(self, view: View) -> Plan:
        level, best = goals.water_filling(view.problem, self._groups(view))
        plan = Plan.of_program(view, best)
        for i, job in enumerate(view.ids):
            plan.evidence[job] = (("level", float(level[i])), *plan.evidence[job])
        return plan

    def _groups(self, view: View) -> Sequence[Entity] | None:
        return None


class HierarchicalSettings(GavelSettings):
    """Settings of `gavel-hierarchical`."""

    weights: dict[str, Weight] = setting(
        {}, "weight of each virtual cluster in the division of the cluster; 1 for those not named"
    )
    first_come: list[str] = setting(
        [],
        "virtual clusters that serve their jobs in order of arrival; the others divide their part "
        "fairly",
    )


class Hierarchical(WaterFilling):
    """A policy that divides the cluster among virtual clusters by weight; each divides its part
    among its jobs by its own rule.
    """

    Settings = HierarchicalSettings
    name = "gavel-hierarchical"

    def __init__(self, settings: HierarchicalSettings | None = None, *, seed: int = 0):
        super().__init__(settings, seed=seed)
        self.within = settings or HierarchicalSettings()

    def _groups(self, view: View) -> Sequence[Entity]:
        vcs = [job.active.job.vc for job in view.known]
        groups = []
        for vc in dict.fromkeys(vcs):
            weight = self.within.weights.get(vc, 1.0)
            within = Within.FIFO if vc in self.within.first_come else Within.FAIRNESS
            jobs = np.array([i for i, one in enumerate(vcs) if one == vc])
            groups.append(Entity(jobs, weight, within))
        return groups


class FirstCome(GavelPolicy):
    """A policy that gives each job, in order of arrival, the free GPU type on which it is fastest.
    It stops at the first job that does not fit.
    """

    name = "gavel-fifo"
    idle_taken = False
    reason = Reason.PRIORITY

    def plan(self, view: View) -> Plan:
        kinds = heuristics.first_come(view.problem, anywhere=self.as_published)
        unit = np.eye(len(view.types))
        return Plan.of(view, ((i, -1, unit[k]) for i, k in enumerate(kinds) if k >= 0))


class Gandiva(GavelPolicy):
    """A policy that gives all jobs equal time. When jobs ask for more GPUs than there are, it pairs
    jobs by trial.
    """

    name = "gavel-gandiva"
    changes = SHARING

    def __init__(self, settings: GavelSettings | None = None, *, seed: int = 0):
        super().__init__(settings, seed=seed)
        self._pairs: list[tuple[str, str]] = []
        self._rng = np.random.default_rng(self.seed)

    def plan(self, view: View) -> Plan:
        row = {job: i for i, job in enumerate(view.ids)}
        there = [(row[a], row[b]) for a, b in self._pairs if a in row and b in row]
        pairs = heuristics.introspected(view.problem, there, self._rng)
        self._pairs = [(view.ids[a], view.ids[b]) for a, b in pairs]
        return Plan.of(view, heuristics.equal_shares(view.problem, pairs))


POLICIES: dict[str, type[GavelPolicy]] = {
    policy.name: policy
    for policy in (
        LeastAttainedService,
        PackedLeastAttainedService,
        BlindLeastAttainedService,
        Makespan,
        PackedMakespan,
        FinishTimeFairness,
        WaterFilling,
        Hierarchical,
        FirstCome,
        Gandiva,
    )
}
