"""Makes work cost simulated processor time, in proportion to its amount.

A backlog of a hundred thousand jobs is played by a few jobs, each of which costs as much as all
those that it stands for. The costs are those that were measured (benchmarks/size.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from sqlalchemy import Connection, func, insert, select

from benchmarks.chaos import system
from benchmarks.chaos.kernel import active
from scheduler.backends.events import Event, Kind
from scheduler.backends.submission import Submission
from scheduler.core.decisions import Decision
from scheduler.service.decide import decider as deciders
from scheduler.service.log import fold
from scheduler.service.log.fold import State
from scheduler.service.log.record import Phase, first_row
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import jobs

PLAYED = 200  # jobs that stand for a backlog
EVENT_S, DECISION_S = 0.4e-3, 0.07e-3  # to take one event of it into a pass, to encode one decision
NAMED = "backlog-"
BACKLOG = [0]  # jobs that the backlog of the run of now stands for


def folded_s(backlog: int) -> float:
    """Return how many simulated seconds a new decider needs to read the log of a backlog of so many
    jobs and to decide on its first part.
    """
    return backlog * (EVENT_S + DECISION_S) * 1.1


def submitted(store: Store) -> int:
    """Submit the whole backlog at once. Every job asks for more GPUs than the cluster has, so the
    service refuses it at the next pass. Return the number of jobs.
    """
    now = store.clock.now()
    asked = [
        Submission(
            job_id=f"{NAMED}{n}",
            submitted_at=now,
            command=("train",),
            owner="crowd",
            vc="left",
            gpus=64,
        )
        for n in range(PLAYED)
    ]

    def rows(connection: Connection, appended: list[Event]) -> None:
        connection.execute(insert(jobs), [first_row(event) for event in appended])

    events = [Event(Kind.SUBMITTED, now, a.job_id, a.owner, body=a.body()) for a in asked]
    return len(store.append(events, rows))


def undecided(connection: Connection) -> int:
    """Return how many of the backlog's jobs no pass (round of decisions) has refused yet."""
    query = select(func.count()).select_from(jobs).where(jobs.c.job_id.startswith(NAMED))
    return int(connection.execute(query.where(jobs.c.phase != Phase.REFUSED)).scalar_one())


def _charge(job_id: str, each_s: float) -> None:
    kernel = active()
    if kernel is not None and job_id.startswith(NAMED):
        kernel.compute(each_s * BACKLOG[0] / PLAYED)


def install(patches: system.Patches) -> None:
    """Patch the service: reading an event and writing a decision of a backlog's job cost simulated
    time. A part of a pass holds proportionally fewer of these jobs, as each stands for many.
    """
    cover, encoded = State._cover, fold.encoded
    upto: Callable[[State, int], int] = State.upto

    def covered(self: State, core: Any, event: Event) -> None:
        cover(self, core, event)
        _charge(event.job_id, EVENT_S)

    def texts(decisions: Iterable[Decision]) -> list[str]:
        def costly() -> Iterable[Decision]:
            for decision in decisions:
                _charge(decision.job_id, DECISION_S)
                yield decision

        return encoded(costly())

    def slice_of(self: State, most: int) -> int:
        return upto(self, max(1, most * PLAYED // BACKLOG[0]) if BACKLOG[0] else most)

    patches.put(State, "_cover", covered)
    patches.put(fold, "encoded", texts)
    patches.put(deciders, "encoded", texts)
    patches.put(State, "upto", slice_of)
