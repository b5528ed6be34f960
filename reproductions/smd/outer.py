"""The outer problem of SMD, which chooses the jobs to admit: a knapsack with several resources.

Each job has one or more choices (numbers of GPUs), of which at most one is taken. `approximate`
relaxes the problem to a linear program, rounds down, adds choices by density and improves by
exchanges; its result is always feasible. `select_exactly` solves the mixed-integer program.
`select` uses that for small problems.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, linprog, milp
from scipy.sparse import coo_array, vstack

Floats = NDArray[np.float64]

SLACK = 1e-9
ROUNDS = 4  # of exchanges, at most
LOOKS = 32  # choices tried on each side of one
FEW = 40  # choices up to which the mixed-integer program takes no time


class NoSolution(RuntimeError):
    """Raised when the solver found no solution; the message is the solver's reason."""


@dataclass(frozen=True, slots=True)
class Knapsack:
    """The choices from which a selection is made.

    Attributes:
        values: value of each choice, (n,), not negative.
        weights: how much of each resource a choice takes, (n, resources).
        capacity: how much of each resource there is, (resources,).
        jobs: the job that each choice belongs to, (n,); None when each choice is a job of its own.
    """

    values: Floats
    weights: Floats
    capacity: Floats
    jobs: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        if self.weights.shape != (len(self.values), len(self.capacity)):
            raise ValueError(
                f"weights are {self.weights.shape}, not {(len(self.values), len(self.capacity))}"
            )

    def owners(self) -> NDArray[np.int64]:
        return np.arange(len(self.values)) if self.jobs is None else self.jobs

    def value(self, chosen: Sequence[int]) -> float:
        """Return the sum of the values of the chosen items."""
        return float(self.values[list(chosen)].sum())

    def feasible(self, chosen: Sequence[int]) -> bool:
        """Return whether a selection is within the capacity and takes no job twice."""
        picked = list(chosen)
        owners = self.owners()[picked]
        within = (self.weights[picked].sum(axis=0) <= self.capacity + SLACK).all()
        return bool(within and len(set(owners.tolist())) == len(picked))

    def constraints(self) -> coo_array:
        """Return the matrix of the linear constraints: one row for each resource and, if `jobs` is
        given, one for each job.
        """
        rows = [coo_array(self.weights.T)]
        if self.jobs is not None and len(self.jobs):
            n = len(self.values)
            once = (np.ones(n), (self.jobs, np.arange(n)))
            rows.append(coo_array(once, shape=(int(self.jobs.max()) + 1, n)))
        return vstack(rows)

    def bounds(self) -> Floats:
        """Return the upper bounds of the linear program's constraints, one for each row of
        `constraints`."""
        many = 0 if self.jobs is None or not len(self.jobs) else int(self.jobs.max()) + 1
        return np.concatenate([self.capacity, np.ones(many)])


@dataclass(frozen=True, slots=True)
class Selection:
    """The choices that were taken, and the value of one more unit of each resource.

    Attributes:
        chosen: indices of the choices, rising.
        prices: dual value of each resource in the relaxed problem, (resources,).
        bound: an upper bound on the value of any selection.
    """

    chosen: tuple[int, ...]
    prices: tuple[float, ...]
    bound: float


def select(problem: Knapsack) -> Selection:
    """Return a feasible selection: the best one if there are few choices, otherwise a good one."""
    found = approximate(problem)
    if len(problem.values) > FEW or problem.value(found.chosen) >= found.bound - SLACK:
        return found
    with suppress(NoSolution):
        return replace(found, chosen=select_exactly(problem))
    return found


