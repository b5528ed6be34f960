"""What the mode `order` changes in Slurm: priorities of pending jobs, and the comment that says
why.

Only jobs that wait for room or for their turn change places, and only with others of the same
partitions and QOS. The comment of a job whose priority was changed records the former one, so that
everything can be undone from Slurm's own state (`release_all`). A refused change is tried again at
growing intervals; a change that was made is not repeated at once.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import structlog

from scheduler.backends.events import Event, Kind
from scheduler.core.decisions import Action
from scheduler.explain.render import comment
from scheduler.slurm.read.client import Slurm, SlurmDown, SlurmError, quoted
from scheduler.slurm.read.order import priorities
from scheduler.slurm.read.parse import ParseError, SlurmJob
from scheduler.slurm.read.site import config_of, slurm_word
from scheduler.slurm.read.snapshot import ClusterSnapshot

OURS = "pellucid: "  # begins an AdminComment that may be overwritten
COMMENT_S = 300.0  # between two AdminComments of one job
AGAIN_S, LONGEST_S = 60.0, 7200.0  # until what Slurm refused is tried again, doubling
MULTIFACTOR, BASIC = "priority/multifactor", "priority/basic"
PRIORITY, COMMENT = "priority", "AdminComment"
IN_TURN = frozenset(("Priority", "Resources", "None"))  # what Slurm says of who only lacks room
_WAS = re.compile(rf"{OURS}(was=(\d+)(?: nice=(-?\d+))?)(?:; |$)")
RIGHTS = "SlurmUser, or AdminLevel=Admin in slurmdbd: an Operator may set no AdminComment"


@dataclass(frozen=True, slots=True)
class Order:
    """A change that is made to a pending job (or array).

    Attributes:
        what: name of the field in Slurm.
        value, was: the new and the former value.
        mark: the comment that is written with a priority.
    """

    job: str
    what: str
    value: int | str
    was: int | str
    mark: str = ""

    def line(self) -> str:
        """Return the change as a command line for `scontrol`."""
        value = quoted(self.value) if isinstance(self.value, str) and self.value else self.value
        mark = f" {COMMENT}={quoted(self.mark)}" if self.mark else ""
        return f"update jobid={self.job} {self.what}={value}{mark}"

    def event(self, now: float, dry: bool) -> Event:
        if self.what == PRIORITY:
            body = {"was": self.was, "priority": self.value, "dry": dry}
        else:
            body = {"comment": self.value, "dry": dry}
        return Event(Kind.ORDERED, now, self.job, body=body)


@dataclass(frozen=True, slots=True)
class Tried:
    """The result of the latest change of one field of a job. No other change of the field is made
    before `again_at`."""

    value: int | str
    again_at: float
    refusals: int = 0  # in a row


class Orders:
    """Derives changes (orders) from snapshots of the queue, and makes them in Slurm."""

    def __init__(self, slurm: Slurm) -> None:
        self._slurm = slurm
        self._tried: dict[tuple[str, str], Tried] = {}  # by job and field
        self.log = structlog.get_logger("follower")

    def wanted(self, snapshot: ClusterSnapshot, first: Collection[str]) -> list[Order]:
        """Return the changes to make now, without those that were refused or made a short while
        ago.

        Args:
            first: ids of the first jobs in line, which get a comment on why they wait.
        """
        there = {name for job in snapshot.waiting for name in (job, _array(job))}
        self._tried = {key: tried for key, tried in self._tried.items() if key[0] in there}
        found = list(_priorities(snapshot))
        moved = {order.job for order in found}
        found += [order for order in _comments(snapshot, first) if order.job not in moved]
        return [order for order in found if self._is_due(order, snapshot.now)]

    def _is_due(self, order: Order, now: float) -> bool:
        tried = self._tried.get((order.job, order.what))
        if tried is None:
            return True
        shown = self._slurm.dry and tried.value == order.value
        return now >= tried.again_at and not shown

    def carry_out(self, orders: Sequence[Order], now: float) -> None:
        """Make the changes in Slurm. A change that Slurm refuses is noted, and tried again later.
        Raise SlurmDown where Slurm does not answer, and SlurmError where `scontrol` cannot be
        run."""
        if not orders:
            return
        try:
            answers = self._slurm.write([order.line() for order in orders])
        except (SlurmDown, SlurmError) as error:  # some may have been carried out
            self._note(orders, [str(error)] * len(orders), now)
            raise
        self._note(orders, answers, now)

    def _note(self, orders: Sequence[Order], answers: Sequence[str], now: float) -> None:
        """Record Slurm's answer to each change. Log a change that is refused for the first time."""
        first: list[tuple[Order, str]] = []
        for order, why in zip(orders, answers, strict=True):
            key = order.job, order.what
            if not why:
                pause = COMMENT_S if order.what == COMMENT else 0.0
                self._tried[key] = Tried(order.value, now + pause)
                continue
            before = self._tried[key].refusals if key in self._tried else 0
            if not before:
                first.append((order, why))
            pause = min(AGAIN_S * 2 ** min(before, 16), LONGEST_S)
            self._tried[key] = Tried(order.value, now + pause, before + 1)
        if first:
            order, why = first[0]
            self.log.warning(
                "slurm_refused",
                orders=len(first),
                command=order.line(),
                why=why,
                **({"needs": RIGHTS} if "denied" in why else {}),
                again_in_s=AGAIN_S,
                then=f"twice as late each time, up to {LONGEST_S:g} s, and not logged again",
            )


