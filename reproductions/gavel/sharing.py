"""Space sharing: chooses which pairs of jobs the linear program considers, and merges identical
jobs.

A pair enters the program as a column when, under the dual values of the columns present, it would
earn more than it costs. With n jobs, adding n to 4n such columns a step reaches the optimum of the
whole program in a handful of steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from reproductions.gavel.problem import Floats, Ints, Problem
from reproductions.gavel.program import Allocation, Columns, Goal, singles, solve

EARNS = 1e-7  # a column whose worth exceeds its cost by less than this cannot help
_BLOCK = 1 << 21  # pairs priced at once: bounds the memory of pricing


def optimum(
    problem: Problem, goal: Goal, refine: Floats | None = None, *, whole: bool = False
) -> Allocation:
    """Return the best allocation over single jobs and, if the problem has pair speeds, pairs.

    Args:
        refine: (n, m) gains to maximise among all optima; None: any optimum is returned.
        whole: include every pair from the start instead of generating columns (to check the one by
            the other).

    Raises:
        Infeasible: no allocation meets the floors.
    """
    columns = singles(problem)
    if whole and problem.speeds is not None:
        columns = columns + every_pair(problem)
    grow = problem.speeds is not None and not whole
    best, columns = _best(problem, goal, columns, grow)
    if refine is None:
        return best
    # a hair below the optimum, so that rounding does not make it infeasible
    level = best.level * (1 - 1e-9)
    refined, _ = _best(
        problem, goal=replace(goal, gain=refine, level=0.0), columns=columns, grow=grow, level=level
    )
    return refined.priced_as(best)


def _best(
    problem: Problem, goal: Goal, columns: Columns, grow: bool, level: float | None = None
) -> tuple[Allocation, Columns]:
    """Solve the program; with `grow`, add the pairs that would improve it and solve again until
    none would. Return the allocation and the columns that the program has in the end.
    """
    while True:
        best = solve(problem, goal, columns, level=level)
        if not grow:
            return best, columns
        before = len(columns)
        for kind in range(problem.types):
            found = _helpful(problem, goal, best, kind)
            # a pair that is there already would help by no more than the solver's tolerance
            there = np.isin(found.key(problem.jobs), columns.key(problem.jobs))
            columns = columns + found.take(np.flatnonzero(~there))
        if len(columns) == before:
            return best, columns


def _helpful(problem: Problem, goal: Goal, best: Allocation, kind: int) -> Columns:
    """Return the columns of job pairs on one GPU type that would improve the program: at most 2n
    pairs, those with the highest reduced gain.
    """
    n, each = problem.jobs, 1 / problem.count
    rate = problem.throughput[:, kind]
    worth = rate * (best.job_dual * each + goal.gain[:, kind])
    time = best.time_dual * each
    cost = time + problem.gpus * best.gpu_dual[kind]  # of the first: its time and their GPUs
    everyone = np.arange(n)
    found: list[tuple[Floats, Ints, Ints]] = []
    step = max(1, _BLOCK // n)
    for start in range(0, n, step):
        rows, rest = everyone[start : start + step, None], everyone[start:]
        block = problem.speed(kind, rows, rest) * worth[rows]
        block += problem.speed(kind, rest, rows) * worth[rest]
        block -= cost[rows] + time[rest]
        a, b = np.nonzero(block > EARNS)
        fine = possible(problem, kind, a + start, b + start)
        found.append((block[a, b][fine], a[fine] + start, b[fine] + start))
    earned, a, b = (np.concatenate(part) for part in zip(*found, strict=True))
    if len(earned) > 2 * n:
        top = np.sort(np.argpartition(-earned, 2 * n)[: 2 * n])
        a, b = a[top], b[top]
    return pair_columns(problem, kind, a, b)


def possible(problem: Problem, kind: int, a: Ints, b: Ints) -> NDArray[np.bool_]:
    """Return, for jobs `a` and `b` pairwise, whether the two may share GPUs of a type: they have
    equally many GPUs, both speeds were measured there, and the pair was not listed before.
    """
    ours, theirs = problem.speed(kind, a, b), problem.speed(kind, b, a)
    runs = (problem.throughput[a, kind] > 0) & (problem.throughput[b, kind] > 0)
    once = (a < b) | ((a == b) & (problem.count[a] > 1))
    fine: NDArray[np.bool_] = (
        once & runs & (ours > 0) & (theirs > 0) & (problem.gpus[a] == problem.gpus[b])
    )
    return fine


def every_pair(problem: Problem) -> Columns:
    """Return the columns of all pairs on all types, except pairs whose speeds sum to 1 or less.

    Two jobs of such a pair are served at least as well if they take turns alone on the same GPUs.
    """
    everyone = np.arange(problem.jobs)
    a, b = (grid.ravel() for grid in np.meshgrid(everyone, everyone, indexing="ij"))
    found: list[Columns] = []
    for kind in range(problem.types):
        fine = possible(problem, kind, a, b)
        fine &= problem.speed(kind, a, b) + problem.speed(kind, b, a) > 1
        found.append(pair_columns(problem, kind, a[fine], b[fine]))
    total = found[0]
    for columns in found[1:]:
        total = total + columns
    return total


def pair_columns(problem: Problem, kind: int, a: Ints, b: Ints) -> Columns:
    """Return the columns of the linear program for pairs of jobs that share GPUs of the type
    `kind`: the jobs `a`, each with its partner in `b`."""
    rate_a = problem.throughput[a, kind] * problem.speed(kind, a, b)
    rate_b = problem.throughput[b, kind] * problem.speed(kind, b, a)
    return Columns(
        first=a,
        second=b,
        type=np.full(len(a), kind),
        rate_first=rate_a,
        rate_second=rate_b,
        gpus=problem.gpus[a],
    )


def merged(problem: Problem) -> tuple[Problem, Ints]:
    """Merge identical jobs: equal in kind, GPUs, weight and throughputs. Return the problem with
    one row for each class, and the row of every job.
    """
    own = np.stack([problem.kind, problem.gpus, problem.weights, problem.count], axis=1)
    key = np.concatenate([own, problem.throughput], axis=1)
    _, pick, row = np.unique(key, axis=0, return_index=True, return_inverse=True)
    row = row.ravel()
    small = Problem(
        throughput=problem.throughput[pick],
        gpus=problem.gpus[pick],
        capacity=problem.capacity,
        weights=problem.weights[pick],
        count=np.bincount(row, weights=problem.count).astype(np.int64),
        kind=problem.kind[pick],
        speeds=problem.speeds,
    )
    return small, row


def split(columns: Columns, share: Floats, row: Ints) -> Iterator[tuple[int, int, int, float]]:
    """Divide an allocation of classes among their members. Yield (first, second or -1, type,
    share).

    Every member of a class gets an equal part of each column. Partners are assigned in order, so
    that two classes of p and q members make at most p + q - 1 pairs.
    """
    order = np.argsort(row, kind="stable")
    ends = np.cumsum(np.bincount(row))
    members = [list(map(int, part)) for part in np.split(order, ends[:-1])]
    for a, b, kind, x in zip(columns.first, columns.second, columns.type, share, strict=True):
        ours = members[a]
        if b < 0:
            for job in ours:
                yield job, -1, int(kind), x / len(ours)
        elif a == b:
            # around a ring everyone has two partners; a ring of two is one pair
            ring = ours[:1] if len(ours) == 2 else ours
            for i, job in enumerate(ring):
                yield job, ours[(i + 1) % len(ours)], int(kind), x / len(ring)
        else:
            yield from _dealt(ours, members[b], int(kind), float(x))


def _dealt(
    ours: list[int], theirs: list[int], kind: int, x: float
) -> Iterator[tuple[int, int, int, float]]:
    i = j = 0
    left, right = 1.0 / len(ours), 1.0 / len(theirs)
    while i < len(ours) and j < len(theirs):
        part = min(left, right)
        if part > 1e-12:
            yield ours[i], theirs[j], kind, x * part
        left, right = left - part, right - part
        if left <= 1e-12:
            i, left = i + 1, 1.0 / len(ours)
        if right <= 1e-12:
            j, right = j + 1, 1.0 / len(theirs)
