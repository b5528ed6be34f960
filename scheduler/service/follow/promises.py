"""How late a start may be, learned from how earlier promises were kept.

Futures know how long jobs may run and not what slurmctld will do otherwise than the policy: their
p90 comes too early. It is put off by a factor that goes up when promises are broken and down while
they are kept, so that one in ten is broken in the long run, whatever the cause: adaptive conformal
inference (Gibbs and Candes, NeurIPS 2021). A promise is what was shown of a job first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import exp, inf
from operator import attrgetter
from statistics import fmean

from scheduler.backends.slurm.job_states import WAITING
from scheduler.backends.slurm.parse import SlurmJob
from scheduler.explain.whatif.forecasts import SOON_S, StartForecast, starting

BROKEN = 0.1  # of promises, in the long run
PACE = 0.05  # by how much one look may move the logarithm: jobs that are late together count once
BEGIN, LEAST, MOST = 0.4, -1.0, 1.5  # of that logarithm


class Promises:
    """Promises made of jobs that wait, and how far p90 is put off.

    Args:
        judged_until: the last look of an earlier follower, which judged what was to be by then.

    Attributes:
        stretch: logarithm of the factor of `SOON_S` + wait.
    """

    def __init__(self, stretch: float = BEGIN, judged_until: float = -inf) -> None:
        self.stretch = min(MOST, max(LEAST, stretch))
        self._judged_until = judged_until
        self._promised: dict[str, float | None] = {}  # p90 by job; None: it is judged
        self._asked: dict[str, SlurmJob] = {}  # that wait, as they were when it was made

    def recall(self, job_id: str, p90: float) -> None:
        """What was promised of a job that may still wait."""
        self._promised[job_id] = p90 if p90 >= self._judged_until else None

    def look(self, jobs: Iterable[SlurmJob], now: float) -> None:
        """Judge what was promised of jobs by how they stand. Of those that are not there any more,
        were held, put off or asked for otherwise, nothing is known."""
        promised: dict[str, float | None] = {}
        asked: dict[str, SlurmJob] = {}
        broken: list[bool] = []
        for job in jobs:
            waits = job.state in WAITING
            was = self._asked.get(job.id, job) if job.id in self._promised else job
            if waits:
                asked[job.id] = was
            if job.id not in self._promised:
                continue
            p90, void = self._promised[job.id], waits and (job.priority == 0 or _changed(was, job))
            if waits:
                promised[job.id] = None if void or (p90 or now) < now else p90
            if p90 is None or void or (waits and now <= p90):
                continue
            if waits or (job.start is not None and job.start > self._judged_until):
                broken.append(waits or (job.start or now) > p90)
        self._promised, self._asked = promised, asked
        if broken:
            moved = self.stretch + PACE * (fmean(broken) - BROKEN)
            self.stretch = min(MOST, max(LEAST, moved))

    def put_off(self, made: StartForecast) -> StartForecast:
        """A forecast of futures with the p90 that is shown."""
        if made.start_p90 is None:
            return made
        wait_s = SOON_S + max(0.0, made.start_p90 - made.made_at)
        p90 = made.made_at + max(0.0, wait_s * exp(self.stretch) - SOON_S)
        return starting(made, made.start_p10, made.start_p50, p90)

    def first(self, made: Mapping[str, StartForecast]) -> dict[str, StartForecast]:
        """Of forecasts that are shown, those of jobs that had none before: promises."""
        new = {
            job_id: one
            for job_id, one in made.items()
            if one.start_p90 is not None and job_id not in self._promised
        }
        self._promised |= {job_id: one.start_p90 for job_id, one in new.items()}
        return new


# What only a user or an administrator changes of a job that waits.
_REQUEST = attrgetter(
    "time_limit_s", "nice", "qos", "account", "features", "licences", "req_nodes", "exclusive",
    "reservation", "gpu_types", "gpus_per_node", "least_mib", "per", "array_limit", "exc_nodes",
    "deadline", "odd",
)  # fmt: skip


def _changed(was: SlurmJob, job: SlurmJob) -> bool:
    """A job that waits is not what was promised of: anybody could break promises for nothing."""
    if _REQUEST(was) != _REQUEST(job) or (job.dependency and not was.dependency):
        return True
    put_off = (job.eligible or 0.0) > (was.eligible or inf)
    return put_off and not was.dependency
