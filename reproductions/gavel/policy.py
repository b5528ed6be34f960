"""The common part of Gavel's policies: from time to time they compute shares of time, and in each
round they assign GPUs by these shares.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from reproductions.allocation.allocation import Allocation as Gpus
from reproductions.allocation.policy import (
    ActiveJob,
    AllocationPolicy,
    Capability,
    DecisionInput,
    Evidence,
    Grant,
    Trigger,
)
from reproductions.allocation.statistics import REMAINING_STEPS, Statistic
from reproductions.allocation.throughputs import TERMS, THROUGHPUTS, Terms, Throughputs
from reproductions.gavel.problem import Floats, Ints, Problem
from reproductions.gavel.program import Allocation, Infeasible
from reproductions.gavel.rounds import Combination, Gang, Rounds, Turn, place, still_ahead
from reproductions.gavel.sharing import split
from scheduler.core.decisions import Reason
from scheduler.core.settings import PolicySettings, setting

RESET_S = 1920.0  # shares are computed anew at most this often


@dataclass(frozen=True, slots=True)
class Known:
    """What the policy knows of a job. `rates` are its steps per second on each GPU type of the
    cluster.
    """

    active: ActiveJob
    throughputs: Throughputs
    rates: tuple[float, ...]
    terms: Terms

    @property
    def gpus(self) -> int:
        return self.active.job.gpus


@dataclass(frozen=True, slots=True)
class View:
    """The jobs that can run, as arrays. Rows are jobs in order of arrival."""

    now: float
    ids: list[str]
    known: list[Known]
    types: tuple[str, ...]
    problem: Problem

    def remaining(self) -> Floats:
        """Return the number of training steps that each of the n jobs still has to do, an array
        (n,)."""
        return np.array([job.active.report(REMAINING_STEPS) for job in self.known])

    def age(self) -> Floats:
        """Return (n,) seconds since submission."""
        return np.array([job.active.age_s(self.now) for job in self.known])


@dataclass(slots=True)
class Plan:
    """Computed shares of time, by job or pair of jobs, and the evidence for them, by job."""

    shares: dict[Combination, tuple[float, ...]] = field(default_factory=dict)
    evidence: dict[str, Evidence] = field(default_factory=dict)
    unmet: dict[str, Evidence] = field(default_factory=dict)  # what could not be granted

    @classmethod
    def of(cls, view: View, rows: Iterable[tuple[int, int, Floats]]) -> Plan:
        """Return a plan from rows of (first job, second job or -1, share of time on each type)."""
        plan = cls({(job,): (0.0,) * len(view.types) for job in view.ids})
        for first, second, share in rows:
            jobs = (view.ids[first],) if second < 0 else (view.ids[first], view.ids[second])
            before = plan.shares.get(jobs, (0.0,) * len(view.types))
            plan.shares[jobs] = tuple(a + float(b) for a, b in zip(before, share, strict=True))
        return plan

    @classmethod
    def of_program(cls, view: View, best: Allocation, row: Ints | None = None) -> Plan:
        """Return a plan from an optimum of the linear program, with dual values as evidence. Where
        identical jobs were merged, `row` gives the row of each job.

        "dual" is the part of the objective that depends on what the job is entitled to, "price" the
        part that the GPUs of a type are worth.
        """
        row = np.arange(len(view.ids)) if row is None else row
        unit = np.eye(len(view.types))
        parts = split(best.columns, best.share, row)
        plan = cls.of(view, ((a, b, x * unit[kind]) for a, b, kind, x in parts))
        worth = best.objective or 1.0
        hinges = best.job_dual * best.throughput / worth / np.bincount(row)
        prices = tuple(
            (f"price of {t}", float(dual * gpus / worth))
            for t, dual, gpus in zip(view.types, best.gpu_dual, view.problem.capacity, strict=True)
        )
        for i, job in enumerate(view.ids):
            plan.evidence[job] = (("dual", float(hinges[row[i]])), *prices)
        return plan

    def by_job(self) -> dict[str, tuple[float, ...]]:
        """Return each job's share of time on each type, alone and in pairs."""
        total: dict[str, tuple[float, ...]] = {}
        for jobs, share in self.shares.items():
            for job in jobs:
                before = total.get(job, (0.0,) * len(share))
                total[job] = tuple(a + b for a, b in zip(before, share, strict=True))
        return total


