"""The one linear program behind Gavel's policies, with or without space sharing.

    maximise    level·t + sum over jobs and types of gain · throughput there
    subject to  throughput of job i >= slope_i · t + floor_i       (throughput rows)
                time of job i <= 1                                 (time rows)
                GPUs in use of type j <= capacity_j                (GPU rows)

A column is a job, or a pair of jobs on the same GPUs, on one type; its value is the share of time
it is there. Every policy is a choice of slope, floor and gain. Pairs are too many to write down
(2.1 million for 2,048 jobs), so they enter by column generation: those whose reduced cost, under
the duals of the columns present, says that they would help. Narayanan et al., OSDI'20, section 4.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import OptimizeResult, linprog
from scipy.sparse import csc_array, hstack

from reproductions.gavel.problem import Floats, Ints, Problem

TOLERANCE = 1e-7  # of HiGHS; a smaller share of time is none


class Infeasible(ValueError):
    """Raised when no allocation meets the throughput floors of a goal, or the solver finds
    none."""


@dataclass(frozen=True, eq=False)
class Goal:
    """The objective and the floors of the program. Throughputs are in steps per second.

    Attributes:
        slope: (n,) throughput that a job must have per unit of the variable `t`.
        floor: (n,) throughput that a job must have in addition, whatever `t` is.
        gain: (n, m) value of one step per second of a job on a type.
        level: value of one unit of `t`.
    """

    slope: Floats
    floor: Floats
    gain: Floats
    level: float = 1.0


@dataclass(frozen=True, eq=False)
class Columns:
    """The possible uses of GPUs: single jobs (`second` = -1) and pairs of jobs, each on one type.

    Attributes:
        first, second: (k,) indices of the jobs; equal for two jobs of one class.
        type: (k,) GPU type.
        rate_first, rate_second: (k,) steps per second of each job.
        gpus: (k,) GPUs held.
    """

    first: Ints
    second: Ints
    type: Ints
    rate_first: Floats
    rate_second: Floats
    gpus: Ints

    def __len__(self) -> int:
        return len(self.first)

    def key(self, jobs: int) -> Ints:
        """Return (k,) one number for each column, equal only for equal columns. `jobs` is the
        number of rows of the problem.
        """
        found: Ints = (self.type * (jobs + 1) + self.first) * (jobs + 1) + self.second
        return found

    def take(self, index: Ints) -> Columns:
        return Columns(*(getattr(self, name)[index] for name in self.__dataclass_fields__))

    def __add__(self, other: Columns) -> Columns:
        names = self.__dataclass_fields__
        return Columns(*(np.concatenate([getattr(self, n), getattr(other, n)]) for n in names))


@dataclass(frozen=True, eq=False)
class Allocation:
    """An optimum of the program.

    Attributes:
        columns: the uses of GPUs with a positive share of time.
        share: for each column, its share of one job's time (for a class of identical jobs, of the
            time of the class).
        objective: value of the objective.
        level: the optimal `t`.
        throughput: (n,) steps per second of a job, mean of its class.
        job_dual: (n,) objective gained if a job were entitled to one step per second less.
        time_dual: (n,) objective gained if a job had more time than there is, per unit.
        gpu_dual: (m,) objective gained for one more GPU of each type.
        seen: number of columns that the solver was given.
    """

    columns: Columns
    share: Floats
    objective: float
    level: float
    throughput: Floats
    job_dual: Floats
    time_dual: Floats
    gpu_dual: Floats
    seen: int

    def priced_as(self, other: Allocation) -> Allocation:
        """Return this allocation with the objective and dual values of `other`, of which it is a
        refinement.
        """
        return replace(
            self,
            objective=other.objective,
            level=other.level,
            job_dual=other.job_dual,
            time_dual=other.time_dual,
            gpu_dual=other.gpu_dual,
        )

    def by_type(self, types: int) -> Floats:
        """Return (n, m) the share of time that each job is on each type, alone or in a pair."""
        table = np.zeros((len(self.throughput), types))
        paired = self.columns.second >= 0
        np.add.at(table, (self.columns.first, self.columns.type), self.share)
        second, kind = self.columns.second[paired], self.columns.type[paired]
        np.add.at(table, (second, kind), self.share[paired])
        return table


def singles(problem: Problem) -> Columns:
    """Return the columns of every job alone on every type that can hold it."""
    first, kind = np.nonzero(problem.throughput > 0)
    none = np.full(len(first), -1)
    rate = problem.throughput[first, kind]
    return Columns(
        first=first,
        second=none,
        type=kind,
        rate_first=rate,
        rate_second=np.zeros(len(first)),
        gpus=problem.gpus[first],
    )


def solve(
    problem: Problem, goal: Goal, columns: Columns, *, level: float | None = None
) -> Allocation:
    """Solve the program over the given columns. Return its optimum.

    Rates are scaled by each job's proportional throughput, and `t` so that slopes are about 1.

    Args:
        level: value to which `t` is fixed; None: `t` is free.

    Raises:
        Infeasible: no allocation meets the floors.
    """
    n, m, k = problem.jobs, problem.types, len(columns)
    scale = 1 / problem.proportional
    unit = float((goal.slope * scale).max()) or 1.0  # of t
    rows = _rows(problem, columns, scale)
    t_column = np.zeros((2 * n + m, 1))
    t_column[:n, 0] = goal.slope * scale / unit
    bounds = np.tile([0.0, np.inf], (1 + k, 1))
    if level is not None:
        bounds[0] = level * unit
    found = _maximum(
        np.concatenate([[goal.level], worth(goal, columns)]),
        hstack([csc_array(t_column), rows], format="csc"),
        np.concatenate([-goal.floor * scale, np.ones(n), problem.capacity]),
        bounds,
    )
    used = np.flatnonzero(found.x[1:] > TOLERANCE)
    columns, share = columns.take(used), found.x[1 + used]
    dual = np.maximum(0.0, -found.ineqlin.marginals)
    return Allocation(
        columns=columns,
        share=share,
        objective=-float(found.fun),
        level=float(found.x[0]) / unit,
        throughput=throughput(columns, share, problem.count),
        job_dual=dual[:n] * scale,
        time_dual=dual[n : 2 * n],
        gpu_dual=dual[2 * n :],
        seen=k,
    )


def _rows(problem: Problem, c: Columns, scale: Floats) -> csc_array:
    """Return the matrix of constraints. Each column touches its jobs' throughput and time rows,
    and one GPU row.

    The row of a class stands for its mean member. Throughput rows are negated: all are upper
    bounds.
    """
    n = problem.jobs
    twins = c.first == c.second  # two jobs of one class
    paired = (c.second >= 0) & ~twins
    second = np.where(paired, c.second, 0)
    ours = np.where(twins, 2.0, 1.0) / problem.count[c.first]
    theirs = 1.0 / problem.count[second]
    yes = np.ones(len(c), bool)
    entries = (
        (c.first, -c.rate_first * scale[c.first] * ours, yes),
        (second, -c.rate_second * scale[second] * theirs, paired),
        (n + c.first, ours, yes),
        (n + second, theirs, paired),
        (2 * n + c.type, c.gpus.astype(float), yes),
    )
    everyone = np.arange(len(c))
    index = np.concatenate([row[there] for row, _, there in entries])
    value = np.concatenate([value[there] for _, value, there in entries])
    column = np.concatenate([everyone[there] for _, _, there in entries])
    return csc_array((value, (index, column)), shape=(2 * n + problem.types, len(c)))


def worth(goal: Goal, c: Columns) -> Floats:
    """Return the coefficient of each of k columns in the objective: how much one more unit of it
    adds. An array (k,)."""
    second = np.where(c.second >= 0, c.rate_second * goal.gain[c.second, c.type], 0.0)
    earned: Floats = c.rate_first * goal.gain[c.first, c.type] + second
    return earned


def _maximum(worth: Floats, rows: csc_array, upper: Floats, bounds: Floats) -> OptimizeResult:
    """Solve the scaled program with HiGHS: by the interior point method or, if that fails, the
    simplex method. Return the solver's result. Raise Infeasible where there is no solution, or
    neither method finds one.

    The interior point method with crossover, from scratch each time, was measured against the
    simplex method started from the last optimum: 4 against 22 CPU seconds for space sharing with
    2,048 jobs.
    """
    for method in ("highs-ipm", "highs-ds"):
        found = linprog(-worth, A_ub=rows, b_ub=upper, bounds=bounds, method=method)
        if found.status == 0:
            return found
        if found.status == 2:
            raise Infeasible("no allocation gives every job what it must have")
    raise Infeasible(f"the solver found no allocation: {found.message}")


def throughput(columns: Columns, share: Floats, count: Ints) -> Floats:
    """Return (n,) the steps per second of a job under the shares, as the mean of its class."""
    total = np.zeros(len(count))
    paired = columns.second >= 0
    np.add.at(total, columns.first, columns.rate_first * share)
    np.add.at(total, columns.second[paired], (columns.rate_second * share)[paired])
    mean: Floats = total / count
    return mean
