"""Turns a follower's snapshot into rows of the tables that the pages and `pellucid why` read."""

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
from scheduler.slurm.follow.standing import (
    STARTED,
    Standings,
    asked,
    named,
    queued_at,
    seen_as,
)
from scheduler.slurm.read.job_states import STATES
from scheduler.slurm.read.parse import SlurmJob
from scheduler.slurm.read.snapshot import HOLDING, ClusterSnapshot
from scheduler.slurm.reason import SlurmReason

# what a submission is made of: Slurm's priority of a job may change at every look, this does not
_SHOWN = attrgetter(
    "submit",
    "user",
    "name",
    "partition",
    "gpus",
    "gpu_type",
    "cpus",
    "memory_mib",
    "time_limit_s",
    "comment",
    "work",
)

Rows = dict[str, JobColumns]


def _json(job: SlurmJob, reason: SlurmReason) -> str:
    return canonical(encode(named(job, reason)))


def submission(job: SlurmJob, vc: str) -> Submission:
    """Return a job of Slurm as a submission to the service."""
    return Submission(**asked(job), vc=vc, work=job.work)


class JobRows:
    """The rows of jobs, poll after poll. A job that has not changed since the last poll (the same
    object) is not encoded again."""

    def __init__(self, vc_of: Callable[[str], str] = str) -> None:
        self.rows: Rows = {}  # as they were written last
        self.unread: Mapping[str, str] = {}  # why nothing is known of how far a job is
        self._vc_of = vc_of
        self._plain: dict[str, tuple[SlurmJob, JobColumns]] = {}

    def of(
        self, snapshot: ClusterSnapshot, why: Mapping[str, SlurmReason], *, by_slurm: bool
    ) -> Rows:
        """Return the database rows of all jobs of a snapshot (one reading of Slurm's state).

        Args:
            why: reasons of waiting jobs, as far as known, by job id.
            by_slurm: show Slurm's priorities.
        """
        standings = Standings(snapshot, by_slurm=by_slurm)
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
            stands = standings.of(job, self.rows.get(job_id, {}).get("reason", ""))
            more: JobColumns = {
                "phase": stands.phase.value,
                "reason": stands.reason,
                "priority": stands.priority,
                "key": stands.key,
                "estimate_s": stands.estimate_s,
            }
            if job_id in snapshot.running:
                more["nodes"] = canonical([[node, gpus] for node, gpus in stands.placement.items()])
                more["partner"] = stands.partner
                more["slurm"] = self._slurm(job)
                progress = snapshot.core.jobs[job_id].progress
                more["detail"] = progress_words(progress, self.unread.get(job_id, ""))
            elif job_id in why:
                more["slurm"] = _json(job, why[job_id])
            found[job_id] = known[1] | more
        self._plain = plain
        return found

    def _slurm(self, job: SlurmJob, why: SlurmReason | None = None) -> str:
        """Return as JSON why a job waits. For a job that Slurm has started, return why it waited at
        the poll before, if it was seen waiting.
        """
        if job.state not in HOLDING and why is not None:
            return _json(job, why)
        before = self.rows.get(job.id)
        if before is None or before["phase"] == Phase.RUNNING.value:
            return (before and before["slurm"]) or _json(job, STARTED)
        found = decode(SlurmReason, json.loads(before["slurm"])) if before["slurm"] else STARTED
        return _json(job, replace(found, started=True, plan=None, own="", left_out=""))

    def changed(self, rows: Rows) -> list[JobColumns]:
        """Return those of the given rows that differ from the rows that were written last."""
        return [row for job_id, row in rows.items() if self.rows.get(job_id) != row]

    def ended(self, jobs: Sequence[Over], now: float) -> list[JobColumns]:
        """Return the last rows of jobs that ended. A follower that starts later learns durations
        from them."""
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
    """Return the row of a job that the core has not decided about.

    Args:
        spec: its encoded submission, if it was written before; None: it is made from the job.
    """
    runs = job.state in HOLDING
    return {
        "job_id": job.id,
        "submitted_seq": int(job.submit),
        "owner": job.user[:128],
        "vc": vc,
        "name": job.name[:256],
        "gpus": job.gpus,
        "spec": spec or canonical(submission(job, vc).body()),
        "phase": seen_as(job).value,
        "reason": "",
        "priority": 0,
        "key": None,
        "estimate_s": None,
        "nodes": "[]",
        "partner": None,
        "submitted_at": job.submit,
        "queued_at": queued_at(job),
        "started_at": job.start if runs else None,
        "ended_at": None,
        "state": None,
        "detail": "",
        "slurm": _json(job, STARTED if runs else briefly(job)),
    }
