"""Pollux (OSDI'21): GPUs and batch sizes together, by goodput.

Each job's throughput is fitted to the step times it has shown, and its statistical efficiency
follows its gradient noise. Every round a genetic search looks for the allocation of the whole
cluster with the largest power mean of speedups; a job may at most double what it has had.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np

from reproductions.allocation.allocation import Allocation, Batch, total_gpus
from reproductions.allocation.policy import (
    ActiveJob,
    AllocationPolicy,
    Assignment,
    Capability,
    DecisionInput,
    Evidence,
    Grant,
)
from reproductions.allocation.statistics import (
    BATCH_LIMITS,
    GRADIENT_NOISE,
    STEP_PROFILE,
    Limits,
)
from reproductions.pollux.goodput import UNKNOWN_NOISE, Goodput
from reproductions.pollux.search import Ints, Problem, search
from reproductions.pollux.throughput import Floats, Throughput, fit
from scheduler.core.decisions import Reason
from scheduler.core.settings import PolicySettings, setting

RESTART_S = 30.0
BETTER = 1.05  # a batch size is changed for a goodput so many times as large
MOST_GPUS = 64  # of one job


@dataclass(slots=True)
class Belief:
    """The policy's knowledge about one job."""

    limits: Limits
    throughput: Throughput | None = None
    rows: int = 0  # of the profile that was fitted
    widest: int = 0  # most GPUs it was ever seen on

    def most_gpus(self) -> int:
        """Return the largest number of GPUs that the job may get: one at first, later at most twice
        the most that it has run on.
        """
        return min(max(2 * self.widest, 1), MOST_GPUS, self.limits.most_gpus)


class PolluxSettings(PolicySettings):
    """Settings of `pollux`."""

    fairness: float = setting(
        -1.0,
        "exponent of the mean over jobs of their speedups, which is maximised: -1: as published, "
        "0: geometric mean, 1: plain mean",
    )
    avoid_interference: bool = setting(
        True, "each node runs at most one job that spans several nodes"
    )
    individuals: int = setting(
        100, "number of allocations that each generation of the genetic search tries", ge=2
    )
    generations: int = setting(30, "largest number of generations of the genetic search", ge=1)
    patience: int = setting(
        100, "number of generations without a better allocation after which the search ends", ge=1
    )
    utility: bool = setting(
        False,
        "the search also keeps allocations that use the cluster well, as Pollux's published code "
        "does",
    )


