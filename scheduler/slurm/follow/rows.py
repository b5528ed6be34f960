"""A follower's snapshot as rows of the tables that the pages and `pellucid why` read."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter

from features.codec import decode, encode
from scheduler.backends.events import canonical
from scheduler.backends.submission import Submission
from scheduler.core.phase import Phase
from scheduler.explain.words import progress_words
from scheduler.job_rows import JobColumns
from scheduler.slurm.follow.histories import Over
from scheduler.slurm.follow.reasons import briefly
from scheduler.slurm.read.job_states import STATES
from scheduler.slurm.read.parse import SlurmJob
from scheduler.slurm.read.snapshot import HOLDING, ClusterSnapshot
from scheduler.slurm.reason import SlurmReason

MOST = 2**31 - 1  # that the column of priorities holds; Slurm's own go up to twice that

# what a submission is made of: Slurm's priority of a job may change at every look, this does not
_SHOWN = attrgetter(
    "submit", "user", "name", "partition", "gpus", "gpu_type", "cpus", "memory_mib",
    "time_limit_s", "comment",
)  # fmt: skip

ALONE = "pellucid:alone"  # in a job's comment: never share its GPUs

Rows = dict[str, JobColumns]


def _json(job: SlurmJob, reason: SlurmReason) -> str:
    of = replace(reason, partition=job.partition, account=job.account, qos=job.qos)
    return canonical(encode(of))


_STARTED = SlurmReason(started=True)


def submission(job: SlurmJob, vc: str) -> Submission:
    """Return a job of Slurm as a submission to the service."""
    return Submission(
        job_id=job.id,
        command=("sbatch", job.name[:200] or "batch"),
        owner=job.user[:128],
        vc=vc,
        gpus=job.gpus,
        submitted_at=job.submit,
        name=job.name[:256],
        user=job.user,
        cpus=float(job.cpus),
        memory_mib=job.memory_mib,
        gpu_type=job.gpu_type or None,
        time_limit_s=job.time_limit_s,
        share=ALONE not in job.comment.split(),
        profile=False,
    )


class JobRows:
    """The rows of jobs, poll after poll. A job that is the same object as before is not encoded
    again.
    """

    def __init__(self, vc_of: Callable[[str], str] = str) -> None:
        self.rows: Rows = {}  # as they were written last
        self.unread: Mapping[str, str] = {}  # why nothing is known of how far a job is
        self._vc_of = vc_of
        self._plain: dict[str, tuple[SlurmJob, JobColumns]] = {}

    def of(
        self, snapshot: ClusterSnapshot, why: Mapping[str, SlurmReason], *, by_slurm: bool
    ) -> Rows:
        """Return the rows of all jobs of a snapshot.

        Args:
            why: what is known of why some wait.
            by_slurm: show Slurm's priorities.
        """
        reasons = {d.job_id: d.reason.value for d in snapshot.decisions}
        ranks = ranked(snapshot.waiting) if by_slurm else {}
        found: Rows = {}
        plain: dict[str, tuple[SlurmJob, JobColumns]] = {}
        for job in (
            *snapshot.running.values(),
            *snapshot.waiting.values(),
            *snapshot.aside.values(),
        ):
            known, vc = self._plain.get(job.id), snapshot.shape.vc_of(job.partition)
            if known is None or known[0] is not job or known[1]["vc"] != vc:
                same = known is not None and _SHOWN(known[0]) == _SHOWN(job)
                same = same and known is not None and known[1]["vc"] == vc
                known = job, _row(job, vc, known[1]["spec"] if known and same else None)
            plain[job.id] = known
            job_id = job.id
            if job_id in snapshot.left_out:
                alone = replace(briefly(job), left_out=snapshot.left_out[job_id])
                found[job_id] = known[1] | {"slurm": self._slurm(job, why.get(job_id, alone))}
                continue
            queued = snapshot.core.jobs[job_id]
            still = queued.reason.value if queued.reason is not None else ""  # no new decision
            before = self.rows.get(job_id, {}).get("reason", "")
            more: JobColumns = {
                "reason": reasons.get(job_id) or still or before,
                "priority": ranks.get(job_id, 0),
                "key": queued.key,
                "estimate_s": queued.estimate_s,
            }
            if job_id in snapshot.running:
                run = snapshot.core.cluster.runs.get(job_id)
                held = zip(run.nodes, run.gpus, strict=True) if run is not None else ()
                more["nodes"] = canonical([[node, _indices(mask)] for node, mask in held])
                more["partner"] = run.partner.job.job_id if run and run.partner else None
                more["slurm"] = self._slurm(job)
                more["detail"] = progress_words(queued.progress, self.unread.get(job_id, ""))
            else:
                more["phase"] = Phase.QUEUED.value
                if job_id in why:
                    more["slurm"] = _json(job, why[job_id])
            found[job_id] = known[1] | more
        self._plain = plain
        return found

    def _slurm(self, job: SlurmJob, why: SlurmReason | None = None) -> str:
        """Return why a job waits; of one that Slurm started: why at the last look before, if it was
        seen to wait.
        """
        if job.state not in HOLDING and why is not None:
            return _json(job, why)
        before = self.rows.get(job.id)
        if before is None or before["phase"] == Phase.RUNNING.value:
            return (before and before["slurm"]) or _json(job, _STARTED)
        found = decode(SlurmReason, json.loads(before["slurm"])) if before["slurm"] else _STARTED
        return _json(job, replace(found, started=True, plan=None, own="", left_out=""))

    def changed(self, rows: Rows) -> list[JobColumns]:
        """Return the rows that differ from those written last."""
        return [row for job_id, row in rows.items() if self.rows.get(job_id) != row]

    def ended(self, jobs: Sequence[Over], now: float) -> list[JobColumns]:
        """Return the last rows of jobs that ended, from which a later follower learns."""
        found = []
        for job, predicted_s in jobs:
            row, before = _row(job, self._vc_of(job.partition)), self.rows.get(job.id)
            if before is not None:
                row |= {"reason": before["reason"], "key": before["key"], "nodes": before["nodes"]}
            over: JobColumns = {
                "phase": Phase.ENDED.value,
                "state": STATES[job.state].value,
                "estimate_s": predicted_s,
                "started_at": job.start,
                "ended_at": min(job.end or now, now),
                "slurm": self._slurm(job) if job.start is not None else None,
            }
            found.append(row | over)
        return found


def _row(job: SlurmJob, vc: str, spec: str | None = None) -> JobColumns:
    """The row of a job that is seen, and not decided about; `spec`: its own, as it was."""
    runs = job.state in HOLDING
    waits = not runs and job.priority != 0 and not job.dependency
    return {
        "job_id": job.id,
        "submitted_seq": int(job.submit),
        "owner": job.user[:128],
        "vc": vc,
        "name": job.name[:256],
        "gpus": job.gpus,
        "spec": spec or canonical(submission(job, vc).body()),
        "phase": (Phase.RUNNING if runs else Phase.SUBMITTED).value,
        "reason": "",
        "priority": 0,
        "key": None,
        "estimate_s": None,
        "nodes": "[]",
        "partner": None,
        "submitted_at": job.submit,
        "queued_at": job.eligible if runs or waits else None,
        "started_at": job.start if runs else None,
        "ended_at": None,
        "state": None,
        "detail": "",
        "slurm": _json(job, _STARTED if runs else briefly(job)),
    }


def ranked(waiting: Mapping[str, SlurmJob]) -> dict[str, int]:
    """Return Slurm's priorities, all lowered by the same amount where one exceeds what the column
    holds.

    Slurm's have 32 bits and no sign (`priority/basic` counts down from near the top), the column
    31 and a sign: as many values, in the same order.
    """
    high = max((job.priority for job in waiting.values()), default=0)
    lower = MOST + 1 if high > MOST else 0
    return {job_id: min(job.priority - lower, MOST) for job_id, job in waiting.items()}


def _indices(mask: int) -> list[int]:
    return [i for i in range(mask.bit_length()) if mask >> i & 1]
