"""Writes refused requests into the log, but no faster than the log can bear.

A flood of bad requests would otherwise fill the disk. Above the limit refusals are only counted,
and the next one that is written states how many were not.
"""

from __future__ import annotations

from collections import Counter
from threading import Lock

from fastapi import Request

from scheduler.backends.events import Kind
from scheduler.service.api.changes import Changes
from scheduler.service.api.limits import Buckets, Limits
from scheduler.service.api.problems import Problem
from scheduler.service.log.store.reads import Reads

MAX_PATH = 200


class Refusals:
    """The refused requests of one API process.

    Attributes:
        counts: number of refusals, by kind of problem, for the metrics.
    """

    def __init__(self, changes: Changes, reads: Reads, limits: Limits):
        self._changes, self._reads = changes, reads
        self._bucket = Buckets(limits.refusals_per_s, limits.refusals_burst)
        self._lock = Lock()
        self._unwritten = 0
        self.counts: Counter[str] = Counter()

    def missed(self, request: Request, job_id: str) -> None:
        """Record a refused access where a job exists that the viewer may not see. Do nothing if
        there is no such job.
        """
        if self._reads.exists(job_id):
            self.note(request, Problem(404, "not-yours", f"job {job_id} is another's"))

    def note(self, request: Request, problem: Problem) -> None:
        """Append a REFUSED event for a refused request; above the limit, only count it."""
        with self._lock:
            self.counts[problem.kind] += 1
            if self._bucket.take(""):
                self._unwritten += 1
                return
            unwritten, self._unwritten = self._unwritten, 0
        path = request.url.path[:MAX_PATH].encode("ascii", "backslashreplace").decode()
        self._changes.append(
            Kind.REFUSED,
            getattr(request.state, "actor", ""),
            what=f"{request.method} {path}",
            why=problem.kind,
            detail=problem.detail,
            address=request.client.host if request.client else "",
            unwritten=unwritten,
        )


def not_there(request: Request, job_id: str) -> str:
    """Return that there is no such job for whoever asks, as text, with what may have been meant."""
    reads: Reads = request.app.state.reads
    viewer = getattr(request.state, "viewer", None)
    if viewer is None:
        return "there is no such job"
    of_slurm = request.app.state.settings.backend == "slurm"
    return reads.seen_by(viewer).not_there(job_id, of_slurm=of_slurm)


def not_there_sentence(request: Request, job_id: str) -> str:
    """Return `not_there` as a sentence, for a page."""
    text = not_there(request, job_id)
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('?') else '.'}"