class GavelSettings(PolicySettings):
    """Settings of Gavel's policies.

    With `as_published`, a round is over when its last job has made the whole steps that fit into it
    (needs a truth with leases), and a job without shares yet may win a turn, but does not run.
    """

    round_s: float = setting(360.0, "time between two assignments of GPUs to jobs", unit="s", gt=0)
    reset_s: float = setting(
        RESET_S,
        "least time between two computations of the jobs' shares of time, which are due when jobs "
        "come or go",
        unit="s",
        ge=0,
    )
    as_published: bool = setting(
        False,
        "imitate the published simulator, in when rounds end and in which of several best "
        "allocations is taken",
    )


class GavelPolicy(AllocationPolicy):
    """Base class of policies that compute shares of time by an optimisation and assign GPUs in
    rounds. Subclasses define `plan`.
    """

    Settings = GavelSettings
    needs: tuple[Statistic[object], ...] = (THROUGHPUTS, TERMS)
    changes = frozenset({Capability.TYPE, Capability.PREEMPT})
    idle_taken = True  # GPUs that nobody is due go to whoever fits
    blind = False  # believes all GPU types equal
    reason = Reason.FAIR_SHARE  # why a job gets GPUs that it is due

    def __init__(self, settings: GavelSettings | None = None, *, seed: int = 0):
        super().__init__(settings, seed=seed)
        given = settings or GavelSettings()
        self.as_published = given.as_published
        self.round_s = 0.0 if given.as_published else given.round_s
        self.lease_s = given.round_s if given.as_published else None
        self.reset_s = given.reset_s
        self._round_s = given.round_s
        self._rounds: Rounds | None = None
        self._plan = Plan()
        self._share_of: dict[str, tuple[float, ...]] = {}
        self._told: dict[str, Evidence] = {}  # by job, until shares are computed anew
        self._known: dict[str, Known] = {}
        self._turns: list[Turn] = []
        self._last = 0.0  # round began
        self._reset_at = 0.0
        self._stale = True  # jobs came or went since shares were computed

    # --- what a subclass says -----------------------------------------------------------------

    @abstractmethod
    def plan(self, view: View) -> Plan:
        """Compute shares of time for the jobs in `view`. Return the plan. Raise Infeasible where no
        allocation meets the goal.
        """

    # --- the contract -------------------------------------------------------------------------

    def acts_on(self, trigger: Trigger) -> bool:
        return trigger.any and not trigger.going

    def next_wake(self, now: float) -> float | None:
        return None if self._turns else now + self._round_s

    def ended(self, job: ActiveJob, now: float) -> None:
        self._known.pop(job.id, None)

    def allocate(self, snapshot: DecisionInput) -> dict[str, Grant]:
        types = tuple(dict.fromkeys(node.gpu_type for node in snapshot.nodes))
        capacity = [sum(n.gpus for n in snapshot.nodes if n.gpu_type == t) for t in types]
        if self._rounds is None:
            shuffle = self.seed if self.blind else None
            self._rounds = Rounds(len(types), self._round_s, self.idle_taken, shuffle)
        self._account(snapshot.now)
        able = [job for job in snapshot.jobs if any(self._know(job, types, capacity).rates)]
        self._stale |= bool(snapshot.submitted or snapshot.ended)
        # an earlier reset at time 0 does not count (the published simulator's rule)
        if self._stale and (not self._reset_at or snapshot.now - self._reset_at >= self.reset_s):
            self._replan(able, types, capacity, snapshot.now)
        gangs = {
            job.id: Gang(job.job.gpus, [rate > 0 for rate in self._known[job.id].rates])
            for job in able
        }
        turns = self._rounds.choose(gangs, capacity)
        if self.as_published:
            turns = [t for t in turns if all((job,) in self._plan.shares for job in t.jobs)]
        self._turns = turns
        return self._grants(snapshot, types, turns)

    def _account(self, now: float) -> None:
        """Add the time since the last call to what the jobs that ran in the last round have
        received.
        """
        assert self._rounds is not None
        for turn in self._turns:
            self._rounds.ran(turn, now - self._last)
        self._last = now

    # --- planning -----------------------------------------------------------------------------

    def _know(self, job: ActiveJob, types: Sequence[str], capacity: Sequence[int]) -> Known:
        known = self._known.get(job.id)
        if known is None:
            found = job.report(THROUGHPUTS)
            rates = tuple(
                found.alone(t) if gpus >= job.job.gpus and job.job.gpu_type in (None, t) else 0.0
                for t, gpus in zip(types, capacity, strict=True)
            )
            known = self._known[job.id] = Known(job, found, rates, job.report(TERMS))
        return known

    def _replan(
        self, able: Sequence[ActiveJob], types: tuple[str, ...], capacity: Sequence[int], now: float
    ) -> None:
        assert self._rounds is not None
        known = [self._known[job.id] for job in able]
        if known:
            problem = problem_of(known, types, capacity, Capability.SHARE in self.changes)
            problem = problem.blind() if self.blind else problem
            view = View(
                now=now, ids=[job.id for job in able], known=known, types=types, problem=problem
            )
            try:
                self._plan = self.plan(view)
            except Infeasible as why:
                self._plan = _isolated(view, str(why))
        else:
            self._plan = Plan()
        self._share_of, self._told = self._plan.by_job(), {}
        self._rounds.reset(self._plan.shares, now)
        self._reset_at, self._stale = now, False

    # --- grants -------------------------------------------------------------------------------

    def _grants(
        self, snapshot: DecisionInput, types: Sequence[str], turns: Sequence[Turn]
    ) -> dict[str, Grant]:
        active = {job.id: job for job in snapshot.jobs}
        placed = place(turns, active, snapshot.nodes, types)
        blocker = next((still_ahead(turns, kind) for kind in range(len(types))), None)
        grants: dict[str, Grant] = {}
        for turn in turns:
            for job in turn.jobs:
                partner = next((other for other in turn.jobs if other != job), None)
                gpus = placed[turn.jobs]
                reason = self._why(job, turn, partner)
                evidence = (*self._evidence(job, types), ("priority", turn.priority))
                given = Gpus(gpus.nodes, gpus.gpus, partner=partner)
                grants[job] = Grant(given, reason, evidence)
        for job in active:
            if job not in grants:
                grants[job] = self._wait(job, types, blocker)
        return grants

    def _why(self, job: str, turn: Turn, partner: str | None) -> Reason:
        if job in self._plan.unmet:
            return Reason.INFEASIBLE
        if partner is not None:
            return Reason.PARTNER_FOUND
        return self.reason if turn.priority > 0 else Reason.EXCLUSIVE_GPUS

    def _wait(self, job: str, types: Sequence[str], blocker: str | None) -> Grant:
        known = self._known[job]
        if not any(known.rates):
            rates = tuple((f"steps/s on {t}", known.throughputs.alone(t)) for t in types)
            return Grant(None, Reason.NO_MATCHING_GPU_TYPE, rates)
        evidence = self._evidence(job, types)
        if job in self._plan.unmet:
            return Grant(None, Reason.INFEASIBLE, evidence)
        if (job,) not in self._plan.shares:
            return Grant(None, Reason.NOT_YET_EVALUATED, evidence)
        if blocker is None:
            return Grant(None, Reason.GPUS_BUSY, evidence)
        return Grant(None, Reason.SHARE_USED, evidence, blocker)

    def _evidence(self, job: str, types: Sequence[str]) -> Evidence:
        """Return the evidence on a job: its share of time on each type, and the plan's own
        evidence. The result is cached by job.
        """
        if job not in self._told:
            share = self._share_of.get(job, (0.0,) * len(types))
            shares = ((f"share of {t}", round(x, 6)) for t, x in zip(types, share, strict=True))
            plan = self._plan
            self._told[job] = *shares, *plan.evidence.get(job, ()), *plan.unmet.get(job, ())
        return self._told[job]


