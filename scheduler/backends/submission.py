"""A job as submitted, in the form in which the log stores it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from features.amounts import Work
from features.codec import Json
from features.job import Job
from scheduler.core.request import OF_JOB, JobRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission(JobRequest):
    """A submitted job, as the log stores it.

    Attributes:
        owner: who submitted it (name of the token, or the local user).
        submitted_at: seconds since the epoch.
        user: operating-system user it runs as; "" = the service's own.
        environment: variables added to the environment it runs in. Never shown.
        work: how much work the command asks for, where its owner lets that be read; None: unknown.
        like: digest of the command and its folder, where its owner lets that be read; "" = unknown.
        at_once: how many tasks of its array may run at once; None: all, or it is no such task.
        sealed: whether `command` is only the program and `environment` empty, because both are
            stored apart.
    """

    job_id: str
    owner: str
    submitted_at: float
    user: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    work: Work | None = None
    like: str = ""
    sealed: bool = False
    at_once: int | None = None

    def sealing(self) -> Submission:
        """Return the submission without its arguments and environment, which are stored apart from
        the log. The program's name stays.
        """
        return replace(self, command=self.command[:1], environment={}, sealed=True)

    def job(self) -> Job:
        """Return the job in the form that the decision core takes."""
        asked = {name: getattr(self, name) for name in OF_JOB}
        return Job(
            job_id=self.job_id,
            submit_time=self.submitted_at,
            user=self.owner,
            work=self.work,
            like=self.like,
            **asked,
        )

    def changed(self, to: Mapping[str, Any]) -> Submission:
        """Return the submission with the changes of a CHANGED event. `to`: the body of that
        event.
        """
        return replace(self, **to)

    def body(self) -> Json:
        """Return the submission as the body of a SUBMITTED event."""
        found = {name: getattr(self, name) for name in NAMES}
        found |= {"command": list(self.command), "environment": dict(self.environment)}
        if not self.sealed:
            del found["sealed"]  # earlier versions kept all of it in the log
        found["work"] = self.work and asdict(self.work)
        if self.work is None:
            del found["work"]
        if not self.like:
            del found["like"]
        if self.at_once is None:
            del found["at_once"]
        return found

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> Submission:
        """Return the submission stored in `body`. Fields missing in a body of an earlier version
        get their default. Unknown fields are ignored.
        """
        known = {name: body[name] for name in NAMES if name in body}
        if known.get("work"):
            known["work"] = Work(**known["work"])
        return cls(**{**known, "command": tuple(body["command"])})


NAMES = tuple(one.name for one in fields(Submission))