class Pollux(AllocationPolicy):
    """The policy `pollux`: GPUs and batch sizes are chosen together."""

    Settings = PolluxSettings
    name = "pollux"
    round_s = 60.0
    changes = frozenset({Capability.GPUS, Capability.BATCH, Capability.PREEMPT})
    needs = (BATCH_LIMITS, STEP_PROFILE, GRADIENT_NOISE)

    def __init__(self, settings: PolluxSettings | None = None, *, seed: int = 0):
        super().__init__(settings, seed=seed)
        given = settings or PolluxSettings()
        self.fairness = given.fairness
        self.avoid_interference = given.avoid_interference
        self._size = (given.individuals, given.generations, given.patience)
        self._utility = given.utility
        self._rng = np.random.default_rng(seed)
        self._beliefs: dict[str, Belief] = {}
        self._population: tuple[list[str], Ints] | None = None

    def ended(self, job: ActiveJob, now: float) -> None:
        self._beliefs.pop(job.id, None)

    # --- batch size -------------------------------------------------------------------------

    def tune(self, job: ActiveJob, allocation: Allocation) -> tuple[Batch, Evidence] | None:
        goodput = self._goodput(job)
        nodes, gpus = len(allocation.nodes), allocation.count
        held = job.allocation
        if goodput is None:
            return first_batch(job.report(BATCH_LIMITS), gpus), (("profile", "none yet"),)
        best = goodput.batch(nodes, gpus)
        if best is None:
            return None
        batch, value = best
        if held is not None and held.batch is not None and allocation.same_gpus(held):
            now = [np.array(float(n)) for n in (nodes, gpus, *held.batch)]
            keeps = float(goodput.of(*now))
            if value <= BETTER * keeps:
                return held.batch, (("goodput", keeps),)
        return batch, (("goodput", value), ("batch size", batch.total(gpus)))

    def _goodput(self, job: ActiveJob) -> Goodput | None:
        """Return the model of a job's goodput, from what the job has reported so far; None before
        it has run.
        """
        belief = self._belief(job)
        if belief.throughput is None:
            return None
        noise = job.report(GRADIENT_NOISE) or UNKNOWN_NOISE
        return Goodput(belief.throughput, noise, belief.limits)

    def _belief(self, job: ActiveJob) -> Belief:
        belief = self._beliefs.get(job.id)
        if belief is None:
            belief = self._beliefs[job.id] = Belief(job.report(BATCH_LIMITS))
        profile = job.report(STEP_PROFILE)
        if len(profile) > belief.rows:
            belief.rows = len(profile)
            belief.widest = max(where.gpus for where in profile)
            belief.throughput = fit(profile)
        return belief

    # --- GPUs -------------------------------------------------------------------------------

    def allocate(self, snapshot: DecisionInput) -> Assignment:
        # in order of right: who was served least goes first where not all can have what they want
        jobs = sorted(snapshot.jobs, key=lambda job: (job.attained_gpu_s, job.job.submit_time))
        problem = self._problem(jobs, snapshot)
        best = self._searched(problem, [job.id for job in jobs])
        values = problem.speedups(best[None])[0]
        return {
            job.id: self._grant(job, row=best[i], speedup=values[i], problem=problem, i=i)
            for i, job in enumerate(jobs)
        }

    def _problem(self, jobs: list[ActiveJob], snapshot: DecisionInput) -> Problem:
        room = np.array([node.gpus for node in snapshot.nodes], dtype=np.int16)
        current = np.zeros((len(jobs), len(room)), dtype=np.int16)
        for row, job in zip(current, jobs, strict=True):
            if job.allocation is not None:
                row[list(job.allocation.nodes)] = job.allocation.gpus
        beliefs = [self._belief(job) for job in jobs]
        most = np.array([belief.most_gpus() for belief in beliefs], dtype=np.int16)
        fair = ceil(total_gpus(snapshot.nodes) / len(jobs))
        shape = len(jobs), len(room) + 1, max(int(most.max()), int(current.sum(axis=1).max())) + 1
        speedup = np.zeros(shape)
        for table, job, limit in zip(speedup, jobs, most, strict=True):
            nodes, gpus = _layouts(room, int(limit))
            table[nodes, gpus] = self._speedups(job, nodes, gpus, fair)
        return Problem(
            speedup=speedup,
            keep=np.array([_keeps(job, snapshot.now) for job in jobs]),
            most=most,
            current=current,
            room=room,
            fairness=self.fairness,
            avoid=self.avoid_interference,
        )

    def _speedups(self, job: ActiveJob, nodes: Ints, gpus: Ints, fair: int) -> Floats:
        """Return the speedup of a job on each layout of GPUs: its goodput there, relative to that
        on `fair` GPUs of one node. For a job that has not run yet, it is taken to grow in
        proportion to the GPUs."""
        goodput = self._goodput(job)
        if goodput is None:
            return np.asarray(gpus / fair)
        alone = min(fair, goodput.limits.most_gpus)
        best = goodput.best(np.append(nodes, 1), np.append(gpus, alone)).goodput
        return best[:-1] / best[-1] if best[-1] > 0 else np.zeros(len(nodes))

    def _searched(self, problem: Problem, job_ids: list[str]) -> Ints:
        """Search on from the last round's population, and keep the new one. Return its best
        allocation, GPUs by job and node.
        """
        individuals, generations, patience = self._size
        population = search(
            problem,
            self._rng,
            self._resumed(job_ids, len(problem.room)),
            individuals=individuals,
            generations=generations,
            patience=patience,
            utility=self._utility,
        )
        self._population = job_ids, population
        best: Ints = population[0]
        return best

    def _resumed(self, job_ids: list[str], nodes: int) -> Ints | None:
        if self._population is None:
            return None
        known, population = self._population
        where = {job_id: i for i, job_id in enumerate(known)}
        resumed = np.zeros((len(population), len(job_ids), nodes), dtype=np.int16)
        for i, job_id in enumerate(job_ids):
            if job_id in where:
                resumed[:, i] = population[:, where[job_id]]
        return resumed

    def _grant(self, job: ActiveJob, row: Ints, speedup: float, problem: Problem, i: int) -> Grant:
        nodes = np.flatnonzero(row)
        evidence: Evidence = (
            ("speedup", float(speedup)),
            ("kept after a restart", float(problem.keep[i])),
            ("most GPUs", float(problem.most[i])),
        )
        if not len(nodes):
            return Grant(None, Reason.NO_GAIN, evidence)
        allocation = Allocation(tuple(nodes.tolist()), tuple(row[nodes].tolist()))
        return Grant(allocation, Reason.GAIN, evidence)


def first_batch(limits: Limits, gpus: int) -> Batch:
    """Return the smallest batch, for a job of which nothing is known yet."""
    each = max(ceil(limits.least / gpus), limits.per_gpu[0])
    accumulation = ceil(each / limits.per_gpu[1]) - 1
    if gpus == 1 and each > limits.initial:
        accumulation = max(accumulation, 1)
    return Batch(ceil(each / (accumulation + 1)), accumulation)


def _layouts(room: Ints, most: int) -> tuple[Ints, Ints]:
    """Return (nodes, GPUs) of every layout that a job of at most `most` GPUs can have."""
    per_node = int(room.max())
    nodes, gpus = np.indices((len(room), most), dtype=np.int16) + np.int16(1)
    possible = (nodes <= gpus) & (gpus <= nodes * per_node)
    return nodes[possible], gpus[possible]


def _keeps(job: ActiveJob, now: float) -> float:
    """Return the share of its speedup that a job keeps if restarted now: less for a young job
    and for one restarted often.
    """
    age_s = job.age_s(now)
    return max(age_s - job.restarts * RESTART_S, 0.0) / (age_s + RESTART_S)