def problem_of(
    known: Sequence[Known], types: Sequence[str], capacity: Sequence[int], sharing: bool
) -> Problem:
    """Return jobs as the arrays of a `Problem`. A job that may not share GPUs gets a kind of its
    own.
    """
    keys = [(job.throughputs.kind, job.active.job.share) for job in known]
    example = {key: job.throughputs for key, job in zip(keys, known, strict=True)}
    number = {key: i for i, key in enumerate(example)}
    speeds = np.zeros((len(types), len(number), len(number)), np.float32) if sharing else None
    if speeds is not None:
        for (own, ours), job in example.items():
            for other, theirs in example:
                if ours and theirs and own.gpus == other.gpus:
                    cell = slice(None), number[own, ours], number[other, theirs]
                    speeds[cell] = [job.beside(t, other) for t in types]
    return Problem.of(
        [job.rates for job in known],
        capacity,
        [job.gpus for job in known],
        [job.terms.weight for job in known],
        kind=[number[key] for key in keys],
        speeds=speeds,
    )


def _isolated(view: View, why: str) -> Plan:
    """Return a plan in which each job has an n-th of the cluster, for use when the program failed;
    `why` goes into the evidence.
    """
    problem = view.problem
    share = problem.capacity / (problem.jobs * problem.gpus[:, None])
    share = share / np.maximum(1.0, share.sum(axis=1, keepdims=True))
    plan = Plan.of(view, ((i, -1, share[i]) for i in range(problem.jobs)))
    told = ("instead", "an equal part each"), ("because", why)
    plan.unmet = dict.fromkeys(view.ids, told)
    return plan