def approximate(problem: Knapsack) -> Selection:
    """Return a good feasible selection. If the solver fails, choices are taken by density alone."""
    n = len(problem.values)
    if not n:
        return Selection((), tuple(0.0 for _ in problem.capacity), 0.0)
    relaxed = linprog(
        -problem.values,
        A_ub=problem.constraints(),
        b_ub=problem.bounds(),
        bounds=(0.0, 1.0),
        method="highs-ds",
    )
    prices, whole, bound = np.zeros(len(problem.capacity)), [], float(problem.values.sum())
    if relaxed.status == 0:
        prices = -np.asarray(relaxed.ineqlin.marginals)[: len(prices)]
        whole, bound = np.flatnonzero(relaxed.x > 1.0 - 1e-7).tolist(), -float(relaxed.fun)
    chosen = _fill(problem, whole, prices)
    for _ in range(ROUNDS):
        better = _exchange(problem, chosen, prices)
        if problem.value(better) <= problem.value(chosen) + SLACK:
            break
        chosen = better
    return Selection(tuple(sorted(chosen)), tuple(prices.tolist()), bound)


def select_exactly(problem: Knapsack, *, gap: float = 0.0) -> tuple[int, ...]:
    """Return the indices of the best selection, to within a relative `gap`. Raise NoSolution where
    the solver fails.
    """
    n = len(problem.values)
    if not n:
        return ()
    with _hushed():
        found = milp(
            -problem.values,
            constraints=LinearConstraint(problem.constraints(), ub=problem.bounds()),
            bounds=Bounds(0, 1),
            integrality=np.ones(n),
            options={"mip_rel_gap": gap},
        )
    if found.x is None:
        raise NoSolution(f"the knapsack: {found.message}")
    return tuple(np.flatnonzero(found.x > 0.5).tolist())


@contextmanager
def _hushed() -> Iterator[None]:
    """Hide standard output inside the block: HiGHS prints a debugging line there now and then,
    which would spoil JSON.
    """
    sys.stdout.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def _density(problem: Knapsack, prices: Floats) -> Floats:
    """Return the value of each choice per unit of resource, where resources are weighted by the
    relaxation's prices plus a small constant.
    """
    share = problem.weights / np.maximum(problem.capacity, SLACK)
    scarce = prices * problem.capacity
    scale = scarce.sum() or 1.0
    density: Floats = problem.values / np.maximum(share @ (scarce / scale + 0.05), SLACK)
    return density


def _fill(
    problem: Knapsack, chosen: Sequence[int], prices: Floats, *, bar: int | None = None
) -> list[int]:
    """Return the chosen choices with further ones added while they fit, the densest first; choice
    `bar` is never added.
    """
    taken = list(chosen)
    owners = problem.owners()
    used = problem.weights[taken].sum(axis=0)
    jobs = set(owners[taken].tolist())
    for i in np.argsort(-_density(problem, prices), kind="stable").tolist():
        fits = (used + problem.weights[i] <= problem.capacity + SLACK).all()
        if fits and i != bar and int(owners[i]) not in jobs and problem.values[i] > 0:
            taken.append(i)
            jobs.add(int(owners[i]))
            used = used + problem.weights[i]
    return taken


def _exchange(problem: Knapsack, chosen: Sequence[int], prices: Floats) -> list[int]:
    """Return the best selection that differs by one exchange, or the same one if none is better. An
    exchange leaves one choice out, or forces one in, and fills the rest.
    """
    density = _density(problem, prices)
    inside = sorted(chosen, key=lambda i: density[i])  # the least dense first
    outside = sorted(set(range(len(density))) - set(chosen), key=lambda i: -density[i])
    others = [
        _fill(problem, [i for i in inside if i != out], prices, bar=out) for out in inside[:LOOKS]
    ]
    others += [_fill(problem, _forced(problem, inside, i), prices) for i in outside[:LOOKS]]
    return max([list(chosen), *others], key=problem.value)


def _forced(problem: Knapsack, inside: Sequence[int], choice: int) -> list[int]:
    """Return a selection with `choice` and as many of the choices in `inside` as fit. The first
    ones in `inside`, the least dense, are dropped first. Return `inside` if `choice` does not fit
    at all.
    """
    owners = problem.owners()
    kept = [i for i in inside if owners[i] != owners[choice]]
    used = problem.weights[[*kept, choice]].sum(axis=0)
    while kept and (used > problem.capacity + SLACK).any():
        used = used - problem.weights[kept.pop(0)]
    return [*kept, choice] if (used <= problem.capacity + SLACK).all() else list(inside)
