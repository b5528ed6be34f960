"""Derives the state of each job of a followed Slurm from a snapshot. The service writes it to the
tables of its database; `scheduler.slurm.look` answers from it without a database."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from features.codec import Json
from scheduler.core.decisions import ANOTHER
from scheduler.core.phase import Phase
from scheduler.explain.job import JobRow
from scheduler.slurm.follow.reasons import briefly
from scheduler.slurm.read.parse import SlurmJob
from scheduler.slurm.read.snapshot import HOLDING, ClusterSnapshot
from scheduler.slurm.reason import SlurmReason

MOST = 2**31 - 1  # that the column of priorities holds; Slurm's own go up to twice that
STARTED = SlurmReason(started=True)
ALONE = "pellucid:alone"  # in a job's comment: never share its GPUs


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The phase, reason and place of a job. The defaults are for a job that the core has not
    decided about.

    Attributes:
        key: the key by which its queue is sorted.
        placement: maps a node to the indices of the job's GPUs.
        partner: the job with which it shares them.
    """

    phase: Phase
    reason: str = ""
    priority: int = 0
    key: float | None = None
    estimate_s: float | None = None
    placement: Mapping[int, list[int]] = field(default_factory=dict)
    partner: str | None = None


class Place(NamedTuple):
    """The place of a job that waits in a queue; see `Standing`."""

    reason: str
    priority: int
    key: float | None
    estimate_s: float | None


class Standings:
    """Gives the state of each job of a snapshot (one reading of Slurm): its phase, why it waits,
    its place and its GPUs.

    Args:
        shown: function that returns the reason code of a job that was shown last, or "". It is used
            where there is no newer one.
        by_slurm: show Slurm's priorities.
    """

    def __init__(
        self, snapshot: ClusterSnapshot, shown: Callable[[str], str], *, by_slurm: bool
    ) -> None:
        self._of, self._shown = snapshot, shown
        self._reasons = {d.job_id: d.reason.value for d in snapshot.decisions}
        self._ranks = ranked(snapshot.waiting) if by_slurm else {}

    def of(self, job: SlurmJob) -> Standing:
        """Return the state of a job."""
        job_id = job.id
        if job_id in self._of.left_out:
            return Standing(phase=seen_as(job))
        runs, place = job_id in self._of.running, self.place(job_id)
        run = self._of.core.cluster.runs.get(job_id) if runs else None
        held = zip(run.nodes, run.gpus, strict=True) if run is not None else ()
        return Standing(
            phase=seen_as(job) if runs else Phase.QUEUED,
            reason=place.reason,
            priority=place.priority,
            key=place.key,
            estimate_s=place.estimate_s,
            placement={node: _indices(mask) for node, mask in held},
            partner=run.partner.job.job_id if run and run.partner else None,
        )

    def place(self, job_id: str) -> Place:
        """Return the place of a job that is in the core."""
        queued, reason = self._of.core.jobs[job_id], self._reasons.get(job_id)
        if reason is None and queued.reason is not None:
            reason = queued.reason.value
        elif reason is None:
            reason = self._shown(job_id)
        return Place(reason, self._ranks.get(job_id, 0), queued.key, queued.predicted_s)


def seen_as(job: SlurmJob) -> Phase:
    """Return the phase of a job that the core has not decided about."""
    return Phase.RUNNING if job.state in HOLDING else Phase.SUBMITTED


def asked(job: SlurmJob) -> Json:
    """Return a job's request in the form of a submission to the service."""
    return {
        "job_id": job.id,
        "command": ("sbatch", job.name[:200] or "batch"),  # Slurm does not show its own
        "owner": job.user[:128],
        "user": job.user,
        "name": job.name[:256],
        "gpus": job.gpus,
        "cpus": float(job.cpus),
        "memory_mib": job.memory_mib,
        "gpu_type": job.gpu_type or None,
        "time_limit_s": job.time_limit_s,
        "share": ALONE not in job.comment.split(),
        "profile": False,
        "submitted_at": job.submit,
    }


def queued_at(job: SlurmJob) -> float | None:
    """Return the time from which a job waits, or waited, for GPUs only, seconds since the epoch. It
    lies in the future where the job has a begin time. Return None if a hold or a dependency keeps
    the job, or Slurm does not show the time."""
    waits = job.priority != 0 and not job.dependency
    return job.eligible if job.state in HOLDING or waits else None


def named(job: SlurmJob, reason: SlurmReason) -> SlurmReason:
    """Return a reason with the job's partition, account and QOS filled in."""
    return replace(reason, partition=job.partition, account=job.account, qos=job.qos)


class SeenRows(Mapping[str, JobRow]):
    """The rows of all jobs of one snapshot, by id. Nothing in them comes from earlier polls. Each
    is made when it is first asked for.

    Args:
        why: reasons of waiting jobs, as far as known, by id.
    """

    def __init__(self, snapshot: ClusterSnapshot, why: Mapping[str, SlurmReason]) -> None:
        self._of, self._why = snapshot, why
        self._standings = Standings(snapshot, lambda _: "", by_slurm=True)
        self._jobs = snapshot.running | snapshot.waiting | snapshot.aside
        self._made: dict[str, JobRow] = {}

    def __getitem__(self, job_id: str) -> JobRow:
        if job_id not in self._made:
            self._made[job_id] = self._row(self._jobs[job_id])
        return self._made[job_id]

    def __contains__(self, job_id: object) -> bool:
        return job_id in self._jobs

    def __iter__(self) -> Iterator[str]:
        return iter(self._jobs)

    def __len__(self) -> int:
        return len(self._jobs)

    def _row(self, job: SlurmJob) -> JobRow:
        alone, left_out = briefly(job), self._of.left_out
        if job.id in left_out:
            alone = replace(alone, left_out=left_out[job.id])
        reason = STARTED if job.state in HOLDING else self._why.get(job.id, alone)
        return _seen_row(job, self._of, self._standings.of(job), named(job, reason))


def _seen_row(
    job: SlurmJob, snapshot: ClusterSnapshot, stands: Standing, reason: SlurmReason
) -> JobRow:
    return JobRow(
        **asked(job),
        vc=snapshot.shape.vc_of(job.partition),
        phase=stands.phase.value,
        reason=stands.reason,
        priority=stands.priority,
        estimate_s=stands.estimate_s,
        placement=dict(stands.placement),
        partner=stands.partner and ANOTHER,
        queued_at=queued_at(job),
        started_at=job.start if job.state in HOLDING else None,
        slurm=reason,
        attempt=0,
        ended_at=None,
        state=None,
        exit_code=None,
        detail="",
        cancel_asked=False,
    )


def ranked(waiting: Mapping[str, SlurmJob]) -> dict[str, int]:
    """Return Slurm's priorities by job id, all lowered by the same amount where one exceeds what
    the column can hold.

    Slurm's priorities are unsigned 32-bit numbers (`priority/basic` counts down from near the top),
    the column holds signed ones. The order stays the same.
    """
    high = max((job.priority for job in waiting.values()), default=0)
    if high <= MOST:
        return {job_id: job.priority for job_id, job in waiting.items()}
    lower = MOST + 1
    return {job_id: min(job.priority - lower, MOST) for job_id, job in waiting.items()}


def _indices(mask: int) -> list[int]:
    return [i for i in range(mask.bit_length()) if mask >> i & 1]
