"""Random problems, small and large."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from reproductions.gavel.problem import Problem


def a_problem(
    jobs: int, seed: int = 0, *, gpus: tuple[int, ...] = (8, 8, 8), gangs: bool = False,
    pairs: bool = False, weights: bool = False, kinds: int | None = None,
) -> Problem:  # fmt: skip
    """Jobs faster on the first type than on the second, most of them, and so on.

    `kinds` jobs are really different; None: all are.
    """
    rng = np.random.default_rng(seed)
    k = kinds or jobs
    kind = np.arange(jobs) if kinds is None else rng.integers(k, size=jobs)
    base = np.linspace(1.0, 0.2, len(gpus))
    rates = base * np.exp(rng.normal(0, 0.35, (k, len(gpus))))
    gang = rng.choice([1, 2, 4], k, p=[0.7, 0.2, 0.1]) if gangs else np.ones(k, int)
    return Problem.of(
        rates[kind],
        gpus,
        gang[kind],
        rng.choice([1.0, 5.0], jobs) if weights else None,
        kind=kind,
        speeds=rng.uniform(0.2, 0.95, (len(gpus), k, k)) if pairs else None,
    )


problems = st.builds(
    a_problem,
    st.integers(1, 12),
    st.integers(0, 10_000),
    gpus=st.sampled_from([(4,), (4, 4), (5, 4, 9), (4, 16, 8)]),
    gangs=st.booleans(),
    pairs=st.booleans(),
    weights=st.booleans(),
)
