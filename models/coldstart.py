"""A duration predictor that is honest from the first job on, until a trained model exists.

Empirical-Bayes shrinkage (in the manner of James and Stein) along a chain from the general to
the particular: what is known of a narrower group moves the estimate towards that group's own
mean, by a weight n / (n + k) that grows with the jobs seen. Everything it holds is a count and
a mean per group; it learns from ended jobs alone.
"""

from __future__ import annotations

from collections.abc import Hashable
from math import expm1, isfinite, log1p

from features.job import Job
from features.names import normalise

# The chain, and with the time limit the names of the terms of a prediction, in order.
LEVELS = ("vc", "gpus", "user", "user_gpus", "template")
TIME_LIMIT = "time_limit"


class ColdStartError(ValueError):
    """A duration or setting that cannot be learned from; names the value and what is accepted."""


class ColdStart:
    """Predicts ln(1 + duration in seconds) as an intercept plus one term per level of a chain.

    With e the estimate so far, m the mean of ln(1 + duration) of the group and n its jobs, a
    level's term is n / (n + shrinkage) * (m - e): 0 for a group never seen. The last term keeps
    the prediction at or below the time limit asked for, 0 when it already is or there is none.
    The intercept is the mean over all ended jobs, shrunk in the same way to ln(1 + prior_s).

    Args:
        prior_s: duration believed before any job has ended, seconds.
        shrinkage: jobs a group needs for its mean to weigh as much as what is known without it.
        memory: jobs after which a group's mean forgets: from then on the newest weighs 1/memory.

    The template is the user's normalised job name, or (user, GPUs, CPUs) where names are empty.
    """

    def __init__(
        self, *, prior_s: float = 600.0, shrinkage: float = 2.0, memory: float = 5.0
    ) -> None:
        for name, value, least in (
            ("prior_s", prior_s, 0.0),
            ("shrinkage", shrinkage, 0.0),
            ("memory", memory, 1.0),
        ):
            if not (isfinite(value) and value >= least):
                raise ColdStartError(f"{name} is {value}, must be a number >= {least:g}")
        self._prior = log1p(prior_s)
        self._shrinkage = shrinkage
        self._memory = memory
        self._all = _Mean()
        self._groups: dict[Hashable, _Mean] = {}

    @property
    def observed(self) -> int:
        """Jobs learned from so far."""
        return self._all.n

    def observe(self, job: Job, duration_s: float) -> None:
        """Learns that `job` ended after running `duration_s` seconds exclusively. O(1)."""
        if not (isfinite(duration_s) and duration_s >= 0):
            raise ColdStartError(f"job {job.job_id}: duration_s is {duration_s}, must be >= 0")
        value = log1p(duration_s)
        self._all.add(value, 1.0 / (self._all.n + 1))
        for key in _keys(job):
            group = self._groups.setdefault(key, _Mean())
            group.add(value, max(1.0 / (group.n + 1), 1.0 / self._memory))

    def predict(self, job: Job) -> tuple[float, float, tuple[tuple[str, float], ...]]:
        """Score ln(1 + seconds), intercept, and terms (name, value) that sum to it. O(1)."""
        intercept = estimate = self._prior + self._pull(self._all, self._prior)
        terms = []
        for level, key in zip(LEVELS, _keys(job), strict=True):
            group = self._groups.get(key)
            term = self._pull(group, estimate) if group else 0.0
            terms.append((level, term))
            estimate += term
        limit = job.time_limit_s
        above = max(0.0, estimate - log1p(limit)) if limit is not None and limit >= 0 else 0.0
        terms.append((TIME_LIMIT, -above))
        return estimate - above, intercept, tuple(terms)

    @staticmethod
    def seconds(score: float) -> float:
        """Predicted duration of a score, seconds, never negative."""
        return max(0.0, expm1(score))

    def _pull(self, group: _Mean, estimate: float) -> float:
        if not group.n:
            return 0.0
        return group.n / (group.n + self._shrinkage) * (group.mean - estimate)


class _Mean:
    """Count and (recency-weighted) mean."""

    __slots__ = ("mean", "n")

    def __init__(self) -> None:
        self.n = 0
        self.mean = 0.0

    def add(self, value: float, weight: float) -> None:
        self.n += 1
        self.mean += weight * (value - self.mean)


def _keys(job: Job) -> tuple[Hashable, ...]:
    """Groups the job belongs to, one per level; the level keeps equal values apart."""
    name = normalise(job.name) if job.name else ""
    template = (name,) if name else (job.gpus, job.cpus)
    return (
        ("vc", job.vc),
        ("gpus", job.gpus),
        ("user", job.user),
        ("user_gpus", job.user, job.gpus),
        ("template", job.user, *template),
    )
