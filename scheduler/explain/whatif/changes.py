"""Changes that a waiting job could be given, and how they are made in a copy of the core."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from features.codec import Json
from features.job import Job
from scheduler.core.core import Core
from scheduler.core.durations import Duration
from scheduler.core.queue import QueuedJob
from scheduler.core.request import OF_JOB, TRIED
from scheduler.explain.whatif.futures import Believed
from scheduler.explain.whatif.trial import Alteration


class NotPossible(ValueError):
    """Raised where a job cannot be changed as asked; the message is one line that says why."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a waiting job.

    Attributes:
        to: the fields of its request that change, with their new values.
        first: whether the job goes before all others that wait in its virtual cluster.
        held: True: the job is held; False: it is released; None: neither.
    """

    to: Mapping[str, Any] = field(default_factory=dict)
    first: bool = False
    held: bool | None = None

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> Change:
        """Return the change from plain values, where "" means no value. Raise NotPossible for a
        field that cannot be changed."""
        known = {*TRIED, "first", "held"}
        odd = sorted(set(body) - known)
        if odd:
            raise NotPossible(f"{odd[0]} cannot be changed; what can: {', '.join(sorted(known))}")
        to = {name: body[name] for name in TRIED if name in body}
        to = {name: None if TRIED[name].nullable and v == "" else v for name, v in to.items()}
        return cls(to, body.get("first", False), body.get("held"))

    def body(self) -> Json:
        """Return the change as plain values, from which `from_body` makes it again."""
        found = {name: "" if value is None else value for name, value in self.to.items()}
        if self.first:
            found["first"] = True
        return found if self.held is None else {**found, "held": self.held}

    def words(self) -> str:
        """Return the change as the beginning of a sentence: "with 4 GPUs"."""
        parts = [TRIED[name].words(self.to[name]) for name in TRIED if name in self.to]
        if self.held is not None:
            parts.append("held" if self.held else "released")
        if self.first:
            parts.append("going before all others")
        return ", ".join(parts)

    def job(self, job: Job) -> Job:
        """Return the job with the changed request."""
        return replace(job, **{name: to for name, to in self.to.items() if name in OF_JOB})

    @property
    def shape(self) -> bool:
        """Whether the change alters the job itself, and not only its place in its queue."""
        return bool(OF_JOB & self.to.keys())


def changed(job_id: str, change: Change, predicted_s: Duration | None = None) -> Alteration:
    """Return a function that changes a waiting job in a copy of the core. The job keeps its place
    by order of arrival. The function raises NotPossible where the change cannot be made.

    Args:
        predicted_s: predicted duration of the changed job; None: as before.
    """

    def alter(core: Core, now: float) -> None:
        _change(core, core.jobs[job_id], change, predicted_s=predicted_s, now=now)

    return alter


def _change(
    core: Core, queued: QueuedJob, change: Change, predicted_s: Duration | None, now: float
) -> None:
    job_id = queued.job.job_id
    if change.shape:
        job = change.job(queued.job)
        _must_be_possible(core, job)
        if predicted_s is not None:
            estimator = core.estimator
            assert isinstance(estimator, Believed)
            estimator.changed_to[job_id] = predicted_s
        core.waiting.change(job, now)
    if change.held:
        core.waiting.hold(job_id, now)
    elif change.held is False:
        core.waiting.release(job_id, now)
    if change.first:
        waiting = core.queues[queued.job.vc]
        core.waiting.set_priority(job_id, 1 + max((q.priority for q in waiting), default=0))
    elif "priority" in change.to:
        core.waiting.set_priority(job_id, change.to["priority"])


def _must_be_possible(core: Core, job: Job) -> None:
    pool = core.cluster.pools.get(job.vc)
    if pool is None:
        raise NotPossible(f"there is no virtual cluster {job.vc!r}")
    if not 0 < job.gpus <= pool.gpus:
        raise NotPossible(f"virtual cluster {job.vc} has {pool.gpus} GPUs, not {job.gpus}")
    if job.gpu_type and not core.cluster.spec.has_type(job.gpu_type):
        raise NotPossible(f"no node has GPU type {job.gpu_type}")
    if core.cluster.spec.mixes_types and core.policy.refuses(job, core.cluster.spec):
        raise NotPossible(f"virtual cluster {job.vc} has no such GPUs for it")
    if job.job_id in core.cluster.runs:
        raise NotPossible("it is being profiled; ask again when that is over")
