"""The genetic search of Pollux (OSDI'21): GPUs of every job on every node, for the whole cluster.

A population is one array, individuals x jobs x nodes, and every step of the search is a handful of
array operations over it. A job's speedup is looked up in a table by nodes and GPUs, so that nothing
is fitted or optimised inside the search.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reproductions.pollux.throughput import Floats

Ints = np.ndarray[tuple[int, ...], np.dtype[np.int16]]

RESET, THIN = 0.1, 0.1  # chances: a row goes back to what it is now; a row is thinned out
_FLOOR = 1e-3  # keeps a job without GPUs from making every allocation equally bad


@dataclass(frozen=True, slots=True)
class Problem:
    """What is searched over.

    Attributes:
        speedup: [job, nodes spanned, GPUs]; 0 where there are none.
        keep: [job]: share of its speedup a job keeps when it is restarted.
        most: [job]: GPUs it may have.
        current: [job, node]: GPUs now.
        room: [node]: GPUs of each node.
        fairness: the power p of the mean; -1 favours the least served, 1 the sum.
        weight: what a speedup is multiplied by before the mean is taken.
        avoid: at most one job of several nodes on a node.
    """

    speedup: Floats
    keep: Floats
    most: Ints
    current: Ints
    room: Ints
    fairness: float = -1.0
    weight: float = 0.25
    avoid: bool = True

    def speedups(self, population: Ints) -> Floats:
        """Return the speedup of every job in every individual, with the cost of restarts counted
        in.
        """
        gpus = population.sum(axis=2, dtype=np.int16)
        nodes = (population > 0).sum(axis=2, dtype=np.int16)
        speedup = self.speedup[np.arange(population.shape[1]), nodes, gpus]
        moved = (population != self.current).any(axis=2)
        scaled: Floats = np.where(moved, speedup * self.keep, speedup)
        return scaled

    def value(self, population: Ints) -> Floats:
        """Return the fitness of every individual (a candidate allocation): the power mean of the
        weighted speedups of its jobs."""
        speedup = self.speedups(population) * self.weight + _FLOOR
        p = self.fairness
        if p == 0:
            return np.asarray(np.exp(np.log(speedup).mean(axis=1)))
        return np.asarray((speedup**p).mean(axis=1) ** (1 / p))

    def utility(self, population: Ints) -> Floats:
        """Return, for every individual (a candidate allocation of the population), its summed
        speedup per GPU of the nodes in use."""
        used = population.any(axis=1) @ self.room
        return np.asarray(self.speedups(population).sum(axis=1) / np.maximum(used, 1))


def search(
    problem: Problem,
    rng: np.random.Generator,
    start: Ints | None = None,
    *,
    individuals: int = 100,
    generations: int = 100,
    patience: int = 100,
    utility: bool = False,
) -> Ints:
    """Return the final population, best first.

    Args:
        start: a population to go on from (of any size), or None for the current allocation.
        patience: generations without a better individual after which the search ends.
        utility: individuals of high utility are kept, too, as in the artifact.
    """

    def standing(population: Ints, value: Floats) -> Floats:
        return _standing(value, problem.utility(population)) if utility else value

    now = problem.current[None]
    population = now if start is None else np.concatenate([now, start])
    population = _distinct(repair(population, problem, rng))
    value = problem.value(population)
    stands = standing(population, value)
    best, since = float(value.max()), 0
    for _ in range(generations):
        children = _cross(population, stands, individuals, rng)
        children = repair(mutate(children, problem, rng), problem, rng)
        population = _distinct(np.concatenate([population, children]))
        value = problem.value(population)
        stands = standing(population, value)
        order = np.argsort(-stands, kind="stable")[:individuals]
        population, value, stands = population[order], value[order], stands[order]
        since = since + 1 if value.max() <= best else 0
        best = float(value.max())
        if since >= patience:
            break
    return population[np.argsort(-value, kind="stable")]


def _distinct(population: Ints) -> Ints:
    """Return each individual once, in order of first appearance."""
    flat = np.ascontiguousarray(population.reshape(len(population), -1))
    rows = flat.view(np.dtype((np.void, flat.dtype.itemsize * flat.shape[1]))).ravel()
    _, first = np.unique(rows, return_index=True)
    return population[np.sort(first)]


def _standing(value: Floats, utility: Floats) -> Floats:
    """Return the rank of each individual by its two goals; higher is better (NSGA-II, Deb et al.
    2002). Individuals of the first Pareto front come first, then those of the second, and so on.
    Within a front, the most isolated come first.
    """
    goals = np.stack([value, utility], axis=1)
    front, left = np.empty(len(goals), dtype=np.int64), np.lexsort((-utility, -value))
    number, alone = 0, np.zeros(len(goals))
    while len(left):
        most = np.maximum.accumulate(goals[left, 1])
        ahead = np.append(True, goals[left[1:], 1] > most[:-1])
        members, left = left[ahead], left[~ahead]
        front[members], number = number, number + 1
        for goal in goals[members].T:
            order = np.argsort(goal, kind="stable")
            gaps = (goal[order][2:] - goal[order][:-2]) / ((goal.max() - goal.min()) or 1.0)
            alone[members[order]] += np.concatenate([[np.inf], gaps, [np.inf]])[: len(order)]
    stands = np.empty(len(goals))
    stands[np.lexsort((-alone, front))] = -np.arange(len(goals))
    return stands


def _cross(population: Ints, value: Floats, count: int, rng: np.random.Generator) -> Ints:
    """Return children of tournament winners: jobs before a random cut from one parent, the rest
    from the other.
    """
    entrants = rng.integers(len(population), size=(2, 2, count))
    first = value[entrants[0]] >= value[entrants[1]]
    mother, father = np.where(first, entrants[0], entrants[1])
    cut = rng.integers(population.shape[1] + 1, size=count)
    early = np.arange(population.shape[1]) < cut[:, None]
    children: Ints = np.where(early[..., None], population[mother], population[father])
    return children


def mutate(population: Ints, problem: Problem, rng: np.random.Generator) -> Ints:
    """Reset some rows to the present allocation, thin some out, and let some jobs grow into free
    GPUs. Return the population.
    """
    count, jobs, _ = population.shape
    reset, thinned = rng.random((2, count, jobs, 1), dtype=np.float32)
    population = np.where(reset < RESET, problem.current, population)
    # in rows that are thinned, an element is lost with the same chance as a row is chosen
    chance, much = rng.random((2, *population.shape), dtype=np.float32)
    population = np.where((thinned < THIN) & (chance < THIN), 0, population)
    # into a node with free GPUs, one job of all and one of those already there are expected to grow
    present = population > 0
    among = np.maximum(present.sum(axis=1, dtype=np.int16), 1)[:, None]
    stays = (1 - 1 / jobs) * np.where(present, 1 - 1 / among, 1)
    free = population.sum(axis=1, dtype=np.int16) < problem.room
    grows = (1 - chance >= stays) & free[:, None]
    upto = np.maximum(problem.room - population + 1, 1)
    grown = np.where(grows, population + (much * upto).astype(np.int16), population)
    return grown.astype(np.int16, copy=False)


def repair(population: Ints, problem: Problem, rng: np.random.Generator) -> Ints:
    """Return the population with every individual made feasible. Jobs are in order of right:
    the first keep what they have.
    """
    if problem.avoid:
        used = population > 0
        spread = used & (used.sum(axis=2, dtype=np.int16, keepdims=True) > 1)
        later = spread & (np.cumsum(spread, axis=1, dtype=np.int16) > 1)
        population = np.where(later, 0, population)
    # no more GPUs than a job may have, the nodes taken in any order
    nodes = rng.permutation(population.shape[2])
    population = _clipped(population[:, :, nodes], problem.most[:, None], axis=2)
    # no more than a node has
    return _clipped(population[:, :, np.argsort(nodes)], problem.room, axis=1)


def _clipped(population: Ints, limit: Ints, axis: int) -> Ints:
    """Return the population without what exceeds the limit on the sum along an axis, taken from
    the later ones.
    """
    sums = np.cumsum(population, axis=axis, dtype=np.int16)
    over = np.clip(sums - limit, 0, population)
    clipped: Ints = population - over
    return clipped
