"""Gavel's policies, one class each: how shares of time are computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from scheduler.core.decisions import Reason
from scheduler.peers.allocation.policy import ActiveJob, Freedom
from scheduler.peers.allocation.statistics import REMAINING_STEPS
from scheduler.peers.allocation.throughputs import TERMS, THROUGHPUTS
from scheduler.peers.gavel import goals, heuristics
from scheduler.peers.gavel.goals import Entity, Within
from scheduler.peers.gavel.policy import GavelPolicy, Plan, View
from scheduler.peers.gavel.problem import Floats, Ints
from scheduler.peers.gavel.program import Infeasible
from scheduler.peers.gavel.sharing import merged
from scheduler.peers.gavel.strategyproof import partial_allocation

SHARING = frozenset({Freedom.TYPE, Freedom.PREEMPT, Freedom.SHARE})


class LeastAttainedService(GavelPolicy):
    """Max-min fairness over throughput in proportional shares, GPU types told apart.

    Identical jobs are merged before the program is solved.
    """

    name = "gavel-las"

    def plan(self, view: View) -> Plan:
        small, row = merged(view.problem)
        best = goals.refined(small, goals.least_attained_service(small))
        return Plan.of_program(view, best, row)


class PackedLeastAttainedService(LeastAttainedService):
    """The same with space sharing."""

    name = "gavel-las-packed"
    changes = SHARING


class BlindLeastAttainedService(GavelPolicy):
    """The same by a policy that believes all GPU types equal.

    Everybody's time is then spread over the types by their numbers of GPUs: to this policy that is
    as good as any other optimum.
    """

    name = "gavel-las-agnostic"
    blind = True
    random = True

    def plan(self, view: View) -> Plan:
        best = goals.refined(view.problem, goals.least_attained_service(view.problem))
        spread = view.problem.capacity / view.problem.capacity.sum()
        return Plan.of(view, ((i, -1, x * spread) for i, x in enumerate(best.throughput)))


class Makespan(GavelPolicy):
    """All jobs done as early as possible."""

    name = "gavel-makespan"
    needs = (THROUGHPUTS, TERMS, REMAINING_STEPS)
    reason = Reason.GAIN

    def plan(self, view: View) -> Plan:
        goal = goals.makespan(view.problem, view.remaining())
        best = goals.refined(view.problem, goal)
        plan = Plan.of_program(view, best)
        makespan = ("all done after s", 1 / best.level)
        plan.evidence = {job: (*told, makespan) for job, told in plan.evidence.items()}
        return plan


class PackedMakespan(Makespan):
    """The same with space sharing."""

    name = "gavel-makespan-packed"
    changes = SHARING


class FinishTimeFairness(GavelPolicy):
    """The largest ratio of JCT to JCT on an n-th of the cluster is as small as can be."""

    name = "gavel-ftf"
    needs = (THROUGHPUTS, TERMS, REMAINING_STEPS)

    def __init__(self, **options: Any):
        super().__init__(**options)
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


class PackedFinishTimeFairness(FinishTimeFairness):
    """The same with space sharing."""

    name = "gavel-ftf-packed"
    changes = SHARING


class Throughput(GavelPolicy):
    """Most steps per unit of money; with deadlines kept where that is possible.

    Args:
        prices: of a GPU of each type; types that are not named cost 1.
        deadlines: keep those that users gave.
    """

    name = "gavel-throughput"
    reason = Reason.GAIN

    def __init__(
        self, *, prices: Mapping[str, float] | None = None, deadlines: bool = False, **options: Any
    ):
        super().__init__(**options)
        self.prices = dict(prices or {})
        self.deadlines = deadlines
        if deadlines:
            self.needs = (THROUGHPUTS, TERMS, REMAINING_STEPS)

    def plan(self, view: View) -> Plan:
        price = np.array([self.prices.get(gpu_type, 1.0) for gpu_type in view.types])
        floor = self._floor(view) if self.deadlines else np.zeros(view.problem.jobs)
        best, given_up = goals.meet_deadlines(view.problem, price, floor)
        plan = Plan.of_program(view, best)
        for i in given_up:
            fastest = float(view.problem.throughput[i].max())
            plan.unmet[view.ids[i]] = (
                ("steps/s to meet its deadline", float(floor[i])),
                ("most it can have", fastest),
            )
        return plan

    def _floor(self, view: View) -> Floats:
        """(n,) steps per second to be done in time; inf where that time is over."""
        due = [job.terms.deadline_s for job in view.known]
        left = np.array([np.inf if d is None else d for d in due]) - view.age()
        floor = np.full(len(due), 1e18)
        np.divide(view.remaining(), left, out=floor, where=left > 0)
        return floor


class ThroughputWithDeadlines(Throughput):
    """The same, with deadlines."""

    name = "gavel-slo"

    def __init__(self, **options: Any):
        super().__init__(deadlines=True, **options)


class WaterFilling(GavelPolicy):
    """Max-min fairness carried on: who can rise no further stays, the others go on rising.

    Args:
        entities: (weight, how it shares) of each virtual cluster: a hierarchy. None: no hierarchy.
    """

    name = "gavel-water-filling"

    def __init__(
        self, *, entities: Mapping[str, tuple[float, Within]] | None = None, **options: Any
    ):
        super().__init__(**options)
        self.entities = entities

    def plan(self, view: View) -> Plan:
        level, best = goals.water_filling(view.problem, self._groups(view))
        plan = Plan.of_program(view, best)
        for i, job in enumerate(view.ids):
            plan.evidence[job] = (("level", float(level[i])), *plan.evidence[job])
        return plan

    def _groups(self, view: View) -> Sequence[Entity] | None:
        return None


class Hierarchical(WaterFilling):
    """Virtual clusters share the whole by weight, each shares its part in its own way."""

    name = "gavel-hierarchical"

    def _groups(self, view: View) -> Sequence[Entity]:
        vcs = [job.active.job.vc for job in view.known]
        given = self.entities or {}
        groups = []
        for vc in dict.fromkeys(vcs):
            weight, within = given.get(vc, (1.0, Within.FAIRNESS))
            jobs = np.array([i for i, one in enumerate(vcs) if one == vc])
            groups.append(Entity(jobs, weight, within))
        return groups


class StrategyProof(GavelPolicy):
    """Shares that nobody can better by lying about their throughputs, at the price of some.

    Its program is solved once per job, which takes seconds for 30 jobs.

    Args:
        most_jobs: with more, everybody gets an equal part of the cluster instead.
    """

    name = "gavel-strategy-proof"

    def __init__(self, *, most_jobs: int = 30, **options: Any):
        super().__init__(**options)
        self.most_jobs = most_jobs

    def plan(self, view: View) -> Plan:
        if len(view.ids) > self.most_jobs:
            raise Infeasible(f"{len(view.ids)} jobs; this program is solved for {self.most_jobs}")
        share, kept = partial_allocation(view.problem)
        plan = Plan.of(view, ((i, -1, row) for i, row in enumerate(share)))
        plan.evidence = {job: (("kept", float(kept[i])),) for i, job in enumerate(view.ids)}
        return plan


class FirstCome(GavelPolicy):
    """In order of arrival, each job on the free type where it is fastest; nobody is passed.

    Where jobs may share GPUs, waiting ones join running ones that they suit.
    """

    name = "gavel-fifo"
    idle_taken = False
    reason = Reason.PRIORITY

    def plan(self, view: View) -> Plan:
        kinds = heuristics.first_come(view.problem, anywhere=self.as_published)
        plan = _on_types(view, kinds)
        if view.problem.speeds is not None:
            for a, b in heuristics.packed_first_come(view.problem, kinds):
                first, second = view.ids[a], view.ids[b]
                plan.shares[first, second] = plan.shares[(first,)]
                plan.shares[(first,)] = plan.shares[(second,)]
        return plan


class PackedFirstCome(FirstCome):
    """The same with space sharing."""

    name = "gavel-fifo-packed"
    changes = SHARING


class AlloX(GavelPolicy):
    """Least mean JCT by a matching of jobs to GPUs and places; for jobs of one GPU.

    A job keeps the GPU type that it was given.
    """

    name = "gavel-allox"
    needs = (THROUGHPUTS, TERMS, REMAINING_STEPS)
    reason = Reason.GAIN

    def __init__(self, **options: Any):
        super().__init__(**options)
        self._held: dict[str, int] = {}

    def ended(self, job: ActiveJob, now: float) -> None:
        super().ended(job, now)
        self._held.pop(job.id, None)

    def plan(self, view: View) -> Plan:
        held = np.array([self._held.get(job, -1) for job in view.ids])
        kinds = heuristics.allox(view.problem, view.remaining(), held)
        self._held = {job: int(k) for job, k in zip(view.ids, kinds, strict=True) if k >= 0}
        plan = _on_types(view, kinds)
        for job, known in zip(view.ids, view.known, strict=True):
            if known.gpus > 1:
                plan.unmet[job] = (("this policy serves", "jobs of one GPU"),)
        return plan


def _on_types(view: View, kinds: Ints) -> Plan:
    """All the time on one type each, or none."""
    unit = np.eye(len(view.types))
    return Plan.of(view, ((i, -1, unit[k]) for i, k in enumerate(kinds) if k >= 0))


class Gandiva(GavelPolicy):
    """Equal time for all; when there are more jobs than GPUs, pairs by trial."""

    name = "gavel-gandiva"
    changes = SHARING
    random = True

    def __init__(self, **options: Any):
        super().__init__(**options)
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
        PackedFinishTimeFairness,
        Throughput,
        ThroughputWithDeadlines,
        WaterFilling,
        Hierarchical,
        StrategyProof,
        FirstCome,
        PackedFirstCome,
        AlloX,
        Gandiva,
    )
}
