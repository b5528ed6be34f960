"""What `order` changes in Slurm: priorities of pending jobs, and the comment that says why.

A change that was refused is tried again ever later; one that was made is not repeated at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import structlog

from scheduler.backends.events import Event, Kind
from scheduler.backends.slurm.client import Slurm, SlurmDown, SlurmError, quoted
from scheduler.backends.slurm.order import priorities
from scheduler.backends.slurm.snapshot import ClusterSnapshot
from scheduler.core.decisions import Action

OURS = "pellucid: "  # begins an AdminComment that may be overwritten
COMMENT_S = 300.0  # between two AdminComments of one job
AGAIN_S, LONGEST_S = 60.0, 7200.0  # until what Slurm refused is tried again, doubling
PRIORITY, COMMENT = "priority", "AdminComment"


@dataclass(frozen=True, slots=True)
class Order:
    """A change to a pending job (or array). `what` is the field's name in Slurm."""

    job: str
    what: str
    value: int | str
    was: int | str

    def line(self) -> str:
        """The command for `scontrol`."""
        value = quoted(self.value) if isinstance(self.value, str) else self.value
        return f"update jobid={self.job} {self.what}={value}"

    def event(self, now: float, dry: bool) -> Event:
        if self.what == PRIORITY:
            body = {"was": self.was, "priority": self.value, "dry": dry}
        else:
            body = {"comment": self.value, "dry": dry}
        return Event(Kind.ORDERED, now, self.job, body=body)


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of the latest order of a kind to a job: no other before `again_at`."""

    value: int | str
    again_at: float
    refusals: int = 0  # in a row


class Orders:
    """Makes orders of pictures, and carries them out."""

    def __init__(self, slurm: Slurm) -> None:
        self._slurm = slurm
        self._tried: dict[tuple[str, str], Tried] = {}  # by job and field
        self.log = structlog.get_logger("follower")

    def wanted(self, snapshot: ClusterSnapshot, first: Collection[str]) -> list[Order]:
        """What is to be changed now: not what was refused or said a short while ago.

        Args:
            first: the jobs first in line, which are shown why they wait.
        """
        there = {name for job in snapshot.waiting for name in (job, _array(job))}
        self._tried = {key: tried for key, tried in self._tried.items() if key[0] in there}
        found = [*_priorities(snapshot), *_comments(snapshot, first)]
        return [order for order in found if self._is_due(order, snapshot.now)]

    def _is_due(self, order: Order, now: float) -> bool:
        tried = self._tried.get((order.job, order.what))
        if tried is None:
            return True
        shown = self._slurm.dry and tried.value == order.value
        return now >= tried.again_at and not shown

    def carry_out(self, orders: Sequence[Order], now: float) -> None:
        """Raises SlurmDown, SlurmError."""
        if not orders:
            return
        try:
            answers = self._slurm.write([order.line() for order in orders])
        except (SlurmDown, SlurmError) as error:  # some may have been carried out
            self._note(orders, [str(error)] * len(orders), now)
            raise
        self._note(orders, answers, now)

    def _note(self, orders: Sequence[Order], answers: Sequence[str], now: float) -> None:
        """Remember what was answered; say what is refused for the first time."""
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
                again_in_s=AGAIN_S,
                then=f"twice as late each time, up to {LONGEST_S:g} s, and not logged again",
            )


def _priorities(snapshot: ClusterSnapshot) -> Iterator[Order]:
    by_vc: dict[str, dict[str, int]] = {}
    for job_id in snapshot.order:
        job = snapshot.waiting[job_id]  # tasks that wait in an array have one priority
        by_vc.setdefault(job.partition, {}).setdefault(_array(job_id), job.priority)
    for now in by_vc.values():
        for job_id, priority in priorities(list(now.items())).items():
            yield Order(job_id, PRIORITY, priority, now[job_id])


def _comments(snapshot: ClusterSnapshot, first: Collection[str]) -> Iterator[Order]:
    """Why they wait, for those first in line and those answered before.

    What the site wrote there stays. A task is not changed by itself: that would take it out of
    its array. Everybody may read it, so no other job is named.
    """
    said = {d.job_id: d for d in snapshot.decisions if d.action is Action.WAIT}
    for job_id in snapshot.order:
        decision, there = said.get(job_id), snapshot.waiting[job_id].admin_comment
        ours = there.startswith(OURS) or (not there and job_id in first)
        if decision is None or "_" in job_id or not ours:
            continue
        text = f"{OURS}{decision.reason}: {decision.sentence(visible=())}"
        if text != there:
            yield Order(job_id, COMMENT, text, there)


def _array(job_id: str) -> str:
    """The array a task is of, or the job itself."""
    return job_id.partition("_")[0]