def _priorities(snapshot: ClusterSnapshot) -> Iterator[Order]:
    reasons = _reasons(snapshot)
    alike: dict[tuple[str, str], dict[str, SlurmJob]] = {}
    for job_id in snapshot.order:
        job = snapshot.waiting[job_id]  # tasks that wait in an array have one priority
        if job.priority and slurm_word(job.reason) in IN_TURN and _may_say(job):
            alike.setdefault((job.partition, job.qos), {}).setdefault(_array(job_id), job)
    for jobs in alike.values():
        now = [(name, job.priority) for name, job in jobs.items()]
        for name, priority in priorities(now).items():
            job = jobs[name]
            was = _WAS.match(job.admin_comment)
            mark = f"{OURS}{was[1] if was else _standing(job)}"
            why = reasons.get(job.id, "")
            yield Order(
                job=name,
                what=PRIORITY,
                value=priority,
                was=job.priority,
                mark=f"{mark}; {why}" if why else mark,
            )


def _standing(job: SlurmJob) -> str:
    """Return a job's priority and nice as text for its comment, so that they can be restored. The
    nice is kept because setting a priority sets it to 0."""
    return f"was={job.priority}" + (f" nice={job.nice}" if job.nice else "")


def _may_say(job: SlurmJob) -> bool:
    """Return whether the comment of a job may be overwritten: it is empty, or was written by this
    program. The site's own AdminComment is kept."""
    return not job.admin_comment or job.admin_comment.startswith(OURS)


def _reasons(snapshot: ClusterSnapshot) -> dict[str, str]:
    """Return the comment that says why a job waits, by job id, for each waiting job."""
    return {d.job_id: comment(d) for d in snapshot.decisions if d.action is Action.WAIT}


def _comments(snapshot: ClusterSnapshot, first: Collection[str]) -> Iterator[Order]:
    """Yield the changes that write why jobs wait into their comments, for the first jobs in line
    and for jobs with an earlier comment. The reason is removed where Slurm has another reason.
    Single tasks are left out, because a change would take them out of their array."""
    reasons = _reasons(snapshot)
    for job_id in snapshot.order:
        job = snapshot.waiting[job_id]
        there = job.admin_comment
        ours = there.startswith(OURS) or (not there and job_id in first)
        if job_id not in reasons or "_" in job_id or not ours:
            continue
        was = _WAS.match(there)
        parts = [was[1]] if was else []
        if slurm_word(job.reason) in IN_TURN:
            parts.append(reasons[job_id])
        text = OURS + "; ".join(parts) if parts else ""
        if text != there:
            yield Order(job_id, COMMENT, text, there)


def release_all(slurm: Slurm) -> dict[str, str]:
    """Undo every priority and comment that the mode `order` gave to waiting jobs.

    With priority/multifactor, Slurm computes the priority again. With priority/basic, a job gets
    back the priority that it had. Jobs that were held meanwhile stay held.

    Return Slurm's error for each job (or array), "" where it was undone. Raise SlurmDown,
    SlurmError or ParseError where Slurm cannot be read.
    """
    weighs = _priority_type(slurm)
    marked = {
        _array(job.id): job
        for job in slurm.jobs()
        if job.state == "PENDING" and job.admin_comment.startswith(OURS)
    }
    found: dict[str, str] = {}
    for name, job in marked.items():
        was, error = _WAS.match(job.admin_comment), ""
        if was is not None and job.priority:
            back = [f"update jobid={name} priority={was[2]}"]
            if weighs == MULTIFACTOR:
                back = [f"release {name}"]
                back += [f"update jobid={name} nice={was[3]}"] if was[3] else []
            error = " ".join(filter(None, slurm.write(back)))
        if not error:  # what is not taken back must be found again by its mark
            [error] = slurm.write([f"update jobid={name} {COMMENT}="])
        found[name] = error
    return found


def take_back(slurm: Slurm, log: structlog.typing.FilteringBoundLogger) -> None:
    """Remove the priorities and comments that this program gave to Slurm's jobs. Log how many they
    were, or that it failed."""
    try:
        answers = release_all(slurm)
    except (SlurmDown, SlurmError, ParseError) as error:
        say_left(log, str(error))
        return
    log.info("order_taken_back", jobs=len(answers), refused=sum(map(bool, answers.values())))


def say_left(log: structlog.typing.FilteringBoundLogger, why: str) -> None:
    """Log that Slurm's jobs keep what this program gave them, and how to take it back."""
    log.error("order_left", why=why, take_back="pellucid slurm release-all")


def _priority_type(slurm: Slurm) -> str:
    """Return the site's PriorityType. Raise ParseError for an unknown one, since changes of
    priorities depend on it and cannot be undone.
    """
    found = config_of(slurm.read("scontrol", "show", "config")).get("PriorityType", "")
    if found not in (MULTIFACTOR, BASIC):
        shown = f"PriorityType is {found[:40]!r}" if found else "no PriorityType"
        raise ParseError(f"scontrol show config: {shown}, only {MULTIFACTOR} and {BASIC} are known")
    return found


def _array(job_id: str) -> str:
    """Return the id of a task's array; for any other job, the job's own id."""
    return job_id.partition("_")[0]
