"""Turns requests that change something into events. The events of one request are committed in one
transaction; only the tasks of an array may be submitted in several.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from time import monotonic
from typing import Any, NamedTuple

from features.commands import digest_of, work_of
from features.states import State
from scheduler.backends.events import Event, Kind, canonical
from scheduler.backends.submission import Submission
from scheduler.core.dependencies import MOST, named
from scheduler.service.api.auth import service_user
from scheduler.service.api.problems import Problem
from scheduler.service.api.schemas import ArrayRequest, SubmitRequest, tasks_of
from scheduler.service.api.shapes import SubmittedArray
from scheduler.service.api.writer import Once, Room, Writer, Written
from scheduler.service.log.present import Present
from scheduler.service.log.record import Phase
from scheduler.service.log.store.payloads import Payload
from scheduler.service.log.store.reads import UnknownJob, VisibleQueries
from scheduler.service.log.store.rows import JobRow
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.visibility import Role, Viewer

Shape = dict[str, tuple[int, set[str]]]  # GPUs of each virtual cluster, and their types
Missing = Callable[[Sequence[str], str, Mapping[str, str], str], str]
TASK_VARIABLES = ("PELLUCID_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_ID")
SHAPE_S = 1.0  # the cluster is believed to be as it was for so long
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's: no letter looks like a digit


def new_job_id() -> str:
    """Return a new job id: twelve characters with 60 random bits, short enough to type, but
    impossible to guess.
    """
    drawn = secrets.randbits(60)  # at once: every draw asks the kernel
    return "".join(_ALPHABET[drawn >> 5 * i & 31] for i in range(12))


@dataclass(frozen=True, slots=True)
class Wish:
    """What a job asks of a cluster: virtual cluster, GPUs, type of GPU. None stands for any."""

    vc: str | None
    gpus: int
    gpu_type: str | None


class Task(NamedTuple):
    """A task of an array of jobs. `array`: the array's id; `behind`: number of the task for the end
    of which it waits, or None; `at_once`: how many of the array may run at once, or None.
    """

    array: str
    number: int
    behind: int | None = None
    at_once: int | None = None


class Changes:
    """Checks requests and has their events written.

    Args:
        now: returns the time on the service's clock, seconds since the epoch.
        room: limits of the jobs of one submitter.
        missing: returns why a command cannot be executed where it would run; "" where no reason is
            known.
        reads_commands: whether commands are read for how much they ask for, where their owners
            allow it.
        follows: whether the service only follows a Slurm; then every request is refused (409).
        mails: whether the service sends messages to owners.
    """

    def __init__(
        self,
        store: Store,
        writer: Writer,
        now: Callable[[], float],
        *,
        room: Room | None = None,
        missing: Missing = lambda *_: "",
        follows: bool = False,
        mails: bool = False,
        reads_commands: bool = True,
    ):
        self.host_mib = inf  # memory of the host that all jobs run on
        self._missing, self.mails = missing, mails
        self._follows, self._reads_commands = follows, reads_commands
        self._store, self._writer, self.now = store, writer, now
        self._room = room or Room()
        self._shape: Shape = {}
        self._shape_until = 0.0

    # --- submit -----------------------------------------------------------------------------

    def submit(
        self,
        viewer: Viewer,
        asked: SubmitRequest,
        key: str | None = None,
        task: Task | None = None,
    ) -> Future[Written]:
        """Submit a job, or a task of an array. Return a future that is done once the event is
        committed. Raise Problem (403, 409, 422, 429) where the job is refused. `key`: the request's
        idempotency key.
        """
        submission = self.submission(viewer, asked, task)
        event = Event(
            Kind.SUBMITTED,
            submission.submitted_at,
            submission.job_id,
            viewer.name,
            body=submission.sealing().body(),
        )
        once = None
        if key is not None:
            body = asked.model_dump(exclude_defaults=True)  # the same when a field is new
            once = Once(viewer.name, key, hashlib.sha256(canonical(body).encode()).hexdigest())
        payload = Payload(submission.command, submission.environment, submission.workdir)
        room = Room() if viewer.role is Role.OPERATOR else self._room
        return self._writer.append(event, once, room=room, payload=payload)

    def submission(
        self, viewer: Viewer, asked: SubmitRequest, task: Task | None = None
    ) -> Submission:
        """Return the submission that a request asks for, as it would be logged now. Raise Problem
        (403, 409, 422) where the job cannot be submitted.
        """
        self.in_charge("sbatch")
        fields = asked.model_dump(exclude={"array", "amounts"})
        job_id = new_job_id()
        if task is not None:
            job_id = f"{task.array}_{task.number}"
            variables = {name: str(task.number) for name in TASK_VARIABLES}
            fields["environment"] = {**fields["environment"], **variables}
        vc = self.vc_for(viewer, Wish(fields["vc"], fields["gpus"], fields["gpu_type"]))
        if fields["priority"] > 0 and viewer.role is not Role.OPERATOR:
            raise Problem(403, "forbidden", "a priority above 0 is an operator's to give")
        self.check_dependencies(viewer, fields)
        self.check_messages(fields)
        if (fields["memory_mib"] or 0.0) > self.host_mib:
            has = f"{self.host_mib:,.0f} MiB of the service's host"
            raise _unfit("memory_mib", f"{fields['memory_mib']:,.0f} MiB is more than the {has}")
        work, like = None, ""
        if fields["progress"] and self._reads_commands:
            work = work_of(asked.command, asked.amounts, asked.workdir)
            like = digest_of(asked.command, asked.workdir)
        depends = bool(fields["after"] or fields["after_any"])
        if task is not None and task.behind is not None:
            fields["at_once"] = task.at_once
            behind = f"{task.array}_{task.behind}"
            fields["after_any"] = ",".join([*named(fields["after_any"]), behind])
        submission = Submission(
            **{**fields, "command": tuple(asked.command), "vc": vc, "work": work, "like": like},
            job_id=job_id,
            owner=viewer.name,
            user=runs_as(viewer),
            submitted_at=self.now(),
        )
        if not depends:  # on a job that may yet make the program
            words, where = submission.command, submission.workdir
            if why := self._missing(words, where, submission.environment, submission.user):
                raise _unfit("command", why)
        return submission

    def submit_array(
        self, viewer: Viewer, asked: ArrayRequest, key: str | None = None
    ) -> SubmittedArray:
        """Submit the tasks of an array of jobs. Return the array's id and those of its tasks. If
        the request is sent again with the same `key`, only missing tasks are submitted. Raise
        Problem as `submit` does; tasks submitted before that stay.
        """
        numbers, at_once = tasks_of(asked.array)
        behind = [None] * at_once + numbers if at_once else [None] * len(numbers)
        keys: list[str | None] = [None] * len(numbers)
        if key is not None:
            stem = hashlib.sha256(key.encode()).hexdigest()
            keys = [f"array-{stem}-{number}" for number in numbers]
        ids: list[str] = []
        try:
            first = self.submit(viewer, asked, keys[0], Task(new_job_id(), numbers[0])).result()
            ids.append(first.job_id)
            array_id = first.job_id.rpartition("_")[0]
            more = [
                self.submit(viewer, asked, keys[i], Task(array_id, *one, at_once or None))
                for i, one in enumerate(zip(numbers, behind, strict=False))
                if i
            ]
            ids += [done.result().job_id for done in more]
        except Problem as problem:
            if ids:
                problem.detail += f" ({len(ids)} or more of {len(numbers)} tasks are submitted)"
            raise
        return SubmittedArray(array_id, ids)

    def vc_for(self, viewer: Viewer, asked: Wish) -> str:
        """Return the virtual cluster of a job: the one asked for, or the only one open to the
        viewer. Raise Problem unless the job fits there once all pending changes of nodes are made:
        403 where the viewer may not submit there, 422 where it does not fit, 503 before the log has
        begun.
        """
        if viewer.role is Role.VIEWER:
            raise Problem(403, "forbidden", "a viewer's token cannot submit jobs")
        known = self._shape
        try:
            return self._fitting(viewer, asked)
        except Problem:
            if not known or self._shape is not known:
                raise
        self._shape = {}
        return self._fitting(viewer, asked)

    def _fitting(self, viewer: Viewer, asked: Wish) -> str:
        shape = self._cluster()
        if not shape:
            raise _unfit("vc", "the cluster has no node for jobs now; operators can add one")
        open_to = [vc for vc in shape if viewer.may_submit_to(vc)]
        vc = asked.vc
        if vc is None:
            if len(open_to) != 1:
                choice = ", ".join(open_to) or "none"
                raise _unfit("vc", f"say which virtual cluster; yours: {choice}")
            vc = open_to[0]
        if not viewer.may_submit_to(vc) or vc not in shape:
            raise Problem(
                403, "forbidden", f"vc is {vc!r}; you may submit to: {', '.join(open_to) or 'none'}"
            )
        gpus, types = shape[vc]
        if asked.gpus > gpus:
            raise _unfit("gpus", f"{asked.gpus} is more than the {gpus} GPUs of {vc}")
        if asked.gpu_type is not None and asked.gpu_type not in types:
            known = ", ".join(sorted(types - {""})) or "none is named"
            raise _unfit("gpu_type", f"{asked.gpu_type!r} is in no node of {vc}; there: {known}")
        return vc

    def _cluster(self) -> Shape:
        """Return the number of GPUs and the types of GPU that each virtual cluster will have once
        all pending changes are made, without the nodes that it lends to the profiling partition.
        The answer is kept for `SHAPE_S` seconds. Raise Problem (503) before the log has begun.
        """
        if not self._shape or monotonic() > self._shape_until:
            with self._store.reading() as connection:
                present = Present.read(self._store, connection)
            if present is None:
                raise Problem(
                    503,
                    "not-ready",
                    "the service has not decided on a cluster yet",
                    retry_after_s=2,
                )
            shape: Shape = {}
            for has in present.nodes.for_jobs():
                before, types = shape.get(has.vc, (0, set()))
                shape[has.vc] = before + has.gpus, types | {has.gpu_type}
            self._shape, self._shape_until = shape, monotonic() + SHAPE_S
        return self._shape

    def check_vc(self, viewer: Viewer, job: JobRow, vc: str | None) -> None:
        """Raise Problem (403) unless the viewer may ask what would happen to a job in the virtual
        cluster `vc` (None: the job's own).

        Otherwise users could explore queues that are not open to them.
        """
        if vc in (None, job.vc):
            return
        shape = self._cluster()
        if vc not in shape or not (viewer.sees_all or vc in viewer.vcs):
            open_to = [one for one in shape if viewer.sees_all or one in viewer.vcs]
            raise Problem(
                403, "forbidden", f"vc is {vc!r}; you may ask about: {', '.join(open_to) or 'none'}"
            )

    def check_dependencies(
        self, viewer: Viewer, asked: Mapping[str, Any], job_id: str = ""
    ) -> None:
        """Raise Problem (422) unless every job that a job depends on is one that the viewer may
        see, may still end as required, and does not itself wait for that job. `job_id`: the job
        that depends on them; "" for a new one.
        """
        view = VisibleQueries(self._store.engine, viewer)
        for field in ("after", "after_any"):
            others = named(asked.get(field) or "")
            if len(others) > MOST:
                raise _unfit(field, f"{len(others)} jobs are named; give at most {MOST}")
            for other in others:
                try:
                    found = view.job(other)
                except UnknownJob:
                    raise _unfit(field, f"there is no job {other!r} that you may see") from None
                state = State.COMPLETED.value
                if field == "after" and Phase(found.phase).over and found.state != state:
                    ended = (found.state or found.phase).lower()
                    raise _unfit(field, f"job {other} ended: {ended}; after_any accepts any end")
                if job_id and self._waits_for(view, found, job_id):
                    raise _unfit(field, f"job {other} waits, itself, for {job_id}")

    def check_messages(self, asked: Mapping[str, Any]) -> None:
        """Raise Problem (422) where a request asks for messages and the service sends none."""
        if asked.get("notify") and not self.mails:
            why = (
                "this service sends no messages: `mail_program` is not set, an operator can set "
                "it; `pellucid logs JOB -f` ends with the job, and its page can say when it ends"
            )
            raise _unfit("notify", why)

    @staticmethod
    def _waits_for(view: VisibleQueries, job: JobRow, wanted: str) -> bool:
        """Return whether a job is the job `wanted`, or depends on it, directly or through other
        jobs."""
        seen, left = {job.job_id}, [job]
        while left:
            one = left.pop()
            if one.job_id == wanted:
                return True
            for other in {*named(one.after), *named(one.after_any)} - seen:
                seen.add(other)
                with suppress(UnknownJob):
                    left.append(view.job(other))
        return False

    # --- the rest ---------------------------------------------------------------------------

    def cancel(self, viewer: Viewer, job: JobRow) -> None:
        """Ask for a job to be stopped. Do nothing where it has ended, or that was asked before.
        Raise Problem (403, 409) where the viewer may not, or Slurm decides.
        """
        self.in_charge("scancel")
        if viewer.role is Role.VIEWER:
            raise Problem(403, "forbidden", "a viewer's token cannot cancel jobs")
        if not job.cancel_asked and not Phase(job.phase).over:
            self.append(Kind.CANCEL_ASKED, viewer.name, job.job_id)

    def set_priority(self, viewer: Viewer, job: JobRow, priority: int) -> None:
        """Set the priority of a waiting job. Submitters may give their own jobs 0 or less,
        operators any. Raise Problem (403, 409) where the viewer may not, or the job does not wait.
        """
        self.in_charge("scontrol update")
        self.check_priority(viewer, job, priority)
        if priority != job.priority:
            self.append(Kind.PRIORITY_SET, viewer.name, job.job_id, priority=priority)

    def check_priority(self, viewer: Viewer, job: JobRow, priority: int) -> None:
        """Raise Problem unless the viewer may give this priority to this job: 403 where they lack
        the right, 409 where the job does not wait.
        """
        if viewer.role is Role.VIEWER or (priority > 0 and viewer.role is not Role.OPERATOR):
            raise Problem(403, "forbidden", "a priority above 0 is an operator's to give")
        if not Phase(job.phase).waits:
            raise Problem(409, "not-waiting", f"the job is {job.phase}: its turn has come")

    def in_charge(self, instead: str) -> None:
        """Raise Problem (409) where Slurm decides and not this service. `instead` names the command
        of Slurm to use.
        """
        if self._follows:
            why = f"Slurm decides here, and this service looks on: use {instead}"
            raise Problem(409, "only-follows", why)

    def close(self) -> None:
        """Write all requested changes to the log, then stop the thread that writes."""
        self._writer.close()

    def write(self, events: Iterable[Event]) -> None:
        """Append events to the log in one transaction, together with those of other requests, and
        return once all are committed. Raise where they could not be written; then none is.
        """
        for done in self._writer.append_all(events):
            done.result()

    def append(self, kind: Kind, actor: str, job_id: str = "", **body: Any) -> None:
        """Append one event that changes no table by itself, and return once it is committed."""
        self._writer.append(Event(kind, self.now(), job_id, actor, body=body)).result()


def runs_as(viewer: Viewer) -> str:
    """Return the operating-system user as which the viewer's jobs run; "" for the service's own.

    Only a service that runs as root can run jobs as other users. Otherwise raise Problem (403) for
    a viewer with a token that names another user than the service's own. A service that runs as
    root raises Problem (403) for a token that names no user of this machine.
    """
    user, own = viewer.os_user, service_user()
    if os.geteuid() != 0:
        if user not in ("", own):
            raise Problem(
                403,
                "forbidden",
                f"your jobs are to run as {user}, and this service can only run them as {own}",
            )
        # by name, so that it does not become root's should root run the service next
        return own if _is_account(own) else ""
    if not user:
        raise Problem(
            403,
            "forbidden",
            "the service runs as root and your sign-in names no operating-system user",
        )
    if not _is_account(user):
        raise Problem(403, "forbidden", f"there is no user {user!r} on this machine")
    return user


def _is_account(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True


def _unfit(field: str, message: str) -> Problem:
    errors = [{"field": f"body.{field}", "message": message}]
    return Problem(422, "invalid-request", f"{field}: {message}", errors=errors)
