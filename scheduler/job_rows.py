"""A job as a row of the table `jobs`, from a database or a reading of Slurm, and what a viewer may
see of it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import Any, TypedDict

from features.codec import decode
from scheduler.backends.submission import NAMES, Submission
from scheduler.core.decisions import ANOTHER
from scheduler.explain.job import JobRow
from scheduler.slurm.reason import SlurmReason


class JobColumns(TypedDict, total=False):
    """A row of the table `jobs`, or a part of one; the columns are described with the table."""

    job_id: str
    submitted_seq: int
    owner: str
    vc: str
    name: str
    gpus: int
    spec: str
    submitted_at: float
    phase: str
    reason: str
    priority: int
    key: float | None
    estimate_s: float | None
    attempt: int
    nodes: str
    partner: str | None
    queued_at: float | None
    started_at: float | None
    ended_at: float | None
    state: str | None
    exit_code: int | None
    detail: str
    slurm: str | None
    cancel_asked: bool
    hold: str
    held_by: str
    held_at: float | None
    waited_s: float | None
    waits_since: float | None
    updated_seq: int


def job_row(row: Mapping[Any, Any], visible: Collection[str]) -> JobRow:
    """Return a job from its row. The id of the job that shares its GPUs is shown only if it is in
    `visible`.
    """
    asked = Submission.from_body(json.loads(row["spec"]))
    partner = row["partner"]
    standing = (_OF_ROW & row.keys()) - {"partner", "slurm"}
    return JobRow(
        **{name: getattr(asked, name) for name in _ASKED - standing},
        **{name: row[name] for name in standing},
        placement=dict(json.loads(row["nodes"])),
        partner=partner if partner is None or partner in visible else ANOTHER,
        slurm=decode(SlurmReason, json.loads(row["slurm"])) if row.get("slurm") else None,
    )


_OF_ROW = {one.name for one in fields(JobRow)}
_ASKED = _OF_ROW & set(NAMES)
