"""Corrects start forecasts by how often earlier ones were kept.

Simulated futures know how long jobs may run, but not what slurmctld will do differently from the
policy, so their p50 and p90 come too early. As p50, another level of the futures is shown, and the
wait until p90 is multiplied by a factor. Both are raised when a forecast is not kept, and lowered
while forecasts are kept, so that in the long run one in two and one in ten are not kept, whatever
the cause: adaptive conformal inference (Gibbs and Candes, NeurIPS 2021). What is judged is the
first forecast shown of a job, called its promise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import ceil, exp, inf, isfinite
from operator import attrgetter
from statistics import fmean

from scheduler.explain.whatif.forecasts import SOON_S, StartForecast, starting
from scheduler.slurm.read.job_states import WAITING
from scheduler.slurm.read.parse import SlurmJob

BROKEN = (0.5, 0.1)  # of promises of p50 and of p90, in the long run
PACE = 0.05  # by how much one look may move each: jobs that are late together count once
BEGIN, LEAST, MOST = (0.5, 0.4), (0.3, -1.0), (0.8, 1.5)  # of that level, and of that logarithm

Both = tuple[float, float]  # of p50 and of p90


class Promises:
    """The starts that were promised to waiting jobs, and the correction learned from them.

    Args:
        judged_until: time of the last poll of an earlier follower, which judged all promises that
            were due by then.

    Attributes:
        late: the level of the futures that is shown as p50, and the logarithm of the factor by
            which `SOON_S` + wait until p90 is lengthened.
    """

    def __init__(self, late: Both = BEGIN, judged_until: float = -inf) -> None:
        self.late = _bounded(late)
        self._judged_until = judged_until
        # p50 and p90 by job; None: it is judged
        self._promised: dict[str, tuple[float | None, float | None]] = {}
        self._asked: dict[str, SlurmJob] = {}  # that wait, as they were when it was made

    def recall(self, job_id: str, p50: float, p90: float) -> None:
        """Restore the start that an earlier process promised to a job that may still wait."""
        known = [at if at >= self._judged_until else None for at in (p50, p90)]
        self._promised[job_id] = known[0], known[1]

    def look(self, jobs: Iterable[SlurmJob], now: float) -> None:
        """Judge promised starts by the present states of the jobs. Jobs that vanished, or were held
        or changed, are not judged."""
        promised: dict[str, tuple[float | None, float | None]] = {}
        asked: dict[str, SlurmJob] = {}
        broken: tuple[list[bool], list[bool]] = [], []
        for job in jobs:
            waits = job.state in WAITING
            was = self._asked.get(job.id, job) if job.id in self._promised else job
            if waits:
                asked[job.id] = was
            if job.id not in self._promised:
                continue
            both, void = self._promised[job.id], waits and (job.priority == 0 or changed(was, job))
            if waits:
                left = [None if void or (at or now) < now else at for at in both]
                promised[job.id] = left[0], left[1]
            if void or not (waits or (job.start is not None and job.start > self._judged_until)):
                continue
            for at, some in zip(both, broken, strict=True):
                if at is not None and not (waits and now <= at):
                    some.append(waits or (job.start or now) > at)
        self._promised, self._asked = promised, asked
        self.late = _bounded(
            was + (PACE * (fmean(some) - share) if some else 0.0)
            for was, some, share in zip(self.late, broken, BROKEN, strict=True)
        )

    def put_off(self, made: StartForecast) -> StartForecast:
        """Return a forecast with the corrected p50 and p90, which are shown instead of the
        simulated ones. A forecast without either is returned as it is."""
        if made.start_p50 is None or made.start_p90 is None:
            return made
        (level, by), p50, many = self.late, made.start_p50, len(made.starts)
        if many and level != 0.5:
            known = [at for at in made.starts if isfinite(at)]
            p50 = known[min(len(known), ceil(level * (many + 1))) - 1]
        wait_s = SOON_S + max(0.0, made.start_p90 - made.made_at)
        p90 = made.made_at + max(0.0, wait_s * exp(by) - SOON_S)
        return starting(made, made.start_p10, p50, p90)

    def first(self, made: Mapping[str, StartForecast]) -> dict[str, StartForecast]:
        """Return the forecasts, of those with a p90, for jobs to which no start is promised yet.
        They are kept here as promises, and judged later."""
        new = {
            job_id: one
            for job_id, one in made.items()
            if one.start_p90 is not None and job_id not in self._promised
        }
        self._promised |= {job_id: (one.start_p50, one.start_p90) for job_id, one in new.items()}
        return new


def _bounded(late: Iterable[float]) -> Both:
    p50, p90 = (min(m, max(n, one)) for n, one, m in zip(LEAST, late, MOST, strict=True))
    return p50, p90


# What only a user or an administrator changes of a job that waits.
_REQUEST = attrgetter(
    "time_limit_s",
    "nice",
    "qos",
    "account",
    "features",
    "licences",
    "req_nodes",
    "exclusive",
    "reservation",
    "gpu_types",
    "gpus_per_node",
    "least_mib",
    "per",
    "array_limit",
    "exc_nodes",
    "deadline",
    "odd",
)


def changed(was: SlurmJob, job: SlurmJob) -> bool:
    """Return whether a waiting job differs from the one that was promised a start. Such promises
    are not judged, since otherwise users could break promises at will."""
    if _REQUEST(was) != _REQUEST(job) or (job.dependency and not was.dependency):
        return True
    put_off = (job.eligible or 0.0) > (was.eligible or inf)
    return put_off and not was.dependency
