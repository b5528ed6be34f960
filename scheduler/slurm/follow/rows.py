"""Turns a follower's snapshot into rows of the tables that the pages and `pellucid why` read."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
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
    Place,
    Standing,
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
# what the rest of its row is made of, before anything is known of why it waits
_REST = attrgetter(
    "state",
    "reason",
    "dependency",
    "reservation",
    "num_nodes",
    "eligible",
    "account",
    "qos",
)

Rows = dict[str, JobColumns]


def _json(job: SlurmJob, reason: SlurmReason) -> str:
    return canonical(encode(named(job, reason)))


def submission(job: SlurmJob, vc: str) -> Submission:
    """Return a job of Slurm as a submission to the service."""
    return Submission(**asked(job), vc=vc, work=job.work)


@dataclass(slots=True)
class _Kept:
    """What was made of a job as Slurm showed it, to be used again.

    Attributes:
        plain: its row before the core has decided about it.
        row: its row while it waits, and `made_of`: the place and the text of which it was made.
        why: why it waits, and `text`: the same as JSON.
    """

    job: SlurmJob
    plain: JobColumns
    why: SlurmReason | None = None
    text: str = ""
    row: JobColumns | None = None
    made_of: tuple[Place, str | None] | None = None

    def says(self, why: SlurmReason) -> str:
        """Return as JSON why the job waits."""
        if self.why is None or self.why != why:
            self.why, self.text = why, _json(self.job, why)
        return self.text

    def waits(self, place: Place, text: str | None) -> JobColumns:
        """Return the row of the job, which waits at a place in a queue. `text` says why, as
        JSON."""
        if self.row is None or self.made_of != (place, text):
            self.made_of = place, text
            more: JobColumns = {
                "phase": Phase.QUEUED.value,
                "reason": place.reason,
                "priority": place.priority,
                "key": place.key,
                "estimate_s": place.estimate_s,
                "slurm": text,
            }
            self.row = self.plain | more
        return self.row


class JobRows:
    """The rows of jobs, poll after poll. A job that has not changed since the last poll (the same
    object) is not encoded again, and its row is the same object where it says the same."""

    def __init__(self, vc_of: Callable[[str], str] = str) -> None:
        self.rows: Rows = {}  # as they were written last
        self.unread: Mapping[str, str] = {}  # why nothing is known of how far a job is
        self._vc_of = vc_of
        self._kept: dict[str, _Kept] = {}

    def of(
        self, snapshot: ClusterSnapshot, why: Mapping[str, SlurmReason], *, by_slurm: bool
    ) -> Rows:
        """Return the database rows of all jobs of a snapshot (one reading of Slurm's state).

        Args:
            why: reasons of waiting jobs, as far as known, by job id.
            by_slurm: show Slurm's priorities.
        """
        standings = Standings(snapshot, self._shown, by_slurm=by_slurm)
        kept, before, vc_of = dict[str, _Kept](), self._kept, snapshot.shape.vc_of
        found: Rows = {}
        for job in (
            *snapshot.running.values(),
            *snapshot.waiting.values(),
            *snapshot.aside.values(),
        ):
            job_id, vc, known = job.id, vc_of(job.partition), before.get(job.id)
            same = known is not None and known.job is job and known.plain["vc"] == vc
            one = kept[job_id] = known if known is not None and same else _keep(known, job, vc)
            if job_id in snapshot.left_out:
                alone = replace(briefly(job), left_out=snapshot.left_out[job_id])
                found[job_id] = one.plain | {"slurm": self._slurm(one, why.get(job_id, alone))}
                continue
            if job_id in snapshot.running:
                found[job_id] = self._runs(one, standings.of(job), snapshot)
            else:
                text = one.says(why[job_id]) if job_id in why else one.plain["slurm"]
                found[job_id] = one.waits(standings.place(job_id), text)
        self._kept = kept
        return found

    def _shown(self, job_id: str) -> str:
        return self.rows[job_id]["reason"] if job_id in self.rows else ""

    def _runs(self, one: _Kept, stands: Standing, snapshot: ClusterSnapshot) -> JobColumns:
        job_id = one.job.id
        progress = snapshot.core.jobs[job_id].progress
        more: JobColumns = {
            "phase": stands.phase.value,
            "reason": stands.reason,
            "priority": stands.priority,
            "key": stands.key,
            "estimate_s": stands.estimate_s,
            "nodes": canonical([[node, gpus] for node, gpus in stands.placement.items()]),
            "partner": stands.partner,
            "slurm": self._slurm(one),
            "detail": progress_words(progress, self.unread.get(job_id, "")),
        }
        return one.plain | more

    def _slurm(self, one: _Kept, why: SlurmReason | None = None) -> str:
        """Return as JSON why a job waits. For a job that Slurm has started, return why it waited at
        the poll before, if it was seen waiting.
        """
        job = one.job
        if job.state not in HOLDING and why is not None:
            return one.says(why)
        before = self.rows.get(job.id)
        if before is None or before["phase"] == Phase.RUNNING.value:
            return (before and before["slurm"]) or _json(job, STARTED)
        found = decode(SlurmReason, json.loads(before["slurm"])) if before["slurm"] else STARTED
        return _json(job, replace(found, started=True, plan=None, own="", left_out=""))

    def changed(self, rows: Rows) -> list[JobColumns]:
        """Return those of the given rows that differ from the rows that were written last."""
        before = self.rows
        return [
            row
            for job_id, row in rows.items()
            if (was := before.get(job_id)) is not row and was != row
        ]

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
                "slurm": self._slurm(_Kept(job, row)) if job.start is not None else None,
            }
            found.append(row | over)
        return found


def _keep(known: _Kept | None, job: SlurmJob, vc: str) -> _Kept:
    """Return what was made of a job at the last poll (`known`), or that with its row built
    again."""
    spec = None
    if known is not None and known.plain["vc"] == vc and _SHOWN(known.job) == _SHOWN(job):
        if _rest(known.job) == _rest(job):
            return replace(known, job=job)
        spec = known.plain["spec"]
    alone = STARTED if job.state in HOLDING else briefly(job)
    return _Kept(job, _row(job, vc, spec) | {"slurm": _json(job, alone)})


def _rest(job: SlurmJob) -> tuple[object, ...]:
    """Return what a job's row is made of besides its submission and its virtual cluster."""
    return (*_REST(job), job.priority == 0, job.state in HOLDING and job.start)


def _row(job: SlurmJob, vc: str, spec: str | None = None) -> JobColumns:
    """Return the row of a job that the core has not decided about, which does not say why it waits.

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
        "slurm": None,
    }
