"""The baselines of Gavel's evaluation that are no linear programs: FIFO, AlloX and Gandiva.

Pure functions of arrays: (n,) GPU type of each job, -1 for none; jobs are in order of arrival.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import linear_sum_assignment

from scheduler.peers.gavel.problem import Floats, Ints, Problem

GOOD_PAIR = 1.5  # of FIFO with packing: summed pair speeds that must be exceeded
FAIR_PAIR = 1.0  # of Gandiva: summed pair speeds below which a pair is parted


def first_come(problem: Problem, *, anywhere: bool = False) -> Ints:
    """Every job in turn takes the type where it is fastest among those with room.

    Stops at the first job that fits nowhere.

    Args:
        anywhere: a job may take GPUs it cannot run on, which then lie idle, and is passed (the
            published simulator).
    """
    kinds = np.full(problem.jobs, -1)
    free = problem.capacity.copy()
    for job in range(problem.jobs):
        fits = (free >= problem.gpus[job]) & (anywhere | (problem.throughput[job] > 0))
        if not fits.any():
            break
        kinds[job] = kind = int(np.argmax(np.where(fits, problem.throughput[job], -1.0)))
        free[kind] -= problem.gpus[job]
    return kinds


def packed_first_come(problem: Problem, kinds: Ints) -> list[tuple[int, int]]:
    """Pairs of waiting and running jobs: the head of the line joins whom it suits best.

    Stops when the best pair's summed speeds do not exceed GOOD_PAIR.
    """
    pairs: list[tuple[int, int]] = []
    alone = set(np.flatnonzero(kinds >= 0).tolist())
    for job in np.flatnonzero(kinds < 0).tolist():
        sums = {other: _summed(problem, job, other, int(kinds[other])) for other in alone}
        best = max(sums, key=lambda other: (sums[other], -other), default=None)
        if best is None or sums[best] <= GOOD_PAIR:
            break
        alone.remove(best)
        pairs.append((best, job))
    return pairs


def _summed(problem: Problem, a: int, b: int, kind: int) -> float:
    """Summed pair speeds of two jobs on a type; 0 when they cannot share there."""
    ours, theirs = problem.speed(kind, a, b), problem.speed(kind, b, a)
    runs = problem.throughput[a, kind] > 0 and problem.throughput[b, kind] > 0
    if problem.gpus[a] != problem.gpus[b] or not runs or not ours or not theirs:
        return 0.0
    return float(ours + theirs)


def allox(problem: Problem, remaining: Floats, held: Ints) -> Ints:
    """Least mean JCT of jobs of one GPU: a matching of jobs to (GPU, place from the end).

    A job that is k-th from the end on a GPU delays k jobs, itself included, by its duration
    there. The job with most behind it runs first. Who has a type keeps it. Le et al.,
    EuroSys'20; ages are the same wherever a job goes, and are left out.

    Args:
        remaining: (n,) steps left.
    """
    kinds = held.copy()
    free = problem.capacity.copy()
    np.subtract.at(free, held[held >= 0], problem.gpus[held >= 0])
    waiting = np.flatnonzero((held < 0) & (problem.gpus == 1))
    gpu_type = np.repeat(np.arange(problem.types), free)
    if not waiting.size or not gpu_type.size:
        return kinds
    rate = problem.throughput[waiting][:, gpu_type]
    seconds = np.full_like(rate, np.inf)
    np.divide(remaining[waiting, None], rate, out=seconds, where=rate > 0)
    ways = np.isfinite(seconds).any(axis=1)
    waiting, seconds = waiting[ways], seconds[ways]
    if not waiting.size:
        return kinds
    never = seconds[np.isfinite(seconds)].sum() * len(waiting) * 2  # dearer than any schedule
    place = np.arange(1, len(waiting) + 1)
    cost = (np.where(np.isfinite(seconds), seconds, never)[:, None, :] * place[:, None]).reshape(
        len(waiting), -1
    )
    jobs, slots = linear_sum_assignment(cost)
    from_end, gpu = np.divmod(slots, len(gpu_type))
    for one in np.unique(gpu):
        on_it = np.flatnonzero(gpu == one)
        first = jobs[on_it[np.argmax(from_end[on_it])]]
        if np.isfinite(seconds[first, one]):
            kinds[waiting[first]] = gpu_type[one]
    return kinds


def introspected(
    problem: Problem, pairs: list[tuple[int, int]], rng: np.random.Generator
) -> list[tuple[int, int]]:
    """Gandiva's packing by trial: pairs that were good stay, the rest are paired at random.

    Nobody shares while there are GPUs for all. A pair is good when its summed speeds, on the mean
    of the types, are at least FAIR_PAIR. Xiao et al., OSDI'18.

    Args:
        pairs: of the last time; both members are still there.
    """
    if problem.gpus.sum() <= problem.capacity.sum():
        return []
    kept = [pair for pair in pairs if _mean_sum(problem, *pair) >= FAIR_PAIR]
    taken = {job for pair in kept for job in pair}
    for gpus in np.unique(problem.gpus):
        alone = [j for j in np.flatnonzero(problem.gpus == gpus).tolist() if j not in taken]
        order = rng.permutation(len(alone))
        kept += [(alone[a], alone[b]) for a, b in zip(order[::2], order[1::2], strict=False)]
    return kept


def _mean_sum(problem: Problem, a: int, b: int) -> float:
    return float(np.mean([_summed(problem, a, b, kind) for kind in range(problem.types)]))


def equal_shares(problem: Problem, pairs: list[tuple[int, int]]) -> list[tuple[int, int, Floats]]:
    """(first, second or -1, (m,) shares of time): every single and pair gets equally much."""
    paired = {job for pair in pairs for job in pair}
    rows = [(job, -1) for job in range(problem.jobs) if job not in paired] + pairs
    found = []
    for first, second in rows:
        share = problem.capacity / (len(rows) * problem.gpus[first])
        share = share / max(1.0, float(share.sum()))
        if second >= 0:
            fits = [_summed(problem, first, second, kind) > 0 for kind in range(problem.types)]
            share = np.where(fits, share, 0.0)
        found.append((first, second, share))
    return found
