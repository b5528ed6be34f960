"""All waiting jobs grouped by the cause of their wait, and the jobs whose end would free most of
them. Pages, the API and commands show them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from scheduler.core.decisions import Reason
from scheduler.explain.reasons import next_step
from scheduler.explain.words import phrase
from scheduler.slurm.reason import SlurmReason, meaning

HOLDERS = 8  # shown of those who are waited for
_JOB = re.compile(r"\d+(?:[_+]\d+)?")  # in a dependency, as Slurm has it


@dataclass(frozen=True, slots=True)
class Waiting:
    """A waiting job, or several that wait for the same reason.

    Attributes:
        job_id: id of the one that has waited longest.
        code: code of the reason, or Slurm's word; "": none yet.
        since: time since when it is held, or has waited in all, seconds since the epoch; None:
            unknown.
        waits_for: ids of the jobs that it waits for.
        jobs: number of jobs.
        gpus: GPUs that they ask for in all.
        words: the reason in words; "": those of `code`.
    """

    job_id: str
    gpus: int
    code: str
    words: str = ""
    since: float | None = None
    waits_for: frozenset[str] = frozenset()
    jobs: int = 1


@dataclass(frozen=True, slots=True)
class Other:
    """A job that other jobs may wait for: its id, owner and phase."""

    job_id: str
    owner: str
    phase: str


@dataclass(frozen=True, slots=True)
class Cause:
    """All waiting jobs that wait for the same reason.

    Attributes:
        code: code of the reason.
        text: the reason in words.
        step: what their owners could do; "": nothing.
        jobs, gpus: number of these jobs, and of the GPUs that they ask for.
        oldest: time since when the first of them waits, seconds since the epoch; None: unknown.
        example: the job that has waited longest.
    """

    code: str
    text: str
    step: str
    jobs: int
    gpus: int
    oldest: float | None
    example: str


@dataclass(frozen=True, slots=True)
class WaitedFor(Other):
    """A job that other jobs do wait for: the number of these jobs, and of the GPUs that they ask
    for.
    """

    jobs: int
    gpus: int


@dataclass(frozen=True)
class Causes:
    """All waiting jobs, grouped by the cause of their wait.

    Attributes:
        waiting, gpus: number of waiting jobs, and of the GPUs that they ask for.
        now: time of the answer, seconds since the epoch.
        causes: the causes; the one whose jobs ask for most GPUs comes first.
        waited_for: jobs whose end would free most of the waiting ones, at most `HOLDERS`, by the
            latest decision about each waiting job.
    """

    waiting: int
    gpus: int
    now: float
    causes: list[Cause]
    waited_for: list[WaitedFor]


def of_slurm(job_id: str, gpus: int, since: float | None, reason: SlurmReason) -> Waiting:
    """Return the record of a job that waits in Slurm. Jobs that are kept waiting by the same limit
    get the same cause."""
    limit = reason.limit
    if limit is not None:
        words = f"{limit.whose} ({' '.join(filter(None, (limit.name, limit.tres)))})"
    else:
        words = meaning(reason.code) or _WORDS.get(reason.code, "")
    return Waiting(
        job_id=job_id,
        gpus=gpus,
        code=reason.code,
        words=": ".join(filter(None, (reason.code, words))),
        since=since,
        waits_for=frozenset(_JOB.findall(reason.dependency)),
    )


# of those that a job's own page explains by what was found of the job
_WORDS: Mapping[str, str] = {
    "Resources": "what it asks for is not free",
    "Priority": "jobs of higher priority go first",
    "Dependency": "other jobs have to end first",
    "JobHeldUser": "its user holds it",
    "JobHeldAdmin": "an administrator holds it",
}


def causes_of(
    waits: Sequence[Waiting],
    others: Mapping[str, Other],
    now: float,
    named: Sequence[Waiting] = (),
) -> Causes:
    """Return the number of waiting jobs and their GPUs for each cause, and the jobs that most of
    them wait for.

    Args:
        others: jobs that the viewer may see, by id. No other job is named as waited for.
        named: further rows that say which jobs are waited for. They are not counted as waiting.
    """
    by: dict[tuple[str, str], list[Waiting]] = {}
    for job in waits:
        by.setdefault((job.code, job.words), []).append(job)
    found = [_cause(*of, jobs) for of, jobs in by.items()]
    return Causes(
        waiting=sum(job.jobs for job in waits),
        gpus=sum(job.gpus for job in waits),
        now=now,
        causes=sorted(found, key=lambda cause: (-cause.gpus, -cause.jobs, cause.text)),
        waited_for=_waited_for([*waits, *named], others),
    )


def _cause(code: str, words: str, jobs: Sequence[Waiting]) -> Cause:
    known = not words and code in {reason.value for reason in Reason}
    oldest = min(jobs, key=lambda job: (job.since is None, job.since or 0.0))
    return Cause(
        code=code,
        text=words or (phrase(code) if known else code) or "not evaluated yet",
        step=next_step(Reason(code)) if known else "",
        jobs=sum(job.jobs for job in jobs),
        gpus=sum(job.gpus for job in jobs),
        oldest=oldest.since,
        example=oldest.job_id,
    )


def _waited_for(waits: Iterable[Waiting], others: Mapping[str, Other]) -> list[WaitedFor]:
    found: dict[str, list[Waiting]] = {}
    for job in waits:
        for one in (job.waits_for & others.keys()) - {job.job_id}:
            found.setdefault(one, []).append(job)
    rows = [
        WaitedFor(
            job_id=one,
            owner=others[one].owner,
            phase=others[one].phase,
            jobs=sum(job.jobs for job in those),
            gpus=sum(job.gpus for job in those),
        )
        for one, those in found.items()
    ]
    return sorted(rows, key=lambda row: (-row.jobs, -row.gpus, row.job_id))[:HOLDERS]
