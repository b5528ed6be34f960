"""What a waiting job could be instead, and how a copy of the core gets it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from features.job import Job
from scheduler.core.core import Core
from scheduler.core.plural import count
from scheduler.explain.whatif.futures import Believed


class NotPossible(ValueError):
    """The job cannot be that; one line that says why."""


@dataclass(frozen=True, slots=True)
class Change:
    """What is different; None: nothing.

    Attributes:
        first: as if it went before everybody who waits in its virtual cluster.
        priority: asked for; higher goes first.
        held: it is held; False: it is released.
    """

    gpus: int | None = None
    time_limit_s: float | None = None
    gpu_type: str | None = None
    share: bool | None = None
    profile: bool | None = None
    vc: str | None = None
    priority: int | None = None
    first: bool = False
    held: bool | None = None

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> Change:
        """From plain values. NotPossible names a field that cannot be changed."""
        known = {f.name for f in fields(cls)}
        odd = sorted(set(body) - known)
        if odd:
            raise NotPossible(f"{odd[0]} cannot be changed; what can: {', '.join(sorted(known))}")
        return cls(**body)

    def body(self) -> dict[str, Any]:
        """The fields that are given."""
        given = {f.name: getattr(self, f.name) for f in fields(self)}
        if not self.first:
            del given["first"]
        return {name: value for name, value in given.items() if value is not None}

    def words(self) -> str:
        """As the beginning of a sentence: "with 4 GPUs"."""
        said = []
        if self.gpus is not None:
            said.append(f"with {count(self.gpus, 'GPU')}")
        if self.time_limit_s is not None:
            said.append(f"with a time limit of {self.time_limit_s / 3600:.3g} h")
        if self.gpu_type is not None:
            said.append(f"on {self.gpu_type or 'any GPU type'}")
        if self.share is not None:
            said.append("sharing GPUs allowed" if self.share else "with GPUs of its own")
        if self.profile is not None:
            said.append("profiled beforehand" if self.profile else "not profiled beforehand")
        if self.vc is not None:
            said.append(f"in virtual cluster {self.vc}")
        if self.priority is not None:
            said.append(f"with priority {self.priority}")
        if self.held is not None:
            said.append("held" if self.held else "released")
        if self.first:
            said.append("going before all others")
        return ", ".join(said)

    def job(self, job: Job) -> Job:
        """The job as it would be."""
        names = ("gpus", "time_limit_s", "share", "profile", "vc")
        given = {name: getattr(self, name) for name in names}
        given = {name: value for name, value in given.items() if value is not None}
        if self.gpu_type is not None:
            given["gpu_type"] = self.gpu_type or None
        return replace(job, **given)

    @property
    def shape(self) -> bool:
        """Whether the job itself is another, and not only its place in line."""
        return any(
            value is not None
            for value in (
                self.gpus, self.time_limit_s, self.gpu_type, self.share, self.profile, self.vc
            )
        )  # fmt: skip


def apply(core: Core, job_id: str, change: Change, now: float, predicted_s: float | None) -> None:
    """Make a waiting job of a copied core another; it keeps its place by order of arrival.

    Args:
        predicted_s: duration believed of what it would be; None: as before.

    Raises NotPossible.
    """
    queued = core.known(job_id)
    if change.shape:
        job = change.job(queued.job)
        _must_be_possible(core, job)
        if predicted_s is not None:
            estimator = core.estimator
            assert isinstance(estimator, Believed)
            estimator.predicted[job_id] = predicted_s
        core.change_job(job, now)
    if change.held:
        core.hold(job_id, now)
    elif change.held is False:
        core.release(job_id, now)
    if change.first:
        waiting = core.queues[queued.job.vc]
        core.set_priority(job_id, 1 + max((q.priority for q in waiting), default=0))
    elif change.priority is not None:
        core.set_priority(job_id, change.priority)


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
