"""The sources of predicted durations in a simulation: learned ones, the truth, and simple rules.

With the option `--durations`, any of them can replace the usual predictions, so that their benefit
for the schedule, and not only their error, can be compared with that of simple rules.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from math import exp, log1p

from features.job import Job
from features.schema import State
from pipeline.online import TRAINS, LightGbmEstimator, OnlineEstimator
from pipeline.worlds.venus import TrackError
from scheduler.core.estimates import (
    ConstantEstimator,
    Estimate,
    Estimator,
    HistoriesEstimator,
    TableEstimator,
)
from scheduler.core.policy import Policy
from scheduler.simulation.work import Workload

Make = Callable[[], Estimator]
UNKNOWN_S = 600.0  # of a job about which a rule knows nothing yet
UNLIMITED_S = 7 * 86_400.0  # of a job without a time limit, where others have one
LONGEST_S = 1e9  # that a constant may be: 32 years
_FITTED = ("ga2m", "lightgbm", "lightgbm-blended")
OLD_NAMES = {"oracle": "truth", "gpus": f"constant:{UNKNOWN_S:.0f}", "histories": "own"}


def sources(workload: Workload, seed: int, **more: Make) -> dict[str, Make]:
    """Return functions that make estimators, by name. Without the extra `train`, fitted models
    are left out; without a time limit in the trace, so is the rule by time limits. `more` are
    added to the usual ones, or replace those of the same name."""
    truth = TableEstimator("truth", {i: work.duration_s for i, work in workload.work.items()})
    found: dict[str, Make] = {
        "own": HistoriesEstimator,
        "truth": lambda: truth,
        "gpu-count": ByGpuCount,
        "last": LastOfUser,
    }
    if TRAINS:
        found["ga2m"] = lambda: OnlineEstimator(seed=seed)
        found["lightgbm"] = lambda: LightGbmEstimator(blends=False, seed=seed)
        found["lightgbm-blended"] = lambda: LightGbmEstimator(blends=True, seed=seed)
    if any(job.time_limit_s for job in workload.jobs):
        found["slurm-limit"] = TimeLimit
    return found | more


def chosen(
    name: str | None, offered: Mapping[str, Make], default: str = "own"
) -> Callable[[Policy], Estimator]:
    """Return a function that makes the estimator of job durations for a policy, from the source
    `name`; an oracle gets the truth instead, and a policy that uses no durations none. Raise
    TrackError if there is no such source.

    Args:
        name: value of `--durations`; None: `default`.
        offered: the sources, by name, that the world offers.
    """
    name = OLD_NAMES.get(name or default, name or default)
    make = _constant(name) if name.startswith("constant:") else offered.get(name)
    if make is None:
        why = " (no job of this trace has a time limit)" if name == TimeLimit.name else ""
        if name in _FITTED and not TRAINS:
            why = f" ({name} needs the extra: pip install 'pellucid[train]')"
        raise TrackError(
            f"--durations {name}: use one of {', '.join(offered)} or constant:SECONDS{why}"
        )

    def estimator(policy: Policy) -> Estimator:
        if not policy.capabilities.estimates:
            return Estimator()
        return offered["truth"]() if policy.capabilities.oracle else make()

    return estimator


def _constant(name: str) -> Make:
    text = name.partition(":")[2]
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= LONGEST_S:
        raise TrackError(
            f"--durations {name}: after the colon goes a number of seconds, at most {LONGEST_S:g}"
        )
    return lambda: ConstantEstimator(seconds)


class _Rule(Estimator):
    """An estimator by a simple rule over the ended jobs. A subclass defines the rule."""

    def __init__(self) -> None:
        super().__init__()
        self._jobs: dict[str, Job] = {}  # not ended

    def submitted(self, job: Job, now: float) -> None:
        self._jobs[job.job_id] = job

    def ended(self, job_id: str, state: State, duration_s: float, now: float) -> None:
        self.learn(self._jobs.pop(job_id), duration_s)

    def withdrawn(self, job_id: str, now: float) -> None:
        self._jobs.pop(job_id, None)

    def learn(self, job: Job, duration_s: float) -> None:
        """Update the rule with a job that ended after `duration_s` seconds."""


class ByGpuCount(_Rule):
    """Predicts the geometric mean of the durations (each plus 1 s) of ended jobs with the same
    number of GPUs; `UNKNOWN_S` if there are none."""

    name = "gpu-count"

    def __init__(self) -> None:
        super().__init__()
        self._sums: defaultdict[int, list[float]] = defaultdict(lambda: [0.0, 0.0])

    def learn(self, job: Job, duration_s: float) -> None:
        held = self._sums[job.gpus]
        held[0] += log1p(duration_s)
        held[1] += 1

    def estimate(self, job: Job, now: float) -> Estimate:
        total, count = self._sums.get(job.gpus, (0.0, 0.0))
        return Estimate(exp(total / count) - 1 if count else UNKNOWN_S)


class LastOfUser(_Rule):
    """Predicts the duration of the last ended job of the same user, or of the same virtual
    cluster if the job has no user; `UNKNOWN_S` if there is none."""

    name = "last"

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[str, float] = {}

    def learn(self, job: Job, duration_s: float) -> None:
        self._last[job.user or job.vc] = duration_s

    def estimate(self, job: Job, now: float) -> Estimate:
        return Estimate(self._last.get(job.user or job.vc, UNKNOWN_S))


class TimeLimit(Estimator):
    """Predicts that a job runs until its time limit, or for `UNLIMITED_S` if it has none."""

    name = "slurm-limit"

    def estimate(self, job: Job, now: float) -> Estimate:
        return Estimate(job.time_limit_s or UNLIMITED_S)
