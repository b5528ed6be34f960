"""Baselines of Gavel's evaluation that are no linear programs: FIFO and Gandiva.

Pure functions of arrays. Jobs are in order of arrival.
"""

from __future__ import annotations

import numpy as np

from reproductions.gavel.problem import Floats, Ints, Problem

FAIR_PAIR = 1.0  # of Gandiva: summed pair speeds below which a pair is parted


def first_come(problem: Problem, *, anywhere: bool = False) -> Ints:
    """Let every job in turn take, among the GPU types with room, the type on which it is fastest.
    Return (n,) the type of each job; -1 for none.

    Stops at the first job that fits nowhere.

    Args:
        anywhere: a job may also take GPUs on which it cannot run. They then stay idle, and the next
            job has its turn (as in the published simulator).
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


def _summed(problem: Problem, a: int, b: int, kind: int) -> float:
    """Return the sum of the speeds of jobs `a` and `b` when they share GPUs of one type, each
    relative to its speed alone; 0 if they cannot share.
    """
    ours, theirs = problem.speed(kind, a, b), problem.speed(kind, b, a)
    runs = problem.throughput[a, kind] > 0 and problem.throughput[b, kind] > 0
    if problem.gpus[a] != problem.gpus[b] or not runs or not ours or not theirs:
        return 0.0
    return float(ours + theirs)


def introspected(
    problem: Problem, pairs: list[tuple[int, int]], rng: np.random.Generator
) -> list[tuple[int, int]]:
    """Return Gandiva's pairs by trial: pairs that proved good stay, the other jobs are paired at
    random. If jobs ask for no more GPUs than there are, there are no pairs.

    A pair is good when its summed speeds, averaged over the types, are at least FAIR_PAIR. Xiao et
    al., OSDI'18.

    Args:
        pairs: pairs of the last call; both members must still be in `problem`.
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
    """Return equal shares of time for every pair and every single job: (first, second or -1, (m,)
    share on each type).
    """
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
